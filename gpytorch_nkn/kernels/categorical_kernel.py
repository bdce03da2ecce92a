"""Kernels of categories, which are alike or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.formula_kernel import FormulaKernel

__all__ = ["CategoricalKernel", "categorical_columns", "check_codes"]


def _values(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    exponent: Tensor | float = 0.0
    for column in range(x1.size(-1)):
        own = column if lengthscale.size(-1) > 1 else 0
        left, right = x1[..., [column]], x2[..., [column]].mT
        # NaN where one is not finite
        differ = (left != right) + 0 * (left - right)
        exponent = exponent - differ / lengthscale[..., [own]]
    assert isinstance(exponent, Tensor)
    return (exponent / x1.size(-1)).exp()


class CategoricalKernel(FormulaKernel):
    r"""Kernel of columns of codes: what counts is whether two are the same.

    .. math:: k(x, x') = \exp\Bigl(-\frac{1}{D} \sum_{d=1}^{D} \frac{[x_d \neq x'_d]}{\ell_d}\Bigr)

    A product of kernels that are one for the same category and :math:`e^{-1 / (D \ell_d)}` for two
    different ones, whatever their codes; each is a positive constant plus a positive multiple of
    the identity, hence valid. The values and the parameters are those of BoTorch's
    ``CategoricalKernel``, of which this has the formula for networks. There is no gradient by
    the inputs: search over categories one by one (``optimize_acqf_mixed``).

    Args:
        **kwargs: As in :class:`gpytorch.kernels.Kernel`: ``ard_num_dims``, ``batch_shape``,
            ``active_dims``, ``lengthscale_prior``, ``lengthscale_constraint``.

    Reference: Ru et al. (2020), Bayesian Optimisation over Multiple Continuous and Categorical
    Inputs, equation 2, for the share of columns that are the same.

    Example:
        >>> kernel = CategoricalKernel().initialize(lengthscale=1 / math.log(2))
        >>> kernel(torch.tensor([[0.0], [2.0], [2.0]])).to_dense()[0]
        tensor([1.0000, 0.5000, 0.5000], grad_fn=<SelectBackward0>)
    """

    has_lengthscale = True
    formula = Formula(_values, code=15)


def categorical_columns(cat_dims: Iterable[int] | None, num_columns: int) -> tuple[int, ...]:
    """Columns of codes, counted from the first and in order.

    Args:
        cat_dims: Their numbers, negative ones counted from the last; ``None`` for none.
        num_columns: Number of all columns.

    Raises:
        TypeError: A number is not an integer.
        ValueError: There is no such column, or it is given twice.
    """
    given = () if cat_dims is None else tuple(cat_dims)
    if not all(isinstance(d, int) and not isinstance(d, bool) for d in given):
        raise TypeError(f"cat_dims must be numbers of columns, got {given}.")
    if any(not -num_columns <= d < num_columns for d in given):
        raise ValueError(f"cat_dims must be columns of {num_columns}, got {given}.")
    found = tuple(sorted({d % num_columns for d in given}))
    if len(found) < len(given):
        raise ValueError(f"cat_dims must differ, got {given} of {num_columns} columns.")
    return found


def check_codes(x: Tensor, cat_dims: Sequence[int], name: str) -> None:
    """Refuse categorical columns that hold anything but integers; NaN is left to others.

    Raises:
        ValueError: A value of ``x``, ``... x d``, is none.
    """
    codes = x[..., list(cat_dims)]
    wrong = codes[(codes != codes.round()) & ~codes.isnan()]
    if wrong.numel():
        raise ValueError(
            f"The categorical columns {tuple(cat_dims)} of {name} must hold codes of categories, "
            f"which are integers, got {wrong[0].item():.6g}. Search over categories one by one, "
            "by optimize_acqf_mixed or optimize_acqf_mixed_alternating."
        )
