import warnings
from copy import deepcopy
from datetime import timedelta

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel
from matplotlib.figure import Figure
from scipy.stats import norm

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.estimators.series import search
from gpytorch_nkn.estimators.series.candidates import QUALITIES, train
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import decompose
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear

SHORT = Recipe(adam_steps=0, lbfgs_iterations=25)
QUICK = Recipe(adam_steps=0, lbfgs_iterations=4)


def seasonal_series(n=72):
    time = np.arange(float(n))
    return time, 10 + 0.1 * time + 3 * np.sin(2 * np.pi * time / 12)


def forecaster(**options):
    return NKNForecaster(**{"quality": "fast", "random_state": 0, **options})


@pytest.fixture
def one_sum(monkeypatch):
    """The fast quality has one structure, for claims about one Gaussian process."""
    monkeypatch.setitem(QUALITIES, "fast", ("damped",))


def plain(**options):
    """Train shortly, for tests that need no accurate fit."""
    settings = {"transform": "identity", "outliers": "keep", "recipe": QUICK}
    return forecaster(**settings | options)


@pytest.fixture(scope="module")
def fitted():
    time, y = seasonal_series()
    options = {"outliers": "keep", "recipe": QUICK, "random_state": 0}
    return NKNForecaster(seasons=12, **options).fit(time[:60], y[:60])


@pytest.mark.parametrize("structure", ["auto", "time_series"])
def test_trend_and_season_are_extrapolated(structure, one_structure):
    time, y = seasonal_series()
    options = {"seasons": 12, "restarts": 1, "recipe": None}
    model = plain(quality="default", structure=structure, **options)
    model.fit(time[:48], y[:48])
    assert np.abs(model.predict(time[48:]) - y[48:]).max() < 0.3
    assert model.score(time[48:], y[48:]) > 0.98


def test_a_random_walk_is_continued_from_its_end():
    rng = np.random.default_rng(0)
    time, y = np.arange(150.0), rng.standard_normal(150).cumsum()
    model = NKNForecaster(random_state=0, horizon=10).fit(time, y)
    ahead = np.arange(150.0, 160.0)
    lower, upper = model.predict_interval(ahead)
    assert np.abs(model.predict(ahead) - y[-1]).max() < 2.5
    # the variance of a random walk grows in proportion to the horizon
    assert 2.0 < (upper - lower)[-1] / (upper - lower)[0] < 4.5
    assert 0.7 < (upper - lower)[0] / (2 * 1.96) < 1.4


def test_all_candidates_are_listed(fitted):
    table = fitted.scores_
    counts = table["structure"].value_counts().to_dict()
    assert counts == {"steady": 2, "damped": 2, "smooth": 2, "shifting": 2, "cycle": 1}
    assert table["transform"].value_counts().to_dict() == {"identity": 4, "sqrt": 1, "log": 4}
    assert table["weight"].sum() == pytest.approx(1) and (table["weight"] >= 0).all()
    scored = table[table["status"] == "ok"]
    alike = scored[scored["structure"] != "cycle"]  # which has less prior weight
    order = alike.sort_values("log_density", ascending=False)["weight"]
    assert order.is_monotonic_decreasing
    weights = scored["weight"][scored["weight"] > 0]
    assert [m.weight for m in fitted.members_] == sorted(weights, reverse=True)


def test_candidates_that_are_far_behind_do_not_stretch_intervals():
    time = np.arange(120.0)
    y = 100 + 2 * time + np.random.default_rng(0).normal(size=120)  # a line
    found = NKNForecaster(seasons=[], horizon=12, random_state=0, progress=False).fit(time, y)
    low, high = found.predict_interval(time[-1] + np.arange(1.0, 13.0))
    truth = 100 + 2 * (time[-1] + np.arange(1.0, 13.0))
    assert (low < truth).all() and (truth < high).all()
    assert (truth - low < 8).all()  # a member without a trend is 24 below at the end


def test_processes_give_what_one_gives():
    time, y = seasonal_series(40)
    recipe = Recipe(adam_steps=0, lbfgs_iterations=2)
    options = {"seasons": 12, "recipe": recipe}
    one = plain(**options).fit(time, y)
    with joblib.parallel_config("multiprocessing"):  # whose processes have torch from the start
        two = plain(n_jobs=2, **options).fit(time, y)
    np.testing.assert_allclose(two.predict(time + 20), one.predict(time + 20), rtol=1e-6)


def test_logarithms_give_log_normal_forecasts(one_sum):
    time, y = seasonal_series()
    logged = forecaster(transform="log").fit(time[:60], np.exp(y[:60] / 5))
    normal = plain(recipe=SHORT).fit(time[:60], y[:60] / 5)
    x = time[57:60]  # limits of growth, which differ between the transforms, concern later times
    # the same but for the path of the training, whose data differ by rounding
    logs = np.log(logged.predict_interval(x))
    np.testing.assert_allclose(logs, normal.predict_interval(x), atol=0.01)
    # what is said is that of one log-normal
    mean, std = logs.mean(0), np.diff(logs, axis=0)[0] / (2 * norm.ppf(0.975))
    median, got_std = logged.predict(x, return_std=True)
    np.testing.assert_allclose(median, np.exp(mean), rtol=1e-6)
    expected = np.exp(mean + std**2 / 2) * np.sqrt(np.expm1(std**2))
    np.testing.assert_allclose(got_std, expected, rtol=1e-5)
    target = median * 1.01
    expected = norm.logpdf(np.log(target), mean, std) - np.log(target)
    np.testing.assert_allclose(logged.log_predictive_density(x, target), expected, rtol=1e-6)


def test_shares_stay_between_their_bounds(one_structure):
    rng = np.random.default_rng(0)
    time = np.arange(60.0)
    shares = 100 / (1 + np.exp(-rng.standard_normal(60).cumsum() / 2 - 1))
    model = forecaster(bounds=(0, 100), recipe=QUICK, outliers="keep").fit(time, shares)
    assert set(model.scores_["transform"]) == {"identity", "logit"}
    ahead = model.predict_quantiles(np.arange(60.0, 160.0), [1e-6, 0.5, 1 - 1e-6])
    assert ahead.min() >= 0 and ahead.max() <= 100
    assert (np.diff(ahead) > 0).all()
    with pytest.raises(ValueError, match="must suit"):
        model.update([60.0], [101.0])
    closed = plain(transform="logit", bounds=[0, 100]).fit(time, shares.round(-1))
    assert shares.round(-1).max() == 100  # a bound itself
    assert closed.predict_quantiles(np.arange(60.0, 90.0), [0.001, 0.999]).max() <= 100


def whole(found):
    return bool((np.asarray(found) % 1 == 0).all())


def demand(chance, n=96):
    rng = np.random.default_rng(3)
    sizes = 1.0 + rng.poisson(1.5, n)
    return pd.Series(np.where(rng.random(n) < chance, sizes, 0.0), MONTHS_OF_DEMAND[:n])


MONTHS_OF_DEMAND = pd.period_range("2010-01", periods=120, freq="M")


@pytest.mark.parametrize("chance", [0.07, 0.6])
def test_the_probability_of_zero_is_that_of_the_demand(chance, one_structure):
    series = demand(chance)
    model = forecaster(recipe=QUICK, outliers="keep").fit(series)
    none = model.predict_distribution(MONTHS_OF_DEMAND[96:102]).below(np.zeros(6))
    assert np.abs(none - (series == 0).mean()).max() < 0.17
    assert ((model.predict(MONTHS_OF_DEMAND[96:102]) > 0) == (chance > 0.5)).all()


def test_forecasts_of_counts_are_whole_numbers(one_structure):
    intermittent = forecaster(recipe=QUICK, outliers="keep").fit(demand(0.3))
    ahead = MONTHS_OF_DEMAND[96:102]
    assert set(intermittent.scores_["transform"]) == {"sqrt", "probit"}
    said = intermittent.predict_distribution(ahead)
    levels = [0.05, 0.5, 0.8, 0.95, 0.999]
    quantiles = intermittent.predict_quantiles(ahead, levels)
    for level, column in zip(levels, quantiles.T, strict=True):
        np.testing.assert_array_equal(said.quantile(level), column)
    logs = intermittent.log_predictive_density(ahead, np.ones(6))
    np.testing.assert_allclose(logs, said.log_density(np.ones(6)))
    median, std = intermittent.predict(ahead, return_std=True)
    np.testing.assert_array_equal(median, quantiles[:, 1])
    np.testing.assert_allclose(std, said.std())
    paths = intermittent.sample_paths(500, horizon=6, random_state=0)
    assert np.abs((paths == 0).mean(axis=1) - said.below(np.zeros(6))).max() < 0.08
    back = plain(transform="auto", horizon=3).cross_validation(demand(0.3, 40), windows=1)
    tables = (quantiles, intermittent.forecast(6), paths, back.iloc[:, 2:])
    assert all(whole(table) and np.min(table) >= 0 for table in tables)
    drawn = intermittent.plot(6, ax=Figure().subplots()).lines[-1].get_ydata()
    assert whole(drawn)


HARD = {
    "two that are not zero": lambda y: y.where(y.index.isin(y.index[[9, 40]]), 0.0).clip(upper=1),
    "no longer sold": lambda y: y.where(y.index < y.index[40], 0.0).astype(int),
    "one huge value": lambda y: y.where(y.index != y.index[20], 1e7),
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.filterwarnings("ignore:.* observations are outliers")
def test_forecasts_of_unusual_counts_are_sound(case, one_structure):
    series = demand(0.4, 60)
    series.iloc[[9, 40]] = 1.0
    model = forecaster(recipe=QUICK).fit(HARD[case](series))
    found = model.forecast(6)
    assert whole(found) and np.isfinite(found).all(axis=None) and found.min(axis=None) >= 0
    assert found["median"].max() <= 4 and found["hi-95"].max() <= (1e7 if "huge" in case else 12)


def test_whole_numbers_above_a_lower_bound_count_from_it(one_structure):
    series = demand(0.4, 60) - 3.0
    model = forecaster(recipe=QUICK, bounds=(-3, None)).fit(series)
    assert "probit" in set(model.scores_["transform"])
    found = model.forecast(6)
    assert whole(found) and found.min(axis=None) == -3


def test_large_counts_are_rounded_and_no_more(one_structure):
    time, y = seasonal_series()
    counts = np.round(1000 * y)
    model = forecaster(recipe=QUICK, outliers="keep").fit(time, counts)
    assert "probit" not in set(model.scores_["transform"])
    continuous = forecaster(recipe=QUICK, outliers="keep").fit(time, counts + 1e-6 * (time == 0))
    ahead = np.arange(72.0, 84.0)
    both = [m.predict_quantiles(ahead, [0.1, 0.5, 0.9]) for m in (model, continuous)]
    assert whole(both[0])
    np.testing.assert_allclose(both[0], both[1], rtol=2e-3)


ONE = pd.period_range("2021-01", periods=1, freq="M")


def monthly(n=72, **options):
    rng = np.random.default_rng(0)
    values = seasonal_series(n)[1] + 0.2 * rng.standard_normal(n)
    return pd.Series(values, pd.period_range("2015-01", periods=n, freq="M"), **options)


@pytest.fixture(scope="module")
def by_month():
    return plain().fit(monthly(name="sales"))


def test_a_pandas_series_brings_its_times_along(one_structure):
    series = monthly(name="sales")
    model = plain().fit(series)
    pd.testing.assert_series_equal(model.observed_, series)
    for other in (
        plain().fit(series.index, series.to_numpy()),
        plain().fit(series.to_timestamp()),
        plain().fit(series.to_frame()),
        plain().fit(series.sample(frac=1, random_state=0)),
    ):
        np.testing.assert_allclose(other.forecast(3), model.forecast(3), rtol=1e-2)


def test_only_targets_that_are_matched_by_position_give_a_warning_of_order():
    series = pd.Series(np.sin(np.arange(9)), pd.date_range("2001", periods=9))
    model = plain(budget=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dates = series.index.to_series()
        assert model.fit(dates, series[::-1]).update(dates[-2:], series[:-3:-1])
    numbers = pd.Series(range(9), list("abcdefghi"))
    with pytest.warns(UserWarning, match="different indices"):
        model.fit(numbers, numbers[::-1])


def test_missing_values_of_a_pandas_series_are_gaps(one_structure):
    series = monthly()
    series.iloc[[5, 30, 71]] = np.nan
    model = plain().fit(series)
    reference = plain().fit(series.index[series.notna()], series.dropna().to_numpy())
    ahead = model.forecast(2)
    assert ahead.index[0] == pd.Period("2021-01", "M")  # after the index, not the last value
    np.testing.assert_array_equal(ahead["median"], reference.predict(ahead.index))
    assert len(model.observed_) == 69


def test_forecast_is_a_table_of_quantiles(by_month, one_structure):
    table = by_month.forecast()
    assert list(table) == ["median", "lo-80", "hi-80", "lo-95", "hi-95"]
    assert table.index.equals(pd.period_range("2021-01", periods=12, freq="M"))
    np.testing.assert_array_equal(table["median"], by_month.predict(table.index))
    bands = np.stack(by_month.predict_interval(table.index, 0.8), -1)
    np.testing.assert_allclose(table[["lo-80", "hi-80"]], bands, rtol=1e-12)
    assert list(by_month.forecast(2, level=99.5)) == ["median", "lo-99.5", "hi-99.5"]
    assert list(by_month.forecast(2, level=())) == ["median"]
    assert len(plain(horizon=5).fit(monthly()).forecast()) == 5


def test_paths_are_joint_draws(one_sum):
    walk = np.random.default_rng(0).standard_normal(120).cumsum()
    model = plain().fit(np.arange(120.0), walk)
    x = np.arange(120.0, 126.0)
    paths = model.sample_paths(6000, x=x, random_state=1)
    pd.testing.assert_frame_equal(paths, model.sample_paths(6000, x=x, random_state=1))
    scaled = torch.tensor(model.standardised_time(x)).unsqueeze(-1)
    with torch.no_grad():
        wanted = model.model_.likelihood(model.model_(scaled)).covariance_matrix.numpy()
    scale = model.y_scale_ * model.members_[0].calibration
    np.testing.assert_allclose(paths.median(axis=1), model.predict(x), atol=0.1 * scale)
    np.testing.assert_allclose(np.cov(paths) / scale**2, wanted, rtol=0.12)


@pytest.mark.parametrize("is_noisy", [False, True])
def test_an_update_forecasts_from_all_observations(one_sum, is_noisy):
    series = monthly()
    noise = pd.Series(np.linspace(0, 4, 72) * is_noisy, series.index)
    model = plain().fit(series[:60], noise_variance=noise[:60][::-1])  # rows are found by date
    state = {name: value.clone() for name, value in model.model_.state_dict().items()}
    model.update(series[60:], noise_variance=noise[60:])
    assert all(torch.equal(state[name], value) for name, value in model.model_.state_dict().items())
    pd.testing.assert_series_equal(model.observed_, series)
    assert model.forecast(1).index[0] == pd.Period("2021-01", "M")
    scaled = torch.tensor(model.standardised_time(series.index)).unsqueeze(-1)
    targets = torch.tensor((series.to_numpy() - model.y_offset_) / model.y_scale_)
    process = model.model_
    with torch.no_grad():
        covariance = process.covar_module(scaled).to_dense()
        learned = getattr(process.likelihood, "second_noise", process.likelihood.noise).detach()
        covariance += (learned + torch.tensor(noise.to_numpy()) / model.y_scale_**2).diag()
        ahead = torch.tensor(model.standardised_time(model.forecast(3).index)).unsqueeze(-1)
        cross = process.covar_module(ahead, scaled).to_dense()
    expected = model.y_offset_ + model.y_scale_ * cross @ torch.linalg.solve(covariance, targets)
    np.testing.assert_allclose(model.forecast(3)["median"], expected, rtol=1e-6)
    solved = torch.linalg.solve(covariance, cross.mT)
    prior = process.covar_module(ahead, diag=True).detach()
    variances = prior - (cross.mT * solved).sum(0) + learned + noise.mean() / model.y_scale_**2
    std = model.y_scale_ * model.members_[0].calibration * variances.sqrt()
    # limits of the growth may narrow the intervals
    found = model.predict(model.forecast(3).index, return_std=True)[1]
    assert (found < 1.0001 * std.numpy()).all() and found[0] > 0.9999 * float(std[0])


def test_an_update_revises_what_was_observed(one_structure):
    series = monthly()
    revised = series[-3:] + 5
    model = plain().fit(series).update(revised)
    pd.testing.assert_series_equal(model.observed_, pd.concat([series[:-3], revised]))
    again = model.forecast(2)
    pd.testing.assert_frame_equal(model.update(revised).forecast(2), again)


def test_an_update_takes_other_zones_and_rows_without_a_target(one_structure):
    dates = pd.date_range("2024-01-01", periods=60, tz="Europe/Berlin", unit="s")
    series, covariate = pd.Series(np.arange(60.0) % 7, dates), np.arange(60.0) % 2
    one, two = (plain().fit(series[:50], covariates=covariate[:50]) for _ in range(2))
    later = series[50:].set_axis(dates[50:].tz_convert("UTC"))
    later.iloc[-1] = covariate[-1] = np.nan
    one.update(series[50:-1], covariates=covariate[50:-1])
    two.update(later, covariates=covariate[50:])
    pd.testing.assert_series_equal(two.observed_, one.observed_, check_freq=False)
    assert two.forecast(1, covariates=[0]).index[0] == dates[-1] + pd.Timedelta(days=1)


def test_an_update_excludes_the_outlier_and_not_other_rows_at_its_time(one_structure):
    time = np.repeat(np.arange(40.0), 2)
    y = np.sin(time) + 0.01 * np.random.default_rng(0).normal(size=80)
    y[40] = 50
    with pytest.warns(UserWarning, match="1 of 80 observations are outliers"):
        model = NKNForecaster(quality="fast", seasons=[], random_state=0).fit(time, y)
    for rows in (79, 80):
        assert all(len(member.model.train_targets) == rows for member in model.members_)
        model.update([40.0], [np.sin(40)])


def test_an_update_that_logarithms_cannot_take():
    series = monthly(40)
    options = {"recipe": QUICK, "outliers": "keep", "seasons": [], "random_state": 0}
    both = NKNForecaster(**options).fit(series)
    assert {member.transform for member in both.members_} == {"identity", "sqrt", "log"}
    low = pd.Series([-1.0], series.index[-1:] + 1)
    both.update(low)
    assert {member.transform for member in both.members_} == {"identity"}
    assert sum(member.weight for member in both.members_) == pytest.approx(1)
    assert np.isfinite(both.forecast(3)).all(axis=None)
    with pytest.raises(ValueError, match=r"suit .*\(log; bounds=None\), got -1 to"):
        plain(transform="log").fit(series).update(low)
    with pytest.raises(TypeError, match="fitted over period"):
        both.update(low.to_timestamp())


def test_durations_are_plotted_in_days_and_numbers_have_none(one_structure):
    model = plain().fit(pd.to_timedelta(6 * np.arange(40), unit="h"), monthly(40).to_numpy())
    ax = model.plot(4, ax=Figure().add_subplot())
    assert ax.lines[0].get_xdata()[-1] == 10.75
    numbers = plain().fit(np.arange(40.0), monthly(40).to_numpy())
    with pytest.raises(TypeError, match="horizon must be a number like the times"):
        decompose(numbers).curves(timedelta(hours=12))


def test_cross_validation_forecasts_every_window_from_what_came_before(one_structure):
    series = monthly(40)
    table = plain().cross_validation(series, horizon=4, windows=2, step=3)
    assert list(table)[:4] == ["cutoff", "time", "y", "median"]
    assert table["cutoff"].unique().tolist() == [series.index[32], series.index[35]]
    np.testing.assert_array_equal(table["y"], series[table["time"]])
    first = plain(horizon=4).fit(series[:33])
    np.testing.assert_array_equal(table["median"][:4], first.forecast(4)["median"])
    second = plain(horizon=4).fit(series[:36])
    np.testing.assert_allclose(table["hi-95"][4:], second.forecast(4)["hi-95"], rtol=1e-6)


def test_a_window_without_a_forecast_does_not_lose_the_others(one_structure):
    y = np.r_[np.full(40, 3.0), seasonal_series(30)[1]]
    with pytest.warns(UserWarning, match="after 37 has no forecast.*constant"):
        table = plain().cross_validation(np.arange(70), y, horizon=16, windows=2, level=())
    assert table["median"].isna().tolist() == [True] * 16 + [False] * 16


def test_ctrl_c_keeps_the_windows_that_are_finished(monkeypatch, one_sum):
    calls = []

    def twice(*args, **options):
        calls.append(args)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return train(*args, **options)

    monkeypatch.setattr(search, "train", twice)
    table = plain().cross_validation(monthly(40), horizon=6, windows=4)
    assert len(table) == 12 and np.isfinite(table["median"]).all()


@pytest.mark.parametrize("history", [None, 20])
def test_plot_shows_the_end_of_the_series_and_the_forecast(by_month, history):
    held_out = pd.Series(15.0, pd.period_range("2021-01", periods=6, freq="M"))
    figure = Figure()
    ax = by_month.plot(held_out=held_out, history=history, ax=figure.add_subplot())
    lines = {line.get_label(): line for line in ax.get_lines()}
    np.testing.assert_allclose(
        lines["forecast"].get_ydata(), by_month.forecast(6, level=())["median"]
    )
    assert len(lines["training data"].get_ydata()) == (history or 30)
    assert len(lines["held-out data"].get_ydata()) == 6 and ax.get_ylabel() == "sales"


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda model: model.forecast(0), ValueError, "horizon must be at least 1, got 0"),
        (lambda model: model.forecast(2, level=0.95), ValueError, "per cent, .* got 0.95"),
        (lambda model: model.forecast(2, level=[80, 100]), ValueError, "got 100"),
        (lambda model: model.forecast(2, level="95"), TypeError, "level must be a number"),
        (lambda model: model.plot(level=()), ValueError, "at least one number for a plot"),
        (lambda model: model.predict_quantiles(ONE, [np.nan]), ValueError, "between 0 and 1"),
        (lambda model: model.predict_quantiles(ONE, []), ValueError, "between 0 and 1"),
        (lambda model: model.log_predictive_density(ONE, [1.0, 2.0]), ValueError, "y must have 1"),
        (lambda model: model.sample_paths(0), ValueError, "num_paths must be at least 1"),
        (lambda model: model.sample_paths(horizon=2, x=[1]), ValueError, "give one of them"),
        (lambda model: model.fit(pd.DataFrame({"a": [1], "b": [2]})), ValueError, "columns a, b"),
        (lambda model: model.fit([1.0, 2.0, 4.0]), ValueError, "requires y"),
        (lambda model: model.fit(monthly(), noise_variance=[1.0]), ValueError, "each of 72 rows"),
        (lambda model: model.fit(monthly().where(lambda y: y < 0)), ValueError, "at least 3"),
        (
            lambda model: model.fit(pd.concat({"a": monthly(), "b": monthly()})),
            ValueError,
            "one column of times, got the 2 levels",
        ),
        (
            lambda model: model.cross_validation(monthly(20), horizon=6, windows=3),
            ValueError,
            "3 windows of 6 observations need at least 21, got 20",
        ),
    ],
)
def test_bad_calls_are_named(by_month, call, error, match):
    with pytest.raises(error, match=match):
        call(deepcopy(by_month))


@pytest.mark.parametrize("n", [3, 8])
def test_tiny_series_get_finite_forecasts(n, one_structure):
    time, y = seasonal_series(n)
    mean, std = forecaster().fit(time, y).predict(time + n, return_std=True)
    assert np.isfinite(mean).all() and (std > 0).all()


def test_own_network_is_used_and_not_changed():
    time, y = seasonal_series(40)
    network = NeuralKernelNetwork([RBFKernel(), LinearKernel()], [Linear(2, 1)])
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = forecaster(structure=network, restarts=1, recipe=SHORT).fit(time, y)
    assert len(model.model_.covar_module.primitives) == 2
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


TIME, SERIES = seasonal_series(10)


@pytest.mark.parametrize(
    ("x", "y", "error", "match"),
    [
        (np.where(TIME == 2, np.inf, TIME), SERIES, ValueError, "x contains 1 NaN or infinite"),
        (TIME[:2], SERIES[:2], ValueError, "at least 3 points, got 2"),
        (TIME, np.full(10, 7.0), ValueError, r"constant \(7.0\)"),
        (np.ones(10), SERIES, ValueError, "have the same time"),
        (np.ones((10, 2)), SERIES, ValueError, r"one column of times, got shape \(10, 2\)"),
        (["a"] * 10, SERIES, TypeError, "x must hold numbers or dates"),
        (TIME, ["a"] * 10, TypeError, "y must hold numbers, got 'a' at position 0"),
        (TIME, np.ma.masked_array(SERIES, TIME == 4), ValueError, "y contains 1 NaN.*position 4"),
        (TIME, 1e200 * SERIES, ValueError, "too large or too small"),
        (TIME + 1e12 * (TIME > 4), SERIES, ValueError, "no structure can be resolved"),
        (np.array(["NaT"] * 10, "datetime64[D]"), SERIES, ValueError, r"missing dates \(NaT\): 10"),
    ],
)
def test_bad_series_are_named(x, y, error, match):
    with pytest.raises(error, match=match):
        forecaster().fit(x, y)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"structure": "texture"}, ValueError, "got 'texture'"),
        ({"structure": RBFKernel()}, TypeError, "got RBFKernel"),
        ({"transform": "log"}, ValueError, "positive targets, got -1"),
        ({"bounds": (0, 1)}, ValueError, "within the bounds, got -1"),
        ({"transform": "logit"}, ValueError, "needs finite bounds"),
        ({"seasons": -1.0}, ValueError, "at least two steps .1 each., got -1.0"),
    ],
)
def test_bad_options_are_named(options, error, match):
    with pytest.raises(error, match=match):
        forecaster(**options).fit(TIME, np.where(TIME == 4, -1.0, SERIES))
