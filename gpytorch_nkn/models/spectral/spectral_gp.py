"""A GP whose kernel learns pairs of frequencies, for many rows or beside an RBF kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.priors import Prior
from linear_operator import to_dense, to_linear_operator
from linear_operator.operators import LinearOperator, ZeroLinearOperator
from torch import Tensor

from gpytorch_nkn.kernels import (
    BatchPredictionStrategy,
    FeatureKernel,
    NonStationarySpectralKernel,
)
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.models.base_gp import FEW_POINTS, ExactBaseGP
from gpytorch_nkn.models.common import reject_loo_cv
from gpytorch_nkn.models.inducing_points import (
    InducingFeatureKernel,
    LowRankNormal,
    select_inducing_points,
)
from gpytorch_nkn.models.spectral.feature_sum_kernel import FeatureSumKernel
from gpytorch_nkn.models.structure import check_columns

__all__ = ["SpectralGP"]

_MAX_DENSE = 2000  # rows up to which an exact RBF kernel is cheap
# Numbers of pairs: a share of the rows, or of the rows per column.
_DENSE = (0.05, 5, 50)
_LOW_RANK = (0.2, 50, 300)
_DEVIATION = 0.3  # of a normal prior around the frequencies at the start
_DIFFERENCE = 0.1  # and of half the differences, around zero


class SpectralGP(ExactBaseGP):
    r"""GP with a :class:`.NonStationarySpectralKernel` beside an RBF kernel, for SingleTaskGP.

    Up to 2000 rows it is exact, with one pair of frequencies per 20 rows (5 to 50). Beyond, with
    one per five rows and column (50 to 300), the RBF kernel is at inducing points (VFE), and all
    takes :math:`O(n (m + R)^2)` time without a matrix of the data, in training and prediction.
    The pairs start from the spectral density of the RBF kernel and have a say only as far as they
    predict held-out rows better (:func:`fit_spectral_gp`).

    Data, noise, mean and transforms are those of :class:`botorch.models.SingleTaskGP`; several
    outputs are modelled independently, each with a kernel of its own.

    Args:
        train_X: Inputs ``... x n x d``, best in the unit cube.
        train_Y: Outcomes ``... x n x m``.
        train_Yvar: Known variances of the noise ``... x n x m``; ``None`` infers one level.
        num_features: Number ``R`` of pairs; ``None`` for the numbers above.
        inducing_points: Their number ``m``, at which the RBF kernel is with more than 2000 rows.
        rbf: ``False`` leaves the RBF kernel away: the model is of low rank for any number of rows.
        stationary, learn_envelopes, correlation, frequency_prior, difference_prior, seed: Of the
            :class:`.NonStationarySpectralKernel`. ``"auto"`` is a deviation of 0.1 for differences,
            which a stationary kernel has not; for frequencies it is 0.3 up to 2000 rows, and no
            prior beyond.
        likelihood: Default: Gaussian, with BoTorch's prior on the noise.
        mean_module: Default: a constant.
        outcome_transform: Default: standardise; ``None`` for none.
        input_transform: Applied to the inputs, e.g. ``Normalize(d)``.

    ``fit_gpytorch_mll`` trains it by :func:`fit_spectral_gp` and takes the options of that; with an
    optimiser, a closure or any other option of BoTorch's it does as with every other model.

    For what: tables of thousands of rows, where learned frequencies, in any direction across
    columns, predict better than an RBF kernel at inducing points. With fewer rows there is little
    to win. Learning the frequencies is what counts: that they come in pairs changes little, and for
    a frequency that changes with the place a few pairs whose envelopes are even about the centre
    are no help.

    Raises:
        ValueError: A number has no meaning, or the data do not fit.

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
        learn_envelopes: bool = False,
        correlation: float = 0.98,
        frequency_prior: Prior | float | str | None = "auto",
        difference_prior: Prior | float | str | None = "auto",
        seed: int = 0,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
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
            share, fewest, most = _DENSE if dense else _LOW_RANK
            per_column = num_data if dense else num_data / num_columns
            num_features = min(max(round(share * per_column), fewest), most)
        for name, prior in (("frequency", frequency_prior), ("difference", difference_prior)):
            if isinstance(prior, str) and prior != "auto":
                raise ValueError(
                    f"{name}_prior must be 'auto', a prior, a number or None, got {prior!r}."
                )
        if isinstance(frequency_prior, str):
            frequency_prior = _DEVIATION if dense else None
        if isinstance(difference_prior, str):
            difference_prior = None if stationary else _DIFFERENCE
        batch_shape = self._aug_batch_shape
        kernel: FeatureKernel = NonStationarySpectralKernel(
            num_features,
            num_columns,
            stationary=stationary,
            learn_envelopes=learn_envelopes,
            correlation=correlation,
            frequency_prior=frequency_prior,
            difference_prior=difference_prior,
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
            self.covar_module = AdditiveKernel(self.make_rbf_kernel(), kernel)
            self.covar_module.prediction_strategy = BatchPredictionStrategy  # of the parts, too
        elif rbf:
            points = select_inducing_points(inputs, inducing_points, seed=seed)
            if self._num_outputs > 1 and points.dim() > 2:  # the outputs share them
                points = points.unsqueeze(-3)
            points = points.expand(*batch_shape, *points.shape[-2:])
            base = InducingFeatureKernel(self.make_rbf_kernel(), points, learned=True)
            self.covar_module = FeatureSumKernel(base, kernel)
        self.to(self.train_targets)
        check_columns(self.covar_module, num_columns, self.train_targets)

    @property
    def spectral_kernel(self) -> NonStationarySpectralKernel:
        """The kernel of pairs of frequencies."""
        kernel = self.covar_module
        is_sum = isinstance(kernel, AdditiveKernel | FeatureSumKernel)
        return kernel.kernels[1] if is_sum else kernel

    def make_rbf_kernel(self) -> ScaleKernel:
        """An RBF kernel as it would stand beside the pairs."""
        shape, columns = self._aug_batch_shape, self.spectral_kernel.input_dim
        kernel = RBFKernel(ard_num_dims=columns, batch_shape=shape)
        return ScaleKernel(kernel, batch_shape=shape).to(self.train_targets)

    @property
    def rbf_kernel(self) -> ScaleKernel | None:
        """The RBF kernel beside it, if there is one."""
        kernel = self.covar_module
        if isinstance(kernel, AdditiveKernel):
            return kernel.kernels[0]
        return kernel.kernels[0].base_kernel if isinstance(kernel, FeatureSumKernel) else None

    def _chunk_width(self) -> int:
        dense = isinstance(self.covar_module, AdditiveKernel)
        return self.train_targets.size(-1) if dense else self.covar_module.feature_dim

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at inputs ``... x n x d``, whose density knows that its rank is low."""
        if isinstance(self.covar_module, FeatureSumKernel):
            reject_loo_cv(self)
        dense = isinstance(self.covar_module, AdditiveKernel) and x.requires_grad
        if dense and x.size(-2) <= FEW_POINTS:
            covariance = to_linear_operator(kernel_values(self.covar_module, x, x))
            return LowRankNormal(self.mean_module(x), covariance)
        prior = super().forward(x)
        return LowRankNormal(prior.loc, prior.lazy_covariance_matrix)

    def _get_train_prior_distribution(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        with settings.prior_mode():
            return super()._get_train_prior_distribution(*args, **kwargs)

    def get_fantasy_model(self, *args: Any, **kwargs: Any) -> Any:
        """As in GPyTorch."""
        with settings.prior_mode():
            return super().get_fantasy_model(*args, **kwargs)

    def _values(self, one: Tensor, two: Tensor) -> Tensor:
        # part by part: linear_operator factorises a dense matrix to which low rank is added
        return sum(to_dense(kernel(one, two)) for kernel in self.covar_module.kernels)

    def _get_test_prior_mean_and_covariances(
        self, train_inputs: Iterable[Tensor], test_inputs: Iterable[Tensor], **kwargs: Any
    ) -> tuple[Tensor, LinearOperator, LinearOperator, torch.Size, torch.Size, type]:
        """As the base class; of low rank, the training data are not looked at.

        The weights of the features hold all that predictions need of them.
        """
        (train,), (test,) = train_inputs, test_inputs
        if isinstance(self.covar_module, AdditiveKernel):
            return (*self._test_prior(train, test, self._values)[:-1], LowRankNormal)
        batch_shape = torch.broadcast_shapes(train.shape[:-2], test.shape[:-2])
        with settings.prior_mode():
            prior = self.forward(test.expand(*batch_shape, *test.shape[-2:]), **kwargs)
        unused = ZeroLinearOperator(
            *prior.batch_shape, test.size(-2), train.size(-2), dtype=test.dtype, device=test.device
        )
        covariance = prior.lazy_covariance_matrix
        size = test.shape[-2:-1]
        return prior.loc, covariance, unused, prior.batch_shape, size, MultivariateNormal
