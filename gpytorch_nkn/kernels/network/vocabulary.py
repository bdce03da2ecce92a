"""The words for kernels: what a name given as ``structure`` stands for, wherever there is one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, SpectralMixtureKernel

from gpytorch_nkn.kernels.network.neural_kernel_network import NeuralKernelNetwork
from gpytorch_nkn.kernels.network.presets import mixed_parts
from gpytorch_nkn.layers import Linear

__all__ = ["NETWORKS", "check_word", "named_kernel", "named_network"]

# The preset of NeuralKernelNetwork that a word stands for, and its options.
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "additive": ("additive", {}),
    "columns": ("tabular", {"columns": True}),
    "isotropic": ("tabular", {"ard": False}),
    "optimization": ("optimization", {}),
    "pairs": ("pairs", {}),
    "paper": ("additive", {"priors": False}),
    "regression": ("regression", {}),
    "spectral": ("tabular", {"spectral": 4}),
    "tabular": ("tabular", {}),
    "texture": ("texture", {}),
    "time_series": ("time_series", {}),
}
_ONE_COLUMN = ("texture", "time_series")

# Single kernels over all columns, without a scale, which is for those who use them to add.
_KERNELS: dict[str, Callable[[int], Kernel]] = {
    "matern": lambda dim: MaternKernel(nu=2.5, ard_num_dims=dim),
    "periodic": lambda dim: PeriodicKernel(),
    "rbf": lambda dim: RBFKernel(ard_num_dims=dim),
    "spectral_mixture": lambda dim: SpectralMixtureKernel(num_mixtures=10, ard_num_dims=dim),
}
# Those that are mixed with kernels of categories, by the arguments of their columns.
_MIXED: dict[str, Callable[..., Kernel]] = {
    "matern": lambda **columns: MaternKernel(nu=2.5, **columns),
    "rbf": RBFKernel,
}


def check_word(word: str, words: Collection[str], otherwise: str) -> None:
    """Refuse a name that is none of the words; the message also says what else could be given."""
    if word not in words:
        raise ValueError(
            f"structure must be one of {tuple(sorted(words))} or {otherwise}, got {word!r}."
        )


def named_network(word: str, num_columns: int, **options: Any) -> NeuralKernelNetwork:
    """The network that a word of ``NETWORKS`` stands for, with further options of its preset."""
    preset, own = NETWORKS[word]
    make = getattr(NeuralKernelNetwork, preset)
    network: NeuralKernelNetwork
    if preset in _ONE_COLUMN:
        if num_columns != 1:
            raise ValueError(
                f"structure={word!r} is for one input column, got {num_columns}: choose one with "
                "active_dims."
            )
        if options.pop("cat_dims", ()):
            raise ValueError(f"structure={word!r} is for a column of numbers, not of categories.")
        network = make(**{**own, **options})
    else:
        network = make(num_columns, **{**own, **options})
    return network


def named_kernel(
    word: str, num_columns: int, *, priors: bool = True, cat_dims: Iterable[int] = ()
) -> Kernel:
    """The network, or single kernel without a scale, that a word stands for.

    Without ``priors`` a network has none, either. With columns ``cat_dims`` of categories a single
    kernel becomes a network, see :func:`mixed_parts`.
    """
    categories = {"cat_dims": tuple(cat_dims)} if cat_dims else {}
    if word in NETWORKS:
        return named_network(
            word, num_columns, **categories, **({} if priors else {"priors": False})
        )
    if categories:
        if word not in _MIXED:
            raise ValueError(f"structure={word!r} is for columns of numbers, not of categories.")
        parts, layers = mixed_parts(_MIXED[word], num_columns, cat_dims)
        return NeuralKernelNetwork(parts, layers or [Linear(1, 1)])
    return _KERNELS[word](num_columns)
