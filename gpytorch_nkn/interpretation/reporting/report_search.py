"""A report on a Bayesian optimisation: how it went, what its model believes, where it goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn import plotting
from gpytorch_nkn.fit import check_counts, evaluating
from gpytorch_nkn.interpretation.affine import raw_inputs
from gpytorch_nkn.interpretation.checks import LeaveOneOut, one_step_ahead
from gpytorch_nkn.interpretation.components import Z95
from gpytorch_nkn.interpretation.effects import Effect, Effects, effects
from gpytorch_nkn.interpretation.reporting.page import (
    Block,
    Findings,
    calibration_sketch,
    effects_block,
    literal,
    panels,
    say,
    sketch,
)
from gpytorch_nkn.interpretation.reporting.words import describe_effects, describe_left_out
from gpytorch_nkn.interpretation.source import (
    FittedGP,
    fitted_processes,
)
from gpytorch_nkn.interpretation.units import (
    Units,
    expectation,
    listed,
    percent,
    plain,
    rounded,
)
from gpytorch_nkn.linalg import ExactPosterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SearchReport", "SearchSlice", "report_search"]

_GRID = 101  # points of a slice
_SLICES = 6
_NAMED = 6  # columns of a point that are told
_CANDIDATES = 4  # next points that are told
_FEW = 8  # different whole numbers of a column that are taken themselves
_ROUNDING = 1e-4  # of the range of the values
_CHANCE = 0.1  # of the variance of left-out values, below which little is predicted
_PANELS, _PANEL = 3, 18  # slices of the short figure, and characters of their labels


@dataclass(frozen=True, eq=False)
class SearchSlice:
    """Posterior and acquisition function along a line through a point, in the user's units."""

    name: str  #: of the column that varies
    column: int
    grid: np.ndarray  #: its positions A; of categories and few whole numbers these
    levels: tuple[str, ...] | None  #: names A of the codes; None for numbers
    mean: np.ndarray  #: A, of the function
    lower: np.ndarray  #: ends A of its central 95 %, as if it were normal
    upper: np.ndarray
    acquisition: np.ndarray | None  #: A; of logarithms the exponentials, 1 at the highest
    best: float  #: position of the best point so far
    best_mean: float  #: posterior mean there; off the line where other columns differ
    candidates: np.ndarray  #: positions Q of the next points
    candidate_means: np.ndarray  #: Q


@dataclass(frozen=True, eq=False, repr=False)
class SearchReport(Findings):
    """How a search went and goes on, see :func:`gpytorch_nkn.interpretation.report_search`."""

    title: str
    outcome: str  #: name of the values
    summary: tuple[str, ...]  #: sentences on the best value, the next points and the columns
    checks: tuple[str, ...]  #: sentences on the predictions of the model
    x: np.ndarray  #: inputs N x D in the order of evaluation
    values: np.ndarray  #: evaluations N
    maximize: bool  #: large values are good
    optimum: float | None  #: the best value there is, if it is known
    num_initial: int  #: evaluations that the model did not choose
    best: int  #: number of the best evaluation, of those that keep the constraints if any do
    feasible: np.ndarray  #: which evaluations N keep the constraints
    candidates: np.ndarray  #: next points Q x D
    structures: dict[str, float]  #: weights of the structures that the model averages
    ahead: LeaveOneOut  #: predictions of each evaluation from those before it
    left_out: LeaveOneOut  #: predictions of each evaluation from all others
    effects: Effects | None  #: of the input columns; None for one
    slices: tuple[SearchSlice, ...]  #: through the first candidate, or else the best point

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title!r}, {len(self.values)} evaluations)"

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain values for JSON; what is no finite number becomes None."""
        return plain(self)

    def plot(self, figure: Figure | None = None) -> Figure:
        """Draw progress, one-step-ahead errors, and beliefs around the next point.

        Args:
            figure: An empty figure of matplotlib; by default a new one of 10 by 6 inches, unknown
                to pyplot.

        Returns:
            The figure.
        """
        from matplotlib import style
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 6)) if figure is None else figure
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        halves: Any = figure.subfigures(2, 1)
        with style.context(plotting.STYLE):
            left, right = halves[0].subplots(1, 2)
            self._paint_progress(left)
            self._paint_ahead(right)
            shown = min(_PANELS, len(self.slices))
            self._paint_slices(np.ravel(halves[1].subplots(1, shown)))
        return figure

    def blocks(self) -> list[Block]:
        """Parts of the report in their order."""
        progress = sketch(
            "Values in the order of evaluation, and the best so far", self._paint_progress
        )
        text = "What the model believes, and the acquisition function, along single columns"
        blocks = [
            Block("Summary", self.summary, figures=(progress,)),
            Block(
                "Where it looks next",
                note=self._slices_note(),
                figures=(panels(text, self._paint_slices, len(self.slices)),),
                layout="wide",
            ),
        ]
        if self.effects is not None:
            label = f"effect on {literal(self.outcome, _PANEL)}"
            note = (
                "Averages over the other columns, as they are in the evaluations; shares are Sobol "
                "indices of the posterior mean, which has only what was seen: "
                f"{percent(self.effects.uncertain)} of the variance of the function is uncertain. "
                "Dots are evaluations: the effect and what the model leaves unexplained."
            )
            blocks.append(effects_block(self.effects, label, note=note))
        text = "How far evaluations lay from predictions by those before them"
        checks = sketch(text, self._paint_ahead, caption=text), calibration_sketch(self.left_out)
        note = (
            "Each evaluation is predicted from those before it, and from all others, with the "
            "parameters that the model has now."
        )
        return [*blocks, Block("Model checking", self.checks, note, (), checks, layout="beside")]

    def _slices_note(self) -> str:
        number = len(self.candidates)
        where = "the first of the next points" if number > 1 else "the next point"
        where = where if number else "the best point so far"
        note = (
            f"Along one column each, the others as at {where}: the mean of {self.outcome} and its "
            "95 % band"
        )
        if self.slices[0].acquisition is not None:
            note += "; below, on one scale for all columns, the acquisition function"
        if number:
            note += ". Points are at their expected means, off the line where other columns differ"
        return f"{note}."

    def _paint_progress(self, ax: Axes) -> None:
        plotting.plot_progress(
            ax,
            self.values,
            maximize=self.maximize,
            optimum=self.optimum,
            num_initial=self.num_initial,
            feasible=self.feasible,
            y_label=literal(self.outcome, _PANEL),
        )

    def _paint_ahead(self, ax: Axes) -> None:
        plotting.plot_one_step_ahead(ax, self.ahead.z_scores, num_initial=self.num_initial)

    def _paint_slices(self, axes: Any) -> None:
        slices = [replace(s, name=literal(s.name, _PANEL)) for s in self.slices[: len(axes)]]
        plotting.plot_acquisition(axes, slices, y_label=literal(self.outcome, _PANEL))


def report_search(
    model: ExactGP,
    *,
    maximize: bool = True,
    acquisition: Callable[[Tensor], Tensor] | None = None,
    candidates: Tensor | None = None,
    bounds: Tensor | None = None,
    optimum: float | None = None,
    num_initial: int = 0,
    feasible: Tensor | Sequence[bool] | None = None,
    outcome: str = "value",
    columns: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str] | Mapping[float, str]] | None = None,
    y_offset: float = 0.0,
    y_scale: float = 1.0,
    title: str = "How the search goes",
    seed: int = 0,
) -> SearchReport:
    """Say how a Bayesian optimisation went, what its model believes, and where it looks next.

    Args:
        model: A fitted model of BoTorch with one output, an exact GP with a Gaussian likelihood:
            NKNSingleTaskGP, SingleTaskGP, or an ensemble such as StructureEnsembleGP. Its training
            data are the evaluations in their order. Of several outcomes take one of the models.
        maximize: Large values (see ``y_scale``) are good; ``False`` for small ones.
        acquisition: A function of BoTorch that takes points ``A x 1 x D``, which is drawn; of
            logarithms (``LogExpectedImprovement``) their exponentials, as fractions of the highest.
        candidates: The next points ``Q x D``.
        bounds: Lower and upper ends ``2 x D`` of the space; default: those of data and candidates.
        optimum: The best value there is, if it is known: regret is drawn in place of values. With
            noise, observed values may be better than that of the function; leave it out then.
        num_initial: Evaluations at the beginning that the model did not choose.
        feasible: Which evaluations ``N`` keep the constraints, as truth values: the best is one of
            these. Default: all.
        outcome: What the values are called, such as ``"loss"``.
        columns: Names of the input columns ``D``; default: x0, x1, ...
        categories: Names of the codes 0, 1, ... of columns that hold categories, by the names of
            these columns, such as ``{"kernel": ["linear", "rbf"]}``, or of other codes:
            ``{"size": {1.5: "32", 1.8: "64"}}``.
        y_offset: Of the values, see ``y_scale``.
        y_scale: Values are ``y_offset + y_scale * y`` for outcomes ``y`` of the model: the standard
            deviation (and ``y_offset`` the mean) by which they were standardised.
        title: Of the report.
        seed: Of all random draws; the global random state is left alone.

    Returns:
        The report; ``print`` shows its ``text``, ``save("search.html")`` writes a page, ``plot()``
        draws the essentials.

    Raises:
        TypeError: It is not such a model, its likelihood is not Gaussian, or ``acquisition`` is no
            function.
        ValueError: A shape is wrong, a value not finite, an option has no meaning, there are
            fewer than 3 evaluations, or one is better than the optimum.
        NotImplementedError: The model has several outputs or a batch of data sets.
    """
    _check_model(model)
    check_counts(0, num_initial=num_initial)
    if acquisition is not None and (isinstance(acquisition, type) or not callable(acquisition)):
        raise TypeError(f"acquisition must be a function of points A x 1 x D, got {acquisition!r}.")
    y_offset, y_scale = float(y_offset), float(y_scale)
    if optimum is not None and not math.isfinite(optimum):
        raise ValueError(f"optimum must be finite, got {optimum}.")
    if not (math.isfinite(y_offset) and math.isfinite(y_scale) and y_scale != 0):
        raise ValueError(
            "y_offset and y_scale must be finite, the second not zero, got "
            f"{y_offset} and {y_scale}."
        )
    with evaluating(model), torch.no_grad():
        processes = fitted_processes(model)
        inputs = raw_inputs(model)
        x = (inputs[0] if inputs.dim() > 2 else inputs).cpu().numpy()
        values, ahead, left_out = _predictions(processes, y_offset, y_scale)
    if len(values) < 3:
        raise ValueError(f"A report needs at least 3 evaluations, got {len(values)}.")
    if num_initial > len(values):
        raise ValueError(f"num_initial is {num_initial}, and there are {len(values)} in all.")
    chosen = _points("candidates", candidates, f"Q x {x.shape[1]}")
    ends = _points("bounds", bounds, f"2 x {x.shape[1]}")
    if bounds is None:
        everything = np.concatenate([x, chosen])
        ends = np.stack([everything.min(0), everything.max(0)])
    if not (ends[0] <= ends[1]).all():
        raise ValueError(f"bounds must be lower and upper ends 2 x D, got {ends.tolist()}.")
    units = processes[0][1].units.named(columns).with_categories(categories, x)
    kept = _kept(feasible, len(values))
    sign = 1 if maximize else -1
    if optimum is not None:
        values = _up_to(optimum, values, kept, sign)
    best = _best_of(sign * values, kept)
    influence = None
    if x.shape[1] > 1:
        influence = effects(
            model, max_effects=_SLICES, seed=seed, columns=units.names, categories=categories
        )
        influence = _scaled(influence, y_scale)

    def believed(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, std = _believed(model, points)
        return y_offset + y_scale * mean, abs(y_scale) * std

    beliefs = believed(np.concatenate([x, chosen]))
    anchor = chosen[0] if len(chosen) else x[best]
    slices = []
    for column in [0] if influence is None else [e.columns[0] for e in influence.main]:
        seen = np.append(x[:, column], chosen[:, column])
        points = np.repeat(anchor[None], len(grid := _positions(seen, ends, column, units)), 0)
        points[:, column] = grid
        mean, std = believed(points)
        slices.append(
            SearchSlice(
                name=units.names[column],
                column=column,
                grid=grid,
                levels=units.levels(column, grid),
                mean=mean,
                lower=mean - Z95 * std,
                upper=mean + Z95 * std,
                acquisition=None if acquisition is None else _heights(model, acquisition, points),
                best=float(x[best, column]),
                best_mean=float(beliefs[0][best]),
                candidates=chosen[:, column],
                candidate_means=beliefs[0][len(x) :],
            )
        )
    if acquisition is not None and getattr(acquisition, "_log", False):
        slices = _exponentiated(slices)
    made = SearchReport(
        title=title,
        outcome=outcome,
        summary=(),
        checks=(),
        x=x,
        values=values,
        maximize=maximize,
        optimum=optimum,
        num_initial=num_initial,
        best=best,
        feasible=kept,
        candidates=chosen,
        structures=dict(getattr(model, "structure_weights", {})),
        ahead=ahead,
        left_out=left_out,
        effects=influence,
        slices=tuple(slices),
    )
    at = _Places(units, (x % 1 == 0).all(0), 0.1 * (ends[1] - ends[0]))
    skill = _skill(values, left_out.mean)
    learned = []
    if influence is not None:
        doubts = [say("doubt", how=_no_better(skill))] if skill < _CHANCE else []
        learned = [*doubts, *describe_effects(influence, units, lowest_first=not maximize)]
    summary = (
        *_reached(made, at),
        *_next(made, beliefs, at),
        *_structures(model, made.structures),
        *learned,
    )
    checks = (
        _ahead_sentence(ahead, num_initial),
        *_skill_sentence(skill),
        *describe_left_out(left_out),
    )
    return replace(made, summary=summary, checks=checks)


def _best_of(values: np.ndarray, kept: np.ndarray) -> int:
    """Number of the largest value, among those that keep the constraints if any do."""
    return int((np.where(kept, values, -np.inf) if kept.any() else values).argmax())


def _up_to(optimum: float, values: np.ndarray, kept: np.ndarray, sign: int) -> np.ndarray:
    """Values no better than the optimum but for rounding."""
    if not kept.any():
        return values
    best = values[_best_of(sign * values, kept)]
    if sign * (best - optimum) > _ROUNDING * np.ptp(values):
        raise ValueError(f"The best value, {best:g}, is better than the optimum {optimum}.")
    # the model's own scale may not give back a value at the optimum exactly
    inside = sign * np.minimum(sign * values, sign * optimum)
    return np.where(kept, inside, values)


def _check_model(model: Any) -> None:
    """Raise for models without a report."""
    if not isinstance(model, ExactGP) or not hasattr(model, "posterior"):
        raise TypeError(
            "report_search is for a model of BoTorch that is an exact GP, got "
            f"{type(model).__name__}; of a list of models take one."
        )
    if getattr(model, "num_outputs", 1) != 1:
        raise NotImplementedError(
            f"A report on a search is on one outcome, got {model.num_outputs}: take one of the "
            "models of a ModelListGP, or subset_output."
        )
    if model.train_targets.dim() > 1 and not getattr(model, "_is_ensemble", False):
        raise NotImplementedError(
            "A report on a search is on one data set, got a batch of shape "
            f"{tuple(model.train_targets.shape[:-1])}: make a model of one of them."
        )


def _points(name: str, given: Any, shape: str) -> np.ndarray:
    """Finite points of a shape such as ``Q x 3``, none for None."""
    rows, dim = shape.split(" x ")
    if given is None:
        return np.empty((0, int(dim)))
    points = torch.as_tensor(given).detach().double().cpu().numpy()
    fits = points.ndim == 2 and str(points.shape[1]) == dim
    if not fits or rows not in ("Q", str(len(points))) or not np.isfinite(points).all():
        raise ValueError(
            f"{name} must be finite points {shape}, got shape {points.shape}"
            + (" with values that are not finite." if not np.isfinite(points).all() else ".")
        )
    return points


def _skill(values: np.ndarray, left_out: np.ndarray) -> float:
    """Share of the variance of left-out values that is predicted; that of the others' mean: 0."""
    size = values.size
    spread = np.square(size / (size - 1) * (values - values.mean())).sum()
    return float(1 - np.square(values - left_out).sum() / spread) if spread > 0 else math.nan


def _skill_sentence(skill: float) -> list[str]:
    if not math.isfinite(skill):
        return []
    if skill < _CHANCE:
        return [say("no_skill", how=_no_better(skill))]
    return [say("skill", share=percent(skill))]


def _no_better(skill: float) -> str:
    return "hardly better than" if skill >= 0 else "worse than"


def _kept(feasible: Any, number: int) -> np.ndarray:
    """Which evaluations ``N`` keep the constraints, all for None."""
    if feasible is None:
        return np.ones(number, dtype=bool)
    kept = torch.as_tensor(feasible).cpu().numpy()
    if kept.shape != (number,) or kept.dtype != bool:
        raise ValueError(
            f"feasible must be {number} truth values, got {kept.dtype} of shape {kept.shape}."
        )
    return kept


def _predictions(
    processes: Sequence[tuple[float, FittedGP]], y_offset: float = 0.0, y_scale: float = 1.0
) -> tuple[np.ndarray, LeaveOneOut, LeaveOneOut]:
    """Evaluations ``N``, and how they were predicted from those before and from all others."""
    weights = np.array([weight for weight, _ in processes])
    found: list[list[tuple[np.ndarray, np.ndarray]]] = [[], []]
    _, first = processes[0]
    scale = y_scale * float(first.units.y_scale)
    offset = y_offset + y_scale * float(first.units.y_offset)

    def original(gp: FittedGP, mean: Tensor, std: Tensor) -> tuple[np.ndarray, np.ndarray]:
        mean, factor = gp.on_common_scale(mean)
        parts = offset + scale * mean, abs(scale) * factor * std
        return parts[0].double().cpu().numpy(), parts[1].double().cpu().numpy()

    for _, gp in processes:
        posterior = ExactPosterior(gp.covariance + torch.diag_embed(gp.noise), gp.targets - gp.mean)
        mean, std = one_step_ahead(posterior.factor, posterior.residual)
        found[0].append(original(gp, gp.mean + mean, std))
        mean, variance = posterior.leave_one_out()
        found[1].append(original(gp, gp.mean + mean, variance.sqrt()))
    common, _ = first.on_common_scale(first.targets)
    values = offset + scale * common.double().cpu().numpy()
    ahead, left_out = (
        LeaveOneOut.of_mixture(values, weights, *map(np.stack, zip(*each, strict=True)))
        for each in found
    )
    return values, ahead, left_out


def _positions(values: np.ndarray, ends: np.ndarray, place: int, units: Units) -> np.ndarray:
    """Where a column is looked at: evenly, or at its codes and, of few, at whole numbers."""
    different, (lower, upper) = np.unique(values), ends[:, place]
    if (known := units.categories.get(place)) is not None:
        return np.union1d(different, list(known))
    if len(different) <= _FEW < len(values) and (different == different.round()).all():
        whole = np.arange(math.ceil(lower), math.floor(upper) + 1)
        return np.union1d(different, whole) if len(whole) <= _GRID else different
    return np.linspace(lower, upper, _GRID if upper > lower else 1)


def _scaled(found: Effects, scale: float) -> Effects:
    """Effects on the values, which are so many times what the model has."""

    def of(effect: Effect) -> Effect:
        ends = np.sort([scale * effect.lower, scale * effect.upper], axis=0)
        data = None if effect.data is None else (effect.data[0], scale * effect.data[1])
        return replace(effect, mean=scale * effect.mean, lower=ends[0], upper=ends[1], data=data)

    return replace(found, main=tuple(map(of, found.main)), pairs=tuple(map(of, found.pairs)))


def _heights(model: Any, acquisition: Callable[[Tensor], Tensor], points: np.ndarray) -> np.ndarray:
    """Values ``A`` of the acquisition function at points ``A x D``."""
    with evaluating(model), torch.no_grad():
        found = acquisition(torch.as_tensor(points).to(model.train_targets).unsqueeze(-2))
    if found.shape != (len(points),):
        raise ValueError(
            f"acquisition must give one value for each of {len(points)} points, got shape "
            f"{tuple(found.shape)}."
        )
    return found.double().cpu().numpy()


@np.errstate(under="ignore")  # small terms vanish
def _exponentiated(slices: list[SearchSlice]) -> list[SearchSlice]:
    """Acquisition functions as fractions of their highest value, from logarithms."""
    logarithms = [np.asarray(one.acquisition) for one in slices]
    highest = max(float(np.nanmax(part, initial=-np.inf)) for part in logarithms)
    highest = highest if np.isfinite(highest) else 0.0
    return [
        replace(one, acquisition=np.exp(part - highest))
        for one, part in zip(slices, logarithms, strict=True)
    ]


def _believed(model: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation ``A`` of the function at points ``A x D``."""
    with evaluating(model), torch.no_grad():
        posterior = model.posterior(torch.as_tensor(points).to(model.train_targets).unsqueeze(-2))
        mean = getattr(posterior, "mixture_mean", posterior.mean)
        variance = getattr(posterior, "mixture_variance", posterior.variance)
    mean, variance = (part.reshape(-1).double().cpu().numpy() for part in (mean, variance))
    return mean, np.sqrt(variance.clip(0))


def _reached(made: SearchReport, at: _Places) -> list[str]:
    values, kept, best = made.values, made.feasible, made.best
    number, initial = len(values), made.num_initial
    # a single outlier does not hide the differences of the others
    spread = 0.1 * float(abs(values[best] - np.median(values)) or np.ptp(values))
    lines = [
        say(
            "reached",
            number=number,
            initial=initial,
            kept=int(kept.sum()),
            name=f"evaluation {best + 1}",
            extreme="highest" if made.maximize else "lowest",
            outcome=made.outcome,
            value=_value_text(values[best], spread),
            where=at.text(made.x[best]),
        )
    ]
    if not kept.any():
        return lines
    if initial and best >= initial:
        start = values[:initial][kept[:initial]]
        first = start.max(initial=-np.inf) if made.maximize else start.min(initial=np.inf)
        value = _value_text(first, spread) if len(start) else None
        lines.append(say("initial", number=initial, value=value))
    if since := number - 1 - best:
        lines.append(say("since", number=since))
    if made.optimum is not None:
        lines.append(say("regret", value=f"{abs(made.optimum - values[best]):.3g}"))
    return lines


def _value_text(value: float, spread: float) -> str:
    """A value with two digits of its own, however small it is beside the differences."""
    return rounded(value, max(min(spread, abs(value)), _ROUNDING**2 * spread))


@dataclass(frozen=True)
class _Places:
    """Points in words, by the units of the columns, whole numbers ``D`` and spans ``D``."""

    units: Units
    whole: np.ndarray
    spans: np.ndarray

    def text(self, point: np.ndarray, order: Sequence[int] = ()) -> str:
        """Such as ``x0 = 1.2 and x1 = 3.4``, in an order of the columns."""
        parts = [self._column(point[place], place) for place in order or range(len(point))]
        more = len(parts) - _NAMED
        return listed(parts if more <= 1 else [*parts[:_NAMED], f"{more} more"])

    def _column(self, value: float, place: int) -> str:
        levels = self.units.levels(place, np.array([value]))
        text = rounded(value, self.spans[place]) if levels is None else levels[0]
        if levels is None and self.whole[place] and value % 1 == 0 and abs(value) < 1e15:
            text = f"{value:.0f}"
        return f"{self.units.names[place]} = {text}"


def _structures(model: Any, weights: dict[str, float]) -> list[str]:
    if not weights:
        return []
    shares = sorted(weights.items(), key=lambda item: -item[1])
    names = listed([f"{name} ({percent(weight)})" for name, weight in shares])
    return [say("averages", trained=bool(model.is_trained), names=names)]


def _next(made: SearchReport, beliefs: tuple[np.ndarray, np.ndarray], at: _Places) -> list[str]:
    """Expectations where the search goes on."""
    if not len(made.candidates):
        return []
    number, dim = made.x.shape
    texts = [expectation(*pair) for pair in zip(*beliefs, strict=True)]
    order = [] if made.effects is None else [e.columns[0] for e in made.effects.main]
    order += [place for place in range(dim) if place not in order]
    named = made.candidates[:_CANDIDATES]
    lines = [
        say("next_point", where=at.text(point, order), value=text)
        for point, text in zip(named, texts[number:], strict=False)
    ]
    if further := len(made.candidates) - len(named):
        lines.append(say("further", number=further))
    return [*lines, say("at_best", value=texts[made.best])]


def _ahead_sentence(ahead: LeaveOneOut, num_initial: int) -> str:
    """Errors where the model had chosen; the first value has none before it."""
    z = ahead.z_scores[max(num_initial, 1) :]
    bias = float(z.mean()) if len(z) else 0.0
    leans = len(z) > 0 and abs(bias) > Z95 / np.sqrt(len(z))
    return say(
        "ahead",
        inside=int((np.abs(z) <= Z95).sum()),
        number=len(z),
        towards=("higher" if bias > 0 else "lower") if leans else "",
        bias=f"{abs(bias):.2g}",
    )
