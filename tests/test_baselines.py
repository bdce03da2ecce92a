import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from linear_operator.utils.errors import NotPSDError
from scipy.stats import norm

from gpytorch_nkn.baselines import (
    GaussianForecast,
    gp_forecast,
    rbf_forecast,
    regular_steps,
    season_length,
    seasonal_naive_forecast,
)


def seasonal(n, period=12, noise=0.1):
    x = np.arange(float(n))
    return x, np.sin(2 * np.pi * x / period) + noise * np.random.default_rng(0).standard_normal(n)


def test_bands_and_densities_are_those_of_the_normal():
    forecast = GaussianForecast(np.array([1.0, 2.0]), np.array([0.5, 3.0]))
    lower, upper = forecast.interval(0.9)
    np.testing.assert_allclose(norm.cdf(upper, [1, 2], [0.5, 3]), 0.95)
    np.testing.assert_allclose(norm.cdf(lower, [1, 2], [0.5, 3]), 0.05)
    expected = -np.log(3 * np.sqrt(2 * np.pi)) - 0.5 * (4 / 3) ** 2
    assert forecast.log_density(np.array([1.0, 6.0]))[1] == pytest.approx(expected)


def test_rbf_forecast_follows_a_smooth_function_in_its_own_units():
    x = np.linspace(1990, 2000, 60)
    y = 300 + 40 * np.sin(x)
    forecast = rbf_forecast(x, y, np.array([1995.03, 2000.1]), restarts=2)
    np.testing.assert_allclose(forecast.mean, 300 + 40 * np.sin([1995.03, 2000.1]), atol=0.2)
    assert forecast.std[1] > forecast.std[0] > 0


def test_gp_forecast_is_a_function_of_the_seed_and_leaves_the_random_state_alone():
    x, y = seasonal(30)
    before = torch.get_rng_state()
    first, again = (rbf_forecast(x, y, x[-3:] + 3, restarts=2, seed=4) for _ in range(2))
    np.testing.assert_array_equal(first.mean, again.mean)
    assert torch.equal(before, torch.get_rng_state())


def test_gp_forecast_passes_over_runs_that_break_down():
    class Fails(RBFKernel):
        def forward(self, x1, x2, **params):
            raise NotPSDError("no")

    x, y = seasonal(30)
    kernels = iter([Fails(), RBFKernel(), Fails()])
    forecast = gp_forecast(lambda *_: next(kernels), x, y, x[-3:] + 3, restarts=3)
    assert np.isfinite(forecast.mean).all()
    with pytest.raises(RuntimeError, match="None of 2 runs"):
        gp_forecast(lambda *_: Fails(), x, y, x, restarts=2)


def test_gp_forecast_refuses_bad_input():
    x, y = seasonal(30)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        rbf_forecast(x, y, x, restarts=0)
    with pytest.raises(ValueError, match=r"finite vectors .* shapes \(30,\) and \(29,\)"):
        rbf_forecast(x, y[1:], x)


def test_seasonal_naive_is_the_textbook_rule():
    x, y = seasonal(60)
    forecast = seasonal_naive_forecast(x, y, np.arange(60.0, 90.0))
    np.testing.assert_allclose(forecast.mean, np.tile(y[-12:], 3)[:30])
    sigma = np.sqrt(np.mean((y[12:] - y[:-12]) ** 2))
    cycles = np.repeat([1, 2, 3], 12)[:30]
    np.testing.assert_allclose(forecast.std, sigma * np.sqrt(cycles))


def test_seasonal_naive_looks_back_over_gaps_and_in_any_unit():
    x, y = seasonal(72, noise=0.0)
    keep = np.ones(72, dtype=bool)
    keep[[5, 17, 40]] = False
    years = 1990 + x / 12
    forecast = seasonal_naive_forecast(years[keep], 100 * y[keep], 1990 + np.arange(72, 84) / 12)
    np.testing.assert_allclose(forecast.mean, 100 * y[-12:], atol=1e-6)


def test_without_a_season_the_last_value_is_repeated_and_the_spread_grows():
    x = np.arange(100.0)
    y = np.random.default_rng(0).standard_normal(100).cumsum()
    forecast = seasonal_naive_forecast(x, y, np.array([100.0, 103.0]))
    np.testing.assert_allclose(forecast.mean, y[-1])
    sigma = np.sqrt(np.mean(np.diff(y) ** 2))
    np.testing.assert_allclose(forecast.std, [sigma, 2 * sigma])


def test_season_of_irregular_times_is_found():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 30, 300))
    y = np.sin(2 * np.pi * x / 1.7) + 0.1 * rng.standard_normal(300)
    assert season_length(x, y) == pytest.approx(1.7, rel=0.03)
    forecast = seasonal_naive_forecast(x, y, np.array([30.5]))
    assert forecast.mean == pytest.approx(np.sin(2 * np.pi * 30.5 / 1.7), abs=0.5)


@pytest.mark.parametrize("kind", ["white", "walk", "line", "short"])
def test_no_season_where_there_is_none(kind):
    rng = np.random.default_rng(0)
    series = {
        "white": rng.standard_normal(200),
        "walk": rng.standard_normal(200).cumsum(),
        "line": np.arange(50.0),
        "short": np.array([1.0, 2.0, 1.0, 2.0]),
    }[kind]
    assert season_length(np.arange(float(series.size)), series) is None


def test_steps_are_counted_over_gaps_and_months_of_unequal_length():
    start, step, index = regular_steps(np.array([1.0, 1.5, 1.5, 2.0, 3.5]))
    assert (start, step) == pytest.approx((1.0, 0.5)) and index.tolist() == [0, 1, 1, 2, 5]
    days = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) / 365
    _, step, index = regular_steps(days)
    assert step == pytest.approx(1 / 12, rel=0.01) and index.tolist() == list(range(13))
    assert regular_steps(np.array([0.0, 0.3, 2.0, 2.4, 5.9, 6.0]))[2] is None
