"""Posterior of an exact Gaussian process as a sum of components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.interpretation.components.behaviour import Role
from gpytorch_nkn.interpretation.expansion import Expansion, Term, evaluate_groups
from gpytorch_nkn.interpretation.source import FittedGP
from gpytorch_nkn.interpretation.units import Z95, means_text

__all__ = ["Component", "ComponentCurve", "ComponentPosterior", "Decomposition"]

_GRID = 400  # number of points of a curve in addition to the data
_PAST = 200  # number of points of a curve after the data


@dataclass(frozen=True, eq=False)
class Component:
    """Additive component of the posterior."""

    name: str
    terms: tuple[Term, ...]  #: terms of the kernel by decreasing share; empty for a mean function
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
    mean: np.ndarray  #: M
    lower: np.ndarray  #: ends M of the 95 % interval
    upper: np.ndarray
    data: tuple[np.ndarray, np.ndarray]  #: training times N; mean plus the model's residual
    boundary: Any  #: last training time of a curve that continues after it


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
        components: Ordered so that each lowers the cross-validated error most.
        explained: Share of the targets' variance that the first j components explain, ``J``.
        errors: Cross-validated mean absolute error of the first j components, ``J``, in units of
            the targets (averaged over outputs).
        shares: Covariance of each component with the posterior mean at the training inputs, over
            the variance of the latter, ``J``; they sum to one.
        negligible: Components ``J`` that do not significantly improve predictions of held-out
            blocks and points: they may be noise.
        expansion: The kernel as a sum of products.

    Reference: Duvenaud (2014), Automatic Model Construction with Gaussian Processes, section
    2.4.5; Lloyd et al. (2014), section 4, for the order.
    """

    components: tuple[Component, ...]
    explained: np.ndarray
    errors: np.ndarray
    shares: np.ndarray
    negligible: np.ndarray
    expansion: Expansion
    gp: FittedGP

    def __str__(self) -> str:
        lines = [f"{'explained':>10} {'error':>10} {'share':>8}  component"]
        rows = zip(
            self.components, self.explained, self.errors, self.shares, self.negligible, strict=True
        )
        for part, explained, error, share, negligible in rows:
            note = " (may be noise)" if negligible else ""
            lines.append(f"{explained:>10.2%} {error:>10.4g} {share:>8.1%}  {part.name}{note}")
        return "\n".join([*lines, means_text(self.gp.task_means)]).rstrip()

    def posterior(self, x: Any, *, centered: bool = False) -> ComponentPosterior:
        """Return mean and variance of every component.

        Args:
            x: Inputs ``... x M x D`` in the units that the model or estimator takes.
            centered: Move each component's average over the training inputs to the component with
                the mean function. The data do not determine how the level splits, which widens
                the intervals of components that are not centred.
        """
        return self.posterior_at(self.gp.to_inputs(x), centered=centered)

    def posterior_at(self, inputs: Tensor, *, centered: bool = False) -> ComponentPosterior:
        """As :meth:`posterior`, at inputs of the kernel."""
        gp, scale = self.gp, self._scale(inputs)
        groups = [None if part.is_rest else part.terms for part in self.components]
        shifts = self._shifts(groups) if centered else inputs.new_zeros(len(groups), 1, 1)

        def moments(number: int, _: slice, cross: Tensor) -> Tensor:
            """Return mean, reduction of the variance, and prior covariance with the level."""
            moved = cross + shifts[number]
            found = gp.posterior.mean(moved), gp.posterior.reduction(moved), cross.mean(-1)
            return torch.stack(torch.broadcast_tensors(*found), -1)

        found = evaluate_groups(groups, inputs, gp.inputs, then=moments, whole=gp.kernel)
        mean, reduction, covariance = found.unbind(-1)  # each J x ... x M
        prior = evaluate_groups(groups, inputs, inputs, diag=True, whole=gp.kernel)
        if centered:  # the levels are independent a priori
            has_mean = torch.tensor([part.has_mean for part in self.components], device=mean.device)
            has_mean = has_mean.view(-1, *[1] * (prior.dim() - 1))
            level = shifts.mean(-1)
            prior = prior + torch.where(has_mean, level, -level - 2 * covariance)
        variance = prior - reduction
        with torch.no_grad():
            cross = gp.kernel(inputs, gp.inputs).to_dense()
            total = gp.kernel(inputs, diag=True) - gp.posterior.reduction(cross)
        mean = mean * scale + self._offset(inputs)
        variance, total = (v.clamp_min(0) * scale.square() for v in (variance, total))
        return ComponentPosterior(mean, variance, mean.sum(0), total)

    def curves(self, horizon: Any = 0.0) -> list[ComponentCurve]:
        """Return every centred component of a series as a curve, for ``plot_components``.

        Args:
            horizon: Length of the curves after the data, in units of time (for dates days, or a
                duration).

        Raises:
            ValueError: There are several outputs, several input columns that are not covariates,
                or the horizon is negative, or positive beside covariates.
        """
        last, length = float(self.gp.time.max()), self.gp.time_span(horizon)
        past = last + np.linspace(0, length, _PAST + 1)[1:]
        curves, _ = self.curves_at(past if length else past[:0], labels=True)
        return curves

    def curves_at(
        self, past: np.ndarray, *, labels: bool = False
    ) -> tuple[list[ComponentCurve], ComponentCurve]:
        """Return curves with values ``M`` of the kernel's input past the data, and their sum.

        The sum ends with the data.
        """
        gp = self.gp
        if not gp.is_series or gp.targets.dim() > 1:
            raise ValueError(
                "Curves are for one input column or a forecaster, and one output, got inputs of "
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
                "Curves past the data would need the covariates there: horizon must be 0."
            )
        else:
            grid, inputs, at_train = train, gp.inputs[order.copy()], slice(None)
        posterior = self.posterior_at(inputs, centered=True)
        means = posterior.mean.double().cpu().numpy()
        halves = Z95 * posterior.variance.sqrt().double().cpu().numpy()
        y = gp.units.y_offset + gp.units.y_scale * gp.targets.double().cpu().numpy()[order]
        leftover = y - means.sum(0)[at_train]
        times, x = gp.to_times(train), gp.to_times(grid)
        boundary = times[-1] if len(past) else None

        def curve(label: str, mean: np.ndarray, half: np.ndarray) -> ComponentCurve:
            data = times, mean[at_train] + leftover
            return ComponentCurve(label, x, mean, mean - half, mean + half, data, boundary)

        names = [component.name if labels else "" for component in self.components]
        end = len(grid) - len(past)
        mean = means.sum(0)[:end]
        half = Z95 * posterior.total_variance.sqrt().double().cpu().numpy()[:end]
        total = ComponentCurve("", x[:end], mean, mean - half, mean + half, (times, y), None)
        return list(map(curve, names, means, halves)), total

    def _shifts(self, groups: Sequence[Any]) -> Tensor:
        """Return what centring adds to cross covariances, ``J x ... x 1 x N``.

        Components lose their average over the training inputs; the component with the mean function
        gets the averages of all others.
        """
        x = self.gp.inputs
        averages = evaluate_groups(
            groups, x, x, then=lambda _, __, k: k.mean(-1, keepdim=True), whole=self.gp.kernel
        ).mT
        gained = [averages.sum(0) if part.has_mean else 0.0 for part in self.components]
        return torch.stack([gain - own for gain, own in zip(gained, averages, strict=True)])

    def _scale(self, inputs: Tensor) -> Tensor:
        """Scale of the targets ``... x 1``."""
        scale = self.gp.units.y_scale
        return torch.as_tensor(scale, dtype=inputs.dtype, device=inputs.device).unsqueeze(-1)

    def _offset(self, inputs: Tensor) -> Tensor:
        """Mean function ``J x ... x M`` in units of the targets, zero for other components."""
        offset = self.gp.units.y_offset
        shift = torch.as_tensor(offset, dtype=inputs.dtype, device=inputs.device).unsqueeze(-1)
        mean = self.gp.prior_mean(inputs) * self._scale(inputs) + shift
        chosen = torch.tensor([float(part.has_mean) for part in self.components]).to(mean)
        return chosen.view(-1, *[1] * mean.dim()) * mean
