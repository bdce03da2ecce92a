"""Base kernels: names in scikit-learn, GPyTorch kernels, or functions of two tables."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.metrics.pairwise import pairwise_kernels

from gpytorch_nkn.fit import check_number

__all__ = ["BaseKernel", "check_gram", "make_base_kernel"]

_NAMED = ("rbf", "laplacian", "linear", "poly", "cosine", "chi2")  # positive semi-definite ones
_CHECKED = 1000  # number of rows whose Gram matrix is checked for negative eigenvalues
_NEGATIVE = 1e-6  # largest -eigenvalue / (largest entry sqrt(n)) that counts as rounding error


@dataclass(frozen=True)
class BaseKernel:
    """Named kernel of scikit-learn, or a function of two tables ``M x D`` and ``N x D``."""

    function: str | Callable[[np.ndarray, np.ndarray], np.ndarray]
    gamma: float = 1.0

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the Gram matrix ``M x N``."""
        if isinstance(self.function, str):
            if self.function == "rbf":  # squared distances of large numbers lose digits
                middle = right.mean(axis=0)
                left, right = left - middle, right - middle
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                gram = pairwise_kernels(
                    left, right, self.function, filter_params=True, gamma=self.gamma, coef0=0.0
                )
        else:
            gram = np.asarray(self.function(left, right), dtype=np.float64)
        if gram.shape != (len(left), len(right)):
            raise ValueError(
                f"kernel must return shape {(len(left), len(right))} for tables of shapes "
                f"{left.shape} and {right.shape}, got {gram.shape}."
            )
        if not np.isfinite(gram).all():
            raise ValueError("kernel must return finite values, got NaN or infinite values.")
        return gram

    @property
    def lengthscale(self) -> float | None:
        """Lengthscale of an RBF or Laplacian kernel; ``None`` for other kernels."""
        if self.function == "rbf":
            return float((2.0 * self.gamma) ** -0.5)
        return 1.0 / self.gamma if self.function == "laplacian" else None

    def widened(self, factor: float) -> BaseKernel:
        """Return the kernel with its :attr:`lengthscale` multiplied by a factor."""
        power = 2 if self.function == "rbf" else 1
        return replace(self, gamma=self.gamma / factor**power)


def _gpytorch_gram(kernel: Kernel, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the Gram matrix ``M x N`` of a GPyTorch kernel."""
    # copies, because arrays may be read-only
    x1, x2 = (torch.tensor(rows, dtype=torch.float64) for rows in (left, right))
    with torch.inference_mode(False), torch.no_grad():
        return kernel(x1, x2).to_dense().numpy()


def make_base_kernel(
    kernel: str | Callable[[np.ndarray, np.ndarray], np.ndarray] | Kernel,
    X: np.ndarray,
    gamma: float | str,
) -> BaseKernel:
    """Return an estimator's base kernel; training rows ``n x D`` determine ``gamma``."""
    function: Any = kernel
    if isinstance(kernel, Kernel):
        if kernel.batch_shape:
            shape = tuple(kernel.batch_shape)
            raise ValueError(f"kernel must have no batch dimensions, got batch_shape {shape}.")
        function = partial(_gpytorch_gram, copy.deepcopy(kernel).cpu().double().eval())
    elif isinstance(kernel, str):
        if kernel not in _NAMED:
            raise ValueError(
                f"kernel must be one of {[*_NAMED]}, a function of two tables "
                f"or a GPyTorch kernel, got {kernel!r}."
            )
    elif not callable(kernel):
        raise TypeError(
            f"kernel must be a name, a function of two tables or a GPyTorch kernel, got {kernel!r}."
        )
    check_number("gamma", gamma, positive=True, words=("scale", "auto"))
    if isinstance(gamma, str):
        with np.errstate(over="ignore", invalid="ignore"):
            variance = float(X.var()) if gamma == "scale" else 1.0
        if not np.isfinite(variance):
            raise ValueError(
                f"X must have a finite variance, got values up to {np.abs(X).max():g}."
            )
        gamma = 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
    return BaseKernel(function, float(gamma))


def check_gram(gram: np.ndarray) -> None:
    """Raise an error unless a Gram matrix is symmetric and positive semi-definite."""
    scale = float(np.abs(gram).max())
    if not np.allclose(gram, gram.T, rtol=0.0, atol=1e-8 * scale):
        i, j = divmod(int(np.abs(gram - gram.T).argmax()), len(gram))
        raise ValueError(
            "The Gram matrix of the training rows must be symmetric, but entries "
            f"{i, j} and {j, i} differ: {gram[i, j]:g} and {gram[j, i]:g}."
        )
    rows = np.unique(np.linspace(0, len(gram) - 1, _CHECKED).astype(np.intp))
    lowest = float(np.linalg.eigvalsh(gram[np.ix_(rows, rows)])[0])
    if lowest < -_NEGATIVE * scale * len(rows) ** 0.5:
        raise ValueError(
            "The Gram matrix of the training rows must be positive semi-definite, but its smallest "
            f"eigenvalue is {lowest:g} (largest entry: {scale:g}). Some kernels, such as the "
            "sigmoid kernel, are indefinite."
        )
