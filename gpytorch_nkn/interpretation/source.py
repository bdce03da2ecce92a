"""Kernels, data and units of models and estimators."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

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

from gpytorch_nkn.fit import check_dense, copy_model, evaluating
from gpytorch_nkn.interpretation.affine import affine_inputs, affine_outcome, raw_inputs
from gpytorch_nkn.interpretation.long_form import LongFormGP, long_form
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.linalg import ExactPosterior

__all__ = [
    "FittedGP",
    "Source",
    "check_one_output",
    "fitted_gp",
    "fitted_processes",
    "is_ensemble",
    "is_estimator",
    "is_series",
    "source_of",
]

_YEAR = 365.2425  # days
_GAUSSIAN = (GaussianLikelihood, FixedNoiseGaussianLikelihood, HadamardGaussianLikelihood)


@dataclass(frozen=True, eq=False)
class Source:
    """Kernel with its inputs ``... x N x D``, and their units if known."""

    kernel: Kernel
    inputs: Tensor | None
    units: Units | None


@dataclass(frozen=True, eq=False)
class FittedGP:
    """Tensors of an exact Gaussian process, in units of its kernel."""

    model: ExactGP
    kernel: Kernel
    inputs: Tensor  # ... x N x D
    targets: Tensor  # ... x N; working targets for a Laplace approximation
    observed: Tensor  # observations ... x N; working targets for counts
    mean: Tensor  # prior mean ... x N
    covariance: Tensor  # prior covariance ... x N x N, without noise
    noise: Tensor  # noise variances ... x N
    units: Units
    estimator: Any = None
    _member: int | None = None  # index of the process in the batch of an ensemble

    @property
    def task_column(self) -> int | None:
        """Task column of a multitask model."""
        return self.model.task_column if isinstance(self.model, LongFormGP) else None

    @property
    def task_means(self) -> dict[str, float]:
        """Means of the targets of each task, in units of the data; empty without tasks."""
        if self.task_column is None:
            return {}
        names = list(self.units.categories[self.task_column].values())
        tasks = self.inputs[:, self.task_column].long()
        y = self.units.y_offset + self.units.y_scale * self.targets
        return {names[task]: float(y[tasks == task].mean()) for task in tasks.unique().tolist()}

    @property
    def row_weights(self) -> Tensor:
        """Weights ``... x N`` of mean one: equal, or for counts proportional to precisions."""
        if not hasattr(self._observations, "dispersion"):
            return torch.ones_like(self.noise)
        return 1 / self.noise / (1 / self.noise).mean(-1, keepdim=True)

    @property
    def new_noise(self) -> float:
        """Noise variance of a new observation; 0 for counts, whose rate is the process."""
        likelihood = self._observations
        if likelihood is None:
            return float(self.noise.mean())
        if not hasattr(likelihood, "deg_free"):
            return 0.0
        return likelihood.noise.item() / (1 - 2 / likelihood.deg_free.item())

    @property
    def _observations(self) -> Any:
        """Non-Gaussian likelihood of an estimator's process; None if it is Gaussian."""
        return getattr(self.model, "observations", None)

    def by_task(self, values: Tensor) -> Tensor:
        """Replace values ``... x N`` by their weighted means over the rows of the same task."""
        if self.task_column is None:
            return (values * self.row_weights).mean(-1, keepdim=True).expand_as(values)
        tasks = self.inputs[:, self.task_column].long()
        one_hot = torch.nn.functional.one_hot(tasks).to(values)
        return (values @ one_hot / one_hot.sum(0).clamp_min(1))[..., tasks]

    @cached_property
    def posterior(self) -> ExactPosterior:
        """Posterior of the process, with the prior mean subtracted."""
        noisy = self.covariance + torch.diag_embed(self.noise)
        return ExactPosterior(noisy, self.targets - self.mean)

    def to_inputs(self, x: Any) -> Tensor:
        """Return inputs ``... x M x D`` of the kernel for inputs in the user's units.

        Inputs of a series with covariates are a pair (time, covariates), or an array of both.
        """
        return _kernel_inputs(self.model, self.estimator, x, self.inputs, self.units)

    @property
    def is_series(self) -> bool:
        """Whether the first column is time, and the others are covariates."""
        return self.inputs.size(-1) == 1 or is_series(self.estimator)

    @property
    def time(self) -> Tensor:
        """The first column ``... x N x 1`` of the training inputs."""
        return self.inputs[..., :1]

    @property
    def time_scale(self) -> float:
        """Units of the user's time (days for dates) per unit of the kernel's first column."""
        days = self.units.to_dates is not None
        return float(self.estimator.x_scale_ if days else self.units.x_scale[0])

    def time_span(self, horizon: Any) -> float:
        """Convert a duration, or a number in the user's units of time, to units of the kernel."""
        if isinstance(horizon, np.timedelta64 | timedelta):  # includes pandas' Timedelta
            axis = getattr(self.estimator, "time_axis_", None)
            if not (0 in self.units.first_dates or getattr(axis, "in_days", False)):
                raise TypeError(f"horizon must be a number like the times, got {horizon}.")
            horizon = np.timedelta64(horizon) / np.timedelta64(1, "D")
        if not 0 <= float(horizon) < np.inf:
            raise ValueError(f"horizon must be finite and not negative, got {horizon}.")
        return float(horizon) / self.time_scale

    def to_times(self, values: np.ndarray) -> np.ndarray:
        """Return times or dates ``M`` in the user's units for values of the first column."""
        units = self.units
        if not units.affine:
            raise ValueError(
                "The input transform must be affine for inputs in the user's units, got another "
                "transform: pass x to posterior() instead."
            )
        return units.dates(0, units.x_offset[0] + units.x_scale[0] * values)

    def prior_mean(self, inputs: Tensor) -> Tensor:
        """Return the prior mean ``... x M`` at inputs of the kernel."""
        with evaluating(self.model), torch.no_grad():
            mean = self.model.forward(inputs).mean.detach()
        return mean if self._member is None else mean[self._member]

    def on_common_scale(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return means ``...`` on the members' common scale, and factors of standard deviations."""
        convert = getattr(self.model, "on_common_scale", None)
        if self._member is None or convert is None:
            return mean, torch.ones_like(mean)
        return convert(self._member, mean)

    def in_data_units(self, mean: Tensor, std: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Convert means, minus the prior mean, and standard deviations ``N`` to data units."""
        mean, factor = self.on_common_scale(self.mean + mean.to(self.mean))
        offset, scale = float(self.units.y_offset), float(self.units.y_scale)
        mean, std = mean.double().cpu(), factor.double().cpu() * std.double().cpu()
        return offset + scale * mean.numpy(), abs(scale) * std.numpy()


def source_of(model: Any, x: Any = None) -> Source:
    """Return the kernel of a model or estimator, and inputs to average over."""
    if isinstance(model, Kernel):
        like = next(model.parameters(), torch.zeros(1, dtype=torch.float64))
        return Source(model, None if x is None else _as_inputs(x, like), None)
    estimator, model = _unwrap(model)
    with evaluating(model), torch.no_grad():
        kernel, inputs = _kernel_of(model), model.train_inputs[0].detach()
        units = _units_of(estimator, model, with_outcomes=False)
        if x is not None:
            inputs = _kernel_inputs(model, estimator, x, inputs, units)
        return Source(kernel, inputs, units)


def fitted_gp(model: Any) -> FittedGP:
    """Return the tensors of a fitted exact Gaussian process with a Gaussian likelihood."""
    if isinstance(model, Kernel):
        raise TypeError(
            "A kernel alone has no posterior: expected an ExactGP, the result of a trainer, or an "
            f"estimator, got {type(model).__name__}."
        )
    estimator, model = _unwrap(model)
    if hasattr(estimator, "linearised"):
        raise TypeError(
            f"A {type(estimator).__name__} has a process for each class: use effects or report."
        )
    if not isinstance(model.likelihood, _GAUSSIAN):
        raise TypeError(
            "The likelihood must be Gaussian, because components add up only then, got "
            f"{type(model.likelihood).__name__}."
        )
    if getattr(getattr(model, "covar_module", None), "has_residual", False):
        raise TypeError(
            f"The model must be an exact GP, got {type(model).__name__} with inducing points: "
            "fit an NKNSingleTaskGP to a subset of the rows."
        )
    transform = getattr(model, "outcome_transform", None)
    if getattr(model, "common_transform", transform) is not transform:
        raise NotImplementedError(
            f"The members of this {type(model).__name__} have different outcome scales, so their "
            "components do not add up; use effects(model) or report_search(model), which describe "
            "the mixture."
        )
    # copies, so that a result does not change with the model
    model, estimator = copy_model(model).eval(), copy(estimator)
    with torch.no_grad():
        kernel, inputs, targets = _kernel_of(model), model.train_inputs[0], model.train_targets
        if not bool(targets.isfinite().all()):
            raise ValueError("The training targets must be finite, got NaN or infinite values.")
        inputs, targets = inputs.detach(), targets.detach()
        advice = "fit the model to a sample of the rows"
        check_dense("A description of a model", targets.size(-1), targets, advice)
        prior = model.forward(inputs)
        # detached, because views of parameters require gradients even under no_grad
        mean, covariance = prior.mean.detach(), prior.lazy_covariance_matrix.to_dense()
        kernel_matrix = kernel(inputs).to_dense()
        scale = covariance.diagonal(dim1=-1, dim2=-2).mean()
        if not torch.allclose(kernel_matrix, covariance, rtol=1e-4, atol=1e-5 * float(scale)):
            raise ValueError(
                "The model's forward must return the covariance of its covar_module, got another "
                "covariance."
            )
        noise = (model if isinstance(model, LongFormGP) else model.likelihood).noise.detach()
        units = _units_of(estimator, model)
        noise = noise.expand(targets.shape)
        observed = getattr(model, "observed", None)
        observed = targets if observed is None else observed
        tensors = inputs, targets, observed, mean, covariance, noise
        return FittedGP(model, kernel, *tensors, units, estimator)


def class_units(model: Any, label: Any) -> tuple[Units | None, int]:
    """Return units of a fitted classifier and the index of a class; None for regression."""
    if not hasattr(model, "linearised"):
        if label is not None:
            raise ValueError(
                f"label is the class of a classifier, got {label!r} for {type(model).__name__}: "
                "leave it out."
            )
        return None, 0
    estimator, gp = _unwrap(model)
    units, classes = _units_of(estimator, gp), model.classes_.tolist()
    if label is None and len(classes) == 2:
        label = classes[1]
    if label not in classes:
        raise ValueError(f"label must be one of the classes {classes}, got {label!r}.")
    return replace(units, label=str(label)), classes.index(label)


def fitted_processes(model: Any) -> list[tuple[float, FittedGP]]:
    """Return the processes of a mixture, with weights that sum to one.

    For BoTorch's ensembles, equal members become one process.
    """
    unwrapped = getattr(model, "model", model)  # a trainer's result has the attribute
    if not is_ensemble(unwrapped):
        return [(1.0, fitted_gp(model))]
    _, model = _unwrap(unwrapped)
    with evaluating(model), torch.no_grad():
        kernel, units = _kernel_of(model), _units_of(None, model)
        inputs, targets = model.train_inputs[0].detach(), model.train_targets.detach()
        if targets.dim() != 2 or inputs.dim() > 3:
            raise NotImplementedError(
                "Expected an ensemble of one data set, members x N targets, got targets of shape "
                f"{tuple(targets.shape)} and inputs of shape {tuple(inputs.shape)}."
            )
        number = len(targets)
        # BoTorch repeats the outcome scale for each member
        scale, offset = (float(np.ravel(v)[0]) for v in (units.y_scale, units.y_offset))
        units = replace(units, y_scale=scale, y_offset=offset)
        inputs = inputs.expand(number, *inputs.shape[-2:])
        mean = model.forward(inputs).mean.detach()
        noise = model.likelihood.noise.detach().expand(targets.shape)
        alike = getattr(kernel, "members", torch.arange(number)).tolist()  # members' structures
        processes: list[tuple[float, FittedGP]] = []
        for k in sorted(map(alike.index, set(alike))):
            covariance = kernel[k](inputs[k]).to_dense().detach()
            member = FittedGP(
                model, kernel[k], inputs[k], targets[k], targets[k], mean[k], covariance, noise[k],
                units, _member=k,
            )  # fmt: skip
            processes.append((alike.count(alike[k]) / number, member))
        return processes


def check_one_output(gp: FittedGP, name: str) -> None:
    """Raise NotImplementedError for a batch of processes."""
    shape = tuple(gp.targets.shape)
    if len(shape) > 1 and is_ensemble(gp.model):
        raise NotImplementedError(
            f"{name} needs a single process, got an ensemble of {shape[0]}: use report_search or "
            "effects."
        )
    if len(shape) > 1 or gp.inputs.dim() > 2 or gp.kernel.batch_shape:
        raise NotImplementedError(
            f"{name} needs a model with one output, got targets of shape {shape}: use "
            "subset_output of a BoTorch model."
        )


def is_ensemble(model: Any) -> bool:
    """Return whether BoTorch averages over the model's batch."""
    return isinstance(model, ExactGP) and bool(getattr(model, "_is_ensemble", False))


def _unwrap(model: Any) -> tuple[Any, ExactGP]:
    """Return the estimator, if any, and its model, in long form for multitask models."""
    original, estimator = model, None
    model = getattr(model, "model", model)  # a trainer's result has the attribute
    if is_estimator(original):
        if hasattr(original, "estimators_"):
            raise TypeError(
                f"Expected a model of one output, got {type(original).__name__} with "
                f"{len(original.estimators_)} target columns: use regressor.estimators_[k]."
            )
        estimator, model = original, getattr(original, "model_", None)
        if model is None:
            raise ValueError(f"This {type(original).__name__} is not fitted yet.")
    if not isinstance(model, ExactGP):
        raise TypeError(
            "Expected a kernel, an ExactGP, the result of a trainer, or an estimator, got "
            f"{type(original).__name__}."
        )
    if model.train_inputs is None or model.train_targets is None:
        raise ValueError("The model has no training data.")
    model = long_form(model)
    if len(model.train_inputs) != 1:
        raise ValueError(
            "Expected train_inputs of one tensor, or of inputs and an integer index of the task, "
            f"got {len(model.train_inputs)} tensors."
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
        raise ValueError("x must be finite, got NaN or infinite values.")
    return inputs.detach()


def _kernel_inputs(model: ExactGP, estimator: Any, x: Any, like: Tensor, units: Units) -> Tensor:
    """Return inputs ``... x M x D`` of the kernel, with dtype and device of ``like``."""
    columns = like.size(-1)
    if estimator is None:
        with evaluating(model):
            transform = getattr(model, "input_transform", None)
            inputs = _as_inputs(x, like, columns)
            # as for training inputs; otherwise InputPerturbation would multiply the points
            return inputs if transform is None else transform.preprocess_transform(inputs)
    # arrays of the used columns, such as effects() passes
    is_time = columns == 1 and is_series(estimator)
    if not is_time and isinstance(x, np.ndarray | Tensor) and x.shape[-1] == columns:
        rows = _as_inputs(x, like.double(), columns)
        offset, scale = (torch.as_tensor(v).to(rows) for v in (units.x_offset, units.x_scale))
        return ((rows - offset) / scale).to(like)
    if not is_series(estimator):
        return torch.as_tensor(estimator.standardised_inputs(x)).to(like)
    if columns == 1:
        return torch.as_tensor(estimator.standardised_time(x)).to(like).unsqueeze(-1)
    if isinstance(x, tuple) and len(x) == 2:
        return torch.as_tensor(estimator.standardised_rows(*x)).to(like)
    raise TypeError(
        f"Inputs of a series with covariates are a pair (time, covariates), got {type(x).__name__}."
    )


def is_estimator(model: Any) -> bool:
    """Return whether a model is an estimator, with a Gaussian process in ``model_``."""
    return hasattr(model, "structure") and hasattr(model, "fit")


def is_series(estimator: Any) -> bool:
    """Return whether an estimator, or None, is of a series."""
    return estimator is not None and not hasattr(estimator, "standardised_inputs")


def _units_of(estimator: Any, model: ExactGP, *, with_outcomes: bool = True) -> Units:
    if isinstance(model, LongFormGP):
        return model.units
    assert model.train_inputs is not None
    if estimator is None:
        input_dim = model.train_inputs[0].size(-1)
        x_offset, x_scale, affine = affine_inputs(model, input_dim)
        y_offset, y_scale = affine_outcome(model) if with_outcomes else (0.0, 1.0)
        # a model contains the codes of categories, not their names
        codes = {
            column: {c: f"{c:.10g}" for c in raw_inputs(model)[..., column].unique().tolist()}
            for column in getattr(model, "cat_dims", ())
        }
        names = Units.plain(input_dim).names
        return Units(x_offset, x_scale, y_offset, y_scale, names, affine=affine, categories=codes)
    y_offset, y_scale = (
        float(getattr(estimator, n, v)) for n, v in (("y_offset_", 0), ("y_scale_", 1))
    )
    name = "transform_" if is_series(estimator) else "y_transform_"
    link = getattr(estimator, name, None)
    link = None if link is None or link.is_identity else link
    if not is_series(estimator):
        categories, names = getattr(estimator, "categories_", {}), estimator.columns_
        codes = {n: dict(enumerate(categories[c])) for n, c in enumerate(names) if c in categories}
        x_offset, x_scale = estimator.x_offset_, estimator.x_scale_
        first = getattr(estimator, "first_dates_", {})
        first = {n: first[c] for n, c in enumerate(names) if c in first}
        named: dict[str, Any] = {"categories": codes, "first_dates": first}
        if len(names) == 1 and first:
            named["x_unit"] = "days"  # a series over a column of dates
        if hasattr(getattr(model, "observations", None), "dispersion"):
            named["targets"] = "the rate"
        return Units(x_offset, x_scale, y_offset, y_scale, names, link=link, **named)
    unit, days = "", 1.0  # estimators convert dates to days
    covariates, dated = estimator.covariates_, bool(getattr(estimator, "time_is_date_", False))
    if dated:
        span = float(np.ptp(model.train_inputs[0][:, 0].cpu().numpy())) * estimator.x_scale_
        unit, days = ("yr", _YEAR) if span > 2 * _YEAR else ("days", 1.0)
    return Units(
        np.array([estimator.x_offset_ / days, *covariates.offset[covariates.used]]),
        np.array([estimator.x_scale_ / days, *covariates.scale[covariates.used]]),
        y_offset,
        y_scale,
        ("time", *covariates.names),
        x_unit=unit,
        link=link,
        to_dates=estimator.original_time if dated else None,
    )
