"""Report on a Bayesian optimisation: progress, posterior, next points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import InputPerturbation
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn import plotting
from gpytorch_nkn.fit import check_counts, check_number, evaluating
from gpytorch_nkn.interpretation.affine import raw_inputs
from gpytorch_nkn.interpretation.averages import Averages
from gpytorch_nkn.interpretation.checks import LeaveOneOut, held_out
from gpytorch_nkn.interpretation.effects import effects_of, positions
from gpytorch_nkn.interpretation.reporting.page import (
    PANEL,
    Block,
    Findings,
    Sketch,
    literal,
    render,
    render_all,
)
from gpytorch_nkn.interpretation.reporting.words import describe_checks, describe_effects
from gpytorch_nkn.interpretation.source import check_one_output, fitted_processes
from gpytorch_nkn.interpretation.units import (
    Z95,
    Units,
    expectation,
    listed,
    percent,
    rounded,
    three_digits,
)

__all__ = ["SearchReport", "report_search"]

_GRID = 101  # points of a slice
_SLICES = 6
_MAX_NAMED = 6  # largest number of written columns of a point
_CANDIDATES = 4  # largest number of written next points
_LAST_DIGIT = 1e-8  # last printed digit of a value, relative to differences of values


@dataclass(frozen=True, eq=False)
class SearchSlice:
    """Posterior and acquisition function along one column, in the user's units."""

    name: str  #: of the column
    column: int
    grid: np.ndarray  #: positions A; codes of categories
    levels: tuple[str, ...] | None  #: names A of the codes; None for numbers
    mean: np.ndarray  #: A, of the function
    lower: np.ndarray  #: ends A of the 95 % interval of a normal distribution
    upper: np.ndarray
    acquisition: np.ndarray | None  #: A; log acquisitions as fractions of the largest
    best: float  #: position of the best point so far
    best_mean: float  #: posterior mean there; off the line if other columns differ
    candidates: np.ndarray  #: positions Q of the next points
    candidate_means: np.ndarray  #: Q


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SearchReport(Findings):
    """State of a search, see :func:`gpytorch_nkn.interpretation.report_search`."""

    outcome: str  #: name of the values
    values: np.ndarray  #: evaluations N
    maximize: bool
    num_initial: int  #: evaluations that the model did not choose
    best: int  #: index of the best evaluation, among the feasible ones if there are any
    feasible: np.ndarray  #: whether each of N evaluations satisfies the constraints
    candidates: np.ndarray  #: next points Q x D
    structures: dict[str, float]  #: weights of the structures that the model averages
    ahead: LeaveOneOut
    slices: tuple[SearchSlice, ...]  #: through the first candidate, or else the best point

    def blocks(self) -> list[Block]:
        """Return the parts of the report in their order."""
        names = "maximize", "num_initial", "feasible"
        options = {name: getattr(self, name) for name in names}
        options["y_label"] = y_label = literal(self.outcome, PANEL)
        progress = Sketch(
            "Values in the order of evaluation, and the best so far",
            lambda ax: plotting.plot_progress(ax, self.values, **options),
        )
        slices = [replace(s, name=literal(s.name, PANEL)) for s in self.slices]
        figure = Sketch(
            "Posterior mean and acquisition function along single columns",
            lambda axes: plotting.plot_acquisition(axes, slices, y_label=y_label),
            panels=len(slices),
        )
        drawn = slices[0].acquisition is not None
        note = render(
            "note_slices", report=self, number=len(self.candidates), has_acquisition=drawn
        )
        return [
            Block("Summary", self.summary, figures=(progress,)),
            Block("Next points", note=note, figures=(figure,), layout="wide"),
            *self.effect_blocks(self.outcome),
            self.checking(num_initial=self.num_initial),
        ]


def report_search(
    model: ExactGP,
    *,
    maximize: bool = True,
    acquisition: Callable[[Tensor], Tensor] | None = None,
    candidates: Tensor | None = None,
    bounds: Tensor | None = None,
    num_initial: int = 0,
    feasible: Tensor | Sequence[bool] | None = None,
    outcome: str = "value",
    columns: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str] | Mapping[float, str]] | None = None,
    y_offset: float = 0.0,
    y_scale: float = 1.0,
    title: str = "Report on the search",
) -> SearchReport:
    """Describe the state of a Bayesian optimisation: best value, posterior, next points, checks.

    Args:
        model: A fitted BoTorch model with one output, an exact GP with a Gaussian likelihood:
            NKNSingleTaskGP, SingleTaskGP, or an ensemble such as StructureEnsembleGP. Its training
            data are the evaluations in their order. For several outcomes, pass one of the models.
        maximize: Whether large values (see ``y_scale``) are better.
        acquisition: Acquisition function of points ``A x 1 x D`` for a figure, in which logarithms
            (``LogExpectedImprovement``) become fractions of the largest value.
        candidates: Next points ``Q x D``.
        bounds: Lower and upper bounds ``2 x D``; default: the range of the points.
        num_initial: Number of initial evaluations that the model did not choose.
        feasible: Whether each evaluation satisfies the constraints, ``N``. Default: all.
        outcome: Name of the values, such as ``"loss"``.
        columns: Names of the input columns ``D``; default: x0, x1, ...
        categories: Names of category codes, by column name: a sequence for the codes 0, 1, ...
            (``{"kernel": ["linear", "rbf"]}``), or a mapping (``{"size": {1.5: "32", 1.8: "64"}}``)
        y_offset, y_scale: For outcomes ``y`` that were standardised outside the model, values are
            ``y_offset + y_scale * y``.
        title: Title of the report.

    Returns:
        Report; ``print`` shows its text, and ``save("search.html")`` writes a page.

    Raises:
        TypeError: The model has another type, its likelihood is not Gaussian, or ``acquisition`` is
            not a function.
        ValueError: A shape or option is wrong, a value is not finite, or there are fewer than 3
            evaluations.
        NotImplementedError: The model has several outputs or a batch of data sets.
    """
    if not isinstance(model, ExactGP) or not hasattr(model, "posterior"):
        raise TypeError(
            "report_search needs a BoTorch model that is an exact GP, got "
            f"{type(model).__name__}; each model of a ModelListGP has a report of its own."
        )
    check_counts(0, num_initial=num_initial)
    if acquisition is not None and (isinstance(acquisition, type) or not callable(acquisition)):
        raise TypeError(f"acquisition must be a function of points A x 1 x D, got {acquisition!r}.")
    y_offset, y_scale = float(y_offset), float(y_scale)
    check_number("y_offset", abs(y_offset), positive=False)
    check_number("y_scale", abs(y_scale), positive=True)
    with evaluating(model), torch.no_grad():
        inputs, processes = raw_inputs(model), fitted_processes(model)
        x = (inputs[0] if inputs.dim() > 2 else inputs).cpu().numpy()
        check_one_output(processes[0][1], "report_search")
        units = processes[0][1].units.named(columns).with_categories(categories, x)
        offset, scale = y_offset + y_scale * float(units.y_offset), y_scale * float(units.y_scale)
        units = replace(units, y_offset=offset, y_scale=scale)
        processes = [(weight, replace(gp, units=units)) for weight, gp in processes]
        values, ahead, loo = held_out(processes)
        if len(values) < 3:
            raise ValueError(f"A report needs at least 3 evaluations, got {len(values)}.")
        is_feasible, _ = plotting.check_progress(values, maximize, num_initial, feasible)
        signed = values if maximize else -values
        best = int(np.where(is_feasible if is_feasible.any() else True, signed, -np.inf).argmax())
        chosen = _points("candidates", candidates, x.shape[1])
        points = np.concatenate([x, chosen])
        ends = _ends(bounds, points)
        influence = None
        if x.shape[1] > 1:
            influence = effects_of(Averages(processes, x), x, units, _SLICES)
        shown = [0] if influence is None else [effect.columns[0] for effect in influence.main]

        def moments(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return _posterior_moments(model, points, y_offset, y_scale)

        mean, std = moments(points)
        lines = _lines(points, len(x) if len(chosen) else best, ends, shown, units)
        slices = [
            SearchSlice(
                name=units.names[k],
                column=k,
                grid=line[:, k],
                levels=units.levels(k, line[:, k]),
                mean=centre,
                lower=centre - Z95 * stds,
                upper=centre + Z95 * stds,
                acquisition=height,
                best=float(x[best, k]),
                best_mean=float(mean[best]),
                candidates=chosen[:, k],
                candidate_means=mean[len(x) :],
            )
            for k, line, (centre, stds), height in zip(
                shown,
                lines,
                map(moments, lines),
                _acquisition_values(model, acquisition, lines),
                strict=True,
            )
        ]
    size = values.size
    total = np.square(size / (size - 1) * (values - values.mean())).sum()
    # the fraction of variance that leave-one-out predictions explain
    skill = float(1 - np.square(values - loo.mean).sum() / total) if total > 0 else math.nan
    z = ahead.z_scores[max(num_initial, 1) :]  # of evaluations that the model chose
    bias = float(z.mean()) if len(z) else 0.0
    chosen_checks = render_all(
        "search_checks",
        inside=int((np.abs(z) <= Z95).sum()),
        number=len(z),
        bias=bias if abs(bias) * len(z) ** 0.5 > Z95 else 0,
        skill=skill,
    )
    report = SearchReport(
        title=title,
        summary=(),
        checks=(*chosen_checks, *describe_checks(loo)),
        x=x,
        effects=influence,
        ahead=ahead,
        held_out=loo,
        outcome=outcome,
        values=values,
        maximize=maximize,
        num_initial=num_initial,
        best=best,
        feasible=is_feasible,
        candidates=chosen,
        structures=dict(getattr(model, "structure_weights", {})),
        slices=tuple(slices),
    )
    trained = bool(getattr(model, "is_trained", True))
    expected = [expectation(*pair) for pair in zip(mean, std, strict=True)]
    return replace(report, summary=tuple(_summary(report, units, expected, trained, skill)))


def _ends(bounds: Any, points: np.ndarray) -> np.ndarray:
    """Return lower and upper bounds ``2 x D``; by default of the points."""
    if bounds is None:
        return np.stack([points.min(0), points.max(0)])
    ends = _points("bounds", bounds, points.shape[1])
    if len(ends) != 2 or not (ends[0] <= ends[1]).all():
        raise ValueError(f"bounds must be lower and upper bounds 2 x D, got {ends.tolist()}.")
    return ends


def _lines(
    points: np.ndarray, through: int, ends: np.ndarray, shown: Sequence[int], units: Units
) -> list[np.ndarray]:
    """Return points ``A x D`` on lines along the shown columns, through one of the points."""
    lines = []
    for k in shown:
        grid = positions(points[:, k], _GRID, ends[:, k])
        if k in units.categories:
            grid = np.union1d(points[:, k], list(units.categories[k]))
        line = np.repeat(points[[through]], len(grid), 0)
        line[:, k] = grid
        lines.append(line)
    return lines


def _summary(
    report: SearchReport, units: Units, expected: list[str], trained: bool, skill: float
) -> list[str]:
    """Return sentences on values, points, the model and effects.

    ``expected`` has the predictions at the evaluations and then at the next points.
    """
    values, initial, dim = report.values, report.num_initial, report.x.shape[1]
    value = values[report.best]
    # an outlier must not hide the differences of other values
    change = 0.1 * float(abs(value - np.median(values)) or np.ptp(values))
    first = None
    if 0 < initial <= report.best:  # otherwise the best value is an initial one
        early = values[:initial][report.feasible[:initial]]
        top = early[(early if report.maximize else -early).argmax()] if early.size else None
        first = "" if top is None else _value_text(top, change)
    shown = [s.column for s in report.slices]
    order = [*shown, *(k for k in range(dim) if k not in shown)]
    next_points = [_point_text(row, order, units) for row in report.candidates[:_CANDIDATES]]
    weights = sorted(report.structures.items(), key=lambda item: -item[1])
    sentences = render_all(
        "search",
        report=report,
        number=len(values),
        value=_value_text(value, change),
        where=_point_text(report.x[report.best], range(dim), units),
        first=first,
        ahead=list(zip(next_points, expected[len(values) :], strict=False)),
        at_best=expected[report.best],
        trained=trained,
        structures=listed([f"{n} ({percent(w)})" for n, w in weights]) if weights else "",
        skill=skill,
    )
    return (
        sentences if report.effects is None else sentences + describe_effects(report.effects, units)
    )


def _points(name: str, raw: Any, dim: int) -> np.ndarray:
    """Return finite points ``Q x D``; no points for None."""
    if raw is None:
        return np.empty((0, dim))
    points = torch.as_tensor(raw).detach().double().cpu().numpy()
    if points.ndim != 2 or points.shape[1] != dim or not np.isfinite(points).all():
        raise ValueError(f"{name} must be finite points Q x {dim}, got shape {points.shape}.")
    return points


def _posterior_moments(
    model: Any, points: np.ndarray, offset: float, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation ``A`` of the function at points ``A x D``."""
    inputs = torch.as_tensor(points).to(model.train_targets).unsqueeze(-2)
    perturbed = [module for module in model.modules() if isinstance(module, InputPerturbation)]
    flags = [module.transform_on_eval for module in perturbed]
    try:
        for module in perturbed:
            module.transform_on_eval = False
        posterior = model.posterior(inputs)
    finally:
        for module, flag in zip(perturbed, flags, strict=True):
            module.transform_on_eval = flag
    mean = getattr(posterior, "mixture_mean", posterior.mean)
    variance = getattr(posterior, "mixture_variance", posterior.variance)
    mean, variance = (moment.reshape(-1).double().cpu().numpy() for moment in (mean, variance))
    return offset + scale * mean, abs(scale) * np.sqrt(variance.clip(0))


def _acquisition_values(model: Any, acquisition: Any, lines: list[np.ndarray]) -> list[Any]:
    """Return the acquisition function ``A`` on lines ``A x D``; None without a function."""
    if acquisition is None:
        return [None] * len(lines)
    heights = []
    for line in lines:
        values = acquisition(torch.as_tensor(line).to(model.train_targets).unsqueeze(-2))
        if values.shape != (len(line),):
            raise ValueError(
                f"acquisition must give one value for each of {len(line)} points, got shape "
                f"{tuple(values.shape)}."
            )
        heights.append(values.double().cpu().numpy())
    if getattr(acquisition, "_log", False):
        highest = max(float(np.nanmax(height, initial=-np.inf)) for height in heights)
        highest = highest if np.isfinite(highest) else 0.0
        with np.errstate(under="ignore"):  # small terms vanish
            heights = [np.exp(height - highest) for height in heights]
    return heights


def _point_text(point: np.ndarray, order: Sequence[int], units: Units) -> str:
    """Return a point's coordinates in the given order."""
    parts = []
    for k in order:
        value, levels = float(point[k]), units.levels(k, point[k : k + 1])
        text = f"{value:.0f}" if value.is_integer() else three_digits(value)
        parts.append(f"{units.names[k]} = {text if levels is None else levels[0]}")
    num_omitted = len(parts) - _MAX_NAMED
    return listed(parts if num_omitted <= 1 else [*parts[:_MAX_NAMED], f"{num_omitted} more"])


def _value_text(value: float, change: float) -> str:
    """Write a value with at least two significant digits."""
    return rounded(value, max(min(change, abs(value)), _LAST_DIGIT * change))
