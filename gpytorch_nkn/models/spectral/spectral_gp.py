"""GP with a kernel of learned frequency pairs, with or without an RBF kernel."""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import AdditiveKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Tensor

from gpytorch_nkn.kernels import FeatureKernel, NeuralKernelNetwork, NonStationarySpectralKernel
from gpytorch_nkn.linalg import check_counts, check_flags
from gpytorch_nkn.models.inducing_points import (
    FeatureGP,
    InducingFeatureKernel,
    select_inducing_points,
)
from gpytorch_nkn.models.spectral.feature_sum_kernel import FeatureSumKernel
from gpytorch_nkn.models.structure import check_columns

__all__ = ["SpectralGP"]

_MAX_DENSE = 2000  # largest number of rows with an exact RBF kernel
# Number of pairs: fraction of the rows (low rank: of the rows per column), and its limits.
_DENSE = (0.05, 5, 50)
_LOW_RANK = (0.2, 50, 300)
_FREQUENCY_STD = 0.3  # standard deviation of the prior around the initial frequencies
_DIFFERENCE_STD = 0.1  # standard deviation of the prior of half the differences


class SpectralGP(FeatureGP):
    r"""GP with a :class:`.NonStationarySpectralKernel` added to an RBF kernel.

    Up to 2000 rows the GP is exact and has one pair of frequencies per 20 rows (5 to 50 pairs). For
    more rows the RBF kernel uses m inducing points (VFE). The number R of pairs is a fifth of the
    rows per column (50 to 300). Training and prediction then take :math:`O(n (m + R)^2)` time,
    without n x n matrices. Pairs start from the spectral density of the RBF kernel.
    :func:`fit_spectral_gp` keeps them if they improve predictions of held-out rows. Several outputs
    are independent, each with its own kernel.

    Use it for tables of thousands of rows, where learned frequencies across columns predict better
    than an RBF kernel with inducing points. With fewer rows the gain is small. Single frequencies
    (``stationary=True``) give most of the gain.

    Args:
        train_X: Inputs ``... x n x d``, preferably in the unit cube.
        train_Y: Outcomes ``... x n x m``.
        train_Yvar: Known noise variances ``... x n x m``; ``None`` infers one variance per output.
        num_features: Number ``R`` of pairs; ``None`` for the default above.
        inducing_points: Number ``m`` of inducing points for more than 2000 rows.
        rbf: ``False`` omits the RBF kernel; the model then has low rank for any number of rows.
        stationary: Use single frequencies instead of pairs.
        seed: Determines the initial frequencies and inducing points.
        likelihood, mean_module, outcome_transform, input_transform: As in
            :class:`botorch.models.SingleTaskGP`.

    ``fit_gpytorch_mll`` trains the model by :func:`fit_spectral_gp` and accepts its options. With
    BoTorch's options, BoTorch's optimisers train it.

    Raises:
        ValueError: An option is invalid, or the data do not fit.

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning; Lázaro-Gredilla et al.
    (2010), Sparse Spectrum Gaussian Process Regression.

    Example:
        >>> from botorch.fit import fit_gpytorch_mll
        >>> train_X = torch.rand(30, 1, dtype=torch.float64)
        >>> model = SpectralGP(train_X, (9 * train_X.square()).sin())
        >>> mll = fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> mean, variance = model.predict(train_X, observation_noise=True)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        num_features: int | None = None,
        inducing_points: int = 300,
        rbf: bool = True,
        stationary: bool = False,
        seed: int = 0,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        check_counts(1, inducing_points=inducing_points)
        check_flags(rbf=rbf, stationary=stationary)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )
        num_columns = self.covar_module.ard_num_dims  # of BoTorch's kernel
        num_data = self.train_targets.size(-1)
        dense = rbf and num_data <= _MAX_DENSE
        if num_features is None:
            fraction, fewest, most = _DENSE if dense else _LOW_RANK
            per_column = num_data if dense else num_data / num_columns
            num_features = min(max(round(fraction * per_column), fewest), most)
        batch_shape = self._aug_batch_shape
        kernel: FeatureKernel = NonStationarySpectralKernel(
            num_features,
            num_columns,
            stationary=stationary,
            frequency_prior=_FREQUENCY_STD if dense else None,
            difference_prior=None if stationary else _DIFFERENCE_STD,
            seed=seed,
            batch_shape=batch_shape,
        )
        with torch.no_grad():
            inputs = self.transform_inputs(train_X).to(self.train_targets)
            center = inputs.mean(-2, keepdim=True)
            center = center.unsqueeze(-3) if self._num_outputs > 1 else center
            kernel.to(inputs).initialize(center=center.expand(*batch_shape, 1, num_columns))
        self.covar_module = kernel
        if dense:
            # a network, because sums in GPyTorch have no second derivatives at equal inputs
            kernels = AdditiveKernel(self.make_rbf_kernel(), kernel)
            self.covar_module = NeuralKernelNetwork([kernels], [])
        elif rbf:
            points = select_inducing_points(inputs, inducing_points, seed=seed)
            if self._num_outputs > 1 and points.dim() > 2:  # outputs share the points
                points = points.unsqueeze(-3)
            points = points.expand(*batch_shape, *points.shape[-2:])
            base = InducingFeatureKernel(self.make_rbf_kernel(), points)
            self.covar_module = FeatureSumKernel(base, kernel)
        self.to(self.train_targets)
        check_columns(self.covar_module, num_columns, self.train_targets)

    @property
    def spectral_kernel(self) -> NonStationarySpectralKernel:
        """Kernel of frequency pairs."""
        return self._kernels[-1]

    def make_rbf_kernel(self) -> ScaleKernel:
        """Return a new RBF kernel with the batch shape, dtype and device of the model."""
        shape, columns = self._aug_batch_shape, self.spectral_kernel.input_dim
        kernel = RBFKernel(ard_num_dims=columns, batch_shape=shape)
        return ScaleKernel(kernel, batch_shape=shape).to(self.train_targets)

    @property
    def rbf_kernel(self) -> ScaleKernel | None:
        """RBF kernel, or ``None`` if the model has none."""
        first = self._kernels[0]
        if isinstance(first, InducingFeatureKernel):
            return first.base_kernel
        return first if isinstance(first, ScaleKernel) else None

    @property
    def _kernels(self) -> Any:
        """RBF kernel (with inducing points or without), if any, and the kernel of pairs."""
        kernel = self.covar_module
        if isinstance(kernel, NeuralKernelNetwork):
            kernel = kernel.primitives[0]
        return getattr(kernel, "kernels", [kernel])
