"""Regression on tables of data by networks of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, Literal, overload

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.models import ExactGP
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gpytorch_nkn._devices import OnCPU
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP, max_exact_rows
from gpytorch_nkn.estimators.nkn.ensemble import (
    SELECTIONS,
    Costs,
    Ensemble,
    mixture_quantile,
)
from gpytorch_nkn.estimators.nkn.sparse_predictor import sparse_predictors
from gpytorch_nkn.estimators.nkn.table_categories import Categories
from gpytorch_nkn.estimators.nkn.table_ends import end_rows
from gpytorch_nkn.estimators.nkn.table_gaps import (
    KINDS_OF_GAPS,
    LACKS_CATEGORY,
    Gaps,
    kinds_of_rows,
    learned_rows,
)
from gpytorch_nkn.estimators.nkn.table_models import (
    check_structures,
    named_structures,
    train_structures,
    untrained_model,
)
from gpytorch_nkn.estimators.nkn.table_monotone import Monotone
from gpytorch_nkn.estimators.nkn.table_rows import (
    DrawnRows,
    SourceRows,
    TableRows,
    TensorRows,
    row_source,
)
from gpytorch_nkn.estimators.nkn.table_targets import Targets, candidates, choose_transform
from gpytorch_nkn.estimators.nkn.table_times import Times
from gpytorch_nkn.estimators.table_input import (
    Standardisation,
    missing_as_nan,
    refuse_constant,
    refuse_missing_targets,
    refuse_other_values,
    refuse_repeated_names,
    warn_of_copies,
)
from gpytorch_nkn.estimators.transforms import (
    TRANSFORMS,
    Transform,
    as_bounds,
)
from gpytorch_nkn.fit import (
    FitResult,
    Recipe,
    Session,
    check_counts,
    check_dense,
    warn_of_size,
)

__all__ = ["NKNRegressor"]

_SHARE = 0.5  # of a budget, at most, for what predictions need
_USUAL_ROWS = 100_000
_MIXED = 2  # members that it is to have time for
_METHODS = ("auto", "exact", "sparse")
_NOISES = ("auto", "constant")
_SHIFTS = ("none", "extrapolate")
_MISSING = ("impute", "refuse")
_TRANSFORMS = ("auto", *(name for name in TRANSFORMS if name != "box-cox"))  # a power of series
# Width of the Gaussian around each of eight draws, in their standard deviation: half of the
# distance between neighbours.
_BANDWIDTH = 0.2
_CHOICE = 0.05  # of a budget, at most, for every transform


class NKNRegressor(OnCPU, RegressorMixin, BaseEstimator):
    """Gaussian process regression on a table of data, with kernels that learn their structure.

    Columns and targets are standardised inside; everything that comes out is in the units that
    went in. A few networks of kernels are learned, each from several starts, and their predictions
    are mixed by the weights under which they predict held-out rows best, which costs a Gaussian
    process nothing further. Nothing needs to be tuned.

    Up to twice ``block_size`` rows the networks maximise the posterior of their parameters given
    all rows; beyond, given random blocks of rows (see :func:`gpytorch_nkn.fit.fit_in_stages`).
    Predictions use every row: exactly up to ``max_exact`` rows, beyond with inducing points and,
    where these are few for the rows, a process of what they leave out, given the nearest rows of
    each point. Tables may be larger than the memory: files of Parquet, memory maps and Dask arrays
    are read piece by piece, some times in all; 20,000 rows drawn at random are what networks learn
    from, and what ``model_`` holds.

    In a data frame, columns of texts and of pandas' categorical type are categories, which are
    alike or not (:class:`gpytorch_nkn.kernels.CategoricalKernel`), whatever their order; booleans
    are numbers. A missing category is one more category. One that training has not seen differs
    from all: its prediction is as uncertain as categories differ. Dates are days since the first of
    training (periods by their start), durations are days; NaT is a missing number.

    Missing numbers (NaN, pandas' NA) are imputed from the other columns of their row, under a
    Gaussian copula of them. Networks learn from complete rows if these are half of all, or ten for
    each column and ten more; otherwise from all, with expected values. Exact predictions use rows
    with gaps, too, each with noise of its own: the variance of the function over what may be
    missing. A prediction of a row with gaps is a mixture over 8 draws of what is missing, so that
    it is as uncertain as these make it. That is right if what is missing depends on what is there;
    where its absence tells something of the target, add columns of scikit-learn's
    ``MissingIndicator``. Infinite values are refused, and so are gaps in files, memory maps and
    Dask tables.

    Args:
        structure: The networks: ``"auto"``, a name, a kernel over all columns, or a sequence of
            names and kernels. A kernel (best a network: others train more slowly) takes its start
            values from the data. Names are

            - ``"tabular"``: :meth:`.NeuralKernelNetwork.tabular`, kernels over all columns;
            - ``"columns"``: the same with ``columns=True``, a kernel per column;
            - ``"additive"``: :meth:`.NeuralKernelNetwork.additive`;
            - ``"spectral"``: the first with ``spectral=4``, frequencies across columns;
            - ``"rbf"``, ``"matern"``: one RBF or Matern-5/2 kernel over all columns;
            - ``"regression"``: :meth:`.NeuralKernelNetwork.regression`, the paper's;
            - all others of :class:`gpytorch_nkn.models.NKNSingleTaskGP`.

            ``"auto"`` is the first three up to 2000 rows, and the first and the fourth beyond.
            Beyond 25 columns it is without ``"columns"``, for 1 or more than 50 the first alone.
            Below 500 rows it takes ``"rbf"`` and ``"matern"``, too.
        restarts: Starts of every network.
        selection: What predicts: ``"stacking"``, a mixture of all starts of all networks by their
            densities of held-out rows; ``"loo"``, the one with the best such density;
            ``"marginal_likelihood"``, the one with the highest posterior, for a single network.
        calibrate: Let observations come from several Gaussians around a prediction, of half to
            eight times its deviation, by shares that held-out rows call for: noise is seldom
            normal, and one Gaussian either rules outliers out or is too wide for all else.
            ``False`` leaves them to the Gaussian process.
        noise: ``"auto"`` scales the widths of observations by a function of the columns and of the
            prediction, log-linear in them and their squares, where held-out rows are predicted
            better by it than by chance (3 standard errors of their log density; from 100 rows on).
            ``"constant"`` takes one noise for all rows.
        y_transform: How targets are modelled: ``"identity"``, as they are; ``"log"``, ``"log1p"``,
            ``"sqrt"`` or ``"logit"``, as :class:`.NKNForecaster` has them; or
            ``"auto"``, which takes logarithms or square roots of targets that are not negative and
            skewed to the right (a skewness above 0.5) if held-out ones of 300 rows are predicted
            better by 2 standard errors of their log density, Jacobian included; of tables that are
            not in memory none. Predictions are of the targets themselves: means
            are those of the mixture (what lies by more than a standard deviation beyond all targets
            seen and beyond the median counts as if it lay there).
        y_bounds: Lower and upper end of the targets, ``None`` for none: there are no predictions
            beyond. ``None``: 0 and infinity for transforms that need it.
        monotonic_cst: Columns with which predictions may only rise (1) or only fall (-1), as
            scikit-learn's boosting has them: a number for each column, 0 for neither, or a mapping
            of names; 3 columns at most. Means of the mixed processes are rearranged in
            what they predict along these columns, over the range that training has seen, beyond
            which they are constant: ``predict`` is monotone (under a ``y_transform``, what each
            process predicts before it is transformed back), and deviations stay as they are. It
            takes the time of 65 predictions for one column, of 441 for two and of 1,331 for three.
            ``model_``, and what is read of it, does not know of it.
        shift: ``"none"`` if new rows will be like those of training, or ``"extrapolate"`` if they
            will lie beyond them. Members of the mixture are then weighed by how they predict
            the rows at both ends of the table's principal directions from all others: a tenth
            at each end, left out together. Below 500 rows (for the first directions, one for
            each start) hyperparameters have not seen these, either. Widths are those that such
            rows and single ones call for; they do not depend on the inputs (see ``noise``). Where
            there are no numbers, there are no ends.
        missing: ``"impute"``, see above, or ``"refuse"``, by which NaN are an error.
        method: ``"exact"``, ``"sparse"`` (VFE with inducing points) or ``"auto"``, which is exact
            up to ``max_exact`` rows.
        max_exact: ``None`` takes 12,000, or fewer if memory is short: an exact prediction needs
            the memory of a few matrices of rows by rows.
        num_inducing: Inducing points of sparse predictions.
        block_size: Rows of a block, see above.
        recipe: Optimiser settings of a start; ``None`` for 120 iterations of L-BFGS.
        budget: Wall time in seconds of a fit; ``None`` for no limit. At most half of it is kept
            for what predictions need: where that is not enough, ``"auto"`` takes inducing points
            (fewer of them, if need be), and fewer starts are mixed.
        n_jobs: Processes for the starts, from 500 rows on (below, they run in turn).
        device: Torch device of the computation, such as ``"cuda"``; ``None`` is the CPU, whatever
            PyTorch's default device is.
        random_state: Seed, or NumPy random state; an integer makes fits reproducible.
        progress: Show a progress bar on a terminal.

    Attributes:
        results_: Records of the fits, :class:`gpytorch_nkn.fit.FitResult`, by name of the network.
        members_, weights_: What is mixed, pairs of a network's name and the number of its start,
            and their shares.
        model_: The Gaussian process of the largest share, over standardised columns and targets;
            what ``expand``, ``decompose`` and ``report`` read.
        left_out_log_density_: Mean log density of left-out training rows, per unit of the targets.
            Below 500 rows each third of them is predicted from the others by hyperparameters that
            have not seen it, so that more rows do better. From there on rows are held out one by
            one, which flatters a little, and more where rows are copies of others; with sparse
            predictions it is that of exact ones within blocks of rows. Under
            ``shift="extrapolate"`` it is of the rows at the ends.
        width_shares_: Shares of the widths of predictions, by factor of the deviation.
        method_: ``"exact"`` or ``"sparse"``.
        x_offset_, x_scale_, y_offset_, y_scale_: The standardisation, of columns that vary and of
            the transformed targets.
        y_transform_: The transform of the targets, see ``y_transform``.
        categories_: Categories of the columns that hold such, by name.
        noise_depends_: Whether widths of observations depend on the inputs, see ``noise``.
        missing_shares_: Shares of the training rows without a value, of columns ``D``.
        columns_: Names of those columns. Constant ones are left out (not with kernels of one's
            own, which count on their number).

    Ctrl-C and the budget end the training; the best of what was reached by then predicts.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(size=(40, 2))
        >>> regressor = NKNRegressor(restarts=1, random_state=0)
        >>> regressor.fit(X, np.sin(6 * X[:, 0]) + X[:, 1])  # doctest: +ELLIPSIS
        NKNRegressor(...)
        >>> mean, std = regressor.predict(X[:3], return_std=True)

    Reference: Sun et al. (2018), section 5.2; Yao et al. (2018) for the mixture. The paper's own
    network, trained by maximum likelihood, is ``structure="regression"`` (here with priors): with
    few rows it fits the noise.
    """

    method_: str
    seed_: int
    n_features_in_: int
    standardisation_: Standardisation
    results_: dict[str, FitResult]
    _targets: Targets
    _ensemble: Ensemble | None
    _num_points: int
    _rows: TableRows | None
    missing_shares_: np.ndarray
    _categories: Categories
    _times: Times
    _cat_dims: tuple[int, ...]
    _gaps: Gaps | None
    _incomplete: dict[int, tuple[Tensor, Tensor]]
    _monotone: Monotone | None

    def __init__(
        self,
        structure: str | Kernel | Sequence[str | Kernel] = "auto",
        *,
        restarts: int = 2,
        selection: Literal["stacking", "loo", "marginal_likelihood"] = "stacking",
        calibrate: bool = True,
        noise: Literal["auto", "constant"] = "auto",
        y_transform: Literal["auto", "identity", "log", "log1p", "sqrt", "logit"] = "auto",
        y_bounds: Sequence[float | None] | None = None,
        monotonic_cst: ArrayLike | Mapping[str, int] | None = None,
        shift: Literal["none", "extrapolate"] = "none",
        missing: Literal["impute", "refuse"] = "impute",
        method: Literal["auto", "exact", "sparse"] = "auto",
        max_exact: int | None = None,
        num_inducing: int = 2000,
        block_size: int = 1000,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self.structure = structure
        self.restarts = restarts
        self.selection = selection
        self.calibrate = calibrate
        self.noise = noise
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.monotonic_cst = monotonic_cst
        self.shift = shift
        self.missing = missing
        self.method = method
        self.max_exact = max_exact
        self.num_inducing = num_inducing
        self.block_size = block_size
        self.recipe = recipe
        self.budget = budget
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: ArrayLike, y: ArrayLike) -> NKNRegressor:
        """Learn from a table.

        Args:
            X: Rows ``N x D``; a pandas data frame keeps its names, and its columns of texts and of
                pandas' categorical type are categories. Or a table that is not in
                memory: the path of a Parquet file or folder (or several), a ``numpy.memmap``, a
                Dask array or data frame.
            y: Targets ``N``; of Parquet the name of their column, all others being inputs.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: Targets are NaN, values are infinite or no numbers, or NaN where these are
                refused, lengths differ, there are fewer than 3 rows, the targets or all columns
                are constant, or an option has no meaning.
            TypeError: ``structure`` is neither a name nor a kernel, nor a sequence of such.
            RuntimeError: Every start of every network failed.
            KeyboardInterrupt: Ctrl-C came before the first step of training.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of another fit: a failure of this one must not leave a mixture
        self._ensemble = self._rows = None
        self._incomplete = {}
        structures = self._check_parameters()
        session = Session(budget=self.budget)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        source, drawn = row_source(X, y), None
        if source is not None:
            self._choose_method(source.num_rows)
            drawn = None if self.method_ == "exact" else DrawnRows.of(source, seed)
            X, y = source.table() if drawn is None else drawn.table()
        refuse_repeated_names(X)
        self._times = Times.of(X)
        X = self._times(X)
        self._categories = Categories.of(X if source is None else None)
        self._categories.warn_of_other_kinds(X)
        codes = self._categories.mask(X)
        lacking = self._categories.lacking(X)
        X = missing_as_nan(self._categories(X))
        refuse_other_values("X", X, categories=True)
        refuse_other_values("y", y)
        refuse_missing_targets(y)
        table, target = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            y_numeric=True,
            ensure_min_samples=3,
            order="C",
            ensure_all_finite=self._finite,
        )
        target = target.astype(np.float64)
        self.missing_shares_ = np.isnan(table).mean(0)
        refuse_constant(target)
        bounds = as_bounds(self.y_bounds, "y_bounds")
        transforms = candidates(self.y_transform, target, bounds, in_memory=source is None)
        self._gaps, kinds = None, np.zeros(len(table), dtype=int)
        if self.missing == "impute":
            self._gaps, kinds = Gaps.of(table, codes, seed), self._kinds(table, lacking)
        learned = learned_rows(table, target, (kinds == 0) | (kinds == LACKS_CATEGORY))
        num_rows = int(learned.sum()) if drawn is None else drawn.source.num_rows
        self._choose_method(len(table) if self.method == "exact" else num_rows)
        rest: dict[int, np.ndarray] = {}
        if self.method_ == "exact":  # others cannot take rows with a noise of their own
            learned &= learned_rows(table, target, kinds == 0)
            left = np.inf if self.method == "exact" else self._exact_limit - learned.sum()
            for kind in KINDS_OF_GAPS:
                rows = np.flatnonzero(~learned & (kinds == kind))
                rest[kind] = rows[: int(min(left, rows.size))]
                left -= rest[kind].size
            num_rows = int(learned.sum())
        gappy = {kind: (table[rows], target[rows]) for kind, rows in rest.items() if rows.size}
        if self._gaps is not None:
            table = self._gaps.expected(table)
        table, target = table[learned], target[learned]
        own = any(isinstance(structure, Kernel) for structure in structures)
        self.standardisation_ = Standardisation.of(table, keep_constant=own, codes=codes)
        self._monotone = self._asked_to_be_monotone(table, codes)
        warn_of_copies(table, target)  # sorts the rows: after tables that are too large are refused
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
            used = codes[self.standardisation_.used] if codes.size else codes
            self._cat_dims = cat_dims = tuple(np.flatnonzero(used).tolist())
            transform = choose_transform(
                transforms,
                self._tensor(self.standardisation_(table)),
                target,
                seed=seed,
                recipe=self.recipe,
                budget=None if self.budget is None else _CHOICE * self.budget,
                block_size=self.block_size,
                cat_dims=cat_dims,
            )
            self._targets = Targets.of(target, transform)
            inputs, targets = self._standardised(table, target)
            self._incomplete = {
                kind: self._standardised_draws(*rows) for kind, rows in gappy.items()
            }
            named = named_structures(structures, self.selection, num_rows, inputs.size(-1))
            later = 0.0
            if self.budget is not None:
                all_rows = num_rows + sum(len(y) for _, y in gappy.values())
                costs = Costs.of(untrained_model(named, inputs, targets, cat_dims), all_rows)
                later = self._plan_predictions(costs, _SHARE * self.budget, len(named))
            self.results_ = train_structures(
                named,
                inputs,
                targets,
                budget=session.part(1 - later / max(session.seconds_left, later, 1e-9)),
                block_size=self.block_size,
                restarts=self.restarts,
                recipe=self.recipe,
                seed=seed,
                n_jobs=self.n_jobs,
                progress=self.progress,
                cat_dims=cat_dims,
                folds=() if self._ends is None else self._ends(inputs),
            )
            self._join_categories()
        if drawn is not None:
            held_out = self._standardised(*drawn.held_out)
            self._rows = SourceRows(drawn, held_out, self._standardised)
        elif self.method_ == "sparse":
            self._rows = TensorRows(inputs, targets, self._num_points, seed)
        self.seed_ = seed
        self._fitted(session.end)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "impute"
        return tags

    @property
    def _finite(self) -> bool | str:
        return "allow-nan" if self.missing == "impute" else True

    def _standardised(self, X: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs ``N x d`` and targets ``N`` as networks see them."""
        return self._tensor(self.standardisation_(X)), self._tensor(self._targets.standardised(y))

    def _kinds(self, table: np.ndarray, lacking: np.ndarray) -> np.ndarray:
        """What rows lack, see :func:`kinds_of_rows`; columns that are all gaps do not count."""
        return kinds_of_rows(np.isnan(table[:, self.missing_shares_ < 1]).any(1), lacking)

    def _standardised_draws(self, X: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        """Draws ``S x n x d`` of rows with gaps, and their targets ``n``, as networks see them."""
        assert self._gaps is not None
        drawn = np.stack([self.standardisation_(rows) for rows in self._gaps.draw(X)])
        return self._tensor(drawn), self._tensor(self._targets.standardised(y))

    def _join_categories(self) -> None:
        """Let models take rows without a category for complete if they are no noisier than others.

        A missing category is then one more category.
        """
        if LACKS_CATEGORY not in self._incomplete:
            return
        inputs, targets = self._incomplete[LACKS_CATEGORY]
        process = ConditionedGP(self._any_model)
        if process.add_uncertain_rows(inputs, targets, unknown=True) > process.noise:
            return
        del self._incomplete[LACKS_CATEGORY]
        for result in self.results_.values():
            for model in {result.model, *result.members.values()}:
                model.set_train_data(
                    torch.cat([model.train_inputs[0], inputs.mean(0)]),
                    torch.cat([model.train_targets, targets]),
                    strict=False,
                )

    def _asked_to_be_monotone(self, table: np.ndarray, codes: np.ndarray) -> Monotone | None:
        if self.monotonic_cst is None:
            return None
        names = list(getattr(self, "feature_names_in_", range(table.shape[1])))
        used = self.standardisation_.used
        return Monotone.of(self.monotonic_cst, names, codes, used, self.standardisation_(table))

    def _choose_method(self, num_rows: int) -> None:
        """How to predict from so many rows; says at once what they lead to."""
        self.method_ = self.method
        if self.method == "auto":
            self.method_ = "exact" if num_rows <= self._exact_limit else "sparse"
        self._num_points = self.num_inducing
        if self.method_ == "exact":
            like = torch.empty(0, dtype=torch.float64, device=self.device)
            check_dense("NKNRegressor(method='exact')", num_rows, like, "method='sparse'")
        elif self.budget is None:
            warn_of_size(
                "NKNRegressor",
                num_rows,
                _USUAL_ROWS,
                f"hyperparameters are learned from blocks of some of them, and {self.num_inducing} "
                "inducing points see all, minutes for a million rows; a budget or fewer "
                "num_inducing shorten it.",
            )

    @property
    def _exact_limit(self) -> int:
        return max_exact_rows(self.device) if self.max_exact is None else self.max_exact

    def _plan_predictions(self, costs: Costs, seconds: float, networks: int) -> float:
        """Choose predictions that are prepared within some seconds; those that they take."""
        count = networks * self.restarts if self.selection == "stacking" else networks
        if self.method_ == "exact" and self.method == "auto" and _MIXED * costs.exact > seconds:
            self.method_ = "sparse"
        if self.method_ == "exact":
            return min(count * costs.exact, seconds)
        members = min(count, _MIXED)
        self._num_points = costs.num_points(self.num_inducing, members, seconds)
        return min(costs.sparse(self._num_points, count), seconds)

    @property
    def members_(self) -> list[tuple[str, int]]:
        """What is mixed, pairs of a network's name and the number of its start."""
        return self._fitted().members

    @property
    def weights_(self) -> np.ndarray:
        """Shares of the members."""
        return self._fitted().weights

    @property
    def width_shares_(self) -> dict[float, float]:
        """Shares of the widths of predictions, by factor of the standard deviation."""
        ensemble = self._fitted()
        return dict(zip(ensemble.widths.tolist(), ensemble.width_shares.tolist(), strict=True))

    @property
    def noise_depends_(self) -> bool:
        """Whether the widths of observations depend on the inputs."""
        return self._fitted().scale is not None

    @property
    def model_(self) -> ExactGP:
        """The Gaussian process of the largest share, over standardised columns and targets."""
        return self._fitted().model

    @property
    def left_out_log_density_(self) -> float:
        """Mean log density of left-out training rows, per unit of the targets."""
        return float(np.nanmean(self._targets.log_density_of(*self._fitted().left_out)))

    @property
    def y_transform_(self) -> Transform:
        """The transform of the targets."""
        check_is_fitted(self, "results_")
        return self._targets.transform

    @property
    def y_offset_(self) -> float:
        """Mean of the transformed targets."""
        check_is_fitted(self, "results_")
        return self._targets.offset

    @property
    def y_scale_(self) -> float:
        """Standard deviation of the transformed targets."""
        check_is_fitted(self, "results_")
        return self._targets.scale

    @property
    def x_offset_(self) -> np.ndarray:
        """Means of the columns in use."""
        return self.standardisation_.offset

    @property
    def x_scale_(self) -> np.ndarray:
        """Standard deviations of the columns in use."""
        return self.standardisation_.scale

    @property
    def columns_(self) -> tuple[str, ...]:
        """Names of the columns in use."""
        check_is_fitted(self, "results_")
        single = self.n_features_in_ == 1
        plain = ["x"] if single else [f"x{number}" for number in range(self.n_features_in_)]
        names = np.asarray(getattr(self, "feature_names_in_", plain))
        return tuple(str(name) for name in names[self.standardisation_.used])

    @property
    def categories_(self) -> dict[str, tuple[str, ...]]:
        """Categories of the columns that hold such, in the order of their codes, by name."""
        check_is_fitted(self, "results_")
        return {
            str(column): tuple("missing" if one is None else str(one) for one in known)
            for column, known in self._categories.known.items()
        }

    def standardised_inputs(self, X: ArrayLike) -> np.ndarray:
        """Rows as :attr:`model_` takes them.

        Args:
            X: Rows ``M x D``, with the columns of :meth:`fit`.

        Returns:
            Rows ``M x d`` of the columns in use, standardised, with the expected values of what is
            missing.
        """
        table, _ = self._table(X)
        return self.standardisation_(table if self._gaps is None else self._gaps.expected(table))

    def _table(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Rows ``M x D`` with codes of categories and NaN for missing numbers; what rows lack."""
        check_is_fitted(self, "results_")
        refuse_repeated_names(X)
        X = self._times(X)
        lacking = self._categories.lacking(X)
        X = missing_as_nan(self._categories(X))
        refuse_other_values("X", X, fitted=True)
        table = validate_data(
            self, X, dtype=np.float64, reset=False, order="C", ensure_all_finite=self._finite
        )
        return table, self._kinds(table, lacking)

    def _drawn(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Standardised rows ``S x M x d``, one draw of what is missing each; what rows lack.

        Draws of different rows are independent. Without gaps there is one.
        """
        table, kinds = self._table(X)
        drawn = table[None]
        if self._gaps is not None and np.isnan(table).any():
            drawn = self._gaps.draw(table)
        return np.stack([self.standardisation_(rows) for rows in drawn]), kinds

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = ...,
        return_cov: Literal[False] = ...,
        *,
        observation_noise: bool = ...,
    ) -> np.ndarray: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        return_cov: Literal[False] = ...,
        *,
        observation_noise: bool = ...,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = ...,
        *,
        return_cov: Literal[True],
        observation_noise: bool = ...,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        observation_noise: bool = True,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Mean of new observations, and their standard deviation or covariance on request.

        Args:
            X: Rows ``M x D``.
            return_std: Also return standard deviations ``M``.
            return_cov: Also return the covariance ``M x M``.
            observation_noise: Include the noise of an observation; ``False`` for the uncertainty
                of the function alone.

        Returns:
            Mean ``M``, or mean and deviations or covariance, in units of the targets. Where
            these are transformed, the function is what the process is without noise, transformed
            back; the mean is always that of observations.

        Raises:
            ValueError: Both are asked for, a covariance of transformed targets is, or ``X`` is not
                such a table.
        """
        if return_std and return_cov:
            raise ValueError("At most one of return_std and return_cov can be asked for.")
        check_is_fitted(self, "results_")
        drawn, kinds = self._drawn(X)
        if not self._targets.is_linear:
            if return_cov:
                raise ValueError(
                    "Targets are transformed or bounded (see y_transform_) and have covariances on "
                    "that scale only; sample_y draws jointly, and y_transform='identity' without "
                    "bounds has them."
                )
            mean, std = self._targets.moments(*self._observations(X))
            if return_std and not observation_noise:
                shares, means, variances, of_gaps = self._mixture(drawn, kinds, True, False)
                std = self._targets.moments(shares, means, np.sqrt(variances + of_gaps))[1]
            return (mean, std) if return_std else mean
        parts = self._mixture(drawn, kinds, return_std, observation_noise)
        shares, means, variances, of_gaps = parts
        mean = shares @ means
        apart = means - mean
        widening = self._fitted().widening if observation_noise else 1.0
        if return_std:
            return mean, np.sqrt(shares @ (widening * variances + of_gaps + apart**2))
        if return_cov:
            ensemble, covariance = self._fitted(), np.zeros((len(mean), len(mean)))
            for rows in drawn:
                own = ensemble.covariance(self._tensor(rows), noise=observation_noise)
                covariance += np.einsum("r,rij->ij", ensemble.weights, own) / len(drawn)
            covariance *= widening * self.y_scale_**2
            # what is missing in one row says nothing of another: it adds to the diagonal only
            members = apart.reshape(len(ensemble.weights), len(drawn), -1)
            central = members.mean(1)
            covariance += (ensemble.weights * central.T) @ central
            spread = ensemble.weights @ members.var(1) + shares @ of_gaps
            covariance[np.diag_indices_from(covariance)] += spread
            return mean, covariance
        return mean

    def predict_quantiles(self, X: ArrayLike, probabilities: ArrayLike) -> np.ndarray:
        """Quantiles of new observations.

        Args:
            X: Rows ``M x D``.
            probabilities: ``Q`` numbers between 0 and 1.

        Returns:
            Quantiles ``M x Q``, in units of the targets.
        """
        wanted = np.atleast_1d(np.asarray(probabilities, dtype=float))
        if wanted.ndim != 1 or not wanted.size or not ((wanted > 0) & (wanted < 1)).all():
            raise ValueError(
                f"probabilities must be numbers between 0 and 1, got {probabilities!r}."
            )
        parts = self._observations(X)
        quantiles = np.stack([mixture_quantile(*parts, one) for one in wanted.tolist()], 1)
        return self.y_transform_.inverse(quantiles)

    def predict_interval(self, X: ArrayLike, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Central band that holds a new observation with probability ``level``.

        Args:
            X: Rows ``M x D``.
            level: Probability between 0 and 1.

        Returns:
            Lower and upper ends ``M``, in units of the targets.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}.")
        lower, upper = self.predict_quantiles(X, [(1 - level) / 2, (1 + level) / 2]).T
        return lower, upper

    def log_predictive_density(
        self, X: ArrayLike, y: ArrayLike, *, resolution: float | None = None
    ) -> np.ndarray:
        """Log density of observations under the prediction, row by row.

        Args:
            X: Rows ``M x D``.
            y: Observations ``M``.
            resolution: What observations are rounded to, such as 1 for counts: their density is
                then the probability of the interval of that width around them, divided by it. A
                density at a point has no bound where many observations are equal; this one has.

        Returns:
            Natural logarithms ``M``, of densities per unit of the targets.
        """
        if resolution is not None and not 0 < resolution < math.inf:
            raise ValueError(f"resolution must be positive and finite, got {resolution}.")
        parts = self._observations(X)
        values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if values.shape != parts[1].shape[1:]:
            raise ValueError(f"X has {parts[1].shape[1]} rows and y has shape {values.shape}.")
        return self._targets.log_density(*parts, values, resolution or 0.0)

    def _observations(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shares ``R`` of the Gaussians of new observations, their means, deviations ``R x M``.

        All are on the scale of the transformed targets.
        """
        return self._fitted().observations(*self._mixture(*self._drawn(X), True, True))

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        *,
        observation_noise: bool = True,
    ) -> np.ndarray:
        """Draw joint samples of the observations at all rows.

        Args:
            X: Rows ``M x D``.
            n_samples: Number of samples.
            random_state: Seed, or NumPy random state.
            observation_noise: Draw observations; ``False`` draws the function.

        Returns:
            Samples ``M x n_samples``. Each is of one member of the mixture, of one width and of one
            draw of what is missing.
        """
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
        rng = check_random_state(random_state)
        filled, kinds = self._drawn(X)
        shares, means, _, of_gaps = self._mixture(filled, kinds, False, False)
        ensemble, draws = self._fitted(), []
        counts = rng.multinomial(n_samples, shares / shares.sum())
        for place in np.flatnonzero(counts):
            member, fill = divmod(int(place), len(filled))
            (covariance,) = ensemble.covariance(
                self._tensor(filled[fill]), noise=observation_noise, members=np.array([member])
            )
            count, mean = counts[place], means[place]
            widening = ensemble.widening if observation_noise else 1.0
            own = of_gaps[place] / (widening * self.y_scale_**2)
            covariance[np.diag_indices_from(covariance)] += own
            values, vectors = np.linalg.eigh(covariance)
            root = self.y_scale_ * vectors * np.sqrt(values.clip(0))
            noise = rng.standard_normal((count, len(mean))) @ root.T
            if observation_noise:
                noise *= rng.choice(
                    self._fitted().widths, (count, 1), p=self._fitted().width_shares
                )
            draws.append(mean + noise)
        return self.y_transform_.inverse(rng.permutation(np.concatenate(draws)).T)

    def _mixture(
        self, drawn: np.ndarray, kinds: np.ndarray, variance: bool, noise: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Shares ``R S`` of members and draws, and their means and variances ``R S x M``.

        Rows ``S x M x d`` are alike in all draws but where they lack something. The last array
        ``R S x M`` is the variance of what they lack. Each draw stands for a Gaussian of values of
        the function: a mixture of a few points would rule out what lies between them. Means and
        variances of these mixtures are those of the draws.
        """
        ensemble, count, gaps = self._fitted(), len(drawn), kinds > 0
        once = np.concatenate([drawn[0, ~gaps], drawn[:, gaps].reshape(-1, drawn.shape[-1])])
        places = np.empty(drawn.shape[:2], dtype=int)
        places[:, ~gaps] = np.arange((~gaps).sum())
        places[:, gaps] = (~gaps).sum() + np.arange(count * gaps.sum()).reshape(count, -1)
        means, variances = ensemble.moments(self._tensor(once), variance=variance, noise=noise)
        if self._monotone is not None:
            means = self._monotone(
                once,
                lambda rows: ensemble.moments(self._tensor(rows), variance=False, noise=False)[0],
            )
        if variance:
            variances = variances[:, places].reshape(-1, len(gaps))
        means = self.y_offset_ + self.y_scale_ * means[:, places]  # R x S x M
        middle, spread = means.mean(1, keepdims=True), means.var(1, keepdims=True)
        means = np.where(gaps, middle + math.sqrt(1 - _BANDWIDTH**2) * (means - middle), means)
        of_gaps = gaps * _BANDWIDTH**2 * spread
        of_gaps += self.y_scale_**2 * ensemble.gap_noises[:, None, kinds]
        of_gaps = np.broadcast_to(of_gaps, means.shape)
        shares = np.repeat(ensemble.weights, count) / count
        means, of_gaps = (part.reshape(-1, len(gaps)) for part in (means, of_gaps))
        return shares, means, self.y_scale_**2 * variances, of_gaps

    def _fitted(self, end: float = math.inf) -> Ensemble:
        check_is_fitted(self, "results_")
        if self._ensemble is None:  # in fit, or after a fit that was interrupted at its very end
            inputs = self._any_model.train_inputs[0]
            rows = self._rows
            self._ensemble = Ensemble(
                self.results_,
                selection=self.selection,
                calibrate=self.calibrate,
                noise=self.noise,
                cat_dims=self._cat_dims,
                sparse=None
                if rows is None
                else sparse_predictors(inputs, self._num_points, rows, self.seed_, self._cat_dims),
                block_size=self.block_size,
                ends=self._ends,
                incomplete=self._incomplete,
                end=end,
            )
            self._rows, self._incomplete = None, {}  # which may stand for files
        return self._ensemble

    @property
    def _ends(self) -> Callable[[Tensor], list[Tensor]] | None:
        """The rows that judge how others are extrapolated, if that is what is asked for."""
        if self.shift == "none" or len(self._cat_dims) == len(self.standardisation_.offset):
            return None
        return partial(end_rows, cat_dims=self._cat_dims)

    @property
    def _any_model(self) -> Any:
        return next(iter(self.results_.values())).model

    def _tensor(self, values: np.ndarray) -> Tensor:
        device: Any = self.device
        if hasattr(self, "results_"):  # where the models are
            device = self._any_model.train_targets.device
        return torch.as_tensor(values, dtype=torch.float64, device=device)

    def _check_parameters(self) -> list[str | Kernel]:
        structures = check_structures(self.structure)
        options: tuple = ("selection", SELECTIONS), ("method", _METHODS)
        as_bounds(self.y_bounds, "y_bounds")
        for name, known in (
            *options,
            ("y_transform", _TRANSFORMS),
            ("noise", _NOISES),
            ("shift", _SHIFTS),
            ("missing", _MISSING),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}.")
        if self.recipe is not None and not isinstance(self.recipe, Recipe):
            raise TypeError(f"recipe must be a Recipe or None, got {self.recipe!r}.")
        if self.budget is not None and not isinstance(self.budget, Real):
            raise TypeError(f"budget must be a number of seconds or None, got {self.budget!r}.")
        check_counts(1, num_inducing=self.num_inducing)
        check_counts(2, block_size=self.block_size)
        if self.max_exact is not None:
            check_counts(0, max_exact=self.max_exact)
        check_counts(None, n_jobs=self.n_jobs)
        if self.n_jobs == 0:
            raise ValueError("n_jobs must be at least 1, got 0.")
        return structures
