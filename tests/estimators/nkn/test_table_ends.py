import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn.table_ends import end_rows
from gpytorch_nkn.fit import Recipe


def table(n=60, seed=0):
    """A straight line with waves upon it."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 1))
    return X, 3 * X[:, 0] + 0.3 * np.sin(25 * X[:, 0]) + 0.05 * rng.standard_normal(n)


def regressor(structure=("rbf", "matern"), *, iterations=20, restarts=2, **options):
    return NKNRegressor(
        structure,
        restarts=restarts,
        random_state=0,
        progress=False,
        recipe=Recipe(adam_steps=0, lbfgs_iterations=iterations),
        **options,
    )


def test_ends_are_those_of_principal_directions():
    along, across = torch.linspace(-2, 2, 50), torch.linspace(-1, 1, 50)[torch.randperm(50)]
    x = torch.stack([along + across, along - across, 2 * (along + across)], 1).double()
    x = torch.cat([x, torch.arange(50).fmod(3).unsqueeze(1)], 1)  # of codes
    ends = end_rows(x, cat_dims=(3,))
    assert len(ends) == 2  # the third column is a copy
    plain = x[:, :3] - x[:, :3].mean(0)
    _, _, directions = torch.linalg.svd(plain, full_matrices=False)
    for rows, direction in zip(ends, directions, strict=False):
        places = (plain @ direction).argsort()
        assert set(rows.tolist()) == set(torch.cat([places[:5], places[-5:]]).tolist())


def test_below_500_rows_starts_have_not_seen_the_ends():
    X, y = table()
    found = regressor(shift="extrapolate").fit(X, y)
    (ends,) = end_rows(torch.tensor(found.standardised_inputs(X)))
    for result in found.results_.values():
        for held in result.held_out.values():
            assert sorted(held.rows.tolist()) == sorted(ends.tolist())
    shares = dict.fromkeys(found.results_, 0.0)
    for (name, _), weight in zip(found.members_, found.weights_, strict=True):
        shares[name] += weight
    densities = {
        name: torch.distributions.Normal(held.mean, held.variance.sqrt())
        .log_prob(found.model_.train_targets[held.rows])
        .mean()
        for name, result in found.results_.items()
        for held in [result.held_out[1]]
    }
    assert max(shares, key=shares.__getitem__) == max(densities, key=densities.__getitem__)


def test_what_goes_on_beyond_the_ends_weighs_more():
    """From 500 rows on posteriors leave the ends out: a line predicts them, RBF does not."""
    X, y = table(500)
    line, bumps = LinearKernel(), RBFKernel()
    weights = {}
    for shift in ("none", "extrapolate"):
        found = regressor([line, bumps], iterations=8, shift=shift).fit(X, y)
        weights[shift] = sum(
            weight
            for (name, _), weight in zip(found.members_, found.weights_, strict=True)
            if name == "LinearKernel"
        )
    assert weights["none"] < 0.2
    assert weights["extrapolate"] > 0.5
    far = np.array([[2.0]])
    assert found.predict(far) > 3  # the line has 6 there, RBF alone 0.3
    lower, upper = found.predict_interval(far, 0.9)
    assert lower < 6 < upper
    assert not found.noise_depends_
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(far), found.predict(far))


def test_sparse_predictions_are_weighed_by_ends_within_blocks():
    X, y = table(500)
    found = regressor(
        [LinearKernel(), RBFKernel()],
        shift="extrapolate",
        method="sparse",
        num_inducing=100,
        block_size=100,
        restarts=1,
    ).fit(X, y)
    assert found.members_[int(found.weights_.argmax())][0] == "LinearKernel"


def test_categories_alone_have_no_ends():
    X, y = table()
    texts = pd.DataFrame({"side": np.where(X[:, 0] > 0, "right", "left")})
    found, plain = (
        regressor("rbf", shift=shift).fit(texts, y) for shift in ("extrapolate", "none")
    )
    np.testing.assert_array_equal(found.predict(texts), plain.predict(texts))


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="shift must be one of"):
        regressor(shift="far").fit(*table())
