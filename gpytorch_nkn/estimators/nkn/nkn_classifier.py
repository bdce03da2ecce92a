"""Classification of tabular data with neural kernel networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import BernoulliLikelihood
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import log_softmax, ndtri, softmax
from scipy.stats import qmc
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.estimator import forgets_failures
from gpytorch_nkn.estimators.nkn.ensemble import of_held_out_rows, release_some
from gpytorch_nkn.estimators.nkn.table_estimator import TableEstimator
from gpytorch_nkn.estimators.nkn.table_models import LatentGP, laplace_model, named_structures
from gpytorch_nkn.estimators.table_input import encode_classes
from gpytorch_nkn.fit import FitResult, Recipe, Rows, Session, warn_of_size

__all__ = ["NKNClassifier", "by_class"]

_MAX_ROWS = 4000  # largest number of rows that predictions are conditioned on
_TRAINING_WORK = 3e9  # largest K N^3 of the training on N rows of K classes
_LABELLED_WORK = 1.5e9  # the same for Bernoulli models; two classes need one process: K = 1
_LABELLED = ", labels"  # suffix of the names of Bernoulli models
_LEAST_WEIGHT = 0.02  # least weight of a network, relative to the largest
_LEAST_POWER = 1e-6  # lower bound of weights in the optimisation
_NO_POWER = 1e-100  # replaces weights near this bound; predictions are then class frequencies
_LEAST = 1e-9  # lower bound of the standard deviation of a linearised probability
_DRAWS = 64  # quasi-random latent values for the variance of a probability
# Log-normal approximations of gamma variables with two shapes: variances of the logarithms, and
# half of the difference between their means.
_SHAPES = np.array([1.01, 0.01])
_LOG_VARIANCES = np.log(1 / _SHAPES + 1)
_TARGET = float((np.log(_SHAPES) - _LOG_VARIANCES / 2) @ [0.5, -0.5])
_Moments = tuple[Tensor, Tensor]  # means and variances K x M


class NKNClassifier(ClassifierMixin, TableEstimator):
    r"""Gaussian process classification on tabular data, with kernels that learn their structure.

    Tables are read and networks trained as in :class:`.NKNRegressor`. A logarithmic opinion pool
    combines the probabilities of the networks and the class frequencies, with weights learned from
    held-out rows. No option needs tuning.

    .. math:: \log p_k(x) = \log \pi_k + \sum_m w_m (\log p_{mk}(x) - \log \pi_k) + \text{const}

    For each class, a Gaussian process models the logarithm of a gamma variable. Normalised gamma
    variables have a Dirichlet distribution. The processes share the kernel. For two classes or few
    rows, each network is also trained with Bernoulli likelihoods (one-vs-rest).
    These are better for noisy labels and additive functions. The cost for each class is cubic in
    the number of rows. Networks therefore learn from a random subset of at most 1,144 rows for two
    classes and 669 for ten; predictions use at most 4,000 rows. More rows give a warning.

    Args:
        structure: The networks, as in :class:`.NKNRegressor`, but ``"auto"`` uses ``"isotropic"``
            in place of ``"rbf"`` and ``"matern"``.
        restarts: Number of starts of each network.
        class_weight: Factor of the predicted probability of each label, for a population with other
            class frequencies. ``"balanced"`` divides by the frequencies of the fit, for a
            population with equal frequencies. ``None`` for no factors.
        budget: Wall time in seconds of the training; ``None`` for no limit.
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
            determine the weights of the networks but not the hyperparameters. The loss of new rows
            is therefore somewhat larger.
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
        warn_of_size(type(self).__name__, len(labels), _MAX_ROWS, advice)
        kept = _stratified(labels, _MAX_ROWS, self._seed)
        x, labels, number = self._gaps.expected(rows[kept]), labels[kept], len(self.classes_)
        learned = _stratified(labels, int((_TRAINING_WORK / number) ** (1 / 3)), self._seed)
        data = _class_rows(self._tensor(x), labels, number)
        is_cheap = len(_labelled(data).y) * len(learned) ** 3 <= _LABELLED_WORK
        named = named_structures(structures, len(learned), x.shape[1], ["isotropic"])
        results = self._train(
            named,
            data[torch.from_numpy(learned)],
            budget=session.part(),
            makers={"": _class_model} | ({_LABELLED: _labelled_model} if is_cheap else {}),
        )
        best = self._pool(results, labels[learned], np.bincount(labels))
        for predictor in self._predictors:
            predictor.condition(data)
        self.model_ = best.model
        self.results_ = results
        return self

    def _pool(
        self, results: Mapping[str, FitResult], labels: np.ndarray, counts: np.ndarray
    ) -> _Predictor:
        """Learn the weights of the members from held-out rows; return the member with the largest.

        ``labels`` are codes of the training rows; ``counts`` are numbers ``K`` of rows by class.
        """
        members, tables, masks = [], [], []
        for name, result in results.items():
            for number, member in result.members.items():
                start, mask = result.before_held_out(number)
                members.append((name, number, _Predictor(member)))
                tables.append(_Predictor(start).leave_one_out())
                masks.append(mask)
        networks = [name for name, *_ in members]
        scores, rows = of_held_out_rows(networks, np.stack(tables, 1), np.stack(masks))
        scores, labels = scores.swapaxes(0, 1), labels[rows]
        self._base = np.log((counts + 0.5) / (counts + 0.5).sum())[:, None]
        weights = _pooling_weights(scores - self._base, self._base, labels)
        used = np.flatnonzero(weights >= _LEAST_WEIGHT * weights.max())
        self.members_ = [members[index][:2] for index in used]
        self.weights_ = weights[used]
        self._predictors = [members[index][2] for index in used]
        pooled = self._pooled(scores[used])
        self.held_out_ = labels, pooled.T
        self.held_out_log_loss_ = float(-np.log(pooled[labels, np.arange(len(labels))]).mean())
        return members[int(weights.argmax())][2]

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
            mean, variance = predictor.latent(self._tensor(rows))
            base = (1 - power) * self._base
            table = self._weighted(softmax(power * _scores(mean, variance) + base, axis=0))
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
        return self._pooled(np.stack([_scores(*member.latent(x)) for member in self._predictors]))

    def _pooled(self, scores: np.ndarray) -> np.ndarray:
        """Return probabilities ``K x M`` from scores ``R x K x M`` of the members."""
        return softmax(self._base + np.tensordot(self.weights_, scores - self._base, 1), axis=0)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable classes ``M`` of rows ``M x D``."""
        codes = self.predict_proba(X).argmax(1)  # raises an error before the fit
        return self.classes_[codes]


class _Predictor:
    """Class probabilities of a trained model, from a process for each class."""

    def __init__(self, trained: Any):
        self._trained = trained
        self._prepare()

    def _prepare(self) -> None:
        self.model = _of_classes(self._trained.eval())
        self._classes = [ConditionedGP(process) for process in by_class(self.model)]

    def condition(self, rows: Rows) -> None:
        """Condition on rows with targets ``K x N``."""
        if not isinstance(self._trained, LatentGP):
            codes, rows = rows.y.argmax(0).cpu().numpy(), _labelled(rows)
            most = int(_MAX_ROWS / len(rows.y) ** (1 / 3))
            rows = rows[torch.from_numpy(_stratified(codes, most, 0))]
        rows.set_on(self._trained.train())
        self._prepare()

    def leave_one_out(self) -> np.ndarray:
        """Return leave-one-out scores ``K x N`` of the rows."""
        return _scores(*self._stacked(ConditionedGP.leave_one_out))

    def latent(self, x: Tensor) -> _Moments:
        """Return means and variances ``K x M`` of the latent values at rows ``M x d``."""
        parts = []
        for rows, cross in self._classes[0].cross(x):  # the classes share the kernel
            parts.append(self._stacked(partial(ConditionedGP.moments_given, x=rows, between=cross)))
        means, variances = zip(*parts, strict=True)
        return torch.cat(means, 1), torch.cat(variances, 1)

    def _stacked(self, moments: Callable[[ConditionedGP], Any]) -> _Moments:
        results = []
        for process in self._classes:
            results.append(moments(process))
            release_some(self._classes)
        means, variances = zip(*results, strict=True)
        return torch.stack(means), torch.stack(variances)


def _scores(mean: Tensor, variance: Tensor) -> np.ndarray:
    r"""Return logarithms ``K x N`` of the expected softmax of latent values, up to a constant.

    .. math:: \log p_k \approx \mu_k / \sqrt{1 + \pi v_k / 8} + \text{const}

    Reference: MacKay (1992), The evidence framework applied to classification networks.
    """
    return (mean / (1 + torch.pi / 8 * variance.clamp_min(0)).sqrt()).cpu().numpy()


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


def _stratified(labels: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Return indices of at most ``most`` random rows, stratified by class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    rows = pd.Series(order).groupby(labels[order])
    share = rows.cumcount() / rows.transform("size")  # fraction of the class before a row
    return np.sort(order[np.argsort(share, kind="stable")[:most]])


def _class_rows(x: Tensor, labels: np.ndarray, num_classes: int) -> Rows:
    """Return rows of a :func:`_class_model` for codes ``N``.

    Targets ``K x N`` are positive for the class of the row. Targets and noise variances are moments
    of the logarithms of log-normal variables. These match the moments of gamma variables with shape
    1.01 for the class of the row and 0.01 for the others.
    """
    one_hot = labels == np.arange(num_classes)[:, None]
    y, noise = np.where(one_hot, _TARGET, -_TARGET), np.where(one_hot, *_LOG_VARIANCES)
    return Rows(x, torch.as_tensor(y).to(x), torch.as_tensor(noise).to(x))


def _class_model(rows: Rows, kernel: Kernel) -> LatentGP:
    """Make exact GPs of the classes with a shared kernel."""
    mean = ConstantMean(batch_shape=rows.y.shape[:-1]).initialize(constant=rows.y.mean(-1))
    assert rows.noise is not None
    return LatentGP(rows.x, rows.y, rows.noise, mean, kernel)


def _labelled_model(rows: Rows, kernel: Kernel) -> Any:
    """Make Bernoulli GPs of each class against the others, with a shared kernel.

    For two classes, only the process of the second class is needed.
    """
    rows = _labelled(rows)
    levels = torch.special.ndtri(rows.y.mean(-1))
    mean = ConstantMean(batch_shape=levels.shape).to(rows.y).initialize(constant=levels)
    return laplace_model(rows, kernel, mean.requires_grad_(False), BernoulliLikelihood())


def _labelled(rows: Rows) -> Rows:
    """Convert rows of a :func:`_class_model` to rows of a :func:`_labelled_model`."""
    y = rows.y[1:] if len(rows.y) == 2 else rows.y
    return Rows(rows.x, y.gt(0).to(y))


def _of_classes(model: Any) -> LatentGP:
    """Return exact GPs of the classes, with the posterior of a trained model."""
    exact = model if isinstance(model, LatentGP) else LatentGP.of(model)
    if len(exact.train_targets) > 1:
        return exact
    parts = exact.train_targets, exact.mean_module.constant.detach()
    y, constant = (torch.cat([-part, part]) for part in parts)
    mean = ConstantMean(batch_shape=y.shape[:1]).to(y).initialize(constant=constant)
    noise = exact.likelihood.noise.expand(2, -1)
    return LatentGP(exact.train_inputs[0], y, noise, mean, exact.covar_module)


def by_class(model: LatentGP) -> list[LatentGP]:
    """Return a process for each class."""
    processes = []
    parts = model.train_targets, model.likelihood.noise, model.mean_module.constant.detach()
    for y, noise, constant in zip(*parts, strict=True):
        mean = ConstantMean().to(y).initialize(constant=constant)
        processes.append(LatentGP(model.train_inputs[0], y, noise, mean, model.covar_module))
    return processes
