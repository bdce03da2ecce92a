"""What the classifier and the regressor by spectral kernel learning have in common."""

from __future__ import annotations

import math
import time
from numbers import Integral
from typing import Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gpytorch_nkn._devices import OnCPU
from gpytorch_nkn.estimators.askl.askl_inputs import InputMap, choose_input_map
from gpytorch_nkn.estimators.askl.askl_network import LOSSES, SpectralNetwork
from gpytorch_nkn.estimators.askl.askl_optimizers import OPTIMIZERS, Optimizer
from gpytorch_nkn.estimators.askl.askl_options import check_options
from gpytorch_nkn.estimators.askl.askl_selection import (
    Outcome,
    Plan,
    SpectralTask,
    doubling_cycles,
    held_out_parts,
    train,
)
from gpytorch_nkn.estimators.askl.askl_start import METHODS, start_network
from gpytorch_nkn.estimators.askl.askl_training import SpectralObjective, Trainer
from gpytorch_nkn.estimators.table_input import refuse_other_values
from gpytorch_nkn.fit import warn_of_size
from gpytorch_nkn.kernels import NonStationarySpectralKernel

__all__ = ["SpectralLearner", "describe_shared"]

C = TypeVar("C", bound="SpectralLearner")

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
_USUAL_ROWS = 200_000
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


def describe_shared(cls: type[C]) -> type[C]:
    """Put what the docstring of :class:`SpectralLearner` says at the places marked in another."""
    if cls.__doc__ and SpectralLearner.__doc__:  # not with python -OO
        arguments, attributes = SpectralLearner.__doc__.split("Args:")[1].split("Attributes:")
        for part in (arguments, attributes):
            cls.__doc__ = cls.__doc__.replace("{shared}", part.strip(), 1)
    return cls


class SpectralLearner(OnCPU, BaseEstimator):
    """Fitting, features and diagnostics of ASKL, for classes and for numbers.

    A subclass turns targets into what its loss takes, and outputs into predictions. Its docstring
    gets the following by :func:`describe_shared`.

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
            whose ridge regression predicts held-out rows best, among 800 rows.
        weight_penalty: Factor of the norm of ``W``, ``lambda_1`` of the paper; in a regression for
            targets of unit deviation. With ``"sgd"`` it
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
        fit_intercept: Learn ``c``. In a regression without, it is the mean of the targets.
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
            from be a candidate, too, its penalty chosen by held-out rows. In a regression it also
            solves for the weights at the end of cycles; ``False`` keeps those of the training, and
            with them the rank that ``weight_penalty`` gives. With ``"SK"`` and ``"NSK"``, whose
            features stay, this ridge regression is the whole of a regression: there is no epoch of
            training, and ``weight_penalty``, ``solver``, ``learning_rate``, ``batch_size``,
            ``max_iter`` and ``n_iter_no_change`` have no effect.
        standardize: ``"auto"`` chooses how columns are scaled, and weights them by their relevance,
            with kernel ridge regression on up to 900 rows (see
            ``choose_input_map`` of ``gpytorch_nkn.estimators.askl.askl_inputs``); ``True`` scales
            them, with tails drawn in; ``False`` takes them as they are, in float32 (with a warning
            where most distinct values of a column are the same in it).
        budget: Wall time of a fit in seconds; ``None`` for no limit. Learning rates fall within it.
            A quarter of it is for the choice of scalings and 40 % end that of ``gamma``, with as
            many rows as there is time for, by the time that few take; so do ridge regressions. What
            remains of parts and the training on all rows is left out at the end. What cannot be
            shortened is reading and scaling the table, and a mini-batch.
        device: Torch device of the computation, such as ``"cuda"``; ``None`` is the CPU, whatever
            PyTorch's default device is. Pickles hold everything on the CPU, where the estimator
            then is.
        random_state: Seed, or NumPy random state; an integer makes fits reproducible.
        progress: Show a progress bar on a terminal.

    Attributes:
        coef_, intercept_: Weights ``D x K`` and intercepts ``K``, in units of the targets.
        frequencies_, phases_: Lists with an entry for each layer, ``2 x D x d`` (or ``1 x D x d``)
            and ``D``, for inputs as the network sees them.
        input_map_: What makes these of rows: columns in use (constant ones are left out), their
            scaling and weights.
        singular_values_, rank_: Singular values of the weights, and number of those that are not
            zero.
        loss_curve_: Mean training loss of each epoch, without penalties, of the last training, and
            of each call of :meth:`partial_fit` after it.
        validation_scores_: Scores of held-out rows: of the ridge regression, then at the end of
            each cycle. For classes minus the sum of the share of wrong ones and the Brier score;
            otherwise minus the mean squared error, for targets of unit deviation.
        best_iteration_: Number of epochs of the parameters that are kept; 0 for ridge regression.
        n_iter_: Number of epochs in all, calls of :meth:`partial_fit` included.
        gamma_, frequency_learning_rates_: What the rules gave, layer by layer.
    """

    n_features_in_: int
    input_map_: InputMap
    gamma_: list[float]
    frequency_learning_rates_: list[float]
    loss_curve_: list[float]
    validation_scores_: list[float]
    best_iteration_: int
    n_iter_: int
    _network: SpectralNetwork
    _trained_loss: str
    _optimizer: Optimizer | None
    _rule_rates: list[float]
    _rng: np.random.RandomState

    def __init__(
        self,
        method: Literal["SK", "NSK", "SKL", "NSKL", "ASKL"] = "ASKL",
        *,
        n_components: int = 2000,
        gamma: float | Literal["auto", "median"] = "auto",
        weight_penalty: float = 1e-5,
        feature_penalty: float | None = None,
        depth: int = 1,
        fit_intercept: bool = True,
        solver: Literal["adam", "sgd"] = "adam",
        learning_rate: float | None = None,
        frequency_learning_rate: float | None = None,
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 80,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        refit: bool | Literal["auto"] = "auto",
        ridge: bool = True,
        n_iter_no_change: int = 2,
        standardize: bool | str = "auto",
        budget: float | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self.method = method
        self.n_components = n_components
        self.gamma = gamma
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

    # What a subclass provides.

    @property
    def _loss_name(self) -> str:
        """One of ``LOSSES``."""
        raise NotImplementedError

    def _output_scale(self) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Offset and scale of the outputs."""
        return 0.0, 1.0

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
        if self.budget is None:
            warn_of_size(
                type(self).__name__,
                len(table),
                _USUAL_ROWS,
                "every epoch passes over all of them; a budget ends the training in time, "
                "and partial_fit takes the rows in parts.",
            )
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
            budget = max(budget - (time.monotonic() - begin), 1e-9)  # which is none
        task = SpectralTask(
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
        objective = SpectralObjective(
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

    # Reading a fit.

    def features(self, X: ArrayLike) -> np.ndarray:
        """The learned feature map; its inner products are the learned kernel.

        Args:
            X: Rows ``M x d``.

        Returns:
            Features ``M x D``, of the last layer: outputs are ``features(X) @ coef_ + intercept_``.
        """
        inputs = self._standardised(X)
        with torch.inference_mode(False), torch.no_grad():
            blocks = [part.cpu() for part in self._network.features_in_double(inputs)]
            return torch.cat(blocks).numpy()

    def _outputs(self, X: ArrayLike) -> np.ndarray:
        """Outputs ``M x K`` in float64."""
        inputs = self._standardised(X)
        network = self._network
        with torch.inference_mode(False), torch.no_grad():
            weight, intercept = network.weight.mT.double(), network.intercept.double()
            blocks = [
                torch.addmm(intercept, part, weight) for part in network.features_in_double(inputs)
            ]
            outputs = torch.cat(blocks).cpu().numpy()
        offset, scale = self._output_scale()
        return offset + scale * outputs

    def kernel(self, *, learn_frequencies: bool = False) -> NonStationarySpectralKernel:
        """The learned kernel, for Gaussian processes.

        Args:
            learn_frequencies: Let the training of a Gaussian process move them further; by
                default they are frozen (``requires_grad`` is ``False``).

        Returns:
            A float64 kernel with :meth:`features` as its features. Its inputs are
            ``input_map_(X)``, the table as the features see it. It has an output scale (and a
            lengthscale) of its own, so it goes into a model without a ``ScaleKernel``, whose scale
            would be the same once more.

        Raises:
            NotImplementedError: There are several layers.
        """
        check_is_fitted(self, "input_map_")
        frequencies, phases = self.frequencies_, self.phases_
        if len(frequencies) > 1:
            raise NotImplementedError(
                f"A kernel of one layer can be returned, got depth={len(frequencies)}."
            )
        pairs = torch.from_numpy(frequencies[0])
        kernel = NonStationarySpectralKernel(
            pairs.size(1),
            pairs.size(2),
            features="phi",
            stationary=len(pairs) == 1,
            learn_frequencies=learn_frequencies,
        ).double()
        kernel.initialize(lengthscale=1.0, phases=torch.from_numpy(phases[0]))
        kernel.frequencies = pairs.expand(2, -1, -1)
        return kernel

    @property
    def coef_(self) -> np.ndarray:
        """Weights ``D x K`` of the features."""
        return self._weight().numpy() * self._output_scale()[1]

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts ``K``."""
        check_is_fitted(self, "input_map_")
        offset, scale = self._output_scale()
        return offset + scale * self._network.intercept.double().cpu().numpy()

    @property
    def frequencies_(self) -> list[np.ndarray]:
        """Frequencies of each layer, ``2 x D x d`` (``1 x D x d`` if stationary)."""
        check_is_fitted(self, "input_map_")
        return [part.double().cpu().numpy() for part in self._network.stacked_frequencies()]

    @property
    def phases_(self) -> list[np.ndarray]:
        """Phases of each layer, ``D``."""
        check_is_fitted(self, "input_map_")
        size = self._network.num_features
        return [layer.phases[:size].double().cpu().numpy() for layer in self._network.layers]

    @property
    def singular_values_(self) -> np.ndarray:
        """Singular values of the weights, for targets of unit deviation."""
        return torch.linalg.svdvals(self._weight()).numpy()

    @property
    def rank_(self) -> int:
        """Number of singular values above the rounding of float32."""
        values = self.singular_values_
        limit = max(self._weight().shape) * np.finfo(np.float32).eps * values.max()
        return int(np.sum(values > limit))

    def _weight(self) -> Tensor:
        check_is_fitted(self, "input_map_")
        return self._network.weight.mT.double().cpu()

    def _standardised(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self, "input_map_")
        refuse_other_values("X", X)
        table = validate_data(self, X, dtype=np.float64, reset=False, order="C")
        rows = self.input_map_(table)
        return torch.from_numpy(rows).to(self._network.values.device)
