import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy.special import logsumexp
from scipy.stats import nbinom, norm, poisson
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance, r2_score
from sklearn.model_selection import cross_validate

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import nkn_regressor as module
from gpytorch_nkn.estimators.nkn.counts import CountMixture
from gpytorch_nkn.fit import Recipe, SizeWarning
from gpytorch_nkn.interpretation import effects, report
from tests.global_state import unchanged

SHORT = Recipe(adam_steps=0, lbfgs_iterations=8)
OPTIONS = {"restarts": 1, "recipe": SHORT, "random_state": 0, "progress": False}
COUNTS = pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])


def counter(likelihood="poisson", structure="rbf", **options):
    return NKNRegressor(structure, likelihood=likelihood, **OPTIONS | options)


def drawn(n, seed=0):
    """Rows, exposures, counts and their mean rates."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.uniform(-2, 2, size=(n, 2)), rng.uniform(0.2, 3, n)
    rate = np.exp(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1])
    return X, exposure, rng.poisson(exposure * rate).astype(float), rate


@pytest.mark.parametrize(
    ("mean", "std", "excess"), [(-3.0, 0.5, 1.5), (1.0, 0.1, 0.0), (3.0, 1.0, 0.0), (5.0, 0.6, 1.5)]
)
def test_mixture_is_the_sum_over_latent_values(mean, std, excess):
    weights, means, stds = np.array([0.3, 0.7]), np.array([mean, mean + 0.3]), [std, 0.7 * std]
    counts = np.array([0.0, 1.0, 2.0, 7.0, 40.0, 200.0])
    scores = np.linspace(-9, 9, 4001)[:, None]
    masses, below, moments = np.zeros(6), np.zeros(6), np.zeros(2)
    for weight, own, width, a in zip(weights, means, stds, (excess, 2 * excess), strict=True):
        rates = np.exp(own + width * scores)
        given = nbinom(1 / a, 1 / (1 + a * rates)) if a else poisson(rates)
        share = weight * norm.pdf(scores[:, 0]) * (scores[1] - scores[0])
        masses, below = masses + share @ given.pmf(counts), below + share @ given.cdf(counts)
        moments += share @ np.hstack([given.mean(), given.var() + given.mean() ** 2])
    mixture = CountMixture(
        weights,
        *(np.outer(value, np.ones(6)) for value in (means, stds)),
        np.array([[excess], [2 * excess]]),
    )
    np.testing.assert_allclose(np.exp(mixture.log_density(counts)), masses, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(mixture.below(counts + 0.5), below, atol=2e-3)
    assert np.isneginf(mixture.log_density(counts + 0.5)).all()
    within = np.exp(mixture.log_density(counts, resolution=2.0))
    np.testing.assert_allclose(2 * within[1:3], masses[1:3] + masses[:2], atol=2e-3)
    for probability in (0.05, 0.5, 0.95):
        quantile = mixture.quantile(probability)
        assert (mixture.below(quantile) >= probability).all()
        assert (mixture.below(quantile - 1) < probability).all()
    mean, std = mixture.moments()
    np.testing.assert_allclose([mean[0], std[0] ** 2 + mean[0] ** 2], moments, rtol=1e-6)


@COUNTS
def test_rates_and_intervals_with_exposure(likelihood):
    X, exposure, y, _ = drawn(150)
    new, other, counts, rate = drawn(400, seed=1)
    model = counter(likelihood).fit(X, y, exposure=exposure)
    linear = PoissonRegressor(alpha=1e-3).fit(X, y / exposure, sample_weight=exposure)
    found = model.predict(new, exposure=other)
    best, worst = (mean_poisson_deviance(counts, m * other) for m in (rate, linear.predict(new)))
    assert mean_poisson_deviance(counts, found) < best + 0.15 * (worst - best)
    np.testing.assert_allclose(model.predict(new) * other, found, rtol=1e-10)
    np.testing.assert_allclose(model.predict(new, exposure=2), 2 * model.predict(new), rtol=1e-10)
    low, high = model.predict_interval(new, 0.9, exposure=other)
    assert (low == np.floor(low)).all() and (high == np.floor(high)).all()
    assert 0.88 < np.mean((low <= counts) & (counts <= high)) < 0.99
    logs = model.log_predictive_density(new, counts, exposure=other)
    assert logs.mean() == pytest.approx(model.held_out_log_density_, abs=0.2)
    of_counts = np.log(np.diff(model.held_out_ranks_, axis=0))
    assert of_counts.mean() == pytest.approx(model.held_out_log_density_, abs=1e-4)
    assert logs.mean() > poisson.logpmf(counts, linear.predict(new) * other).mean()
    draws = model.sample_y(new[:9], 4000, exposure=other[:9])
    mean, std = model.predict(new[:9], return_std=True, exposure=other[:9])
    assert (draws == np.floor(draws)).all() and (draws >= 0).all()
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.1 * std.max())
    np.testing.assert_allclose(draws.std(1), std, rtol=0.15)
    _, of_rate = model.predict(new, return_std=True, observation_noise=False)
    smooth = model.sample_y(new[:3], 4000, observation_noise=False)
    np.testing.assert_allclose(smooth.std(1), of_rate[:3], rtol=0.1)


def test_scores_of_counts_take_exposures():
    X, exposure, y, _ = drawn(90)
    model = counter().fit(X, y, exposure=exposure)
    expected = r2_score(y, exposure * model.predict(X))
    assert expected > 0.3 and model.score(X, y, exposure=exposure) == pytest.approx(expected)
    with pytest.warns(UserWarning, match=r"exposures: without exposure=\.\.\., score compares"):
        assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)))
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(exposure=True).set_score_request(exposure=True)
        routed = cross_validate(model, X, y, params={"exposure": exposure}, cv=2)
    first = np.arange(90) < 45
    model = clone(model).fit(X[~first], y[~first], exposure=exposure[~first])
    own = r2_score(y[first], model.predict(X[first], exposure=exposure[first]))
    assert routed["test_score"][0] == pytest.approx(own)
    shuffled = pd.Series(exposure).sample(frac=1, random_state=0)
    for call in (model.predict, model.predict_interval, model.sample_y):
        with pytest.warns(UserWarning, match="X and exposure have different indices"):
            call(pd.DataFrame(X), exposure=shuffled)


def test_posterior_of_one_column_is_close_to_sampling():
    """The rate of three cells against importance sampling from the prior of the kernel."""
    rng = np.random.default_rng(0)
    X = np.linspace(0, 1, 8)[:, None]
    y = rng.poisson(np.exp(1 + np.sin(5 * X[:, 0]))).astype(float)
    model = counter().fit(X, y)
    gp = model.model_
    x = gp.train_inputs[0]
    with torch.no_grad():
        prior = gp.mean_module(x), gp.covar_module(x).to_dense() + 1e-8 * torch.eye(8)
    torch.manual_seed(0)
    draws = torch.distributions.MultivariateNormal(*prior).sample((100_000,)).numpy()
    logs = poisson.logpmf(y, np.exp(draws)).sum(1)
    weights = np.exp(logs - logsumexp(logs))
    assert 1 / (weights**2).sum() > 300
    mean = weights @ np.exp(draws)
    std = np.sqrt(weights @ np.exp(draws) ** 2 - mean**2)
    found = model.predict(X, return_std=True, observation_noise=False)
    np.testing.assert_allclose(found[0], mean, rtol=0.05)
    np.testing.assert_allclose(found[1], std, rtol=0.15)


def test_more_dispersed_counts_have_wider_intervals():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 1))
    y = rng.negative_binomial(1, 1 / (1 + 4 * np.exp(X[:, 0]))).astype(float)
    wide = counter("negative_binomial").fit(X, y)
    assert 0.6 < wide.model_.observations.dispersion.item() < 1.6
    low, high = wide.predict_interval(X, 0.9)
    assert 0.86 < np.mean((low <= y) & (y <= high)) < 0.96
    assert wide.held_out_log_density_ > counter().fit(X, y).held_out_log_density_ + 0.2


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        ("poisson", np.zeros(12)),
        ("negative_binomial", np.full(12, 3.0)),
        ("negative_binomial", np.r_[np.zeros(11), 1e6]),
        ("poisson", np.array([0.0, 2.0, 5.0])),
    ],
)
def test_odd_counts_have_sound_predictions(likelihood, y):
    X = np.linspace(0, 1, len(y))[:, None].astype(np.float32)
    with np.errstate(all="raise"):
        model = counter(likelihood).fit(X, y.astype(np.float32))
        mean, std = model.predict(X, return_std=True)
        low, high = model.predict_interval(X)
        far = model.predict(X + 100, return_std=True)
        assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert np.isfinite([mean, std, *far]).all() and (std > 0).all()
    assert (low <= high).all() and (mean <= max(2 * y.max(), 1)).all()
    if y.max() == 0:
        assert (mean < 0.5).all() and (high <= 2).all()


def test_tables_with_gaps_and_categories_copies_and_reports(few_iterations):
    X, exposure, y, _ = drawn(40)
    frame = pd.DataFrame(X, columns=["age", "speed"])
    frame["kind"] = pd.Categorical(np.where(X[:, 0] > 0, "new", "old"))
    frame.loc[3, "age"], frame.loc[4, "kind"] = np.nan, None
    model = counter("negative_binomial").fit(frame, y, exposure=pd.Series(exposure))
    assert model.incomplete_rows_ == {"noisy": 0, "imputed": 2, "omitted": 0}
    expected = model.predict(frame, return_std=True, exposure=exposure)
    again = clone(model).fit(frame, y, exposure=exposure)
    for other in (pickle.loads(pickle.dumps(model)), again):
        found = other.predict(frame, return_std=True, exposure=exposure)
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    shown = effects(model, samples=64)
    assert shown.scale == "logarithm of the rate" and len(set(shown.names)) == 3
    excess = model.model_.observations.dispersion.item()
    assert f"has the variance m + {excess:.3g} m" in str(report(model, progress=False))


def test_sentences_of_a_report_state_changes_of_the_rate():
    X, exposure, y, _ = drawn(80)
    model = counter().fit(X, y, exposure=exposure)
    found = effects(model, samples=64)
    effect = next(one for one in found.main if one.columns == (1,))
    change = np.exp(effect.mean[-1] - effect.mean[0])
    text = str(report(model, progress=False))
    assert "has the variance m." in text
    (stated,) = re.findall(r"As x1 goes .*, the prediction rises by a factor of ([\d.]+\d)", text)
    assert float(stated) == pytest.approx(change, rel=0.1)
    ends = np.median(X, axis=0).repeat(2).reshape(2, 2).T
    ends[:, 1] = effect.grid[0][[0, -1]]
    rates = model.predict(ends, return_std=True, observation_noise=False)[0]
    assert rates[1] / rates[0] == pytest.approx(change, rel=0.5)


def test_caller_in_inference_mode_and_frozen_kernels(few_iterations):
    X, _, y, _ = drawn(20)
    kernel = ScaleKernel(RBFKernel())
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    with unchanged(), torch.inference_mode():
        model = counter("negative_binomial", kernel).fit(X, y)
        found = model.predict(X, return_std=True)
    (fitted,) = [part for part in model.model_.modules() if isinstance(part, RBFKernel)]
    assert fitted.lengthscale.item() == pytest.approx(kernel.base_kernel.lengthscale.item())
    again = counter("negative_binomial", kernel).fit(X, y)
    np.testing.assert_allclose(again.predict(X), found[0], rtol=1e-12)


def test_large_counts_determine_their_rates():
    X, _, y, _ = drawn(15)
    counts = np.round(1e9 * (1 + y) / (1 + y.max()))
    np.testing.assert_allclose(counter().fit(X, counts).predict(X), counts, rtol=0.01)


def test_many_rows_are_reduced_with_a_warning(monkeypatch):
    X, exposure, y, _ = drawn(90)
    monkeypatch.setattr(module, "_MAX_ROWS", 60)
    monkeypatch.setattr(module, "_MAX_TRAINED", 30)
    with pytest.warns(SizeWarning, match="up to 60 rows, got 90"):
        model = counter().fit(X, y, exposure=exposure)
    assert len(model.model_.train_inputs[0]) == 60
    assert model.predict(X).shape == (90,)


@pytest.mark.parametrize(
    ("options", "y", "exposure", "message"),
    [
        ({}, -1.0, None, "targets 0, 1, .*, got -1 in row 2"),
        ({}, 1e10, None, r"targets 0, 1, .*, 1e\+09, got 1e\+10 in row 2"),
        ({}, 1.0, np.ones(8), r"one for each of 9 rows, got shape \(8,\)"),
        ({}, 1.0, np.r_[np.ones(8), 0.0], "positive and finite, got 0 in row 8"),
        ({}, 1.0, ["0.5", *"abcdefgh"], "exposure must hold numbers, got 'a' in row 1"),
        ({}, 1.0, np.r_[np.nan, np.ones(8)], "positive and finite, got nan in row 0"),
        ({"likelihood": "gaussian"}, 1.0, np.ones(9), "exposure needs likelihood='poisson'"),
    ],
)
def test_wrong_counts_exposures_and_options_are_named(options, y, exposure, message):
    counts = np.arange(9.0)
    counts[2] = y
    X = np.arange(18.0).reshape(9, 2)
    with pytest.raises(ValueError, match=message):
        counter(**options).fit(X, counts, exposure=exposure)


@pytest.mark.parametrize(
    ("words", "wrong", "right"),
    [
        ("give counts and their exposure in place of rates", {"y": 0.5}, {"exposure": 2.0}),
        ("set likelihood='gaussian'", {"y": 0.5}, {"y": 0.5, "likelihood": "gaussian"}),
        ("leave y_transform and y_bounds out", {"y_transform": "log"}, {}),
        ("leave it out", {"num_inducing": 9}, {}),
    ],
)
def test_advice_on_counts_works(words, wrong, right, few_iterations):
    def fit(y=1.0, exposure=None, **options):
        given = np.array([0.0, 2.0, y, 4.0, 1.0])
        return counter(**options).fit(np.arange(5.0)[:, None], given, exposure=exposure)

    with pytest.raises(ValueError, match=words):
        fit(**wrong)
    assert np.isfinite(fit(**right).predict([[1.5]])).all()
