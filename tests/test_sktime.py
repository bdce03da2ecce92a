"""The forecaster in sktime: its own checks, values, and what it is combined with."""

import inspect
import textwrap

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sktime", reason="needs sktime: pip install 'gpytorch_nkn[sktime]'")

from sktime.forecasting.compose import TransformedTargetForecaster
from sktime.forecasting.model_evaluation import evaluate
from sktime.forecasting.model_selection import ForecastingGridSearchCV
from sktime.split import ExpandingWindowSplitter
from sktime.transformations.difference import Differencer
from sktime.utils.estimator_checks import check_estimator

import gpytorch_nkn.sktime as nkn_sktime
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.sktime import SktimeNKNForecaster

QUICK = {"quality": "fast", "recipe": Recipe(adam_steps=0, lbfgs_iterations=2), "random_state": 0}
QUICK |= {"transform": "identity", "outliers": "keep"}
MONTHS = pd.period_range("2018-01", periods=48, freq="M")
# Checks of sktime with many variants for indices, horizons, panels and processes: minutes.
# All of them pass, and all SCENARIOS: check_estimator(SktimeNKNForecaster).
REPEATED = [
    "test_deepcopy_fitted_predict",
    "test_fit_idempotent",
    "test_hierarchical_with_exogenous",
    "test_methods_have_no_side_effects",
    "test_multiprocessing_idempotent",
    "test_predict_interval",
    "test_predict_quantiles",
    "test_predict_proba",
    "test_predict_time_index",
    "test_predict_time_index_in_sample_full",
    "test_predict_time_index_with_X",
    "test_pretrain_with_hierarchical_data",
    "test_save_estimators_to_file",
    "test_unequal_length_hierarchical_fit_predict",
    "test_update_predict_predicted_index",
    "test_update_predict_single",
]
# What others say of the same methods, for a series with covariates or for several.
WITH_X, COLUMNS = "ForecasterFitPredictUnivariateWithX", "ForecasterFitPredictMultivariateNoX"
SCENARIOS = {
    "test_non_state_changing_method_contract": [
        *(f"{WITH_X}-{method}" for method in ("predict_var", "get_fitted_params")),
        *(f"{COLUMNS}-{method}" for method in ("predict", "predict_proba")),
    ],
    "test_persistence_via_pickle": [
        *(f"{WITH_X}-{method}" for method in ("predict_var", "predict_proba")),
        *(f"{COLUMNS}-{method}" for method in ("predict", "predict_var")),
    ],
    "test_score": ["y:1cols-fh=1", "y:2cols-fh=[2 5]"],
    "test_update_with_exogenous_variables": [
        *(f"y:{columns}cols-update_params={new}" for columns, new in ((1, True), (2, False))),
        "y:2cols-update_params=True",
    ],
    "test_different_fh_in_fit_and_predict_error_handling": ["y:2cols"],
    **dict.fromkeys((f"test_{of}_when_refitting" for of in ("_y", "cur_y")), ["y:2cols"]),
    **dict.fromkeys((f"test_{of}" for of in ("cutoff", "fh_attribute")), ["y:2cols"]),
    **dict.fromkeys(("test__y_remember_data", "test_fit_predict"), ["y:2cols"]),
    "test_fh_not_passed_error_handling": ["y:2cols"],
    **dict.fromkeys((f"test_fit_{of}" for of in ("returns_self", "updates_state")), [COLUMNS]),
    **dict.fromkeys(("test_deepcopy_fitted", "test_get_fitted_params"), [COLUMNS]),
    "test_fit_does_not_overwrite_hyper_params": [COLUMNS],
}
LEFT_OUT = [
    f"{test}[SktimeNKNForecaster-{scenario}]"
    for test, scenarios in SCENARIOS.items()
    for scenario in scenarios
]


def monthly(n=48):
    steps = np.arange(n)
    return pd.Series(9 + 0.1 * steps + np.sin(2 * np.pi * steps / 12), MONTHS[:n], name="sales")


def own(series, horizon, **options):
    return NKNForecaster(**QUICK, horizon=horizon, **options).fit(series)


@pytest.fixture(scope="module")
def fitted():
    return SktimeNKNForecaster(**QUICK).fit(monthly(36), fh=[1, 2, 6])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("one_structure")
def test_checks_of_sktime():
    model = SktimeNKNForecaster.create_test_instance()
    options = {"tests_to_exclude": REPEATED, "fixtures_to_exclude": LEFT_OUT}
    results = check_estimator(model, verbose=False, **options)
    assert len(results) > 60
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_parameters_match_the_forecaster():
    expected = inspect.signature(NKNForecaster).parameters
    found = inspect.signature(SktimeNKNForecaster).parameters
    assert {name: p.default for name, p in found.items()} == {
        name: p.default for name, p in expected.items()
    }


def test_forecasts_match_the_forecaster(fitted):
    model = own(monthly(36), 6)
    ahead = MONTHS[[36, 37, 41]]
    median, std = model.predict(ahead, return_std=True)
    expected = pd.Series(median, ahead, name="sales")
    pd.testing.assert_series_equal(fitted.predict(), expected)
    np.testing.assert_allclose(fitted.predict_var()["sales"], std**2)
    found = fitted.predict_quantiles(alpha=[0.1, 0.7])
    np.testing.assert_allclose(found["sales"], model.predict_quantiles(ahead, [0.1, 0.7]))
    found = fitted.predict_interval(coverage=0.8)["sales"][0.8]
    np.testing.assert_allclose(found.T, model.predict_interval(ahead, 0.8))
    with pytest.raises(NotImplementedError, match="cov must be False, got True"):
        fitted.predict_var(cov=True)


def test_what_was_observed_is_forecast_too_and_missing_values_are_gaps(one_structure):
    series = monthly(36)
    series.iloc[[3, 20]] = np.nan
    model = SktimeNKNForecaster(**QUICK).fit(series)
    found = model.predict(fh=pd.PeriodIndex(MONTHS[[3, 20, 36]]))
    assert np.abs(found - monthly()[found.index]).max() < 0.2


def test_update_forecasts_from_new_observations_without_training(one_structure):
    model = SktimeNKNForecaster(**QUICK).fit(monthly(36), fh=[1, 2])
    trained = model.forecaster_.result_
    model.update(monthly()[36:40])
    assert model.forecaster_.result_ is trained and model.predict().index[0] == MONTHS[40]
    expected = own(monthly(36), 2).update(monthly()[36:40])
    np.testing.assert_allclose(model.predict(), expected.forecast(2)["median"])
    model.update(monthly()[40:42] + 5, update_params=False)  # the cutoff alone
    assert model.predict().index[0] == MONTHS[42]
    np.testing.assert_allclose(model.predict(), expected.predict(MONTHS[42:44]))


@pytest.mark.parametrize("index", [MONTHS, MONTHS.to_timestamp(), pd.RangeIndex(48)])
def test_covariates_match_the_times(index, one_structure):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"price": rng.standard_normal(48)}, index)
    series = monthly().set_axis(index) + 3 * X["price"]
    options = QUICK | {"seasons": 12 if index[0] == 0 else ()}
    model = SktimeNKNForecaster(**options).fit(series[:36], X=X[:36], fh=[2, 4])
    expected = NKNForecaster(**options, horizon=4).fit(series[:36], covariates=X[:36])
    expected = expected.predict(index[[37, 39]], covariates=X.iloc[[37, 39]])
    np.testing.assert_allclose(model.predict(X=X[36:40]), expected, rtol=1e-6)
    assert np.abs(model.predict(fh=[-3, 1], X=X[36:40]) - series.iloc[[32, 36]]).max() < 2


def test_it_enters_pipelines_searches_and_evaluations(one_structure):
    series, model = monthly(), SktimeNKNForecaster(**QUICK)
    windows = ExpandingWindowSplitter(fh=[1, 2, 3], initial_window=40, step_length=4)
    table = evaluate(model, windows, series, error_score="raise")
    assert len(table) == 2 and table["test_MeanAbsolutePercentageError"].max() < 0.05
    pipeline = TransformedTargetForecaster([("difference", Differencer()), ("nkn", model)])
    found = pipeline.fit(series[:44], fh=[1, 2, 3]).predict()
    assert np.abs(found - series[44:47]).max() < 0.5
    search = ForecastingGridSearchCV(
        model, windows, {"seasons": [(), "auto"]}, error_score="raise", backend=None
    )
    search.fit(series, fh=[1, 2, 3])
    assert len(search.cv_results_) == 2 and np.isfinite(search.predict()).all()


def test_example_of_the_module_runs(one_structure):
    _, example = nkn_sktime.__doc__.split("::\n", 1)
    namespace = {}
    exec(
        textwrap.dedent(example).replace("random_state", "quality='fast', random_state"), namespace
    )
    assert len(namespace["forecaster"].predict()) == 12
