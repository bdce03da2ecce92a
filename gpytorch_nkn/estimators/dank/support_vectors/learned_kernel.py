"""A base kernel times what was learned about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpytorch_nkn.estimators.dank.support_vectors.extension import SmoothExtension
from gpytorch_nkn.estimators.dank.support_vectors.relevance import relevance_factor

__all__ = ["LearnedKernel", "RelevanceKernel", "RelevanceTerm"]

Function = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class RelevanceTerm:
    r"""A kernel that is narrowed along the inputs that matter.

    .. math::
        a\, k_m(x, x') \exp\Bigl(-\tfrac{1}{2} \sum_d w_d |x_d - x'_d|^p\Bigr)

    Attributes:
        share: ``a``, positive.
        wide: ``k_m``.
        weights: Relevances ``w``, ``D``.
        power: ``p``, 1 or 2.
    """

    share: float
    wide: Function
    weights: np.ndarray
    power: int

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N`` between tables ``M x D`` and ``N x D``."""
        factor = relevance_factor(left, right, self.weights, self.power)
        return self.share * self.wide(left, right) * factor


@dataclass(frozen=True)
class RelevanceKernel:
    """Base kernel and kernels with relevances, in shares that sum to one.

    All summands are kernels, so the sum is.

    Attributes:
        base: The base kernel.
        share: Its share.
        terms: The others.
    """

    base: Function
    share: float
    terms: tuple[RelevanceTerm, ...]

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N`` between tables ``M x D`` and ``N x D``."""
        gram = np.zeros((len(left), len(right)))
        if self.share:
            gram += self.share * self.base(left, right)
        for term in self.terms:
            gram += term(left, right)
        return gram

    @property
    def is_definite(self) -> bool:
        """Whether the base kernel is known to be positive semi-definite, hence this one."""
        return bool(getattr(self.base, "is_definite", False))

    @property
    def relevances(self) -> np.ndarray:
        """Mean of the relevances over the kernels in the sum, by their shares, ``D``."""
        return np.sum([term.share * term.weights for term in self.terms], axis=0)


class LearnedKernel:
    """``k(x, x') F(x, x')`` with a factor that is defined at all inputs.

    Args:
        base: ``k``, maps tables ``M x D`` and ``N x D`` to ``M x N``.
        rows: Training inputs ``n x D`` of the extension.
        extension: ``None`` for ``F = 1``.
    """

    def __init__(self, base: Function, rows: np.ndarray, extension: SmoothExtension | None = None):
        self.base, self.rows = base, rows
        self.extension = None if extension is None or extension.is_trivial else extension

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N`` between tables ``M x D`` and ``N x D``."""
        gram = self.base(left, right)
        if self.extension is None:
            return gram
        left_features = self.extension.features(self.base(left, self.rows))
        right_features = self.extension.features(self.base(right, self.rows))
        return gram * self.extension.factor(gram, left_features, right_features)
