"""Forecasts that depend on all of a long series, by the Kalman filter."""

from __future__ import annotations

import time as clock
from copy import deepcopy

import numpy as np
import torch
from gpytorch.means import ZeroMean
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.estimators.series.markov import NotMarkovError, markov_processes
from gpytorch_nkn.kernels import DampedTrendKernel, IntegratedWienerKernel, WienerKernel
from gpytorch_nkn.linalg import StateSpace

__all__ = ["WALKS", "SeriesFilter"]

WALKS = (DampedTrendKernel, IntegratedWienerKernel, WienerKernel)
_GRID = 1e-3  # of a step, by which times may miss the grid
_GAPS = 4  # steps to an observation at most, on average
_PROBE = 512  # observations whose time is taken


class SeriesFilter:
    """A Gaussian process over equal steps of time, conditioned by a Kalman filter.

    Forecasts are those of the exact Gaussian process, up to what :func:`markov_processes` leaves
    out.

    Args:
        model: A trained process with a mean of zero, whose kernel and noise are copied.
        x: Scaled times ``N x 1``, in ascending order.
        step: Time between observations.
        moves: Walks start a step ahead of the first observation; else where they do.

    Raises:
        NotMarkovError: The process has no filter, or times are no grid.
    """

    def __init__(self, model: ExactGP, x: Tensor, step: float, *, moves: bool):
        times = x[:, 0].cpu().numpy()
        count = round((times[-1] - times[0]) / step)
        self._step = step = float(times[-1] - times[0]) / count  # more precisely
        self._last, self._start = float(times[-1]), float(times[0]) - step
        self._span = self._last - self._start
        if not isinstance(model.mean_module, ZeroMean) or x.size(-1) > 1:
            raise NotMarkovError("Needs a mean of zero and time alone.")
        self.places = self._places(times, self._start) - 1
        if self.places[-1] >= _GAPS * len(times) or (np.diff(self.places) < 1).any():
            raise NotMarkovError("Times are no grid, or most of it is empty.")
        self._kernel, self._noise = deepcopy(model.covar_module), model.likelihood.noise.item()
        for kernel in self._kernel.modules():
            if moves and isinstance(kernel, WALKS):
                kernel.initialize(origin=self._start)
        self._space: StateSpace | None = None
        self._state: tuple[np.ndarray, np.ndarray] | None = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_space": None}  # which holds functions

    @classmethod
    def of(
        cls,
        model: ExactGP,
        x: Tensor,
        y: Tensor,
        step: float,
        seconds: float,
        *,
        moves: bool,
    ) -> SeriesFilter | None:
        """The filter after targets ``N``; None without one, or if there is not enough time."""
        begin = clock.monotonic()
        try:
            made = cls(model, x, step, moves=moves)
            values = np.full(made.places[-1] + 1, np.nan)
            values[made.places] = y.cpu().numpy()
            space = made._filter()
            for number, part in enumerate(np.split(values, range(_PROBE, len(values), _PROBE))):
                space.observe(part)
                if number == 0:
                    taken = clock.monotonic() - begin
                    if taken * len(values) / _PROBE > seconds:
                        return None
        except (NotMarkovError, np.linalg.LinAlgError):
            return None
        made._state = space.state
        return made

    def covers(self, x: Tensor) -> bool:
        """Whether rows ``M x 1`` are later than all observations, and on their grid."""
        times = x[:, 0].cpu().numpy()
        if x.size(-1) > 1 or not (times > self._last).all():
            return False
        try:
            return bool((self._places(times, self._last) > 0).all())
        except NotMarkovError:
            return False

    def forecast(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``M`` and covariance ``M x M`` of observations at rows that it covers."""
        steps, where = np.unique(
            self._places(x[:, 0].cpu().numpy(), self._last), return_inverse=True
        )
        mean, covariance = self._filter().forecast(steps)
        covariance = covariance[np.ix_(where, where)]
        covariance[np.diag_indices_from(covariance)] += self._noise
        return torch.as_tensor(mean[where]), torch.as_tensor(covariance)

    def _places(self, times: np.ndarray, start: float) -> np.ndarray:
        """Steps ``M`` to times from a start on."""
        steps = (times - start) / self._step
        places = np.rint(steps)
        if (np.abs(steps - places) > _GRID).any():
            raise NotMarkovError("Times are no grid.")
        return places.astype(int)

    def _filter(self) -> StateSpace:
        if self._space is None:
            processes = markov_processes(self._kernel, self._start, self._span, self._noise)
            self._space = StateSpace(processes, self._noise, self._step)
            if self._state is not None:
                self._space.state = self._state
        return self._space
