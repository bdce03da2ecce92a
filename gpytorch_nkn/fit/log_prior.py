"""Log density of a model's priors, vectorised over parameters."""

from __future__ import annotations

import math

import gpytorch
import numpy as np
import torch
from gpytorch.models import ExactGP
from gpytorch.priors import GammaPrior, NormalPrior, Prior
from torch import Tensor

from gpytorch_nkn.fit.parameter_pool import ParameterPool, require, to_numpy
from gpytorch_nkn.layers import LogNormalPrior, ShrunkLogNormalPrior

__all__ = ["LogPrior"]

# Perturbation of the parameters by which the parameter of each prior is identified.
_MOVES = (0.05, 2.0)


class LogPrior:
    """Normal, (shrunk) log-normal and gamma priors on parameters, and any priors on frozen values.

    Log densities are linear combinations of 1, x, x^2, log x and log^2 x of natural values x. A
    perturbation of the parameters identifies the parameter that a prior's closure returns.

    Args:
        model: A model.
        values: Vector of trained raw values, shared with the parameters; it is perturbed
            temporarily.
        pool: Natural values of the parameters.

    Raises:
        UnknownPartError: A prior has another distribution or is not on a parameter.
    """

    def __init__(self, model: ExactGP, values: Tensor, pool: ParameterPool):
        self._constant = 0.0
        zeros = np.zeros(pool.num_trained)
        self._slope, self._curvature, self._log, self._log_square = (zeros.copy() for _ in "1234")
        self._tiny = torch.finfo(values.dtype).tiny  # where softplus underflows to zero
        rounding = 1e-12 if values.dtype == torch.float64 else 1e-5
        priors = [(prior, get, module) for _, module, prior, get, _ in model.named_priors()]
        start = values.clone()
        steps = torch.arange(len(start)).to(start)
        waves = 2 + steps.cos() + (1.7 * steps).sin()  # all different
        given = [get(module).detach().clone() for _, get, module in priors]
        moved, naturals = [], []
        try:
            for move in _MOVES:
                values.copy_(start + move * waves)
                naturals.append(pool.natural())
                moved.append([to_numpy(get(module)).ravel().copy() for _, get, module in priors])
        finally:
            values.copy_(start)
        for (prior, _, _), value, seen in zip(priors, given, zip(*moved, strict=True), strict=True):
            if all(np.array_equal(to_numpy(value).ravel(), one) for one in seen):  # not trained
                self._constant += prior.log_prob(value).sum().item()
                continue
            spans = [span for span in pool.spans if span.stop - span.start == value.numel()]
            for natural, one in zip(naturals, seen, strict=True):
                difference = rounding * np.abs(one)
                spans = [s for s in spans if (np.abs(natural[s] - one) <= difference).all()]
            require(len(spans) == 1, "a prior that is not on a parameter")
            self._add(prior, spans[0], value)
        self._indices = np.flatnonzero((self._log != 0) | (self._log_square != 0))
        self._log, self._log_square = self._log[self._indices], self._log_square[self._indices]

    def take_from(self, natural: np.ndarray, gradient: np.ndarray) -> float:
        """Return the log density, and subtract its gradient (natural values) from ``gradient``."""
        curved = self._curvature * natural
        value = self._constant + natural @ (self._slope + curved)
        gradient -= self._slope + 2 * curved
        if self._indices.size:
            positive = np.maximum(natural[self._indices], self._tiny)
            logs = np.log(positive)
            curved = self._log_square * logs
            value += logs @ (self._log + curved)
            gradient[self._indices] -= (self._log + 2 * curved) / positive
        return float(value)

    def _add(self, prior: Prior, span: slice, like: Tensor) -> None:
        def parameter(value: Tensor) -> np.ndarray:
            return to_numpy(value.expand_as(like)).ravel()

        require(getattr(prior, "_transform", None) is None, "a transformed prior")
        if type(prior) is ShrunkLogNormalPrior:
            self._slope[span] -= prior.rate
            self._constant += like.numel() * math.log(prior.rate)
            prior = prior.log_normal
        if type(prior) is GammaPrior:
            shape, rate = parameter(prior.concentration), parameter(prior.rate)
            self._log[span] += shape - 1
            self._slope[span] -= rate
            constant = shape * np.log(rate) - parameter(prior.concentration.lgamma())
        else:
            known = (NormalPrior, LogNormalPrior, gpytorch.priors.LogNormalPrior)
            require(type(prior) in known, f"a {type(prior).__name__}")
            location, scale = parameter(prior.loc), parameter(prior.scale)
            precision = scale**-2
            constant = -0.5 * location**2 * precision - np.log(scale)
            constant -= 0.5 * math.log(2 * math.pi)
            if type(prior) is NormalPrior:
                self._slope[span] += location * precision
                self._curvature[span] -= 0.5 * precision
            else:
                self._log[span] += location * precision - 1
                self._log_square[span] -= 0.5 * precision
        self._constant += float(constant.sum())
