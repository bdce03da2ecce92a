"""Selection of inducing points, and their low-rank kernels and densities."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator.operators import LinearOperator, ZeroLinearOperator
from torch import Tensor, nn

from gpytorch_nkn.kernels import FeatureKernel, cluster_centers, lazy_covariance
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.linalg import Features, check_counts, check_finite, factorize_inducing
from gpytorch_nkn.mlls import exact_log_density
from gpytorch_nkn.models.base_gp import ExactBaseGP

__all__ = [
    "FeatureGP",
    "InducingFeatureKernel",
    "inducing_features",
    "select_inducing_points",
    "whitened_features",
]

# Largest numbers of rows: k-means takes linear time, and greedy selection quadratic memory.
_CLUSTERED, _GREEDY = 20_000, 4_000


def select_inducing_points(
    x: Tensor, num_points: int, *, kernel: Kernel | None = None, seed: int = 0
) -> Tensor:
    """Select inducing points for a set of inputs.

    Args:
        x: Inputs ``... x n x d``. More than 20,000 distinct rows (4,000 with ``kernel``) are
            replaced by a random subset.
        num_points: Number of points.
        kernel: ``None`` for cluster centres, with columns scaled to unit variance. With a trained
            kernel, points are rows, each with the largest posterior variance given the previous
            points (BoTorch's ``GreedyVarianceReduction``, which may stop early).
        seed: Determines all draws, independently of the global random state.

    Returns:
        Points ``... x m x d``, or all distinct rows if there are at most ``num_points``. The batch
        element with the fewest distinct rows limits ``m``.

    Raises:
        ValueError: The inputs are empty or not finite, or ``num_points`` is below 1.

    Reference: Burt, Rasmussen and van der Wilk (2020), Convergence of Sparse Variational Inference
    in Gaussian Processes Regression.
    """
    check_counts(1, num_points=num_points)
    check_counts(0, seed=seed)
    if x.dim() < 2 or x.numel() == 0:
        raise ValueError(f"x must be ... x n x d and not empty, got shape {tuple(x.shape)}.")
    check_finite(x=x)
    elements = x.detach().reshape(-1, *x.shape[-2:])
    distinct = [_distinct(element) for element in elements]
    num_points = min(num_points, *(len(rows) for rows, _ in distinct))
    limit = max(_CLUSTERED if kernel is None else _GREEDY, num_points)
    chosen = []
    for number, (rows, counts) in enumerate(distinct):
        rng = np.random.default_rng([seed, number])
        if len(rows) > limit:
            kept = torch.from_numpy(np.sort(rng.choice(len(rows), limit, replace=False)))
            rows, counts = rows[kept.to(rows.device)], counts[kept.to(rows.device)]
        if len(rows) <= num_points:
            chosen.append(rows)
        elif kernel is None:
            values, weights = (t.double().cpu().numpy() for t in (rows, counts))
            centers = cluster_centers(values, weights, num_points, int(rng.integers(2**31)))
            chosen.append(torch.from_numpy(centers).to(rows))
        else:
            with torch.no_grad():
                greedy = GreedyVarianceReduction().allocate_inducing_points(
                    rows, kernel, num_points, torch.Size([])
                )
            chosen.append(greedy)
    fewest = min(len(points) for points in chosen)
    points = torch.stack([points[:fewest] for points in chosen])
    return points.reshape(*x.shape[:-2], *points.shape[1:])


def _distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return sorted distinct rows and their counts."""
    first, order = x[:, 0].sort()
    if bool((first.diff() > 0).all()):  # distinct first columns avoid sorting whole rows
        return x[order], torch.ones_like(order)
    rows, counts = torch.unique(x, dim=0, return_counts=True)
    return rows, counts


class InducingFeatureKernel(FeatureKernel):
    r"""Features :math:`L^{-1} k(Z, x)` of a kernel at inducing points, :math:`k(Z, Z) = L L^\top`.

    The inducing points Z, ``... x m x d``, are a parameter.

    Reference: Titsias (2009), Variational Learning of Inducing Variables in Sparse Gaussian
    Processes.
    """

    is_stationary = False
    has_residual = True
    inducing_points: Tensor

    def __init__(self, base_kernel: Kernel, inducing_points: Tensor):
        super().__init__(batch_shape=base_kernel.batch_shape)
        self.base_kernel = base_kernel
        self.register_parameter("inducing_points", nn.Parameter(inducing_points.clone()))

    @property
    def feature_dim(self) -> int:  # type: ignore[override]
        """Number of inducing points."""
        return self.inducing_points.size(-2)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load any number of inducing points; data with few distinct rows have fewer."""
        points = state.get(f"{prefix}inducing_points", self.inducing_points)
        if points[..., 0, :].shape == self.inducing_points[..., 0, :].shape:
            self.inducing_points.data = self.inducing_points.new_empty(points.shape)
        super()._load_from_state_dict(state, prefix, *args)

    def low_rank_map(self) -> Features:
        """Return a function from inputs to features and residual variances."""
        return inducing_features(self.base_kernel, self.inducing_points)[0]

    def prior_values(self, x: Tensor) -> Tensor:
        """Return the covariance of the base kernel; see :class:`FeatureKernel`."""
        return kernel_values(self.base_kernel, x, x)

    def _features(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, self.inducing_points.dtype)
        return self.low_rank_map()(x)[0].to(dtype)


def inducing_features(kernel: Kernel, points: Tensor) -> tuple[Features, Tensor]:
    """Return :func:`whitened_features` as a function of ``x``, and the factor of ``k(Z, Z)``."""
    factor, _ = factorize_inducing(kernel_values(kernel, points, points))
    return partial(whitened_features, kernel, points, factor), factor


def whitened_features(
    kernel: Kernel, points: Tensor, factor: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Return features ``t x ... x q x m`` and residual variances ``t x ... x q`` in float64.

    See :class:`InducingFeatureKernel`; the inducing points are ``... x m x d``. Batches ``t`` of
    the inputs that the factor ``... x m x m`` lacks become columns, because expanding the factor to
    ``t`` would copy it.
    """
    dtype, batch = torch.promote_types(x.dtype, points.dtype), factor.shape[:-2]
    shape = torch.broadcast_shapes(x.shape[:-2], batch)
    points, x = points.to(dtype), x.to(dtype).expand(*shape, *x.shape[-2:])
    extra = len(shape) - len(batch)
    leading, inner = tuple(range(extra)), tuple(range(-2 - extra, -2))
    flat = x.movedim(leading, inner).flatten(-2 - extra, -2)  # ... x (t q) x d
    points, factor = (t.expand(*shape[extra:], *t.shape[-2:]) for t in (points, factor))
    columns = kernel_values(kernel, flat, points).double().mT
    values = torch.linalg.solve_triangular(factor, columns, upper=False).mT
    values = values.unflatten(-2, (*shape[:extra], x.size(-2))).movedim(inner, leading)
    omitted = kernel_values(kernel, x, x, diag=True).double() - values.square().sum(-1)
    return values, omitted.clamp_min(0.0)


class _LowRankNormal(MultivariateNormal):
    """Normal distribution whose density uses the low rank of its covariance.

    GPyTorch's class does not, because BoTorch disables its structured densities globally.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density at a value ``... x n``; Titsias' bound with inducing points."""
        return exact_log_density(self, value)


class FeatureGP(ExactBaseGP):
    """Exact GP that trains and predicts with the features of its kernel, if the kernel has any.

    With features at inducing points, the log density of the prior is Titsias' bound.
    """

    def _chunk_width(self) -> int:
        is_dense = not isinstance(self.covar_module, FeatureKernel)
        return self.train_targets.size(-1) if is_dense else self.covar_module.feature_dim

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at inputs ``... x n x d``, whose density uses the low rank.

        Features at inducing points omit a part of the prior variances. BoTorch's ``loo_cv`` calls
        ``forward`` in eval mode, and its standard deviations could be half of the correct ones;
        other callers use ``gpytorch.settings.prior_mode``. With masked targets, GPyTorch ignores
        the bound.

        Raises:
            NotImplementedError: The kernel has inducing points, and the call is one of these.
        """
        name, is_sparse = type(self).__name__, getattr(self.covar_module, "has_residual", False)
        if is_sparse and self.training and settings.observation_nan_policy.value() == "mask":
            raise NotImplementedError(
                f"{name} with inducing points does not support observation_nan_policy('mask') in "
                "training mode."
            )
        is_extended = hasattr(self, "_is_extended")  # by get_fantasy_model
        if is_sparse and not self.training and settings.prior_mode.off() and not is_extended:
            raise NotImplementedError(
                f"{name} with inducing points does not support forward in eval mode, which loo_cv "
                "calls: call the model, or predict held-out rows by "
                "botorch.cross_validation.batch_cross_validation."
            )
        return self._prior(self.transform_inputs(x) if self.training else x)

    def _prior(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at transformed inputs ``... x n x d``."""
        return _LowRankNormal(self.mean_module(x), lazy_covariance(self.covar_module, x))

    def _get_train_prior_distribution(
        self, train_inputs: Iterable[Tensor], **kwargs: Any
    ) -> MultivariateNormal:
        return self._prior(*train_inputs)

    def get_fantasy_model(self, *args: Any, **kwargs: Any) -> Any:
        """Return a fantasy model as in GPyTorch."""
        self._is_extended = True  # prior_mode would act on models in all threads
        try:
            extended = super().get_fantasy_model(*args, **kwargs)
        finally:
            del self._is_extended
        vars(extended).pop("_is_extended", None)
        return extended

    def _get_test_prior_mean_and_covariances(
        self, train_inputs: Iterable[Tensor], test_inputs: Iterable[Tensor], **kwargs: Any
    ) -> tuple[Tensor, LinearOperator, LinearOperator, torch.Size, torch.Size, type]:
        """Evaluate as in the base class; features of low rank need no training covariances."""
        (train,), (test,) = train_inputs, test_inputs
        if not isinstance(self.covar_module, FeatureKernel):
            return (*self._test_prior(train, test)[:-1], _LowRankNormal)
        batch_shape = torch.broadcast_shapes(train.shape[:-2], test.shape[:-2])
        prior = self._prior(test.expand(*batch_shape, *test.shape[-2:]))
        unused = ZeroLinearOperator(
            *prior.batch_shape, test.size(-2), train.size(-2), dtype=test.dtype, device=test.device
        )
        covariance = prior.lazy_covariance_matrix
        size = test.shape[-2:-1]
        return prior.loc, covariance, unused, prior.batch_shape, size, MultivariateNormal
