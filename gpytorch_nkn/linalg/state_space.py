"""Sums of Gaussian Markov processes, conditioned on observations in time linear in their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.linalg import block_diag, cho_solve, cholesky, expm, solve_triangular

__all__ = ["MarkovProcess", "StateSpace", "product", "scaled", "stationary"]

# Bounds of the number of observations in a chunk, which is that of the states.
_CHUNK = (64, 1024)


@dataclass(frozen=True)
class MarkovProcess:
    """A Gaussian process that is a linear function of a Markov state.

    Attributes:
        output: ``H``, of ``b`` numbers: the value is ``H s`` for the state ``s``.
        initial: Covariance ``b x b`` of the state at the start, where its mean is zero.
        transition: Maps time differences ``T`` to transition matrices ``T x b x b``.
        noise: Maps time differences ``T`` to the covariances ``T x b x b`` of the process noise.
        is_fixed: There is no process noise, and the state is stationary.
        is_stationary: The covariance of the state is constant.
    """

    output: np.ndarray
    initial: np.ndarray
    transition: Callable[[np.ndarray], np.ndarray]
    noise: Callable[[np.ndarray], np.ndarray]
    is_fixed: bool = False
    is_stationary: bool = False


def stationary(drift: np.ndarray, output: np.ndarray, covariance: np.ndarray) -> MarkovProcess:
    """Return the process ``ds = F s dt + noise`` with a constant covariance ``b x b`` of states.

    Args:
        drift: ``F``, ``b x b``.
        output: ``H``, ``b``.
        covariance: Covariance of the state.
    """

    @lru_cache(maxsize=4)  # products with many others ask for the same
    def exponential(time: bytes) -> np.ndarray:
        return expm(drift * np.frombuffer(time)[:, None, None])

    def transition(time: np.ndarray) -> np.ndarray:
        return exponential(time.tobytes())

    def noise(time: np.ndarray) -> np.ndarray:
        through = transition(time)
        return covariance - through @ covariance @ through.swapaxes(-1, -2)

    still = drift @ covariance + covariance @ drift.T
    is_fixed = bool(np.abs(still).max() <= 1e-12 * np.abs(drift).max() * np.abs(covariance).max())
    return MarkovProcess(output, covariance, transition, noise, is_fixed, is_stationary=True)


def product(left: MarkovProcess, right: MarkovProcess) -> MarkovProcess | None:
    """The process whose covariance is the product of two; ``None`` if its noise would vary.

    Its state is the Kronecker product of theirs.
    """
    both = left.is_stationary and right.is_stationary
    if not (both or left.is_fixed or right.is_fixed):
        return None
    initial = np.kron(left.initial, right.initial)

    def transition(time: np.ndarray) -> np.ndarray:
        return _kron(left.transition(time), right.transition(time))

    def noise(time: np.ndarray) -> np.ndarray:
        if left.is_fixed:
            return _kron(left.initial[None], right.noise(time))
        if right.is_fixed:
            return _kron(left.noise(time), right.initial[None])
        through = transition(time)
        return initial - through @ initial @ through.swapaxes(-1, -2)

    return MarkovProcess(
        np.kron(left.output, right.output),
        initial,
        transition,
        noise,
        is_fixed=left.is_fixed and right.is_fixed,
        is_stationary=both,
    )


def scaled(process: MarkovProcess, variance: float) -> MarkovProcess:
    """The process times the root of a variance."""
    return replace(process, output=np.sqrt(variance) * process.output)


class StateSpace:
    r"""A sum of independent Markov processes and white noise, observed at equal steps.

    The Kalman filter takes chunks of ``B`` observations, :math:`y = O s + e` for the state ``s``
    before them. For ``m`` states and ``N`` observations it takes :math:`O(N m^2)` operations and
    :math:`O(m^2)` memory if ``B`` is near ``m``. Covariances are updated in Joseph's form, which
    stays positive semi-definite under rounding. Missing observations are left out.

    Args:
        processes: The processes, which start a step ahead of the first observation.
        noise: Variance of the noise.
        step: Time between observations.

    Attributes:
        log_density: Natural logarithm of the density of all observations so far.

    Reference: Hartikainen and Sarkka (2010), Kalman filtering and smoothing solutions to temporal
    Gaussian process regression models; Sarkka and Solin (2019), Applied Stochastic Differential
    Equations, chapter 12.
    """

    def __init__(self, processes: Sequence[MarkovProcess], noise: float, step: float):
        self.noise = noise
        self._processes, self._step = list(processes), step
        self._mean = np.zeros(sum(len(process.output) for process in processes))
        self._covariance = block_diag(*(process.initial for process in processes))
        self._chunks: dict[int, _Ahead] = {}  # by the number of values
        self.log_density = 0.0

    @property
    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean ``m`` and covariance ``m x m`` of the state at the last observation."""
        return self._mean, self._covariance

    @state.setter
    def state(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        self._mean, self._covariance = value

    @property
    def num_states(self) -> int:
        """Numbers ``m`` in the state."""
        return len(self._mean)

    def observe(self, values: np.ndarray) -> None:
        """Condition on consecutive values ``N``, NaN where missing.

        Raises:
            numpy.linalg.LinAlgError: The covariance of a chunk is not positive definite.
        """
        size = min(max(self.num_states, _CHUNK[0]), _CHUNK[1])
        for begin in range(0, len(values), size):
            part = values[begin : begin + size]
            ahead = self._chunks.get(len(part)) or self._ahead(np.arange(1, len(part) + 1))
            self._chunks = {len(part): ahead}
            self._take(ahead, part)

    def forecast(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means ``M`` and covariances ``M x M`` of values without noise, some steps ahead.

        Args:
            steps: Ascending whole numbers ``M``, 1 for the value after the last observation.
        """
        ahead = self._ahead(steps)
        mean = ahead.observed @ self._mean
        return mean, ahead.observed @ self._covariance @ ahead.observed.T + ahead.own

    def _ahead(self, steps: np.ndarray) -> _Ahead:
        """The dependence of values some steps ahead on the present state."""
        lags = np.maximum(steps[None] - steps[:, None], 0)
        between, where = np.unique(lags, return_inverse=True)
        where = where.reshape(lags.shape)
        parts = []
        for process in self._processes:
            transition, noise = (
                of(self._step * steps) for of in (process.transition, process.noise)
            )
            later = process.transition(self._step * between)
            forward = noise @ process.output  # M x b: covariances of states with their values
            shared = np.einsum("iab,ib->ai", later[where[:, -1]], forward)
            seen = process.output @ later
            parts.append(
                (process.output @ transition, transition[-1], noise[-1], seen, forward, shared)
            )
        observed, through, added, seen, forward, shared = zip(*parts, strict=True)
        own = np.concatenate(forward, 1) @ np.concatenate(seen, 1).T  # M x lags
        own = np.triu(np.take_along_axis(own, where, 1))
        return _Ahead(
            np.concatenate(observed, 1),
            own + np.triu(own, 1).T,
            block_diag(*through),
            block_diag(*added),
            np.concatenate(shared),
        )

    def _take(self, ahead: _Ahead, values: np.ndarray) -> None:
        seen = ~np.isnan(values)
        observed, shared = ahead.observed[seen], ahead.shared[:, seen]
        own = ahead.own[np.ix_(seen, seen)] + self.noise * np.eye(int(seen.sum()))
        across = self._covariance @ observed.T  # m x B
        factor = cholesky(observed @ across + own, lower=True)
        error = values[seen] - observed @ self._mean
        gain = cho_solve((factor, True), (ahead.through @ across + shared).T).T
        white = solve_triangular(factor, error, lower=True)
        self.log_density -= 0.5 * (white @ white + len(error) * np.log(2 * np.pi))
        self.log_density -= np.log(np.diag(factor)).sum()
        self._mean = ahead.through @ self._mean + gain @ error
        kept = ahead.through - gain @ observed
        mixed = gain @ shared.T
        covariance = kept @ self._covariance @ kept.T + ahead.added
        covariance += gain @ own @ gain.T - mixed - mixed.T
        self._covariance = (covariance + covariance.T) / 2


@dataclass(frozen=True)
class _Ahead:
    """How ``M`` later values, and the state at the last of them, depend on the present state.

    Attributes:
        observed: ``O``, ``M x m``.
        own: Covariance ``M x M`` of the values due to process noise.
        through: Transition ``m x m`` to the last value.
        added: Covariance ``m x m`` of the process noise until then.
        shared: Covariance ``m x M`` of that noise and the values.
    """

    observed: np.ndarray
    own: np.ndarray
    through: np.ndarray
    added: np.ndarray
    shared: np.ndarray


def _kron(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Kronecker products ``T x bc x bc`` of ``T x b x b`` and ``T x c x c``."""
    products = left[:, :, None, :, None] * right[:, None, :, None, :]
    return products.reshape(
        len(products), *(a * b for a, b in zip(left.shape[1:], right.shape[1:], strict=True))
    )
