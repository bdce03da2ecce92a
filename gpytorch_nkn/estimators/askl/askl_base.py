"""What the classifier and the regressor by spectral kernel learning have in common."""

from __future__ import annotations

import math
import time
from numbers import Integral
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_fitted import FittedSpectral
from gpytorch_nkn.estimators.askl.askl_inputs import InputMap, choose_input_map
from gpytorch_nkn.estimators.askl.askl_losses import LOSSES
from gpytorch_nkn.estimators.askl.askl_optimizers import OPTIMIZERS, Optimizer
from gpytorch_nkn.estimators.askl.askl_options import check_options
from gpytorch_nkn.estimators.askl.askl_selection import Outcome, Plan, Task, doubling_cycles, train
from gpytorch_nkn.estimators.askl.askl_start import METHODS, start_network
from gpytorch_nkn.estimators.askl.askl_training import Objective, Trainer
from gpytorch_nkn.estimators.askl.hold_out import held_out_parts

__all__ = ["SpectralLearner"]

_FEATURE_PENALTY = 1e-4
# Gradients of fitted rows vanish, and Adam would go on by full steps in random directions with
# less; gradients of features are of the order of one over the root of their number.
_EPSILON = 0.01
_RATES = {  # of the weights; that of gradient descent by the curvature of the loss
    "adam": {"hinge": 0.05, "log_loss": 0.05, "squared_error": 0.05},
    "sgd": {"hinge": 0.5, "log_loss": 1.0, "squared_error": 0.25},
}
_MAX_REFIT = 20_000  # rows, from which on those held out are not missed
_MIN_ROWS = 10  # below which held-out rows say too little
_MAP_SHARE, _GAMMA_SHARE = 0.25, 0.4  # of the budget, after which the start tries nothing more


def _folds(count: int) -> tuple[int, float]:
    """Number of parts to hold out in turn, and the share of rows that each has."""
    if count < 1000:
        return (5 if count < 600 else 3), 0.2
    return 1, max(0.1, min(1000 / count, 0.2))


def _batch_size(count: int, dim: int) -> int:
    """Rows of a mini-batch: a hundredth of all, a power of two from 32 to 256."""
    least = 128 if dim >= 200 and count >= 5000 else 32
    return max(least, min(256, 2 ** int(math.log2(max(count, 100) / 100))))


class SpectralLearner(FittedSpectral):
    """Fitting, features and diagnostics of ASKL; see :class:`ASKLClassifier`.

    A subclass turns targets into what its loss takes, and outputs into predictions.
    """

    method: str
    gamma: float | str
    weight_penalty: float
    feature_penalty: float | None
    depth: int
    fit_intercept: bool
    solver: str
    learning_rate: float | None
    frequency_learning_rate: float | None
    batch_size: int | str
    max_iter: int
    early_stopping: bool
    validation_fraction: float | None
    refit: bool | str
    ridge: bool
    n_iter_no_change: int
    standardize: bool | str
    budget: float | None
    device: str | None
    random_state: int | np.random.RandomState | None
    progress: bool

    gamma_: list[float]
    frequency_learning_rates_: list[float]
    loss_curve_: list[float]
    validation_scores_: list[float]
    best_iteration_: int
    n_iter_: int
    _optimizer: Optimizer | None
    _rule_rates: list[float]
    _rng: np.random.RandomState

    # What a subclass provides.

    def _read(self, X: ArrayLike, y: ArrayLike, first: bool) -> tuple[np.ndarray, np.ndarray]:
        """Table and targets as arrays; of the first call if so, which fixes the columns."""
        raise NotImplementedError

    def _learn_targets(self, y: np.ndarray, given: np.ndarray | None) -> int:
        """Take scales, or classes if not given, from targets; returns the number of outputs."""
        raise NotImplementedError

    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Targets as the loss takes them, one row each."""
        raise NotImplementedError

    def _ridge_targets(self, encoded: np.ndarray) -> np.ndarray:
        """Encoded targets as a ridge regression takes them, float64 ``N x K``."""
        raise NotImplementedError

    def _first_intercept(self, encoded: np.ndarray) -> np.ndarray:
        """Intercepts ``K`` to start from."""
        raise NotImplementedError

    def _scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Scores ``N`` of outputs for encoded targets, the higher the better."""
        raise NotImplementedError

    # Fitting.

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from a table.

        Args:
            X: Rows ``N x d``; a pandas data frame keeps its names.
            y: Targets ``N``; for the regressor also ``N x K``.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: Values are NaN, infinite or no numbers, lengths differ, there are fewer
                than 2 rows, all columns or all targets are constant, there is only one class, or
                an option has no meaning.
            TypeError: ``X`` is sparse, or an option is of a wrong type.
            FloatingPointError: Training came to values that are not finite before the end of its
                first cycle, as with learning rates that are too large.
            KeyboardInterrupt: Ctrl-C came before the first step of training: while scaling and
                ``gamma`` are chosen and the first ridge regression is solved, which together take
                seconds from a thousand rows on.
        """
        begin = time.monotonic()
        self._forget()
        check_options(vars(self))
        table, target = self._read(X, y, first=True)
        try:
            with torch.inference_mode(False), torch.no_grad():
                rows = self._begin(table, target, begin=begin)
                self._network.prepare()
                outcome = self._train(rows, self._encode(target), begin)
                self._network.release()
        except BaseException:
            self._forget()  # what is not trained must not predict
            raise
        self.loss_curve_ = outcome.losses
        self.validation_scores_ = outcome.scores
        self.best_iteration_ = outcome.best_epoch
        self.n_iter_ = outcome.epochs
        return self

    def _train(self, rows: np.ndarray, encoded: np.ndarray, begin: float) -> Outcome:
        """Train the network, for as long as held-out rows say, in what is left of the budget."""
        count, held_out, cycles = len(rows), [], [self.max_iter]
        if self.early_stopping and count >= _MIN_ROWS:
            parts, fraction = _folds(count)
            if self.validation_fraction is not None:
                parts, fraction = 1, self.validation_fraction
            labels = encoded[:, 0] if encoded.dtype == np.int64 else None
            held_out = held_out_parts(count, parts, fraction, self._rng, labels)
        if held_out:
            cycles = doubling_cycles(self.max_iter)
        refit = count < _MAX_REFIT if self.refit == "auto" else bool(self.refit)
        ridge = self.ridge and self.fit_intercept
        learned = METHODS[self.method].learned
        if held_out and ridge and not learned and self._loss_name == "squared_error":
            cycles = []  # ridge regression on features that stay is all there is to learn
        budget = self.budget
        if budget is not None:
            budget = max(budget - (time.monotonic() - begin), 0.0)
        task = Task(
            self._inputs(rows),
            self._targets(encoded),
            self._targets(self._ridge_targets(encoded)) if ridge else None,
            self._loss_name,
            self._scores,
        )
        plan = Plan(
            cycles=cycles,
            held_out=held_out,
            refit=bool(held_out) and (refit or len(held_out) > 1),
            patience=self.n_iter_no_change,
            batch_size=self._rows_of_a_batch(rows),
            budget=budget,
            progress=self.progress,
        )
        return train(self._network, lambda: self._trainer(None), task, plan, self._rng)

    def _partial_fit(
        self, X: ArrayLike, y: ArrayLike, first: bool, classes: np.ndarray | None
    ) -> Self:
        """One pass over the rows; of a first call if so."""
        if first:
            self._forget()
        check_options(vars(self))
        table, target = self._read(X, y, first=first)
        with torch.inference_mode(False), torch.no_grad():
            if first:
                rows = self._begin(table, target, keep_constant=True, classes=classes)
                self.loss_curve_, self.validation_scores_ = [], []
            else:
                rows = self.input_map_(table)
                self._refuse_another_solver()
                self._set_frequency_rates()
            inputs, targets = self._inputs(rows), self._targets(self._encode(target))
            network, before = self._network, self._network.values.clone()
            network.prepare()
            trainer = self._trainer(self._optimizer)
            try:
                loss = trainer.epoch(
                    inputs,
                    targets,
                    self._rows_of_a_batch(rows),
                    self._rng,
                    lambda number, count: 1.0,
                )
                if not math.isfinite(loss):
                    raise FloatingPointError(
                        "The pass led to values that are not finite, as learning rates that are "
                        "too large do; the parameters are those before it."
                    )
            except BaseException:
                network.values.copy_(before)
                self._optimizer = None
                raise
            self._optimizer = trainer.optimizer
            self._optimizer.unbind()
            network.release()
        self.loss_curve_ = [*self.loss_curve_, loss]
        self.n_iter_ = getattr(self, "n_iter_", 0) + 1
        self.best_iteration_ = getattr(self, "best_iteration_", 0) + 1
        self._trained_loss = self._loss_name
        return self

    def _forget(self) -> None:
        """Drop what another fit left."""
        private = ("_network", "_trained_loss")
        for name in [name for name in vars(self) if name.endswith("_") or name in private]:
            delattr(self, name)

    def _refuse_another_solver(self) -> None:
        """What an optimiser remembers means nothing to another."""
        if self._optimizer is not None and type(self._optimizer) is not OPTIMIZERS[self.solver]:
            raise ValueError(
                f"solver must stay that of the first call of partial_fit, got {self.solver!r}."
            )

    def _set_frequency_rates(self) -> None:
        given = self.frequency_learning_rate
        rule = self._rule_rates
        self.frequency_learning_rates_ = list(rule) if given is None else [given] * len(rule)

    def _begin(
        self,
        table: np.ndarray,
        target: np.ndarray,
        *,
        keep_constant: bool = False,
        classes: np.ndarray | None = None,
        begin: float = math.inf,
    ) -> np.ndarray:
        """Standardise, and draw a network; returns the standardised table."""
        self._rng = check_random_state(self.random_state)
        budget = math.inf if self.budget is None or keep_constant else self.budget
        num_outputs = self._learn_targets(target, classes)
        ridge_targets = self._ridge_targets(self._encode(target))
        if self.standardize == "auto" and not keep_constant:
            self.input_map_ = choose_input_map(
                table, ridge_targets, self._rng, begin + _MAP_SHARE * budget
            )
        else:
            scaling = "standard" if self.standardize else "none"
            self.input_map_ = InputMap.of(table, scaling, keep_constant=keep_constant)
        rows = self.input_map_(table)
        start = start_network(
            torch.from_numpy(rows),
            num_outputs,
            METHODS[self.method],
            num_features=self.n_components,
            depth=self.depth,
            gamma=self.gamma,
            ridge_targets=torch.from_numpy(ridge_targets),
            solver=self.solver,
            classes=self._loss_name != "squared_error",
            intercept=self.fit_intercept,
            rng=self._rng,
            device=torch.device("cpu" if self.device is None else self.device),
            end=begin + _GAMMA_SHARE * budget,
        )
        self._network, self._optimizer = start.network, None
        if self.fit_intercept:
            offsets = torch.from_numpy(self._first_intercept(self._encode(target)))
            start.network.intercept.copy_(offsets)
        self.gamma_ = start.gamma
        self._rule_rates, self._trained_loss = start.rates, self._loss_name
        self._set_frequency_rates()
        return rows

    def _trainer(self, optimizer: Optimizer | None) -> Trainer:
        """A trainer of the network, which is prepared, with what its optimiser remembers."""
        method, network = METHODS[self.method], self._network
        if optimizer is None:
            make = OPTIMIZERS[self.solver]
            epsilon = _EPSILON / math.sqrt(network.num_features)
            optimizer = make(network.values, network.gradient, network.windows, epsilon)
        else:
            optimizer.bind(network.values, network.gradient)
        feature_penalty = self.feature_penalty
        if feature_penalty is None:
            feature_penalty = _FEATURE_PENALTY if method.trace_norm else 0.0
        objective = Objective(
            LOSSES[self._loss_name], self.weight_penalty, method.trace_norm, feature_penalty
        )
        rate = self.learning_rate
        rate = _RATES[self.solver][self._loss_name] if rate is None else rate
        return Trainer(network, optimizer, objective, [rate, *self.frequency_learning_rates_])

    def _rows_of_a_batch(self, rows: np.ndarray) -> int:
        return (
            self.batch_size if isinstance(self.batch_size, Integral) else _batch_size(*rows.shape)
        )

    def _inputs(self, rows: np.ndarray) -> Tensor:
        """Float32 rows ``N x (d + 1)``, ones in the last column, where the network is."""
        table = np.empty((len(rows), rows.shape[1] + 1), dtype=np.float32)
        with np.errstate(over="ignore"):
            table[:, :-1], table[:, -1] = rows, 1.0
        if not np.isfinite(table).all():
            raise ValueError(
                f"X holds values that are too large for float32 as the network sees them, up to "
                f"{np.abs(rows).max():g}."
            )
        return torch.from_numpy(table).to(self._network.values.device)

    def _targets(self, encoded: np.ndarray) -> Tensor:
        return torch.from_numpy(encoded).to(self._network.values.device)
