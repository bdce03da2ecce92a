"""Classification on tables of data by networks of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.models import ExactGP
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import ndtri, softmax
from scipy.stats import qmc
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from gpytorch_nkn.averaging import share_weights, stacking_weights
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.nkn.ensemble import release_some
from gpytorch_nkn.estimators.nkn.table_estimator import TableEstimator
from gpytorch_nkn.estimators.nkn.table_models import (
    ClassGP,
    LatentGP,
    by_class,
    labelled,
    labelled_model,
    named_structures,
    train_structures,
)
from gpytorch_nkn.estimators.table_input import encode_classes
from gpytorch_nkn.fit import FitResult, Recipe, Session, warn_of_size

__all__ = ["NKNClassifier"]

_MAX_ROWS = 4000  # largest number of rows that predictions are conditioned on
_TRAINING_WORK = 3e9  # classes times the cube of the rows of the training
_LABELLED_WORK = 1.5e9  # the same for models of the labels; two classes have one process
_LABELLED = ", labels"  # suffix of the names of models of the labels
_LEAST_WEIGHT = 0.02  # least weight of a network, relative to the largest
_LEAST = 1e-9  # least probability of a class
_DRAWS = 64  # quasi-random latent values for the variance of a probability
_POWERS = -2.0, 2.0  # range of the logarithm of the calibrating power
_Moments = tuple[Tensor, Tensor]  # means and variances K x M


class NKNClassifier(ClassifierMixin, TableEstimator):
    """Gaussian process classification on tabular data, with kernels that learn their structure.

    Tables are read and networks trained as in :class:`.NKNRegressor`. Stacking weights mix the
    probabilities of the networks and the class frequencies, and a power calibrates the mixture.
    Both are fitted to held-out rows. No option needs tuning.

    Each class has a Gaussian process of the logarithm of a gamma variable; normalised, the gamma
    variables are probabilities with a Dirichlet distribution. The processes share the kernel. Where
    it takes little time (two classes, or few rows), each network is also trained with a Bernoulli
    likelihood of each class against the others, which is better for noisy labels and sums over
    columns. The cost is cubic in the number of rows for each class. Networks learn from a random
    subset of many rows (1,100 rows of two classes, 650 of ten). Predictions use at most 4,000 rows,
    with a warning.

    Args:
        structure: The networks, as in :class:`.NKNRegressor`; ``"auto"`` has ``"isotropic"``
            in place of ``"rbf"`` and ``"matern"``.
        restarts: Starts of every network.
        class_weight: Factors of the class probabilities by label, or ``"balanced"`` for the inverse
            class frequencies: predictions are for a population with these class frequencies.
            ``None`` for the frequencies of the fit.
        budget: Wall time in seconds of the training; ``None`` for no limit.
        <shared training>
        <shared computation>

    Attributes:
        classes_: The labels, sorted.
        <shared attributes>
        weights_: Weights of the members; the weight of the class frequencies is the rest to 1.
        power_: Calibrating power of the probabilities of the mixture.
        model_: The member of the largest weight, over standardised columns. It has a Gaussian
            process for each class, whose targets are positive for rows of the class.
        held_out_log_loss_: Mean log loss of held-out rows of the fit. Below 500 rows these are
            thirds of the rows, with hyperparameters learned without them. From 500 rows on it is
            leave-one-out, which is slightly optimistic.
        held_out_: Codes ``N`` of the labels of these rows, and their probabilities ``N x K``,
            without ``class_weight``.

    Ctrl-C and the budget end the training; the best parameters so far are used.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
        >>> classifier = NKNClassifier("tabular", restarts=1, random_state=0).fit(X, y)
        >>> classifier.predict([[1, 1], [1, -1]]).tolist()
        ['same', 'other']

    Reference: Milios, Camoriano, Michiardi, Rosasco and Filippone (2018), Dirichlet-based Gaussian
    processes for large-scale calibrated classification; Yao et al. (2018) for the mixture.
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

    def fit(self, X: ArrayLike, y: ArrayLike) -> NKNClassifier:
        """Learn from a table.

        Args:
            X: Rows ``N x D``, an array or a data frame.
            y: Labels ``N``, numbers or strings.

        Raises:
            ValueError: Labels are missing or of one class only, values are infinite or not numbers,
                or lengths differ. There are fewer than 3 rows, all columns are constant, or an
                option is invalid.
            TypeError: ``structure`` is not a name, a kernel, or a sequence of names and kernels.
            RuntimeError: Every start of every network failed.
            KeyboardInterrupt: Ctrl-C came before the first training step.
        """
        self._forget()
        structures = self._check_parameters()
        session = Session(budget=self.budget)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        table, labels, codes = self._read(X, y)
        self.classes_, labels = encode_classes(labels)
        self._class_factors = self._factors_of_classes(labels)
        what = "time grows with their cube, and predictions use a random part of each class."
        warn_of_size(type(self).__name__, len(labels), _MAX_ROWS, what)
        rows, cat_dims = self._standardise(table, codes, structures, seed)
        kept = _stratified(labels, _MAX_ROWS, seed)
        rows, labels = self._gaps.expected(rows[kept]), labels[kept]
        marks = ClassGP.targets_of(labels, len(self.classes_))
        learned = _stratified(labels, int((_TRAINING_WORK / len(marks)) ** (1 / 3)), seed)
        with torch.inference_mode(False), torch.enable_grad():  # whatever mode the caller has set
            x, y = self._tensor(rows), self._tensor(marks)
            is_cheap = len(labelled(y)) * len(learned) ** 3 <= _LABELLED_WORK
            named = named_structures(structures, len(learned), x.size(-1))
            if list(structures) == ["auto"]:
                isotropic = dict.fromkeys(("rbf", "matern"), "isotropic")
                named = {isotropic.get(name, name): isotropic.get(name, name) for name in named}
            results = train_structures(
                named,
                x[learned],
                y[:, learned],
                budget=session.part(),
                seed=seed,
                cat_dims=cat_dims,
                **self._training,
                make_model=ClassGP,
                others={_LABELLED: labelled_model} if is_cheap else {},
            )
        best = self._mix(results, labels[learned], np.bincount(labels))
        for predictor in self._predictors:
            predictor.condition(x, y)
        self.model_ = best.model
        self.results_ = results
        return self

    def _factors_of_classes(self, labels: np.ndarray) -> np.ndarray:
        """Factors ``K`` of the probabilities."""
        y = self.classes_[labels]
        factors = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        if not (np.isfinite(factors).all() and (factors >= 0).all() and factors.sum() > 0):
            raise ValueError(
                "class_weight must be finite, not negative and positive for some class, got "
                f"{factors.tolist()}."
            )
        return factors

    def _mix(
        self, results: Mapping[str, FitResult], labels: np.ndarray, counts: np.ndarray
    ) -> _Predictor:
        """Learn weights of the members and the calibrating power from held-out probabilities.

        Args:
            results: Training records by network.
            labels: Codes of the rows that the networks have learned from.
            counts: Number of rows of each class ``K``.

        Returns:
            The member of the largest weight.
        """
        members, tables = [], []
        honest = all(result.held_out for result in results.values())
        for name, result in results.items():
            table = np.full((len(counts), len(labels)), np.nan)
            for held in result.held_out.values():  # each start held out other rows
                model, moments = result.model, (held.mean, held.variance)
                if isinstance(model, ClassGP):
                    noise = model.likelihood.noise.mean(-1, keepdim=True)
                    moments = held.mean, held.variance - noise
                elif len(counts) == 2:
                    moments = torch.cat([-held.mean, held.mean]), held.variance
                table[:, held.rows.cpu().numpy()] = _probabilities(*moments)
            for number, member in result.members.items():
                predictor = _Predictor(member)
                own = table if honest else predictor.leave_one_out()
                members.append((name, number, predictor))
                tables.append(own)
        stacked = np.stack(tables)  # M x K x N
        seen = np.isfinite(stacked).all((0, 1))
        stacked, labels = stacked[..., seen], labels[seen]
        self._frequencies = (counts + 0.5) / (counts + 0.5).sum()
        constant = np.broadcast_to(self._frequencies[:, None], stacked[0].shape)
        powers = [_calibrated(table, labels) for table in stacked]
        powered = [_powered(table, power) for table, power in zip(stacked, powers, strict=True)]
        stacked = np.stack([*powered, constant])
        rows = np.arange(len(labels))
        densities = np.log(stacked[:, labels, rows])
        weights = share_weights(densities, lambda first: stacking_weights(densities[first]))
        weights[:-1][weights[:-1] < _LEAST_WEIGHT * weights.max()] = 0
        weights /= weights.sum()
        mixed = np.tensordot(weights, stacked, 1)
        self.power_ = _calibrated(mixed, labels)
        whole = _powered(mixed, self.power_).T
        self.held_out_ = labels, whole
        self.held_out_log_loss_ = float(-np.log(whole[rows, labels]).mean())
        used = np.flatnonzero(weights[:-1])
        self.members_ = [members[index][:2] for index in used]
        self.weights_ = weights[used]
        self._predictors = [members[index][2] for index in used]
        self._powers = [powers[index] for index in used]
        return members[int(weights[:-1].argmax())][2]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities of the classes.

        Args:
            X: Rows ``M x D``.

        Returns:
            ``M x K``, in the order of ``classes_``; for a row with missing values, the mean over 8
            draws of the values.
        """
        drawn, gaps = self._drawn(X)
        whole = self._mixed(self._tensor(drawn[0]))
        if gaps.any():
            parts = [self._mixed(self._tensor(rows[gaps])) for rows in drawn]
            whole[:, gaps] = np.mean(parts, 0)
        return self._weighted(whole).T

    def class_probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities ``K x M`` of the classes at standardised rows ``M x d`` without gaps."""
        return self._weighted(self._mixed(self._tensor(rows)))

    @property
    def processes(self) -> list[ExactGP]:
        """Gaussian processes of the classes, for each member."""
        return [one.model for one in self._predictors]

    def linearised(self, rows: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
        r"""Linear approximation of the probability of a class for each member.

        The slopes are scaled so that the approximation has the variance of the probability, which
        is computed from quasi-random latent values.

        Args:
            rows: Standardised rows ``M x d``.
            code: Index of the class in ``classes_``.

        Returns:
            Values ``R x M``, whose mean with ``weights_`` is the predicted probability, and slopes
            ``R x K x M`` with respect to the latent values.
        """
        latent = [one.latent(self._tensor(rows)) for one in self._predictors]
        tables = self._tables(latent)
        share, mixed = self.weights_.sum(), self._with_frequencies(self.weights_, tables)
        whole = self._weighted(_powered(mixed, self.power_))
        own = np.eye(len(whole))[code][:, None]
        gradient = share * self.power_ * whole[code] * (own - whole) / mixed
        middle = np.tensordot(self.weights_ / share, tables, 1)
        own_values = whole[code] + (gradient * (tables - middle)).sum(1)
        slopes = tables * (gradient - (gradient * tables).sum(1, keepdims=True))
        normal = ndtri(qmc.Sobol(len(whole), rng=0).random(_DRAWS)).T[..., None]  # K x S x 1
        # A row has one label: deviations sum to zero over the classes.
        normal = (normal - normal.mean(0)) * (len(normal) / (len(normal) - 1)) ** 0.5
        for slope, (mean, variance), power in zip(slopes, latent, self._powers, strict=True):
            slope *= _shrinkage(variance).cpu().numpy()
            std = variance.clamp_min(0).sqrt().cpu().numpy()
            # The power calibrates the means; the deviations from them keep their size.
            values = power * mean.cpu().numpy()[:, None] + std[:, None] * normal  # K x S x M
            drawn = softmax(values, axis=0)
            drawn = self._with_frequencies(share, drawn.reshape(len(drawn), -1))
            drawn = self._weighted(_powered(drawn, self.power_))[code]
            linear = np.sqrt(((slope * std) ** 2).sum(0))
            slope *= drawn.reshape(_DRAWS, -1).std(0) / np.maximum(linear, _LEAST)
        return own_values, slopes

    def _weighted(self, whole: np.ndarray) -> np.ndarray:
        """Probabilities ``K x M`` in the population of ``class_weight``."""
        weighted = self._class_factors[:, None] * whole
        return weighted / weighted.sum(0)

    def _mixed(self, x: Tensor) -> np.ndarray:
        """Calibrated probabilities ``K x M`` at standardised rows ``M x d``."""
        tables = self._tables([one.latent(x) for one in self._predictors])
        mixed = self._with_frequencies(self.weights_, tables)
        return _powered(np.broadcast_to(mixed, (len(mixed), len(x))), self.power_)

    def _tables(self, latent: Sequence[_Moments]) -> np.ndarray:
        """Calibrated probabilities ``R x K x M`` of the members."""
        pairs = zip(latent, self._powers, strict=True)
        tables = [_powered(_probabilities(*one), power) for one, power in pairs]
        return np.stack(tables) if tables else np.zeros((0, len(self._frequencies), 1))

    def _with_frequencies(self, weights: np.ndarray, tables: np.ndarray) -> np.ndarray:
        """Mixture ``K x M`` of tables ``... x K x M`` and the class frequencies."""
        rest = 1 - self.weights_.sum()
        return np.tensordot(weights, tables, np.ndim(weights)) + rest * self._frequencies[:, None]

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Labels ``M`` of the most probable classes of rows ``M x D``."""
        codes = self.predict_proba(X).argmax(1)  # raises an error before the fit
        return self.classes_[codes]


class _Predictor:
    """Class probabilities of a trained model, from a process for each class."""

    def __init__(self, trained: Any):
        self._trained = trained
        self._prepare()

    def _prepare(self) -> None:
        trained = self._trained.eval()
        self.model: ClassGP | LatentGP = trained
        if not isinstance(trained, ClassGP):
            self.model = LatentGP.of_classes(trained)
        self._classes = [ConditionedGP(one) for one in by_class(self.model)]

    def condition(self, x: Tensor, y: Tensor) -> None:
        """Condition on rows ``N x d`` and targets ``K x N``."""
        if not isinstance(self._trained, ClassGP):
            labels, y = y.argmax(0).cpu().numpy(), labelled(y)
            rows = _stratified(labels, int(_MAX_ROWS / len(y) ** (1 / 3)), 0)
            x, y = x[rows], y[:, rows]
        self._trained.train().set_train_data(x, y, strict=False)
        self._prepare()

    def leave_one_out(self) -> np.ndarray:
        """Leave-one-out probabilities ``K x N`` of the rows."""
        return _probabilities(*self._stacked(lambda one: one.leave_one_out()))

    def latent(self, x: Tensor) -> _Moments:
        """Means and variances ``K x M`` of the latent values at rows ``M x d``."""
        parts = []
        for rows, cross in self._classes[0].cross(x):  # the classes share the kernel
            parts.append(self._stacked(partial(ConditionedGP.moments_given, x=rows, between=cross)))
        means, variances = zip(*parts, strict=True)
        return torch.cat(means, 1), torch.cat(variances, 1)

    def _stacked(self, moments: Callable[[ConditionedGP], Any]) -> _Moments:
        found = []
        for one in self._classes:
            found.append(moments(one))
            release_some(self._classes)
        means, variances = zip(*found, strict=True)
        return torch.stack(means), torch.stack(variances)


@np.errstate(under="ignore")
def _probabilities(mean: Tensor, variance: Tensor) -> np.ndarray:
    r"""Expected softmax ``K x N`` of the latent values, approximately.

    .. math:: p_k \propto \exp\bigl(\mu_k / \sqrt{1 + \pi v_k / 8}\bigr)

    Reference: MacKay (1992), The evidence framework applied to classification networks.
    """
    return softmax((mean * _shrinkage(variance)).cpu().numpy(), axis=0)


def _shrinkage(variance: Tensor) -> Tensor:
    """Factors ``K x N`` of the latent means in the expected softmax."""
    return (1 + torch.pi / 8 * variance.clamp_min(0)).rsqrt()


@np.errstate(under="ignore")
def _powered(probabilities: np.ndarray, power: float) -> np.ndarray:
    """A power of probabilities ``K x N``, normalised."""
    values = probabilities.clip(_LEAST) ** power
    return values / values.sum(0)


def _calibrated(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Power of probabilities ``K x N`` with the least log loss, shrunk to 1 for few rows."""
    rows = np.arange(len(labels))

    def loss(logarithm: float) -> float:
        powered = _powered(probabilities, np.exp(logarithm))
        return -np.log(powered[labels, rows]).sum() + logarithm**2 / 2

    return float(np.exp(minimize_scalar(loss, bounds=_POWERS, method="bounded").x))


def _stratified(labels: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Indices of at most ``most`` random rows with the class frequencies of all rows."""
    order = np.random.default_rng(seed).permutation(len(labels))
    if len(labels) <= most:
        return np.arange(len(labels))
    share = np.empty(len(labels))  # fraction of the class before a row
    for label in np.unique(labels):
        own = order[labels[order] == label]
        share[own] = np.arange(len(own)) / len(own)
    return np.sort(order[np.argsort(share[order], kind="stable")[:most]])
