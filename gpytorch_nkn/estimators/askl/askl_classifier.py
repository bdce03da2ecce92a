"""Classification with learned spectral kernels."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_base import SpectralLearner
from gpytorch_nkn.estimators.table_input import refuse_other_values

__all__ = ["ASKLClassifier"]

_LOSSES = ("log_loss", "hinge")


def _has_probabilities(estimator: Any) -> bool:
    loss = getattr(estimator, "_trained_loss", estimator.loss)  # outputs are those of the fit
    if loss != "log_loss":
        raise AttributeError(f"Probabilities come with loss='log_loss', not with loss={loss!r}.")
    return True


class ASKLClassifier(ClassifierMixin, SpectralLearner, BaseEstimator):
    r"""Classification by automated spectral kernel learning: features and weights together.

    .. math::
        f(x) = W^\top \phi(x) + c, \qquad \phi(x) = \sqrt{1/2D}\,
            [\cos(\Omega^\top x + b) + \cos(\Omega'^\top x + b)]

    minimises the mean loss plus ``weight_penalty`` times the trace norm of ``W`` plus
    ``feature_penalty`` times the mean squared norm of ``phi``, over ``W`` and the frequencies,
    which start at those of an RBF kernel. Each step on a mini-batch is followed by a proximal one:
    singular values of ``W`` shrink by ``weight_penalty`` times its learning rate.
    ``phi(x)' phi(x')`` is a non-stationary kernel, whatever the frequencies are.

    The paper draws phases of ``Omega'`` of their own. The expectation of its kernel over them is
    stationary, so here both have the same phases ``b``, with which ``phi`` equals
    ``sqrt(2 / D) cos(m'x + b) cos(e'x)``: a wave whose frequency ``m`` is the mean of both, in an
    envelope by half their difference ``e``.

    Nothing needs to be tuned. What regularises is the length of the training, which held-out rows
    choose: learning rates fall to zero in cycles that end after 5, 10, 20, 40, ... epochs, and the
    best of their ends, or ridge regression on the features to start from, tells for how long to
    train on all rows. The penalties change little, with Adam above all.

    Args:
        method: A row of the paper's table 1:

            - ``"SK"``: stationary (``Omega = Omega'``), frequencies as drawn;
            - ``"NSK"``: non-stationary, frequencies as drawn;
            - ``"SKL"``: stationary, frequencies learned;
            - ``"NSKL"``: non-stationary, frequencies learned;
            - ``"ASKL"``: the same with the trace norm and the norm of the features.

            All but the last penalise the squared Frobenius norm of ``W``.
        n_components: Number ``D`` of features.
        gamma: Of the RBF kernel ``exp(-gamma r^2)`` whose frequencies are the first: a number,
            ``"median"`` for half the inverse square of the median distance, or ``"auto"`` for that
            whose ridge regression predicts left-out rows best, among 800 rows.
        loss: ``"log_loss"``, or ``"hinge"``, the paper's: one minus the lead of the right class.
        weight_penalty: Factor of the norm of ``W``, ``lambda_1`` of the paper. With ``"sgd"`` it
            is that of the objective above. Adam divides gradients entry by entry by their root
            mean square, but not the proximal step: with it the factor is in units of gradients so
            divided, and the same value shrinks ``W`` less or more than with ``"sgd"`` (in an
            example with 7 outputs, 10 did what 1 does there). Squared norms are part of the
            gradient with either; a large factor makes ``"adam"`` swing about zero, and must stay
            below ``1 / (2 learning_rate)`` with ``"sgd"``.
        feature_penalty: Factor of the mean squared norm of features in the mini-batch,
            ``lambda_2``. ``None`` is 1e-4 with ``"ASKL"`` and 0 with others, which take no other.
        depth: Number of layers; features of one are inputs of the next, whose scale follows the
            median rule.
        fit_intercept: Learn ``c``.
        solver: ``"adam"``, or ``"sgd"`` with Nesterov's momentum, where the proximal step is as
            long as those of a lasting gradient.
        learning_rate: Of ``W`` and ``c``; ``None`` is 0.05 with Adam, and otherwise 1 with the log
            loss, 0.5 with the hinge loss, 0.25 with the squared loss.
        frequency_learning_rate: Of the frequencies; ``None`` is a step of angles over the mean
            absolute sum of what a layer sees with Adam (0.5, or a twentieth of the square root of
            the number of columns from 100 on; 0.15 for regression), and otherwise ``D / 50`` over
            its mean squared norm.
        batch_size: Rows of a mini-batch; ``"auto"`` is a hundredth of all, a power of two from 32
            to 256, and at least 128 for 5000 rows of 200 columns or more.
        max_iter: Largest number of epochs.
        early_stopping: Choose the number of epochs by held-out rows: five parts of 20 % in turn
            below 600 rows, three below 1000, beyond one of 1000 rows, but no less than 10 % and no
            more than 20 %. A cycle is preferred to a better later one if half a standard error
            explains the difference. ``False`` trains for ``max_iter`` epochs, in one cycle, and so
            do fewer than 10 rows; ``validation_fraction``, ``n_iter_no_change``, ``refit`` and
            ``ridge`` then have no effect.
        validation_fraction: Share of a single part to hold out instead, of every class if possible.
        n_iter_no_change: Cycles without a better score after which to stop, with a single part.
        refit: Train on all rows for the number of epochs chosen; ``"auto"`` does below 20,000.
            Several parts always ask for it, so ``False`` counts from 1000 rows on, or with a
            ``validation_fraction``.
        ridge: With early stopping and an intercept, let ridge regression on the features to start
            from be a candidate, too, its penalty chosen by left-out rows.
        standardize: ``"auto"`` chooses how columns are scaled, and weights them by their relevance,
            with kernel ridge regression on up to 900 rows (see
            :func:`~gpytorch_nkn.estimators.askl.askl_inputs.choose_input_map`); ``True`` scales
            them, with tails drawn in; ``False`` takes them as they are, in float32 (with a warning
            where most distinct values of a column are the same in it).
        budget: Seconds of a fit; ``None`` for no limit. Learning rates fall within them. After a
            quarter of them no more scalings are tried, after 40 % ``gamma`` follows the median
            rule, and what remains of parts, ridge regressions and the training on all rows is left
            out at the end. What has begun is not cut: a step of the choice of scalings, the search
            for ``gamma``, a mini-batch, and above all a ridge regression of ``D = 2000`` features
            can each take seconds more.
        device: Torch device of the computation, such as ``"cuda"``. Pickles hold everything on the
            CPU, where the estimator then is.
        random_state: Seed, or NumPy random state; an integer makes fits reproducible.
        progress: Show a progress bar on a terminal.

    Attributes:
        classes_: The classes.
        coef_, intercept_: Weights ``D x K`` and intercepts ``K``.
        frequencies_, phases_: Lists with an entry for each layer, ``2 x D x d`` (or ``1 x D x d``)
            and ``D``, for inputs as the network sees them.
        input_map_: What makes these of rows: columns in use (constant ones are left out), their
            scaling and weights.
        singular_values_, rank_: Singular values of the weights, and number of those that are not
            zero.
        loss_curve_: Mean training loss of each epoch, without penalties, of the last training, and
            of each call of :meth:`partial_fit` after it.
        validation_scores_: Scores of held-out rows: of the ridge regression, then at the end of
            each cycle. Minus the sum of the share of wrong classes and the Brier score.
        best_iteration_: Number of epochs of the parameters that are kept; 0 for ridge regression.
        n_iter_: Number of epochs in all, calls of :meth:`partial_fit` included.
        gamma_, frequency_learning_rates_: What the rules gave, layer by layer.

    Training computes in float32, predictions in float64. Ctrl-C and the budget end a training; the
    best parameters so far predict.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(80, 2))
        >>> classifier = ASKLClassifier(n_components=50, max_iter=10, random_state=0)
        >>> classifier.fit(X, X[:, 0] * X[:, 1] > 0).predict_proba(X[:3]).shape
        (3, 2)

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning.
    """

    classes_: np.ndarray

    def __init__(
        self,
        method: str = "ASKL",
        *,
        n_components: int = 2000,
        gamma: float | str = "auto",
        loss: str = "log_loss",
        weight_penalty: float = 1e-5,
        feature_penalty: float | None = None,
        depth: int = 1,
        fit_intercept: bool = True,
        solver: str = "adam",
        learning_rate: float | None = None,
        frequency_learning_rate: float | None = None,
        batch_size: int | str = "auto",
        max_iter: int = 80,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        refit: bool | str = "auto",
        ridge: bool = True,
        n_iter_no_change: int = 2,
        standardize: bool | str = "auto",
        budget: float | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = False,
    ):
        self.method = method
        self.n_components = n_components
        self.gamma = gamma
        self.loss = loss
        self.weight_penalty = weight_penalty
        self.feature_penalty = feature_penalty
        self.depth = depth
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.learning_rate = learning_rate
        self.frequency_learning_rate = frequency_learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.ridge = ridge
        self.n_iter_no_change = n_iter_no_change
        self.standardize = standardize
        self.budget = budget
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """One pass over a part of the data, at the full learning rates.

        The first call fixes the classes, the standardisation (``"auto"`` is ``True`` here),
        ``gamma`` and the frequencies to start from, so its rows should be typical ones; a column
        that is constant in them is centred, but not scaled. ``n_components``, ``depth``,
        ``fit_intercept`` and ``random_state`` are those of the first call, too, whatever
        ``set_params`` says later; another ``solver`` is refused; rates, penalties, ``loss``,
        ``method`` and ``batch_size`` are those of the present call. ``early_stopping`` with what
        belongs to it, ``ridge``, ``max_iter`` and ``budget`` have no part in it.

        What the optimiser remembers is kept between calls. After :meth:`fit` the first call starts
        from its parameters with an optimiser that remembers nothing, at rates that had fallen to
        zero: on the same rows predictions get worse at first, as what ``fit`` converged to (or
        solved for) is left. It is for rows that differ from those of ``fit``; smaller
        ``learning_rate`` and ``frequency_learning_rate`` move less. A call that fails, or that
        Ctrl-C ends, changes nothing.

        Args:
            X: Rows ``N x d``.
            y: Classes ``N``.
            classes: All classes there will ever be; needed in the first call.

        Returns:
            The estimator.

        Raises:
            ValueError: There are no classes in the first call, or other ones later; and what
                :meth:`fit` raises.
        """
        first = not hasattr(self, "_network")
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit.")
        given = None if classes is None else np.unique(np.asarray(classes))
        if given is not None and not first and not np.array_equal(given, self.classes_):
            raise ValueError(
                f"classes must be those of the first call, {self.classes_.tolist()}, got "
                f"{given.tolist()}."
            )
        return self._partial_fit(X, y, first, given)

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Outputs ``M x K``; for two classes ``M``, that of the second minus that of the first.

        Args:
            X: Rows ``M x d``.
        """
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Classes ``M`` with the largest outputs.

        Args:
            X: Rows ``M x d``.
        """
        places = self._outputs(X).argmax(1)
        return self.classes_[places]

    @available_if(_has_probabilities)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities ``M x K`` of the classes, the softmax of the outputs.

        Only with ``loss="log_loss"``: outputs of the hinge loss are no probabilities.

        Args:
            X: Rows ``M x d``.
        """
        return softmax(self._outputs(X), axis=1)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Logarithms of :meth:`predict_proba`.

        Args:
            X: Rows ``M x d``.
        """
        return log_softmax(self._outputs(X), axis=1)

    @property
    def _loss_name(self) -> str:
        if self.loss not in _LOSSES:
            raise ValueError(f"loss must be one of {_LOSSES}, got {self.loss!r}.")
        return self.loss

    def _read(self, X: ArrayLike, y: ArrayLike, first: bool) -> tuple[np.ndarray, np.ndarray]:
        refuse_other_values("X", X)
        least = 2 if first else 1
        try:
            table, labels = validate_data(
                self, X, y, dtype=np.float64, order="C", reset=first, ensure_min_samples=least
            )
            check_classification_targets(labels)
            np.unique(labels)
        except TypeError as error:
            if "not supported between instances" not in str(error):
                raise
            kinds = sorted({type(label).__name__ for label in np.asarray(y, dtype=object).flat})
            raise ValueError(
                f"y must hold labels of one kind without missing ones, got {', '.join(kinds)}."
            ) from error
        return table, labels

    def _learn_targets(self, y: np.ndarray, given: np.ndarray | None) -> int:
        self.classes_ = np.unique(y) if given is None else given
        if len(self.classes_) < 2:
            raise ValueError(
                f"There must be two classes or more, got one class: {self.classes_.tolist()}."
            )
        return len(self.classes_)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[places] != y
        if unknown.any():
            raise ValueError(
                f"y has classes {np.unique(y[unknown]).tolist()}, which are not among the classes "
                f"of the first call, {self.classes_.tolist()}."
            )
        return places.astype(np.int64)[:, None]

    def _ridge_targets(self, encoded: np.ndarray) -> np.ndarray:
        return 2.0 * np.eye(len(self.classes_))[encoded[:, 0]] - 1.0

    def _first_intercept(self, encoded: np.ndarray) -> np.ndarray:
        counts = np.bincount(encoded[:, 0], minlength=len(self.classes_))
        if self._loss_name != "log_loss":
            return np.zeros(len(counts))
        logs = np.log(np.maximum(counts, 1e-6 * len(encoded)))
        return logs - logs.mean()

    def _scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wrong = (outputs.argmax(1, keepdim=True) != targets).squeeze(1)
        apart = outputs.double().softmax(1)
        apart.scatter_add_(1, targets, torch.full_like(apart[:, :1], -1.0))
        return -(wrong + apart.square().sum(1))
