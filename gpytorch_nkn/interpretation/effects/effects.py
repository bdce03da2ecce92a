"""What single input columns, and pairs of them, do to the predictions of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from gpytorch.models import ExactGP
from scipy.interpolate import RegularGridInterpolator
from scipy.stats import norm, qmc, sobol_indices

from gpytorch_nkn.fit import check_counts, evaluating
from gpytorch_nkn.interpretation.affine import raw_inputs
from gpytorch_nkn.interpretation.effects.averages import (
    Averages,
    Empirical,
    draw_rows,
    independent_copies,
    set_columns,
)
from gpytorch_nkn.interpretation.long_form import long_form
from gpytorch_nkn.interpretation.source import (
    NetworkEstimator,
    TableEstimator,
    fitted_gp,
    fitted_processes,
    is_ensemble,
)
from gpytorch_nkn.interpretation.units import Units, plain

__all__ = ["Effect", "Effects", "effects"]

_ROWS, _PAIR_ROWS = 100, 50  # over which the other columns are averaged
_POINTS, _PAIR_POINTS = 60, 19  # positions of a main effect, and per column of a pair
_SHARE_POINTS = 100  # per column, by which the share of a pair is taken
# Rough shares of pairs, and still rougher ones of how many of them: rows, points of each column.
_SCREEN, _ROUGH_SCREEN, _SCREENED = (30, 6), (10, 4), 100
_VISIBLE = 1e-3  # share from which on a pair is an effect
_COVER = 200  # points over which it is told how much is uncertain
_DISCRETE = 8  # different values of a column that are taken themselves
_FLAT = 1e-12  # standard deviation, of the largest target, below which a prediction is constant
_BAND = float(norm.ppf(0.975))


@dataclass(frozen=True, eq=False)
class Effect:
    """What one column, or the interaction of two, adds to the prediction."""

    label: str  #: name of the column, or both names
    columns: tuple[int, ...]
    names: tuple[str, ...]
    #: One vector of positions per column, ``A``, or ``A`` and ``B``, in the user's units: the codes
    #: of categories, a single position where a column is constant.
    grid: tuple[np.ndarray, ...]
    levels: tuple[tuple[str, ...] | None, ...]  #: names of the codes of each column, or None
    mean: np.ndarray  #: posterior mean A, or A x B, in units of the targets
    lower: np.ndarray  #: ends of the 95 % interval
    upper: np.ndarray
    #: Training values ``N`` of one column and partial residuals ``N``; None for two.
    data: tuple[np.ndarray, np.ndarray] | None
    share: float  #: first-order Sobol index, or the share of the variance by the interaction


@dataclass(frozen=True, eq=False)
class Effects:
    """What :func:`effects` found."""

    main: tuple[Effect, ...]  #: of single columns, by falling total index
    pairs: tuple[Effect, ...]  #: interactions of two columns, by falling share
    first_order: np.ndarray  #: Sobol indices D of first order, by column
    total_order: np.ndarray  #: total Sobol indices D
    names: tuple[str, ...]  #: of all columns D
    #: Share of the variance of the function that the data leave open, for columns that vary
    #: independently. Where it is large, columns with small indices may have unseen effects.
    uncertain: float
    scale: str = ""  #: of transformed targets, such as "logarithm"

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain numbers, strings, lists and dictionaries."""
        return plain(self)

    def __str__(self) -> str:
        labels = [*self.names, *(pair.label for pair in self.pairs)]
        width = max(len("column"), *map(len, labels))
        lines = [f"Of the {self.scale} of the targets:"] if self.scale else []
        lines.append(f"{'column':<{width}}  first  total")
        for place in np.argsort(-self.total_order, kind="stable"):
            first, total = self.first_order[place], self.total_order[place]
            lines.append(f"{self.names[place]:<{width}}  {first:5.3f}  {total:5.3f}")
        lines.append(f"{'sum':<{width}}  {self.first_order.sum():5.3f}  {'':5}".rstrip())
        if self.pairs:
            lines.append(f"{'pair':<{width}}  share")
            lines += [f"{pair.label:<{width}}  {pair.share:5.3f}" for pair in self.pairs]
        lines.append(f"Of the variance of the function {self.uncertain:.3f} is uncertain.")
        return "\n".join(lines)


def effects(
    model: Any,
    *,
    max_effects: int = 12,
    samples: int = 2048,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str] | Mapping[float, str]] | None = None,
) -> Effects:
    r"""Effects of the input columns on the predictions of a fitted model, and their shares.

    The effect of a column :math:`i` is its partial dependence: the average of :math:`f` over
    rows of the training data in which the column is set to :math:`a`,

    .. math:: p_i(a) = \frac{1}{n} \sum_{r=1}^{n} f(a, x_{r, \setminus i}), \qquad
        g_i(a) = p_i(a) - \overline{p_i}, \qquad
        g_{ij}(a, b) = p_{ij}(a, b) - p_i(a) - p_j(b) - \overline{(p_{ij} - p_i - p_j)}

    (up to 100 rows, 50 for pairs, drawn without replacement so that the columns have nearly the
    means and variances of all rows). The bars are averages over the columns' values in these
    rows, taken independently of the other columns. All of these are linear in :math:`f`, so that
    their posterior means and variances are exact.

    Shares are Sobol indices of the posterior mean for columns that vary independently of each
    other, each over its training values: the part of its variance that is due to a column alone
    (first order), to a column with all its interactions (total), and to the interaction of a pair
    alone. Their errors of estimation fall with ``samples`` and are about 0.01 by default. How much
    of the variance of the function, which the mean knows in part, is open, is ``uncertain``.

    The components of ``decompose(model, by="columns")`` split the kernel, effects the function: a
    product of kernels is no pure interaction.

    Args:
        model: A fitted ExactGP with one output and a Gaussian likelihood (SingleTaskGP with its
            transforms too), an ensemble of such (StructureEnsembleGP, EnsembleMapSaasSingleTaskGP),
            as the mixture of its members, the record of a fit, a fitted NKNRegressor (the model of
            the largest share), or an NKNForecaster with covariates (the process of the largest
            weight, whose covariates alone have main effects). Where an estimator transforms its
            targets, effects are on their new scale (``scale``).
        max_effects: Largest number of main effects, those of the largest total indices, and of
            pairs, those of the largest shares, of at least a thousandth.
        samples: For the indices, rounded up to a power of two; there are ``samples * (D + 2)``
            predictions.
        seed: Determines every random draw; the global random state is left as it was.
        columns: Names of the input columns ``D``; default: x0, x1, ..., or those of a table.
        categories: Names of the codes 0, 1, ... of columns that hold categories, by the names of
            these columns, or of other codes, by code. Other ``cat_dims`` of a model have their
            codes as names, or the categories of a table.

    Returns:
        Main effects, pairs and indices.

    Raises:
        TypeError: Not such a model, or an option has the wrong type; a forecaster without
            covariates, whose parts are roles in time: take
            :func:`gpytorch_nkn.interpretation.decompose`.
        ValueError: An option has no meaning, the model has no training data, its outcome
            transform is not affine, or its covariance is not that of its ``covar_module``.
        NotImplementedError: Several outputs, a batch of models, or an input transform that
            changes the number of columns.

    References: Friedman and Popescu (2008), Predictive Learning via Rule Ensembles, section 8,
        for partial dependence; Saltelli et al. (2010), by SciPy's ``sobol_indices``.
    """
    gp_model = _checked_model(model)
    check_counts(1, max_effects=max_effects)
    check_counts(2, samples=samples)
    with evaluating(gp_model), torch.no_grad():
        inputs = raw_inputs(gp_model).cpu().numpy()
        estimated = isinstance(model, NetworkEstimator)
        inputs = inputs[0] if inputs.ndim > 2 else inputs  # of an ensemble
        members = fitted_processes(model if estimated else gp_model)
        _, gp = members[0]
        if estimated:
            inputs = gp.units.x_offset + gp.units.x_scale * inputs
        if gp.inputs.size(-1) != inputs.shape[1]:
            raise NotImplementedError(
                f"The input transform makes {gp.inputs.size(-1)} columns of {inputs.shape[1]}: "
                "effects needs one that keeps the columns."
            )
        units = gp.units.named(columns).with_categories(categories, inputs)
        names = units.names
        process = Averages(members, inputs)
        rng = np.random.default_rng(seed)
        rows = draw_rows(inputs, _ROWS, rng)
        first, total, variance = _indices(process, inputs, samples, rng)
        uncertain = _uncertain(process, inputs, seed)
        # what a series does over time is in its components
        shown = np.argsort(-total, kind="stable")
        shown = shown[shown > 0] if gp.is_series and len(names) > 1 else shown
        order = [int(place) for place in shown[:max_effects]]
        main = [_main_effect(process, inputs, rows, i, units, float(first[i]), rng) for i in order]
        chosen = []
        if variance > 0:
            chosen = _largest_pairs(process, inputs, first, total, variance, max_effects, rng)
        rows = draw_rows(inputs, _PAIR_ROWS, rng)
        both = [_pair_effect(process, inputs, rows, pair, units, variance, rng) for pair in chosen]
    both.sort(key=lambda effect: -effect.share)
    scale = "" if gp.units.link is None else gp.units.link.noun
    return Effects(tuple(main), tuple(both), first, total, names, uncertain, scale)


def _indices(
    process: Averages, inputs: np.ndarray, samples: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """First-order and total indices ``D`` and the variance of the posterior mean."""
    dim = inputs.shape[1]
    values: list[np.ndarray] = []

    def predict(x: np.ndarray) -> np.ndarray:
        values.append(process.mean(x.T))
        return values[-1]

    number = 1 << (samples - 1).bit_length()
    dists = [Empirical(column) for column in inputs.T]
    first = total = np.ones(1)
    if dim > 1:
        found = sobol_indices(func=predict, n=number, dists=dists, rng=rng)
        varies = np.ptp(inputs, axis=0) > 0
        first, total = (np.where(varies, v, 0) for v in (found.first_order, found.total_order))
    else:
        predict(inputs.T)
    variance = float(np.var(np.concatenate(values)))
    if variance <= (_FLAT * np.abs(process.targets).max()) ** 2:
        return np.zeros(dim), np.zeros(dim), 0.0
    return first, total, variance


def _uncertain(process: Averages, inputs: np.ndarray, seed: int) -> float:
    """The posterior variance of the function about its average, as a share of its variance."""
    uniform = qmc.Halton(inputs.shape[1], rng=np.random.default_rng(seed)).random(_COVER)
    points = np.stack(
        [Empirical(column).ppf(u) for column, u in zip(inputs.T, uniform.T, strict=True)], axis=-1
    )
    mean, deviation = process.contrast([(1.0, points[:, None]), (-1.0, points)])
    both = np.square(deviation).mean() + mean.var()
    return float(np.square(deviation).mean() / both) if both > 0 else 0.0


def _main_effect(
    process: Averages,
    inputs: np.ndarray,
    rows: np.ndarray,
    i: int,
    units: Units,
    share: float,
    rng: np.random.Generator,
) -> Effect:
    grid = _grid(inputs[:, i], 0 if i in units.categories else _POINTS)
    base, (values,) = independent_copies(rows, (i,), rng)
    mean, deviation = process.contrast(
        [(1.0, set_columns(rows, {i: grid[:, None]})), (-1.0, set_columns(base, {i: values}))]
    )
    low, high = mean - _BAND * deviation, mean + _BAND * deviation
    x = inputs[:, i].copy()
    data = x, np.interp(x, grid, mean) + process.residuals
    name, levels = units.names[i], (units.levels(i, grid),)
    return Effect(name, (i,), (name,), (grid,), levels, mean, low, high, data, share)


def _pair_effect(
    process: Averages,
    inputs: np.ndarray,
    rows: np.ndarray,
    pair: tuple[int, int],
    units: Units,
    variance: float,
    rng: np.random.Generator,
) -> Effect:
    i, j = pair
    first, second = (
        _grid(inputs[:, k], 0 if k in units.categories else _PAIR_POINTS) for k in pair
    )
    a, b = first[:, None, None], second[None, :, None]
    base, (u, v) = independent_copies(rows, pair, rng)
    mean, deviation = process.contrast(
        [
            (1.0, set_columns(rows, {i: a, j: b})),
            (-1.0, set_columns(rows, {i: a})),
            (-1.0, set_columns(rows, {j: b})),
            (-1.0, set_columns(base, {i: u, j: v})[None, None]),
            (1.0, set_columns(base, {i: u})[None, None]),
            (1.0, set_columns(base, {j: v})[None, None]),
        ]
    )
    shares = (np.arange(_SHARE_POINTS) + 0.5) / _SHARE_POINTS
    nodes = np.meshgrid(*(Empirical(inputs[:, k]).ppf(shares) for k in pair), indexing="ij")
    table = RegularGridInterpolator((first, second), mean)(np.stack(nodes, axis=-1))
    share = _interaction_variance(table) / variance
    low, high = mean - _BAND * deviation, mean + _BAND * deviation
    both, grids = (units.names[i], units.names[j]), (first, second)
    levels = units.levels(i, first), units.levels(j, second)
    return Effect(", ".join(both), pair, both, grids, levels, mean, low, high, None, share)


def _largest_pairs(
    process: Averages,
    inputs: np.ndarray,
    first_order: np.ndarray,
    total_order: np.ndarray,
    variance: float,
    number: int,
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    """Pairs by falling share, from coarse grids; a share is below the gaps of its columns."""
    gaps = total_order - first_order
    # total indices are means of squares, and hence nearly exact where they are small
    varying = np.flatnonzero(total_order >= _VISIBLE / 2).tolist()
    pairs = sorted(combinations(varying, 2), key=lambda p: -min(gaps[p[0]], gaps[p[1]]))[:_SCREENED]
    for (num_rows, points), kept in ((_ROUGH_SCREEN, 3 * number), (_SCREEN, number)):
        rows = draw_rows(inputs, num_rows, rng)
        levels = (np.arange(points) + 0.5) / points
        nodes = [Empirical(column).ppf(levels) for column in inputs.T]
        shares = {}
        for i, j in pairs:
            a, b = nodes[i][:, None, None], nodes[j][None, :, None]
            table = process.mean(set_columns(rows, {i: a, j: b})).mean(-1)
            shares[i, j] = _interaction_variance(table) / variance
        pairs = sorted(shares, key=lambda pair: -shares[pair])[:kept]
    return [pair for pair in pairs if shares[pair] >= _VISIBLE]


def _interaction_variance(table: np.ndarray) -> float:
    """Mean square of a table ``A x B`` less what rows and columns explain."""
    table = table - table.mean(0)
    table = table - table.mean(1, keepdims=True)
    return float(np.square(table).mean())


def _grid(values: np.ndarray, points: int) -> np.ndarray:
    """Even points from the least to the largest value; without a number the values themselves.

    So are few different values of a discrete column, such as zero and one.
    """
    different = np.unique(values)
    if not points or len(different) <= min(points, _DISCRETE) < len(values):
        return different
    low, high = values.min(), values.max()
    return np.linspace(low, high, points if high > low else 1)


def _checked_model(thing: Any) -> ExactGP:
    if isinstance(thing, NetworkEstimator):
        beside = getattr(thing, "covariates_", None)
        if not (isinstance(thing, TableEstimator) or (beside is not None and beside.names)):
            raise TypeError(
                "effects is for models with input columns; the parts of a forecaster without "
                f"covariates are roles in time: take decompose(...). Got {type(thing).__name__}."
            )
        return fitted_gp(thing).model
    model = getattr(thing, "model", thing)  # the record of a fit
    if not isinstance(model, ExactGP):
        raise TypeError(
            f"Expected a fitted ExactGP or the record of a fit, got {type(thing).__name__}"
            + ("; take its last step, pipeline[-1]." if hasattr(thing, "named_steps") else ".")
        )
    if model.train_inputs is not None:
        model = long_form(model)
    outputs = getattr(model, "num_outputs", 1)
    targets = model.train_targets
    if not is_ensemble(model) and (outputs != 1 or (targets is not None and targets.dim() > 1)):
        shape = "none" if targets is None else tuple(targets.shape)
        raise NotImplementedError(
            f"effects needs a model with one output, got {outputs} and targets of shape {shape}."
        )
    return model
