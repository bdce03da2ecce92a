"""Decomposition of a posterior into additive components, in order of importance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.fit import check_counts, check_flags
from gpytorch_nkn.interpretation.behaviour import Geometry, Role, roles_of
from gpytorch_nkn.interpretation.expansion import (
    Expansion,
    Term,
    evaluate_groups,
    expand_source,
    group_terms,
)
from gpytorch_nkn.interpretation.source import FittedGP, fitted_gp
from gpytorch_nkn.interpretation.units import Z95, means_text
from gpytorch_nkn.kernels import variances_of

__all__ = [
    "Component",
    "ComponentCurve",
    "ComponentPosterior",
    "Decomposition",
    "decompose",
    "decompose_gp",
]

_FOLDS = 10
_TERMS, _COLUMN_TERMS = 10_000, 1000
_MAX_EXACT_DROPPED = 1e-10  # dropped share below which the expansion counts as exact
_MIN_STANDARD_ERRORS = 3.0  # standard errors; a larger decrease of the error is significant
_GRID = 400  # number of points of a curve in addition to the data
_FORECAST_POINTS = 200  # number of points of a curve after the data


@dataclass(frozen=True, eq=False)
class Component:
    """Additive component of the posterior."""

    name: str
    terms: tuple[Term, ...]  #: by decreasing share; empty for a mean function
    role: Role | None = None  #: role over time; None for components by columns
    columns: frozenset[int] | None = None  #: columns on which it depends; None if unknown
    has_mean: bool = False  #: whether it includes the model's mean function
    is_rest: bool = False  #: whether it includes the pruned part of the kernel

    @property
    def label(self) -> str:
        """Labels of the leading terms."""
        shown = " + ".join(term.label for term in self.terms[:3])
        return shown + (" + ..." if len(self.terms) > 3 else "")


@dataclass(frozen=True, eq=False)
class ComponentCurve:
    """Posterior of a component over time, in units of the targets."""

    label: str  #: title of its figure
    x: np.ndarray  #: times M, numbers or datetime64, sorted
    mean: np.ndarray  #: posterior mean M
    lower: np.ndarray  #: ends M of the 95 % interval
    upper: np.ndarray
    data: tuple[np.ndarray, np.ndarray]  #: training times N, and mean plus residual of the model N
    boundary: Any  #: last training time if the curve continues after it, otherwise None


@dataclass(frozen=True, eq=False)
class ComponentPosterior:
    """Components at new inputs, in units of the targets."""

    mean: Tensor  #: J x ... x M; the sum over components is the posterior mean of the model
    variance: Tensor  #: J x ... x M of the latent functions, without noise
    total_mean: Tensor  #: ... x M
    total_variance: Tensor  #: ... x M of the sum, without noise; components are correlated


@dataclass(frozen=True, eq=False)
class Decomposition:
    r"""The posterior as a sum of components, see :func:`gpytorch_nkn.interpretation.decompose`.

    .. math::
        m_j(x) = k_j(x, X)\,\alpha, \qquad
        \mathrm{Cov}_{ij}(x, x') = \delta_{ij} k_j(x, x')
            - k_i(x, X)\, (K + \Sigma)^{-1} k_j(X, x')

    Attributes:
        components: Components in greedy order: each one, added to its predecessors, gives the
            smallest error. For a table, they are in decreasing order of ``shares``.
        explained: Share of the targets' variance that the first j components explain, ``J``.
        errors: Mean absolute error of the first j components in held-out blocks, ``J``, in units
            of the targets (averaged over outputs).
        shares: Covariance of each component with the posterior mean at the training inputs, divided
            by the variance of the posterior mean, ``J``; sums to one.
        improves: Whether predictions of held-out blocks, and of single held-out points, are
            significantly worse without a component, ``J x 2``.
        is_predictive: Whether all components together significantly improve predictions of
            held-out blocks or points over the mean.
        expansion: The kernel as a sum of products.
        gp: Tensors and units of the Gaussian process.

    Reference: Duvenaud (2014), Automatic Model Construction with Gaussian Processes, section
    2.4.5; Lloyd et al. (2014), section 4, for the order.
    """

    components: tuple[Component, ...]
    explained: np.ndarray
    errors: np.ndarray
    shares: np.ndarray
    improves: np.ndarray
    is_predictive: bool
    expansion: Expansion
    gp: FittedGP

    def __str__(self) -> str:
        lines = [f"{'explained':>10} {'error':>10} {'share':>8}  component"]
        numbers: Any = (self.explained, self.errors, self.shares, self.improves.any(-1))
        for part, explained, error, share, helps in zip(self.components, *numbers, strict=True):
            note = "" if helps else " (may be noise)"
            lines.append(f"{explained:>10.2%} {error:>10.4g} {share:>8.1%}  {part.name}{note}")
        return "\n".join([*lines, means_text(self.gp.task_means)]).rstrip()

    def posterior(self, x: Any, *, centered: bool = False) -> ComponentPosterior:
        """Return mean and variance of every component.

        Args:
            x: Inputs ``... x M x D`` in the units that the model or estimator takes.
            centered: Subtract each component's average over the training inputs, and add it to the
                component with the mean function. Without centring, intervals are wider, because
                the data do not identify the levels of single components.
        """
        return self.posterior_at(self.gp.to_inputs(x), centered=centered)

    def posterior_at(self, inputs: Tensor, *, centered: bool = False) -> ComponentPosterior:
        """Return :meth:`posterior` at inputs of the kernel."""
        check_flags(centered=centered)
        gp, components = self.gp, self.components
        groups = [None if part.is_rest else part.terms for part in components]
        shifts = self._shifts(groups) if centered else inputs.new_zeros(len(groups), 1, 1)

        def moments(number: int, _: slice, cross: Tensor) -> Tensor:
            """Return mean, reduction of the variance, and prior covariance with the level."""
            moved = cross + shifts[number]
            values = gp.posterior.mean(moved), gp.posterior.reduction(moved), cross.mean(-1)
            return torch.stack(torch.broadcast_tensors(*values), -1)

        stacked = evaluate_groups(groups, inputs, gp.inputs, then=moments, kernel=gp.kernel)
        mean, reduction, covariance = stacked.unbind(-1)  # each J x ... x M
        prior = evaluate_groups(groups, inputs, inputs, diag=True, kernel=gp.kernel)
        variance = prior - reduction
        y_scale, y_offset = gp.units.y_scale, gp.units.y_offset
        scale, offset = (inputs.new_tensor(v).unsqueeze(-1) for v in (y_scale, y_offset))
        mean = mean * scale
        for k, part in enumerate(components):
            if part.has_mean:
                mean[k] += gp.prior_mean(inputs) * scale + offset
            if centered:  # levels of components are independent a priori
                level = shifts[k].mean(-1)
                variance[k] += level if part.has_mean else -level - 2 * covariance[k]
        with torch.no_grad():
            cross = gp.kernel(inputs, gp.inputs).to_dense()
            total = variances_of(gp.kernel, inputs) - gp.posterior.reduction(cross)
        variance, total = (v.clamp_min(0) * scale.square() for v in (variance, total))
        return ComponentPosterior(mean, variance, mean.sum(0), total)

    def curves(self, horizon: Any = 0.0) -> list[ComponentCurve]:
        """Return every centred component of a series as a curve, for ``plot_components``.

        Args:
            horizon: Length of the curves after the data, in units of time (for dates: days, or a
                duration).

        Raises:
            ValueError: There are several outputs, or several input columns that are not covariates.
                The horizon is negative, or positive for a series with covariates.
        """
        last, length = float(self.gp.time.max()), self.gp.time_span(horizon)
        past = last + np.linspace(0, length, _FORECAST_POINTS + 1)[1:]
        return self.curves_at(past if length else past[:0])[0]

    def curves_at(self, past: np.ndarray) -> tuple[list[ComponentCurve], ComponentCurve]:
        """Return curves that continue to inputs ``M`` after the data, and their sum at the data."""
        gp = self.gp
        if not gp.is_series or gp.targets.dim() > 1:
            raise ValueError(
                "Curves need one input column or a forecaster, and one output, got inputs of "
                f"shape {tuple(gp.inputs.shape)} and targets of shape {tuple(gp.targets.shape)}."
            )
        order = gp.inputs[:, 0].argsort(stable=True).cpu().numpy()
        train = gp.inputs[:, 0].double().cpu().numpy()[order]
        if gp.inputs.size(-1) == 1:
            inside = np.union1d(np.linspace(train[0], train[-1], _GRID), train)
            grid = np.concatenate([inside, past])
            inputs = torch.as_tensor(grid).to(gp.inputs).unsqueeze(-1)
            at_train: Any = np.searchsorted(grid, train)
        elif past.size:
            raise ValueError(
                "horizon must be 0 for a series with covariates, whose future values are unknown."
            )
        else:
            grid, inputs, at_train = train, gp.inputs[order.copy()], slice(None)
        posterior = self.posterior_at(inputs, centered=True)
        means = posterior.mean.double().cpu().numpy()
        halves = Z95 * posterior.variance.sqrt().double().cpu().numpy()
        y = gp.units.y_offset + gp.units.y_scale * gp.observed.double().cpu().numpy()[order]
        leftover = y - means.sum(0)[at_train]
        times, x = gp.to_times(train), gp.to_times(grid)
        boundary = times[-1] if len(past) else None

        def curve(label: str, mean: np.ndarray, half: np.ndarray) -> ComponentCurve:
            data = times, mean[at_train] + leftover
            return ComponentCurve(label, x, mean, mean - half, mean + half, data, boundary)

        end = len(grid) - len(past)
        mean = means.sum(0)[:end]
        half = Z95 * posterior.total_variance.sqrt().double().cpu().numpy()[:end]
        total = ComponentCurve("", x[:end], mean, mean - half, mean + half, (times, y), None)
        names = [component.name for component in self.components]
        return list(map(curve, names, means, halves)), total

    def _shifts(self, groups: Sequence[Any]) -> Tensor:
        """Return what centring adds to covariances with the data, ``J x ... x 1 x N``."""
        x = self.gp.inputs
        averages = evaluate_groups(
            groups, x, x, then=lambda _, __, k: k.mean(-1, keepdim=True), kernel=self.gp.kernel
        ).mT
        gained = [averages.sum(0) if part.has_mean else 0.0 for part in self.components]
        return torch.stack([gain - average for gain, average in zip(gained, averages, strict=True)])


def decompose(
    model: Any,
    *,
    max_components: int | None = None,
    max_terms: int | None = None,
    columns: Sequence[str] | None = None,
) -> Decomposition:
    """Split the posterior of a fitted Gaussian process into additive components.

    The kernel is a sum of terms (:func:`gpytorch_nkn.interpretation.expand`). Related terms form a
    component, and the posterior is the sum of the components. In a series, these terms share a role
    (trend, cycle by period, variation, effect of covariates), otherwise the input columns.
    Periodic kernels are split into a constant and a zero-mean part, so that cycles do not contain
    the level.

    Args:
        model: A fitted ExactGP with a Gaussian likelihood (including SingleTaskGP), the result of a
            trainer, or an estimator of this package.
        max_components: Largest number of components; the smallest are merged. Default: 8, and for a
            table the number of columns plus four if that is larger, at most 24.
        max_terms: As for ``expand``; default 10,000 for a series, 1,000 for a table.
        columns: Names of the input columns, for labels.

    For counts, shares and errors refer to working targets of the log rate, weighted by their
    precisions. For multitask models, shares refer to the variation about the means of the tasks,
    which ``print`` shows.

    Returns:
        Components with explained variances and errors, in greedy order. Each one, added to its
        predecessors, gives the smallest error in 10-fold cross-validation (contiguous blocks for a
        series, fixed hyperparameters). For a table, they are in decreasing order of ``shares``.

    Raises:
        TypeError: The model is of another class, or its likelihood is not Gaussian.
        ValueError: An option is out of range. The model has no training data, a nonlinear outcome
            transform, or a covariance that differs from its ``covar_module``.
        NotImplementedError: Members differ in outcome scale, or a multitask prior is not supported.
    """
    gp = fitted_gp(model)
    return decompose_gp(replace(gp, units=gp.units.named(columns)), max_components, max_terms)


def decompose_gp(
    gp: FittedGP, max_components: int | None = None, max_terms: int | None = None
) -> Decomposition:
    """Decompose the posterior of a process, see :func:`decompose`."""
    if max_components is None:
        max_components = 8 if gp.is_series else min(max(8, gp.inputs.size(-1) + 4), 24)
    check_counts(2, max_components=max_components)
    if max_terms is None:
        max_terms = _TERMS if gp.is_series else _COLUMN_TERMS
    expansion = expand_source(gp, max_terms)
    components = (_by_role if gp.is_series else _by_columns)(expansion.terms, gp)
    if expansion.dropped > max(_MAX_EXACT_DROPPED, 100 * torch.finfo(gp.inputs.dtype).eps):
        components.append(Component("pruned terms", (), is_rest=True))
    return _order_components(components, gp, expansion, max_components)


def _by_columns(terms: Sequence[Term], gp: FittedGP) -> list[Component]:
    """Return components by input columns, and the mean function."""
    groups = group_terms(terms, [term.columns for term in terms])
    parts = [Component(_columns_name(g[0].columns, gp), g, columns=g[0].columns) for g in groups]
    return [*parts, Component("mean function", (), columns=frozenset(), has_mean=True)]


def _by_role(terms: Sequence[Term], gp: FittedGP) -> list[Component]:
    """Return components by role: trend (with level and mean function), cycles, variation.

    Terms of covariates are effects, which may change over time.
    """
    others = [term for term in terms if _covariates(term)]
    terms = [term for term in terms if not _covariates(term)]
    alpha = gp.posterior.alpha.unsqueeze(-1)

    def importance(groups: list[list[Term]]) -> list[float]:
        """Return the variance of each group's posterior mean over the data."""
        means = evaluate_groups(groups, gp.inputs, gp.inputs, then=lambda _, __, k: k @ alpha)
        variances = means[..., 0].var(-1, correction=0)
        return variances.reshape(len(groups), -1).mean(-1).tolist()

    roles = roles_of(terms, Geometry.of(gp.time), importance)
    roles = [replace(r, kind="trend") if r.kind == "constant" else r for r in roles]
    number = {id(term): role for term, role in zip(terms, roles, strict=True)}
    parts = []
    for group in group_terms(terms, roles):
        role = number[id(group[0])]
        name = group[0].label if role.kind == "other" else _role_name(role, gp)
        has_mean = role.kind == "trend"
        parts.append(Component(name, group, role, has_mean=has_mean))
    if not any(part.has_mean for part in parts):
        parts.append(Component("trend", (), Role("trend"), has_mean=True))
    for group in group_terms(others, [_covariates(term) for term in others]):
        names = _columns_name(_covariates(group[0]), gp)
        parts.append(Component(f"effect of {names}", group, Role("effect")))
    return parts


def _covariates(term: Term) -> frozenset[int]:
    """Return the columns other than time on which a term depends."""
    return (term.columns or frozenset()) - {0}


def _role_name(role: Role, gp: FittedGP) -> str:
    if role.period is not None:
        return f"cycle of {gp.units.length(torch.tensor(role.period, dtype=torch.float64))}"
    return role.kind


def _columns_name(columns: frozenset[int] | None, gp: FittedGP) -> str:
    if columns is None or not columns:
        return "unknown columns" if columns is None else "constant"
    names = [gp.units.names[column] for column in sorted(columns)]
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} columns together"


def _order_components(
    parts: list[Component], gp: FittedGP, expansion: Expansion, max_components: int
) -> Decomposition:
    """Merge the smallest components, and order the others."""
    blocks = _blocks(gp.time if gp.is_series else gp.inputs)
    parts, values = _merge_smallest(parts, _predictions(parts, gp, blocks), max_components)
    level = gp.by_task(values[..., 0])
    centered = values[..., 0] - level
    targets = gp.observed - gp.by_task(gp.observed)
    variances = gp.by_task(targets.square())
    least = gp.by_task(gp.observed.square()) * torch.finfo(targets.dtype).eps ** 2
    # the weight of a task is proportional to its number of rows, and independent of its unit
    weights = torch.where(variances > least, gp.row_weights / variances, 0.0)
    total = centered.sum(0)
    size = (total.square() * weights).mean(-1).clamp_min(torch.finfo(total.dtype).tiny)
    covariances = (centered * total * weights).mean(-1) / size  # covariance with the posterior mean
    shares = covariances.reshape(len(parts), -1).mean(-1).cpu().numpy()
    errors_of = _held_out_errors(values, level, blocks, gp)

    def relative(some: list[int]) -> Tensor:  # outputs may have different units
        return errors_of(some) * weights.sqrt()

    order: list[int] = []
    if not gp.is_series:  # pruned terms and the level come last
        order = sorted(range(len(parts)), key=lambda k: (not parts[k].columns, -shares[k]))
    while len(order) < len(parts):
        waiting = [k for k in range(len(parts)) if k not in order]
        order.append(min(waiting, key=lambda k: float(relative([*order, k])[0].mean())))
    sums = [order[: number + 1] for number in range(len(order))]
    scale = targets.new_tensor(gp.units.y_scale).unsqueeze(-1)
    left = [(targets - centered[some].sum(0)).square() for some in sums]
    fewer = [*([other for other in order if other != k] for k in order), []]
    drops = [relative(some) - relative(order) for some in fewer]
    *improves, over_mean = ([_is_positive(differences) for differences in drop] for drop in drops)
    return Decomposition(
        components=tuple(parts[k] for k in order),
        explained=np.array([float((weights * (variances - residual)).mean()) for residual in left]),
        errors=np.array(
            [float((errors_of(some)[0] * gp.row_weights * scale).mean()) for some in sums]
        ),
        shares=shares[order],
        improves=np.array(improves),
        is_predictive=any(over_mean),
        expansion=expansion,
        gp=gp,
    )


def _predictions(parts: list[Component], gp: FittedGP, blocks: list[Tensor]) -> Tensor:
    """Return posterior means of components ``J x ... x N x (1 + B + 1)``.

    The last axis has the means given all data, without each block, and without the point itself.
    """
    solver = gp.posterior
    weights = torch.cat([solver.alpha.unsqueeze(-1), solver.alpha_without(blocks)], dim=-1)
    ratio = (solver.alpha / solver.precision.diagonal(dim1=-1, dim2=-2)).unsqueeze(-1)

    def fits(_: int, rows: slice, matrix: Tensor) -> Tensor:
        means = matrix @ weights
        leverage = (matrix * solver.precision[..., rows, :]).sum(-1, keepdim=True)
        return torch.cat([means, means[..., :1] - leverage * ratio[..., rows, :]], dim=-1)

    groups = [None if part.is_rest else part.terms for part in parts]
    values = evaluate_groups(groups, gp.inputs, gp.inputs, then=fits, kernel=gp.kernel)
    for k, part in enumerate(parts):
        if part.has_mean:
            values[k] += gp.mean.unsqueeze(-1)
    return values


def _merge_smallest(
    parts: list[Component], values: Tensor, max_components: int
) -> tuple[list[Component], Tensor]:
    """Merge the smallest components, except those with the mean function or pruned terms."""
    variances = values[..., 0].var(-1, correction=0).reshape(len(parts), -1).mean(-1)
    small = [
        int(k) for k in variances.argsort(descending=True)
        if not (parts[k].has_mean or parts[k].is_rest)
    ]  # fmt: skip
    small = small[max(0, max_components - (len(parts) - len(small)) - 1) :]
    if len(small) < 2:
        return parts, values
    kept = [k for k in range(len(parts)) if k not in small]
    terms = [term for k in small for term in parts[k].terms]
    terms.sort(key=lambda term: -term.mean_share())
    rest = Component(f"{len(small)} smaller components", tuple(terms))
    merged = torch.cat([values[kept], values[small].sum(0, keepdim=True)])
    return [*(parts[k] for k in kept), rest], merged


def _held_out_errors(
    values: Tensor, level: Tensor, blocks: list[Tensor], gp: FittedGP
) -> Callable[[list[int]], Tensor]:
    """Return a function that maps components to absolute errors of their sum, in model units.

    The errors ``2 x ... x N`` are of held-out blocks and of held-out points.
    """
    predicted = torch.empty_like(values[..., 0])
    for number, block in enumerate(blocks):
        predicted[..., block] = values[..., block, 1 + number]
    held_out = torch.stack([predicted, values[..., -1]]) - level  # 2 x J x ... x N
    # minus the level, so that all components together have the model's errors
    targets = gp.observed - level.sum(0)
    return lambda order: (targets - held_out[:, order].sum(1)).abs()


def _is_positive(drops: Tensor) -> bool:
    """Return whether the mean difference of paired errors is significantly positive."""
    standard_error = float(drops.std()) / drops.numel() ** 0.5 if drops.numel() > 1 else 0.0
    return float(drops.mean()) > _MIN_STANDARD_ERRORS * standard_error


def _blocks(inputs: Tensor) -> list[Tensor]:
    """Return ten contiguous blocks along one column, or blocks of every tenth point."""
    n = inputs.size(-2)
    folds = min(_FOLDS, n)
    if inputs.size(-1) > 1:
        return [torch.arange(start, n, folds, device=inputs.device) for start in range(folds)]
    first = inputs.reshape(-1, n)[0]
    return list(first.argsort(stable=True).tensor_split(folds))
