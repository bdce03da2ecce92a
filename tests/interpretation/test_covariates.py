import numpy as np
import pandas as pd
import pytest
import torch

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import decompose, effects, report

STEPS = Recipe(adam_steps=20, lbfgs_iterations=10)
MONTHS = pd.date_range("2010-01-01", periods=96, freq="MS")


@pytest.fixture(scope="module")
def known():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"law": np.arange(96) >= 50, "price": 5 + rng.standard_normal(96)}, MONTHS)


@pytest.fixture(scope="module")
def forecaster(known):
    season = np.sin(np.arange(96) * np.pi / 6)
    noise = 0.1 * np.random.default_rng(1).standard_normal(96)
    y = pd.Series(season + 2 * known["price"] - 3 * known["law"] + noise, MONTHS)
    model = NKNForecaster(quality="fast", transform="identity", random_state=0)
    return model.fit(y, covariates=known)


@pytest.fixture(scope="module")
def split(forecaster):
    return decompose(forecaster)


def process_mean(forecaster, times, covariates):
    """Mean of the first member, which a report is about."""
    rows = torch.as_tensor(forecaster.standardised_rows(times, covariates))
    with torch.no_grad():
        mean = forecaster.model_.eval()(rows).mean.numpy()
    return forecaster.y_offset_ + forecaster.y_scale_ * mean


def test_covariates_are_components_beside_time(split, forecaster, known):
    names = {component.name for component in split.components}
    assert {"effect of price", "effect of law", "cycle of 1.00 yr"} <= names
    # all components together are the process
    posterior = split.posterior((MONTHS[60:], known))
    np.testing.assert_allclose(
        posterior.total_mean, process_mean(forecaster, MONTHS[60:], known), rtol=1e-6
    )
    np.testing.assert_allclose(posterior.mean.sum(0), posterior.total_mean, rtol=1e-6)
    curves = {curve.label: curve for curve in split.curves()}
    assert curves["effect of law"].x.shape == (96,)
    assert np.diff(curves["effect of law"].mean)[49] == pytest.approx(-3, abs=0.5)


def test_effects_have_their_slopes_in_units_of_the_data(forecaster, known):
    found = effects(forecaster)
    assert found.names == ("time", "law", "price")
    by_name = {effect.label: effect for effect in found.main}
    assert set(by_name) == {"law", "price"}
    law, price = by_name["law"], by_name["price"]
    assert law.mean[-1] - law.mean[0] == pytest.approx(-3, abs=0.5)
    assert price.grid[0][[0, -1]] == pytest.approx([known.price.min(), known.price.max()])
    assert np.polyfit(price.grid[0], price.mean, 1)[0] == pytest.approx(2, abs=0.2)


def test_interactions_with_time_are_at_dates():
    price = np.random.default_rng(0).standard_normal(60)
    y = pd.Series(price * np.where(np.arange(60) < 30, -2, 2), MONTHS[:60])
    price = pd.DataFrame({"price": price}, y.index)
    model = NKNForecaster(quality="fast", recipe=STEPS, outliers="keep", random_state=0)
    (pair,) = effects(model.fit(y, covariates=price), samples=64).pairs
    assert pair.names == ("time", "price")
    assert pair.grid[0][[0, -1]].astype("datetime64[D]").tolist() == [
        day.date() for day in y.index[[0, -1]]
    ]


def test_a_report_names_the_covariates(forecaster):
    found = report(forecaster, progress=False)
    assert "As price goes from" in found.text and "effect of law" in found.text.lower()
    assert all("of the variance" in line for line in found.summary)  # effects have their own part
    assert found.forecast is None and all(section.curve for section in found.sections)


def test_a_report_goes_on_where_covariates_are_known(forecaster, known):
    ahead = pd.date_range("2018-01-01", periods=6, freq="MS")
    later = known.iloc[:6].set_axis(ahead)
    found = report(
        forecaster, future=(ahead, later), columns=["month", "law", "price"], progress=False
    )
    assert found.forecast.x.astype("datetime64[D]").tolist() == [day.date() for day in ahead]
    mean = process_mean(forecaster, ahead, later)
    np.testing.assert_allclose(found.forecast.mean, mean, rtol=1e-6)
    low, high = forecaster.predict_interval(ahead, covariates=later)
    np.testing.assert_allclose(found.forecast.upper - found.forecast.lower, high - low, rtol=0.2)
    assert found.units.names == ("month", "law", "price")
    with pytest.raises(ValueError, match="must come after the data, got 2010-01-01"):
        report(forecaster, future=(MONTHS[:3], known[:3]), progress=False)


def test_what_would_need_the_future_is_rejected(forecaster, split):
    with pytest.raises(ValueError, match=r"give future=\(times, covariates\) in place of horizon"):
        report(forecaster, horizon=1.0, progress=False)
    with pytest.raises(ValueError, match="horizon must be 0"):
        split.curves(1.0)
    with pytest.raises(TypeError, match=r"pair \(time, covariates\)"):
        split.posterior(MONTHS)
