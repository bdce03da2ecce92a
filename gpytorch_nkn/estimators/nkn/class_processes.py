"""Gaussian processes of classes, and their posteriors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood
from gpytorch.means import ConstantMean
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor

from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.nkn.ensemble import release_some
from gpytorch_nkn.estimators.nkn.table_models import LatentGP, laplace_model
from gpytorch_nkn.fit import Rows
from gpytorch_nkn.linalg import ExactPosterior, solve_lower

__all__ = [
    "MAX_ROWS",
    "ClassProcesses",
    "LabelProcesses",
    "by_class",
    "class_model",
    "class_rows",
    "expected_scores",
    "label_model",
    "label_rows",
    "stratified",
]

MAX_ROWS = 4000  # largest number of rows that predictions are conditioned on

# Log-normal approximations of gamma variables with two shapes: variances of the logarithms, and
# half of the difference between their means.
_SHAPES = np.array([1.01, 0.01])
_LOG_VARIANCES = np.log(1 / _SHAPES + 1)
_TARGET = float((np.log(_SHAPES) - _LOG_VARIANCES / 2) @ [0.5, -0.5])
_FACTORS = 4.0 ** np.arange(5)  # candidate factors of the kernel


class _Processes:
    """A Gaussian process for each class.

    Scores are logarithms of class probabilities, up to a constant.

    Attributes:
        model: Exact GPs of the classes with this posterior.
    """

    model: LatentGP

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances ``K x M`` of the latent values at rows ``M x d``."""
        parts = []
        # the classes share the kernel
        for rows, between in ConditionedGP(by_class(self.model)[0]).cross(x):
            parts.append(self._moments(rows, between))
        means, variances = zip(*parts, strict=True)
        return torch.cat(means, 1), torch.cat(variances, 1)

    def predict(self, x: Tensor) -> np.ndarray:
        """Return scores ``K x M`` at rows ``M x d``."""
        return expected_scores(*self.moments(x))

    def _moments(self, x: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
        """Return :meth:`moments`, given covariances ``M x N`` with the training rows."""
        raise NotImplementedError


class ClassProcesses(_Processes):
    """Exact GPs of the classes given rows with targets ``K x N``; a factor scales the kernel."""

    def __init__(self, trained: LatentGP, rows: Rows, factor: float = 1.0):
        rows.set_on(trained)
        self._trained = trained.eval()
        self._set(factor)

    def _set(self, factor: float) -> None:
        self._factor = factor
        self.model = self._trained if factor == 1 else _scaled(self._trained, factor)
        self._posterior: _SharedPosterior | None = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_posterior": None}

    def like(self, trained: LatentGP, rows: Rows) -> ClassProcesses:
        """Return processes of another model, with the same factor."""
        return ClassProcesses(trained, rows, self._factor)

    def calibrate(self) -> np.ndarray:
        """Choose the factor; return leave-one-out scores ``K x N`` of the rows.

        It minimises the log loss after the scores are multiplied by the best number. The logarithm
        of the factor has a standard normal prior, because on few rows a large factor often seems
        best by chance.
        """
        covariance = self._covariance(self._trained)
        labels = self._trained.train_targets.argmax(0).cpu().numpy()
        tried: list[tuple[float, float, np.ndarray]] = []
        for factor in _FACTORS:
            try:
                scores = expected_scores(*self._given(factor * covariance).leave_one_out())
            except torch.linalg.LinAlgError:
                if not tried:
                    raise
                break
            loss = _calibrated_loss(scores, labels) + np.log(factor) ** 2 / 2
            tried.append((loss, factor, scores))
            best = min(tried, key=lambda entry: entry[0])
            if best[1] < factor:
                break
        self._set(best[1])
        return best[2]

    def _covariance(self, model: LatentGP) -> Tensor:
        with torch.no_grad():
            return model.covar_module(model.train_inputs[0]).to_dense()

    def _given(self, covariance: Tensor) -> _SharedPosterior:
        model = self._trained
        level = model.mean_module.constant.detach()[:, None]
        return _SharedPosterior(covariance, model.train_targets, level, model.likelihood.noise)

    @torch.no_grad()
    def _moments(self, x: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
        if self._posterior is None:
            self._posterior = self._given(self._covariance(self.model))
        prior = self.model.covar_module(x, diag=True)
        variance = (prior - self._posterior.reduction(between)).clamp_min(0)
        return self._posterior.mean(between), variance


class LabelProcesses(_Processes):
    """GPs with Bernoulli likelihoods of the classes, by the Laplace approximation.

    They are conditioned on rows of a :func:`class_model`, or on some if there are many classes.
    """

    def __init__(self, trained: Any, rows: Rows):
        codes, rows = rows.y.argmax(0).cpu().numpy(), label_rows(rows)
        most = int(MAX_ROWS / len(rows.y) ** (1 / 3))
        rows[torch.from_numpy(stratified(codes, most, 0))].set_on(trained.train())
        self.model = _of_classes(trained.eval())
        processes = by_class(self.model)
        # Two processes differ only in sign.
        self._classes = [ConditionedGP(process) for process in processes[len(processes) == 2 :]]

    def like(self, trained: Any, rows: Rows) -> LabelProcesses:
        """Return processes of another model."""
        return LabelProcesses(trained, rows)

    def calibrate(self) -> np.ndarray:
        """Return leave-one-out scores ``K x N`` of the rows."""
        return expected_scores(*self._stacked(ConditionedGP.leave_one_out))

    def _moments(self, x: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
        return self._stacked(partial(ConditionedGP.moments_given, x=x, between=between))

    def _stacked(self, moments: Callable[[ConditionedGP], Any]) -> tuple[Tensor, Tensor]:
        results = []
        for process in self._classes:
            results.append(moments(process))
            release_some(self._classes)
        means, variances = (torch.stack(parts) for parts in zip(*results, strict=True))
        if len(means) == 1:
            return torch.cat([-means, means]), variances.expand(2, -1)
        return means, variances


class _SharedPosterior:
    r"""Posteriors of K processes with the same covariance and different noise at N rows.

    Most noise variances have the largest value :math:`b`. With :math:`P = (C + b I)^{-1}`, and
    :math:`E` the columns of the identity for the ``n`` rows with smaller noise :math:`b - d`:

    .. math::
        (C + R_k)^{-1} = P + P E (\operatorname{diag}(1 / d) - E^\top P E)^{-1} E^\top P

    The cost is :math:`N^3`, and :math:`n^2 N` for each process.

    Args:
        covariance: Covariance :math:`C`, ``N x N``.
        targets, noise: Targets and their noise variances ``K x N``.
        level: Prior means ``K x 1``.
    """

    def __init__(self, covariance: Tensor, targets: Tensor, level: Tensor, noise: Tensor):
        self._targets, self._level, self._noise, most = targets, level, noise, noise.max()
        added = covariance + most * torch.eye(len(covariance)).to(covariance)
        self._inverse = ExactPosterior(added, targets[0]).precision
        alphas, self._corrections = [], []
        for row_noise, alpha in zip(noise, (targets - level) @ self._inverse, strict=True):
            rows = (row_noise < most).nonzero()[:, 0]
            inner = (1 / (most - row_noise[rows])).diag() - self._inverse[rows][:, rows]
            factor = torch.linalg.cholesky(inner)
            half = solve_lower(factor, self._inverse[rows])  # n x N
            alphas.append(alpha + half.mT @ solve_lower(factor, alpha[rows, None])[:, 0])
            self._corrections.append((rows, factor))
        self.alpha = torch.stack(alphas)  # K x N

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return means and variances ``K x N`` of the latent value at each row given the others."""
        precision = self._quadratic(self._inverse, self._inverse.diagonal())
        return self._targets - self.alpha / precision, 1 / precision - self._noise

    def mean(self, cross: Tensor) -> Tensor:
        """Return posterior means ``K x M`` for cross covariances ``M x N``."""
        return self._level + self.alpha @ cross.mT

    def reduction(self, cross: Tensor) -> Tensor:
        """Return prior minus posterior variances ``K x M`` for cross covariances ``M x N``."""
        solved = self._inverse @ cross.mT
        return self._quadratic(solved, (cross.mT * solved).sum(0))

    def _quadratic(self, solved: Tensor, values: Tensor) -> Tensor:
        """Return quadratic forms ``K x M`` of the inverses in vectors.

        ``solved`` is P times the vectors, ``N x M``; ``values`` are their quadratic forms in P.
        """
        return torch.stack(
            [
                values + solve_lower(factor, solved[rows]).square().sum(0)
                for rows, factor in self._corrections
            ]
        )


def expected_scores(mean: Tensor, variance: Tensor) -> np.ndarray:
    r"""Return logarithms ``K x M`` of expected probabilities, up to a constant.

    .. math:: \log p_k \approx \mu_k / \sqrt{1 + \pi v_k / 8} + \text{const}

    Reference: MacKay (1992), The evidence framework applied to classification networks.
    """
    return (mean / (1 + torch.pi / 8 * variance.clamp_min(0)).sqrt()).cpu().numpy()


def _calibrated_loss(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the total log loss of scores ``K x N``, multiplied by the best number."""

    def loss(log_factor: float) -> float:
        logs = log_softmax(np.exp(log_factor) * scores, axis=0)
        return -logs[labels, np.arange(len(labels))].sum()

    return float(minimize_scalar(loss, bounds=(-3, 3), method="bounded").fun)


def stratified(labels: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Return indices of at most ``most`` random rows, stratified by class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    rows = pd.Series(order).groupby(labels[order])
    share = rows.cumcount() / rows.transform("size")  # fraction of the class before a row
    return np.sort(order[np.argsort(share, kind="stable")[:most]])


def class_rows(x: Tensor, labels: np.ndarray, num_classes: int) -> Rows:
    """Return rows of a :func:`class_model` for codes ``N``.

    Targets ``K x N`` are positive for the class of the row. Targets and noise variances are moments
    of the logarithms of log-normal variables. These match the moments of gamma variables with shape
    1.01 for the class of the row and 0.01 for the others.
    """
    one_hot = labels == np.arange(num_classes)[:, None]
    y, noise = np.where(one_hot, _TARGET, -_TARGET), np.where(one_hot, *_LOG_VARIANCES)
    return Rows(x, torch.as_tensor(y).to(x), torch.as_tensor(noise).to(x))


def class_model(rows: Rows, kernel: Kernel) -> LatentGP:
    """Make exact GPs of the classes with a shared kernel."""
    mean = ConstantMean(batch_shape=rows.y.shape[:-1]).initialize(constant=rows.y.mean(-1))
    assert rows.noise is not None
    return LatentGP(rows.x, rows.y, rows.noise, mean, kernel)


def label_model(rows: Rows, kernel: Kernel) -> Any:
    """Make Bernoulli GPs of each class against the others, with a shared kernel.

    For two classes, only the process of the second class is needed.
    """
    rows = label_rows(rows)
    levels = torch.special.ndtri(rows.y.mean(-1))
    mean = ConstantMean(batch_shape=levels.shape).to(rows.y).initialize(constant=levels)
    mean.requires_grad_(not any(parameter.requires_grad for parameter in kernel.parameters()))
    return laplace_model(rows, kernel, mean, BernoulliLikelihood())


def label_rows(rows: Rows) -> Rows:
    """Convert rows of a :func:`class_model` to rows of a :func:`label_model`."""
    y = rows.y[1:] if len(rows.y) == 2 else rows.y
    return Rows(rows.x, y.gt(0).to(y))


def _of_classes(model: Any) -> LatentGP:
    """Return exact GPs of the classes, with the posterior of a :func:`label_model`."""
    exact = LatentGP.of(model)
    if len(exact.train_targets) > 1:
        return exact
    parts = exact.train_targets, exact.mean_module.constant.detach()
    y, constant = (torch.cat([-part, part]) for part in parts)
    mean = ConstantMean(batch_shape=y.shape[:1]).to(y).initialize(constant=constant)
    noise = exact.likelihood.noise.expand(2, -1)
    return LatentGP(exact.train_inputs[0], y, noise, mean, exact.covar_module)


def _scaled(model: LatentGP, factor: float) -> LatentGP:
    """Multiply the kernel of exact GPs by a factor."""
    kernel = ScaleKernel(model.covar_module).to(model.train_targets)
    kernel.outputscale = factor
    data = model.train_inputs[0], model.train_targets, model.likelihood.noise
    return LatentGP(*data, model.mean_module, kernel)


def by_class(model: LatentGP) -> list[LatentGP]:
    """Return a process for each class."""
    processes = []
    parts = model.train_targets, model.likelihood.noise, model.mean_module.constant.detach()
    for y, noise, constant in zip(*parts, strict=True):
        mean = ConstantMean().to(y).initialize(constant=constant)
        processes.append(LatentGP(model.train_inputs[0], y, noise, mean, model.covar_module))
    return processes
