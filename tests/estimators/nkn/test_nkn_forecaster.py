from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel
from scipy.integrate import cumulative_trapezoid, trapezoid
from scipy.stats import norm
from sklearn.utils.estimator_checks import check_estimator

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear

SHORT = Recipe(adam_steps=60, lbfgs_iterations=20)


def seasonal_series(n=72):
    time = np.arange(float(n))
    return time, 10 + 0.1 * time + 3 * np.sin(2 * np.pi * time / 12)


def forecaster(**options):
    return NKNForecaster(**{"restarts": 2, "recipe": SHORT, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    time, y = seasonal_series()
    return forecaster(restarts=3, average=True).fit(time[:60], y[:60])


def test_trend_and_season_are_extrapolated():
    time, y = seasonal_series()
    model = NKNForecaster(restarts=3, random_state=0).fit(time[:48], y[:48])
    assert np.abs(model.predict(time[48:]) - y[48:]).max() < 0.3
    assert model.score(time[48:], y[48:]) > 0.98


def test_units_do_not_matter():
    time, y = seasonal_series()
    first = forecaster().fit(time[:60], y[:60])
    second = forecaster().fit(1900 + time[:60] / 12, 1e6 * y[:60] - 5e6)
    mean, std = first.predict(time[60:], return_std=True)
    got = second.predict(1900 + time[60:] / 12, return_std=True)
    np.testing.assert_allclose(got[0], 1e6 * mean - 5e6, rtol=1e-2)
    np.testing.assert_allclose(got[1], 1e6 * std, rtol=0.2)


def test_mixture_moments_band_and_density_agree(fitted):
    x = np.array([66.0])
    (mean,), (std,) = fitted.predict(x, return_std=True)

    members = fitted.result_.members
    scaled = torch.tensor([[(66.0 - fitted.x_offset_) / fitted.x_scale_]])
    parts = [fitted.result_.member_prediction(number, scaled) for number in members]
    grids = [m.item() + v.sqrt().item() * np.linspace(-10, 10, 801) for m, v in parts]
    values = fitted.y_offset_ + fitted.y_scale_ * np.sort(np.concatenate(grids))
    density = np.exp(fitted.log_predictive_density(np.repeat(x, values.size), values))
    assert trapezoid(density, values) == pytest.approx(1, rel=1e-4)
    assert trapezoid(values * density, values) == pytest.approx(mean, abs=1e-3 * std)
    variance = trapezoid((values - mean) ** 2 * density, values)
    assert variance == pytest.approx(std**2, rel=1e-3)
    lower, upper = (end[0] for end in fitted.predict_interval(x, level=0.9))
    cumulative = cumulative_trapezoid(density, values, initial=0)
    ends = np.interp([lower, upper], values, cumulative)
    np.testing.assert_allclose(ends, [0.05, 0.95], atol=1e-3)


def test_single_restart_is_gaussian_with_the_gps_moments(fitted):
    single = deepcopy(fitted).set_params(average=False)
    x, y = np.array([61.0, 70.0]), np.array([15.0, 16.0])
    mean, std = single.predict(x, return_std=True)
    scaled = torch.tensor((x - single.x_offset_) / single.x_scale_).unsqueeze(-1)
    with torch.no_grad():
        predictive = single.model_.likelihood(single.model_(scaled))
    expected = single.y_offset_ + single.y_scale_ * predictive.mean.numpy()
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(std, single.y_scale_ * predictive.stddev.numpy())
    lower, upper = single.predict_interval(x)
    np.testing.assert_allclose(upper - lower, 2 * norm.ppf(0.975) * std)
    np.testing.assert_allclose(single.log_predictive_density(x, y), norm.logpdf(y, mean, std))


def test_log_targets_give_log_normal_forecasts():
    time, y = seasonal_series()
    logged = forecaster(log_targets=True).fit(time[:60], np.exp(y[:60] / 5))
    plain = forecaster().fit(time[:60], y[:60] / 5)
    x = time[60:64]
    # the same but for the path of the training, whose data differ by rounding
    logs = np.log(logged.predict_interval(x))
    np.testing.assert_allclose(logs, plain.predict_interval(x), atol=0.01)
    # what is said is that of one log-normal
    mean, std = logs.mean(0), np.diff(logs, axis=0)[0] / (2 * norm.ppf(0.975))
    got_mean, got_std = logged.predict(x, return_std=True)
    np.testing.assert_allclose(got_mean, np.exp(mean + std**2 / 2), rtol=1e-6)
    np.testing.assert_allclose(got_std, got_mean * np.sqrt(np.expm1(std**2)), rtol=1e-5)
    target = got_mean * 1.01
    expected = norm.logpdf(np.log(target), mean, std) - np.log(target)
    np.testing.assert_allclose(logged.log_predictive_density(x, target), expected, rtol=1e-6)
    assert logged.log_predictive_density(x[:1], [-1.0])[0] == -np.inf


def test_very_wide_log_normals_have_infinite_moments_and_no_warning():
    time, y = seasonal_series(40)
    model = forecaster(log_targets=True, restarts=1).fit(time, np.exp(200 * np.cos(y)))
    mean, std = model.predict(time + 1e4, return_std=True)
    assert not np.isnan(mean).any() and not np.isnan(std).any()


def test_dates_equal_numbers_of_days():
    dates = pd.date_range("2000-01-01", periods=60, freq="W")
    y = seasonal_series(60)[1]
    days = (dates - dates[0]).days.to_numpy(dtype=float)
    by_date = forecaster().fit(dates, y).predict(dates[-3:] + pd.Timedelta("28D"))
    by_number = forecaster().fit(days, y).predict(days[-3:] + 28)
    np.testing.assert_allclose(by_date, by_number, rtol=1e-3)


@pytest.mark.parametrize(
    "convert",
    [
        lambda dates: dates.tz_localize("Europe/Berlin"),
        lambda dates: pd.Series(dates.tz_localize("UTC")),
        lambda dates: dates.to_period("D"),
        lambda dates: pd.Series(dates.to_period("D")),
        list,
        lambda dates: list(dates.date),
        lambda dates: dates.to_numpy().astype("datetime64[s]"),
    ],
)
def test_dates_of_every_kind(convert):
    dates = pd.date_range("2000-01-01", periods=40, freq="W")
    y = seasonal_series(40)[1]
    reference = forecaster().fit(dates, y).predict(dates)
    np.testing.assert_allclose(
        forecaster().fit(convert(dates), y).predict(convert(dates)), reference, atol=0.05
    )


def test_durations_are_days_whatever_their_unit():
    y = seasonal_series(40)[1]
    days = np.arange(40).astype("timedelta64[D]")
    model = forecaster().fit(days, y)
    expected = model.predict(np.arange(40.0))
    np.testing.assert_allclose(model.predict(days.astype("timedelta64[ns]")), expected)


def test_time_of_another_kind_is_refused(fitted):
    with pytest.raises(TypeError, match="fitted over numbers, got dates"):
        fitted.predict(pd.date_range("2000-01-01", periods=3))


def test_pandas_columns_lists_and_order_of_rows():
    time, y = seasonal_series(40)
    frame = pd.DataFrame({"t": time.astype(int), "y": y})
    reference = forecaster().fit(time, y).predict([41.0])
    np.testing.assert_allclose(forecaster().fit(frame[["t"]], frame["y"]).predict([41]), reference)
    np.testing.assert_allclose(forecaster().fit(list(time), list(y)).predict([41]), reference)
    mixed = np.random.default_rng(0).permutation(40)
    np.testing.assert_allclose(
        forecaster().fit(time[mixed], y[mixed]).predict([41]), reference, rtol=1e-2
    )


def test_irregular_and_repeated_times():
    rng = np.random.default_rng(0)
    time = np.sort(np.concatenate([rng.uniform(0, 60, 70), [10.0, 10.0, 10.0]]))
    y = np.sin(2 * np.pi * time / 12) + 0.1 * rng.standard_normal(time.size)
    mean, std = forecaster(restarts=3).fit(time, y).predict([10.0, 63.0], return_std=True)
    assert np.abs(mean - np.sin(2 * np.pi * np.array([10.0, 63.0]) / 12)).max() < 0.4
    assert (std > 0.05).all()


@pytest.mark.parametrize("n", [3, 4, 8])
def test_tiny_series_get_finite_forecasts(n):
    time, y = seasonal_series(n)
    mean, std = forecaster().fit(time, y).predict(time + n, return_std=True)
    assert np.isfinite(mean).all() and (std > 0).all()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_extreme_units(scale):
    time, y = seasonal_series(40)
    mean = forecaster().fit(scale * time, scale * y).predict(scale * time)
    np.testing.assert_allclose(mean / scale, y, atol=1.0)


def test_own_network_is_used_and_not_changed():
    time, y = seasonal_series(40)
    network = NeuralKernelNetwork([RBFKernel(), LinearKernel()], [Linear(2, 1)])
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = forecaster(structure=network).fit(time, y)
    assert len(model.model_.covar_module.primitives) == 2
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_maximum_likelihood_has_no_priors():
    time, y = seasonal_series(40)
    assert not list(forecaster(priors=False).fit(time, y).model_.named_priors())
    assert list(forecaster().fit(time, y).model_.named_priors())


TIME, SERIES = seasonal_series(10)


@pytest.mark.parametrize(
    ("x", "y", "error", "match"),
    [
        (TIME, np.where(TIME == 4, np.nan, SERIES), ValueError, "y contains 1 NaN.*position 4"),
        (np.where(TIME == 2, np.inf, TIME), SERIES, ValueError, "x contains 1 NaN or infinite"),
        (TIME[:2], SERIES[:2], ValueError, "at least 3 points, got 2"),
        (TIME, SERIES[:9], ValueError, "x has 10 points and y has 9"),
        (TIME, np.full(10, 7.0), ValueError, r"constant \(7.0\)"),
        (np.ones(10), SERIES, ValueError, "same time, 1.0"),
        (np.ones((10, 2)), SERIES, ValueError, r"one column, got shape \(10, 2\)"),
        (["a"] * 10, SERIES, TypeError, "x must hold numbers or dates"),
        (TIME, ["a"] * 10, TypeError, "y must hold numbers"),
        (TIME, SERIES + 1j, TypeError, "complex"),
        (TIME, np.ma.masked_array(SERIES, TIME == 4), ValueError, "y contains 1 NaN"),
        (TIME, 1e200 * SERIES, ValueError, "too large or too small"),
        (TIME + 1e12 * (TIME > 4), SERIES, ValueError, "no structure can be resolved"),
        (np.array(["NaT"] * 10, "datetime64[D]"), SERIES, ValueError, "10 missing dates"),
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
        ({"temperature": 0.0}, ValueError, "got 0.0"),
        ({"log_targets": True}, ValueError, "got -1.0"),
        ({"criterion": "aic"}, ValueError, "got 'aic'"),
    ],
)
def test_bad_options_are_named(options, error, match):
    with pytest.raises(error, match=match):
        forecaster(**options).fit(TIME, np.where(TIME == 4, -1.0, SERIES))


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_bad_level_is_named(fitted, level):
    with pytest.raises(ValueError, match=f"got {level}"):
        fitted.predict_interval([1.0], level=level)


def test_lengths_of_a_density_must_agree(fitted):
    with pytest.raises(ValueError, match="x has 2 points and y has 1"):
        fitted.log_predictive_density([1.0, 2.0], [1.0])


@pytest.mark.filterwarnings("ignore:.*one_d_array|Can't test estimator|.*2darray.*")
def test_scikit_learns_own_checks():
    """Most of them need two-dimensional inputs and skip an estimator whose tags say otherwise."""
    check_estimator(forecaster(restarts=1, recipe=Recipe(5, lbfgs_iterations=2)), on_skip=None)
