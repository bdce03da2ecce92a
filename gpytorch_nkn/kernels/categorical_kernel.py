"""Kernels of categories, which are alike or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import BatchKernel
from gpytorch_nkn.kernels.formula import Formula

__all__ = ["CATEGORICAL", "CategoricalKernel", "categorical_columns", "check_codes"]


class CategoricalKernel(BatchKernel):
    r"""Kernel of columns of codes: what counts is whether two are the same.

    .. math:: k(x, x') = \exp\Bigl(-\frac{1}{D} \sum_{d=1}^{D} \frac{[x_d \neq x'_d]}{\ell_d}\Bigr)

    A product of kernels that are one for the same category and :math:`e^{-1 / (D \ell_d)}` for two
    different ones, whatever their codes; each is a positive constant plus a positive multiple of
    the identity, hence valid. The values and the parameters are those of BoTorch's
    ``CategoricalKernel``, of which this has the closed form for networks. There is no gradient by
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

    def forward(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params,
    ) -> Tensor:
        """Values ``... x N x M`` (``... x N`` with ``diag``)."""
        rates = 1 / self.lengthscale
        if last_dim_is_batch:  # one column per batch entry: ... x D x N x 1
            x1, x2 = (x.mT.unsqueeze(-1) for x in (x1, x2))
            rates = rates.mT.unsqueeze(-1) if rates.size(-1) > 1 else rates.unsqueeze(-3)
        rates = rates / x1.size(-1)
        if not diag:
            x1, x2 = x1.unsqueeze(-2), x2.unsqueeze(-3)
            rates = rates.unsqueeze(-2)
        return (-(_differ(x1, x2) * rates).sum(-1)).exp()


def _differ(x1: Tensor, x2: Tensor) -> Tensor:
    """One where codes differ, zero where they are the same; NaN where one is not finite."""
    return (x1 != x2) + 0 * (x1 - x2)


def _values(x1: Tensor, x2: Tensor, lengthscale: Tensor) -> Tensor:
    rates = (1 / lengthscale).expand(x1.size(-1)) / x1.size(-1)
    pairs = zip(x1.unbind(-1), x2.unbind(-1), rates, strict=True)
    exponents = [_differ(left[:, None], right) * rate for left, right, rate in pairs]
    return (-torch.stack(exponents).sum(0)).exp()


def _pull_back(weights: Tensor, x1: Tensor, x2: Tensor, lengthscale: Tensor) -> list[Tensor]:
    slopes = weights * _values(x1, x2, lengthscale)
    columns = zip(x1.unbind(-1), x2.unbind(-1), strict=True)
    sums = torch.stack([slopes.mul(_differ(left[:, None], right)).sum() for left, right in columns])
    sums = sums if lengthscale.numel() > 1 else sums.sum(0, keepdim=True)
    of_lengthscale = sums / (x1.size(-1) * lengthscale.square())
    return [torch.zeros_like(x1), torch.zeros_like(x2), of_lengthscale]


CATEGORICAL = Formula(_values, _pull_back, code=15)


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
