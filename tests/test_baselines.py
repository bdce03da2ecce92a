import numpy as np
import pytest

from gpytorch_nkn.baselines import seasonal_naive_forecast


def seasonal(n, period=12, noise=0.1):
    x = np.arange(float(n))
    return x, np.sin(2 * np.pi * x / period) + noise * np.random.default_rng(0).standard_normal(n)


def test_seasonal_naive_is_the_textbook_rule():
    x, y = seasonal(60)
    forecast = seasonal_naive_forecast(x, y, np.arange(60.0, 90.0), seasons=iter([7, 12, 31]))
    np.testing.assert_allclose(forecast.mean(), np.tile(y[-12:], 3)[:30])
    sigma = np.sqrt(np.mean((y[12:] - y[:-12]) ** 2))
    cycles = np.repeat([1, 2, 3], 12)[:30]
    np.testing.assert_allclose(forecast.std(), sigma * np.sqrt(cycles))


@pytest.mark.parametrize("season", [0.0, -3.0, np.nan])
def test_seasons_must_be_positive(season):
    with pytest.raises(ValueError, match="Each of seasons must be"):
        seasonal_naive_forecast(*seasonal(20), [20.0], seasons=[season])


def test_seasonal_naive_looks_back_over_gaps_and_repeats_in_any_unit():
    x, y = seasonal(72, noise=0.0)
    x, y = np.append(x, 71), np.append(y, y[71])
    keep = np.ones(73, dtype=bool)
    keep[[5, 17, 40]] = False
    new = 1990 + np.arange(72, 84) / 12
    forecast = seasonal_naive_forecast(1990 + x[keep] / 12, 100 * y[keep], new, seasons=[1.0])
    np.testing.assert_allclose(forecast.mean(), 100 * y[60:72], atol=1e-6)


@pytest.mark.parametrize("seasons", [[], [51]])
def test_without_a_season_the_last_value_is_repeated_and_the_spread_grows(seasons):
    x = np.arange(100.0)
    y = np.random.default_rng(0).standard_normal(100).cumsum()
    forecast = seasonal_naive_forecast(x, y, np.array([100.0, 103.0]), seasons=seasons)
    np.testing.assert_allclose(forecast.mean(), y[-1])
    sigma = np.sqrt(np.mean(np.diff(y) ** 2))
    np.testing.assert_allclose(forecast.std(), [sigma, 2 * sigma])


@pytest.mark.parametrize(
    ("y", "new", "words"), [([1.0, 2.0], [3.0], "vectors"), ([1.0, 2.0, np.nan], [3.0], "finite")]
)
def test_bad_input_is_rejected(y, new, words):
    with pytest.raises(ValueError, match=words):
        seasonal_naive_forecast(np.arange(3.0), y, new)
