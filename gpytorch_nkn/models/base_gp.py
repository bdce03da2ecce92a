"""Base classes of models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.fit import _fit_fallback
from botorch.models import MultiTaskGP, SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.transforms import is_ensemble, normalize_indices
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, LinearMean, Mean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from gpytorch.module import Module
from gpytorch.priors import Prior
from linear_operator import to_linear_operator
from linear_operator.operators import BlockDiagLinearOperator, LinearOperator
from linear_operator.settings import cholesky_jitter
from torch import Tensor, nn

from gpytorch_nkn.fit import GAUSSIAN_LIKELIHOODS, check_flags, evaluating, options_of
from gpytorch_nkn.kernels import (
    BatchPredictionStrategy,
    FeatureKernel,
    categorical_columns,
    check_codes,
    index_kernel_batch,
    noise_variances,
    variances_of,
)
from gpytorch_nkn.layers import apply_to_base
from gpytorch_nkn.linalg import BlockDiagonal, DelayedMatrix, check_finite, check_tensors
from gpytorch_nkn.models.common import (
    check_codes_kept,
    check_noise,
    check_parts,
    check_training_data,
    outcome_transform_for,
)

__all__ = [
    "FEW_POINTS",
    "TRAINERS",
    "BaseGP",
    "ExactBaseGP",
    "ExactModel",
    "TrainerOnly",
    "event_dims",
    "explained_mismatch",
    "jittered",
    "trains",
    "transform_inputs_again",
]

M = TypeVar("M", bound=Model)
P = ParamSpec("P")
R = TypeVar("R")

FEW_POINTS = 512  # largest number of points whose joint covariance is not lazy
_JOINED_ENTRIES = 100_000  # input entries up to which one kernel call is faster than two
_CHUNK_ENTRIES = 4_000_000  # covariances per chunk of predictions: some 100 MB in total

# Trainer of each model class, a function of a model with keyword options.
TRAINERS: dict[type[Model], Callable[..., Any]] = {}


def trains(
    model_class: type[M], **parts: type[nn.Module]
) -> Callable[[Callable[Concatenate[M, P], R]], Callable[Concatenate[M, P], R]]:
    """Register the trainer of a model class; it rejects other models and enables gradients.

    It also rejects models with ``parts`` of another class, which a user may have assigned.
    """

    def register(trainer: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
        @wraps(trainer)
        def checked(model: M, *args: P.args, **options: P.kwargs) -> R:
            if not isinstance(model, model_class):
                advice = "; train each of its models" if hasattr(model, "models") else ""
                raise TypeError(
                    f"model must be a {model_class.__name__}, got {type(model).__name__}{advice}."
                )
            for name, kind in {"likelihood": Likelihood, **parts}.items():
                if not isinstance(part := getattr(model, name), kind):
                    raise TypeError(
                        f"The {name} of a {model_class.__name__} must have the class "
                        f"{kind.__name__}, as after construction, got {type(part).__name__}."
                    )
            with torch.inference_mode(False), torch.enable_grad():
                return trainer(model, *args, **options)

        TRAINERS[model_class] = checked
        return checked

    return register


@contextmanager
def explained_mismatch() -> Iterator[None]:
    """Add advice to the error of loading a ``state_dict`` that does not fit the model."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"{error}\n\tConstruct the model with the options and data of the saved model (such as "
            "structure and num_features=R). Set other data of an exact GP by set_train_data(X, y, "
            "strict=False)."
        ) from None


def jittered(normal: MultivariateNormal) -> MultivariateNormal:
    """Add jitter to the covariance of several points, before the outcome transform.

    In the unit of the targets, GPyTorch's jitter may be too small at a training point. Without
    jitter, rounding errors dominate the gradients of draws at strongly correlated points. If
    BoTorch cannot factorise one covariance of a batch (``qLogNoisyExpectedImprovement``), it draws
    all samples again, and then compares values of different draws.
    """
    mean, covariance = normal.mean, normal.lazy_covariance_matrix
    if mean.size(-1) == 1:
        return normal
    if mean.size(-1) <= FEW_POINTS:
        covariance = to_linear_operator(covariance.to_dense())
    return MultivariateNormal(mean, covariance.add_jitter(cholesky_jitter.value(mean.dtype)))


class BaseGP:
    """Model with a registered trainer, input checks and predictions in chunks."""

    _num_columns: tuple[int, ...]
    _botorch_options = options_of(_fit_fallback)

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        *,
        categorical_features: Sequence[int] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return the constructor's arguments for a data set and further ``options``.

        BoTorch and Ax use the name ``categorical_features`` for ``cat_dims``.

        Raises:
            NotImplementedError: The model has no categorical kernels.
        """
        if categorical_features:
            if "cat_dims" not in signature(cls).parameters:
                raise NotImplementedError(
                    f"{cls.__name__} does not support categorical_features, got "
                    f"{categorical_features}."
                )
            options["cat_dims"] = categorical_features
        return {**Model.construct_inputs(training_data), **options}

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """Train the model in ``fit_gpytorch_mll``, by its trainer or by BoTorch's optimisers.

        Args:
            mll: Marginal log likelihood of this model.
            closure, closure_kwargs, optimizer_kwargs: As in BoTorch.
            **kwargs: Options of the model's trainer or of BoTorch.

        Raises:
            TypeError: An option is unknown, or options of both trainers are given.
        """
        trainer = next(TRAINERS[c] for c in type(self).__mro__ if c in TRAINERS)
        allowed = options_of(trainer)
        botorch_options: dict[str, Any] = {
            "closure": closure,
            "closure_kwargs": closure_kwargs,
            "optimizer_kwargs": optimizer_kwargs,
        }
        plain = self._is_plain(mll) and all(value is None for value in botorch_options.values())
        if plain and kwargs.keys() <= allowed:
            trainer(self, **kwargs)
            return mll.eval()
        if not kwargs.keys() <= self._botorch_options:
            raise TypeError(
                f"Options of {trainer.__name__} must be among {sorted(allowed)}; with a closure, "
                "an optimizer or another likelihood, options must be among BoTorch's, "
                f"{sorted(self._botorch_options)}; got {sorted(kwargs)}."
            )
        return self._botorch_fit(mll, **botorch_options, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state as in BoTorch; an error explains which states fit."""
        with explained_mismatch():
            return super().load_state_dict(*args, **kwargs)  # type: ignore[misc]

    def _is_plain(self, mll: MarginalLogLikelihood) -> bool:
        """Return whether the model's trainer maximises this marginal log likelihood."""
        plain = type(mll) is ExactMarginalLogLikelihood and mll.model is self
        plain = plain and mll.likelihood is mll.model.likelihood
        return plain and isinstance(mll.likelihood, GAUSSIAN_LIKELIHOODS)

    def _botorch_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Train by BoTorch's optimisers."""
        return _fit_fallback(mll, **options)

    def _check_points(
        self: Any, X: Tensor, added: bool = False, width: int | None = None
    ) -> Tensor:
        """Check points for prediction (or ``added`` data), and convert them to the model's dtype.

        ``width`` is the expected number of columns; ``None`` is the width of the training inputs.
        For prediction, points may lack columns that an input transform appends.
        """
        if not isinstance(X, Tensor) or X.is_complex():
            got = X.dtype if isinstance(X, Tensor) else type(X).__name__
            raise TypeError(f"X must be a tensor of real numbers, got {got}.")
        columns = getattr(self, "_num_columns", X.shape[-1:]) if width is None else (width,)
        if X.dim() < 2 or (X.shape[-1:] != columns and (added or not self._are_appended(X))):
            expected = columns[0] if columns else "d"
            raise ValueError(f"X must be ... x q x {expected}, got shape {tuple(X.shape)}.")
        check_finite(X=X)
        return X.to(next(self.parameters()).dtype)

    def _are_appended(self: Any, X: Tensor) -> bool:
        """Return whether the input transform appends the missing columns (``AppendFeatures``)."""
        transform = getattr(self, "input_transform", None)
        if transform is None or transform.transform_on_train or X.size(-1) >= self._num_columns[0]:
            return False
        return transform.transform(X).size(-1) == self._num_columns[0]

    def posterior(
        self: Any,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """Return the posterior as in BoTorch, at points ``... x q x d``."""
        options: dict[str, Any] = {"observation_noise": observation_noise}
        if output_indices and (self.num_outputs > 1 or isinstance(self, MultiTaskGP)):
            options["output_indices"] = output_indices
        elif output_indices:
            self._check_only_output(output_indices)
        return super().posterior(  # type: ignore[misc]
            self._check_points(X), posterior_transform=posterior_transform, **options
        )

    def subset_output(self, idcs: list[int]) -> Any:
        """Return a copy of a model with one output.

        Raises:
            ValueError: ``idcs`` is neither [0] nor [-1].
            NotImplementedError: The model has several outputs.
        """
        self._check_only_output(idcs)
        return deepcopy(self)

    def _check_only_output(self: Any, idcs: Sequence[int]) -> None:
        name, number = type(self).__name__, self.num_outputs
        if number > 1:
            raise NotImplementedError(
                f"{name} cannot select some of its {number} outputs: use one model per output in a "
                "ModelListGP."
            )
        if list(idcs) not in ([0], [-1]):
            raise ValueError(
                f"Indices of outputs must be [0] or [-1] for the single output of {name}, got "
                f"{idcs}."
            )

    def _chunk_width(self: Any) -> int:
        """Return the number of covariances needed to predict one point."""
        return self.train_targets.numel()

    @torch.no_grad()
    def predict(self: Any, X: Tensor, *, observation_noise: bool = False) -> tuple[Tensor, Tensor]:
        """Predict means and variances ``... x q x m``, in units of ``train_Y``, without gradients.

        For an ensemble they are ``... x members x q x m``, as in ``posterior``.

        Args:
            X: Inputs ``... x q x d``.
            observation_noise: Include the noise in the variances.
        """
        check_flags(observation_noise=observation_noise)
        chunk_size = max(1, _CHUNK_ENTRIES // self._chunk_width())
        means, variances = [], []
        X = self._check_points(X)
        with evaluating(self):
            if not X.size(-2):
                posterior = self.posterior(X, observation_noise=bool(observation_noise))
                return posterior.mean, posterior.variance
            batch_shape = () if is_ensemble(self) else self.batch_shape
            X = X.expand(*torch.broadcast_shapes(X.shape[:-2], batch_shape), *X.shape[-2:])
            for chunk in X.split(chunk_size, dim=-2):
                # q x ... x 1 x d: a batch of single points, without covariances between them
                single = chunk.movedim(-2, 0).unsqueeze(-2)
                posterior = self.posterior(single, observation_noise=bool(observation_noise))
                # an input transform may turn one point into several (InputPerturbation)
                means.append(posterior.mean.movedim(0, -3).flatten(-3, -2))
                variances.append(posterior.variance.movedim(0, -3).flatten(-3, -2))
        return torch.cat(means, -2), torch.cat(variances, -2)


class TrainerOnly(BaseGP):
    """Model that BoTorch's optimisers cannot train."""

    @property
    def compute_custom_loss(self) -> Callable[..., Tensor]:
        """Raise a NotImplementedError: BoTorch's optimisers would minimise this loss."""
        trainer = next(TRAINERS[c] for c in type(self).__mro__ if c in TRAINERS)
        raise NotImplementedError(
            f"{type(self).__name__} must be trained by {trainer.__name__}, or by fit_gpytorch_mll "
            "with its ExactMarginalLogLikelihood and without a closure or options of an optimizer."
        )

    def _botorch_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        return self.compute_custom_loss(mll, **options)


class ExactModel(BaseGP):
    """Exact GP whose transformed training inputs are kept up to date.

    BoTorch transforms the training inputs once, in ``eval()``, and does not update them when a
    ``state_dict`` is loaded or the dtype changes.
    """

    def _apply(self: Any, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
        data = (*(self.train_inputs or ()), self.train_targets)
        if all(fn(t) is t for t in (*data, *self.parameters(), *self.buffers())):
            return self  # keep caches: acquisition functions call ``to`` on each evaluation
        with self._inputs_as_given():
            super()._apply(fn, *args, **kwargs)  # type: ignore[misc]
        for prior in (module for module in self.modules() if isinstance(module, Prior)):
            apply_to_base(prior, fn)
        return self

    @contextmanager
    def _inputs_as_given(self: Any) -> Iterator[None]:
        """Revert the input transform of the training inputs inside a context."""
        transformed = self._has_transformed_inputs
        self._revert_to_original_inputs()
        self._clear_cache()
        try:
            yield
        finally:
            if transformed:
                self._set_transformed_inputs()

    def condition_on_observations(
        self: Any, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Add observations as in BoTorch: inputs ``... x q x d``, outcomes ``... x q x m``.

        With tasks, a row has the outcome of one task.

        Raises:
            TypeError: An argument is not a floating-point tensor.
            ValueError: Shapes do not match, a value is not finite, or ``noise`` is negative.
        """
        X = self._check_points(X, added=True)
        check_tensors(Y=Y)
        num_outcomes = 1 if isinstance(self, MultiTaskGP) else self._num_outputs
        if Y.dim() < X.dim() or Y.shape[-2:] != (X.size(-2), num_outcomes):
            raise ValueError(
                f"Y must be ... x {X.size(-2)} x {num_outcomes} for X of shape "
                f"{tuple(X.shape)}, got {tuple(Y.shape)}."
            )
        check_finite(Y=Y)
        if noise is not None:
            check_noise(noise, Y.shape)
            kwargs["noise"] = noise.to(X)
        self._make_caches(X)
        return super().condition_on_observations(X, Y.to(X), **kwargs)  # type: ignore[misc]

    def _make_caches(self: Any, X: Tensor) -> None:
        """Predict once if needed; in training mode, transforms would learn from new outcomes."""
        if self.prediction_strategy is None:
            self.posterior(X[..., :1, :])

    def get_fantasy_model(self: Any, inputs: Tensor, targets: Tensor, **kwargs: Any) -> Any:
        """Return a fantasy model as in GPyTorch; with ``noise``, it has known noise variances.

        Previous rows and later observations have the learned noise.
        """
        if kwargs.get("noise") is None and hasattr(self.likelihood, "learned"):
            kwargs["noise"] = noise_variances(self.likelihood.learned, targets, inputs)
        model = super().get_fantasy_model(inputs, targets, **kwargs)  # type: ignore[misc]
        model.likelihood = model.prediction_strategy.likelihood
        return model

    def _apply_noise(
        self: Any, X: Tensor, mvn: MultivariateNormal, observation_noise: bool | Tensor = False
    ) -> MultivariateNormal:
        """Add jitter, and noise as in BoTorch; only added rows may have known noise."""
        if mvn.mean.size(-1) <= FEW_POINTS or not isinstance(self.covar_module, FeatureKernel):
            mvn = jittered(mvn)  # not many points, whose covariance has low rank
        likelihood = self.likelihood
        if observation_noise is True and hasattr(likelihood, "learned"):
            self.likelihood = likelihood.learned.to(mvn.mean)
        try:
            return super()._apply_noise(X, mvn, observation_noise)  # type: ignore[misc]
        finally:
            self.likelihood = likelihood

    def _prior_mean(self: Any, x: Tensor) -> Tensor:
        """Return the prior mean ``... x N`` at transformed inputs ``... x N x D``."""
        mean = self.mean_module(x)
        return mean.expand(torch.broadcast_shapes(mean.shape, (*self._aug_batch_shape, 1)))

    def _prior_variances(self: Any, x: Tensor) -> Tensor:
        """Return the prior variances ``... x N`` at transformed inputs ``... x N x D``."""
        return variances_of(self.covar_module, x)

    def _values(self: Any, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the kernel matrix of inputs ``... x N x D`` and ``... x M x D``."""
        return self.covar_module(x1, x2).to_dense()

    def _get_test_prior_mean_and_covariances(
        self: Any, train_inputs: Iterable[Tensor], test_inputs: Iterable[Tensor], **kwargs: Any
    ) -> tuple[Tensor, LinearOperator, LinearOperator, torch.Size, torch.Size, type]:
        """Evaluate the prior as in GPyTorch, with one kernel call for few points."""
        if kwargs or type(self).forward not in (SingleTaskGP.forward, MultiTaskGP.forward):
            return super()._get_test_prior_mean_and_covariances(  # type: ignore[misc]
                train_inputs, test_inputs, **kwargs
            )
        return self._test_prior(*train_inputs, *test_inputs)

    def _test_prior(
        self: Any, train: Tensor, test: Tensor
    ) -> tuple[Tensor, LinearOperator, LinearOperator, torch.Size, torch.Size, type]:
        """Return prior mean and covariances at transformed inputs.

        One kernel call repeats the training inputs for every batch of test points; for many
        batches, two calls are cheaper. Covariances between many test points are lazy. Strategies of
        other kernels, such as LinearKernel, need the covariances that GPyTorch makes.
        """
        strategy = type(self.prediction_strategy)
        if strategy not in (BatchPredictionStrategy, DefaultPredictionStrategy):
            return super()._get_test_prior_mean_and_covariances(  # type: ignore[misc]
                (train,), (test,)
            )
        values = self._values
        shape = torch.broadcast_shapes(train.shape[:-2], test.shape[:-2])
        if test.size(-2) > FEW_POINTS:
            diagonal = self._prior_variances(test)
            prior: LinearOperator = DelayedMatrix(diagonal, lambda: values(test, test))
            cross = to_linear_operator(values(test, train))
        elif shape.numel() * train.shape[-2:].numel() > _JOINED_ENTRIES:
            prior, cross = map(to_linear_operator, (values(test, test), values(test, train)))
        else:
            inputs = torch.cat([x.expand(*shape, *x.shape[-2:]) for x in (train, test)], -2)
            num_train = train.size(-2)
            both = to_linear_operator(values(inputs[..., num_train:, :], inputs))
            prior, cross = both[..., num_train:], both[..., :num_train]
        mean = self._prior_mean(test.expand(*shape, *test.shape[-2:]))
        return mean, prior, cross, mean.shape[:-1], mean.shape[-1:], MultivariateNormal


class ExactBaseGP(ExactModel, SingleTaskGP):
    """BoTorch's SingleTaskGP with checks of its data and columns ``cat_dims`` of category codes.

    Raises:
        TypeError: The data are not floating-point tensors, or ``cat_dims`` are not integers.
        ValueError: Shapes of the data do not match, or ``cat_dims`` are not columns of codes.
    """

    cat_dims: tuple[int, ...]

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        likelihood: Likelihood | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        cat_dims: Sequence[int] | None = None,
    ) -> None:
        check_training_data(train_X, train_Y, train_Yvar)
        self.cat_dims = categorical_columns(cat_dims, train_X.size(-1))
        if self.cat_dims:
            check_codes(train_X, self.cat_dims, "train_X")
            self._ignore_X_dims_scaling_check = list(self.cat_dims)  # BoTorch's warning
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=likelihood,
            covar_module=covar_module,
            mean_module=mean_module,
            outcome_transform=outcome_transform_for(outcome_transform, train_Y),
            input_transform=input_transform,
        )
        self._num_columns = train_X.shape[-1:]
        if likelihood is not None or mean_module is not None:
            x = self.transform_inputs(train_X)
            x = x if self._num_outputs == 1 else x.unsqueeze(-3)
            check_parts(self._aug_batch_shape, x, mean_module, likelihood)
        check_codes_kept(self, train_X)
        self.register_load_state_dict_post_hook(transform_inputs_again)

    def set_train_data(
        self,
        inputs: Tensor | list[Tensor] | tuple[Tensor, ...] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Set untransformed inputs ``... x n x d`` and targets ``... x n`` as in GPyTorch.

        Raises:
            ValueError: The numbers of rows differ.
            RuntimeError: ``strict`` is True, and a shape, dtype or device changes.
        """
        new_inputs = (inputs,) if isinstance(inputs, Tensor) else inputs
        x = (self.train_inputs if new_inputs is None else new_inputs)[0]
        y = self.train_targets if targets is None else targets
        rows = x.size(-2) if x.dim() > 1 else x.numel()
        plain = is_ensemble(self) and (x.dim() < 3 or y.dim() < 2)
        if plain or (not strict and rows != y.size(-1)):
            raise ValueError(
                "Inputs ... x n x d and targets ... x n must have the same number of rows, and for "
                "an ensemble a dimension of members, got the shapes "
                f"{tuple(x.shape)} and {tuple(y.shape)}; set both together."
            )
        current = self.train_inputs[0], self._original_train_inputs
        if self._has_transformed_inputs and not any(x is mine for mine in current):
            with self._inputs_as_given():
                return self.set_train_data(inputs, targets, strict)
        super().set_train_data(inputs, targets, strict)

    def local_load_samples(self, *args: Any) -> None:
        """Load a batch of parameter samples (GPyTorch's hook for fully Bayesian models)."""
        super().local_load_samples(*args)
        self._input_batch_shape = self.train_inputs[0].shape[: -2 - (self._num_outputs > 1)]

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """Return the posterior as in BoTorch, at points ``... x q x d``.

        With ``output_indices``, it uses the outcome transforms of these outputs (unlike BoTorch).
        """
        if output_indices and self._num_outputs > 1:
            if isinstance(observation_noise, Tensor):
                observation_noise = observation_noise[..., output_indices]
            subset = self.subset_output(output_indices)
            return subset.posterior(X, None, observation_noise, posterior_transform)
        posterior = super().posterior(X, output_indices, observation_noise, posterior_transform)
        normal: Any = getattr(posterior, "distribution", None)
        covariance: Any = getattr(normal, "lazy_covariance_matrix", None)
        if type(covariance) is BlockDiagLinearOperator:  # ModelListGP slices it by output
            blocks = BlockDiagonal(covariance.base_linear_op)
            posterior.distribution = type(normal)(posterior.mean, blocks, interleaved=False)
        return posterior

    def subset_output(self, idcs: list[int]) -> Any:
        """Return the model of the outputs with indices ``idcs``, from -m to m - 1.

        Raises:
            ValueError: An index is out of range, or ``idcs`` is empty.
            NotImplementedError: The output dimension of a mean's or likelihood's parameter is
                unknown.
        """
        if self._num_outputs == 1:
            return super().subset_output(idcs)
        idcs = normalize_indices(idcs, self._num_outputs) or []
        if not idcs:
            raise ValueError("idcs must name at least one output, got none.")
        # BoTorch indexes all parts but the kernel, because it does not reach kernels in lists
        self._subset_batch_dict = _output_dimensions(self)
        kernel, self.covar_module = self.covar_module, None
        try:
            subset = SingleTaskGP.subset_output(self, idcs)
        finally:
            self.covar_module = kernel
        outputs = idcs if len(idcs) > 1 else idcs[0]
        subset.covar_module = index_kernel_batch(kernel, (..., outputs))
        if subset._original_train_inputs is not None:  # BoTorch does not index them
            subset._original_train_inputs = subset._original_train_inputs[..., outputs, :, :]
        return subset


def transform_inputs_again(model: ExactModel, keys: Any) -> None:
    """Transform the training inputs again after a ``state_dict`` was loaded.

    As a hook, this also runs if the model is part of another module.
    """
    with model._inputs_as_given():
        pass


def event_dims(module: Module, name: str) -> int | None:
    """Return the number of event dimensions of a mean's or likelihood's parameter, if known."""
    last = name.rpartition(".")[2]
    if isinstance(module, Likelihood):
        return 1 if last == "raw_noise" else None
    is_known_mean = type(module) in (ConstantMean, LinearMean, ZeroMean)
    return {"raw_constant": 0, "weights": 2, "bias": 1}.get(last) if is_known_mean else None


def _output_dimensions(model: SingleTaskGP) -> dict[str, int]:
    """Return the negative index of the output dimension of each parameter that has one."""
    dimensions = {}
    for name, parameter in model.named_parameters():
        root = name.split(".")[0]
        if root not in ("mean_module", "likelihood"):
            continue
        num_dims = event_dims(getattr(model, root), name)
        batch = parameter.shape[: parameter.dim() - (num_dims or 0)]
        if num_dims is None or (batch and batch[-1] != model._num_outputs):
            raise NotImplementedError(
                f"The output dimension of {name} with shape {tuple(parameter.shape)} is unknown: "
                "use one model per output in a ModelListGP."
            )
        if batch:  # outputs do not share the parameter
            dimensions[name] = -1 - num_dims
    return dimensions
