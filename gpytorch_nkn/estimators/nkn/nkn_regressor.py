"""Regression on tables of data by networks of kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpytorch_nkn.averaging import TRANSFORMS, MixturePredictions, PredictiveMixture, as_bounds
from gpytorch_nkn.estimators.conditioned_gp import max_exact_rows
from gpytorch_nkn.estimators.nkn.ensemble import Ensemble, cubic_seconds
from gpytorch_nkn.estimators.nkn.sparse_predictor import sparse_predictors
from gpytorch_nkn.estimators.nkn.table_estimator import TableEstimator
from gpytorch_nkn.estimators.nkn.table_gaps import learned_rows
from gpytorch_nkn.estimators.nkn.table_models import (
    TableGP,
    named_structures,
    train_structures,
    untrained_model,
)
from gpytorch_nkn.estimators.nkn.table_rows import DrawnRows, TableRows, row_source
from gpytorch_nkn.estimators.nkn.table_targets import Targets, candidates, choose_transform
from gpytorch_nkn.estimators.table_input import (
    check_complete_targets,
    check_numeric,
    check_varies,
    warn_of_copies,
)
from gpytorch_nkn.fit import (
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
_PASSES, _LEAST_POINTS = 4, 50  # of sparse predictions over the rows; inducing points
_METHODS = ("auto", "exact", "sparse")
_TRANSFORMS = ("auto", *TRANSFORMS)
# Width of the Gaussian around each of eight draws, in their standard deviation: half of the
# distance between neighbours.
_BANDWIDTH = 0.2
_CHOICE = 0.05  # of a budget, at most, for every transform


class NKNRegressor(MixturePredictions, RegressorMixin, TableEstimator):
    """Gaussian process regression on a table of data, with kernels that learn their structure.

    Columns and targets are standardised inside; results are in the units of the data. A few
    networks of kernels are trained, each from several starts. Their predictions are mixed with
    stacking weights, by how well they predict held-out rows. Nothing needs to be tuned.

    Up to 2,000 rows the networks maximise the posterior of their parameters given all rows;
    beyond, given random blocks of 1,000 rows (see :func:`gpytorch_nkn.fit.fit_in_stages`).
    Predictions use every row: exactly up to 12,000 rows (fewer if memory is short), beyond with
    inducing points and, where these are few for the rows, a local process of the residuals.
    Tables may be larger than the memory: Parquet files and memory maps are read piece by piece;
    networks then learn from 20,000 random rows, which ``model_`` holds.

    In a data frame, columns of strings and of pandas' categorical type are categories, which are
    alike or not (:class:`gpytorch_nkn.kernels.CategoricalKernel`); booleans are numbers. An
    unseen category differs from all. Dates are days since the first of training (periods by their
    start), durations are days; NaT is a missing number.

    Missing numbers (NaN, pandas' NA) are drawn from their distribution given the other columns,
    missing categories by their frequencies (``fillna("missing")`` makes them one more category).
    Networks learn from complete rows if these are half of all, or ten for each column and ten
    more; otherwise from all, with expected values. Exact predictions use incomplete rows, too,
    each with noise of its own: the variance of the function over the missing values. A prediction
    of an incomplete row is a mixture over 8 draws. This assumes that values are missing at random
    given those that are there; otherwise add columns of scikit-learn's ``MissingIndicator``.
    Infinite values raise an error, and so do missing ones in files and memory maps.

    Observations have mixture noise: several Gaussians around a prediction, of half to eight times
    its standard deviation, with weights from held-out rows. From 100 rows on, the noise is scaled
    by a log-linear function of the columns and of the prediction if held-out rows are then
    predicted better by 3 standard errors of their log density.

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
        y_transform: How targets are modelled: ``"identity"``, ``"log"``, ``"log1p"``, ``"sqrt"`` or
            ``"logit"``, as :class:`.NKNForecaster` has them; or ``"auto"``, which takes logarithms
            or square roots of targets that are not negative and skewed to the right (a skewness
            above 0.5) if held-out ones of 300 rows are predicted better by 2 standard errors of
            their log density; never of tables that are not in memory. Predictions are of the
            targets themselves. Under a root, a logarithm or bounds, whole numbers are counts:
            quantiles and samples are whole numbers, densities are probabilities.
        y_bounds: Lower and upper end of the targets, ``None`` for none: there are no predictions
            beyond. ``None``: 0 and infinity for transforms that need it.
        method: ``"exact"``, ``"sparse"`` (VFE with inducing points) or ``"auto"``, see above.
        num_inducing: Inducing points of sparse predictions.
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
        members_, weights_: Members of the mixture, pairs of a network's name and the number of its
            start, and their weights.
        model_: The Gaussian process of the largest weight, over standardised columns and targets;
            what ``expand``, ``decompose`` and ``report`` read.
        left_out_log_density_: Mean log density of held-out training rows, per unit of the targets.
            Below 500 rows each third of them is predicted from the others by hyperparameters that
            have not seen it. From there on rows are held out one by one, which is slightly
            optimistic; with sparse predictions, one by one within blocks of rows.
        width_shares_: Weights of the noise components, by factor of the standard deviation.
        method_: ``"exact"`` or ``"sparse"``.
        x_offset_, x_scale_, y_offset_, y_scale_: The standardisation, of columns that vary and of
            the transformed targets.
        y_transform_: The transform of the targets, see ``y_transform``.
        categories_: Categories of the columns that hold such, by name.
        noise_depends_: Whether the noise depends on the inputs.
        missing_shares_: Fractions of missing values in the columns ``D`` of training.
        columns_: Names of the columns in use. Constant ones are dropped (not with kernels of one's
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

    def __init__(
        self,
        structure: str | Kernel | Sequence[str | Kernel] = "auto",
        *,
        restarts: int = 2,
        y_transform: Literal["auto", "identity", "log", "log1p", "sqrt", "logit"] = "auto",
        y_bounds: Sequence[float | None] | None = None,
        method: Literal["auto", "exact", "sparse"] = "auto",
        num_inducing: int = 2000,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self.structure = structure
        self.restarts = restarts
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.method = method
        self.num_inducing = num_inducing
        self.recipe = recipe
        self.budget = budget
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: ArrayLike, y: ArrayLike) -> NKNRegressor:
        """Learn from a table.

        Args:
            X: Rows ``N x D``, an array or a data frame. Or a table that is not in memory: the path
                of a Parquet file or folder (or several), or a ``numpy.memmap``.
            y: Targets ``N``; of Parquet the name of their column, all others being inputs.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: Targets are missing, values are infinite or no numbers, lengths differ,
                there are fewer than 3 rows, the targets or all columns are constant, or an option
                has no meaning.
            TypeError: ``structure`` is neither a name nor a kernel, nor a sequence of such.
            RuntimeError: Every start of every network failed.
            KeyboardInterrupt: Ctrl-C came before the first step of training.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of another fit: a failure of this one must not leave a mixture
        structures = self._check_parameters()
        session = Session(budget=self.budget)
        self.seed_ = seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        source, drawn = row_source(X, y), None
        if source is not None:
            self._choose_method(source.num_rows)
            if self.method_ == "exact":
                X, y = source.rows(np.arange(source.num_rows))
                X = source.named(X)
            else:
                drawn = DrawnRows(source, seed)
                X, y = drawn.X, drawn.y
        table, target, codes = self._training_table(X, y, in_memory=source is None)
        bounds = as_bounds(self.y_bounds, "y_bounds")
        transforms = candidates(self.y_transform, target, bounds, in_memory=source is None)
        rows, cat_dims = self._standardise(table, codes, structures, seed)
        learned = learned_rows(rows, target)
        count = int(learned.sum())
        num_rows = count if drawn is None else drawn.source.num_rows
        self._choose_method(len(rows) if self.method == "exact" else num_rows)
        gappy = np.zeros(0, dtype=int)
        if self.method_ == "exact":  # others cannot take rows with a noise of their own
            most = None if self.method == "exact" else max_exact_rows(self.device) - count
            gappy = np.flatnonzero(~learned)[:most]
        warn_of_copies(rows, target)  # sorts the rows: after tables that are too large are refused
        gappy_rows, gappy_target = rows[gappy], target[gappy]
        rows, target = self._gaps.expected(rows)[learned], target[learned]
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
            transform = choose_transform(
                transforms,
                self._tensor(rows),
                target,
                seed=seed,
                recipe=self.recipe,
                budget=None if self.budget is None else _CHOICE * self.budget,
                cat_dims=cat_dims,
            )
            self._targets = Targets.of(target, transform)
            self.y_transform_ = transform
            self.y_offset_, self.y_scale_ = self._targets.offset, self._targets.scale
            inputs = self._tensor(rows)
            targets = self._tensor(self._targets.standardised(target))
            incomplete = None
            if gappy.size:
                draws = self._tensor(self._gaps.draw(gappy_rows))
                incomplete = draws, self._tensor(self._targets.standardised(gappy_target))
            named = named_structures(structures, num_rows, inputs.size(-1))
            later = 0.0
            if self.budget is not None:
                model = untrained_model(named, inputs, targets, cat_dims)
                later = self._plan_predictions(model, num_rows + gappy.size, len(named))
            results = train_structures(
                named,
                inputs,
                targets,
                budget=session.part(1 - later / max(session.seconds_left, later, 1e-9)),
                restarts=self.restarts,
                recipe=self.recipe,
                seed=seed,
                n_jobs=self.n_jobs,
                progress=self.progress,
                cat_dims=cat_dims,
            )
        sparse = None
        if self.method_ == "sparse":
            known = (
                TableRows.in_memory(inputs, targets, self._num_points, seed)
                if drawn is None
                else TableRows.on_disk(drawn, self._standardised)
            )
            sparse = sparse_predictors(inputs, self._num_points, known, seed, cat_dims)
        mix = partial(Ensemble, results, cat_dims=cat_dims, sparse=sparse, incomplete=incomplete)
        with session.interruptible():
            ensemble = mix(end=session.end)
        if session.interrupted:  # the best start alone takes the least time
            ensemble = mix(end=-math.inf)
        self._ensemble, self.results_ = ensemble, results
        self.members_, self.weights_ = ensemble.members, ensemble.weights
        self.model_, self.noise_depends_ = ensemble.model, ensemble.scale is not None
        widths = zip(ensemble.widths.tolist(), ensemble.width_shares.tolist(), strict=True)
        self.width_shares_ = dict(widths)
        logs = self._targets.log_density_of(*ensemble.left_out)
        self.left_out_log_density_ = float(np.nanmean(logs))
        return self

    def _training_table(
        self, X: Any, y: Any, *, in_memory: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows ``N x D``, targets ``N`` and the mask ``D`` (or empty) of columns of codes."""
        X, codes = self._coded(X, in_memory=in_memory)
        check_numeric("y", y)
        check_complete_targets(y)
        checks: dict[str, Any] = {"dtype": np.float64, "y_numeric": True, "order": "C"}
        checks |= {"ensure_min_samples": 3, "ensure_all_finite": "allow-nan"}
        table, target = validate_data(self, X, y, **checks)
        target = target.astype(np.float64)
        check_varies(target)
        return table, target, codes

    def _standardised(self, X: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs ``N x d`` and targets ``N`` as networks see them."""
        return self._tensor(self.standardisation_(X)), self._tensor(self._targets.standardised(y))

    def _choose_method(self, num_rows: int) -> None:
        """Choose how to predict from so many rows; raise or warn if that takes too much."""
        self.method_ = self.method
        if self.method == "auto":
            self.method_ = "exact" if num_rows <= max_exact_rows(self.device) else "sparse"
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

    def _plan_predictions(self, model: TableGP, num_rows: int, networks: int) -> float:
        """Choose predictions that a budget has time for; the seconds that they take."""
        assert self.budget is not None
        seconds, count = _SHARE * self.budget, networks * self.restarts
        per_point = cubic_seconds(model) * num_rows  # and inducing point, of n m^2 operations
        exact = per_point * num_rows**2
        if self.method_ == "exact" and self.method == "auto" and _MIXED * exact > seconds:
            self.method_ = "sparse"
        if self.method_ == "exact":
            return min(count * exact, seconds)
        per_point *= _PASSES
        affordable = math.sqrt(seconds / (per_point * min(count, _MIXED)))
        self._num_points = min(self.num_inducing, max(int(affordable), _LEAST_POINTS))
        return min(count * per_point * self._num_points**2, seconds)

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
            Mean ``M``, or mean and standard deviations or covariance, in units of the targets.
            Where these are transformed, the function is that of the process, transformed back;
            the mean is always that of observations. Parts of the distribution beyond all targets
            of training and beyond the median by more than a standard deviation count as if they
            lay there.

        Raises:
            ValueError: Both are asked for, a covariance of transformed targets is, or ``X`` is not
                such a table.
        """
        if return_std and return_cov:
            raise ValueError("At most one of return_std and return_cov can be asked for.")
        drawn, gaps = self._drawn(X)
        is_linear = self.y_transform_.is_linear
        if return_cov:
            if not is_linear:
                raise ValueError(
                    "Targets are transformed or bounded (see y_transform_) and have covariances on "
                    "that scale only; sample_y draws jointly, and y_transform='identity' without "
                    "bounds has them."
                )
            return self._mean_and_covariance(drawn, gaps, observation_noise)
        if is_linear and not return_std:
            weights, means, *_ = self._components(drawn, gaps, variance=False)
            return weights @ means
        noise = observation_noise or not is_linear
        mean, std = self._targets.moments(self._mixture(drawn, gaps, noise=noise))
        if return_std and not observation_noise and not is_linear:
            std = self._targets.moments(self._mixture(drawn, gaps, noise=False))[1]
        return (mean, std) if return_std else mean

    def predict_distribution(self, X: ArrayLike, /) -> PredictiveMixture:  # type: ignore[override]
        """Distributions of new observations, to ask for several things at the cost of one.

        Args:
            X: Rows ``M x D``.

        Returns:
            The mixture, with ``quantile(p)`` and ``std()``, each ``M``, and ``log_density(y)`` of
            observations ``M``, in units of the targets.
        """
        return self._mixture(*self._drawn(X), noise=True)

    def _mean_and_covariance(
        self, drawn: np.ndarray, gaps: np.ndarray, noise: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean ``M`` and covariance ``M x M`` of the mixture, noise included or not."""
        ensemble = self._ensemble
        weights, means, _, of_gaps = self._components(drawn, gaps, variance=False)
        mean = weights @ means
        covariance = np.zeros((len(mean), len(mean)))
        for member, weight in enumerate(ensemble.weights):
            for rows in drawn:
                own = ensemble.covariance(member, self._tensor(rows), noise=noise)
                covariance += weight / len(drawn) * own
        covariance *= self.y_scale_**2 * (ensemble.widening if noise else 1.0)
        # missing values of different rows are independent: they add to the diagonal only
        members = (means - mean).reshape(len(ensemble.weights), len(drawn), -1)
        central = members.mean(1)
        covariance += (ensemble.weights * central.T) @ central
        spread = ensemble.weights @ members.var(1) + weights @ of_gaps
        covariance[np.diag_indices_from(covariance)] += spread
        return mean, covariance

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
            Samples ``M x n_samples``. Each is of one member of the mixture, of one noise component
            and of one draw of missing values.
        """
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        drawn, gaps = self._drawn(X)
        mixture = self._mixture(drawn, gaps, noise=observation_noise)
        widening = self._ensemble.widening if observation_noise else 1.0
        num_widths = len(self._ensemble.widths) if observation_noise else 1
        of_gaps = self._components(drawn, gaps, variance=False)[3] / (widening * self.y_scale_**2)

        @cache
        def root(place: int) -> np.ndarray:
            """Root ``M x M`` of the correlations of a member at a draw."""
            member, number = divmod(place, len(drawn))
            covariance = self._ensemble.covariance(
                member, self._tensor(drawn[number]), noise=observation_noise
            )
            covariance[np.diag_indices_from(covariance)] += of_gaps[place]
            values, vectors = np.linalg.eigh(covariance)
            return vectors * np.sqrt(values.clip(0)) / np.sqrt(np.diag(covariance))[:, None]

        def scores(component: int, count: int) -> np.ndarray:
            return rng.standard_normal((count, len(gaps))) @ root(component // num_widths).T

        return mixture.sample(n_samples, rng, scores).T

    def _mixture(self, drawn: np.ndarray, gaps: np.ndarray, *, noise: bool) -> PredictiveMixture:
        """Distributions ``M`` of observations, or of the function, at rows ``S x M x d``."""
        weights, means, variances, of_gaps = self._components(drawn, gaps, noise=noise)
        transform = self.y_transform_
        if noise:
            return self._ensemble.mixture(weights, means, variances, of_gaps, transform)
        stds = np.sqrt(variances + of_gaps)
        smooth = replace(transform, whole=False)  # a function of counts is not rounded
        return PredictiveMixture(weights, means, stds, (smooth,) * len(weights))

    def _components(
        self, drawn: np.ndarray, gaps: np.ndarray, *, variance: bool = True, noise: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Weights ``R S`` of members and draws, and their means and variances ``R S x M``.

        Rows ``S x M x d`` differ between draws only where they have gaps. The last array
        ``R S x M`` is the variance of missing values: each draw stands for a Gaussian of values of
        the function, since a mixture of a few points would rule out values between them. Means and
        variances of these mixtures are those of the draws.
        """
        ensemble, count = self._ensemble, len(drawn)
        once = np.concatenate([drawn[0, ~gaps], drawn[:, gaps].reshape(-1, drawn.shape[-1])])
        places = np.empty(drawn.shape[:2], dtype=int)
        places[:, ~gaps] = np.arange((~gaps).sum())
        places[:, gaps] = (~gaps).sum() + np.arange(count * gaps.sum()).reshape(count, -1)
        means, variances = ensemble.moments(self._tensor(once), variance=variance, noise=noise)
        if variance:
            variances = variances[:, places].reshape(-1, len(gaps))
        means = self.y_offset_ + self.y_scale_ * means[:, places]  # R x S x M
        middle, spread = means.mean(1, keepdims=True), means.var(1, keepdims=True)
        means = np.where(gaps, middle + math.sqrt(1 - _BANDWIDTH**2) * (means - middle), means)
        noises = self.y_scale_**2 * ensemble.gap_noises[:, None, None]
        of_gaps = np.broadcast_to(gaps * (_BANDWIDTH**2 * spread + noises), means.shape)
        weights = np.repeat(ensemble.weights, count) / count
        means, of_gaps = (part.reshape(-1, len(gaps)) for part in (means, of_gaps))
        return weights, means, self.y_scale_**2 * variances, of_gaps

    def _check_parameters(self) -> list[str | Kernel]:
        structures = super()._check_parameters()
        as_bounds(self.y_bounds, "y_bounds")
        for name, known in (("method", _METHODS), ("y_transform", _TRANSFORMS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}.")
        check_counts(1, num_inducing=self.num_inducing)
        return structures
