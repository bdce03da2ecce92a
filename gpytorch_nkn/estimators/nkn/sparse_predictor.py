"""Predictions of a trained Gaussian process given too many rows for exact inference."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.models import ExactGP
from scipy.stats import norm
from torch import Tensor

from gpytorch_nkn.estimators.nkn.local_residuals import LocalResiduals
from gpytorch_nkn.fit import Rows

__all__ = ["SparsePredictor", "sparse_predictors"]

_ROWS_PER_POINT = 20  # least ratio of rows to inducing points for held-out rows
_HELD_OUT = 2000  # largest number of held-out rows
_CHUNK = 2000  # rows whose covariances with inducing points are in memory
_LOCAL_SHARE = 0.4  # fraction of the remaining time for the training of the local process
_PROBE = 500  # rows at which the sensitivity to the columns is measured


class SparsePredictor:
    """Inducing points given all rows and, for many rows, a local process of the residuals.

    The inducing points have Titsias' posterior at the hyperparameters of an exact GP
    (:class:`.SparseNKNGP`). The local process is kept if it predicts held-out rows better
    (:class:`LocalResiduals`). Inducing points are ``m x D``; ``held_out`` are rows that are not
    among the other rows, if any; ``seed`` is for the local process.
    """

    def __init__(
        self,
        model: ExactGP,
        points: Tensor,
        rows: Rows,
        held_out: Rows | None,
        seed: int,
        cat_dims: Sequence[int] = (),
    ):
        self.model = model.eval()
        self._points, self._seed, self._cat_dims = points, seed, tuple(cat_dims)
        self._rows: Rows | None = rows  # until predictions are prepared
        self.rows_held_out = held_out
        self._learned = getattr(model.likelihood, "second_noise", model.likelihood.noise).detach()
        self._posterior: Any = None  # of the inducing values, once predictions are prepared
        self._local: LocalResiduals | None = None
        self._found: np.ndarray | None = None  # predictions of held-out rows

    @property
    def noise(self) -> float:
        """Noise variance of a new observation."""
        self.prepare()
        if self._local is None:
            return self.model.likelihood.noise.mean().item()
        return self._local.noise

    @torch.no_grad()
    def moments(self, x: Tensor, *, variance: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return the mean and variance ``M`` of the function at rows ``M x D``, without noise."""
        self.prepare()
        if self._local is not None:
            rest, own = self._local.moments(x)
            return self._mean(x) + rest, own
        if not variance:
            return self._mean(x), None
        parts = [self._joint(part) for part in x.split(_CHUNK)]
        return torch.cat([one.mean for one in parts]), torch.cat([one.variance for one in parts])

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance ``M x M`` of the function at rows ``M x D``, without noise."""
        self.prepare()
        if self._local is None:
            return self._joint(x).covariance_matrix
        return self._local.covariance(x)

    def _mean(self, x: Tensor) -> Tensor:
        """Return means ``M`` given the inducing values alone."""
        prior = self.model.covar_module, self.model.mean_module, self._points
        return torch.cat([self._posterior.mean_at(*prior, part) for part in x.split(_CHUNK)])

    def _joint(self, x: Tensor) -> MultivariateNormal:
        """Return the distribution given the inducing values alone."""
        prior = self.model.covar_module, self.model.mean_module, self._points
        return self._posterior.joint(*prior, x)

    def held_out(self) -> np.ndarray | None:
        """Return targets, means and variances ``3 x H`` of held-out rows, if any."""
        if self.rows_held_out is None:
            return None
        if self._found is None:
            rows = self.rows_held_out
            mean, variance = self.moments(rows.x)
            assert variance is not None
            noise = self.noise if rows.noise is None else self._learned + rows.noise
            self._found = torch.stack([rows.y, mean, variance + noise]).cpu().numpy()
        return self._found

    def prepare(self, end: float = math.inf) -> None:
        """Compute the posterior in one or two passes over the rows.

        Args:
            end: Time of the monotonic clock after which no local process is trained.
        """
        rows = self._rows
        if rows is None:
            return
        from gpytorch_nkn.models import CollapsedGP

        noise = self._learned if rows.noise is None else self._learned + rows.noise
        prior = self.model.covar_module, self.model.mean_module, self._points
        sparse = CollapsedGP(*prior, lambda: rows.x, rows.y, lambda: noise)
        begin = time.monotonic()
        with torch.no_grad():
            self._posterior = sparse.statistics().posterior(sparse.noise_variance())
        seconds = time.monotonic() - begin
        self._rows = None
        many = self.rows_held_out is not None
        many &= self._points.size(-1) > len(self._cat_dims)  # distances need numbers
        many &= rows.noise is None  # residuals have equal noise
        left = end - time.monotonic() - seconds  # time after a second pass
        if many and left > seconds:
            self._take_local(rows, None if math.isinf(left) else _LOCAL_SHARE * left)

    def _take_local(self, rows: Rows, budget: float | None) -> None:
        """Train the local process, and keep it if it predicts held-out rows better."""
        without = self._held_out_density()
        found = self._found
        assert self.model.train_inputs is not None
        some = self.model.train_inputs[0][:_PROBE].detach().clone().requires_grad_()
        with torch.enable_grad():
            (slopes,) = torch.autograd.grad(self._mean(some).sum(), some)
        try:
            with torch.no_grad():
                self._local = LocalResiduals(
                    rows.x.cpu().numpy(),
                    (rows.y - self._mean(rows.x)).cpu().numpy(),
                    slopes.square().mean(0).sqrt().cpu().numpy(),
                    self.model.train_targets,
                    seed=self._seed,
                    cat_dims=self._cat_dims,
                    budget=budget,
                )
        except RuntimeError:  # no training: predict by the inducing points alone
            return
        self._found = None
        if not self._held_out_density() > without:
            self._local, self._found = None, found

    def _held_out_density(self) -> float:
        found = self.held_out()
        assert found is not None
        targets, means, variances = found
        return float(norm.logpdf(targets, means, np.sqrt(variances)).mean())


def sparse_predictors(
    rows: Rows, count: int, seed: int, cat_dims: Sequence[int] = ()
) -> Callable[[ExactGP], SparsePredictor]:
    """Return a function that makes a model's sparse predictor, given rows ``N x D``.

    Inducing points are cluster centres or, with category codes, the rows of largest conditional
    variance. With 20 rows per inducing point, some rows are held out.
    """
    from gpytorch_nkn.models import select_inducing_points

    inputs, held_out = rows.x, None
    if len(rows) >= _ROWS_PER_POINT * count:
        rng = np.random.default_rng([seed, 1])
        is_held_out = np.zeros(len(rows), dtype=bool)
        is_held_out[rng.choice(len(rows), min(_HELD_OUT, len(rows) // 20), replace=False)] = True
        mask = torch.from_numpy(is_held_out).to(inputs.device)
        held_out, rows = rows[mask], rows[~mask]
    points = None if cat_dims else select_inducing_points(inputs, count, seed=seed)

    def predictor(model: ExactGP) -> SparsePredictor:
        own = points
        if own is None:
            own = select_inducing_points(inputs, count, kernel=model.covar_module, seed=seed)
        return SparsePredictor(model, own, rows, held_out, seed, cat_dims)

    return predictor
