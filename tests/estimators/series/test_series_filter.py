"""Forecasts by the Kalman filter are those of the dense Gaussian process."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel

from gpytorch_nkn import NKNForecaster
from gpytorch_nkn.estimators.series import member as member_module
from gpytorch_nkn.estimators.series.candidates import SeriesGP
from gpytorch_nkn.estimators.series.markov import NotMarkovError, markov_processes
from gpytorch_nkn.estimators.series.series_filter import SeriesFilter
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.linalg import StateSpace

COUNT, STEP, NOISE = 300, 1 / 12, 0.02
X = STEP * torch.arange(1 - COUNT, 31).unsqueeze(-1)  # the last observation at zero
START = float(X[0, 0]) - STEP


def network(*terms):
    return NeuralKernelNetwork.forecast(
        origin=START, seasons=[1.0], cycles=[3.3], terms=terms, priors=False
    )


# How far forecasts may be from the dense ones, by their deviation: rounding, or what is left out.
TERMS = {
    ("walk",): 1e-5,
    ("trend",): 1e-5,
    ("damped",): 1e-5,
    ("line",): 1e-5,
    ("rough",): 1e-5,
    ("cycle",): 1e-2,
    ("shifting_season",): 0.05,
    ("smooth",): 0.1,
    ("season",): 0.2,
    ("walk", "trend", "line", "smooth", "rough", "season", "shifting_season", "cycle"): 0.05,
}


@pytest.mark.parametrize(
    ("terms", "tolerance"), TERMS.items(), ids=lambda v: "+".join(v) if isinstance(v, tuple) else ""
)
@torch.no_grad()
def test_each_process_is_that_of_its_kernel(terms, tolerance):
    kernel = network(*terms)
    covariance = kernel(X).to_dense() + NOISE * torch.eye(len(X))
    y = (torch.linalg.cholesky(covariance) @ torch.randn(len(X)))[:COUNT]
    across = covariance[COUNT:, :COUNT]
    gain = torch.linalg.solve(covariance[:COUNT, :COUNT], across.T).T
    expected, spread = gain @ y, covariance[COUNT:, COUNT:] - gain @ across.T
    space = StateSpace(markov_processes(kernel, START, float(X[-1, 0]) - START, NOISE), NOISE, STEP)
    space.observe(y.numpy())
    mean, variance = space.forecast(np.arange(1, 31))
    deviations = spread.diagonal().sqrt().numpy()
    assert np.abs((mean - expected.numpy()) / deviations).max() < tolerance
    found = variance + NOISE * np.eye(30)
    assert np.abs((found - spread.numpy()) / np.outer(deviations, deviations)).max() < tolerance


def test_what_has_no_filter_is_told():
    other = NeuralKernelNetwork.time_series()
    with pytest.raises(NotMarkovError, match="products and their sum"):
        markov_processes(other, START, 30.0, NOISE)
    with pytest.raises(NotMarkovError, match="starts at"):
        markov_processes(network("walk"), START + 1, 30.0, NOISE)
    kernel = network("walk")
    kernel.primitives[0] = PeriodicKernel()
    with pytest.raises(NotMarkovError, match="PeriodicKernel"):
        markov_processes(kernel, START, 30.0, NOISE)
    with pytest.raises(NotMarkovError, match="network"):
        markov_processes(RBFKernel(), START, 30.0, NOISE)


def test_times_must_be_a_grid():
    x, y = X[:COUNT], torch.randn(COUNT)
    model = SeriesGP(x, y, network("walk", "season"), priors=False, line=False)
    assert SeriesFilter.of(model, x, y, STEP, np.inf, moves=True) is not None
    assert SeriesFilter.of(model, x, y, STEP, 0.0, moves=True) is None  # no time
    uneven = x.clone()
    uneven[7] += 0.3 * STEP
    assert SeriesFilter.of(model, uneven, y, STEP, np.inf, moves=True) is None
    twice = x[[*range(9), 8, *range(9, COUNT - 1)]]
    assert SeriesFilter.of(model, twice, y, STEP, np.inf, moves=True) is None
    made = SeriesFilter.of(model, x[:-5], y[:-5], STEP, np.inf, moves=True)
    assert made.covers(X[-20:]) and not made.covers(X[-40:])
    assert not made.covers(X[-20:] + 0.4 * STEP)


@pytest.fixture(scope="module")
def long_series():
    """A season about a walk of more observations than a dense forecast depends on, with gaps."""
    rng = np.random.default_rng(0)
    time = np.arange(400.0)
    values = 50 + 3 * np.sin(2 * np.pi * time / 12) + 0.3 * rng.standard_normal(400).cumsum()
    values[100:110] = np.nan
    return pd.Series(values, pd.period_range("1980-01", periods=400, freq="M"))


def fitted(series, monkeypatch, conditioned):
    with monkeypatch.context() as patch:
        patch.setattr(member_module, "CONDITIONED", conditioned)
        patch.setattr("gpytorch_nkn.estimators.series.series._ROWS", 150)
        patch.setattr("gpytorch_nkn.estimators.series.series._MAX_ROWS", 150)
        options = {"quality": "fast", "outliers": "keep", "random_state": 0}
        recipe = Recipe(adam_steps=0, lbfgs_iterations=10)
        return NKNForecaster(recipe=recipe, **options).fit(series)


def test_forecasters_depend_on_all_of_a_long_series(long_series, monkeypatch):
    dense, filtered = (fitted(long_series, monkeypatch, rows) for rows in (400, 200))
    assert all(member._filter is None for member in dense.members_)
    assert all(member._filter is not None for member in filtered.members_)
    expected, found = (made.forecast(24) for made in (dense, filtered))
    width = (expected["hi-95"] - expected["lo-95"]).to_numpy()
    assert (np.abs(found - expected).to_numpy() < 0.05 * width[:, None]).all()
    paths = filtered.sample_paths(500, horizon=24, random_state=1)
    assert list(paths.index) == list(found.index)
    assert (np.abs(paths.median(axis=1) - found["median"]) < 0.15 * width).all()
    for copied in (copy.deepcopy(filtered), pickle.loads(pickle.dumps(filtered))):
        pd.testing.assert_frame_equal(copied.forecast(24), found)
    # past times and times off the grid are those of the last rows
    inside = filtered.predict(long_series.index[-3:])
    assert np.abs(inside - long_series[-3:]).max() < 3


def test_new_observations_are_taken_in(long_series, monkeypatch):
    made = fitted(long_series[:-24], monkeypatch, 200)
    before = made.forecast(24)
    monkeypatch.setattr(member_module, "CONDITIONED", 200)
    made.update(long_series[-24:])
    after = made.forecast(24)
    assert after.index[0] == long_series.index[-1] + 1
    assert not np.allclose(before["median"], after["median"])
    assert all(member._filter is not None for member in made.members_)
