"""What there is to read in a kernel, a model or an estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    HadamardGaussianLikelihood,
)
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.fit import evaluating
from gpytorch_nkn.interpretation.affine import affine_inputs, affine_outcome, raw_inputs
from gpytorch_nkn.interpretation.long_form import LongFormGP, long_form
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.linalg import ExactPosterior

__all__ = [
    "FittedGP",
    "NetworkEstimator",
    "Source",
    "TableEstimator",
    "check_fit",
    "fitted_gp",
    "fitted_members",
    "source_of",
]

_YEAR = 365.2425  # days
_GAUSSIAN = (GaussianLikelihood, FixedNoiseGaussianLikelihood, HadamardGaussianLikelihood)


@runtime_checkable
class NetworkEstimator(Protocol):
    """An estimator whose Gaussian process, ``model_``, is read in the units of its data."""

    structure: Any

    def fit(self, X: Any, y: Any, /) -> Any: ...


@runtime_checkable
class TableEstimator(NetworkEstimator, Protocol):
    """One over a table of input columns, which are named in ``columns_``."""

    def standardised_inputs(self, X: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class Source:
    """A kernel, the inputs ``... x N x D`` over which it is read, and their units, if known."""

    kernel: Kernel
    inputs: Tensor | None
    units: Units | None


@dataclass(frozen=True, eq=False)
class FittedGP:
    """An exact Gaussian process as plain numbers, in the units of its kernel."""

    model: ExactGP
    kernel: Kernel
    inputs: Tensor  # ... x N x D
    targets: Tensor  # ... x N
    mean: Tensor  # prior mean ... x N
    covariance: Tensor  # prior covariance ... x N x N, without noise
    noise: Tensor  # variances ... x N
    units: Units
    _estimator: Any

    @property
    def weight(self) -> float:
        """Weight of the process in what its estimator predicts; below 1 where several are mixed."""
        return float(getattr(self._estimator, "model_weight_", 1.0))

    @property
    def spread(self) -> float:
        """Factor of the standard deviations of what its estimator forecasts."""
        return float(getattr(self._estimator, "model_spread_", 1.0))

    @property
    def num_observed(self) -> int:
        """Targets that its estimator counts; a long series is read from the last of them."""
        observed = getattr(self._estimator, "observed_", ())
        return len(observed) - len(getattr(self._estimator, "outliers_", ()))

    @cached_property
    def posterior(self) -> ExactPosterior:
        """Of the process less its prior mean: one factorisation, which serves all components."""
        noisy = self.covariance + torch.diag_embed(self.noise)
        return ExactPosterior(noisy, self.targets - self.mean)

    def to_inputs(self, x: Any) -> Tensor:
        """Inputs ``... x M x D`` of the kernel for inputs in the user's units.

        A series with covariates takes a pair (time, covariates), or an array of both.
        """
        columns = self.inputs.size(-1)
        if _is_series(self._estimator) and columns > 1 and isinstance(x, np.ndarray):
            rows = _as_inputs(x, self.inputs.double(), columns)
            offset, scale = map(torch.as_tensor, (self.units.x_offset, self.units.x_scale))
            return ((rows - offset.to(rows)) / scale.to(rows)).to(self.inputs)
        if self._estimator is not None:
            return _standardised(self._estimator, x, self.inputs)
        with evaluating(self.model):
            return _transformed(self.model, _as_inputs(x, self.inputs, self.inputs.size(-1)))

    @property
    def is_series(self) -> bool:
        """Whether the first column is time, and others, if there are some, are covariates."""
        return self.inputs.size(-1) == 1 or _is_series(self._estimator)

    @property
    def time(self) -> Tensor:
        """The first column ``... x N x 1`` of the training inputs."""
        return self.inputs[..., :1]

    @property
    def time_scale(self) -> float:
        """Units of the user's time (days for dates) per unit of the kernel's first column."""
        days = _counts_days(self._estimator)
        return float(self._estimator.x_scale_ if days else self.units.x_scale[0])

    def time_span(self, horizon: Any) -> float:
        """A length of time in units of the kernel: a number, or a duration for dates."""
        if isinstance(horizon, np.timedelta64 | timedelta):  # pandas' Timedelta is one, too
            horizon = np.timedelta64(horizon) / np.timedelta64(1, "D")
        if not 0 <= float(horizon) < np.inf:
            raise ValueError(f"horizon must be finite and not negative, got {horizon}.")
        return float(horizon) / self.time_scale

    def to_times(self, values: np.ndarray) -> np.ndarray:
        """The user's times ``M``, dates where they were, of values ``M`` of the first column."""
        if not self.units.affine:
            raise ValueError(
                "The input transform is not affine: places of the model's inputs are not those of "
                "the data. Pass x to posterior() instead."
            )
        if not _counts_days(self._estimator):
            return self.units.x_offset[0] + self.units.x_scale[0] * values
        return self._estimator.original_time(values)

    def prior_mean(self, inputs: Tensor) -> Tensor:
        """Prior mean ``... x M`` at inputs of the kernel."""
        with evaluating(self.model), torch.no_grad():
            return self.model.forward(inputs).mean.detach()

    def on_common_scale(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior means ``...`` on the scale of ``units``, and factors of deviations there."""
        return mean, torch.ones_like(mean)


@dataclass(frozen=True, eq=False)
class _FittedMember(FittedGP):
    """A member of an ensemble of exact Gaussian processes, by its place in the batch."""

    _place: int

    def prior_mean(self, inputs: Tensor) -> Tensor:
        return super().prior_mean(inputs)[self._place]

    def on_common_scale(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        own = getattr(self.model, "on_common_scale", None)
        return super().on_common_scale(mean) if own is None else own(self._place, mean)


def source_of(thing: Any, x: Any = None) -> Source:
    """What to expand: a kernel, that of a model or an estimator."""
    if isinstance(thing, Kernel):
        inputs = None
        if x is not None:
            like = next(thing.parameters(), torch.zeros(1, dtype=torch.float64))
            inputs = _as_inputs(x, like)
        return Source(thing, inputs, None)
    estimator, model = _unwrap(thing)
    with evaluating(model), torch.no_grad():
        kernel, inputs = _kernel_of(model), model.train_inputs[0].detach()
        if x is not None and estimator is not None:
            inputs = _standardised(estimator, x, inputs)
        elif x is not None:
            inputs = _transformed(model, _as_inputs(x, inputs, inputs.size(-1)))
        return Source(kernel, inputs, _units_of(estimator, model))


def fitted_gp(thing: Any) -> FittedGP:
    """The numbers of a fitted exact Gaussian process with a Gaussian likelihood."""
    if isinstance(thing, Kernel):
        raise TypeError(
            "A kernel alone has no posterior: expected an ExactGP, the record of a fit, or an "
            f"estimator, got {type(thing).__name__}."
        )
    estimator, model = _unwrap(thing)
    if not isinstance(model.likelihood, _GAUSSIAN):
        raise TypeError(
            "The posterior splits into components under a Gaussian likelihood, got "
            f"{type(model.likelihood).__name__}."
        )
    transform = getattr(model, "outcome_transform", None)
    if getattr(model, "common_transform", transform) is not transform:
        raise NotImplementedError(
            f"The members of this {type(model).__name__} have outcomes on scales of their own, "
            "where components add up for each member only; effects(model) and "
            "report_search(model) read all of them."
        )
    with evaluating(model), torch.no_grad():
        kernel, inputs, targets = _kernel_of(model), model.train_inputs[0], model.train_targets
        if not bool(targets.isfinite().all()):
            raise ValueError("The training targets contain NaN or infinite values.")
        inputs, targets = inputs.detach(), targets.detach()
        prior = model.forward(inputs)
        # views of parameters ask for gradients even here
        mean, covariance = prior.mean.detach(), prior.lazy_covariance_matrix.to_dense()
        own = kernel(inputs).to_dense()
        scale = covariance.diagonal(dim1=-1, dim2=-2).mean()
        if not torch.allclose(own, covariance, rtol=1e-4, atol=1e-5 * float(scale)):
            raise ValueError(
                "The covariance of the model's forward is not that of its covar_module, which "
                "alone can be expanded."
            )
        noise = (model if isinstance(model, LongFormGP) else model.likelihood).noise.detach()
        return FittedGP(
            model, kernel, inputs, targets, mean, covariance, noise.expand(targets.shape),
            _units_of(estimator, model), estimator,
        )  # fmt: skip


def fitted_members(model: ExactGP) -> list[tuple[float, FittedGP]]:
    """The members of one of BoTorch's ensembles with their weights, those alike taken together."""
    _unwrap(model)
    with evaluating(model), torch.no_grad():
        kernel, units = _kernel_of(model), _units_of(None, model)
        assert model.train_inputs is not None
        inputs, targets = model.train_inputs[0].detach(), model.train_targets.detach()
        if targets.dim() != 2 or inputs.dim() > 3:
            raise NotImplementedError(
                "Expected an ensemble of one data set, members x N targets, got targets of shape "
                f"{tuple(targets.shape)} and inputs of shape {tuple(inputs.shape)}."
            )
        number = len(targets)
        # BoTorch repeats the scale of the targets for each member
        scale, offset = (float(np.ravel(v)[0]) for v in (units.y_scale, units.y_offset))
        units = replace(units, y_scale=scale, y_offset=offset)
        inputs = inputs.expand(number, *inputs.shape[-2:])
        mean = model.forward(inputs).mean.detach()
        noise = model.likelihood.noise.detach().expand(targets.shape)
        alike = getattr(kernel, "members", torch.arange(number)).tolist()  # of structures
        found: list[tuple[float, FittedGP]] = []
        for place in sorted(map(alike.index, set(alike))):
            one = kernel[place]
            covariance = one(inputs[place]).to_dense().detach()
            member = _FittedMember(
                model, one, inputs[place], targets[place], mean[place], covariance, noise[place],
                units, None, place,
            )  # fmt: skip
            found.append((alike.count(alike[place]) / number, member))
        return found


def is_ensemble(model: Any) -> bool:
    """Whether BoTorch averages over the model's batch."""
    return isinstance(model, ExactGP) and bool(getattr(model, "_is_ensemble", False))


def fitted_processes(thing: Any) -> list[tuple[float, FittedGP]]:
    """The processes that predict together, with weights of sum one: often a single one."""
    return fitted_members(thing) if is_ensemble(thing) else [(1.0, fitted_gp(thing))]


def check_fit(kernel: Kernel, inputs: Tensor) -> None:
    """Raise ValueError if a kernel does not take such inputs, or has several outputs."""
    try:
        diagonal = kernel(inputs[..., :1, :], diag=True)
    except (IndexError, RuntimeError) as error:
        raise ValueError(
            f"The kernel does not take inputs with {inputs.size(-1)} columns: {error}"
        ) from error
    if diagonal.size(-1) != 1:
        raise ValueError(
            "Only kernels with one output per input can be expanded, got a "
            f"{type(kernel).__name__} with {diagonal.size(-1)}."
        )


def _unwrap(thing: Any) -> tuple[Any, ExactGP]:
    estimator = None
    model = getattr(thing, "model", thing)  # the record of a fit
    if isinstance(thing, NetworkEstimator):
        estimator, model = thing, getattr(thing, "model_", None)
        if model is None:
            raise ValueError(f"This {type(thing).__name__} is not fitted yet.")
        if hasattr(thing, "classes_"):
            raise TypeError(
                f"A {type(thing).__name__} has a process for each class, which have no report: "
                "scikit-learn's permutation_importance and PartialDependenceDisplay take it."
            )
    if not isinstance(model, ExactGP):
        raise TypeError(
            "Expected a gpytorch kernel, an ExactGP, the record of a fit, or an estimator, got "
            f"{type(thing).__name__}."
        )
    if model.train_inputs is None or model.train_targets is None:
        raise ValueError("The model has no training data.")
    model = long_form(model)
    if len(model.train_inputs) != 1:
        raise ValueError(
            "Expected one tensor of inputs, or one of inputs and an integer index of the task, got "
            f"{len(model.train_inputs)}."
        )
    return estimator, model


def _kernel_of(model: ExactGP) -> Kernel:
    kernel = getattr(model, "covar_module", None)
    if not isinstance(kernel, Kernel):
        raise TypeError(f"Expected a model with a covar_module, got {type(model).__name__}.")
    return kernel


def _as_inputs(x: Any, like: Tensor, width: int | None = None) -> Tensor:
    inputs = torch.as_tensor(x, dtype=like.dtype, device=like.device)
    inputs = inputs.unsqueeze(-1) if inputs.dim() == 1 else inputs
    if inputs.dim() < 2 or inputs.size(-2) == 0 or width not in (None, inputs.size(-1)):
        columns = "D" if width is None else width
        raise ValueError(f"x must be ... x N x {columns}, got shape {tuple(inputs.shape)}.")
    if not bool(inputs.isfinite().all()):
        raise ValueError("x contains NaN or infinite values.")
    return inputs.detach()


def _transformed(model: ExactGP, x: Tensor) -> Tensor:
    transform = getattr(model, "transform_inputs", None)
    return x if transform is None else transform(x)


def _standardised(estimator: Any, x: Any, like: Tensor) -> Tensor:
    """Inputs of an estimator's model for what its ``predict`` takes.

    Those of a table may also be arrays ``... x M x d`` of the columns in use only.
    """
    table = isinstance(estimator, TableEstimator)
    if table:
        plain = isinstance(x, np.ndarray | Tensor)
        if not plain or x.shape[-1:] != like.shape[-1:]:
            return torch.as_tensor(estimator.standardised_inputs(x)).to(like)
        x = torch.as_tensor(x, dtype=torch.float64)
        if x.dim() < 2 or not bool(x.isfinite().all()):
            raise ValueError(f"x must be a finite ... x M x D array, got shape {tuple(x.shape)}.")
        offset, scale = map(torch.as_tensor, (estimator.x_offset_, estimator.x_scale_))
        return ((x - offset) / scale).to(like)
    if like.size(-1) == 1:
        return torch.as_tensor(estimator.standardised_time(x)).to(like).unsqueeze(-1)
    if isinstance(x, tuple) and len(x) == 2:
        return torch.as_tensor(estimator.standardised_rows(*x)).to(like)
    raise TypeError(
        f"Inputs of a series with covariates are a pair (time, covariates), got {type(x).__name__}."
    )


def _is_series(estimator: Any) -> bool:
    return estimator is not None and not isinstance(estimator, TableEstimator)


def _counts_days(estimator: Any) -> bool:
    """Whether the numbers of an estimator are days since 1970, and its units may be years."""
    return bool(getattr(estimator, "time_is_date_", False))


def _link(estimator: Any) -> Any:
    name = "transform_" if _is_series(estimator) else "y_transform_"
    transform = getattr(estimator, name, None)
    return None if transform is None or transform.is_identity else transform


def _units_of(estimator: Any, model: ExactGP) -> Units:
    if isinstance(model, LongFormGP):
        return model.units
    if estimator is None:
        assert model.train_inputs is not None
        input_dim = model.train_inputs[0].size(-1)
        names = Units.plain(input_dim).names
        x_offset, x_scale, affine = affine_inputs(model, input_dim)
        y_offset, y_scale = affine_outcome(model)
        codes = {column: _codes(model, column) for column in getattr(model, "cat_dims", ())}
        return Units(x_offset, x_scale, y_offset, y_scale, names, affine=affine, categories=codes)
    y_offset, y_scale = float(estimator.y_offset_), float(estimator.y_scale_)
    is_table = isinstance(estimator, TableEstimator)
    if is_table:
        known = getattr(estimator, "categories_", {})
        return Units(
            estimator.x_offset_,
            estimator.x_scale_,
            y_offset,
            y_scale,
            estimator.columns_,
            link=_link(estimator),
            categories={
                number: dict(enumerate(known[name]))
                for number, name in enumerate(estimator.columns_)
                if name in known
            },
        )
    unit, days = "", 1.0  # dates are counted in days
    beside = estimator.covariates_
    if estimator.time_is_date_:
        assert model.train_inputs is not None
        span = float(np.ptp(model.train_inputs[0][:, 0].cpu().numpy())) * estimator.x_scale_
        unit, days = ("yr", _YEAR) if span > 2 * _YEAR else ("days", 1.0)
    return Units(
        np.array([estimator.x_offset_ / days, *beside.offset[beside.used]]),
        np.array([estimator.x_scale_ / days, *beside.scale[beside.used]]),
        y_offset,
        y_scale,
        ("time", *beside.names),
        x_unit=unit,
        link=_link(estimator),
        to_dates=estimator.original_time if estimator.time_is_date_ else None,
    )


def _codes(model: ExactGP, column: int) -> dict[float, str]:
    """Codes that a column of categories holds, which are all that a model knows of their names."""
    return {code: f"{code:.10g}" for code in raw_inputs(model)[..., column].unique().tolist()}
