"""Classification of tabular data with neural kernel networks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NotPSDError
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import log_softmax, ndtri, softmax
from scipy.stats import qmc
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from gpytorch_nkn.estimators.estimator import forgets_failures
from gpytorch_nkn.estimators.nkn.class_processes import (
    MAX_ROWS,
    ClassProcesses,
    LabelProcesses,
    class_model,
    class_rows,
    expected_scores,
    label_model,
    label_rows,
    stratified,
)
from gpytorch_nkn.estimators.nkn.ensemble import of_held_out_rows, warn_of_covariance
from gpytorch_nkn.estimators.nkn.table_estimator import TableEstimator
from gpytorch_nkn.estimators.nkn.table_models import LatentGP, named_structures, untrained_model
from gpytorch_nkn.estimators.table_input import encode_classes
from gpytorch_nkn.fit import FitResult, Recipe, Rows, Session, warn_of_size, warn_user

__all__ = ["NKNClassifier"]

_TRAINING_WORK = 3e9  # largest K N^3 of the training on N rows of K classes
_LABELLED_WORK = 1.5e9  # the same for Bernoulli models; two classes need one process: K = 1
_JUDGED_ROWS = 2000  # largest number of rows with leave-one-out predictions
_SHARE = 0.5  # largest fraction of a budget for the pooling of members
_POOLED = 2  # number of members whose pooling must fit into that fraction
_PROBE, _PROBED = 250, 0.01  # first number of rows, and fraction of that time, of a measurement
_LABELLED = ", labels"  # suffix of the names of Bernoulli models
_LEAST_WEIGHT = 0.02  # least weight of a network, relative to the largest
_LEAST_POWER = 1e-6  # lower bound of weights in the optimisation
_NO_POWER = 1e-100  # replaces weights near this bound; predictions are then class frequencies
_LEAST = 1e-9  # lower bound of the standard deviation of a linearised probability
_DRAWS = 64  # quasi-random latent values for the variance of a probability


class NKNClassifier(ClassifierMixin, TableEstimator):
    r"""Gaussian process classification on tabular data, with kernels that learn their structure.

    Tables are read and networks trained as in :class:`.NKNRegressor`. A logarithmic opinion pool
    combines the probabilities of the networks and the class frequencies, with weights learned from
    held-out rows. No option needs tuning.

    .. math:: \log p_k(x) = \log \pi_k + \sum_m w_m (\log p_{mk}(x) - \log \pi_k) + \text{const}

    For each class, a Gaussian process models the logarithm of a gamma variable. Normalised gamma
    variables have a Dirichlet distribution. The processes share the kernel. The marginal
    likelihood underestimates its scale if the classes are well separated. The kernel is therefore
    multiplied by a factor that minimises the leave-one-out log loss. For two classes or few rows,
    each network is also trained with Bernoulli likelihoods (one-vs-rest). These are better for
    noisy labels and additive functions. The cost for each class is cubic in the number of rows.
    Networks therefore learn from a random subset of at most 1,144 rows for two classes and 669 for
    ten; predictions use at most 4,000 rows. More rows give a warning.

    Args:
        structure: The networks, as in :class:`.NKNRegressor`, but ``"auto"`` uses ``"isotropic"``
            in place of ``"rbf"`` and ``"matern"``.
        restarts: Number of starts of each network.
        class_weight: Factor of the predicted probability of each label, for a population with other
            class frequencies. ``"balanced"`` divides by the frequencies of the fit, for a
            population with equal frequencies. ``None`` for no factors.
        budget: Wall time in seconds of a fit; ``None`` for no limit. If it is too short for the
            weights of the members, these use fewer rows, with a warning, or fewer members.
        <shared training>
        <shared computation>

    Attributes:
        classes_: The labels, sorted.
        <shared attributes>
        weights_: Weights of the members. Their sum, which may exceed 1, is an exponent that
            calibrates the probabilities.
        model_: The member with the largest weight; its inputs are standardised columns. It has a
            Gaussian process for each class, whose targets are positive for rows of the class.
        held_out_log_loss_: Mean log loss of held-out rows of the fit. With 15 or more rows, they
            determine the weights of the networks, and with other rows the factors of the kernels,
            but not the hyperparameters. The loss of new rows is therefore somewhat larger.
        held_out_: Labels ``N`` of the held-out rows, as indices in ``classes_``, and predicted
            class probabilities ``N x K``, without ``class_weight``.

    Ctrl-C and the budget end the training; the best parameters so far are used.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
        >>> classifier = NKNClassifier("tabular", restarts=1, random_state=0).fit(X, y)
        >>> classifier.predict([[1, 1], [1, -1]]).tolist()
        ['same', 'other']

    Reference: Milios, Camoriano, Michiardi, Rosasco and Filippone (2018), Dirichlet-based Gaussian
    processes for large-scale calibrated classification; Genest and Zidek (1986), Combining
    probability distributions, for the pool.
    """

    class_weight: Any
    classes_: np.ndarray
    _private_state = ("_base", "_class_factors", "_predictors")

    def __init__(
        self,
        structure: str | Kernel | Sequence[str | Kernel] = "auto",
        *,
        restarts: int = 2,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self._set_options(locals())

    @forgets_failures
    def fit(self, X: ArrayLike, y: ArrayLike) -> NKNClassifier:
        """Learn from a table.

        Args:
            X: Rows ``N x D``, an array or a data frame.
            y: Labels ``N``, numbers or strings.

        Raises:
            ValueError, TypeError: The data or an option are invalid.
            RuntimeError: Every start of every network failed.
            KeyboardInterrupt: Ctrl-C was pressed before the first training step.
        """
        structures = self._check_parameters()
        session = Session(budget=self.budget)
        rows, labels = self._read(X, y, structures)
        self.classes_, labels = encode_classes(labels)
        weighted = self.class_weight if isinstance(self.class_weight, dict) else {}
        if unknown := [label for label in weighted if label not in self.classes_.tolist()]:
            raise ValueError(
                f"class_weight must have labels of y, {self.classes_.tolist()}, got {unknown}."
            )
        factors = compute_class_weight(
            self.class_weight, classes=self.classes_, y=self.classes_[labels]
        )
        if not (np.isfinite(factors).all() and (factors >= 0).all() and factors.sum() > 0):
            raise ValueError(
                "class_weight must be finite, at least 0 and positive for some class, got "
                f"{factors.tolist()}."
            )
        self._class_factors = factors
        advice = "a random subset of each class is used, because time is cubic in their number."
        warn_of_size(type(self).__name__, len(labels), MAX_ROWS, advice)
        kept = stratified(labels, MAX_ROWS, self._seed)
        x, labels, number = self._gaps.expected(rows[kept]), labels[kept], len(self.classes_)
        data, seconds = class_rows(self._tensor(x), labels, number), 0.0
        counts = np.bincount(labels, minlength=number)
        if session.budget is not None:
            rows, seconds = self._affordable(structures, data, labels, session)
            data, labels = data[torch.from_numpy(rows)], labels[rows]
        learned = stratified(labels, int((_TRAINING_WORK / number) ** (1 / 3)), self._seed)
        is_cheap = len(label_rows(data).y) * len(learned) ** 3 <= _LABELLED_WORK
        named = named_structures(structures, len(learned), x.shape[1], ["isotropic"])
        makers = {"": class_model} | ({_LABELLED: label_model} if is_cheap else {})
        later = min(
            seconds * len(named) * len(makers) * self.restarts, _SHARE * session.seconds_left
        )
        results = self._train(
            named,
            data[torch.from_numpy(learned)],
            budget=session.part(1 - later / max(session.seconds_left, 1e-9)),
            makers=makers,
        )
        judged = stratified(labels, max(_JUDGED_ROWS, len(learned)), self._seed)
        is_new = ~np.isin(judged, learned)
        used = self._pool(results, data[torch.from_numpy(judged)], is_new, counts, session)
        self._predictors = [
            processes  # given the rows from which the weights were learned
            if session.is_over and isinstance(processes, LabelProcesses)
            else processes.like(results[name].members[number], data)
            for (name, number), processes in zip(self.members_, used, strict=True)
        ]
        self.model_ = self._predictors[int(self.weights_.argmax())].model
        self.results_ = results
        return self

    def _affordable(
        self, structures: Sequence[str | Kernel], data: Rows, labels: np.ndarray, session: Session
    ) -> tuple[np.ndarray, float]:
        """Return the rows for which the budget suffices, and the seconds to pool a member.

        The time is cubic in the number of rows, and measured on some of them.
        """
        limit, count, seconds = max(_SHARE * session.seconds_left, 1e-3), _PROBE // 2, 0.0
        structure = structures[0] if structures != ["auto"] else "tabular"
        while count < len(labels) and seconds <= _PROBED * limit:
            count, seconds = 2 * count, math.inf
            probe = data[torch.from_numpy(stratified(labels, count, self._seed))]
            for _ in range(2):  # the first call takes longer
                begin = time.monotonic()
                with suppress(torch.linalg.LinAlgError, NotPSDError):
                    model = untrained_model(structure, probe, self._cat_dims, class_model)
                    ClassProcesses(model, probe).calibrate()
                seconds = min(seconds, time.monotonic() - begin)
        cubic = max(seconds, 1e-9) / min(count, len(labels)) ** 3
        most = max(int((limit / (_POOLED * cubic)) ** (1 / 3)), _PROBE)
        if most < len(labels):
            warn_user(
                f"A budget of {session.budget:g} seconds suffices for {most} of {len(labels)} "
                "rows; a random subset of each class is used."
            )
        rows = stratified(labels, most, self._seed)
        return rows, cubic * min(len(rows), _JUDGED_ROWS) ** 3

    def _pool(
        self,
        results: Mapping[str, FitResult],
        data: Rows,
        is_new: np.ndarray,
        counts: np.ndarray,
        session: Session,
    ) -> list[ClassProcesses | LabelProcesses]:
        """Learn the weights of the members from held-out rows; return those with enough weight.

        ``is_new`` is the mask ``N`` of rows in ``data`` on which no network was trained; ``counts``
        are numbers ``K`` of rows by class.
        """
        members: list[tuple[str, int]] = []
        processes: list[ClassProcesses | LabelProcesses] = []
        labels, tables, masks = data.y.argmax(0).cpu().numpy(), [], []
        for member in [(name, number) for name, fit in results.items() for number in fit.members]:
            if members and session.is_over:
                break
            start, held_out = results[member[0]].before_held_out(member[1])
            mask = is_new.copy()
            mask[~is_new] = held_out
            try:
                make = ClassProcesses if isinstance(start, LatentGP) else LabelProcesses
                made = make(start, data)
                scores = made.calibrate()
            except (torch.linalg.LinAlgError, NotPSDError):
                warn_of_covariance(member[0])
                continue
            except KeyboardInterrupt:
                if members:
                    break
                raise
            members.append(member)
            processes.append(made)
            tables.append(scores)
            masks.append(mask)
        if not members:
            raise RuntimeError("No trained network has a positive definite covariance matrix.")
        networks = [name for name, _ in members]
        table, rows = of_held_out_rows(networks, np.stack(tables, 1), np.stack(masks))
        scores, labels = table.swapaxes(0, 1), labels[rows]
        self._base = np.log((counts + 0.5) / (counts + 0.5).sum())[:, None]
        weights = _pooling_weights(scores - self._base, self._base, labels)
        used = np.flatnonzero(weights >= _LEAST_WEIGHT * weights.max())
        self.members_ = [members[index] for index in used]
        self.weights_ = weights[used]
        pooled = self._pooled(scores[used])
        self.held_out_ = labels, pooled.T
        self.held_out_log_loss_ = float(-np.log(pooled[labels, np.arange(len(labels))]).mean())
        return [processes[index] for index in used]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict class probabilities ``M x K``, in the order of ``classes_``.

        Args:
            X: Rows ``M x D``.
        """
        rows, indices = self._drawn(X)
        return self._weighted(self._mixed(self._tensor(rows))[:, indices].mean(1)).T

    def class_probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Return class probabilities ``K x M`` at standardised rows ``M x d`` without gaps."""
        return self._weighted(self._mixed(self._tensor(rows)))

    @property
    def processes(self) -> list[ExactGP]:
        """Gaussian processes of the classes, for each member."""
        return [predictor.model for predictor in self._predictors]

    def linearised(self, rows: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
        r"""Return probabilities ``R x M`` of a class, and slopes ``R x K x M`` in latent values.

        The slopes are scaled so that the approximation has the variance of the probability, which
        is computed from quasi-random latent values.

        Args:
            rows: Standardised rows ``M x d``.
            code: Index of the class in ``classes_``.
        """
        normal = ndtri(qmc.Sobol(len(self._base), rng=0).random(_DRAWS)).T[..., None]  # K x S x 1
        # Deviations sum to zero over the classes, because a row has one label.
        normal = (normal - normal.mean(0)) * (len(normal) / (len(normal) - 1)) ** 0.5
        one_hot, power = np.eye(len(normal))[code][:, None], self.weights_.sum()
        values, slopes = [], []
        for predictor in self._predictors:
            mean, variance = predictor.moments(self._tensor(rows))
            base = (1 - power) * self._base
            scores = expected_scores(mean, variance)
            table = self._weighted(softmax(power * scores + base, axis=0))
            std = variance.clamp_min(0).sqrt().cpu().numpy()
            # The power calibrates the means; deviations from the means are not scaled.
            drawn = (power * mean.cpu().numpy() + base)[:, None] + std[:, None] * normal
            drawn = self._weighted(softmax(drawn, axis=0))[code]  # S x M
            slope = table[code] * (one_hot - table)
            linear = np.sqrt(((slope * std) ** 2).sum(0))
            values.append(table[code])
            slopes.append(slope * drawn.std(0) / np.maximum(linear, _LEAST))
        return np.stack(values), np.stack(slopes)

    def _weighted(self, probabilities: np.ndarray) -> np.ndarray:
        """Multiply probabilities ``K x ...`` by the factors of ``class_weight``, and normalise."""
        weighted = (probabilities.T * self._class_factors).T
        return weighted / weighted.sum(0)

    def _mixed(self, x: Tensor) -> np.ndarray:
        """Return calibrated probabilities ``K x M`` at standardised rows ``M x d``."""
        return self._pooled(np.stack([predictor.predict(x) for predictor in self._predictors]))

    def _pooled(self, scores: np.ndarray) -> np.ndarray:
        """Return probabilities ``K x M`` from scores ``R x K x M`` of the members."""
        return softmax(self._base + np.tensordot(self.weights_, scores - self._base, 1), axis=0)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable classes ``M`` of rows ``M x D``."""
        codes = self.predict_proba(X).argmax(1)  # raises an error before the fit
        return self.classes_[codes]


def _pooling_weights(scores: np.ndarray, base: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return weights ``R`` of scores ``R x K x N``, added to base scores ``K x 1``.

    They minimise the log loss with two normal priors. The sum of weights is near 1, because a large
    sum overfits classes that are separable by chance. Their fractions of the sum are near
    ``1 / R``, because the network that is best on few rows is often best by chance.
    """
    one_hot, count = np.eye(len(base))[labels].T, len(scores)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logs = log_softmax(base + np.tensordot(weights, scores, 1), axis=0)
        total = weights.sum()
        fractions = weights / total
        concentration = fractions @ fractions  # 1 / R if the weights are equal
        penalty = ((total - 1) ** 2 + count * concentration - 1) / 2
        slope = total - 1 + count * (fractions - concentration) / total
        slope = slope + np.tensordot(scores, np.exp(logs) - one_hot, 2)
        return penalty - (one_hot * logs).sum(), slope

    start, bounds = np.full(count, 1 / count), [(_LEAST_POWER, None)] * count
    weights = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.where(weights > 10 * _LEAST_POWER, weights, _NO_POWER)
