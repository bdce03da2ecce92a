import pickle
import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy.stats import norm, t as student_t

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import table_models
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import report
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear

SHORT = Recipe(adam_steps=0, lbfgs_iterations=10)
TWO = ("tabular", "rbf")  # a network and a single kernel, of the five that "auto" tries


def table(n=50, dim=2, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, dim))
    return X, np.sin(6 * X[:, 0]) + X[:, -1] + noise * rng.standard_normal(n)


def regressor(structure="auto", **options):
    return NKNRegressor(structure, **{"restarts": 1, "recipe": SHORT, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return regressor(TWO, restarts=2).fit(*table())


@pytest.fixture(scope="module")
def tabular():
    """Of one network; not to be changed, like the one above."""
    return regressor("tabular").fit(*table())


def test_a_function_is_learned_and_the_intervals_cover():
    X, y = table(90)
    new, truth = table(300, seed=1)
    recipe = Recipe(adam_steps=0, lbfgs_iterations=25)
    model = regressor(recipe=recipe).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.13
    assert 0.9 < np.mean(np.abs(truth - mean) < 1.96 * std) < 0.99
    assert model.score(new, truth) > 0.95
    # scores of held-out rows hold for new rows
    density = model.log_predictive_density(new, truth).mean()
    assert density == pytest.approx(model.held_out_log_density_, abs=0.35)


def members_of(fitted, X):
    """Standardised inputs, and the weights and models of the members."""
    members = [fitted.results_[name].members[number].eval() for name, number in fitted.members_]
    return torch.as_tensor(fitted.standardised_inputs(X)), fitted.weights_, members


def mixed(weights, means, variances):
    """Mean and variance of a mixture."""
    return weights @ means, weights @ (variances + means**2) - (weights @ means) ** 2


def test_mixture_moments_match_the_members(fitted):
    X, _ = table(4, seed=2)
    inputs, shares, members = members_of(fitted, X)
    widths, wide = np.array(list(fitted.width_weights_.items())).T
    assert len(members) == 4 and len(widths) == 9
    assert shares.sum() == pytest.approx(1) and wide.sum() == pytest.approx(1)
    for noise in (True, False):
        with torch.no_grad():
            own = [one.likelihood(one(inputs)) if noise else one(inputs) for one in members]
        means = np.stack([fitted.y_offset_ + fitted.y_scale_ * one.mean.numpy() for one in own])
        variances = fitted.y_scale_**2 * np.stack([one.variance.numpy() for one in own])
        widening = wide @ widths**2 if noise else 1.0
        expected, variance = mixed(shares, means, widening * variances)
        mean, std = fitted.predict(X, return_std=True, observation_noise=noise)
        np.testing.assert_allclose(mean, expected, rtol=1e-4)
        np.testing.assert_allclose(std**2, variance, rtol=1e-3)
        if noise:
            stds = widths[:, None, None] * np.sqrt(variances)
            density = wide @ (shares @ norm.pdf(mean + 0.05, means, stds))
            found = fitted.log_predictive_density(X, mean + 0.05)
            np.testing.assert_allclose(found, np.log(density), rtol=1e-3, atol=1e-3)


def test_samples_have_the_covariance_of_the_mixture(fitted):
    X, _ = table(5, seed=3)
    inputs, shares, members = members_of(fitted, X)
    with torch.no_grad():
        own = [one(inputs) for one in members]
    apart = fitted.y_offset_ + fitted.y_scale_ * np.stack([one.mean for one in own])
    apart = apart - shares @ apart
    within = np.tensordot(shares, np.stack([one.covariance_matrix for one in own]), 1)
    covariance = fitted.y_scale_**2 * within + (shares * apart.T) @ apart
    mean, std = fitted.predict(X, return_std=True)
    for noise in (True, False):
        draws = fitted.sample_y(X, 20_000, random_state=0, observation_noise=noise)
        assert draws.shape == (5, 20_000)
        np.testing.assert_allclose(draws.mean(1), mean, atol=0.01)
        error = np.cov(draws) - covariance
        if noise:
            np.testing.assert_allclose(draws.std(1), std, rtol=0.05)
            error -= np.diag(np.diag(error))
        assert np.abs(error).max() < 0.07 * np.cov(draws).max()
    np.testing.assert_array_equal(fitted.sample_y(X, 3), fitted.sample_y(X, 3))


def test_outliers_in_the_noise_make_tails_and_not_a_wide_interval():
    X, y = table(150, noise=0.05)
    rng = np.random.default_rng(1)
    y = y + rng.choice([0, 1.5], 150, p=[0.93, 0.07]) * rng.choice([-1, 1], 150)
    model = regressor("rbf").fit(X, y)
    new, truth = table(300, noise=0.05, seed=2)
    mean, std = model.predict(new, return_std=True)
    for values, gain in ((truth + 3, 1), (truth, 0.2)):  # more likely than under one Gaussian
        density = model.log_predictive_density(new, values).mean()
        assert density > norm.logpdf(values, mean, std).mean() + gain
    lower, upper = model.predict_interval(new, 0.8)
    assert np.mean(upper - lower) < 0.8 * np.mean(2 * norm.ppf(0.9) * std)


def test_intervals_and_rounded_densities_match_the_distribution(fitted):
    X, y = table(4, seed=5)
    y[0] += 50  # far out in a tail
    said = fitted.predict_distribution(X)
    low, high = fitted.predict_interval(X, 0.8)
    np.testing.assert_allclose([said.below(low), said.above(high)], 0.1)
    np.testing.assert_allclose(fitted.predict_quantiles(X, [0.1, 0.9]), np.stack([low, high], 1))
    found = fitted.log_predictive_density(X, y, resolution=0.3)
    share = said.below(y + 0.15) - said.below(y - 0.15)
    np.testing.assert_allclose(np.exp(found[1:]), share[1:] / 0.3)
    assert np.isfinite(found[0])
    for call, wrong in ((fitted.predict_interval, 1.0), (fitted.predict_quantiles, 1.5)):
        with pytest.raises(ValueError, match=f"between 0 and 1, got {wrong}"):
            call(X, wrong)
    with pytest.raises(ValueError, match=r"positive and finite, got 0\.0"):
        fitted.log_predictive_density(X, y, resolution=0.0)


def test_units_do_not_matter(tabular):
    X, y = table()
    second = regressor("tabular").fit(1e4 * X - 3e4, 1e-3 * y + 7)
    new = table(6, seed=5)[0]
    mean, std = tabular.predict(new, return_std=True)
    got, got_std = second.predict(1e4 * new - 3e4, return_std=True)
    np.testing.assert_allclose(got, 1e-3 * mean + 7, rtol=1e-5)
    np.testing.assert_allclose(got_std, 1e-3 * std, rtol=1e-2)
    assert second.held_out_log_density_ == pytest.approx(
        tabular.held_out_log_density_ - np.log(1e-3), abs=0.01
    )


def test_structures_by_name_number_of_columns_and_as_kernels():
    def names(structures, num_rows, num_columns):
        return list(table_models.named_structures(structures, num_rows, num_columns))

    assert names(["auto"], 9999, 1) == ["tabular"]
    assert names(["auto"], 500, 51) == ["tabular", "isotropic"]
    assert names(["auto"], 2000, 25) == ["tabular", "columns", "additive"]
    assert names(["auto"], 2000, 26) == ["tabular", "additive"]
    assert names(["auto"], 2001, 2) == ["tabular", "spectral"]
    assert names(["auto"], 499, 2) == ["tabular", "columns", "additive", "rbf", "matern"]
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    assert names([kernel, "additive", kernel], 9, 2) == [
        "ScaleKernel", "additive", "ScaleKernel 2",
    ]  # fmt: skip
    X, y = table()
    before = deepcopy(kernel.state_dict())
    model = regressor([kernel, "regression"]).fit(X, y)
    assert set(model.results_) == {"ScaleKernel", "regression"}
    assert isinstance(model.results_["ScaleKernel"].model.covar_module, ScaleKernel)
    assert all(torch.equal(value, kernel.state_dict()[name]) for name, value in before.items())
    network = NeuralKernelNetwork([RBFKernel(ard_num_dims=2)], [Linear(1, 1, weights="simplex")])
    scaled = regressor(network).fit(X, y).model_.covar_module
    assert isinstance(scaled, ScaleKernel)


@pytest.mark.parametrize(
    ("structure", "error", "message"),
    [
        ("deep", ValueError, "got 'deep'"),
        (["tabular", "auto"], ValueError, "got 'auto'"),
        ([], ValueError, "got none"),
        (3, TypeError, "got int"),
        (RBFKernel(ard_num_dims=5), ValueError, "must accept 2 columns"),
        (RBFKernel(batch_shape=torch.Size([3])), ValueError, r"got shape \(3, 2, 2\)"),
    ],
)
def test_structures_that_do_not_fit(structure, error, message):
    with pytest.raises(error, match=message):
        regressor(structure).fit(*table())


@pytest.mark.parametrize("shape", [(3, 1), (5, 40)])
def test_few_rows_and_many_columns(shape):
    X = np.random.default_rng(0).normal(size=shape)
    model = regressor(recipe=Recipe(adam_steps=0, lbfgs_iterations=3)).fit(X, X[:, 0])
    mean, std = model.predict(X + 0.1, return_std=True)
    assert np.isfinite(mean).all() and (std > 0).all()


def test_rows_and_columns_that_come_twice():
    X, y = table(30)
    twice = np.concatenate([X, X]), np.concatenate([y, y + 0.05])
    model = regressor("tabular").fit(np.column_stack([twice[0], twice[0][:, 0]]), twice[1])
    assert np.isfinite(model.predict(np.column_stack([X, X[:, 0]]))).all()
    with pytest.warns(UserWarning, match="30 of 60 rows are exact copies"):
        regressor("rbf").fit(twice[0], np.concatenate([y, y]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor("rbf").fit(*twice)


def test_a_device_that_is_set_later_is_that_of_the_next_fit(tabular):
    X, _ = table()
    model = deepcopy(tabular).set_params(device="meta")
    np.testing.assert_array_equal(model.predict(X), tabular.predict(X))


def test_predictions_that_a_budget_has_no_time_for_are_sparse_ones():
    X, y = table(1200)
    X[:7, 1] = np.nan
    options = {"structure": "rbf", "restarts": 1, "random_state": 0}
    recipe = Recipe(adam_steps=0, lbfgs_iterations=1)
    model = NKNRegressor(**options, recipe=recipe, budget=1e-3).fit(X, y)
    assert model.method_ == "sparse" and len(model.members_) == 1
    assert model.incomplete_rows_ == {"noisy": 0, "imputed": 0, "omitted": 7}
    assert np.isfinite(model.predict(X[:3], return_std=True)).all()


def noisy(n=60):
    """A table in which half of the rows have ten times the error, and the known variances."""
    X, truth = table(n, noise=0)
    known = np.where(np.arange(n) % 2, 0.01, 1.0)
    return X, truth + np.sqrt(known) * np.random.default_rng(1).normal(size=n), known


def test_known_noise_is_added_to_the_learned_noise():
    X, y, known = noisy()
    new, truth = table(50, noise=0, seed=2)
    model, other = regressor("rbf").fit(X, y, noise_variance=known), regressor("rbf").fit(X, y)
    gp, scale = model.model_, model.y_scale_
    learned = scale**2 * gp.likelihood.second_noise.item()
    x, at = (torch.as_tensor(model.standardised_inputs(rows)) for rows in (X, new))
    with torch.no_grad():
        k, level = gp.covar_module, model.y_offset_ + scale * gp.mean_module.constant.item()
        whole, between, own = (scale**2 * k(*pair).to_dense().numpy() for pair in (
            (x, x), (at, x), (at, at)
        ))  # fmt: skip
    solved = np.linalg.solve(whole + np.diag(known + learned), between.T).T
    mean, std = model.predict(new, return_std=True, observation_noise=False)
    np.testing.assert_allclose(mean, level + solved @ (y - level))
    np.testing.assert_allclose(std**2, np.diag(own - solved @ between.T), rtol=1e-6)
    _, noisier = model.predict(new, return_std=True)
    widening = sum(share * factor**2 for factor, share in model.width_weights_.items())
    np.testing.assert_allclose(noisier**2, widening * (std**2 + learned + known.mean()))
    errors = [np.sqrt(np.mean((one.predict(new) - truth) ** 2)) for one in (model, other)]
    logs = [one.held_out_log_density_ for one in (model, other)]
    assert errors[0] < 0.06 < 0.5 * errors[1] and logs[0] > logs[1] + 0.3


def test_known_noise_of_transformed_targets_and_of_rows_with_gaps():
    X, y, known = noisy()
    new, truth = table(50, noise=0, seed=2)
    plain = regressor("rbf").fit(X, y, noise_variance=known)
    options = {"noise_variance": known * np.exp(2 * y)}
    other = regressor("rbf", y_transform="log").fit(X, np.exp(y), **options)
    np.testing.assert_allclose(np.log(other.predict_quantiles(new, 0.5)[:, 0]), plain.predict(new))
    X[::3, 0] = np.nan
    y[1], known[1] = 1e6, 1e12  # which says nothing
    found = regressor("rbf").fit(X, y, noise_variance=known).predict(new)
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.15
    with pytest.raises(ValueError, match="likelihood='gaussian', got 'student_t'"):
        regressor("rbf", likelihood="student_t").fit(X, y, noise_variance=known)


@pytest.mark.parametrize("known", [False, True])
def test_sparse_predictions_with_all_rows_as_points_are_the_exact_ones(known):
    X, y, variances = noisy(40)
    options = {"noise_variance": variances} if known else {}
    exact = regressor("rbf").fit(X, y, **options)
    sparse = regressor("rbf", num_inducing=40).fit(X, y, **options)
    assert (exact.method_, sparse.method_) == ("exact", "sparse")
    assert sparse.held_out_log_density_ == pytest.approx(exact.held_out_log_density_)
    new = table(6, seed=7)[0]
    np.testing.assert_allclose(
        sparse.predict(new, return_std=True), exact.predict(new, return_std=True), rtol=1e-3
    )
    covariances = [np.cov(one.sample_y(new, 9000)) for one in (sparse, exact)]
    np.testing.assert_allclose(*covariances, atol=0.1 * covariances[1].max())
    copy = pickle.loads(pickle.dumps(sparse))
    np.testing.assert_allclose(copy.predict(new), sparse.predict(new))


def test_few_inducing_points_summarise_the_rows():
    X, y = table(40)
    assert regressor("rbf", num_inducing=10).fit(X, y).score(X, y) > 0.5


def outliers(n=80):
    """A table with outliers in a tenth of the rows, and the function without noise."""
    X, truth = table(n, noise=0)
    rng = np.random.default_rng(1)
    far = np.where(rng.random(n) < 0.1, rng.choice([-1, 1], n) * rng.uniform(2, 5, n), 0)
    return X, truth + 0.1 * rng.normal(size=n) + far, truth


def test_student_t_noise_ignores_outliers_and_has_heavy_tails():
    X, y, truth = outliers()
    new, clean = table(200, seed=2)
    plain, robust = (
        regressor("rbf", likelihood=one).fit(X, y) for one in ("gaussian", "student_t")
    )
    errors = [np.sqrt(np.mean((m.predict(X) - truth) ** 2)) for m in (plain, robust)]
    assert errors[1] < 0.08 < 2 * errors[1] < errors[0]
    logs = [m.log_predictive_density(new, clean).mean() for m in (plain, robust)]
    assert logs[1] > logs[0] + 0.3
    noise = robust.model_.observations
    scale = robust.y_scale_ * noise.noise.item() ** 0.5
    expected = student_t(noise.deg_free.item(), robust.predict(new), scale)  # of a known function
    for far in (0.0, 1.0, 4.0):
        found = robust.log_predictive_density(new, expected.mean() + far)
        np.testing.assert_allclose(found, expected.logpdf(expected.mean() + far), atol=0.6)
    low, high = robust.predict_interval(new, 0.5)
    assert 0.4 < np.mean((low < clean) & (clean < high)) < 0.6
    assert robust.sample_y(new[:3], 5).shape == (3, 5)
    again = pickle.loads(pickle.dumps(robust))
    np.testing.assert_allclose(again.predict(new), robust.predict(new), rtol=1e-10)


def test_student_t_noise_predicts_as_the_laplace_approximation():
    X, y, _ = outliers(40)
    model = regressor("rbf", likelihood="student_t", y_transform="identity").fit(X, y)
    laplace = model.results_["rbf"].model.eval()
    with torch.no_grad():
        latent = laplace(torch.as_tensor(model.standardised_inputs(X[:9] + 0.1)))
    mean, std = model.predict(X[:9] + 0.1, return_std=True, observation_noise=False)
    np.testing.assert_allclose(mean, model.y_offset_ + model.y_scale_ * latent.mean, rtol=1e-5)
    np.testing.assert_allclose(std, model.y_scale_ * latent.stddev, rtol=0.1)  # W is positive
    drawn = model.sample_y(X[:9] + 0.1, 4000, observation_noise=False)
    np.testing.assert_allclose(drawn.std(1), std, rtol=0.1)


def test_student_t_noise_of_held_out_targets():
    X, y, _ = outliers(14)  # so few that each is held out alone
    model = regressor("rbf", likelihood="student_t").fit(X, y)
    with torch.no_grad():
        latent = model.results_["rbf"].model.train().leave_one_out()
    mean = model.y_offset_ + model.y_scale_ * latent.mean.numpy()
    variance = latent.variance.numpy() + model.model_.observations.noise.item()
    expected = sum(
        share * norm.pdf(y, mean, factor * model.y_scale_ * np.sqrt(variance))
        for factor, share in model.width_weights_.items()
    )
    assert model.held_out_log_density_ == pytest.approx(np.log(expected).mean(), abs=1e-3)


@pytest.mark.parametrize("n", [3, 30])
def test_student_t_noise_with_one_enormous_outlier(n):
    X, y = table(n)
    y[1] = 1e9
    model = regressor("rbf", likelihood="student_t").fit(X, y)
    assert np.isfinite(model.predict(X, return_std=True)).all()
    if n > 3:
        assert np.abs(np.delete(model.predict(X) - y, 1)).max() < 0.5
    assert str(report(model, progress=False))
