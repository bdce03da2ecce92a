"""Posterior of an exact Gaussian process as a sum of components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_nkn.interpretation.components.behaviour import Role
from gpytorch_nkn.interpretation.expansion import Expansion, Term, evaluate_groups, evaluate_strips
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
        means, variances, totals = [], [], []
        levels = self._levels() if centered else None
        for cross, prior in self._parts(inputs):
            mean, whitened = self.gp.posterior.mean(cross), self.gp.posterior.whiten(cross)
            total = prior.sum(0) - whitened.sum(0).square().sum(-2)
            totals.append(total.clamp_min(0))
            if levels is not None:
                values = mean, whitened, prior
                mean, whitened, prior = self._centered(values, levels, cross.mean(-1))
            means.append(mean)
            variances.append((prior - whitened.square().sum(-2)).clamp_min(0))  # J x ... x M
        scale = self._scale(inputs)
        mean = torch.cat(means, dim=-1) * scale + self._offset(inputs)
        variance = torch.cat(variances, dim=-1) * scale.square()
        total_variance = torch.cat(totals, dim=-1) * scale.square()
        return ComponentPosterior(mean, variance, mean.sum(0), total_variance)

    def curves(self, horizon: Any = 0.0, *, centered: bool = True) -> list[ComponentCurve]:
        """Return every component of a series as a curve, for ``plot_components``.

        Args:
            horizon: Length of the curves after the data, in units of time (for dates days, or a
                duration).
            centered: As in :meth:`posterior`.

        Raises:
            ValueError: There are several outputs, several input columns that are not covariates,
                or the horizon is negative, or positive beside covariates.
        """
        last, length = float(self.gp.time.max()), self.gp.time_span(horizon)
        past = last + np.linspace(0, length, _PAST + 1)[1:]
        curves, _ = self.curves_at(past if length else past[:0], centered=centered, labels=True)
        return curves

    def curves_at(
        self, past: np.ndarray, *, centered: bool = True, labels: bool = False
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
        posterior = self.posterior_at(inputs, centered=centered)
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

    def _parts(self, inputs: Tensor) -> Any:
        """Cross covariances ``J x ... x m x N`` and prior variances ``J x ... x m``, in strips."""
        groups = [component.terms for component in self.components]
        rest = next((n for n, part in enumerate(self.components) if part.is_rest), None)
        start = 0
        for cross in evaluate_strips(groups, inputs, self.gp.inputs):
            part = inputs[..., start : start + cross.size(-2), :]
            start += cross.size(-2)
            prior = evaluate_groups(groups, part, part, diag=True)
            if rest is not None:
                with torch.no_grad():
                    whole = self.gp.kernel(part, self.gp.inputs).to_dense()
                    cross[rest] += whole - cross.sum(0)
                    prior[rest] += self.gp.kernel(part, diag=True) - prior.sum(0)
            yield cross, prior

    def _levels(self) -> tuple[Tensor, Tensor, Tensor]:
        """Averages of the components over the training inputs: mean, whitened, prior variance."""
        averages = [cross.mean(-1) for cross, _ in self._parts(self.gp.inputs)]
        average = torch.cat(averages, dim=-1).unsqueeze(-2)  # J x ... x 1 x N
        posterior = self.gp.posterior
        return posterior.mean(average), posterior.whiten(average), average.mean(-1)

    def _centered(self, values: Sequence[Tensor], levels: Sequence[Tensor], cross: Tensor) -> Any:
        """Move the averages of mean, whitened and prior variance to the mean function.

        ``cross`` holds the prior covariances ``J x ... x M`` of values and averages.
        """
        moved = values[0] - levels[0], values[1] - levels[1], values[2] - 2 * cross + levels[2]
        home = next((n for n, part in enumerate(self.components) if part.has_mean), None)
        if home is not None:  # it keeps its own average and gets the others'
            others = [n for n in range(len(self.components)) if n != home]
            for new, value, level in zip(moved, values, levels, strict=True):
                new[home] = value[home] + level[others].sum(0)
        return moved

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
