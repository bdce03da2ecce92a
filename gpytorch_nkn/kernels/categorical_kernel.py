"""Kernel of categorical inputs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel

__all__ = ["CategoricalKernel", "categorical_columns", "check_codes"]


def _values(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    exponent: Tensor | float = 0.0
    for column in range(x1.size(-1)):
        index = column if lengthscale.size(-1) > 1 else 0
        left, right = x1[..., column, None], x2[..., column, None].mT
        differ = (left != right) + 0 * (left - right)  # NaN if an input is not finite
        exponent = exponent - differ / lengthscale[..., index, None]
    assert isinstance(exponent, Tensor)
    return (exponent / x1.size(-1)).exp()


class CategoricalKernel(FormulaKernel):
    r"""Kernel of categorical inputs that compares integer codes for equality.

    .. math:: k(x, x') = \exp\Bigl(-\frac{1}{D} \sum_{d=1}^{D} \frac{[x_d \neq x'_d]}{\ell_d}\Bigr)

    Each factor is 1 for equal categories and :math:`e^{-1 / (D \ell_d)}` otherwise. A factor is
    valid as a positive constant plus a positive multiple of the identity. Values and parameters are
    as in BoTorch's ``CategoricalKernel``, but networks can compile this class. Gradients with
    respect to inputs are zero: optimise acquisition functions with ``optimize_acqf_mixed``.

    Args:
        **kwargs: ``ard_num_dims``, ``batch_shape``, ``active_dims``, ``lengthscale_prior``,
            ``lengthscale_constraint`` as in :class:`gpytorch.kernels.Kernel`.

    Reference: Ru et al. (2020), Bayesian Optimisation over Multiple Continuous and Categorical
    Inputs, equation 2.

    Example:
        >>> kernel = CategoricalKernel().initialize(lengthscale=1 / math.log(2))
        >>> kernel(torch.tensor([[0.0], [2.0], [2.0]])).to_dense()[0]
        tensor([1.0000, 0.5000, 0.5000], grad_fn=<SelectBackward0>)
    """

    has_lengthscale = True
    formula = Formula(_values, code=15)


def categorical_columns(cat_dims: Iterable[int] | None, num_columns: int) -> tuple[int, ...]:
    """Return the sorted indices of categorical columns; negative ones count from the last."""
    indices: Any = () if cat_dims is None else cat_dims
    if isinstance(indices, Iterable):  # iterating over a kernel would not end
        indices = tuple(indices)
    try:
        if any(isinstance(d, bool) for d in indices):
            raise TypeError
        indices = tuple(map(operator.index, indices))
    except TypeError:
        raise TypeError(f"cat_dims must be integers, got {indices}.") from None
    if any(not -num_columns <= d < num_columns for d in indices):
        raise ValueError(f"cat_dims must be indices of {num_columns} columns, got {indices}.")
    columns = tuple(sorted({d % num_columns for d in indices}))
    if len(columns) < len(indices):
        raise ValueError(f"cat_dims must be distinct, got {indices} for {num_columns} columns.")
    return columns


def check_codes(x: Tensor, cat_dims: Sequence[int], name: str) -> None:
    """Check that the categorical columns of ``x``, ``... x d``, contain integers or NaN."""
    codes = x[..., list(cat_dims)]
    wrong = codes[(codes != codes.round()) & ~codes.isnan()]
    if wrong.numel():
        raise ValueError(
            f"The categorical columns {tuple(cat_dims)} of {name} must contain integer codes, got "
            f"{wrong[0].item():.6g}. Optimise acquisition functions by BoTorch's "
            "optimize_acqf_mixed or optimize_acqf_mixed_alternating."
        )
