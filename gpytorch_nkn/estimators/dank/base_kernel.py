"""Kernels to start from: scikit-learn's by name, GPyTorch's, or any function of two tables."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.sparse.linalg import ArpackError, eigsh
from sklearn.metrics.pairwise import pairwise_kernels

from gpytorch_nkn.fit import check_number

__all__ = ["KERNEL_NAMES", "BaseKernel", "GPyTorchGram", "check_gram", "make_base_kernel"]

# Those that are positive semi-definite, with the parameters that each takes.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "linear": (),
    "poly": ("gamma", "degree", "coef0"),
    "polynomial": ("gamma", "degree", "coef0"),
    "cosine": (),
    "chi2": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "additive_chi2": (),
}
KERNEL_NAMES = tuple(_PARAMETERS)
_NOT_DEFINITE = ("sigmoid", "additive_chi2")
_BLOCK = 2**22  # entries of a Gram matrix that are computed at once
_NEGATIVE = 1e-6  # of the largest eigenvalue, below which one is negative


@dataclass(frozen=True)
class BaseKernel:
    """A kernel between two tables, ``M x D`` and ``N x D``: ``M x N``.

    Attributes:
        function: A name of ``KERNEL_NAMES``, or a function of both tables.
        gamma: Of the named kernels that have one.
        degree: Of the polynomial kernel.
        coef0: Of the polynomial and the sigmoid kernel.
    """

    function: str | Callable[[np.ndarray, np.ndarray], np.ndarray]
    gamma: float = 1.0
    degree: float = 3
    coef0: float = 0.0

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N``.

        Raises:
            ValueError: A function gave another shape, or values are not finite.
        """
        if isinstance(self.function, str):
            names = _PARAMETERS[self.function]
            options = {name: getattr(self, name) for name in names}
            if self.function == "rbf":  # whose squared distances lose digits far from zero
                middle = right.mean(axis=0)
                left, right = left - middle, right - middle
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                gram = pairwise_kernels(left, right, metric=self.function, **options)
        else:
            gram = np.asarray(self.function(left, right), dtype=np.float64)
        if gram.shape != (len(left), len(right)):
            raise ValueError(
                f"kernel must return shape {(len(left), len(right))} for tables of shapes "
                f"{left.shape} and {right.shape}, got {gram.shape}."
            )
        if not np.isfinite(gram).all():
            raise ValueError("kernel returned NaN or infinite values.")
        return gram

    @property
    def is_definite(self) -> bool:
        """Whether the kernel is known to be positive semi-definite."""
        return isinstance(self.function, str) and self.function not in _NOT_DEFINITE

    @property
    def width(self) -> float | None:
        """Length over which a kernel falls, ``None`` of those that do not fall with distance."""
        if self.function == "rbf":
            return float((2.0 * self.gamma) ** -0.5)
        return 1.0 / self.gamma if self.function == "laplacian" else None

    def widened(self, factor: float) -> BaseKernel:
        """The same with its :attr:`width` times a factor."""
        power = 2 if self.function == "rbf" else 1
        return replace(self, gamma=self.gamma / factor**power)


class GPyTorchGram:
    """A GPyTorch kernel as a function of two NumPy tables, with its present hyperparameters.

    Args:
        kernel: Without batch dimensions. It is copied.

    Raises:
        ValueError: The kernel has batch dimensions.
    """

    def __init__(self, kernel: Kernel):
        if kernel.batch_shape:
            raise ValueError(
                f"kernel must have no batch dimensions, got batch_shape "
                f"{tuple(kernel.batch_shape)}."
            )
        self.kernel = copy.deepcopy(kernel).cpu().double().eval()

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N`` between tables ``M x D`` and ``N x D``."""
        # Copies: kernels take equal inputs by identity, and arrays may be read-only.
        x2 = torch.tensor(right, dtype=torch.float64)
        step = max(1, _BLOCK // max(len(right), 1))
        with torch.inference_mode(False), torch.no_grad():
            parts = [
                self.kernel(torch.tensor(left[i : i + step], dtype=torch.float64), x2).to_dense()
                for i in range(0, len(left), step)
            ]
        return torch.cat(parts).numpy() if parts else np.empty((0, len(right)))


def make_base_kernel(
    kernel: str | Callable[[np.ndarray, np.ndarray], np.ndarray] | Kernel,
    X: np.ndarray,
    *,
    gamma: float | str,
    degree: float,
    coef0: float,
) -> BaseKernel:
    """The base kernel of an estimator.

    Args:
        kernel: A name of scikit-learn's, a function of two tables, or a GPyTorch kernel.
        X: Training inputs ``n x D``, for the rules of ``gamma``.
        gamma: A positive number, ``"scale"`` or ``"auto"``.
        degree: Of the polynomial kernel.
        coef0: Of the polynomial and the sigmoid kernel.

    Raises:
        TypeError: An argument is of a wrong type.
        ValueError: An argument has no meaning.
    """
    function: Any = kernel
    if isinstance(kernel, Kernel):
        function = GPyTorchGram(kernel)
    elif isinstance(kernel, str):
        if kernel not in KERNEL_NAMES:
            raise ValueError(
                f"kernel must be one of {[*KERNEL_NAMES, 'precomputed']}, a function of two tables "
                f"or a GPyTorch kernel, got {kernel!r}."
            )
    elif not callable(kernel):
        raise TypeError(
            f"kernel must be a name, a function of two tables or a GPyTorch kernel, got {kernel!r}."
        )
    check_number("gamma", gamma, positive=True, words=("scale", "auto"))
    check_number("degree", degree, positive=False)
    check_number("coef0", coef0, positive=False)
    if isinstance(gamma, str):
        with np.errstate(over="ignore", invalid="ignore"):
            variance = float(X.var()) if gamma == "scale" else 1.0
        if not np.isfinite(variance):
            raise ValueError(f"X holds values that are too large, up to {np.abs(X).max():g}.")
        gamma = 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
    return BaseKernel(function, float(gamma), float(degree), float(coef0))


def check_gram(gram: np.ndarray) -> None:
    """Refuse a Gram matrix ``n x n`` that no kernel has.

    Raises:
        ValueError: It is not symmetric, or has a negative eigenvalue.
    """
    scale = float(np.abs(gram).max())
    if not np.allclose(gram, gram.T, rtol=0.0, atol=1e-8 * scale):
        where = np.unravel_index(np.abs(gram - gram.T).argmax(), gram.shape)
        raise ValueError(
            f"The Gram matrix of the training rows must be symmetric, but entries "
            f"{tuple(int(i) for i in where)} and {tuple(int(i) for i in where[::-1])} differ: "
            f"{gram[where]:g} and {gram.T[where]:g}."
        )
    size = len(gram)
    lowest = None
    if size > 500:
        try:
            lowest = float(
                eigsh(gram, 1, which="SA", v0=np.ones(size), tol=1e-3, maxiter=300)[0][0]
            )
        except ArpackError:
            pass
    if lowest is None:
        lowest = float(np.linalg.eigvalsh(gram)[0])
    if lowest < -_NEGATIVE * scale * size**0.5:
        raise ValueError(
            "The Gram matrix of the training rows must be positive semi-definite, but its least "
            f"eigenvalue is {lowest:g} (largest entry: {scale:g}). The sigmoid and the additive "
            "chi-squared kernel, for example, are not in general."
        )
