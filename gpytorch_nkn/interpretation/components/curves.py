"""Components of a series as curves over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from gpytorch_nkn.interpretation.components.decomposition import Decomposition

__all__ = ["Z95", "ComponentCurve", "component_curves"]

Z95 = 1.959964
_GRID = 400  # points of a curve, next to the data


@dataclass(frozen=True, eq=False)
class ComponentCurve:
    """Posterior of a component over time, in units of the targets.

    Attributes:
        label: Title of a figure.
        x: Times ``M``, numbers or ``datetime64``, sorted.
        mean: Posterior mean ``M``.
        lower: Lower end ``M`` of the 95 % band of the component.
        upper: Upper end ``M``.
        data: Training times and what the component explains of the targets ``N``: its mean plus
            what no component explains.
        boundary: Time of the last training point; None for a curve that ends there.
    """

    label: str
    x: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    data: tuple[np.ndarray, np.ndarray]
    boundary: Any


def component_curves(
    split: Decomposition, past: np.ndarray, *, centered: bool, labels: bool
) -> list[ComponentCurve]:
    """A curve for every component over the data and past them.

    Args:
        split: A decomposition over one input column.
        past: Values ``M`` of the kernel's input past the data.
        centered: As in :meth:`Decomposition.posterior`.
        labels: Name the components.
    """
    gp = split.gp
    if gp.inputs.size(-1) > 1 or gp.targets.dim() > 1:
        raise ValueError(
            "Curves are for one input column and one output, got inputs of shape "
            f"{tuple(gp.inputs.shape)} and targets of shape {tuple(gp.targets.shape)}."
        )
    order = gp.inputs[:, 0].argsort(stable=True).cpu().numpy()
    train = gp.inputs[:, 0].double().cpu().numpy()[order]
    inside = np.union1d(np.linspace(train[0], train[-1], _GRID), train)
    grid = np.concatenate([inside, past])
    inputs = torch.as_tensor(grid).to(gp.inputs).unsqueeze(-1)
    posterior = split.posterior_at(inputs, centered=centered)
    means = posterior.mean.double().cpu().numpy()
    halves = Z95 * posterior.variance.sqrt().double().cpu().numpy()
    at_train = np.searchsorted(grid, train)
    y = gp.units.y_offset + gp.units.y_scale * gp.targets.double().cpu().numpy()[order]
    leftover = y - means.sum(0)[at_train]
    times, grid_times = gp.to_times(train), gp.to_times(grid)
    return [
        ComponentCurve(
            label=component.name if labels else "",
            x=grid_times,
            mean=mean,
            lower=mean - half,
            upper=mean + half,
            data=(times, mean[at_train] + leftover),
            boundary=times[-1] if len(past) else None,
        )
        for component, mean, half in zip(split.components, means, halves, strict=True)
    ]
