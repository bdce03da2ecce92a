"""A GP whose kernel learns pairs of frequencies, for many rows or beside an RBF kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from botorch.fit import _fit_fallback
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import AdditiveKernel, Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.priors import Prior
from linear_operator.operators import LinearOperator, ZeroLinearOperator
from torch import Tensor

from gpytorch_nkn.kernels import NonStationarySpectralKernel
from gpytorch_nkn.models.chunked_prediction import predict_in_chunks
from gpytorch_nkn.models.custom_fit import is_own_fit
from gpytorch_nkn.models.structure import check_columns

__all__ = ["SpectralGP"]

_MAX_DENSE = 2000  # rows up to which an exact RBF kernel is cheap
_FEWEST, _SHARE, _MOST = 5, 0.05, 50  # pairs beside it: of the rows
_MANY = 200  # pairs alone


class SpectralGP(SingleTaskGP):
    r"""Exact GP with a :class:`NonStationarySpectralKernel`, for SingleTaskGP.

    With more than 2000 rows the kernel is alone: 200 pairs of frequencies that are learned from
    those of an RBF kernel, in :math:`O(n R^2)` time and without a matrix of the data in training or
    prediction. Up to there it stands, with a pair per 20 rows (5 to 50), beside an RBF kernel with
    a lengthscale per column, and has a say only if it predicts left-out rows better
    (:func:`fit_spectral_gp`).

    Data, noise, mean and transforms are those of :class:`botorch.models.SingleTaskGP`; several
    outputs are modelled independently, each with a kernel of its own.

    Args:
        train_X: Inputs ``... x n x d``, best in the unit cube.
        train_Y: Outcomes ``... x n x m``.
        train_Yvar: Known variances of the noise ``... x n x m``; ``None`` infers one level.
        num_features: Number of pairs; ``None`` for the numbers above.
        rbf: Add an RBF kernel; ``None`` does up to 2000 rows. With it all is dense.
        stationary, learn_envelopes, correlation, frequency_prior, difference_prior, seed: Of the
            :class:`NonStationarySpectralKernel`; a stationary one takes no prior on differences.
        likelihood: Default: Gaussian, with BoTorch's prior on the noise.
        mean_module: Default: a constant.
        outcome_transform: Default: standardise; ``None`` for none.
        input_transform: Applied to the inputs, e.g. ``Normalize(d)``.

    ``fit_gpytorch_mll`` trains it by :func:`fit_spectral_gp` and takes the options of that; with an
    optimiser, a closure or any other option of BoTorch's it does as with every other model (and
    then in :math:`O(n^3)`, unless the likelihood is our
    :class:`~gpytorch_nkn.mlls.AnalyticExactMarginalLogLikelihood`).

    For what: functions whose frequency depends on the place, and tables of thousands of rows, where
    learned frequencies foretell better than inducing points. A few features cannot be sure of
    themselves far from the data: where that matters, keep the RBF kernel.

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
        rbf: bool | None = None,
        stationary: bool = False,
        learn_envelopes: bool = False,
        correlation: float = 0.98,
        frequency_prior: Prior | float | None = 0.3,
        difference_prior: Prior | float | None = 0.1,
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
        # The base class has put in its own kernel, and checked the data as it does with that one.
        num_columns = self.covar_module.ard_num_dims
        num_data = self.train_targets.size(-1)
        dense = num_data <= _MAX_DENSE if rbf is None else rbf
        if num_features is None:
            beside = min(max(round(_SHARE * num_data), _FEWEST), _MOST)
            num_features = beside if dense else _MANY
        batch_shape = self._aug_batch_shape
        kernel: Kernel = NonStationarySpectralKernel(
            num_features,
            num_columns,
            stationary=stationary,
            learn_envelopes=learn_envelopes,
            correlation=correlation,
            frequency_prior=frequency_prior,
            difference_prior=None if stationary else difference_prior,
            seed=seed,
            batch_shape=batch_shape,
        )
        self.covar_module = kernel
        if dense:
            self.covar_module = AdditiveKernel(self.make_rbf_kernel(), kernel)
        self.to(self.train_targets)
        check_columns(self.covar_module, num_columns, self.train_targets)

    @property
    def spectral_kernel(self) -> NonStationarySpectralKernel:
        """The kernel of pairs of frequencies."""
        kernel = self.covar_module
        return kernel.kernels[1] if isinstance(kernel, AdditiveKernel) else kernel

    def make_rbf_kernel(self) -> ScaleKernel:
        """An RBF kernel as it would stand beside the pairs."""
        shape, columns = self._aug_batch_shape, self.spectral_kernel.input_dim
        kernel = RBFKernel(ard_num_dims=columns, batch_shape=shape)
        return ScaleKernel(kernel, batch_shape=shape).to(self.train_targets)

    @property
    def rbf_kernel(self) -> ScaleKernel | None:
        """The RBF kernel beside it, if there is one."""
        kernel = self.covar_module
        return kernel.kernels[0] if isinstance(kernel, AdditiveKernel) else None

    def predict(
        self, X: Tensor, *, observation_noise: bool = False, chunk_size: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Means and variances at any number of points, in chunks of them, without gradients.

        Args:
            X: Inputs ``... x q x d``.
            observation_noise: Add the variance of the noise.
            chunk_size: Points at a time; ``None`` takes as many as need some 100 MB.

        Returns:
            Mean and variance ``... x q x m`` in the units of ``train_Y``.

        Raises:
            ValueError: ``chunk_size`` is below 1.
        """
        width = self.spectral_kernel.feature_dim
        if self.rbf_kernel is not None:
            width += self.train_targets.size(-1)
        return predict_in_chunks(self, X, width, observation_noise, chunk_size)

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """What ``fit_gpytorch_mll`` calls.

        Args:
            mll: Marginal log likelihood of this model.
            closure, closure_kwargs, optimizer_kwargs: As in BoTorch.
            **kwargs: Options of :func:`fit_spectral_gp`, or BoTorch's.

        Raises:
            TypeError: An option is neither, or there are some of both.
        """
        from gpytorch_nkn.models.fit_spectral import OPTIONS, fit_spectral_gp

        stock = (closure, closure_kwargs, optimizer_kwargs)
        if is_own_fit(self, mll, stock, kwargs, OPTIONS, "fit_spectral_gp"):
            fit_spectral_gp(self, **kwargs)
            return mll.eval()
        return _fit_fallback(
            mll,
            closure=closure,
            closure_kwargs=closure_kwargs,
            optimizer_kwargs=optimizer_kwargs,
            **kwargs,
        )

    def _get_test_prior_mean_and_covariances(
        self, train_inputs: Iterable[Tensor], test_inputs: Iterable[Tensor], **kwargs: Any
    ) -> tuple[Tensor, LinearOperator, LinearOperator, torch.Size, torch.Size, type]:
        """As the base class; without the RBF kernel, the training data are not looked at.

        What predictions need of them is in the weights of the features.
        """
        if self.rbf_kernel is not None:
            return super()._get_test_prior_mean_and_covariances(
                train_inputs=train_inputs, test_inputs=test_inputs, **kwargs
            )
        (train,), (test,) = train_inputs, test_inputs
        batch_shape = torch.broadcast_shapes(train.shape[:-2], test.shape[:-2])
        prior = self.forward(test.expand(*batch_shape, *test.shape[-2:]), **kwargs)
        unused = ZeroLinearOperator(
            *prior.batch_shape, test.size(-2), train.size(-2), dtype=test.dtype, device=test.device
        )
        covariance = prior.lazy_covariance_matrix.evaluate_kernel()
        size = test.shape[-2:-1]
        return prior.loc, covariance, unused, prior.batch_shape, size, type(prior)
