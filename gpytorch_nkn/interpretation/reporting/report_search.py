"""A report on a Bayesian optimisation: how it went, what its model believes, where it goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.fit import check_counts, evaluating
from gpytorch_nkn.interpretation.checks import LeaveOneOut, one_step_ahead
from gpytorch_nkn.interpretation.components import Z95
from gpytorch_nkn.interpretation.effects import Effect, Effects, effects
from gpytorch_nkn.interpretation.reporting.search_report import SearchReport, SearchSlice
from gpytorch_nkn.interpretation.reporting.words import describe_effects
from gpytorch_nkn.interpretation.source import (
    FittedGP,
    fitted_processes,
    raw_inputs,
)
from gpytorch_nkn.interpretation.units import (
    Units,
    count,
    expectation,
    listed,
    percent,
    rounded,
    three_digits,
)
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["report_search"]

_GRID = 101  # points of a slice
_SLICES = 6
_NAMED = 6  # columns of a point that are told
_CANDIDATES = 4  # next points that are told
_FEW = 8  # different whole numbers of a column that are taken themselves
_ROUNDING = 1e-4  # of the range of the values
_LUCK = 0.01  # of what the best is better by than the median
_CHANCE = 0.1  # of the variance of left-out values, below which little is predicted
_AT_BOUND = 1e-5  # of a tenth of the space, within which a point lies at its bound


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
    logarithms: Sequence[str] = (),
    labels: Sequence[str] | None = None,
    y_offset: float = 0.0,
    y_scale: float = 1.0,
    title: str = "How the search goes",
    seed: int = 0,
) -> SearchReport:
    """Say how a Bayesian optimisation went, what its model believes, and where it looks next.

    Predictions of an evaluation from those before it, and from all others, are made with the
    parameters and weights that the model has now, which have seen all of them: they flatter it.

    Args:
        model: A fitted model of BoTorch with one output, an exact GP with a Gaussian likelihood:
            NKNSingleTaskGP, SingleTaskGP, or an ensemble such as StructureEnsembleGP. Its training
            data are the evaluations in their order. Of several outcomes take one of the models.
        maximize: Large values are good, as BoTorch has it; ``False`` for small ones. Values are
            those that are told, see ``y_scale``.
        acquisition: A function of BoTorch that takes points ``A x 1 x D``, by which candidates were
            chosen; it is drawn. Of one in logarithms (``LogExpectedImprovement``) it is what it is
            the logarithm of, in parts of the highest value.
        candidates: The next points ``Q x D``.
        bounds: Lower and upper ends ``2 x D`` of the space, at which points are said to be where
            they are; default: those of the data and candidates.
        optimum: The best value there is, if it is known: regret is drawn in place of values. With
            noise, observed values may be better than that of the function; leave it out then.
        num_initial: Evaluations at the beginning that the model did not choose.
        feasible: Which evaluations ``N`` keep the constraints, as truth values: the best is one of
            these. Default: all.
        outcome: What the values are called, such as ``"loss"``.
        columns: Names of the input columns ``D``; default: x0, x1, ...
        categories: Names of the codes 0, 1, ... of columns that hold categories, by the names of
            these columns, such as ``{"kernel": ["linear", "rbf"]}``, or of other codes:
            ``{"size": {1.5: "32", 1.8: "64"}}``; without them the columns ``cat_dims`` of the model
            have codes for names.
        logarithms: Columns that hold the logarithm to base 10 of what they are named for: points
            are told without it, curves are drawn over it.
        labels: What the evaluations ``N`` are called, such as ``"trial 3"``; default: by number.
        y_offset: Of the values, see ``y_scale``.
        y_scale: Values are ``y_offset + y_scale * y`` for outcomes ``y`` of the model: the standard
            deviation of those that were standardised before the model had them (and ``y_offset``
            their mean), or -1 with ``maximize=False`` where their sign was turned.
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
    if columns is not None and len(set(columns)) < len(columns):
        raise ValueError(f"columns must differ, got {list(columns)}.")
    with evaluating(model), torch.no_grad():
        processes = fitted_processes(model)
        inputs = raw_inputs(model)
        x = (inputs[0] if inputs.dim() > 2 else inputs).cpu().numpy()
        units = processes[0][1].units.named(columns)
        names = units.names
        logs = _logarithms(logarithms, names, categories or {})
        units = units.named([f"log10({n})" if n in logs else n for n in names])
        units = units.with_categories(categories, x)
        values, ahead, left_out = _predictions(processes, y_offset, y_scale)
        if len(values) < 3:
            raise ValueError(f"A report needs at least 3 evaluations, got {len(values)}.")
        if num_initial > len(values):
            raise ValueError(f"num_initial is {num_initial}, and there are {len(values)} in all.")
        kept = _kept(feasible, len(values))
        called = _labels(labels, len(values))
        worst = -math.inf if maximize else math.inf
        ranked = np.where(kept, values, worst) if kept.any() else values
        best = int(ranked.argmax() if maximize else ranked.argmin())
        if optimum is not None and kept.any():
            beyond = float(values[best] - optimum) * (1 if maximize else -1)
            if beyond > _ROUNDING * np.ptp(values):
                raise ValueError(
                    f"The best value, {values[best]:g}, is better than the optimum {optimum}."
                )
            # the model holds values on a scale of its own, and one at the optimum may not come back
            inside = (np.minimum if maximize else np.maximum)(values, optimum)
            values = np.where(kept, inside, values)
        chosen = _points("candidates", candidates, f"Q x {x.shape[1]}")
        ends = _points("bounds", bounds, f"2 x {x.shape[1]}")
        if bounds is None:
            everything = np.concatenate([x, chosen])
            ends = np.stack([everything.min(0), everything.max(0)])
        if not (ends[0] <= ends[1]).all():
            raise ValueError(f"bounds must be lower and upper ends 2 x D, got {ends.tolist()}.")
    influence = None
    if x.shape[1] > 1:
        influence = effects(
            model, max_effects=_SLICES, seed=seed, columns=units.names, categories=categories
        )
        influence = _scaled(influence, y_scale)
    shown = [0] if influence is None else [e.columns[0] for e in influence.main]
    anchor = chosen[0] if len(chosen) else x[best]

    def believed(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, std = _believed(model, points)
        return y_offset + y_scale * mean, abs(y_scale) * std

    means = believed(np.concatenate([x, chosen]))
    slices = tuple(
        _slice(
            model,
            believed,
            acquisition,
            anchor,
            (x[best], float(means[0][best])),
            (chosen, means[0][len(x) :]),
            _positions(np.append(x[:, place], chosen[:, place]), ends, place, units),
            place,
            units,
        )
        for place in shown
    )
    if acquisition is not None and getattr(acquisition, "_log", False):
        slices = _exponentiated(slices)
    at = _Places(
        units,
        names,
        logs,
        (x % 1 == 0).all(0),
        0.1 * (ends[1] - ends[0]),
        None if bounds is None else ends,
    )
    skill = _skill(values, left_out.mean)
    weights = dict(getattr(model, "structure_weights", {}))
    believes = []
    if influence is not None:
        believes = describe_effects(influence, units, lowest_first=not maximize)
    return SearchReport(
        title=title,
        outcome=outcome,
        summary=(
            *_reached(x, values, kept, best, num_initial, maximize, optimum, at, outcome, called),
            *_after_noise(x, values, kept, best, maximize, means, at, called),
            *_next(means, chosen, x, best, influence, at),
            *_structures(model, weights),
            *([] if influence is None else _doubts(skill)),
            *believes,
        ),
        checks=(
            _ahead_sentence(ahead, num_initial),
            *_skill_sentence(skill),
            *left_out.sentences(),
        ),
        x=x,
        values=values,
        maximize=maximize,
        optimum=optimum,
        num_initial=num_initial,
        best=best,
        feasible=kept,
        candidates=chosen,
        structures=weights,
        ahead=ahead,
        left_out=left_out,
        effects=influence,
        slices=slices,
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


def _logarithms(
    given: Sequence[str], names: Sequence[str], categories: Mapping[str, Any]
) -> frozenset[str]:
    """Names of the columns that hold logarithms."""
    logs = frozenset([given] if isinstance(given, str) else given)
    if wrong := sorted(logs - {*names} | logs & {*categories}):
        raise ValueError(
            f"logarithms must be of columns of numbers among {listed(names)}, got {wrong[0]!r}."
        )
    return logs


def _labels(given: Sequence[str] | None, number: int) -> list[str]:
    """What evaluations are called."""
    if given is None:
        return [f"evaluation {place + 1}" for place in range(number)]
    if isinstance(given, str) or len(given) != number:
        raise ValueError(f"labels must be {number} names, got {given!r}.")
    return [f"{label} (evaluation {place})" for place, label in enumerate(given, 1)]


def _skill(values: np.ndarray, left_out: np.ndarray) -> float:
    """Share of the variance of left-out values that is predicted; that of the others' mean: 0."""
    size = values.size
    spread = np.square(size / (size - 1) * (values - values.mean())).sum()
    return float(1 - np.square(values - left_out).sum() / spread) if spread > 0 else math.nan


def _skill_sentence(skill: float) -> list[str]:
    if not math.isfinite(skill):
        return []
    if skill < _CHANCE:
        return [
            f"Predictions of each evaluation from all others are {_no_better(skill)} their mean."
        ]
    return [
        f"Predictions of each evaluation from all others explain {percent(skill)} of the variance."
    ]


def _no_better(skill: float) -> str:
    return "hardly better than" if skill >= 0 else "worse than"


def _doubts(skill: float) -> list[str]:
    """What to say before it is told what columns do."""
    if not skill < _CHANCE:
        return []
    return [
        f"The model predicts left-out evaluations {_no_better(skill)} their mean does: what it has "
        "learned of the columns may be chance."
    ]


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


_Belief = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # mean, deviation ``A`` at points


def _scaled(found: Effects, scale: float) -> Effects:
    """Effects on the values, which are so many times what the model has."""

    def of(effect: Effect) -> Effect:
        ends = np.sort([scale * effect.lower, scale * effect.upper], axis=0)
        data = None if effect.data is None else (effect.data[0], scale * effect.data[1])
        return replace(effect, mean=scale * effect.mean, lower=ends[0], upper=ends[1], data=data)

    return replace(found, main=tuple(map(of, found.main)), pairs=tuple(map(of, found.pairs)))


def _slice(
    model: Any,
    believed: _Belief,
    acquisition: Callable[[Tensor], Tensor] | None,
    anchor: np.ndarray,
    best: tuple[np.ndarray, float],
    candidates: tuple[np.ndarray, np.ndarray],
    grid: np.ndarray,
    place: int,
    units: Units,
) -> SearchSlice:
    points = np.repeat(anchor[None], len(grid), 0)
    points[:, place] = grid
    mean, std = believed(points)
    height = None
    if acquisition is not None:
        like = model.train_targets
        with evaluating(model), torch.no_grad():
            found = acquisition(torch.as_tensor(points).to(like).unsqueeze(-2))
        if found.shape != (len(grid),):
            raise ValueError(
                f"acquisition must give one value for each of {len(grid)} points, got shape "
                f"{tuple(found.shape)}."
            )
        height = found.double().cpu().numpy()
    return SearchSlice(
        name=units.names[place],
        column=place,
        grid=grid,
        levels=units.levels(place, grid),
        mean=mean,
        lower=mean - Z95 * std,
        upper=mean + Z95 * std,
        acquisition=height,
        best=float(best[0][place]),
        best_mean=best[1],
        candidates=candidates[0][:, place],
        candidate_means=candidates[1],
    )


@np.errstate(under="ignore")  # small terms vanish
def _exponentiated(slices: tuple[SearchSlice, ...]) -> tuple[SearchSlice, ...]:
    """With an acquisition function in parts of its highest value, from its logarithms."""
    logarithms = [np.asarray(one.acquisition) for one in slices]
    highest = max(float(np.nanmax(part, initial=-np.inf)) for part in logarithms)
    highest = highest if np.isfinite(highest) else 0.0
    return tuple(
        replace(one, acquisition=np.exp(part - highest))
        for one, part in zip(slices, logarithms, strict=True)
    )


def _believed(model: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation ``A`` of the function at points ``A x D``."""
    with evaluating(model), torch.no_grad():
        posterior = model.posterior(torch.as_tensor(points).to(model.train_targets).unsqueeze(-2))
        mean = getattr(posterior, "mixture_mean", posterior.mean)
        variance = getattr(posterior, "mixture_variance", posterior.variance)
    mean, variance = (part.reshape(-1).double().cpu().numpy() for part in (mean, variance))
    return mean, np.sqrt(variance.clip(0))


def _reached(
    x: np.ndarray,
    values: np.ndarray,
    kept: np.ndarray,
    best: int,
    num_initial: int,
    maximize: bool,
    optimum: float | None,
    at: _Places,
    outcome: str,
    called: Sequence[str],
) -> list[str]:
    # told apart from the usual ones, however far off a single one lies
    spread = 0.1 * float(abs(values[best] - np.median(values)) or np.ptp(values))
    share = "all" if num_initial == len(values) else str(num_initial)
    first = f", {share} of them before the model chose" if num_initial else ""
    extreme = "highest" if maximize else "lowest"
    since = len(values) - 1 - best
    has = f"{called[best]} has the {extreme} {outcome}"
    if not kept.all():
        keeping = f"{kept.sum()} keep{'s' if kept.sum() == 1 else ''} the constraints"
        has = f"{keeping if kept.any() else 'none keeps the constraints'}; {has} of " + (
            "these" if kept.any() else "all"
        )
    lines = [
        f"Of {count(len(values), 'evaluation')}{first}, {has}, "
        f"{_told(values[best], spread)}, at {at.text(x[best])}."
    ]
    if not kept.any():
        return lines
    if num_initial and best >= num_initial:
        start = values[:num_initial][kept[:num_initial]]
        lines.append(
            f"The best of the first {num_initial} was "
            f"{_told(float(start.max() if maximize else start.min()), spread)}."
            if len(start)
            else f"None of the first {num_initial} kept the constraints."
        )
    if since:
        last = "evaluation" if since == 1 else f"{since} evaluations"
        lines.append(f"The last {last} brought nothing better.")
    if optimum is not None:
        lines.append(f"The simple regret is {abs(optimum - values[best]):.3g}.")
    return lines


def _told(value: float, spread: float) -> str:
    """A value, with two digits of its own however small it is beside what others differ by."""
    return rounded(value, max(min(spread, abs(value)), _ROUNDING**2 * spread))


def _after_noise(
    x: np.ndarray,
    values: np.ndarray,
    kept: np.ndarray,
    best: int,
    maximize: bool,
    means: tuple[np.ndarray, np.ndarray],
    at: _Places,
    called: Sequence[str],
) -> list[str]:
    """Which evaluation the model thinks best, where it takes the best value for luck."""
    mean, std = (part[: len(x)] for part in means)
    sign = 1 if maximize else -1
    ranked = np.where(kept, sign * mean, -np.inf) if kept.any() else sign * mean
    likely = int(ranked.argmax())
    reached = abs(values[best] - np.median(values)) or np.ptp(values)
    if abs(mean[likely] - mean[best]) <= _LUCK * reached:
        return []
    less = sign * (values[best] - mean[best]) > 0
    expects = "takes some of that for noise: it expects" if less else "expects"
    return [
        f"The model {expects} {expectation(mean[best], std[best])} of {called[best]}, and the "
        f"best of {called[likely]}, {expectation(mean[likely], std[likely])}, "
        f"at {at.text(x[likely])}."
    ]


@dataclass(frozen=True)
class _Places:
    """How points are told.

    Args:
        units: Of the columns, their categories.
        names: Of the columns ``D``, without a word on logarithms.
        logs: Those that hold logarithms.
        whole: Whether all evaluations have whole numbers, ``D``.
        spans: Lengths ``D`` of which two digits count.
        bounds: ``2 x D``, if known.
    """

    units: Units
    names: tuple[str, ...]
    logs: frozenset[str]
    whole: np.ndarray
    spans: np.ndarray
    bounds: np.ndarray | None

    def text(self, point: np.ndarray, order: Sequence[int] = ()) -> str:
        """Such as ``x0 = 1.2 and x1 = 3.4``, in an order of the columns."""
        parts = [self._column(point[place], place) for place in order or range(len(point))]
        more = len(parts) - _NAMED
        return listed(parts if more <= 1 else [*parts[:_NAMED], f"{more} more"])

    def _column(self, value: float, place: int) -> str:
        name, levels = self.names[place], self.units.levels(place, np.array([value]))
        if levels is not None:
            return f"{name} = {levels[0]}"
        end = ""
        if self.bounds is not None and self.spans[place] > 0:
            near = np.abs(value - self.bounds[:, place]) <= _AT_BOUND * self.spans[place]
            end = " (lower bound)" if near[0] else " (upper bound)" if near[1] else ""
        if name in self.logs:
            return f"{name} = {three_digits(10.0**value)}{end}"
        if self.whole[place] and value % 1 == 0 and abs(value) < 1e15:
            return f"{name} = {value:.0f}{end}"
        return f"{name} = {rounded(value, self.spans[place])}{end}"


def _structures(model: Any, weights: dict[str, float]) -> list[str]:
    if not weights:
        return []
    shares = sorted(weights.items(), key=lambda item: -item[1])
    trained = "" if model.trained_rows.any() else "is not trained; it "
    return [f"The model {trained}averages {listed([f'{n} ({percent(w)})' for n, w in shares])}."]


def _next(
    means: tuple[np.ndarray, np.ndarray],
    candidates: np.ndarray,
    x: np.ndarray,
    best: int,
    influence: Effects | None,
    at: _Places,
) -> list[str]:
    """What is expected where the search goes on."""
    if not len(candidates):
        return []
    rows = [*range(len(x), len(x) + len(candidates[:_CANDIDATES])), best]
    texts = [expectation(means[0][row], means[1][row]) for row in rows]
    order = [] if influence is None else [e.columns[0] for e in influence.main]
    order += [place for place in range(x.shape[1]) if place not in order]
    lines = [
        f"Next: {at.text(point, order)}, where the model expects {text}."
        for point, text in zip(candidates[:_CANDIDATES], texts[:-1], strict=True)
    ]
    if len(candidates) > _CANDIDATES:
        lines.append(f"{count(len(candidates) - _CANDIDATES, 'further point')} with these.")
    return [*lines, f"At the best point so far it expects {texts[-1]}."]


def _ahead_sentence(ahead: LeaveOneOut, num_initial: int) -> str:
    """How the model fared where it had chosen; the first value has none before it."""
    z = ahead.z_scores[max(num_initial, 1) :]
    if not len(z):
        return "No evaluation was chosen by the model yet."
    inside = int((np.abs(z) <= Z95).sum())
    bias = float(z.mean())
    towards = "higher" if bias > 0 else "lower"
    leaning = ""
    if abs(bias) > Z95 / np.sqrt(len(z)):
        leaning = f"; on average they were {towards}, by {abs(bias):.2g} deviations"
    return (
        f"Predicted from those before it, {inside} of {count(len(z), 'evaluation')} lay within the "
        f"95 % interval{leaning}."
    )
