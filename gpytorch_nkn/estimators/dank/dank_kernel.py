"""Kernels to start from, as support vector machines take them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.sparse.linalg import ArpackError, eigsh

from gpytorch_nkn.estimators.dank.support_vectors import KERNEL_NAMES, BaseKernel

__all__ = ["GPyTorchGram", "check_gram", "make_base_kernel"]

_BLOCK = 2**22  # entries of a Gram matrix that are computed at once
_NEGATIVE = 1e-6  # of the largest eigenvalue, below which one is negative


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
    if isinstance(gamma, str):
        if gamma not in ("scale", "auto"):
            raise ValueError(f"gamma must be 'scale', 'auto' or a number, got {gamma!r}.")
        with np.errstate(over="ignore", invalid="ignore"):
            variance = float(X.var()) if gamma == "scale" else 1.0
        if not np.isfinite(variance):
            raise ValueError(f"X holds values that are too large, up to {np.abs(X).max():g}.")
        value = 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
    elif not isinstance(gamma, Real) or isinstance(gamma, bool):
        raise TypeError(f"gamma must be 'scale', 'auto' or a number, got {gamma!r}.")
    elif not 0 < gamma < float("inf"):
        raise ValueError(f"gamma must be positive and finite, got {gamma}.")
    else:
        value = float(gamma)
    for name, number in (("degree", degree), ("coef0", coef0)):
        if not isinstance(number, Real) or isinstance(number, bool):
            raise TypeError(f"{name} must be a number, got {number!r}.")
        if not 0 <= number < float("inf"):
            raise ValueError(f"{name} must be finite and not negative, got {number}.")
    return BaseKernel(function, value, float(degree), float(coef0))


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
