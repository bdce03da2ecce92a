"""A kernel times a learned positive semi-definite factor of low rank."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor, nn

from gpytorch_nkn._devices import normal
from gpytorch_nkn.kernels.batch_kernel import BatchKernel, check_columns
from gpytorch_nkn.kernels.distances import are_same
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.linalg import check_counts

__all__ = ["DataAdaptiveHadamardKernel", "cluster_centers"]

_ITERATIONS = 25  # k-means iterations; more iterations hardly change the anchors
_JITTER = 1e-4  # jitter relative to the mean diagonal of k_g(Z, Z)
_START_STD = 0.1  # standard deviation of start weights; at zero weights the gradient is zero


class DataAdaptiveHadamardKernel(BatchKernel):
    r"""Product of a base kernel and a learned factor that starts near one.

    .. math::
        k(x, x') = k_0(x, x') \bigl(1 + g(x)^\top g(x')\bigr), \qquad
        g(x) = A^\top L^{-1} k_g(Z, x), \qquad L L^\top = k_g(Z, Z)

    for anchors ``Z`` (``M x D``), weights ``A`` (``M x R``), and an RBF kernel :math:`k_g`
    (attribute ``factor_kernel``). The lengthscales of :math:`k_g` are fixed at :math:`\sqrt{D}`
    standard deviations of the anchors; shorter ones overfit small data sets. The second factor is
    one plus an inner product, so the kernel is valid by Schur's theorem. With :math:`A = 0` it
    equals the base kernel. It is the covariance of

    .. math:: f(x) = f_0(x) + \sum_{r=1}^{R} g_r(x) f_r(x)

    where :math:`f_0, \dots, f_R` are independent processes with the base kernel. Rank 1 varies the
    amplitude; higher ranks also reduce correlations between regions. Far from all anchors :math:`g`
    tends to zero. A normal prior on the weights, of standard deviation :math:`\sigma`, makes each
    :math:`g_r` a Gaussian process with kernel :math:`\sigma^2 k_g` at the anchors.

    Train the base kernel first and pass a copy of it; training the weights then needs no restarts.

    Args:
        base_kernel: Any kernel with one output per input.
        anchors: Points ``M x D`` in the columns selected by ``active_dims``, or ``... x M x D``
            with one set per batch entry. See :meth:`from_data`.
        rank: Rank ``R`` of the learned factor, the number of columns of the weights.
        weight_prior: Standard deviation of a normal prior on the weights; ``None`` for no prior.
        seed: Seed of the start weights, which are normal with standard deviation 0.1.
        batch_shape: Batch shape; ``None`` broadcasts the batch shapes of the parts.
        active_dims: As in :class:`gpytorch.kernels.Kernel`.

    Raises:
        TypeError: ``base_kernel`` is not a kernel, or the rank is not an integer.
        ValueError: Anchors are not finite, or the rank or standard deviation is not positive. On
            evaluation, inputs and anchors differ in columns, or the base kernel has several
            outputs.

    Attributes:
        weights: :math:`A`, ``... x M x R``.
        anchors: :math:`Z`, ``... x M x D``.

    Reference: Liu, Huang, Gong, Yang and Li (2020), Learning Data-adaptive Nonparametric Kernels.
    The paper's factor is a matrix over the training points; here it is a function of the input.

    Example:
        >>> train_X = torch.linspace(0, 1, 50)[:, None]
        >>> kernel = DataAdaptiveHadamardKernel.from_data(RBFKernel(), train_X, num_anchors=8)
        >>> kernel(train_X).shape, kernel.weights.shape
        (torch.Size([50, 50]), torch.Size([8, 2]))
    """

    is_stationary = False
    weights: Tensor
    anchors: Tensor

    def __init__(
        self,
        base_kernel: Kernel,
        anchors: Tensor,
        rank: int = 2,
        *,
        weight_prior: float | None = 1.0,
        seed: int = 0,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ):
        anchors = _checked_anchors(anchors)
        check_counts(1, rank=rank)
        if not isinstance(base_kernel, Kernel):
            raise TypeError(f"base_kernel must be a gpytorch.kernels.Kernel, got {base_kernel!r}.")
        if batch_shape is None:
            batch_shape = torch.broadcast_shapes(base_kernel.batch_shape, anchors.shape[:-2])
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.base_kernel = base_kernel
        self.rank = rank
        anchors = anchors.expand(*batch_shape, *anchors.shape[-2:]).clone()
        self.factor_kernel = _factor_kernel(anchors)
        # a parameter, because batch expansion does not add dimensions to buffers
        self.register_parameter("anchors", nn.Parameter(anchors, requires_grad=False))
        generator = torch.Generator().manual_seed(int(seed))
        start = normal((anchors.size(-2), rank), generator)
        start = (_START_STD * start).to(anchors).expand(*batch_shape, *start.shape)
        self.register_parameter("weights", nn.Parameter(start.clone()))
        # one distribution per weight: a sample of a scalar prior would make all weights equal
        zeros = torch.zeros_like(start[(0,) * len(batch_shape)])
        self.add_normal_prior("weight_prior", weight_prior, "weights", zeros)

    @classmethod
    def from_data(
        cls,
        base_kernel: Kernel,
        train_X: Tensor,
        num_anchors: int = 15,
        rank: int = 2,
        *,
        seed: int = 0,
        active_dims: tuple[int, ...] | None = None,
        **options: Any,
    ) -> DataAdaptiveHadamardKernel:
        """Create a kernel whose anchors are k-means centres of the inputs.

        Args:
            base_kernel, rank, seed, active_dims, options: As in the constructor.
            train_X: Inputs ``N x D`` with all columns, scaled as for training.
            num_anchors: Number of anchors; if there are fewer distinct rows, each is an anchor.

        Raises:
            ValueError: ``train_X`` is not a finite matrix, or ``num_anchors`` is below one.
        """
        selected = train_X if active_dims is None else train_X[..., list(active_dims)]
        anchors = _kmeans_anchors(selected, num_anchors, seed)
        return cls(base_kernel, anchors, rank, seed=seed, active_dims=active_dims, **options)

    def factors(self, x: Tensor) -> Tensor:
        r"""Return :math:`g(x)`, ``... x N x R``, at inputs ``... x N x D`` of selected columns."""
        check_columns(self, x, self.anchors.size(-1))
        x = x.to(torch.promote_types(x.dtype, self.anchors.dtype))
        values = kernel_values(self.factor_kernel, x, self.anchors.to(x))
        return values @ self._coefficients().to(x)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``)."""
        g1 = self.factors(x1)
        g2 = g1 if are_same(x1, x2) else self.factors(x2)
        values = kernel_values(self.base_kernel, x1, x2, diag, **params)
        if values.size(-1) != x2.size(-2):
            raise ValueError(
                f"base_kernel must have one value per pair of inputs, got shape "
                f"{tuple(values.shape)} for inputs {tuple(x1.shape)} and {tuple(x2.shape)}."
            )
        return values * (1 + ((g1 * g2).sum(-1) if diag else g1 @ g2.mT))

    def _coefficients(self) -> Tensor:
        r"""Return :math:`L^{-\top} A`, ``... x M x R``."""
        covar = kernel_values(self.factor_kernel, self.anchors, self.anchors)
        scale = covar.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        unit = torch.eye(covar.size(-1), dtype=covar.dtype, device=covar.device)
        root = psd_safe_cholesky(covar + _JITTER * scale * unit)
        return torch.linalg.solve_triangular(root.mT, self.weights, upper=True)


def _kmeans_anchors(x: Tensor, num_anchors: int, seed: int) -> Tensor:
    """Return ``num_anchors`` cluster centres ``M x D``, or all distinct rows if there are fewer."""
    if x.dim() != 2 or 0 in x.shape or not bool(x.isfinite().all()):
        raise ValueError(f"train_X must be a finite matrix N x D, got shape {tuple(x.shape)}.")
    check_counts(1, num_anchors=num_anchors)
    check_counts(0, seed=seed)
    rows, counts = np.unique(x.detach().double().cpu().numpy(), axis=0, return_counts=True)
    if len(rows) > num_anchors:
        rows = cluster_centers(rows, counts, num_anchors, seed)
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return torch.from_numpy(rows).to(x.device, dtype)


def cluster_centers(rows: np.ndarray, counts: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Return k-means centres of ``rows``, weighted by ``counts``, in columns of unit variance."""
    from sklearn.cluster import KMeans  # slow to import

    location = np.average(rows, axis=0, weights=counts)
    scale = np.sqrt(np.average((rows - location) ** 2, axis=0, weights=counts))
    scale[scale <= 1e-9 * np.abs(rows).max(axis=0)] = 1.0  # constant columns, up to rounding
    means = KMeans(number, n_init=1, max_iter=_ITERATIONS, random_state=seed)
    means.fit((rows - location) / scale, sample_weight=counts)
    return means.cluster_centers_ * scale + location


def _checked_anchors(anchors: Tensor) -> Tensor:
    anchors = torch.as_tensor(anchors)
    if anchors.dim() < 2 or 0 in anchors.shape or not bool(anchors.isfinite().all()):
        raise ValueError(
            "anchors must be a finite tensor ... x M x D with at least one row and column, got "
            f"shape {tuple(anchors.shape)}."
        )
    anchors = anchors.detach()
    return anchors if anchors.is_floating_point() else anchors.to(torch.get_default_dtype())


def _factor_kernel(anchors: Tensor) -> RBFKernel:
    """Return an RBF kernel with lengthscales of ``sqrt(D)`` standard deviations of the anchors."""
    std = anchors.std(-2, keepdim=True, correction=0)
    std = torch.where(std > 1e-6 * anchors.abs().amax(-2, keepdim=True), std, 1.0)
    kernel = RBFKernel(ard_num_dims=anchors.size(-1), batch_shape=anchors.shape[:-2]).to(anchors)
    kernel.lengthscale = math.sqrt(anchors.size(-1)) * std  # ... x 1 x D
    kernel.raw_lengthscale.requires_grad_(False)
    return kernel
