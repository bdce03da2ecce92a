"""Names of kernels and networks for ``structure`` arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, SpectralMixtureKernel

from gpytorch_nkn.kernels.network.neural_kernel_network import NeuralKernelNetwork
from gpytorch_nkn.kernels.network.presets import mixed_parts
from gpytorch_nkn.layers import Linear

__all__ = ["NETWORKS", "check_name", "named_kernel", "named_network", "numbered_names"]

# Presets of NeuralKernelNetwork and their options, by name.
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

# Single kernels over all columns, without output scale.
_KERNELS: dict[str, Callable[[int], Kernel]] = {
    "matern": lambda dim: MaternKernel(nu=2.5, ard_num_dims=dim),
    "periodic": lambda dim: PeriodicKernel(),
    "rbf": lambda dim: RBFKernel(ard_num_dims=dim),
    "spectral_mixture": lambda dim: SpectralMixtureKernel(num_mixtures=10, ard_num_dims=dim),
}
# Single kernels that :func:`mixed_parts` combines with categorical kernels.
_MIXED: dict[str, Callable[..., Kernel]] = {
    "matern": lambda **columns: MaternKernel(nu=2.5, **columns),
    "rbf": RBFKernel,
}


def check_name(name: str, names: Collection[str], otherwise: str) -> None:
    """Check that ``name`` is a known name; ``otherwise`` describes other valid values."""
    if name not in names:
        raise ValueError(
            f"structure must be one of {tuple(sorted(names))} or {otherwise}, got {name!r}."
        )


def numbered_names(structures: Sequence[str | Kernel]) -> tuple[str, ...]:
    """Return the names of the structures; repeated names are numbered from 2."""
    words = [s if isinstance(s, str) else type(s).__name__ for s in structures]
    before = [words[:index].count(word) for index, word in enumerate(words)]
    return tuple(f"{w} {n + 1}" if n else w for w, n in zip(words, before, strict=True))


def named_network(name: str, num_columns: int, **options: Any) -> NeuralKernelNetwork:
    """Create the network named in ``NETWORKS``, with additional options of its preset."""
    preset, defaults = NETWORKS[name]
    make = getattr(NeuralKernelNetwork, preset)
    if preset not in _ONE_COLUMN:
        return make(num_columns, **{**defaults, **options})
    if num_columns != 1:
        raise ValueError(
            f"structure={name!r} needs one input column, got {num_columns}: select one by "
            "active_dims."
        )
    if options.pop("cat_dims", ()):
        raise ValueError(f"structure={name!r} needs numeric columns, got a categorical column.")
    return make(**{**defaults, **options})


def named_kernel(
    name: str, num_columns: int, *, priors: bool = True, cat_dims: Iterable[int] = ()
) -> Kernel:
    """Create a network, or a single kernel without output scale, by its name.

    With categorical columns a single kernel becomes a network, see :func:`mixed_parts`.
    """
    categories = {"cat_dims": tuple(cat_dims)} if cat_dims else {}
    if name in NETWORKS:
        return named_network(
            name, num_columns, **categories, **({} if priors else {"priors": False})
        )
    if categories:
        if name not in _MIXED:
            raise ValueError(
                f"structure={name!r} needs numeric columns, got categorical columns {cat_dims}."
            )
        parts, layers = mixed_parts(_MIXED[name], num_columns, cat_dims, priors=priors)
        return NeuralKernelNetwork(parts, layers or [Linear(1, 1)])
    return _KERNELS[name](num_columns)
