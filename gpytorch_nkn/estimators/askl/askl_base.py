"""Base class of ASKLClassifier and ASKLRegressor."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_inputs import InputMap, choose_input_map
from gpytorch_nkn.estimators.askl.askl_network import LOSSES, SpectralNetwork, feature_scale
from gpytorch_nkn.estimators.askl.askl_selection import (
    Selection,
    SpectralTask,
    doubling_cycles,
    held_out_parts,
)
from gpytorch_nkn.estimators.askl.askl_training import Objective
from gpytorch_nkn.estimators.askl.leave_one_out import kernel_ridge
from gpytorch_nkn.estimators.estimator import Estimator, forgets_failures
from gpytorch_nkn.fit import Session, check_counts, check_number, warn_of_size
from gpytorch_nkn.kernels import NonStationarySpectralKernel

__all__ = ["METHODS", "Problem", "SpectralLearner", "start_network"]

_RATE = 0.05  # learning rate of the weights
_BLOCK = 2**18  # number of angles in memory during predictions
_MIN_ROWS = 10  # smallest number of rows for early stopping
_MAX_UNWARNED = 200_000  # largest number of rows without a warning
_GAMMA_ROWS = 800  # largest number of rows for the choice of gamma
# Change of an angle per Adam step: small in regression, because targets are noisy; for classes
# times sqrt(d / 100) with d > 100 columns.
_REGRESSION_STEP, _CLASS_STEP, _FEW_COLUMNS = 0.15, 0.5, 100
_INDEPENDENT = 0.3  # independent part of Omega', in standard deviations of Omega


class Method(NamedTuple):
    """Properties of a method in table 1 of the paper."""

    stationary: bool
    learned: bool
    trace_norm: bool


METHODS = {
    "SK": Method(True, False, False),
    "NSK": Method(False, False, False),
    "SKL": Method(True, True, False),
    "NSKL": Method(False, True, False),
    "ASKL": Method(False, True, True),
}


def _batch_size(count: int, dim: int) -> int:
    """Return the size of a mini-batch: about 1 % of the rows, a power of two up to 256."""
    least = 128 if dim >= 200 and count >= 5000 else 32
    return max(least, min(256, 2 ** int(math.log2(max(count, 100) / 100))))


class Problem(NamedTuple):
    """Data of a fit."""

    table: np.ndarray  # rows N x D
    targets: np.ndarray  # labels N x 1, or scaled targets N x K
    ridge_targets: np.ndarray  # targets of ridge regression, float64 N x K
    intercept: np.ndarray  # initial intercepts K
    offset: np.ndarray | float = 0.0  # means K of the targets, added to outputs
    scale: np.ndarray | float = 1.0


class SpectralLearner(Estimator):
    """Training, features and diagnostics of ASKL, for classification and regression."""

    _shared_text: ClassVar[dict[str, str]] = Estimator._shared_text | {
        "shared arguments": """
method: Method of table 1 of the paper:

    - ``"SK"``: stationary (``Omega = Omega'``), fixed frequencies;
    - ``"NSK"``: non-stationary, fixed frequencies;
    - ``"SKL"``: stationary, learned frequencies;
    - ``"NSKL"``: non-stationary, learned frequencies;
    - ``"ASKL"``: ``"NSKL"`` with penalties on the trace norm of ``W`` and the norm of the features.

    The first four penalise the squared Frobenius norm of ``W``. With early stopping, regression
    with ``"SK"`` or ``"NSK"`` is ridge regression on the features and needs no epochs.
n_components: Number ``D`` of features.
gamma: Parameter of the RBF kernel ``exp(-gamma r^2)`` from which initial frequencies are drawn: a
    number, or ``"auto"`` to minimise the leave-one-out error of kernel ridge regression on up to
    800 rows.
weight_penalty: Factor ``lambda_1`` of the norm of ``W``. With ``"ASKL"``, it is relative to the RMS
    of the gradients, because Adam divides gradients by this RMS and the proximal step does not.
feature_penalty: Factor ``lambda_2`` of the mean squared norm of the features, for ``"ASKL"`` only.
max_iter: Largest number of epochs.
early_stopping: Choose the number of cycles on held-out rows: five folds of 20 % below 600 rows,
    three below 1000, otherwise one of 10 to 20 %. Below 20,000 rows, a final training uses all
    rows. Ridge regression on the initial features is another candidate. In regression, it also
    sets ``W`` after training. With ``False`` or fewer than 10 rows, train for ``max_iter`` epochs.
budget: Wall time of the training in seconds, within which learning rates decrease to zero; ``None``
    for no limit. The choice of scalings and ``gamma`` takes a few more seconds.
""",
        "shared attributes": """
feature_coef_, intercept_: Weights ``D x K`` and intercepts ``K``, in units of the targets.
frequencies_, phases_: Frequencies ``2 x D x d`` (``1 x D x d`` if stationary) and phases ``D``, for
    the ``d`` inputs of ``input_map_``.
input_map_: Maps rows to scaled and weighted inputs, without constant columns.
singular_values_, rank_: Singular values of the weights for targets of unit variance, and the number
    of them above the rounding error of float32.
loss_curve_: Mean training loss of each epoch of the last training, without penalties.
validation_scores_: Scores of held-out rows after ridge regression and after each cycle: minus the
    sum of error rate and Brier score, or minus the mean squared error of standardised targets.
best_iteration_, n_iter_: Numbers of epochs: for the selected parameters (0 for ridge regression),
    and in all trainings.
gamma_: Parameter of the RBF kernel from which initial frequencies were drawn.
""",
    }

    method: str
    n_components: int
    gamma: float | str
    weight_penalty: float
    feature_penalty: float
    max_iter: int
    early_stopping: bool
    n_features_in_: int
    input_map_: InputMap
    feature_coef_: np.ndarray
    intercept_: np.ndarray
    frequencies_: np.ndarray
    phases_: np.ndarray

    @property
    @abstractmethod
    def _loss_name(self) -> str:
        """Name of the loss, a key of ``LOSSES``."""

    @abstractmethod
    def _read(self, X: ArrayLike, y: ArrayLike) -> Problem:
        """Check the data of a fit and encode the targets."""

    @abstractmethod
    def _scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return scores ``N`` of outputs ``N x K``; higher is better."""

    @forgets_failures
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn scalings, frequencies and weights.

        Args:
            X: Rows ``N x D``.
            y: Classes or targets ``N``; for the regressor also ``N x K``.

        Raises:
            ValueError, TypeError: The data or an option are invalid.
            KeyboardInterrupt: Ctrl-C was pressed before the first training step. A later Ctrl-C
                gives a warning and keeps the best parameters so far.
        """
        self._check_options()
        problem = self._read(X, y)
        if self.budget is None:
            advice = "every epoch uses all of them; a budget limits the time."
            warn_of_size(type(self).__name__, len(problem.table), _MAX_UNWARNED, advice)
        with torch.no_grad():
            self._fit(problem)
        return self

    def _fit(self, problem: Problem) -> None:
        """Learn scalings, initialise the network, and train it."""
        rng = check_random_state(self.random_state)
        method, loss = METHODS[self.method], self._loss_name
        encoded, ridge_targets = problem.targets, problem.ridge_targets
        self.input_map_ = choose_input_map(problem.table, ridge_targets, rng)
        rows = self.input_map_(problem.table)
        device = torch.device("cpu" if self.device is None else self.device)
        network, self.gamma_, rate = start_network(
            torch.from_numpy(rows),
            ridge_targets.shape[1],
            method,
            num_features=self.n_components,
            gamma=self.gamma,
            ridge_targets=torch.from_numpy(ridge_targets),
            classes=loss != "squared_error",
            rng=rng,
            device=device,
        )
        network.intercept.copy_(torch.from_numpy(problem.intercept))
        held_out, cycles = [], [self.max_iter]
        if self.early_stopping and len(rows) >= _MIN_ROWS:
            labels = encoded[:, 0] if encoded.dtype == np.int64 else None
            held_out, cycles = (
                held_out_parts(len(rows), rng, labels),
                doubling_cycles(self.max_iter),
            )
        if held_out and not method.learned and loss == "squared_error":
            cycles = []  # ridge regression on fixed features needs no epochs
        inputs = np.ones((len(rows), rows.shape[1] + 1), dtype=np.float32)
        inputs[:, :-1] = rows
        x, y, z = (torch.from_numpy(a).to(device) for a in (inputs, encoded, ridge_targets))
        task = SpectralTask(x, y, z, loss, self._scores)
        penalties = (self.weight_penalty, method.trace_norm)
        feature_penalty = self.feature_penalty if method.trace_norm else 0.0
        batch_size = _batch_size(*rows.shape)
        objective = Objective(LOSSES[loss], *penalties, feature_penalty, (_RATE, rate), batch_size)
        session = Session(budget=self.budget, progress=self.progress)
        outcome = Selection(network, objective, task, cycles, held_out, session, rng).run()
        weight, intercept, self.frequencies_, self.phases_ = (
            t.double().cpu().numpy()
            for t in (network.weight.mT, network.intercept, network.frequencies, network.phases)
        )
        self.feature_coef_ = weight * problem.scale
        self.intercept_ = problem.offset + problem.scale * intercept
        self.singular_values_ = np.linalg.svd(weight, compute_uv=False)
        rounding = max(weight.shape) * np.finfo(np.float32).eps * self.singular_values_.max()
        self.rank_ = int(np.sum(self.singular_values_ > rounding))
        self.loss_curve_ = outcome.losses
        self.validation_scores_ = outcome.scores
        self.best_iteration_ = outcome.best_epoch
        self.n_iter_ = outcome.epochs

    def _check_options(self) -> None:
        """Raise an error if an option is invalid."""
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {list(METHODS)}, got {self.method!r}.")
        check_counts(1, n_components=self.n_components, max_iter=self.max_iter)
        check_number("gamma", self.gamma, positive=True, words=("auto",))
        check_number("weight_penalty", self.weight_penalty, positive=False)
        check_number("feature_penalty", self.feature_penalty, positive=False)
        self._check_training_options()
        device: Any = self.device
        if device is not None and not isinstance(device, str | torch.device):
            raise TypeError(f"device must be the name of a torch device or None, got {device!r}.")
        torch.ones(1, device=device)  # raises if the device does not exist

    def features(self, X: ArrayLike) -> np.ndarray:
        """Return the learned features of rows ``M x D``, ``M x n_components``.

        Their inner products are the learned kernel, and outputs are ``features(X) @
        feature_coef_ + intercept_``.
        """
        return np.concatenate(list(self._feature_blocks(X)))

    def _outputs(self, X: ArrayLike) -> np.ndarray:
        """Return outputs ``M x K`` in float64."""
        blocks = self._feature_blocks(X)
        return np.concatenate([block @ self.feature_coef_ + self.intercept_ for block in blocks])

    def _feature_blocks(self, X: ArrayLike) -> Iterator[np.ndarray]:
        """Yield features ``m x D`` of blocks of rows, in float64."""
        table = self._checked_rows(X)
        inputs = torch.from_numpy(self.input_map_(table))
        device = torch.device("cpu" if self.device is None else self.device)
        omega, phases = (torch.tensor(a, device=device) for a in (self.frequencies_, self.phases_))
        for rows in inputs.split(max(1, _BLOCK // omega[..., 0].numel())):
            cosines = torch.add(phases, rows.to(device) @ omega.mT).cos_().sum(0)
            yield cosines.mul_(feature_scale(*omega.shape[:2])).cpu().numpy()

    def kernel(self) -> NonStationarySpectralKernel:
        """Return the learned kernel with fixed frequencies, for Gaussian processes.

        The inputs of the float64 kernel are ``input_map_(X)``, its feature map is :meth:`features`.
        It has an output scale and needs no ``ScaleKernel``.
        """
        check_is_fitted(self)
        pairs = torch.tensor(self.frequencies_)
        kernel = NonStationarySpectralKernel(
            pairs.size(1),
            pairs.size(2),
            features="phi",
            stationary=len(pairs) == 1,
            learn_frequencies=False,
        ).double()
        kernel.initialize(lengthscale=1.0, phases=torch.tensor(self.phases_))
        kernel.frequencies = pairs.expand(2, -1, -1)
        return kernel


def start_network(
    x: Tensor,
    num_outputs: int,
    method: Method,
    *,
    num_features: int,
    gamma: float | str,
    ridge_targets: Tensor,
    classes: bool,
    rng: np.random.RandomState,
    device: torch.device,
) -> tuple[SpectralNetwork, float, float]:
    """Draw frequencies of an RBF kernel; return network, ``gamma`` and their learning rate.

    Rows ``N x d`` and targets ``N x K`` are float64 on the CPU.
    """
    if len(x) > _GAMMA_ROWS:
        chosen = torch.from_numpy(rng.choice(len(x), _GAMMA_ROWS, replace=False))
        x, ridge_targets = x[chosen], ridge_targets[chosen]
    gamma = kernel_ridge(x, ridge_targets).gamma if isinstance(gamma, str) else float(gamma)
    step = _REGRESSION_STEP
    if classes:
        step = _CLASS_STEP * max(1.0, math.sqrt(x.size(1) / _FEW_COLUMNS))
    rate = step / max(float(x.abs().sum(1).mean()), 1e-12)
    draws = rng.standard_normal((1 if method.stationary else 2, num_features, x.size(1)))
    if not method.stationary:
        draws[1] = math.sqrt(1 - _INDEPENDENT**2) * draws[0] + _INDEPENDENT * draws[1]
    frequencies = torch.from_numpy(math.sqrt(2 * gamma) * draws)
    phases = torch.from_numpy(rng.uniform(0, 2 * math.pi, num_features))
    network = SpectralNetwork(
        frequencies, phases, num_outputs, learned=method.learned, device=device
    )
    return network, gamma, rate
