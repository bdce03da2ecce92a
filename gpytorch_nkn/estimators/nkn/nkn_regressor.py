"""Regression on tables of data by networks of kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, overload

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from gpytorch_nkn.averaging import TRANSFORMS, PredictiveMixture, Transform, as_bounds
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP, max_exact_rows
from gpytorch_nkn.estimators.estimator import forgets_failures
from gpytorch_nkn.estimators.nkn.counts import (
    COUNTS,
    RATES,
    CountEnsemble,
    CountMixture,
    check_counted,
    count_model,
    log_exposures,
)
from gpytorch_nkn.estimators.nkn.ensemble import Ensemble
from gpytorch_nkn.estimators.nkn.sparse_predictor import sparse_predictors
from gpytorch_nkn.estimators.nkn.table_gaps import learned_rows
from gpytorch_nkn.estimators.nkn.table_models import (
    TableGP,
    named_structures,
    robust_model,
    untrained_model,
)
from gpytorch_nkn.estimators.nkn.table_targets import Targets, candidates, choose_transform
from gpytorch_nkn.estimators.nkn.target_columns import ColumnPredictions, by_column, has_columns
from gpytorch_nkn.estimators.table_input import check_varies, per_row, warn_of_copies
from gpytorch_nkn.fit import (
    FitResult,
    Recipe,
    Rows,
    Session,
    check_counts,
    check_flags,
    warn_of_size,
)

__all__ = ["NKNRegressor"]

_SHARE = 0.5  # largest fraction of a budget for the preparation of predictions
_USUAL_ROWS = 100_000  # largest number of rows without a warning about the time
_MIXED = 2  # number of members whose preparation must fit into that fraction
_PASSES = 4  # passes over the rows for sparse predictions
_NUM_INDUCING, _LEAST_POINTS = 2000, 50  # usual and least numbers of inducing points
_LIKELIHOODS: dict[str, tuple[Any, type[Ensemble]]] = {  # their model and their mixture
    "gaussian": (TableGP, Ensemble),
    "poisson": (partial(count_model, dispersed=False), CountEnsemble),
    "negative_binomial": (partial(count_model, dispersed=True), CountEnsemble),
    "student_t": (robust_model, Ensemble),
}
_CHOICES = {"likelihood": tuple(_LIKELIHOODS), "y_transform": ("auto", *TRANSFORMS)}
# Rows for predictions and for the training under a likelihood that is not Gaussian.
_MAX_ROWS, _MAX_TRAINED = 4000, 1000
_PROBE = 1000  # number of rows on which the time is measured
_CHOICE = 0.05  # largest fraction of a budget for each candidate transform
# Width of the Gaussian around each of eight draws, in standard deviations of the draws: half of the
# distance between neighbours.
_BANDWIDTH = 0.2


class NKNRegressor(ColumnPredictions):
    """Gaussian process regression on tabular data, with kernels that learn their structure.

    The prediction is a mixture of several networks of kernels, with stacking weights from held-out
    rows. Columns and targets are standardised; results are in the units of the data. No option
    needs tuning.

    **Many rows.** Up to 2,000 rows, networks are trained on all rows (maximum a posteriori),
    otherwise on random blocks of 1,000 rows (:func:`gpytorch_nkn.fit.fit_in_stages`). Predictions
    use every row. They are exact up to 12,000 rows, or fewer if memory is short. For more rows they
    use inducing points and, with at least 5 rows per point and no known noise, a local process of
    the residuals.

    **Data frames.** Columns of strings and of pandas' categorical type are categories
    (:class:`gpytorch_nkn.kernels.CategoricalKernel`); a new category differs from all others.
    Booleans, and strings that are all numbers, are numbers. Dates and starts of periods become days
    since the first date of the fit, and durations become days. NaT is a missing number.

    **Missing values.** Missing numbers (NaN, pandas' NA) are drawn from their distribution given
    the other columns. Missing categories are drawn by frequency; ``fillna("missing")`` makes them a
    category. Networks learn from the complete rows if these are at least half of all rows, or at
    least three per column plus three. Otherwise they use all rows, with imputed means. Exact
    predictions also use incomplete rows, with additional noise: the variance of the function over
    the missing values. The prediction for an incomplete row is a mixture over 8 draws. Values must
    be missing at random given the observed values; if not, add the columns of scikit-learn's
    ``MissingIndicator``. Infinite values raise an error.

    **Noise.** The noise is a mixture of Gaussians with half to eight times the predicted standard
    deviation, weighted on held-out rows. From 100 rows on, a log-linear function of the columns and
    of the prediction can scale the noise. It is used only if it increases the log density of
    held-out rows by 3 standard errors.

    **Several targets.** Targets may have ``K`` columns, with NaN where a target was not observed. A
    separate regressor in ``estimators_`` learns each column from its observed rows;
    :class:`gpytorch_nkn.models.NKNMultiTaskGP` learns correlated outputs. The regressors divide the
    budget and have the attributes below; pass one to ``report``, ``effects`` or ``decompose``.
    Predictions have the axis ``K`` after the rows: ``predict`` returns ``M x K``, ``sample_y``
    ``M x K x S``, ``predict_distribution`` a list. Scores are means over the columns, without
    missing targets.

    Args:
        structure: The networks: ``"auto"``, a name, a kernel over all columns, or a sequence of
            names and kernels. A kernel (preferably a network, which trains faster) takes its start
            values from the data. Names are

            - ``"tabular"``: :meth:`.NeuralKernelNetwork.tabular`, kernels over all columns;
            - ``"columns"``: the same with ``columns=True``, a kernel per column;
            - ``"additive"``: :meth:`.NeuralKernelNetwork.additive`;
            - ``"spectral"``: ``"tabular"`` with ``spectral=4``, frequencies across columns;
            - ``"isotropic"``: ``"tabular"`` with ``ard=False``, one lengthscale for all columns;
            - ``"rbf"``, ``"matern"``: one RBF or Matern-5/2 kernel over all columns;
            - ``"regression"``: :meth:`.NeuralKernelNetwork.regression`, as in the paper;
            - all others of :class:`gpytorch_nkn.models.NKNSingleTaskGP`.

            ``"auto"`` is the first three up to 2,000 rows (without ``"columns"`` above 25 columns),
            and ``"tabular"`` and ``"spectral"`` for more rows. For one column it is ``"tabular"``
            alone; above 50 columns, ``"tabular"`` and ``"isotropic"``. Below 500 rows it includes
            ``"rbf"`` and ``"matern"``.
        likelihood: Use ``"student_t"``, with learned degrees of freedom, for targets with outliers.
            Use ``"poisson"`` for counts, or ``"negative_binomial"`` if their variance exceeds the
            mean (``"poisson"`` then overfits). The process of counts is the logarithm of their
            rate. All but ``"gaussian"`` use Laplace's approximation and at most 4,000 rows, with a
            warning if there are more; networks learn from 1,000. Expected values then replace
            missing values in the fit, and ``y_transform="auto"`` does not transform targets.
        restarts: Number of starts of each network.
        y_transform: Transform of the targets: ``"identity"``, ``"log"``, ``"log1p"``, ``"sqrt"`` or
            ``"logit"``, as in :class:`.NKNForecaster`. For non-negative targets with a skewness
            above 0.5, ``"auto"`` compares the identity, square root and logarithm. A transform must
            increase the log density of held-out rows (among 300) by 2 standard errors. With a root,
            a logarithm or bounds, integer targets are treated as counts: quantiles and samples are
            integers, densities are probabilities.
        y_bounds: Lower and upper bound of the targets and predictions, each a number or ``None``.
            ``None`` means 0 and infinity for transforms that need bounds.
        num_inducing: Number of inducing points (VFE) for predictions. ``None`` for exact
            predictions if the table is small enough, otherwise 2,000 points.
        budget: Wall time in seconds of a fit; ``None`` for no limit. The preparation of predictions
            takes at most half of it, if necessary with fewer starts and inducing points.
        <shared training>
        <shared computation>

    Attributes:
        <shared attributes>
        weights_: Weights of the members.
        model_: Gaussian process with the largest weight, over standardised columns and targets; the
            process that ``expand``, ``decompose`` and ``report`` describe.
        held_out_log_density_: Mean log density of held-out rows of the fit, per unit of the
            targets. From 15 to 2,000 rows, the hyperparameters are learned without the held-out
            rows. Otherwise it is a leave-one-out density, which is slightly optimistic.
        held_out_ranks_: Predictive probabilities P(Y < y) and P(Y <= y), ``2 x n``, for the targets
            y of these rows. The two differ only for counts and at closed bounds.
        width_weights_: Weights of the noise components, by factor of the standard deviation.
        method_: ``"exact"`` or ``"sparse"``.
        y_offset_, y_scale_: Standardisation of the transformed targets.
        y_transform_: The transform of the targets.
        incomplete_rows_: Number of rows of the fit with missing values, by use. ``"noisy"`` rows
            have additional noise in predictions. ``"imputed"`` rows have expected values; the noise
            of ``model_`` includes the imputation error. ``"omitted"`` rows are not used.
        heteroscedastic_: Whether the noise depends on the inputs.
        estimators_: Fitted regressors of several target columns, in place of the attributes above.
        target_names_: Names of these columns in a data frame, otherwise their numbers.

    Ctrl-C and the budget end the training; the best parameters so far are used.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(size=(40, 2))
        >>> regressor = NKNRegressor(restarts=1, random_state=0)
        >>> regressor.fit(X, np.sin(6 * X[:, 0]) + X[:, 1])  # doctest: +ELLIPSIS
        NKNRegressor(...)
        >>> mean, std = regressor.predict(X[:3], return_std=True)

    Reference: Sun et al. (2018), section 5.2; Yao et al. (2018) for the mixture. The paper's
    network, trained by maximum likelihood, is ``structure="regression"`` (here with priors); with
    few rows it overfits.
    """

    likelihood: str
    y_transform: str
    y_bounds: Sequence[float | None] | None
    num_inducing: int | None

    def __init__(
        self,
        structure: str | Kernel | Sequence[str | Kernel] = "auto",
        *,
        likelihood: Literal["gaussian", "poisson", "negative_binomial", "student_t"] = "gaussian",
        restarts: int = 2,
        y_transform: Literal["auto", "identity", "log", "log1p", "sqrt", "logit"] = "auto",
        y_bounds: Sequence[float | None] | None = None,
        num_inducing: int | None = None,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self._set_options(locals())

    @forgets_failures
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        noise_variance: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> NKNRegressor:
        """Learn from a table.

        Args:
            X: Rows ``N x D``, an array or a data frame.
            y: Targets ``N``, or ``N x K`` with NaN where a target was not observed. Later data
                frames ``M x K`` are matched by column names.
            noise_variance: Known variances of the errors in the targets, in squared units of the
                targets: one number, one per row ``N``, or ``N x K``, as ``alpha`` of scikit-learn's
                ``GaussianProcessRegressor`` or ``train_Yvar`` of BoTorch. Further noise is learned.
                The noise of new observations is the learned noise plus the mean of the known
                variances. A transform of the targets multiplies the variance by its squared
                derivative at the target (delta method). Needs ``likelihood="gaussian"``.
            exposure: Time, area or population ``N`` (or ``N x K``) in which each count was
                observed; ``None`` for 1. The mean count is exposure times rate.

        Raises:
            ValueError, TypeError: The data or an option are invalid.
            RuntimeError: Every start of every network failed.
            KeyboardInterrupt: Ctrl-C was pressed before the first training step.
        """
        self._check_parameters()
        self._warn_of_order(X, noise_variance=noise_variance, exposure=exposure)
        self._has_exposures = exposure is not None
        if has_columns(y):
            return self._fit_columns(X, y, exposure=exposure, noise_variance=noise_variance)
        return self._fit(X, y, noise_variance, exposure)

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        noise_variance: ArrayLike | None,
        exposure: ArrayLike | None,
        observed: np.ndarray | None = None,
    ) -> NKNRegressor:
        """Learn from the rows with observed targets, whose mask is ``observed``."""
        structures, session = self._check_parameters(), Session(budget=self.budget)
        rows, target = self._read(X, y, structures, observed, y_numeric=True)
        targets = self._checked_targets(target, noise_variance, exposure)
        targets = targets if observed is None else targets[:, observed]
        transforms = self._candidate_transforms(targets[0])
        if not self._is_gaussian and len(rows) > _MAX_TRAINED:
            advice = "a random subset is used, because time is cubic in their number."
            warn_of_size(f"likelihood={self.likelihood!r}", len(rows), _MAX_ROWS, advice)
            order = np.random.default_rng(self._seed).permutation(len(rows))[:_MAX_ROWS]
            rows, targets = rows[order], targets[:, order]
        self._choose_method(len(rows))
        warn_of_copies(rows, targets[0])  # sorts the rows, hence after the check of their number
        learned = np.ones(len(rows), dtype=bool)
        if self._is_gaussian:
            learned = learned_rows(rows, targets[0])
        x, gaps = self._gaps.expected(rows)[learned], np.isnan(rows[learned]).any(1).sum()
        self._learn_targets(x, targets[:, learned], transforms)
        data, others = self._targets.rows(self._tensor(x), targets[:, learned]), None
        if self.method_ == "exact" and not learned.all():
            draws = self._tensor(self._gaps.draw(rows[~learned]))
            others = self._targets.rows(draws, targets[:, ~learned])
        results = self._train_networks(structures, data, len(rows), session)
        ensemble = self._mix(results, data, others, session)
        use = "noisy" if self.method_ == "exact" else "omitted"
        self.incomplete_rows_ = {"noisy": 0, "imputed": int(gaps), "omitted": 0}
        self.incomplete_rows_[use] = int((~learned).sum())
        self._ensemble, self.results_ = ensemble, results
        self._was_interrupted = session.interrupted
        self.members_, self.weights_ = ensemble.members, ensemble.weights
        self.model_, self.heteroscedastic_ = ensemble.model, ensemble.scale is not None
        widths = zip(ensemble.widths.tolist(), ensemble.width_weights.tolist(), strict=True)
        self.width_weights_ = dict(widths)
        logs, self.held_out_ranks_ = self._targets.scores(*ensemble.held_out)
        self.held_out_log_density_ = float(np.nanmean(logs))
        return self

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = ...,
        *,
        exposure: ArrayLike | None = ...,
        observation_noise: bool = ...,
    ) -> np.ndarray: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        *,
        exposure: ArrayLike | None = ...,
        observation_noise: bool = ...,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: bool,
        *,
        exposure: ArrayLike | None = ...,
        observation_noise: bool = ...,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]: ...

    @by_column
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        *,
        exposure: ArrayLike | None = None,
        observation_noise: bool = True,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the mean of new observations and, on request, their standard deviation.

        Args:
            X: Rows ``M x D``.
            return_std: Also return standard deviations ``M``.
            exposure: Exposures ``M`` of counts, or one number; ``None`` for 1, which gives rates.
            observation_noise: Include the noise of an observation; ``False`` for the uncertainty
                of the function alone.

        Returns:
            Mean ``M``, or mean and standard deviations, in units of the targets. The mean is the
            expected observation, regardless of ``observation_noise``. With a transform, log-normal
            tails would dominate the moments. Transformed values are therefore clipped at one
            standard deviation beyond the range of the fit's targets and the predictive median.
        """
        check_flags(return_std=return_std, observation_noise=observation_noise)
        rows, indices, offset = self._drawn_with(X, exposure)
        is_linear = self.y_transform_.is_linear
        if is_linear and not return_std:
            weights, means, *_ = self._components(rows, indices, variance=False)
            return weights @ means
        noise = observation_noise or not is_linear
        mean, std = self._targets.moments(self._mixture(rows, indices, offset, noise=noise))
        if return_std and noise != observation_noise:
            std = self._targets.moments(self._mixture(rows, indices, offset, noise=False))[1]
        return (mean, std) if return_std else mean

    @by_column
    def predict_distribution(  # type: ignore[override]
        self, X: ArrayLike, /, *, exposure: ArrayLike | None = None
    ) -> PredictiveMixture | CountMixture:
        """Predict the mixture distributions of new observations, in units of the targets.

        The result has ``quantile(p)`` and ``std()``, each ``M``, and ``log_density(y)`` of ``M``
        values.

        Args:
            X, exposure: As in :meth:`predict`.
        """
        return self._mixture(*self._drawn_with(X, exposure), noise=True)

    @by_column
    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        *,
        exposure: ArrayLike | None = None,
        observation_noise: bool = True,
    ) -> np.ndarray:
        """Draw joint samples ``M x n_samples`` of observations.

        Each sample uses one member, one noise component and one draw of the missing values.

        Args:
            X, exposure: As in :meth:`predict`.
            n_samples: Number of samples.
            random_state: Seed, or NumPy random state.
            observation_noise: Draw observations; ``False`` draws the function.
        """
        check_counts(1, n_samples=n_samples)
        check_flags(observation_noise=observation_noise)
        seed = check_random_state(random_state).randint(2**31 - 1)
        rng = np.random.default_rng([seed, self._seed])  # columns of targets differ in _seed
        rows, indices, offset = self._drawn_with(X, exposure)
        mixture = self._mixture(rows, indices, offset, noise=observation_noise)
        widening = self._ensemble.widening if observation_noise else 1.0
        num_widths = len(self._ensemble.widths) if observation_noise else 1
        of_gaps = self._components(rows, indices, variance=False)[3]
        of_gaps = of_gaps / (widening * self.y_scale_**2)

        @cache
        def root(component: int) -> np.ndarray:
            """Return the root ``M x M`` of a member's correlations at a draw of missing values."""
            member, number = divmod(component, len(indices))
            x = self._tensor(rows[indices[number]])
            covariance = self._ensemble.covariance(member, x, noise=observation_noise)
            covariance[np.diag_indices_from(covariance)] += of_gaps[component]
            values, vectors = np.linalg.eigh(covariance)
            return vectors * np.sqrt(values.clip(0)) / np.sqrt(np.diag(covariance))[:, None]

        def scores(component: int, count: int) -> np.ndarray:
            return rng.standard_normal((count, len(offset))) @ root(component // num_widths).T

        return mixture.sample(n_samples, rng, scores).T

    @property
    def _is_gaussian(self) -> bool:
        return self.likelihood == "gaussian"

    @property
    def _is_counts(self) -> bool:
        return self.likelihood in COUNTS

    def _checked_targets(
        self, target: np.ndarray, noise_variance: ArrayLike | None, exposure: ArrayLike | None
    ) -> np.ndarray:
        """Return targets, logarithms of exposures and known noise variances, ``3 x N``."""
        offset = log_exposures(self.likelihood, exposure, len(target))
        if noise_variance is not None and not self._is_gaussian:
            raise ValueError(
                f"noise_variance needs likelihood='gaussian', got {self.likelihood!r}."
            )
        known_noise = 0.0 if noise_variance is None else noise_variance
        known_noise = per_row("noise_variance", known_noise, len(target), positive=False)
        return np.stack([target.astype(np.float64), offset, known_noise])

    def _candidate_transforms(self, target: np.ndarray) -> list[Transform]:
        """Check targets ``N``, and return their candidate transforms."""
        if self._is_counts:
            check_counted(self.likelihood, target)
            return [RATES.transform]
        check_varies(target)
        option, bounds = self.y_transform, as_bounds(self.y_bounds, "y_bounds")
        if option == "auto" and bounds is None and not self._is_gaussian:
            option = "identity"
        return candidates(option, target, bounds)

    def _learn_targets(
        self, x: np.ndarray, observed: np.ndarray, transforms: Sequence[Transform]
    ) -> None:
        """Choose the transform of the targets, and learn their standardisation."""
        self._targets = RATES
        if not self._is_counts:
            transform = choose_transform(
                transforms,
                self._tensor(x),
                observed,
                seed=self._seed,
                recipe=self.recipe,
                budget=None if self.budget is None else _CHOICE * self.budget,
                cat_dims=self._cat_dims,
            )
            robust = not self._is_gaussian or observed[2].any()
            self._targets = Targets.of(observed[0], transform, robust=robust)
        self.y_transform_ = self._targets.transform
        self.y_offset_, self.y_scale_ = self._targets.offset, self._targets.scale

    def _train_networks(
        self, structures: Sequence[str | Kernel], rows: Rows, num_rows: int, session: Session
    ) -> dict[str, FitResult]:
        """Train the networks; members have all rows."""
        named, later = named_structures(structures, len(rows), rows.x.size(-1)), 0.0
        if session.budget is not None and self._is_gaussian:
            model = untrained_model(next(iter(named.values())), rows[:_PROBE], self._cat_dims)
            count = len(named) * self.restarts
            later = self._plan_predictions(model, num_rows, count, _SHARE * session.budget)
        makers = {"": _LIKELIHOODS[self.likelihood][0]}
        training_rows = rows if self._is_gaussian else rows[:_MAX_TRAINED]
        budget = session.part(1 - later / max(session.seconds_left, later, 1e-9))
        results = self._train(named, training_rows, budget=budget, makers=makers)
        session.interrupted = any(result.interrupted for result in results.values())
        for result in results.values() if not self._is_gaussian else ():
            for member in result.members.values():
                rows.set_on(member)
        return results

    def _mix(
        self, results: dict[str, FitResult], rows: Rows, incomplete: Rows | None, session: Session
    ) -> Ensemble:
        """Mix the trained networks, in the time that is left."""

        def mix(limit: int | None) -> Ensemble:
            sparse = None
            if self.method_ == "sparse":
                options = self._num_points, session, self._seed, self._cat_dims
                sparse = sparse_predictors(rows, *options)
            return _LIKELIHOODS[self.likelihood][1](
                results,
                cat_dims=self._cat_dims,
                sparse=sparse,
                incomplete=incomplete,
                scale_noise=self._is_gaussian,
                limit=limit,
            )

        with session.interruptible():
            return mix(self._num_members)
        return mix(1)  # after Ctrl-C

    def _choose_method(self, num_rows: int) -> None:
        """Choose the method of prediction; warn if it takes long."""
        is_small = num_rows <= max_exact_rows(self.device) or not self._is_gaussian
        self.method_ = "exact" if self.num_inducing is None and is_small else "sparse"
        self._num_points = self.num_inducing or _NUM_INDUCING
        self._num_members: int | None = None  # no limit
        if self.method_ == "sparse" and self.budget is None:
            warn_of_size(
                "NKNRegressor",
                num_rows,
                _USUAL_ROWS,
                f"hyperparameters are learned from random blocks of rows, and {self._num_points} "
                "inducing points use all rows. A million rows take minutes; a budget or a smaller "
                "num_inducing reduces the time.",
            )

    def _plan_predictions(self, model: TableGP, num_rows: int, count: int, seconds: float) -> float:
        """Choose predictions of ``count`` members in a time, and return their seconds."""
        begin = time.monotonic()
        ConditionedGP(model).leave_one_out()
        cubic = max(time.monotonic() - begin, 1e-4) / model.train_targets.numel() ** 3
        cost = cubic * num_rows  # seconds of a member, per squared number of its points
        num_points = num_rows
        if self.method_ == "exact" and _MIXED * cost * num_rows**2 > seconds:
            self.method_ = "sparse"
        if self.method_ == "sparse":
            cost *= _PASSES
            affordable = math.sqrt(seconds / (cost * min(count, _MIXED)))
            num_points = min(self._num_points, max(int(affordable), _LEAST_POINTS))
            self._num_points = num_points
        cost *= num_points**2
        self._num_members = max(1, int(seconds / cost))
        return min(count * cost, seconds)

    def _check_parameters(self) -> list[str | Kernel]:
        structures = super()._check_parameters()
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}.")
        if self.num_inducing is not None:
            check_counts(1, num_inducing=self.num_inducing)
            if not self._is_gaussian:
                raise ValueError(
                    f"num_inducing needs likelihood='gaussian', got {self.likelihood!r}: leave it "
                    "out."
                )
        if self._is_counts and (self.y_transform, self.y_bounds) != ("auto", None):
            raise ValueError(
                f"likelihood={self.likelihood!r} predicts counts by the logarithm of their rate: "
                "leave y_transform and y_bounds out."
            )
        return structures

    def _drawn_with(
        self, X: ArrayLike, exposure: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the results of :meth:`_drawn`, and logarithms ``M`` of exposures."""
        rows, indices = self._drawn(X)
        return rows, indices, log_exposures(self.likelihood, exposure, indices.shape[1])

    def _mixture(
        self, rows: np.ndarray, indices: np.ndarray, offset: np.ndarray, *, noise: bool
    ) -> Any:
        """Return distributions of observations, or of the function, at results of ``_drawn``."""
        weights, means, variances, of_gaps = self._components(rows, indices, noise=noise)
        means = means + offset
        transform = self.y_transform_
        if noise:
            return self._ensemble.mixture(weights, means, variances, of_gaps, transform)
        stds = np.sqrt(variances + of_gaps)
        smooth = replace(transform, whole=False)  # a function of counts is not rounded
        return PredictiveMixture(weights, means, stds, (smooth,) * len(weights))

    def _components(
        self, rows: np.ndarray, indices: np.ndarray, *, variance: bool = True, noise: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return weights ``R S``, means and variances ``R S x M`` of members and draws.

        The last array ``R S x M`` is the variance due to missing values. Each draw becomes a
        Gaussian, because a mixture of 8 points would exclude the values between them. The moments
        of the mixture do not change.
        """
        ensemble, count, gaps = self._ensemble, len(indices), indices[0] != indices[-1]
        means, variances = ensemble.moments(self._tensor(rows), variance=variance, noise=noise)
        variances = self.y_scale_**2 * variances[:, indices]
        means = self.y_offset_ + self.y_scale_ * means[:, indices]  # R x S x M
        middle, spread = means.mean(1, keepdims=True), means.var(1, keepdims=True)
        means = np.where(gaps, middle + math.sqrt(1 - _BANDWIDTH**2) * (means - middle), means)
        noises = self.y_scale_**2 * ensemble.gap_noises[:, None, None]
        of_gaps = np.broadcast_to(gaps * (_BANDWIDTH**2 * spread + noises), means.shape)
        weights = np.repeat(ensemble.weights, count) / count
        shape = -1, len(gaps)
        return weights, means.reshape(shape), variances.reshape(shape), of_gaps.reshape(shape)
