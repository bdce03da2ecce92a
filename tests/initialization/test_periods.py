import numpy as np
import pytest

from gpytorch_nkn.initialization import periodogram_peaks


def series(rng, n=200, span=20.0, irregular=True):
    x = np.sort(rng.uniform(0, span, n)) if irregular else np.linspace(0, span, n)
    y = 0.5 * x**2 + np.sin(2 * np.pi * x / 1.7) + 0.1 * rng.standard_normal(n)
    return x, y


@pytest.mark.parametrize("irregular", [True, False])
@pytest.mark.parametrize("trend", ["cubic", "smooth"])
def test_the_period_of_a_trending_series_is_found(irregular, trend):
    x, y = series(np.random.default_rng(0), irregular=irregular)
    periods, shares = periodogram_peaks(x, y, trend=trend)
    assert periods[0] == pytest.approx(1.7, rel=0.02)
    assert shares[0] > 0.8
    assert (np.diff(shares) <= 0).all()


def test_share_is_that_of_a_least_squares_sinusoid():
    x, y = series(np.random.default_rng(1))
    period, share = (values[0] for values in periodogram_peaks(x, y))
    residual = y - np.polynomial.Polynomial.fit(x, y, 3)(x)
    residual -= residual.mean()
    waves = np.stack([np.cos(2 * np.pi * x / period), np.sin(2 * np.pi * x / period)], 1)
    fitted = waves @ np.linalg.lstsq(waves, residual, rcond=None)[0]
    assert share == pytest.approx(1 - ((residual - fitted) ** 2).sum() / (residual**2).sum())


def test_units_and_order_do_not_matter():
    rng = np.random.default_rng(2)
    x, y = series(rng)
    mixed = rng.permutation(x.size)
    periods = periodogram_peaks(x, y)[0]
    np.testing.assert_allclose(
        periodogram_peaks(365 * x[mixed], -3 * y[mixed] + 7)[0], 365 * periods
    )


def test_local_trend_uncovers_a_season_behind_a_large_slow_cycle():
    x = np.linspace(0, 20, 240)
    y = 1.4 * np.sin(2 * np.pi * x / 9) + np.sin(2 * np.pi * x)
    assert periodogram_peaks(x, y, trend="cubic")[0][0] > 5
    assert periodogram_peaks(x, y, trend="smooth")[0][0] == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("x", [np.arange(7.0), np.repeat(np.arange(5.0), 4)])
def test_too_few_different_inputs_give_no_period(x):
    assert periodogram_peaks(x, np.sin(x))[0].size == 0


@pytest.mark.parametrize("y", [2 * np.arange(50.0) + 1, 1e9 + np.arange(50.0), np.full(50, 5.0)])
def test_a_straight_line_gives_no_period(y):
    assert periodogram_peaks(np.arange(50.0), y)[0].size == 0


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (np.arange(9.0), np.arange(8.0), r"got shapes \(9,\) and \(8,\)"),
        (np.arange(9.0), np.full(9, np.nan), "finite vectors"),
    ],
)
def test_bad_input_is_named(x, y, match):
    with pytest.raises(ValueError, match=match):
        periodogram_peaks(x, y)[0]
