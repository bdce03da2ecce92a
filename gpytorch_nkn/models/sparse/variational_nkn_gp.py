"""Stochastic variational GP for very many rows, with a kernel that learns its structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.fit import _fit_fallback_approximate
from botorch.models import SingleTaskVariationalGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import GPyTorchPosterior, TorchPosterior
from botorch.settings import propagate_grads
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    Likelihood,
    MultitaskGaussianLikelihood,
    SoftmaxLikelihood,
)
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood, VariationalELBO
from gpytorch.utils.memoize import cached
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor, nn
from torch.distributions import Distribution

from gpytorch_nkn.linalg import factorize_inducing
from gpytorch_nkn.models.base_gp import BaseGP, explained_mismatch, jittered
from gpytorch_nkn.models.common import (
    check_likelihood,
    check_parts,
    check_support,
    check_training_data,
    make_likelihood,
    outcome_transform_for,
)
from gpytorch_nkn.models.sparse.collapsed_bound import CollapsedGP, WhitenedPosterior
from gpytorch_nkn.models.sparse.inducing_point_gp import InducingPointGP
from gpytorch_nkn.models.structure import make_kernel

__all__ = ["VariationalNKNGP", "softmax_rows"]

_GAUSSIAN = (GaussianLikelihood, FixedNoiseGaussianLikelihood, MultitaskGaussianLikelihood)


class VariationalNKNGP(InducingPointGP, BaseGP, SingleTaskVariationalGP):
    """Stochastic variational GP (SVGP) with a network as kernel, for more than 50,000 rows.

    :func:`fit_variational_gp` trains a Gaussian distribution of the function's values at m inducing
    points by mini-batches. Use :class:`SparseNKNGP` for fewer rows with Gaussian noise.

    All GPyTorch likelihoods that factorise over rows are supported: for classes
    (``BernoulliLikelihood``, ``SoftmaxLikelihood``), counts (``PoissonLikelihood``), outliers
    (``StudentTLikelihood``) and fractions (``BetaLikelihood``), or your own. ``posterior(X)``
    returns the posterior of the latent functions, and ``predictive(X)`` the distribution of
    outcomes. Unlike the base class, the model transforms the inputs once instead of in each
    mini-batch.

    Args:
        train_X: Inputs ``n x d``, preferably standardised or in the unit cube.
        train_Y: Outcomes ``n x 1``: labels 0 and 1 for a BernoulliLikelihood, class codes from 0
            for a SoftmaxLikelihood. If the likelihood is not Gaussian they can be ``n x t``, for t
            independent latent functions, each with its own kernel.
        train_Yvar: Known variances ``n x 1`` of Gaussian noise; ``None`` infers one variance.
        structure, inducing_points, seed: As in :class:`SparseNKNGP`.
        likelihood: ``None`` for a Gaussian likelihood as in :class:`SparseNKNGP`. If outcomes
            depend on several latent functions, its attribute ``num_features`` is their number.
        mean_module: ``None`` for a constant.
        outcome_transform: By default, outcomes are standardised if the likelihood is Gaussian.
        input_transform: Applied once to ``train_X``, e.g. ``Normalize(d)``; must have no trainable
            parameters.

    ``fit_gpytorch_mll(VariationalELBO(model.likelihood, model.model, num_data=n))`` trains the
    model by :func:`fit_variational_gp` and accepts its options. With BoTorch's options
    (``optimizer``, ``data_loader``) or another objective, BoTorch's optimisers train it.

    Raises:
        TypeError: ``structure`` is neither a name nor a kernel, or ``likelihood`` does not
            factorise over rows.
        ValueError: ``structure`` is an unknown name. Structure, inducing points or numbers of rows
            do not fit the data. An outcome is outside of the likelihood's support.
        NotImplementedError: There are several Gaussian outputs or a batch of data sets, or the
            input transform has trainable parameters.

    References: Hensman, Fusi and Lawrence (2013), Gaussian Processes for Big Data; Hensman,
    Matthews and Ghahramani (2015), Scalable Variational Gaussian Process Classification.

    Example:
        >>> from gpytorch_nkn.models import fit_variational_gp
        >>> train_X = torch.rand(200, 2, dtype=torch.float64)
        >>> train_Y = train_X.sin().sum(-1, keepdim=True)
        >>> model = VariationalNKNGP(train_X, train_Y, structure="additive", inducing_points=20)
        >>> model = fit_variational_gp(model, epochs=2, batch_size=50, start=None, progress=False)
        >>> mean, variance = model.predict(train_X, observation_noise=True)
    """

    _botorch_options = BaseGP._botorch_options | {"data_loader", "full_batch_limit"}

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        structure: str | Kernel = "tabular",
        inducing_points: int | Tensor = 500,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        seed: int = 0,
    ) -> None:
        of_rows = FixedNoiseGaussianLikelihood | MultitaskGaussianLikelihood
        if not isinstance(likelihood, Likelihood | None) or isinstance(likelihood, of_rows):
            raise TypeError(
                "likelihood must be a GPyTorch likelihood that factorises over rows, such as a "
                f"GaussianLikelihood or BernoulliLikelihood, got {type(likelihood).__name__}; "
                "known variances of Gaussian noise belong in train_Yvar."
            )
        if train_Yvar is not None:
            check_likelihood(likelihood, train_Yvar)
        check_training_data(train_X, train_Y, train_Yvar)
        is_gaussian = isinstance(likelihood, GaussianLikelihood | None)
        if train_X.dim() != 2 or train_Y.dim() != 2 or (is_gaussian and train_Y.size(-1) != 1):
            raise NotImplementedError(
                "VariationalNKNGP needs inputs n x d and one output n x 1, got shapes "
                f"{tuple(train_X.shape)} and {tuple(train_Y.shape)}; several outputs need a "
                "botorch ModelListGP with one model per output."
            )
        num_latents = int(getattr(likelihood, "num_features", train_Y.size(-1)))
        if not is_gaussian and isinstance(outcome_transform, _DefaultType):
            outcome_transform = None
        if input_transform is not None and any(
            p.requires_grad for p in input_transform.parameters()
        ):
            raise NotImplementedError(
                "input_transform must have no trainable parameters, because inputs are transformed "
                "once before training, got parameters that require gradients: freeze them by "
                "input_transform.requires_grad_(False)."
            )
        shape = torch.Size([num_latents] if num_latents > 1 else [])
        transform: Any = outcome_transform_for(outcome_transform, train_Y)
        with torch.no_grad():
            inputs = self.transform_inputs(train_X, input_transform)
            outcomes, noise = train_Y, train_Yvar
            if transform is not None:
                outcomes, noise = transform.train()(train_Y, train_Yvar, X=inputs)
        if noise is not None:
            likelihood = _KnownNoise(noise.squeeze(-1))
        kernel = make_kernel(structure, inputs.size(-1), shape).to(train_X)
        points = self._choose_points(inducing_points, inputs, kernel, seed)
        super().__init__(
            inputs,
            likelihood=make_likelihood(shape) if likelihood is None else likelihood,
            num_outputs=num_latents,
            covar_module=kernel,
            mean_module=mean_module,
            variational_strategy=_CachedVariationalStrategy,
            variational_distribution=CholeskyVariationalDistribution(
                points.size(-2), batch_shape=shape, mean_init_std=0.0
            ),
            inducing_points=points,
        )
        self.model.train_targets = outcomes.squeeze(-1)  # n or n x t
        targets = self.model.train_targets
        extra = [num_latents] if targets.dim() == 1 < num_latents else []
        check_support("train_Y", targets, self.likelihood, torch.Size([*targets.shape, *extra]))
        # fit_gpytorch_mll looks for custom_fit in the objective's model, which is the inner one
        self.model.custom_fit = self.custom_fit
        # start from N(0, I); the base class would draw from the global random state
        self.strategy.variational_params_initialized.fill_(1)
        self._num_columns = train_X.shape[-1:]
        # set afterwards, because the base class would transform mini-batches, and warns about this
        if transform is not None:
            self.outcome_transform = transform.eval()
        if input_transform is not None:
            self.input_transform = input_transform.eval()
        self.to(train_X)
        if mean_module is not None:
            check_parts(shape, inputs, self.model.mean_module)
        self.likelihood.to(train_X)  # nodes of GPyTorch's quadrature, which are not buffers

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> VariationalNKNGP:
        inner: Any = self.model  # BoTorch does not move its data
        if all(fn(x) is x for x in (*inner.train_inputs, *self.parameters(), *self.buffers())):
            return self  # as in ExactBaseGP
        super()._apply(fn, recurse)
        self.strategy._clear_cache()
        inner.train_inputs = tuple(fn(x) for x in inner.train_inputs)
        if hasattr(inner, "train_targets"):  # not yet while the base class is made
            inner.train_targets = fn(inner.train_targets)
        return self

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """Return the posterior as in BoTorch; ``observation_noise`` cannot be a tensor.

        If the noise is not Gaussian, observations have the distribution ``predictive(X)``.
        """
        if isinstance(observation_noise, Tensor):  # BoTorch would use the learned noise
            raise NotImplementedError(
                "observation_noise must be True or False for a VariationalNKNGP, got a tensor."
            )
        if observation_noise and not isinstance(self.likelihood, _GAUSSIAN):
            posterior = TorchPosterior(self.predictive(X))
            return posterior if posterior_transform is None else posterior_transform(posterior, X)
        return super().posterior(X, output_indices, observation_noise, posterior_transform)

    def _chunk_width(self) -> int:
        return self.inducing_points.size(-2)

    def _is_plain(self, mll: MarginalLogLikelihood) -> bool:
        """Return whether ``mll`` is the evidence lower bound of all rows."""
        return (
            type(mll) is VariationalELBO
            and mll.model is self.model
            and mll.likelihood is self.likelihood
            and mll.num_data == self.model.train_targets.size(0)
            and mll.beta == 1
            and mll.combine_terms
            and len(list(mll.added_loss_terms())) == 0
        )

    def _botorch_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Train by BoTorch's optimisers, if the objective is a variational one."""
        if not hasattr(mll, "num_data"):
            raise TypeError(
                "A variational GP needs an objective such as VariationalELBO(model.likelihood, "
                f"model.model, num_data=n), got an {type(mll).__name__}."
            )
        return _fit_fallback_approximate(mll, **options)

    def train(self, mode: bool = True) -> VariationalNKNGP:
        """Set the mode of the model; transforms remain in eval mode."""
        super().train(mode)
        for name in ("input_transform", "outcome_transform"):
            if hasattr(self, name):
                getattr(self, name).eval()
        return self

    @property
    def strategy(self) -> VariationalStrategy:
        """Variational strategy, with several latent functions as a batch."""
        strategy: Any = self.model.variational_strategy
        return getattr(strategy, "base_variational_strategy", strategy)

    @property
    def inducing_points(self) -> Tensor:
        """Inducing points ``m x d``, in the space of transformed inputs."""
        return self.strategy.inducing_points

    def predictive(self, X: Tensor) -> Distribution:
        """Return the distribution of the outcome at each of the points ``... x q x d``.

        The distribution is in closed form for Gaussian and Bernoulli likelihoods. For other
        likelihoods the first batch dimension contains ``gpytorch.settings.num_likelihood_samples``
        draws of the latent functions; average probabilities over this dimension.

        Raises:
            NotImplementedError: The model has an ``outcome_transform`` that is not affine, or a
                likelihood that is not Gaussian beside it.
        """
        transform: Any = getattr(self, "outcome_transform", None)
        if transform is not None:
            self._check_gaussian("predictive with an outcome_transform", "outcome_transform=None")
        self.eval()
        inputs = self.transform_inputs(self._check_points(X))
        latent = self.model(inputs.unsqueeze(-3) if self.num_outputs > 1 else inputs)
        mean, variance = (softmax_rows(self.likelihood, v) for v in (latent.mean, latent.variance))
        alone = DiagLinearOperator(variance.flatten(len(latent.batch_shape)))
        outcome = self.likelihood(type(latent)(mean, alone))
        if transform is None:
            return outcome
        posterior = transform.untransform_posterior(GPyTorchPosterior(outcome), X=X)
        if not isinstance(posterior, GPyTorchPosterior):
            raise NotImplementedError(
                f"predictive needs an affine outcome_transform, got {type(transform).__name__}: "
                "use posterior(X, observation_noise=True)."
            )
        return posterior.distribution

    def predict(self, X: Tensor, *, observation_noise: bool = False) -> tuple[Tensor, Tensor]:
        """Predict as in the base class; noise must be Gaussian."""
        if observation_noise:
            self._check_gaussian("predict with observation_noise", "predictive")
        return super().predict(X, observation_noise=observation_noise)

    def _check_gaussian(self, use: str, instead: str) -> None:
        if not isinstance(self.likelihood, _GAUSSIAN):
            name = type(self.likelihood).__name__
            raise NotImplementedError(f"{use} needs Gaussian noise, got a {name}: use {instead}.")

    def collapsed(self) -> CollapsedGP:
        """Return the model with its inducing values integrated out."""
        (inputs,), targets = self.model.train_inputs, self.model.train_targets
        if inputs.shape[:-1] != targets.shape[:1]:
            raise ValueError(
                "The training data must be inputs n x d and targets n or n x t, got the shapes "
                f"{tuple(inputs.shape)} and {tuple(targets.shape)}."
            )
        return CollapsedGP(
            kernel=self.model.covar_module,
            mean_module=self.model.mean_module,
            points=self.inducing_points,
            inputs=lambda: inputs,
            targets=targets if targets.dim() == 1 else targets.mT,
            noise=lambda: self.likelihood.noise,
        )

    def _set_distribution(self, mean: Tensor, root: Tensor) -> None:
        """Set the mean ``... x m`` of the whitened inducing values, and a root of the covariance.

        The root C is ``... x m x m``, with the covariance C C'.
        """
        strategy = self.strategy
        distribution = strategy._variational_distribution
        # the Cholesky factor of C C^T from a QR decomposition of C^T
        upper = torch.linalg.qr(root.mT, mode="r").R
        signs = torch.where(upper.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(upper)
        with torch.no_grad():
            distribution.variational_mean.copy_(mean)
            distribution.chol_variational_covar.copy_((signs.unsqueeze(-1) * upper).mT)
            strategy.variational_params_initialized.fill_(1)
        strategy._clear_cache()

    def load_state_dict(  # type: ignore[override]
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Load a state as in BoTorch; with ``keep_transforms``, transform the data again."""
        # the base class expects the training data in other attributes
        (inputs,), targets = self.model.train_inputs, self.model.train_targets
        targets = targets.view(len(targets), -1)
        is_known = isinstance(self.likelihood, _KnownNoise)
        noise = self.likelihood.noise.unsqueeze(-1) if is_known else None
        of_inputs = getattr(self, "input_transform", None) if keep_transforms else None
        of_outcomes = getattr(self, "outcome_transform", None) if keep_transforms else None
        if of_inputs is not None:
            before = deepcopy(of_inputs)
        if of_outcomes is not None:
            targets, noise = of_outcomes.untransform(targets, noise, X=inputs)
        with explained_mismatch():
            keys = nn.Module.load_state_dict(self, state_dict, strict=strict, assign=assign)
        if of_inputs is not None and not of_inputs.equals(before):
            inputs = of_inputs(before.untransform(inputs))
        if of_outcomes is not None:
            targets, noise = of_outcomes.eval()(targets, noise, X=inputs)
        if noise is not None:
            self.likelihood.noise_covar.noise = noise.squeeze(-1)
        self.model.train_targets = targets.squeeze(-1)
        self.model.train_inputs = (inputs,)
        return keys


def softmax_rows(likelihood: Likelihood, values: Tensor) -> Tensor:
    """Transpose values ``... x q x t`` if GPyTorch's SoftmaxLikelihood would do so, for q = t."""
    is_square = isinstance(likelihood, SoftmaxLikelihood) and values.size(-2) == values.size(-1)
    return values.mT if is_square else values


class _KnownNoise(FixedNoiseGaussianLikelihood):
    """Known noise of the training data; new observations have the mean variance, as in BoTorch."""

    def marginal(
        self, function_dist: MultivariateNormal, *args: Any, **kwargs: Any
    ) -> MultivariateNormal:
        noise = self.noise.mean().expand(function_dist.mean.shape)
        return super().marginal(function_dist, *args, **{"noise": noise} | kwargs)


class _CachedVariationalStrategy(VariationalStrategy):
    """Strategy that caches one factorisation for all predictions, without copies for a batch."""

    def forward(
        self,
        x: Tensor,
        inducing_points: Tensor,
        inducing_values: Tensor,
        variational_inducing_covar: LinearOperator | None = None,
        diag: bool = True,
        **kwargs: Any,
    ) -> MultivariateNormal:
        """Return the distribution of the function at ``x``."""
        if self.training or kwargs:
            return super().forward(
                x, inducing_points, inducing_values, variational_inducing_covar, diag, **kwargs
            )
        return jittered(self._posterior.joint(x))

    @property
    @cached(name="whitened_posterior")
    def _posterior(self) -> WhitenedPosterior:
        wanted = settings.detach_test_caches.off() or propagate_grads.on()
        with torch.set_grad_enabled(torch.is_grad_enabled() and wanted):
            prior = self.model.covar_module, self.model.mean_module, self.inducing_points
            factor, _ = factorize_inducing(prior[0](self.inducing_points).to_dense())
            mean = self._variational_distribution.variational_mean.double()
            root = self._variational_distribution.chol_variational_covar.tril().double()
            return WhitenedPosterior(*prior, factor, mean, root)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memoize_cache": {}}

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load any number of inducing points, with the distribution of their values."""
        points: Any = state.get(f"{prefix}inducing_points", self.inducing_points)
        if points[..., 0, :].shape == self.inducing_points[..., 0, :].shape:
            distribution = self._variational_distribution
            for name in ("variational_mean", "chol_variational_covar"):
                parameter = getattr(distribution, name)
                loaded: Any = state.get(f"{prefix}_variational_distribution.{name}", parameter)
                parameter.data = parameter.new_empty(loaded.shape)
            self.inducing_points.data = self.inducing_points.new_empty(points.shape)
        if not state:  # GPyTorch needs an entry
            state[f"{prefix}updated_strategy"] = torch.tensor(True)
        super()._load_from_state_dict(state, prefix, *args)
