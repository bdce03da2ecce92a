"""Tables with too many rows for exact predictions."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import local_residuals, sparse_predictor
from gpytorch_nkn.estimators.nkn.local_residuals import LocalResiduals
from gpytorch_nkn.estimators.nkn.table_models import untrained_model
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.models import SparseNKNGP

SHORT = Recipe(adam_steps=0, lbfgs_iterations=9)


def rough_table(n, seed=0, noise=0.1, waves=60):
    """A wave of some ten periods, which few inducing points cannot follow, on a slope."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, np.sin(waves * X[:, 0]) + 2 * X[:, 1] + noise * rng.standard_normal(n)


def regressor(**options):
    """Of one kernel: sources and neighbours are the same for every structure."""
    settings = {"restarts": 1, "recipe": SHORT, "random_state": 0, "num_inducing": 20}
    settings |= {"method": "sparse"}
    return NKNRegressor("rbf", **{**settings, **options})


@pytest.fixture(autouse=True, scope="module")
def small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_predictor, "_CHUNK_ROWS", 230)
        for name, value in (("_BLOCKS", 6), ("_BLOCK_ROWS", 60), ("_ITERATIONS", 12)):
            patch.setattr(local_residuals, name, value)
        yield


@pytest.fixture(scope="module")
def fitted(small_pieces):
    return regressor().fit(*rough_table(900))


def test_neighbours_say_what_inducing_points_leave_out(fitted):
    new_X, new_y = rough_table(300, seed=1)
    mean, deviation = fitted.predict(new_X, return_std=True)
    error = np.sqrt(np.mean((mean - new_y) ** 2))
    assert error < 0.3
    alone = deepcopy(fitted)
    for predictor in alone._ensemble.predictors:
        predictor._local = None
    assert error < 0.5 * np.sqrt(np.mean((alone.predict(new_X) - new_y) ** 2))
    assert 0.85 < np.mean(np.abs(mean - new_y) < 1.96 * deviation) <= 1
    # held-out rows are no better than new ones
    density = fitted.log_predictive_density(new_X, new_y).mean()
    assert abs(fitted.held_out_log_density_ - density) < 0.3


def test_joint_predictions_agree_with_single_ones(fitted):
    new_X, _ = rough_table(7, seed=2)
    _, deviation = fitted.predict(new_X, return_std=True)
    _, covariance = fitted.predict(new_X, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), deviation, rtol=0.2)
    assert np.linalg.eigvalsh(covariance).min() > 0
    assert fitted.sample_y(new_X, 3).shape == (7, 3)


def test_conditional_is_that_of_all_rows_where_all_are_neighbours():
    rng = np.random.default_rng(0)
    X, rest = rng.normal(size=(60, 2)), rng.normal(size=60)
    chunks = [(X[:25], rest[:25]), (X[25:], rest[25:])]
    local = LocalResiduals(chunks, 60, np.array([1.0, 0.3]), torch.zeros(1).double(), seed=0)
    model = local._process
    x, y = torch.from_numpy(X), torch.from_numpy(rest / rest.std())
    model.set_train_data(x, y, strict=False)
    new = torch.from_numpy(rng.normal(size=(4, 2)))
    with torch.no_grad():
        expected = model(new)
    mean, variance = local.moments(new)
    unit = rest.std()
    torch.testing.assert_close(mean, expected.mean * unit, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(variance, expected.variance * unit**2, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        local.covariance(new), expected.covariance_matrix * unit**2, rtol=1e-4, atol=1e-6
    )


def test_chunks_give_the_posterior_of_all_rows():
    x, y = (torch.from_numpy(part) for part in rough_table(120))
    options = {"inducing_points": x[:15].clone(), "outcome_transform": None}
    exact = untrained_model({"rbf": "rbf"}, x, y)
    structure = exact.covar_module
    whole = SparseNKNGP(x, y.unsqueeze(-1), structure=structure, **options)
    part = SparseNKNGP(x[:20], y[:20].unsqueeze(-1), structure=structure, **options)
    part.condition_on_chunks(zip(x.split(50), y.split(50), strict=True))
    new = torch.from_numpy(rough_table(6, seed=1)[0])
    for own, expected in zip(part.predict(new), whole.predict(new), strict=True):
        torch.testing.assert_close(own, expected)
    torch.testing.assert_close(part.mean_at(new), whole.posterior(new).mean.squeeze(-1))
    part.train().eval()
    assert not torch.allclose(part.predict(new)[0], whole.predict(new)[0])
    for chunk, message in (
        ((new, torch.zeros(5)), r"Chunk 0 must have targets \(6,\), got \(5,\)"),
        ((new[:, :1], new[:, 0]), "q x 2, got shape"),
        ((new, new[:, 0].log10() * torch.nan), "Chunk 0 has targets that are NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            part.condition_on_chunks([chunk])
    with pytest.raises(ValueError, match="at least one chunk"):
        part.condition_on_chunks([])
