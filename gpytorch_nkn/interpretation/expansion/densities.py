"""Log predictive densities by which models of one data set are compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.fit import copy_model, evaluate_criterion
from gpytorch_nkn.interpretation.source import FittedGP, fitted_gp

__all__ = ["Densities"]

_BLOCKS = 8


class Densities:
    """Mean log predictive densities, in nats per point, of densities per unit of the targets.

    ``kind`` says which one is compared, ``heldout``, ``blocked_cv`` or ``loo``: that of held-out
    data where there are any, else that of the criterion, if it is one. ``network`` is the density
    of the given model.
    """

    def __init__(self, gp: FittedGP, heldout: tuple[Any, Any] | None, criterion: str):
        self._gp = gp
        self._scale = float(np.asarray(gp.units.y_scale))
        self._offset = float(np.asarray(gp.units.y_offset))
        if heldout is not None:
            self._inputs, self._targets, self._heldout_slope = self._prepare(heldout)
            self.kind = "heldout"
        elif criterion in ("loo", "blocked_cv"):
            self.kind = criterion
        else:
            self.kind = "blocked_cv" if gp.inputs.size(-1) == 1 else "loo"
        self.network = self.of(gp.model)

    def of(self, model: ExactGP) -> float:
        """Density of a model of the same data, of the kind that is compared."""
        return self._density(model, self.kind)

    def all_of(self, model: ExactGP) -> dict[str, tuple[float, float]]:
        """Densities of a model and of the given one by kind, cross-validated ones included."""
        kinds = ["loo", "blocked_cv"] + (["heldout"] if self.kind == "heldout" else [])
        return {
            kind: (self._density(model, kind), self._density(self._gp.model, kind))
            for kind in kinds
        }

    def _density(self, model: ExactGP, kind: str) -> float:
        if kind == "heldout":
            return self._heldout(model)
        value = evaluate_criterion(copy_model(model).train(), kind, math.nan, _BLOCKS)
        own = self._offset + self._scale * self._gp.targets.double().cpu().numpy()
        return value - math.log(self._scale) + self._log_slope(self._gp.units.original(own))

    def _heldout(self, model: ExactGP) -> float:
        gp = fitted_gp(copy_model(model).eval())
        solver = gp.posterior
        with torch.no_grad():
            cross = gp.kernel(self._inputs, gp.inputs).to_dense()
            prior = gp.kernel(self._inputs, diag=True)
            mean = gp.prior_mean(self._inputs) + solver.mean(cross)
        noise = gp.noise[..., :1]
        if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
            noise = gp.noise.mean(-1, keepdim=True)  # as BoTorch does
        variance = (prior - solver.reduction(cross)).clamp_min(0) + noise
        density = -0.5 * (
            (self._targets - mean).square() / variance + (2 * math.pi * variance).log()
        )
        return float(density.mean()) - math.log(self._scale) + self._heldout_slope

    def _log_slope(self, values: np.ndarray) -> float:
        """Mean log slope of what the model has of targets ``M``."""
        link = self._gp.units.link
        return 0.0 if link is None else float(link.log_slope(values).mean())

    def _prepare(self, heldout: tuple[Any, Any]) -> tuple[Tensor, Tensor, float]:
        if not isinstance(heldout, tuple | list) or len(heldout) != 2:
            raise ValueError(f"heldout must be a pair of inputs and targets, got {heldout!r}.")
        inputs = self._gp.to_inputs(heldout[0])
        given = heldout[1]
        given = given.detach().cpu() if isinstance(given, torch.Tensor) else given
        targets = torch.as_tensor(np.asarray(given, dtype=float)).to(inputs)
        if targets.shape == (inputs.size(0), 1):
            targets = targets[:, 0]
        if targets.shape != inputs.shape[:1]:
            raise ValueError(
                f"heldout targets must have shape ({inputs.size(0)},), got {tuple(targets.shape)}."
            )
        if not bool(targets.isfinite().all()):
            raise ValueError("The held-out targets contain NaN or infinite values.")
        link, values = self._gp.units.link, targets.double().cpu().numpy()
        if link is not None:
            if not link.holds(values):
                raise ValueError(
                    f"The model is one of {self._gp.units.of_model('the targets')}, which those "
                    f"held out do not all have: got {values.min()} to {values.max()}."
                )
            targets = torch.as_tensor(link.forward(values)).to(inputs)
        return inputs, (targets - self._offset) / self._scale, self._log_slope(values)
