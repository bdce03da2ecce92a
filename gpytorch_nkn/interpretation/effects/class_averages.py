"""Averages of the predicted probability of a class over rows of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpytorch_nkn.interpretation.effects.averages import Averages, contrast
from gpytorch_nkn.interpretation.source import fitted_gp

__all__ = ["ClassAverages"]


class ClassAverages(Averages):
    r"""Posterior of averages over rows of the predicted probability :math:`\hat p` of a class.

    A linear function of the latent values :math:`f_k(x)` of the classes, with means
    :math:`\mu_k(x)`, approximates the probability with the correct variance at each :math:`x`:

    .. math:: p(x) \approx \hat p(x) + \sum_k c_k(x) (f_k(x) - \mu_k(x)), \qquad
        c_k(x) \propto \frac{\partial \hat p(x)}{\partial \mu_k(x)}

    Deviations :math:`f_k - \mu_k` sum to zero over the classes, because a row has one label.

    Args:
        estimator: A fitted classifier whose members have a Gaussian process for each class.
        code: Index of the class in ``classes_``.
    """

    largest, residuals, _task_column = 1.0, None, None

    def __init__(self, estimator: Any, code: int):
        self._estimator, self._code = estimator, code
        self._processes = [fitted_gp(model) for model in estimator.processes]

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Return the predicted probability ``...`` at inputs ``... x D``."""
        rows = self._rows(x).reshape(-1, x.shape[-1])
        return self._estimator.class_probabilities(rows)[self._code].reshape(x.shape[:-1])

    def contrast(self, points: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``A``, as :meth:`Averages.contrast` does."""
        mean = self.mean(points).mean(-1) - self.mean(base).mean()
        points, base = self._rows(points), self._rows(base)
        values, slopes = self._linearised(points)
        base_values, base_slopes = self._linearised(base[None])
        weights = self._estimator.weights_ / self._estimator.weights_.sum()
        variance = weights @ (values.mean(-1) - base_values.mean(-1) - mean) ** 2
        for weight, gp, *pair in zip(weights, self._processes, slopes, base_slopes, strict=True):
            _, variances = contrast(gp, points, base, pair)  # K x A
            variance += weight * variances.clamp_min(0).sum(0).cpu().numpy()
        return mean, np.sqrt(variance)

    def _rows(self, x: np.ndarray) -> np.ndarray:
        return (x - self._estimator.x_offset_) / self._estimator.x_scale_

    def _linearised(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values ``R x ...`` and slopes ``R x K x ...`` of R members at rows ``... x D``."""
        arrays = self._estimator.linearised(rows.reshape(-1, rows.shape[-1]), self._code)
        values, slopes = (v.reshape(*v.shape[:-1], *rows.shape[:-1]) for v in arrays)
        return values, slopes
