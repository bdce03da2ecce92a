"""Base class of user-defined stationary kernels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gpytorch_nkn.kernels.formula import stationary
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel

__all__ = ["StationaryKernel"]


class StationaryKernel(FormulaKernel):
    r"""Base class of user-defined stationary kernels.

    .. math:: k(x, x') = f\Bigl(\sum_d (x_d - x'_d)^2 / \ell_d^2\Bigr)

    A subclass defines :math:`f` as ``of_square``. The function must be twice differentiable,
    including at zero, and make the kernel positive semi-definite.

    Args:
        **kwargs: ``ard_num_dims``, ``batch_shape``, ``active_dims``, ``lengthscale_prior``,
            ``lengthscale_constraint`` as in :class:`gpytorch.kernels.Kernel`.

    Example:
        >>> class CauchyKernel(StationaryKernel):
        ...     @staticmethod
        ...     def of_square(square):
        ...         return 1 / (1 + square)
        >>> register(KernelSpec(CauchyKernel, "CAUCHY", {"lengthscale": "lengthscale"}))
    """

    has_lengthscale = True

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "of_square" in vars(cls):
            cls.formula = stationary(cls.of_square)

    @staticmethod
    def of_square(square: Tensor) -> Tensor:
        """Return values at squared distances of any shape, elementwise."""
        raise NotImplementedError
