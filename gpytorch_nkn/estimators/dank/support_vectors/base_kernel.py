"""Kernels to start from: scikit-learn's by name, or any function of two tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sklearn.metrics.pairwise import pairwise_kernels

__all__ = ["KERNEL_NAMES", "BaseKernel"]

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
            with np.errstate(over="ignore", invalid="ignore"):
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
