"""What one would pick instead of a learned spectral kernel, tuned on the training part alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import (
    KFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler
from sklearn.svm import SVC, SVR

__all__ = ["REFERENCES", "climb", "fit_reference", "leave_one_out", "median_gamma"]

REFERENCES = {
    "rff_ridge": "tuned random features + ridge",
    "rff_logistic": "tuned random features + logistic regression",
    "svm": "tuned SVC / SVR with an RBF kernel",
    "boosting": "HistGradientBoosting, early stopping",
}
_FEATURES = 2000
_PENALTIES = tuple(10.0 ** (k / 2) for k in range(-10, 5))
_TUNING_ROWS, _SVM_ROWS, _FOLDS = 2000, 10_000, 3
_BOOSTING_ITERATIONS = 1000
_MEDIAN_ROWS = 1000
_MAX_STEPS = 8


def fit_reference(
    method: str, X: np.ndarray, y: np.ndarray, *, classes: bool, seed: int
) -> tuple[BaseEstimator, dict]:
    """Choose the settings of a method and train it.

    Args:
        method: Key of ``REFERENCES``.
        X: Inputs ``N x D``. Every method but the boosted trees centres them, and chooses whether
            to scale each column: those of images are better left in one unit.
        y: Classes or targets ``N``.
        classes: Which of the two.
        seed: Of random features, subsets and folds.

    Returns:
        What predicts, and the settings that were chosen.

    Raises:
        ValueError: Logistic regression of targets that are no classes.
    """
    if method == "boosting":
        boosting = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        model = boosting(early_stopping=True, max_iter=_BOOSTING_ITERATIONS, random_state=seed).fit(
            X, y
        )
        return model, {"iterations": int(model.n_iter_)}
    if method == "svm":
        return _svm(X, y, classes, seed)
    scale, gamma, penalty = _tune_ridge(X, y, classes, seed)
    sampler = RBFSampler(gamma=gamma, n_components=_FEATURES, random_state=seed)
    if method == "rff_ridge":
        linear = RidgeClassifier(alpha=penalty) if classes else Ridge(alpha=penalty)
        model = make_pipeline(StandardScaler(with_std=scale), sampler, linear)
        return model.fit(X, y), {"scaled": int(scale), "gamma": gamma, "penalty": penalty}
    if not classes:
        raise ValueError("Logistic regression needs classes, got targets for regression.")
    return _logistic(X, y, scale, gamma, seed)


def climb(score: Callable[[float], float], start: float, factor: float) -> float:
    """The best of ``start * factor**k``, walking uphill from ``start`` to the first maximum."""
    found = {k: score(start * factor**k) for k in (0, 1, -1)}
    step = 1 if found[1] > found[-1] else -1
    last = step
    while found[last] > found[last - step] and abs(last) < _MAX_STEPS:
        last += step
        found[last] = score(start * factor**last)
    return start * factor ** max(found, key=found.__getitem__)


def median_gamma(X: np.ndarray, seed: int) -> float:
    """One over the squared median distance of some rows."""
    rows = np.random.default_rng(seed).permutation(len(X))[:_MEDIAN_ROWS]
    distances = pairwise_distances(X[rows])[np.triu_indices(len(rows), 1)]
    return 1 / float(np.median(distances[distances > 0])) ** 2


def leave_one_out(
    features: np.ndarray, targets: np.ndarray, penalties: Sequence[float]
) -> list[np.ndarray]:
    """Ridge regression's predictions of each row by all others, ``N x K`` for each penalty.

    Args:
        features: ``N x F``; the intercept is not penalised.
        targets: ``N x K``.
        penalties: Of the squared norm of the coefficients, beside the sum of squared errors.
    """
    count = len(features)
    centered = features - features.mean(0)
    residual = targets - targets.mean(0)
    values, vectors = np.linalg.eigh(centered.T @ centered)
    rotated = centered @ vectors  # N x F, orthogonal columns
    projected = rotated.T @ residual
    squares = rotated**2
    found = []
    for penalty in penalties:
        shrinkage = 1 / (np.maximum(values, 0) + penalty)
        fitted = rotated @ (shrinkage[:, None] * projected)
        leverage = 1 / count + squares @ shrinkage
        found.append(targets - (residual - fitted) / np.maximum(1 - leverage, 1e-9)[:, None])
    return found


def _tune_ridge(
    X: np.ndarray, y: np.ndarray, classes: bool, seed: int
) -> tuple[bool, float, float]:
    """Scaling, width and penalty with the best accuracy, or least error, of rows left out."""
    targets = y[:, None]
    if classes:
        binarizer = LabelBinarizer(neg_label=-1)
        targets = binarizer.fit_transform(y)

    def best_penalty(inputs: np.ndarray, gamma: float) -> tuple[float, float]:
        sampler = RBFSampler(gamma=gamma, n_components=_FEATURES, random_state=seed)
        predictions = leave_one_out(sampler.fit_transform(inputs), targets, _PENALTIES)
        if classes:
            found = [np.mean(_decide(p, binarizer.classes_) == y) for p in predictions]
        else:
            found = [-np.mean((p - targets) ** 2) for p in predictions]
        return max(zip(found, _PENALTIES, strict=True))

    return _scaled_and_climbed(best_penalty, X, seed)


def _scaled_and_climbed(
    best_at: Callable[[np.ndarray, float], tuple[float, float]], X: np.ndarray, seed: int
) -> tuple[bool, float, float]:
    """Whether to scale columns, the width, and the third setting with the best score.

    Args:
        best_at: Gives, for inputs and a width, the best score and the setting that has it.
        X: Inputs ``N x D``.
        seed: Of the rows for the median rule.
    """
    found = []
    for scale in (True, False):
        inputs = StandardScaler(with_std=scale).fit_transform(X)
        best: dict[float, tuple[float, float]] = {}

        def score(gamma: float, inputs: np.ndarray = inputs, best: dict = best) -> float:
            best[gamma] = best_at(inputs, gamma)
            return best[gamma][0]

        gamma = climb(score, median_gamma(inputs, seed), 2.0)
        found.append((best[gamma][0], scale, gamma, best[gamma][1]))
    _, scale, gamma, setting = max(found)
    return scale, gamma, setting


def _decide(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Classes of scores ``N x K``, or ``N x 1`` for two classes."""
    if scores.shape[1] == 1:
        return classes[(scores[:, 0] > 0).astype(int)]
    return classes[scores.argmax(1)]


def _logistic(
    X: np.ndarray, y: np.ndarray, scale: bool, gamma: float, seed: int
) -> tuple[BaseEstimator, dict]:
    """Scaling and width of ridge regression; the penalty by a fifth of the rows, held out."""

    def make(strength: float) -> BaseEstimator:
        sampler = RBFSampler(gamma=gamma, n_components=_FEATURES, random_state=seed)
        linear = LogisticRegression(C=strength, max_iter=500)
        # L-BFGS stops far too early on features whose sizes are about 1 / sqrt(2000).
        return make_pipeline(StandardScaler(with_std=scale), sampler, StandardScaler(), linear)

    X = X.astype(np.float32)
    fit_X, held_X, fit_y, held_y = _hold_out(X, y, 0.2, seed)
    best = climb(lambda c: make(c).fit(fit_X, fit_y).score(held_X, held_y), 0.1, 10.0)
    return make(best).fit(X, y), {"scaled": int(scale), "gamma": gamma, "C": best}


def _svm(X: np.ndarray, y: np.ndarray, classes: bool, seed: int) -> tuple[BaseEstimator, dict]:
    """Settings by folds of 2,000 rows at most; trained on 10,000 at most."""

    def make(gamma: float, options: dict) -> BaseEstimator:
        if classes:
            return SVC(gamma=gamma, cache_size=500, **options)
        machine = SVR(gamma=gamma, cache_size=500, **options)
        return TransformedTargetRegressor(machine, transformer=StandardScaler())

    grid: list[dict] = [{"C": c} for c in (1.0, 10.0, 100.0, 1e3, 1e4)]
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    if not classes:
        folds = KFold(_FOLDS, shuffle=True, random_state=seed)
        grid = [{"C": c, "epsilon": e} for c in (0.1, 1.0, 10.0, 100.0, 1e3) for e in (0.2, 0.05)]
    few_X, few_y = _subset(X, y, _TUNING_ROWS, classes, seed)

    def best_options(inputs: np.ndarray, gamma: float) -> tuple[float, float]:
        found = [
            cross_val_score(make(gamma, options), inputs, few_y, cv=folds).mean()
            for options in grid
        ]
        return max((value, -i) for i, value in enumerate(found))

    scale, gamma, number = _scaled_and_climbed(best_options, few_X, seed)
    options = grid[-int(number)]
    X, y = _subset(X, y, _SVM_ROWS, classes, seed)
    model = make_pipeline(StandardScaler(with_std=scale), make(gamma, options)).fit(X, y)
    return model, {"scaled": int(scale), "gamma": gamma, **options, "rows": len(y)}


def _subset(
    X: np.ndarray, y: np.ndarray, size: int, classes: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    if len(y) <= size:
        return X, y
    if classes:
        splitter = StratifiedShuffleSplit(1, train_size=size, random_state=seed)
        rows, _ = next(splitter.split(X, y))
    else:
        rows = np.random.default_rng(seed).permutation(len(y))[:size]
    return X[rows], y[rows]


def _hold_out(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, ...]:
    smallest = np.unique(y, return_counts=True)[1].min()
    enough = smallest >= math.ceil(1 / share)
    return train_test_split(
        X, y, test_size=share, random_state=seed, stratify=y if enough else None
    )
