"""Classification on tables of data by networks of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpytorch_nkn.averaging import stacking_weights
from gpytorch_nkn.estimators.nkn.table_estimator import TableEstimator
from gpytorch_nkn.estimators.nkn.table_models import (
    ClassGP,
    named_structures,
    train_structures,
)
from gpytorch_nkn.estimators.table_input import check_complete_targets
from gpytorch_nkn.fit import FitResult, Recipe, Session, warn_of_size
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["NKNClassifier"]

_MAX_ROWS = 4000  # that predictions are conditioned on
_TRAINING_WORK = 3e9  # classes times the cube of the rows that networks learn from
_KEPT_BYTES = 2**30  # of factors, between predictions
_CHUNK_ENTRIES = 4_000_000  # of covariances between rows, at a time
_LEAST_WEIGHT = 0.02  # of a network, below which it takes no part
_LEAST = 1e-9  # probability of a class
_POWERS = -2.0, 2.0  # range of the logarithm of the calibrating power


class NKNClassifier(ClassifierMixin, TableEstimator):
    """Gaussian process classification on a table of data, with kernels that learn their structure.

    Columns of numbers, categories and dates, and missing cells are read as by
    :class:`.NKNRegressor`, and the same networks of kernels are trained, each from several starts.
    Their probabilities are mixed with stacking weights, together with the frequencies of the
    classes, and a power of the mixture is calibrated, all on held-out rows. Nothing needs to be
    tuned.

    Each class has a Gaussian process for the logarithm of a gamma variable; normalised, these
    are probabilities with a Dirichlet distribution. The processes share the kernel. Their
    approximation by Gaussians has an exact posterior, which takes the cube of the rows per class:
    networks learn from a random part of the rows where these are many (1,400 rows of two classes,
    650 of ten), and predictions use 4,000 rows at most; a warning says so.

    Args:
        structure: The networks, as :class:`.NKNRegressor` has them. ``"auto"`` is without
            ``"rbf"`` and ``"matern"``.
        restarts: Starts of every network.
        class_weight: Factors of the probabilities of the classes, by label, or ``"balanced"`` for
            the inverse frequencies: predictions are for a population whose classes are as frequent
            as this makes them. ``None`` is for one with the frequencies of training.
        recipe: Optimiser settings of a start; ``None`` for 120 iterations of L-BFGS.
        budget: Wall time in seconds of the training; ``None`` for no limit.
        n_jobs: Processes for the starts, from 500 rows on (below, they run in turn).
        device: Torch device of the computation, such as ``"cuda"``; ``None`` is the CPU, whatever
            PyTorch's default device is.
        random_state: Seed, or NumPy random state; an integer makes fits reproducible.
        progress: Show a progress bar on a terminal.

    Attributes:
        classes_: The labels, sorted.
        results_: Records of the fits, :class:`gpytorch_nkn.fit.FitResult`, by name of the network.
        members_, weights_: Members of the mixture, pairs of a network's name and the number of its
            start, and their weights; what is missing to 1 is the weight of the frequencies.
        power_: Power of the probabilities of the mixture that makes them calibrated.
        model_: The Gaussian processes of the largest weight over standardised columns, one for each
            class; their targets are positive for rows of the class and negative for others.
        left_out_log_loss_: Mean log loss of held-out training rows. Below 500 rows these are thirds
            of the rows that hyperparameters have not seen; from there on they are held out one by
            one, which is slightly optimistic.
        x_offset_, x_scale_, categories_, missing_shares_, columns_: As of :class:`.NKNRegressor`.

    Ctrl-C and the budget end the training; the best of what was reached by then predicts.

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

    classes_: np.ndarray

    def __init__(
        self,
        structure: str | Kernel | Sequence[str | Kernel] = "auto",
        *,
        restarts: int = 2,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self.structure = structure
        self.restarts = restarts
        self.class_weight = class_weight
        self.recipe = recipe
        self.budget = budget
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: ArrayLike, y: ArrayLike) -> NKNClassifier:
        """Learn from a table.

        Args:
            X: Rows ``N x D``, an array or a data frame.
            y: Labels ``N``, numbers or strings.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: Labels are missing or of one class only, values are infinite or no numbers,
                lengths differ, there are fewer than 3 rows, all columns are constant, or an option
                has no meaning.
            TypeError: ``structure`` is neither a name nor a kernel, nor a sequence of such.
            RuntimeError: Every start of every network failed.
            KeyboardInterrupt: Ctrl-C came before the first step of training.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of another fit: a failure of this one must not leave a mixture
        structures = self._check_parameters()
        session = Session(budget=self.budget)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        table, labels, codes = self._training_table(X, y)
        self._class_factors = self._factors_of_classes(labels)
        what = "time grows with their cube, and a random part of each class predicts the others."
        warn_of_size(type(self).__name__, len(labels), _MAX_ROWS, what)
        rows, cat_dims = self._standardise(table, codes, structures, seed)
        kept = _stratified(labels, _MAX_ROWS, seed)
        rows, labels = self._gaps.expected(rows[kept]), labels[kept]
        marks = ClassGP.targets_of(labels, len(self.classes_))
        learned = _stratified(labels, int((_TRAINING_WORK / len(marks)) ** (1 / 3)), seed)
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
            x, y = self._tensor(rows), self._tensor(marks)
            named = named_structures(structures, len(learned), x.size(-1))
            if list(structures) == ["auto"]:
                named = {name: one for name, one in named.items() if name not in ("rbf", "matern")}
            results = train_structures(
                named,
                x[learned],
                y[:, learned],
                budget=session.part(),
                restarts=self.restarts,
                recipe=self.recipe,
                seed=seed,
                n_jobs=self.n_jobs,
                progress=self.progress,
                cat_dims=cat_dims,
                make_model=ClassGP,
            )
        self._mix(results, labels[learned], np.bincount(labels))
        for predictor in self._predictors:
            predictor.condition(x, y)
        self.results_ = results
        return self

    def _training_table(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows ``N x D``, codes of labels ``N``, the mask ``D`` (or empty) of columns of codes."""
        X, codes = self._coded(X)
        check_complete_targets(y)
        checks: dict[str, Any] = {"dtype": np.float64, "order": "C", "ensure_min_samples": 3}
        table, labels = validate_data(self, X, y, ensure_all_finite="allow-nan", **checks)
        check_classification_targets(labels)
        self.classes_, labels = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must have at least 2 classes, got 1 class: {self.classes_.tolist()}."
            )
        return table, labels, codes

    def _factors_of_classes(self, labels: np.ndarray) -> np.ndarray:
        """Factors ``K`` of the probabilities."""
        if not (
            self.class_weight is None
            or isinstance(self.class_weight, Mapping)
            or (isinstance(self.class_weight, str) and self.class_weight == "balanced")
        ):
            raise ValueError(
                f"class_weight must be 'balanced', a dict or None, got {self.class_weight!r}."
            )
        factors = compute_class_weight(
            self.class_weight, classes=self.classes_, y=self.classes_[labels]
        )
        if not (np.isfinite(factors).all() and (factors >= 0).all() and factors.sum() > 0):
            raise ValueError(
                "class_weight must be finite, not negative and positive for some class, got "
                f"{factors.tolist()}."
            )
        return factors

    def _mix(
        self, results: Mapping[str, FitResult], labels: np.ndarray, counts: np.ndarray
    ) -> None:
        """Weights of members by their held-out probabilities, and the calibrating power.

        ``labels`` are of the rows that networks have learned from.
        """
        members, tables = [], []
        honest = all(result.held_out for result in results.values())
        for name, result in results.items():
            table = np.full((len(counts), len(labels)), np.nan)
            for held in result.held_out.values():  # all starts together: each of other rows
                noise = result.model.likelihood.noise.mean(-1, keepdim=True)
                latent = _probabilities(held.mean, held.variance - noise)
                table[:, held.rows.cpu().numpy()] = latent
            for number, member in result.members.items():
                predictor = _Predictor(member)
                own = table if honest else predictor.left_out()
                members.append((name, number, predictor))
                tables.append(own)
        stacked = np.stack(tables)  # M x K x N
        seen = np.isfinite(stacked).all((0, 1))
        stacked, labels = stacked[..., seen], labels[seen]
        self._frequencies = (counts + 0.5) / (counts + 0.5).sum()
        constant = np.broadcast_to(self._frequencies[:, None], stacked[0].shape)
        powers = [_calibrated(table, labels) for table in stacked]
        stacked = np.stack(
            [
                *(_powered(table, power) for table, power in zip(stacked, powers, strict=True)),
                constant,
            ]
        )
        places = np.arange(len(labels))
        densities = np.log(stacked[:, labels, places])
        _, first, alike = np.unique(densities, axis=0, return_index=True, return_inverse=True)
        weights = stacking_weights(densities[first])
        weights = (weights / np.bincount(alike))[alike]
        weights[:-1][weights[:-1] < _LEAST_WEIGHT * weights.max()] = 0
        weights /= weights.sum()
        mixed = np.tensordot(weights, stacked, 1)
        self.power_ = _calibrated(mixed, labels)
        losses = -np.log(_powered(mixed, self.power_)[labels, places])
        self.left_out_log_loss_ = float(losses.mean())
        used = np.flatnonzero(weights[:-1])
        self.members_ = [members[place][:2] for place in used]
        self.weights_ = weights[used]
        self._predictors = [members[place][2] for place in used]
        self._powers = [powers[place] for place in used]
        best = int(weights[:-1].argmax())
        self.model_ = members[best][2].model

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities of the classes.

        Args:
            X: Rows ``M x D``.

        Returns:
            ``M x K``, in the order of ``classes_``. Those of a row with missing values are means
            over 8 draws of these.
        """
        drawn, gaps = self._drawn(X)
        whole = self._mixed(self._tensor(drawn[0]))
        if gaps.any():
            parts = [self._mixed(self._tensor(rows[gaps])) for rows in drawn]
            whole[:, gaps] = np.mean(parts, 0)
        weighted = self._class_factors[:, None] * whole
        return (weighted / weighted.sum(0)).T

    def _mixed(self, x: Tensor) -> np.ndarray:
        """Calibrated probabilities ``K x M`` at standardised rows ``M x d``."""
        rest = 1 - self.weights_.sum()
        total = np.tile(rest * self._frequencies[:, None], len(x))
        for predictor, weight, power in zip(
            self._predictors, self.weights_, self._powers, strict=True
        ):
            total += weight * _powered(predictor(x), power)
        return _powered(total, self.power_)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Labels ``M`` of the most probable classes of rows ``M x D``."""
        places = self.predict_proba(X).argmax(1)
        return self.classes_[places]


class _Predictor:
    """Probabilities of the classes by a trained model, from a Cholesky factor per class."""

    def __init__(self, model: ClassGP):
        self.model = model
        self._posteriors: dict[int, ExactPosterior] = {}

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_posteriors": {}}

    def condition(self, x: Tensor, y: Tensor) -> None:
        """Condition on rows ``N x d`` and targets ``K x N``."""
        self.model.train().set_train_data(x, y, strict=False)
        self.model.eval()
        self._posteriors = {}

    def _posterior(self, label: int, covariance: Tensor) -> ExactPosterior:
        noise = self.model.likelihood.noise[label]
        return ExactPosterior(covariance + noise.diag(), self._residual(label))

    def _residual(self, label: int) -> Tensor:
        return self.model.train_targets[label] - self.model.mean_module.constant[label]

    @torch.no_grad()
    def left_out(self) -> np.ndarray:
        """Probabilities ``K x N`` of the rows, each given all others."""
        model = self.model
        covariance = model.covar_module(model.train_inputs[0]).to_dense()
        means, variances = [], []
        for label in range(len(model.train_targets)):
            mean, variance = self._posterior(label, covariance).leave_one_out()
            means.append(mean + model.mean_module.constant[label])
            variances.append(variance - model.likelihood.noise[label])
        return _probabilities(torch.stack(means), torch.stack(variances))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> np.ndarray:
        """Probabilities ``K x M`` at rows ``M x d``."""
        model = self.model
        known = model.train_inputs[0]
        num_classes, num_rows = model.train_targets.shape
        kept = num_classes * num_rows**2 * 8 <= _KEPT_BYTES
        covariance = None
        parts = x.split(max(1, _CHUNK_ENTRIES // num_rows))
        crosses = [model.covar_module(part, known).to_dense() for part in parts]
        prior = model.covar_module(x, diag=True)
        means, variances = [], []
        for label in range(num_classes):
            posterior = self._posteriors.get(label)
            if posterior is None:
                if covariance is None:
                    covariance = model.covar_module(known).to_dense()
                posterior = self._posterior(label, covariance)
                if kept:
                    self._posteriors[label] = posterior
            mean = torch.cat([posterior.mean(cross) for cross in crosses])
            means.append(mean + model.mean_module.constant[label])
            variances.append(prior - torch.cat([posterior.reduction(cross) for cross in crosses]))
        return _probabilities(torch.stack(means), torch.stack(variances))


@np.errstate(under="ignore")
def _probabilities(mean: Tensor, variance: Tensor) -> np.ndarray:
    r"""Expected softmax ``K x N`` of the latent values, approximately.

    .. math:: p_k \propto \exp\bigl(\mu_k / \sqrt{1 + \pi v_k / 8}\bigr)

    Reference: MacKay (1992), The evidence framework applied to classification networks.
    """
    values = mean / (1 + torch.pi / 8 * variance.clamp_min(0)).sqrt()
    return softmax(values.cpu().numpy(), axis=0)


@np.errstate(under="ignore")
def _powered(probabilities: np.ndarray, power: float) -> np.ndarray:
    """A power of probabilities ``K x N``, normalised."""
    values = probabilities.clip(_LEAST) ** power
    return values / values.sum(0)


def _calibrated(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The power of probabilities ``K x N`` of least log loss, near 1 for few rows."""
    places = np.arange(len(labels))

    def loss(logarithm: float) -> float:
        powered = _powered(probabilities, np.exp(logarithm))
        return -np.log(powered[labels, places]).sum() + logarithm**2 / 2

    return float(np.exp(minimize_scalar(loss, bounds=_POWERS, method="bounded").x))


def _stratified(labels: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Indices of at most so many random rows, with classes as frequent as among all."""
    order = np.random.default_rng(seed).permutation(len(labels))
    if len(labels) <= most:
        return np.arange(len(labels))
    share = np.empty(len(labels))  # of its class that comes before a row
    for label in np.unique(labels):
        own = order[labels[order] == label]
        share[own] = np.arange(len(own)) / len(own)
    return np.sort(order[np.argsort(share[order], kind="stable")[:most]])
