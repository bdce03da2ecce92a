import math

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import LinearKernel, RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.interpretation import Report, report
from gpytorch_nkn.kernels import SpectralComponentKernel
from tests.interpretation.small_models import (
    COLUMNS,
    STEPS,
    columns_gp,
    forecaster,
    season,
    seasonal_gp,
)


def check(found):
    """Properties of all reports."""
    assert isinstance(found, Report) and str(found) == found.text
    if found.fit is not None:
        assert len(found.sections) == len(found.decomposition.components)
        total = sum(section.share for section in found.sections)
        assert total == pytest.approx(found.decomposition.explained[-1], abs=1e-6)
    for text in (found.text, *found.summary):
        for odd in ("nan", " inf", "e+0", "e-0", "None", "1 components", "  ("):
            assert odd not in text.split("The kernel, by shares")[0].split("Terms:")[0]
    for section in found.sections:
        words = " ".join(section.sentences)
        assert section.title[0].isupper() or section.title[0].isdigit()
        assert all(sentence.endswith(".") for sentence in section.sentences)
        assert ".." not in words
    return found


def test_fit_and_forecast_match_the_model():
    model = seasonal_gp()
    found = report(model, horizon=6.0)
    points = torch.as_tensor(found.forecast.x).unsqueeze(-1)
    assert found.forecast.x[0] > 47 and found.forecast.x[-1] == pytest.approx(53)
    with torch.no_grad():
        expected = model.likelihood(model(points))
    std = expected.variance.sqrt().numpy()
    mean = expected.mean.numpy()
    np.testing.assert_allclose(found.forecast.mean, mean, atol=1e-5)
    np.testing.assert_allclose(found.forecast.upper - mean, 1.959964 * std, rtol=1e-3)
    np.testing.assert_allclose(mean - found.forecast.lower, 1.959964 * std, rtol=1e-3)
    at = np.searchsorted(found.fit.x, found.x)
    np.testing.assert_allclose(found.fit.x[at], np.arange(48.0), atol=1e-12)
    parts = sum(section.curve.mean[at] for section in found.sections)
    np.testing.assert_allclose(parts, found.fit.mean[at], atol=1e-8)
    for section in found.sections:  # points: the component and what nothing explains
        leftover = section.curve.data[1] - section.curve.mean[at]
        np.testing.assert_allclose(leftover, found.y - found.fit.mean[at], atol=1e-8)


def test_a_forecaster_is_continued_by_its_own_predictions():
    made = forecaster(np.arange(40.0), season(40))
    found = check(report(made, horizon=8.0))
    mean, std = made.predict(found.forecast.x, return_std=True)
    np.testing.assert_allclose(found.forecast.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.forecast.upper, mean + 1.959964 * std, rtol=1e-5)
    np.testing.assert_allclose(found.y, season(40))


def test_logarithms_are_undone():
    made = forecaster(np.arange(40.0), np.exp(season(40) / 5), transform="log")
    found = check(report(made, x_unit="months", y_unit="kg"))
    np.testing.assert_allclose(found.y, np.exp(season(40) / 5))
    lower, upper = made.predict_interval(found.forecast.x)
    np.testing.assert_allclose(found.forecast.lower, lower, rtol=1e-4)
    np.testing.assert_allclose(found.forecast.upper, upper, rtol=1e-4)
    assert "of the variance of the logarithm of the targets" in found.summary[0]
    assert found.summary[0].endswith(" % of the level.")
    assert " % of the level" in " ".join(s for part in found.sections for s in part.sentences)
    (trend,) = [part for part in found.sections if "trend" in part.title]
    start = float(trend.sentences[0].split("from ")[1].split(" ")[0])
    assert start == pytest.approx(np.exp(season(40)[:12].mean() / 5), rel=0.2)
    endless = report(made, horizon=3000.0)  # one component
    assert np.isfinite(endless.forecast.upper).all()


DATES = {
    "dates": np.arange("2015-01", "2018-01", dtype="datetime64[M]"),
    "time zone": pd.date_range("2024-03-01", periods=36, freq="D", tz="Europe/Berlin"),
    "one day": pd.date_range("2024-01-01", periods=36, freq="20min"),
}


@pytest.mark.parametrize("name", DATES)
def test_dates(name):
    times = DATES[name]
    found = check(report(forecaster(times, season(36))))
    assert found.x.dtype.kind == found.forecast.x.dtype.kind == "M"
    zoneless = times.tz_localize(None) if getattr(times, "tz", None) is not None else times
    expected = np.asarray(zoneless).astype("datetime64[s]")  # days by the clock
    assert np.abs((found.x - expected) / np.timedelta64(1, "s")).max() <= 1
    assert found.units.x_unit == ("yr" if name == "dates" else "days")
    if name == "one day":
        assert "hours" in " ".join(s for section in found.sections for s in section.sentences)


def test_dates_have_their_own_unit():
    with pytest.raises(ValueError, match="x_unit is for times that are numbers, got 'weeks'"):
        report(forecaster(DATES["time zone"], season(36, 7)), x_unit="weeks")
    weeks = pd.date_range("2020-01-06", periods=30, freq="7D")
    model = NKNRegressor("rbf", recipe=STEPS, random_state=0).fit(
        pd.DataFrame({"when": weeks}), 0.7 * np.arange(30.0)
    )
    found = report(model, horizon=pd.Timedelta(days=10))
    assert found.x.astype("datetime64[D]").tolist() == [day.date() for day in weeks]
    assert str(found.forecast.x[-1].astype("datetime64[D]")) == "2020-08-06"
    assert " days)" in found.text


AWKWARD = {
    "3 points, nearly constant": ([0.0, 1.0, 2.0], [101_325.001, 101_325.003, 101_325.002]),
    "repeated times, unsorted": (np.repeat(np.arange(10.0), 3)[::-1], season(30)),
    "a gap": (np.r_[np.arange(15.0), np.arange(500.0, 515.0)], season(30)),
}


@pytest.mark.usefixtures("few_iterations")
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_series(name):
    times, values = AWKWARD[name]
    found = check(report(forecaster(times, values), x_unit="h", y_unit="kg"))
    order = np.argsort(times, kind="stable")
    np.testing.assert_allclose(found.x, np.asarray(times)[order], atol=1e-9 * np.max(times))
    np.testing.assert_allclose(found.y, np.asarray(values)[order], rtol=1e-9)
    for section in found.sections:
        assert np.isfinite(section.curve.mean).all() and np.isfinite(section.curve.upper).all()
    if name.startswith("3 points"):
        assert found.to_html().startswith("<!DOCTYPE html>")


@pytest.fixture(scope="module")
def columns():
    return check(report(columns_gp(), columns=COLUMNS, y_name="effect", y_unit="mg"))


def test_several_columns_have_effects(columns):
    assert columns.fit is columns.forecast is None
    assert columns.effects.names == COLUMNS
    assert columns.x.shape == (30, 3) and columns.x[:, 0].max() > 5  # in the user's units
    np.testing.assert_allclose(columns.y, columns_gp().outcome_transform.untransform(
        columns_gp().train_targets.unsqueeze(-1))[0][:, 0].numpy())  # fmt: skip
    assert columns.sections == ()
    (dose,) = [line for line in columns.summary if ". As dose goes from " in line]
    # the targets hold 5 dose, from nearly 0 to 10
    assert 30 < float(dose.split("rises by ")[1].split(" mg")[0]) < 60


@pytest.mark.parametrize("case", ["float32", "fixed noise", "no words"])
def test_other_models(case):
    if case == "float32":
        model = seasonal_gp().float()
    elif case == "fixed noise":
        model = columns_gp(2, noise=4.0)
        assert isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
    else:  # no words for spectral components, whose name stands for them
        wave = SpectralComponentKernel(ard_num_dims=2, active_dims=(0, 1))
        model = columns_gp(kernel=wave * RBFKernel(active_dims=(0, 1)) + LinearKernel())
    found = check(report(model))
    if case == "fixed noise":
        assert found.summary[0].endswith("noise has a standard deviation of 2.00.")


def test_equal_reports_give_equal_pages(tmp_path, few_iterations):
    model = columns_gp(2, kernel=RBFKernel(ard_num_dims=2))
    deep = tmp_path / "a" / "new" / "report.html"  # folders are made
    assert report(model).save(str(deep)) == deep
    found = report(model)
    assert deep.read_text(encoding="utf-8") == found.to_html()
    with pytest.raises(ValueError, match="path must end in .html, got 'x.json'"):
        found.save(tmp_path / "x.json")


WRONG = {
    "no horizon": ({"horizon": 0}, ValueError, "horizon must be positive .*got 0"),
    "NaN": ({"horizon": math.nan}, ValueError, "horizon must be finite .*got nan"),
    "days": ({"horizon": np.timedelta64(3, "D")}, TypeError, "a number like the times, got 3 days"),
    "huge": ({"horizon": 1e9}, ValueError, "at most 100 times the span of the data, 47, got 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options(name):
    options, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        report(seasonal_gp(), **options)


def test_few_points_are_rejected():
    with pytest.raises(ValueError, match="at least 3 points, got 2"):
        report(SingleTaskGP(torch.rand(2, 1), torch.tensor([[0.0], [1.0]])))
