"""What models have in common: trainers, checks of data, noise, predictions, subsets of outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from botorch.fit import _fit_fallback
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.models.utils import gpt_posterior_settings
from botorch.utils.transforms import normalize_indices
from botorch.utils.types import _DefaultType
from gpytorch import settings
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, LinearMean, Mean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.models import ExactGP
from gpytorch.module import Module
from gpytorch.priors import Prior
from linear_operator import to_linear_operator
from linear_operator.operators import BlockDiagLinearOperator, LinearOperator
from linear_operator.settings import cholesky_jitter
from torch import Tensor

from gpytorch_nkn.fit import check_counts, options_of, warn_user
from gpytorch_nkn.kernels import FeatureKernel, categorical_columns, check_codes, index_kernel_batch
from gpytorch_nkn.layers import apply_to_base, log_normal_prior
from gpytorch_nkn.linalg import BlockDiagonal, DelayedMatrix, check_tensors

__all__ = [
    "TRAINERS",
    "CheckedData",
    "CheckedPoints",
    "ChunkedPredictions",
    "CustomFit",
    "JointJitter",
    "ManyPoints",
    "OutputSubsets",
    "PartsGP",
    "PriorOfCalls",
    "check_codes_kept",
    "check_likelihood",
    "check_training_data",
    "event_dims",
    "make_likelihood",
    "outcome_transform_for",
    "point_by_point",
    "set_cat_dims",
    "trains",
]

M = TypeVar("M", bound=Model)
P = ParamSpec("P")
R = TypeVar("R")

_NOISE_FLOOR = 1e-6  # of the variance of standardised targets: noise-free data remain solvable
_FLOOR_SHARE = 0.01  # largest negligible floor, as a fraction of the outcomes' standard deviation
_BOTORCH_LEAST = 1e-8  # deviation from which on its Standardize divides by it
_ROUNDING = 10.0  # deviations of so many last digits are those of constants
_JOINED_ENTRIES = 100_000  # of inputs, up to which one call of a kernel costs less than two
_CHUNK_ENTRIES = 4_000_000  # covariances with inducing points: 32 MB, several times that in all

# The trainer of each class of models: a function of a model, whose options are keywords.
TRAINERS: dict[type[Model], Callable[..., Any]] = {}


def trains(
    model_class: type[M],
) -> Callable[[Callable[Concatenate[M, P], R]], Callable[Concatenate[M, P], R]]:
    """Make a function the trainer of a class of models; it then refuses any other model."""

    def register(trainer: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
        @wraps(trainer)
        def checked(model: M, *args: P.args, **options: P.kwargs) -> R:
            if not isinstance(model, model_class):
                name = model_class.__name__
                article = "an" if name[0] in "AEIOU" else "a"
                each = "; train each of its models" if hasattr(model, "models") else ""
                raise TypeError(
                    f"model must be {article} {name}, got {type(model).__name__}{each}."
                )
            return trainer(model, *args, **options)

        TRAINERS[model_class] = checked
        return checked

    return register


class CustomFit:
    """Lets ``fit_gpytorch_mll`` train a model by its own trainer, unless it is asked otherwise."""

    _stock_options = frozenset(
        {
            "optimizer",
            "max_attempts",
            "pick_best_of_all_attempts",
            "warning_handler",
            "caught_exception_types",
        }
    )

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
            **kwargs: Options of the model's trainer, or BoTorch's.

        Raises:
            TypeError: An option is neither, or there are some of both.
        """
        owner: Any = self
        trainer = next(TRAINERS[c] for c in type(owner).__mro__ if c in TRAINERS)
        own = options_of(trainer)
        stock: dict[str, Any] = {
            "closure": closure,
            "closure_kwargs": closure_kwargs,
            "optimizer_kwargs": optimizer_kwargs,
        }
        plain = self._is_plain(mll)
        if plain and all(value is None for value in stock.values()) and kwargs.keys() <= own:
            trainer(owner, **kwargs)
            return mll.eval()
        if not kwargs.keys() <= self._stock_options:
            raise TypeError(
                f"Expected options of {trainer.__name__} {sorted(own)} or, with a closure, an "
                "optimizer or a likelihood of its own, of BoTorch "
                f"{sorted(self._stock_options)}; got {sorted(kwargs)}."
            )
        return self._stock_fit(mll, **stock, **kwargs)

    def _is_plain(self, mll: MarginalLogLikelihood) -> bool:
        """Whether a marginal log likelihood is the one that the trainer of this model maximises."""
        plain = type(mll) is ExactMarginalLogLikelihood and mll.model is self
        return plain and mll.likelihood is mll.model.likelihood

    def _stock_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Training by BoTorch's optimisers."""
        return _fit_fallback(mll, **options)


def check_training_data(train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None) -> None:
    """Refuse what is no data, infinite values, and data that do not belong together row by row.

    BoTorch refuses NaN and most wrong numbers of dimensions, with errors of its own.

    Args:
        train_X: Inputs ``... x n x d``.
        train_Y: Outcomes ``... x n x m``.
        train_Yvar: Variances of the noise, as the outcomes, or ``None``.

    Raises:
        TypeError: They are no floating-point tensors.
        ValueError: Numbers of rows differ, there are no columns of inputs, or a value is infinite.
    """
    present = {"train_X": train_X, "train_Y": train_Y}
    if train_Yvar is not None:
        present["train_Yvar"] = train_Yvar
    check_tensors(**present)
    if train_X.dim() < 2:
        raise ValueError(f"train_X must be ... x n x d, got the shape {tuple(train_X.shape)}.")
    for name, values in present.items():
        if values.isinf().any():
            raise ValueError(
                f"{name} must be finite, got {int(values.isinf().sum())} infinite values."
            )
    if all(v.dim() > 1 for v in present.values()):
        if len({values.size(-2) for values in present.values()}) > 1:
            shapes = ", ".join(f"{name} {tuple(v.shape)}" for name, v in present.items())
            raise ValueError(f"Data must have the same number of rows, got the shapes {shapes}.")


def set_cat_dims(model: Any, cat_dims: Iterable[int] | None, train_X: Tensor) -> None:
    """Tell a model, before it is set up, which columns of its inputs ``... x n x d`` are codes.

    Raises:
        TypeError: A number of a column is not an integer.
        ValueError: There is no such column, it is given twice, or it holds other numbers.
    """
    model.cat_dims = categorical_columns(cat_dims, train_X.size(-1))
    if model.cat_dims:
        check_codes(train_X, model.cat_dims, "train_X")
        model._ignore_X_dims_scaling_check = list(model.cat_dims)  # BoTorch's warning


def check_codes_kept(model: Any, train_X: Tensor) -> None:
    """Refuse transforms of inputs that give several categories the same number.

    Raises:
        ValueError: One of them does, or moves or takes away their column.
    """
    if not model.cat_dims:
        return
    transformed = model.transform_inputs(train_X)
    for column in model.cat_dims:
        before, after = train_X[..., column], transformed[..., column]
        pairs = torch.stack([before, after.expand_as(before)], -1).flatten(0, -2)
        if not len(before.unique()) == len(after.unique()) == len(pairs.unique(dim=0)):
            raise ValueError(
                f"input_transform must keep the categories of column {column} apart, got "
                f"{type(model.input_transform).__name__}: give it the indices of other columns."
            )


def outcome_transform_for(
    outcome_transform: OutcomeTransform | _DefaultType | None, train_Y: Tensor
) -> OutcomeTransform | None:
    """The transform that is given; by default one that standardises outcomes of any size.

    BoTorch's default leaves outcomes of a deviation below 1e-8 as they are, of which a kernel
    whose scale starts at one learns nothing. Here what differs by more than rounding counts.

    Args:
        outcome_transform: What the user gave.
        train_Y: Outcomes ``... x n x m``.
    """
    given = outcome_transform
    if train_Y.dim() < 2 or train_Y.size(-2) < 2 or not train_Y.is_floating_point():
        if not isinstance(given, _DefaultType):
            return given
        return Standardize(train_Y.size(-1), batch_shape=train_Y.shape[:-2])
    values = train_Y.detach()
    rounding = _ROUNDING * torch.finfo(values.dtype).eps * values.abs().amax(-2)
    least = max(rounding.min().item(), torch.finfo(values.dtype).tiny ** 0.5)  # squares are kept
    if given is None or isinstance(given, _DefaultType | Standardize):  # in the unit of train_Y
        _warn_of_smallest_variance(values.std(-2), least)
    if not isinstance(given, _DefaultType):
        return given
    return Standardize(
        train_Y.size(-1), batch_shape=train_Y.shape[:-2], min_stdv=min(least, _BOTORCH_LEAST)
    )


def _warn_of_smallest_variance(deviations: Tensor, least: float) -> None:
    """Warn if GPyTorch's smallest variance is not negligible next to that of the outcomes.

    Args:
        deviations: Standard deviations of the outcomes.
        least: Largest standard deviation that rounding errors explain.
    """
    variance = settings.min_variance.value(deviations.dtype)
    small = deviations[(deviations < variance**0.5 / _FLOOR_SHARE) & (deviations > least)]
    if small.numel():
        warn_user(
            f"The outcomes have a standard deviation of {small.min():.1e}. Means are predicted as "
            f"for any other, but GPyTorch's smallest variance, {variance:.0e}, makes small "
            "standard deviations too wide: give train_Y in a larger unit, or predict under "
            "gpytorch.settings.min_variance with smaller values."
        )


class CheckedPoints:
    """Refuses points that the inputs of the model are not like."""

    def _check_points(self: Any, X: Tensor, added: bool = False, width: int | None = None) -> None:
        """Refuse points to predict at, or to be added to the data.

        Args:
            X: The points.
            added: They are to be added to the data.
            width: Number of columns of transformed points; ``None`` for points before that.

        Raises:
            TypeError: They are no tensor of real numbers.
            ValueError: They are not ``... x q x d``, or NaN or infinite. Points to predict at may
                lack the columns that an input transform appends to them.
        """
        if not isinstance(X, Tensor) or X.is_complex():
            got = X.dtype if isinstance(X, Tensor) else type(X).__name__
            raise TypeError(f"X must be a tensor of real numbers, got {got}.")
        columns = getattr(self, "_num_columns", X.shape[-1:]) if width is None else (width,)
        if X.dim() < 2 or (X.shape[-1:] != columns and (added or not self._are_appended(X))):
            expected = columns[0] if columns else "d"
            raise ValueError(f"X must be ... x q x {expected}, got the shape {tuple(X.shape)}.")
        if not bool(X.isfinite().all()):
            wrong = int((~X.isfinite()).sum())
            raise ValueError(f"X must be finite, got {wrong} values that are NaN or infinite.")

    def _are_appended(self: Any, X: Tensor) -> bool:
        """Whether the columns that points lack are appended (BoTorch's ``AppendFeatures``)."""
        transform = getattr(self, "input_transform", None)
        if transform is None or transform.transform_on_train or X.size(-1) >= self._num_columns[0]:
            return False
        return transform.transform(X).size(-1) == self._num_columns[0]

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As in BoTorch, at points ``... x q x d``."""
        self._check_points(X)
        posterior = super().posterior(X, *args, **kwargs)  # type: ignore[misc]
        normal: Any = getattr(posterior, "distribution", None)
        covariance: Any = getattr(normal, "lazy_covariance_matrix", None)
        if type(covariance) is BlockDiagLinearOperator:  # of outputs, which ModelListGP takes apart
            blocks = BlockDiagonal(covariance.base_linear_op)
            posterior.distribution = type(normal)(posterior.mean, blocks, interleaved=False)
        return posterior


class JointJitter:
    """Joint covariances that can be factorised, whatever the unit of the targets.

    GPyTorch adds its jitter to what it factorises, in the unit of the targets: in thousands, say,
    too little where one of the points is a training point. Where BoTorch cannot factorise the
    covariances of one of a batch of points (``qLogNoisyExpectedImprovement``, several outcomes), it
    draws the values at all of them anew, and compares them with values of other draws. Here the
    jitter comes before the outcome transform.
    """

    def _apply_noise(
        self: Any, X: Tensor, mvn: MultivariateNormal, observation_noise: bool | Tensor = False
    ) -> MultivariateNormal:
        if mvn.mean.size(-1) > 1:
            covariance = mvn.lazy_covariance_matrix
            if not isinstance(covariance, DelayedMatrix):
                covariance = to_linear_operator(covariance.to_dense())
            covariance = covariance.add_jitter(cholesky_jitter.value(mvn.mean.dtype))
            mvn = MultivariateNormal(mvn.mean, covariance)
        return super()._apply_noise(X, mvn, observation_noise)  # type: ignore[misc]


class ManyPoints:
    """Exact GPs that predict means and variances at many points without their covariances."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """As in GPyTorch."""
        call, points = super().__call__, args[0]  # type: ignore[misc]
        lazy = settings.prior_mode.on() or settings.skip_posterior_variances.on()
        if isinstance(self.covar_module, FeatureKernel) and not self.covar_module.leaves_rest:
            lazy = True  # of low rank
        if self.training or kwargs or lazy or not DelayedMatrix.is_for(points.shape[-2:][0]):
            return call(*args, **kwargs)
        train = self.train_inputs[0]
        batch_shape = torch.broadcast_shapes(points.shape[:-2], train.shape[:-2])
        return point_by_point(self, call, points, batch_shape, train.size(-2))


def point_by_point(
    model: Any,
    call: Callable[[Tensor], MultivariateNormal],
    points: Tensor,
    batch_shape: torch.Size,
    width: int,
) -> MultivariateNormal:
    """The posterior at many points, whose covariances are computed when they are needed.

    Args:
        model: The model, in eval mode.
        call: Returns its posterior at points, also at a batch of single points.
        points: ``... x q x d``.
        batch_shape: Of the posterior.
        width: How many numbers the prediction at one point takes for an entry of the batch.
    """
    points = points.clone()  # its owner may change it
    single = points[(None,) * (len(batch_shape) + 2 - points.dim())].movedim(-2, 0)
    size = max(1, _CHUNK_ENTRIES // (4 * batch_shape.numel() * width))
    parts = [call(part.unsqueeze(-2)) for part in single.split(size)]
    mean = torch.cat([part.mean for part in parts])
    variance = torch.cat([part.lazy_covariance_matrix.to_dense()[..., 0] for part in parts])
    mean, variance = (values.squeeze(-1).movedim(0, -1) for values in (mean, variance))

    def depends_on() -> list[Tensor]:
        data = [*(getattr(model, "train_inputs", None) or ())]
        if data:
            data.append(model.train_targets)
        return [*model.parameters(), *model.buffers(), *data]

    def same(one: Tensor, two: Tensor) -> bool:
        alike = (one.dtype, one.device, one.shape) == (two.dtype, two.device, two.shape)
        return alike and torch.allclose(one, two, rtol=0.0, atol=0.0, equal_nan=True)

    then = [values.detach().clone() for values in depends_on()]
    detached = settings.detach_test_caches.on()

    def covariance() -> Tensor:
        training = model.training
        model.eval()
        try:
            now = depends_on()
            if len(now) != len(then) or not all(map(same, now, then)):
                raise RuntimeError(
                    "The model has changed since this posterior was made, and its covariances had "
                    "not been asked for: ask the model for a posterior again."
                )
            with gpt_posterior_settings(), settings.detach_test_caches(detached):
                return call(points).covariance_matrix
        finally:
            model.train(training)

    return type(parts[0])(mean, DelayedMatrix(variance, covariance))


class CheckedData(CheckedPoints):
    """Refuses training data that do not belong together when they are set later, too.

    Predictions are those of the present state, dtype and data, whatever was computed before:
    BoTorch transforms the training inputs once, in ``eval()``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        model: Any = self
        model.register_load_state_dict_post_hook(_transform_inputs_anew)  # also as a part of others

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
        model: Any = self
        with self._inputs_as_given():
            super()._apply(fn, *args, **kwargs)  # type: ignore[misc]
        for prior in (part for part in model.modules() if isinstance(part, Prior)):
            apply_to_base(prior, fn)
        return self

    @contextmanager
    def _inputs_as_given(self: Any) -> Iterator[None]:
        """Training inputs before their transform; afterwards they are transformed anew."""
        transformed = self._has_transformed_inputs
        self._revert_to_original_inputs()
        self._clear_cache()
        try:
            yield
        finally:
            if transformed:
                self._set_transformed_inputs()

    def condition_on_observations(self: Any, X: Tensor, Y: Tensor, **kwargs: Any) -> Any:
        """As in BoTorch, for inputs ``... x q x d`` and outcomes ``... x q x m``.

        Raises:
            TypeError: They are no floating-point tensors.
            ValueError: They do not belong together row by row, or are not finite.
        """
        self._check_points(X, added=True)
        check_tensors(Y=Y)
        if Y.dim() < X.dim() or Y.shape[-2:] != (X.size(-2), self._num_outputs):
            raise ValueError(
                f"Y must be ... x {X.size(-2)} x {self._num_outputs} for X of the shape "
                f"{tuple(X.shape)}, got {tuple(Y.shape)}."
            )
        if not bool(Y.isfinite().all()):
            wrong = int((~Y.isfinite()).sum())
            raise ValueError(f"Y must be finite, got {wrong} values that are NaN or infinite.")
        return super().condition_on_observations(X, Y, **kwargs)  # type: ignore[misc]

    def set_train_data(
        self,
        inputs: Tensor | list[Tensor] | tuple[Tensor, ...] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """As in GPyTorch, for inputs ``... x n x d`` as they are given, and targets ``... x n``.

        In eval mode, too, inputs are transformed here.

        Raises:
            ValueError: Their numbers of rows differ, from each other or from what stays.
            RuntimeError: ``strict`` is true, and a shape, type or device is not that of before.
        """
        model: Any = self
        given = (inputs,) if isinstance(inputs, Tensor) else inputs
        x = (model.train_inputs if given is None else given)[0]
        y = model.train_targets if targets is None else targets
        rows = x.size(-2) if x.dim() > 1 else x.numel()
        if not strict and rows != y.size(-1):
            raise ValueError(
                "Inputs ... x n x d and targets ... x n must have the same number of rows, got the "
                f"shapes {tuple(x.shape)} and {tuple(y.shape)}; set both together."
            )
        own = model.train_inputs[0], model._original_train_inputs
        if model._has_transformed_inputs and not any(x is mine for mine in own):
            with self._inputs_as_given():
                return self.set_train_data(inputs, targets, strict)
        super().set_train_data(inputs, targets, strict)  # type: ignore[misc]


def _transform_inputs_anew(model: Any, keys: Any) -> None:
    """Do so after a state was loaded."""
    with model._inputs_as_given():
        pass


def check_likelihood(likelihood: GaussianLikelihood | None) -> None:
    """Refuse other likelihoods; None is allowed.

    Raises:
        TypeError: It is not a GaussianLikelihood.
    """
    if likelihood is not None and type(likelihood) is not GaussianLikelihood:
        raise TypeError(
            f"likelihood must be a GaussianLikelihood, got {type(likelihood).__name__}."
        )


class PartsGP(ExactGP):
    """An exact GP made of parts."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel, mean: Mean, likelihood: Likelihood):
        super().__init__(x, y, likelihood)
        self.covar_module, self.mean_module = kernel, mean

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at inputs ``... x n x d``."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def make_likelihood(batch_shape: torch.Size) -> GaussianLikelihood:
    """Gaussian likelihood with a weak prior on the noise and a floor below it."""
    return GaussianLikelihood(
        noise_prior=log_normal_prior(0.01, 2.0),
        noise_constraint=GreaterThan(_NOISE_FLOOR, initial_value=0.01),
        batch_shape=batch_shape,
    )


class PriorOfCalls:
    """Refuses BoTorch's ``loo_cv`` where the prior of ``forward`` leaves out a part of variances.

    That takes the prior from ``forward``, past ``__call__``, and inverts its covariance. What
    features at inducing points leave out of a kernel is no part of it, so that its standard
    deviations would be too small: to a half of the right ones.
    """

    _num_calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """As in GPyTorch."""
        with self._within_call():
            return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def get_fantasy_model(self, *args: Any, **kwargs: Any) -> Any:
        """As in GPyTorch."""
        with self._within_call():
            model = super().get_fantasy_model(*args, **kwargs)  # type: ignore[misc]
        model._num_calls = 0  # it is a copy
        return model

    @contextmanager
    def _within_call(self) -> Iterator[None]:
        self._num_calls += 1
        try:
            yield
        finally:
            self._num_calls -= 1

    def _check_called(self: Any) -> None:
        if not self.training and not self._num_calls:
            raise NotImplementedError(
                f"{type(self).__name__} with inducing points has no prior in closed form in eval "
                "mode, on which loo_cv relies: call the model, or predict left-out rows by "
                "botorch.cross_validation.batch_cross_validation."
            )


def prior_covariances(
    values: Callable[[Tensor, Tensor], Tensor], train: Tensor, test: Tensor
) -> tuple[LinearOperator, LinearOperator]:
    """Prior covariances ``... x q x q`` of test points and ``... x q x n`` with those of training.

    An optimiser of acquisition functions asks for small matrices very often: most of what they cost
    is the call of the kernel, so one call gives both. It takes the training inputs once for every
    batch of test points, which for many of them costs more than a second call.

    Args:
        values: A kernel's matrix for two inputs, ``... x N x D`` and ``... x M x D``.
        train: Training inputs ``... x n x D``.
        test: Test points ``... x q x D``.
    """
    batch_shape = torch.broadcast_shapes(train.shape[:-2], test.shape[:-2])
    if batch_shape.numel() * train.shape[-2:].numel() > _JOINED_ENTRIES:
        matrices = values(test, test), values(test, train)
    else:
        inputs = torch.cat([x.expand(*batch_shape, *x.shape[-2:]) for x in (train, test)], -2)
        num_train = train.size(-2)
        both = values(inputs[..., num_train:, :], inputs)
        matrices = both[..., num_train:], both[..., :num_train]
    return to_linear_operator(matrices[0]), to_linear_operator(matrices[1])


class ChunkedPredictions:
    """Predictions at any number of points, for models that are fast without covariances."""

    def _chunk_width(self) -> int:
        """How many numbers the prediction at one point takes."""
        raise NotImplementedError

    @torch.no_grad()
    def predict(
        self: Any, X: Tensor, *, observation_noise: bool = False, chunk_size: int | None = None
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
        if chunk_size is None:
            chunk_size = max(1, _CHUNK_ENTRIES // self._chunk_width())
        check_counts(1, chunk_size=chunk_size)
        self.eval()
        self._check_points(X)
        means, variances = [], []
        for part in X.split(chunk_size, dim=-2):
            # q x ... x 1 x d, a batch of single points: there are no covariances then
            single = part.movedim(-2, 0).unsqueeze(-2)
            posterior = self.posterior(single, observation_noise=observation_noise)
            means.append(posterior.mean.squeeze(-2).movedim(0, -2))
            variances.append(posterior.variance.squeeze(-2).movedim(0, -2))
        return torch.cat(means, -2), torch.cat(variances, -2)


class OutputSubsets:
    """Models of some outputs, of models whose outputs are the last dimension of their batch."""

    def _subset_kernel(self, kernel: Kernel, idcs: list[int]) -> Kernel:
        """The kernel of some outputs."""
        return index_kernel_batch(kernel, (..., idcs if len(idcs) > 1 else idcs[0]))

    def subset_output(self, idcs: list[int]) -> Any:
        """The model of some of the outputs only.

        Args:
            idcs: Numbers of the outputs, from -m to m - 1.

        Raises:
            ValueError: There are no outputs of these numbers, or none are asked for.
            NotImplementedError: The mean or the likelihood is not of a kind whose parameters are
                known to belong to the outputs.
        """
        model: Any = self
        idcs = normalize_indices(idcs, model._num_outputs) or []
        if not idcs:
            raise ValueError("At least one output is needed, got none.")
        subset_rest = super().subset_output  # type: ignore[misc]
        if model._num_outputs == 1:
            return subset_rest(idcs)
        # the base class knows nothing of kernels in lists: it subsets the rest
        model._subset_batch_dict = _output_dimensions(model)
        kernel, model.covar_module = model.covar_module, None
        try:
            subset = subset_rest(idcs)
        finally:
            model.covar_module = kernel
        subset.covar_module = self._subset_kernel(kernel, idcs)
        if subset._original_train_inputs is not None:  # the base class leaves those of all outputs
            outputs = idcs if len(idcs) > 1 else idcs[0]
            subset._original_train_inputs = subset._original_train_inputs[..., outputs, :, :]
        return subset


def event_dims(part: Module, name: str) -> int | None:
    """Dimensions of a parameter of a mean or likelihood besides its batch; None if unknown."""
    last = name.rpartition(".")[2]
    if isinstance(part, Likelihood):
        return 1 if last == "raw_noise" else None
    known = type(part) in (ConstantMean, LinearMean, ZeroMean)
    return {"raw_constant": 0, "weights": 2, "bias": 1}.get(last) if known else None


def _output_dimensions(model: SingleTaskGP) -> dict[str, int]:
    """The dimension, counted from the last, of the outputs in each parameter that has one."""
    found = {}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        if part not in ("mean_module", "likelihood"):
            continue
        num_dims = event_dims(getattr(model, part), name)
        batch = parameter.shape[: parameter.dim() - (num_dims or 0)]
        if num_dims is None or (batch and batch[-1] != model._num_outputs):
            raise NotImplementedError(
                f"Which of {name} belongs to which output is not known, of the shape "
                f"{tuple(parameter.shape)}."
            )
        if batch:  # otherwise the outputs share it
            found[name] = -1 - num_dims
    return found
