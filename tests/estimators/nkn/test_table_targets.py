import numpy as np
import pytest
import torch
from scipy.stats import lognorm, norm

from gpytorch_nkn.averaging import PredictiveMixture, Transform
from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn.table_targets import Targets, candidates, choose_transform
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import effects, report

SHORT = Recipe(adam_steps=0, lbfgs_iterations=15)
LOG = Transform("log", 0.0, power=0.0)


def table(n=90, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.exp(1 + np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.standard_normal(n))


def regressor(**options):
    options = {"recipe": SHORT, "restarts": 1, "random_state": 0, **options}
    return NKNRegressor("rbf", progress=False, **options)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*table())


def log_normal(center, width):
    return PredictiveMixture(np.ones(1), np.full((1, 3), center), np.full((1, 3), width), (LOG,))


def test_quartiles_that_differ_by_rounding_errors_are_not_the_scale():
    y = np.repeat([0.3, 0.1 + 0.2, 1.0, 2.0], [20, 20, 5, 5])
    targets = Targets.of(y, Transform(), robust=True)
    assert (targets.offset, targets.scale) == pytest.approx((y.mean(), y.std()))


def test_moments_and_density_match_a_log_normal():
    truth = lognorm(0.4, scale=np.exp(1.2))
    targets = Targets(LOG, offset=1.0, scale=0.5, lowest=0.0, highest=2.5)
    mixture = log_normal(1.2, 0.4)
    mean, std = targets.moments(mixture)
    np.testing.assert_allclose(mean, truth.mean(), rtol=1e-3)
    np.testing.assert_allclose(std, truth.std(), rtol=5e-3)
    values = np.array([0.5, 3.0, 9.0])
    np.testing.assert_allclose(mixture.log_density(values), truth.logpdf(values))
    inside = np.log(truth.cdf(values + 0.25) - truth.cdf(values - 0.25)) - np.log(0.5)
    np.testing.assert_allclose(mixture.log_density(values, 0.5), inside, rtol=1e-6)
    np.testing.assert_allclose(mixture.log_density(values, 1e-9), truth.logpdf(values))
    assert (mixture.log_density(np.array([-1.0, -2.0, 0.0])) == -np.inf).all()


@pytest.mark.parametrize("center", [1.2, 6.0])
def test_wide_tails_end_a_deviation_beyond_what_was_seen_and_the_median(center):
    targets = Targets(LOG, offset=1.0, scale=0.5, lowest=0.0, highest=2.5)
    mean, std = targets.moments(log_normal(center, 3.0))
    lower, upper = min(0.0, center) - 0.5, max(2.5, center) + 0.5
    nodes = norm(center, 3).ppf((np.arange(200_000) + 0.5) / 200_000)
    values = np.exp(np.clip(nodes, lower, upper))
    np.testing.assert_allclose(mean, values.mean(), rtol=0.02)
    np.testing.assert_allclose(std, values.std(), rtol=0.04)


def test_a_transform_is_taken_if_held_out_targets_say_so():
    X, y = table(60)
    options = {"seed": 0, "recipe": SHORT, "budget": None, "cat_dims": ()}
    for targets, name in ((y, "log"), (10 + np.log(y), "identity")):
        both = [Transform(), LOG]
        observed = np.stack([targets, 0 * y, 0 * y])
        assert choose_transform(both, torch.tensor(X), observed, **options).name == name
    assert candidates("auto", np.log(y), None) == [Transform()]  # negative


def test_skewed_targets_are_predicted_in_their_units(fitted):
    assert fitted.y_transform_.name == "log"
    X, y = table(200, seed=1)
    plain = regressor(y_transform="identity").fit(*table())
    assert plain.y_transform_.is_identity
    gain = fitted.log_predictive_density(X, y).mean() - plain.log_predictive_density(X, y).mean()
    assert gain > 0.3
    lower, upper = fitted.predict_interval(X, 0.9)
    assert (lower > 0).all()
    assert 0.8 < ((lower < y) & (y < upper)).mean() < 0.98


def test_a_report_says_that_it_is_of_the_transformed_targets(fitted):
    assert "logarithm" in report(fitted).text
    assert str(effects(fitted, samples=64)).startswith(
        "Effects on the logarithm of the targets:\ncolumn"
    )
    plain = regressor(y_transform="identity").fit(*table(30))
    assert effects(plain, samples=64).scale == ""


def test_counts_have_whole_quantiles_and_smooth_means():
    X, _ = table(40)
    y = np.random.default_rng(0).poisson(np.exp(0.5 + np.sin(2 * X[:, 0])))
    model = regressor(y_transform="sqrt").fit(X, y)
    quantiles = model.predict_quantiles(X[:5], [0.05, 0.5, 0.95])
    draws = [model.sample_y(X[:5], 300, observation_noise=noise) for noise in (True, False)]
    assert (quantiles % 1 == 0).all() and (draws[0] % 1 == 0).all() and (draws[1] % 1 > 0).any()
    said = model.predict_distribution(X[:5])
    mass = np.exp([said.log_density(np.full(5, k)) for k in range(60)])
    np.testing.assert_allclose(mass.sum(0), 1.0, rtol=1e-3)
    np.testing.assert_allclose(model.predict(X[:5]), np.arange(60) @ mass, atol=0.1)
    np.testing.assert_allclose((draws[0] == 0).mean(1), mass[0], atol=0.08)


def test_bounds_hold():
    X, y = table(60)
    shares = 100 * y / (1 + y)
    found = regressor(y_transform="logit", y_bounds=(0, 100)).fit(X, shares)
    new = 3 * X
    for values in (found.predict(new), found.predict_interval(new, 0.99), found.sample_y(new, 50)):
        assert np.min(values) > 0
        assert np.max(values) < 100
    bounded = regressor(y_transform="identity", y_bounds=(0, None)).fit(X, y)
    assert bounded.predict(new).min() >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y_transform": "log"}, "'log' needs positive targets, got -"),
        ({"y_transform": "logit"}, "y_bounds="),
        ({"y_bounds": (3, 1)}, "y_bounds must be"),
        ({"y_bounds": (0, None)}, "targets within the bounds, got -"),
    ],
)
def test_what_does_not_fit_is_rejected(options, message):
    X, y = table(20)
    with pytest.raises(ValueError, match=message):
        regressor(**options).fit(X, np.log(y) - 5)


@pytest.mark.parametrize("kind", ["counts", "bounded"])
def test_held_out_scores_match_new_observations(kind):
    """Probabilities of integers and of bounds are no densities, and ranks have steps there."""
    rng = np.random.default_rng(0)

    def draw(n):
        x = rng.uniform(-1, 1, (n, 2))
        if kind == "counts":
            return x, rng.poisson(0.5 * np.exp(0.5 * x[:, 0])).astype(float)
        return x, np.clip(x[:, 0] + 0.3 * rng.standard_normal(n), 0, 1)

    option = {"counts": "sqrt", "bounded": "logit"}[kind]
    bounds = {"counts": None, "bounded": (0, 1)}[kind]
    options = {"y_transform": option, "y_bounds": bounds, "restarts": 1, "random_state": 0}
    model = NKNRegressor("rbf", progress=False, **options).fit(*draw(200))
    x, y = draw(1000)
    new = model.log_predictive_density(x, y).mean()
    assert model.held_out_log_density_ == pytest.approx(new, abs=0.35)
    below, up_to = model.held_out_ranks_
    assert (up_to - below > 0.1).mean() > 0.3
