import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import RBFKernel

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.estimators.series.candidates import QUALITIES
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear

QUICK = {"recipe": Recipe(adam_steps=0, lbfgs_iterations=15)}
MONTHS = pd.date_range("2000-01-01", periods=132, freq="MS")
PAST, AHEAD = slice(120), slice(120, 132)


def forecaster(**options):
    """With one candidate: effects are the same for every transform."""
    options = {"quality": "fast", "transform": "identity", "outliers": "keep", **QUICK, **options}
    return NKNForecaster(**{"random_state": 0, **options})


def wandering(seed=0):
    """A random walk with a season."""
    rng = np.random.default_rng(seed)
    months = np.arange(len(MONTHS))
    return 50 + (0.3 * rng.standard_normal(len(months))).cumsum() + np.sin(np.pi * months / 6)


def known(seed=1):
    rng = np.random.default_rng(seed)
    months = np.arange(len(MONTHS))
    return pd.DataFrame(
        {
            "price": rng.standard_normal(len(months)),
            "warmth": 12 + 5 * rng.standard_normal(len(months)),
            "law": (months >= 70).astype(int),
        },
        MONTHS,
    )


@pytest.fixture(scope="module", autouse=True)
def _one_structure():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(QUALITIES, "fast", QUALITIES["fast"][:1])
        yield


@pytest.fixture(scope="module")
def data():
    frame = known()
    effect = frame["price"] + ((frame["warmth"] - 12) / 5) ** 2 - 4 * frame["law"]
    return frame, pd.Series(wandering() + effect.to_numpy(), MONTHS)


@pytest.fixture(scope="module")
def fitted(data):
    return forecaster().fit(data[1][PAST], covariates=data[0])


def error(model, y, **options):
    return np.abs(model.predict(y.index[AHEAD], **options) - y[AHEAD]).mean()


def test_effects_lower_the_error_and_narrow_the_interval(data, fitted):
    frame, y = data
    alone = forecaster().fit(y[PAST])
    assert error(fitted, y, covariates=frame) < 0.75 * error(alone, y)
    ends = fitted.predict_interval(y.index[AHEAD], covariates=frame)
    ends_alone = alone.predict_interval(y.index[AHEAD])
    assert np.subtract(*ends[::-1]).mean() < 0.5 * np.subtract(*ends_alone[::-1]).mean()
    assert ((y[AHEAD] > ends[0]) & (y[AHEAD] < ends[1])).mean() > 0.7


@pytest.mark.parametrize("transform", ["identity", "log"])
def test_a_sudden_return_to_an_early_value_has_its_whole_effect(transform):
    rng = np.random.default_rng(0)
    price = np.linspace(1, 3, 60) + 0.02 * rng.standard_normal(60)
    forward, inverse = {"identity": (float, float), "log": (np.exp, np.log)}[transform]
    values = [forward(3 + 2 * p) for p in price + 0.02 * rng.standard_normal(60)]
    made = forecaster(transform=transform).fit(
        pd.Series(values, MONTHS[:60]), covariates=price[:, None]
    )
    forecast = made.forecast(1, level=95, covariates=[[1.5]]).iloc[0]
    assert abs(inverse(forecast["median"]) - 6) < 0.3
    assert forward(5.6) < forecast["lo-95"] < forward(6) < forecast["hi-95"] < forward(6.4)


def test_every_method_says_the_same(data, fitted):
    frame, y = data
    later = frame[AHEAD]
    table = fitted.forecast(12, level=80, covariates=later)
    assert table.index.equals(MONTHS[AHEAD])
    np.testing.assert_array_equal(table["median"], fitted.predict(MONTHS[AHEAD], covariates=frame))
    np.testing.assert_allclose(  # (1 - 0.8) / 2 is not 0.1
        table[["lo-80", "hi-80"]],
        fitted.predict_quantiles(
            MONTHS[AHEAD], [0.1, 0.9], covariates=later[["law", "warmth", "price"]]
        ),
        rtol=1e-9,
    )
    paths = fitted.sample_paths(800, covariates=later.to_numpy())
    np.testing.assert_allclose(
        paths.median(axis=1), table["median"], atol=0.3 * (table["hi-80"] - table["lo-80"]).mean()
    )
    density = fitted.log_predictive_density(MONTHS[AHEAD], y[AHEAD], covariates=later)
    wrong = fitted.log_predictive_density(
        MONTHS[AHEAD], y[AHEAD], covariates=later[::-1].to_numpy()
    )
    assert density.mean() > wrong.mean()


def test_an_update_forecasts_from_all_rows(data):
    frame, y = data
    whole = forecaster().fit(y[:100], covariates=frame)
    parts = deepcopy(whole)
    whole.update(y[90:110], covariates=frame[90:110])
    parts.update(y[100:105], covariates=frame).update(y[105:110], covariates=frame)
    np.testing.assert_allclose(
        whole.predict(MONTHS[AHEAD], covariates=frame),
        parts.predict(MONTHS[AHEAD], covariates=frame),
    )
    np.testing.assert_array_equal(whole.observed_covariates_, frame[:110])


def test_windows_know_their_covariates(data):
    frame, y = data
    options = {"horizon": 6, "windows": 2, "covariates": frame}
    found = forecaster().cross_validation(y, **options)
    assert np.abs(found["median"] - found["y"]).mean() < 1.2
    first = forecaster(horizon=6).fit(y[:120], covariates=frame)
    np.testing.assert_allclose(
        found["median"][:6], first.predict(MONTHS[120:126], covariates=frame), rtol=1e-6
    )


def test_one_candidate_does_without_covariates():
    y, noise = pd.Series(wandering(), MONTHS)[:60], known()[["price"]]
    short = {"quality": "default", "recipe": Recipe(adam_steps=0, lbfgs_iterations=10)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = forecaster(**short).fit(y, covariates=noise)
    assert "no covariates" in set(model.scores_["structure"])
    assert "no covariates" not in set(forecaster(**short).fit(y).scores_["structure"])


def test_learned_networks_take_covariates(data):
    frame, y = data
    y = y + 5 * frame["price"]
    short = {"restarts": 1}
    model = forecaster(structure="time_series", **short).fit(y[PAST], covariates=frame)
    alone = forecaster(structure="time_series", **short).fit(y[PAST])
    assert error(model, y, covariates=frame) < 0.7 * error(alone, y)
    network = NeuralKernelNetwork([RBFKernel(ard_num_dims=4)], [Linear(1, 1)])
    model = forecaster(structure=network, **short).fit(y[PAST], covariates=frame)
    assert np.isfinite(error(model, y, covariates=frame))
    with pytest.raises(ValueError, match=r"over 3 input columns \(time and covariates\)"):
        model.fit(y[PAST], covariates=frame[["price", "law"]])


def test_what_is_lacking_is_named(data, fitted):
    frame, y = data
    with pytest.raises(ValueError, match=r"had 3 covariates \(price, warmth, law\).*pass"):
        fitted.forecast(12)
    with pytest.raises(ValueError, match="price, warmth, law as in the fit, got covariate 1"):
        fitted.predict(MONTHS[AHEAD], covariates=frame.to_numpy()[AHEAD, :2])
    with pytest.raises(ValueError, match="at these times, too"):
        fitted.update(y[AHEAD])
    with pytest.raises(ValueError, match="1 of 13 dates have none, the first 2011-01-01"):
        fitted.forecast(13, covariates=frame)
    alone = forecaster().fit(y[PAST])
    with pytest.raises(ValueError, match="The fit had no covariates: pass them to fit"):
        alone.forecast(12, covariates=frame)
