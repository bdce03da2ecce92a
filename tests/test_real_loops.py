"""Loops as they are in use: noise, batches, constraints, several objectives, categories."""

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.optim import optimize_acqf, optimize_acqf_mixed_alternating
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP

MODELS = [NKNSingleTaskGP, StructureEnsembleGP]
SEARCH = {"num_restarts": 1, "raw_samples": 2, "options": {"maxiter": 2}}
BOUNDS = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)


def outcomes(x):
    """Two columns; the less of one, the more of the other."""
    return torch.stack([(4 * x[..., 0]).sin() + x[..., 1], x[..., 2] - x[..., 1]], -1)


def fitted(cls, x, y, **options):
    if cls is StructureEnsembleGP:
        options |= {"structures": ("optimization", "matern"), "num_members": 2}
    model = cls(x, y, **options)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), max_iterations=2)
    return model


def points(rows=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, 3, generator=generator, dtype=torch.float64)


@pytest.fixture(scope="module", params=MODELS, ids=lambda cls: cls.__name__)
def models(request):
    x = points()
    return [fitted(request.param, x, y[:, None]) for y in outcomes(x).unbind(-1)]


def sampler(count=8):
    return SobolQMCNormalSampler(torch.Size([count]), seed=0)


def check(candidates, q):
    assert candidates.shape == (q, 3)
    assert ((candidates >= 0) & (candidates <= 1)).all()
    assert len(candidates.unique(dim=0)) == q


@pytest.mark.parametrize("cls", MODELS)
def test_noisy_values_in_batches_again_and_again(cls):
    x = points(8)
    noise = torch.Generator().manual_seed(1)
    y = outcomes(x)[:, :1]
    for _ in range(2):
        y = y + 0.1 * torch.randn(y.shape, generator=noise, dtype=y.dtype)
        acqf = qLogNoisyExpectedImprovement(fitted(cls, x, y), x, sampler=sampler())
        candidates, _ = optimize_acqf(acqf, BOUNDS, q=2, sequential=True, **SEARCH)
        check(candidates, 2)
        x, y = torch.cat([x, candidates]), torch.cat([y, outcomes(candidates)[:, :1]])


def test_an_outcome_that_must_be_small(models):
    """Where the constraint is broken there is less to gain than where it is kept."""
    acqf = qLogNoisyExpectedImprovement(
        ModelListGP(*models),
        points(),
        sampler=sampler(),
        objective=GenericMCObjective(lambda values, X=None: values[..., 0]),
        constraints=[lambda values: values[..., 1]],
    )
    kept = torch.tensor([[0.4, 0.95, 0.1]], dtype=torch.float64)
    broken = torch.tensor([[0.4, 0.95, 1.0]], dtype=torch.float64)
    assert acqf(kept[:, None]) > acqf(broken[:, None])
    check(optimize_acqf(acqf, BOUNDS, q=1, **SEARCH)[0], 1)


def test_points_that_are_under_way(models):
    """Beside a point whose value is awaited there is little more to gain."""
    pending = torch.tensor([[0.4, 0.95, 0.5]], dtype=torch.float64)
    acqf = qLogNoisyExpectedImprovement(models[0], points(), sampler=sampler(64))
    alone = acqf(pending[:, None])
    acqf.set_X_pending(pending)
    assert acqf(pending[:, None] + 1e-3) < alone - 0.5


def test_fixed_columns(models):
    acqf = qLogNoisyExpectedImprovement(models[0], points(), sampler=sampler())
    candidate, _ = optimize_acqf(acqf, BOUNDS, q=1, fixed_features={1: 0.25}, **SEARCH)
    assert candidate[0, 1] == 0.25


@pytest.mark.parametrize("cls", MODELS)
def test_categories_and_integers_are_searched_in_turn_with_numbers(cls):
    x = points(8)
    x[:, 2] = (3 * x[:, 2]).floor()
    y = outcomes(x / torch.tensor([1.0, 1.0, 2.0]))[:, :1]
    acqf = qLogNoisyExpectedImprovement(fitted(cls, x, y, cat_dims=[2]), x, sampler=sampler())
    quarters = [0.0, 0.25, 0.5, 0.75, 1.0]
    candidates, _ = optimize_acqf_mixed_alternating(
        acqf,
        BOUNDS * torch.tensor([1.0, 1.0, 2.0]),
        discrete_dims={1: quarters},
        cat_dims={2: [0.0, 1.0, 2.0]},
        q=2,
        num_restarts=1,
        raw_samples=2,
        options={"maxiter_alternating": 1, "maxiter_init": 1, "maxiter_continuous": 1},
    )
    assert set(candidates[:, 1].tolist()) <= set(quarters)
    assert set(candidates[:, 2].tolist()) <= {0.0, 1.0, 2.0}
