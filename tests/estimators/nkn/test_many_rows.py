"""Tables with too many rows for exact predictions."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import sparse_predictor
from gpytorch_nkn.estimators.nkn.sparse_predictor import LocalPredictor, SparsePredictor
from gpytorch_nkn.estimators.nkn.table_models import untrained_model
from gpytorch_nkn.fit import FlatParameters, Recipe, Rows
from gpytorch_nkn.models import SparseNKNGP

SHORT = Recipe(adam_steps=0, lbfgs_iterations=9)
SMALL = {"_NEIGHBOURS": 50, "_BLOCKS": 6, "_BLOCK_ROWS": 60, "_ITERATIONS": 12}


def rough_table(n, seed=0, noise=0.1, waves=60):
    """A wave of some ten periods, which few inducing points cannot follow, on a slope."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, np.sin(waves * X[:, 0]) + 2 * X[:, 1] + noise * rng.standard_normal(n)


def regressor(**options):
    """Of one kernel: sources and neighbours are the same for every structure."""
    settings = {"restarts": 1, "recipe": SHORT, "random_state": 0, "num_inducing": 20}
    return NKNRegressor(**{"structure": "rbf", **settings, **options})


@pytest.fixture(autouse=True, scope="module")
def small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_predictor, "_CHUNK", 230)
        for name, value in SMALL.items():
            patch.setattr(sparse_predictor, name, value)
        yield


@pytest.fixture(scope="module")
def fitted(small_pieces):
    return regressor().fit(*rough_table(500))


def test_neighbours_say_what_inducing_points_leave_out(fitted):
    new_X, new_y = rough_table(300, seed=1)
    mean, deviation = fitted.predict(new_X, return_std=True)
    error = np.sqrt(np.mean((mean - new_y) ** 2))
    assert error < 0.3
    alone = deepcopy(fitted)
    alone._ensemble.predictors = [local._sparse for local in alone._ensemble.predictors]
    assert error < 0.5 * np.sqrt(np.mean((alone.predict(new_X) - new_y) ** 2))
    assert 0.85 < np.mean(np.abs(mean - new_y) < 1.96 * deviation) <= 1
    # held-out rows are no better than new ones
    density = fitted.log_predictive_density(new_X, new_y).mean()
    assert abs(fitted.held_out_log_density_ - density) < 0.3


def test_conditional_is_that_of_all_rows_where_all_are_neighbours():
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.normal(size=(40, 2))), torch.from_numpy(rng.normal(size=40))
    rows = Rows(x, y)
    sparse = SparsePredictor(untrained_model("rbf", rows), x[:5], 0)
    local = LocalPredictor(sparse, rows, seed=0)
    model, rest = local._process, y - sparse.moments(x)[0]
    unit = rest.std(correction=0)
    model.set_train_data(x, rest / unit, strict=False)
    new = torch.from_numpy(rng.normal(size=(4, 2)))
    with torch.no_grad():
        expected = model(new)
    mean, variance = local.moments(new)
    rest = mean - sparse.moments(new)[0]
    torch.testing.assert_close(rest, expected.mean * unit, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(variance, expected.variance * unit**2, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        local.covariance(new), expected.covariance_matrix * unit**2, rtol=1e-4, atol=1e-6
    )


def test_distances_have_the_slopes_of_the_whole_sorted_table():
    x = torch.cat([torch.rand(1100, 1).sort(0).values, torch.rand(1100, 1)], 1)
    rows = Rows(x, x[:, 0] + 3 * x[:, 0] ** 4 * torch.sin(9 * x[:, 1]))
    sparse = SparsePredictor(untrained_model("rbf", rows), x[::20], 0)
    local = LocalPredictor(sparse, rows, seed=0)
    steps = 1e-4 * torch.eye(2)
    ends = [[sparse.moments(x + sign * step)[0] for step in steps] for sign in (1, -1)]
    slopes = (torch.stack(ends[0]) - torch.stack(ends[1])) / 2e-4
    rms = slopes.square().mean(1).sqrt().numpy()
    np.testing.assert_allclose(local._scale, rms, rtol=0.1)


@pytest.mark.parametrize("noise", [None, 0.2])
def test_predictions_match_a_sparse_model_of_all_rows(noise):
    x, y = (torch.from_numpy(part) for part in rough_table(120))
    known = None if noise is None else noise * torch.rand(120)
    rows = Rows(x, y, known)
    model = untrained_model("rbf", rows)
    predictor = SparsePredictor(model, x[:30], 0)
    learned = getattr(model.likelihood, "second_noise", model.likelihood.noise).detach()
    whole = SparseNKNGP(
        x,
        y.unsqueeze(-1),
        None if known is None else (known + learned).unsqueeze(-1),
        structure=model.covar_module,
        likelihood=None if known is not None else model.likelihood,
        inducing_points=x[:30],
        outcome_transform=None,
    )
    new = torch.from_numpy(rough_table(6, seed=1)[0])
    expected = whole.posterior(new)
    for variance in (True, False):
        mean, own = predictor.moments(new, variance=variance)
        torch.testing.assert_close(mean, expected.mean.squeeze(-1))
    assert own is None
    torch.testing.assert_close(predictor.covariance(new), expected.distribution.covariance_matrix)
    torch.testing.assert_close(predictor.moments(new)[1], expected.variance.squeeze(-1))
    means, variances = predictor.leave_one_out()
    others = torch.arange(120) != 7
    rows[others].set_on(model)
    mean, variance = SparsePredictor(model, x[:30], 0).moments(x[7:8])
    own = learned if known is None else learned + known[7]
    torch.testing.assert_close(means[7:8], mean)
    torch.testing.assert_close(variances[7:8], variance + own)


@pytest.mark.parametrize("skewed", [False, True])
def test_nothing_is_trained_after_ctrl_c(skewed, monkeypatch):
    evaluate, evaluations = FlatParameters.evaluate, []

    def interrupted(flat):
        evaluations.append(flat)
        if len(evaluations) == 3:
            raise KeyboardInterrupt
        return evaluate(flat)

    monkeypatch.setattr(FlatParameters, "evaluate", interrupted)
    X, y = rough_table(400, waves=6)
    if skewed:  # the transform is chosen first
        with pytest.raises(KeyboardInterrupt):
            regressor().fit(X, np.exp(y))
        assert len(evaluations) == 3
        return
    model = regressor().fit(X, y)
    assert len(evaluations) == 3  # and no local process
    new_X, new_y = rough_table(300, seed=1, waves=6)
    mean, deviation = model.predict(new_X, return_std=True)
    assert np.mean(np.abs(mean - new_y) < 1.96 * deviation) > 0.85


def test_after_ctrl_c_in_a_local_process_no_other_one_is_trained(monkeypatch):
    fit_best_of, results = sparse_predictor.fit_best_of, []

    def interrupted(*args, **options):
        results.append(fit_best_of(*args, **options))
        results[-1].interrupted = True
        return results[-1]

    monkeypatch.setattr(sparse_predictor, "fit_best_of", interrupted)
    model = regressor(structure=["rbf", "matern"]).fit(*rough_table(300))
    assert len(model.members_) == 2 and len(results) == 1
