"""Effects of input columns, and of pairs of them, on the predictions of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scipy.interpolate import RegularGridInterpolator
from scipy.stats import qmc, sobol_indices

from gpytorch_nkn.fit import check_counts, evaluating
from gpytorch_nkn.interpretation.affine import raw_inputs
from gpytorch_nkn.interpretation.averages import (
    Averages,
    ClassAverages,
    Empirical,
    draw_rows,
    independent_copies,
    set_columns,
)
from gpytorch_nkn.interpretation.source import (
    check_one_output,
    class_units,
    fitted_processes,
    is_estimator,
    is_series,
)
from gpytorch_nkn.interpretation.units import Z95, Units, means_text

__all__ = ["Effect", "Effects", "effects", "effects_of", "positions"]

_ROWS, _PAIR_ROWS = 100, 50  # rows over which the other columns are averaged
_POINTS, _PAIR_POINTS = 60, 19  # positions of a main effect, and per column of a pair
_SHARE_POINTS = 100  # quantiles per column for the share of a pair
# Rows and quantiles per column for approximate shares of pairs, in two rounds
_SCREEN, _ROUGH_SCREEN = (30, 6), (10, 4)
_MAX_SCREENED = 100  # largest number of pairs in the first, rough round
_MIN_SHARE = 5e-3  # smallest share of a pair in the result
_UNCERTAINTY_POINTS = 200  # points over which the uncertain share is averaged
_MAX_DISCRETE = 8  # largest number of different values of a discrete column
_MAX_CONSTANT_STD = 1e-12  # relative standard deviation below which a prediction is constant


@dataclass(frozen=True, eq=False)
class Effect:
    """Effect of one column, or the interaction of two, on the prediction.

    Attributes:
        label: Name of the column, or both names.
        columns, names: Numbers and names of the columns.
        grid: Positions ``A`` (for a pair also ``B``) in the user's units, dates or codes.
        levels: Names of the codes of each column, or None.
        mean: Posterior mean ``A``, or ``A x B``, in units of the targets.
        lower, upper: Ends ``A`` of the 95 % interval; None for pairs.
        data: Training values ``N`` and partial residuals ``N``; None for pairs and for classes.
        share: First-order Sobol index, or the interaction's share of the variance.
    """

    label: str
    columns: tuple[int, ...]
    names: tuple[str, ...]
    grid: tuple[np.ndarray, ...]
    levels: tuple[tuple[str, ...] | None, ...]
    mean: np.ndarray
    lower: np.ndarray | None
    upper: np.ndarray | None
    data: tuple[np.ndarray, np.ndarray] | None
    share: float


@dataclass(frozen=True, eq=False)
class Effects:
    """Result of :func:`effects`.

    Attributes:
        main: Effects of single columns, by decreasing total index.
        pairs: Interactions of two columns, by decreasing share.
        first_order, total_order: First-order and total Sobol indices ``D``.
        names: Names of all columns ``D``.
        uncertain: Posterior variance as a share of the variance of the function, for columns that
            vary independently. If it is large, columns with small indices may still have effects.
        scale: Scale of the effects, such as "logarithm of the targets"; empty for the targets.
        task_means: Means of the targets by task, empty without tasks. Shares refer to variation
            about them.
    """

    main: tuple[Effect, ...]
    pairs: tuple[Effect, ...]
    first_order: np.ndarray
    total_order: np.ndarray
    names: tuple[str, ...]
    uncertain: float
    scale: str = ""
    task_means: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        labels = [*self.names, *(pair.label for pair in self.pairs)]
        width = max(len("column"), *map(len, labels))
        lines = [f"Effects on the {self.scale}:"] if self.scale else []
        lines.append(f"{'column':<{width}}  first  total")
        for i in np.argsort(-self.total_order, kind="stable"):
            first, total = self.first_order[i], self.total_order[i]
            lines.append(f"{self.names[i]:<{width}}  {first:z5.3f}  {total:z5.3f}")
        lines.append(f"{'sum':<{width}}  {self.first_order.sum():5.3f}")
        if self.pairs:
            lines.append(f"{'pair':<{width}}  share")
            lines += [f"{pair.label:<{width}}  {pair.share:z5.3f}" for pair in self.pairs]
        lines.append(f"Uncertain share of the variance of the function: {self.uncertain:.3f}")
        return "\n".join([*lines, means_text(self.task_means)]).rstrip()


@torch.no_grad()
def effects(
    model: Any,
    *,
    max_effects: int = 12,
    samples: int = 2048,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str] | Mapping[float, str]] | None = None,
    label: Any = None,
) -> Effects:
    r"""Compute effects of the input columns on the predictions of a fitted model.

    The effect of column :math:`i` is its partial dependence, an average of :math:`f` over training
    rows with the column set to :math:`a`,

    .. math:: p_i(a) = \frac{1}{n} \sum_{r=1}^{n} f(a, x_{r, \setminus i}), \qquad
        g_i(a) = p_i(a) - \overline{p_i}, \qquad
        g_{ij}(a, b) = p_{ij}(a, b) - p_i(a) - p_j(b) - \overline{(p_{ij} - p_i - p_j)}

    for up to 100 rows (50 for pairs), drawn without replacement with nearly the means and variances
    of all rows. The bars denote averages over the columns' values in these rows, independently of
    the other columns. Effects are linear in :math:`f`, so posterior means and the variances of
    main effects are exact. For a classifier, :math:`f` is the probability of a class
    (``predict_proba``), and variances use the delta method.

    Shares are Sobol indices of the posterior mean, for columns that vary independently over their
    training values. These fractions of variance are due to a column (first order), a column with
    all its interactions (total), or the interaction of a pair. Estimation errors decrease with
    ``samples`` and are about 0.01 by default. For multitask models, shares refer to the
    variation about the main effect of the task.

    Args:
        model: A fitted ExactGP with one output and a Gaussian likelihood (including SingleTaskGP),
            the result of a trainer, or a fitted NKNRegressor, NKNClassifier or NKNForecaster. A
            forecaster needs covariates, whose effects are computed. Effects of an ensemble
            (StructureEnsembleGP, EnsembleMapSaasSingleTaskGP) average over the mixture.
            NKNRegressor and NKNForecaster use their member with the largest weight; if they
            transform the targets, effects are on the transformed scale (``scale``).
        max_effects: Largest number of main effects, by total index, and of pairs with a share of at
            least 0.5 %.
        samples: Samples for the indices, rounded up to a power of two. The indices need
            ``samples * (D + 2)`` predictions.
        seed: Seed of all random draws; the global random state does not change.
        columns: Names of the input columns ``D``; default: the columns of a table, or x0, x1, ...
        categories: Names of category codes, by column name: a sequence for the codes 0, 1, ..., or
            a mapping from codes. Other ``cat_dims`` of a model are labelled by their codes.
        label: Class of a classifier; default: the second of two classes.

    Raises:
        TypeError: The model has another type (for a forecaster without covariates use
            :func:`gpytorch_nkn.interpretation.decompose`), or an option has the wrong type.
        ValueError: As in :func:`gpytorch_nkn.interpretation.decompose`, or ``label`` is not a class
            or is missing for more than two classes.
        NotImplementedError: The model has several outputs or is a batch, or its input transform
            changes the number of columns.

    References: Friedman and Popescu (2008), Predictive Learning via Rule Ensembles, section 8,
    for partial dependence; Saltelli et al. (2010), by SciPy's ``sobol_indices``.
    """
    check_counts(1, max_effects=max_effects)
    check_counts(2, samples=samples)
    _check_model(model)
    units, code = class_units(model, label)
    if units is not None:
        inputs = units.x_offset + units.x_scale * model.model_.train_inputs[0].cpu().numpy()
        units = units.named(columns).with_categories(categories, inputs)
        classes = ClassAverages(model, code)
        return effects_of(classes, inputs, units, max_effects, samples, seed)
    processes = fitted_processes(model)
    _, gp = processes[0]
    check_one_output(gp, "effects")
    with evaluating(gp.model):
        inputs = raw_inputs(gp.model).cpu().numpy()
        inputs = inputs[0] if inputs.ndim > 2 else inputs  # members of an ensemble share them
        if is_estimator(model):
            inputs = gp.units.x_offset + gp.units.x_scale * inputs
        units = gp.units.named(columns).with_categories(categories, inputs)
        average = Averages(processes, inputs)
        return effects_of(average, inputs, units, max_effects, samples, seed)


def _check_model(model: Any) -> None:
    if hasattr(model, "named_steps"):
        raise TypeError(
            f"Expected a model, got {type(model).__name__}; its last step is pipeline[-1]."
        )
    if is_estimator(model) and is_series(model):
        covariates = getattr(model, "covariates_", None)
        if covariates is None or not covariates.names:
            raise TypeError(
                f"effects needs input columns, got {type(model).__name__} without covariates: use "
                "decompose(...), whose components are functions of time."
            )


def effects_of(
    average: Averages,
    inputs: np.ndarray,
    units: Units,
    max_effects: int,
    samples: int = 2048,
    seed: int = 0,
) -> Effects:
    """Return effects on predictions, given training inputs ``N x D`` in the user's units."""
    check_counts(0, seed=seed)
    study = _Study(average, inputs, units, np.random.default_rng(seed))
    rows = study.rows(_ROWS)
    first, total, variance = study.indices(samples)
    uncertain = study.uncertain(seed)
    # decompose shows the effect of time in a series
    shown = np.argsort(-total, kind="stable")
    shown = shown[shown > 0] if average.is_series and inputs.shape[1] > 1 else shown
    main = [study.main_effect(int(i), rows, float(first[i])) for i in shown[:max_effects]]
    chosen = study.largest_pairs(first, total, variance, max_effects) if variance > 0 else []
    rows = study.rows(_PAIR_ROWS)
    both = [study.pair_effect(pair, rows, variance, total[[*pair]].min()) for pair in chosen]
    both.sort(key=lambda effect: -effect.share)
    scale = units.of_model(units.targets)
    scale = "" if scale == units.targets else scale.removeprefix("the ")
    shares = (first, total, units.names, uncertain)
    return Effects(tuple(main), tuple(both), *shares, scale, average.task_means)


@dataclass(frozen=True, eq=False)
class _Study:
    """Averages of a prediction over training inputs ``N x D``, with one stream of random draws."""

    average: Averages
    inputs: np.ndarray
    units: Units
    rng: np.random.Generator

    def rows(self, number: int) -> np.ndarray:
        """Draw rows of the inputs."""
        return draw_rows(self.inputs, number, self.rng)

    def quantiles(self, column: int, number: int) -> np.ndarray:
        """Return evenly spaced quantiles of a column."""
        return Empirical(self.inputs[:, column]).ppf((np.arange(number) + 0.5) / number)

    def grid(self, column: int, points: int) -> np.ndarray:
        """Return positions of a column; for categories, all codes."""
        return positions(self.inputs[:, column], 0 if column in self.units.categories else points)

    def indices(self, samples: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return first-order and total indices ``D``, and the variance of the posterior mean."""
        average, inputs = self.average, self.inputs
        dim = inputs.shape[1]
        values: list[np.ndarray] = []

        def predict(x: np.ndarray) -> np.ndarray:
            values.append(average.mean(x.T) - average.levels(x.T))
            return values[-1]

        number = 1 << (int(samples) - 1).bit_length()
        dists = [Empirical(column) for column in inputs.T]
        first = total = np.ones(1)
        if dim > 1:
            indices = sobol_indices(func=predict, n=number, dists=dists, rng=self.rng)
            varies = np.ptp(inputs, axis=0) > 0
            total = np.where(varies, indices.total_order, 0).clip(max=1)  # within the exact bounds
            first = indices.first_order.clip(0, total)
        else:
            predict(inputs.T)
        variance = float(np.var(np.concatenate(values)))
        if variance <= (_MAX_CONSTANT_STD * average.largest) ** 2:
            return np.zeros(dim), np.zeros(dim), 0.0
        return first, total, variance

    def uncertain(self, seed: int) -> float:
        """Return the posterior variance of the centred function, as a share of its variance."""
        uniform = qmc.Halton(self.inputs.shape[1], rng=np.random.default_rng(seed)).random(
            _UNCERTAINTY_POINTS
        )
        columns = zip(self.inputs.T, uniform.T, strict=True)
        points = np.stack([Empirical(column).ppf(u) for column, u in columns], axis=-1)
        mean, std = self.average.contrast(points[:, None], points)
        both = np.square(std).mean() + (mean - self.average.levels(points)).var()
        return float(np.square(std).mean() / both) if both > 0 else 0.0

    def main_effect(self, column: int, rows: np.ndarray, share: float) -> Effect:
        """Return the effect of a column with its interval and partial residuals."""
        average, units = self.average, self.units
        x, names, grid = self.inputs[:, column], (units.names[column],), self.grid(column, _POINTS)
        base, (values,) = independent_copies(rows, [column], self.rng)
        mean, std = average.contrast(
            set_columns(rows, {column: grid[:, None]}), set_columns(base, {column: values})
        )
        data = None
        if average.residuals is not None:
            data = units.dates(column, x), np.interp(x, grid, mean) + average.residuals
        bounds = mean - Z95 * std, mean + Z95 * std
        levels, shown = (units.levels(column, grid),), (units.dates(column, grid),)
        return Effect(names[0], (column,), names, shown, levels, mean, *bounds, data, share)

    def pair_effect(
        self, columns: tuple[int, int], rows: np.ndarray, variance: float, total: float
    ) -> Effect:
        """Return the interaction of two columns with its share of the variance, up to ``total``."""
        units = self.units
        grids = tuple(self.grid(column, _PAIR_POINTS) for column in columns)
        at = dict(zip(columns, (grids[0][:, None, None], grids[1][:, None]), strict=True))
        base, values = independent_copies(rows, columns, self.rng)
        copies = dict(zip(columns, values, strict=True))
        mean = np.zeros([grid.size for grid in grids])
        for sign, chosen in ((1, columns), (-1, columns[:1]), (-1, columns[1:])):
            curve = self.average.mean(set_columns(rows, {k: at[k] for k in chosen})).mean(-1)
            level = self.average.mean(set_columns(base, {k: copies[k] for k in chosen})).mean()
            mean += sign * (curve - level)
        quantiles = [self.quantiles(column, _SHARE_POINTS) for column in columns]
        points = np.stack(np.meshgrid(*quantiles, indexing="ij"), -1)
        share = _interaction_variance(RegularGridInterpolator(grids, mean)(points)) / variance
        share = min(share, float(total))
        names = tuple(units.names[column] for column in columns)
        codes, shown = (
            tuple(map(units.levels, columns, grids)),
            tuple(map(units.dates, columns, grids)),
        )
        return Effect(", ".join(names), columns, names, shown, codes, mean, None, None, None, share)

    def largest_pairs(
        self, first_order: np.ndarray, total_order: np.ndarray, variance: float, number: int
    ) -> list[tuple[int, int]]:
        """Return up to ``number`` pairs with visible shares, by decreasing approximate share."""
        gaps = total_order - first_order
        # total indices are means of squares, and therefore accurate if small
        varying = np.flatnonzero(total_order >= _MIN_SHARE / 2).tolist()
        pairs = sorted(combinations(varying, 2), key=lambda p: -min(gaps[p[0]], gaps[p[1]]))
        pairs = pairs[:_MAX_SCREENED]
        for (num_rows, points), count in ((_ROUGH_SCREEN, 3 * number), (_SCREEN, number)):
            rows, shares = self.rows(num_rows), {}
            for i, j in pairs:
                a, b = (self.quantiles(column, points)[:, None] for column in (i, j))
                table = self.average.mean(set_columns(rows, {i: a[:, None], j: b})).mean(-1)
                shares[i, j] = _interaction_variance(table) / variance
            pairs = sorted(shares, key=lambda pair: -shares[pair])[:count]
        return [pair for pair in pairs if shares[pair] >= _MIN_SHARE]


def _interaction_variance(table: np.ndarray) -> float:
    """Return the mean square of a table ``A x B`` minus its row and column means."""
    table = table - table.mean(0)
    table = table - table.mean(1, keepdims=True)
    return float(np.square(table).mean())


def positions(values: np.ndarray, points: int, ends: Any = None) -> np.ndarray:
    """Return evenly spaced points of a column, or its values (if discrete, or for 0 points)."""
    different = np.unique(values)
    if not points or len(different) <= min(points, _MAX_DISCRETE) < len(values):
        return different
    low, high = different[[0, -1]] if ends is None else ends
    return np.linspace(low, high, points if high > low else 1)
