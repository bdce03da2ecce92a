import warnings

import numpy as np
import pytest
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    LogExpectedImprovement,
    PosteriorMean,
    qLogExpectedImprovement,
)
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from torch import Tensor

from gpytorch_nkn.bo import group_acquisition, optimize_acqf_by_groups

DIM = 8
GROUPS = [(0, 3), (1,), (2, 4), (5,), (6,), (7,)]
BOUNDS = torch.tensor([[-4.0] * DIM, [4.0] * DIM], dtype=torch.float64)


class Sum(AcquisitionFunction):
    """Sum over columns, or groups of two, of functions with many local optima."""

    def __init__(self, groups=GROUPS):
        super().__init__(model=SingleTaskGP(torch.rand(3, DIM), torch.rand(3, 1)))
        self.groups = groups
        self.points = []

    def forward(self, X: Tensor) -> Tensor:
        self.points.append(X.detach())
        total = 0.0
        for number, group in enumerate(self.groups):
            x = X[..., list(group)].sum(-1) - number / 3  # one optimum, at zero, among waves
            total = total + torch.cos(4 * x) - 0.1 * x.square()
        return total.mean(-1)  # over q


BEST = float(len(GROUPS))


def find(acq_function, **options):
    options = {"bounds": BOUNDS, "groups": GROUPS, **options}
    return optimize_acqf_by_groups(acq_function, **options)


def test_one_sweep_finds_the_optimum_of_a_sum_over_the_groups():
    acq_function = Sum()
    candidate, value = find(acq_function, sweeps=1)
    assert candidate.shape == (1, DIM) and value.dim() == 0
    assert value.item() == pytest.approx(BEST, abs=1e-4)
    assert acq_function(candidate.unsqueeze(0)).item() == pytest.approx(value.item())
    # a joint search with twenty times as many starts is lost among the local optima
    torch.manual_seed(0)
    _, joint = optimize_acqf(acq_function, BOUNDS, q=1, num_restarts=20, raw_samples=512)
    assert joint < BEST - 0.05


def test_several_candidates_move_together():
    candidate, value = find(Sum(), q=3, sweeps=3, raw_samples=256, num_restarts=8)
    assert candidate.shape == (3, DIM) and value.item() > BEST - 0.5


def test_never_worse_than_the_best_starting_point():
    acq_function, points = Sum(), 8 * torch.rand(3, DIM) - 4
    before = acq_function(points.unsqueeze(1))
    for sweeps in (0, 1):
        _, value = find(
            acq_function, incumbent=points, sweeps=sweeps, raw_samples=1, num_restarts=1
        )
        assert value >= before.max()
    optimum = torch.zeros(DIM)
    for number, group in enumerate(GROUPS):
        optimum[group[0]] = number / 3
    candidate, value = find(acq_function, incumbent=optimum, raw_samples=2)
    torch.testing.assert_close(candidate.squeeze(0), optimum, rtol=0, atol=1e-4)


def test_a_search_that_ends_lower_changes_nothing(monkeypatch):
    def fail(acq_function, bounds, q, **options):
        corner = bounds[0].expand(q, -1)
        return corner, acq_function(corner.unsqueeze(0)).squeeze(0) - 100

    monkeypatch.setattr(group_acquisition, "optimize_acqf", fail)
    acq_function, point = Sum(), torch.ones(1, DIM)
    candidate, value = find(acq_function, incumbent=point)
    assert torch.equal(candidate, point) and value == acq_function(point.unsqueeze(0)).squeeze()


def test_shapes_of_the_incumbent():
    acq_function, point = Sum(), torch.ones(DIM)
    few = {"sweeps": 1, "raw_samples": 4, "num_restarts": 1}
    same = [
        find(acq_function, incumbent=p, **few)[0] for p in (point, point[None], point[None, None])
    ]
    assert torch.equal(same[0], same[1]) and torch.equal(same[0], same[2])
    pair = torch.stack([point, -point])
    both, _ = find(acq_function, q=2, incumbent=pair, **few)
    assert torch.equal(both, find(acq_function, q=2, incumbent=pair[None], **few)[0])


def test_groups_are_searched_one_by_one_until_a_sweep_brings_nothing(monkeypatch):
    searched, original = [], group_acquisition.optimize_acqf

    def record(acq_function, bounds, **options):
        searched.append(bounds.size(-1))
        return original(acq_function, bounds, **options)

    monkeypatch.setattr(group_acquisition, "optimize_acqf", record)
    _, value = find(Sum(), incumbent=torch.ones(DIM))
    assert value.item() == pytest.approx(BEST, abs=1e-4)
    sweep = [2, 1, 2, 1, 1, 1]
    assert searched == [*sweep, *sweep, DIM]  # the second one brings nothing
    searched.clear()
    find(Sum(), incumbent=torch.ones(2, DIM), sweeps=1)
    assert searched == [*sweep, *sweep, DIM]  # from two points


def test_polish_moves_what_no_group_can():
    class Ridge(AcquisitionFunction):
        """Along the diagonal it is flat, across it is steep: coordinates hardly move."""

        def forward(self, X):
            x = X[..., 0, :]
            return -1000 * (x[..., 0] - x[..., 1]).square() - (x[..., 0] + x[..., 1] - 3).square()

    acq_function = Ridge(model=SingleTaskGP(torch.rand(3, 2), torch.rand(3, 1)))
    options = {"groups": [(0,), (1,)], "incumbent": torch.zeros(2), "sweeps": 1}
    candidate, value = find(acq_function, bounds=BOUNDS[:, :2], **options)
    torch.testing.assert_close(candidate, torch.full((1, 2), 1.5), rtol=0, atol=1e-3)
    assert value > -1e-4


@pytest.mark.parametrize("groups", [[(0, 1, 2)], [(2, 0), (1,)]])
def test_acquisition_of_a_model(groups):
    x = torch.rand(12, 3)
    y = torch.sin(6 * x).sum(-1, keepdim=True)
    model, bounds = SingleTaskGP(x, y), torch.tensor([[0.0] * 3, [1.0] * 3])
    acq_function = LogExpectedImprovement(model, best_f=y.max())
    incumbent = x[y.squeeze().topk(2).indices]
    few = {"num_restarts": 2, "options": {"maxiter": 50}}
    candidate, value = optimize_acqf_by_groups(
        acq_function, bounds, groups, incumbent=incumbent, sweeps=2, raw_samples=64, **few
    )
    assert (candidate >= 0).all() and (candidate <= 1).all()
    torch.manual_seed(0)
    _, joint = optimize_acqf(acq_function, bounds, q=1, raw_samples=256, **few)
    assert value > joint - 0.05
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    mc = qLogExpectedImprovement(model, best_f=y.max(), sampler=sampler)
    few = {"sweeps": 1, "num_restarts": 1, "raw_samples": 16, "options": {"maxiter": 20}}
    candidates, _ = optimize_acqf_by_groups(mc, bounds, groups, q=2, incumbent=None, **few)
    assert candidates.shape == (2, 3) and (candidates[0] - candidates[1]).abs().max() > 1e-3


def test_equal_seeds_give_equal_candidates_and_global_state_stays():
    acq_function = PosteriorMean(SingleTaskGP(torch.rand(9, DIM), torch.rand(9, 1)))
    point, waves = torch.ones(DIM), Sum()
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), point.clone()
    results = [
        optimize_acqf_by_groups(
            acq_function, BOUNDS / 8 + 0.5, GROUPS, raw_samples=2, sweeps=1, seed=seed
        )[0]
        for seed in (1, 1)
    ]
    find(waves, incumbent=point, sweeps=1)
    assert torch.equal(*results)
    assert torch.equal(torch.get_rng_state(), before[0]) and torch.equal(point, before[2])
    assert np.array_equal(np.random.get_state()[1], before[1])


def test_options_reach_the_optimizer():
    acq_function = Sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged
        find(acq_function, incumbent=torch.ones(DIM), sweeps=1, options={"maxiter": 1})
        few = len(acq_function.points)
        find(acq_function, incumbent=torch.ones(DIM), sweeps=1)
    assert few < len(acq_function.points) - few


def test_single_precision():
    acq_function = Sum().float()
    candidate, value = find(acq_function, bounds=BOUNDS.float(), sweeps=1)
    assert candidate.dtype == value.dtype == torch.float32
    assert value.item() == pytest.approx(BEST, abs=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": GROUPS[1:]}, "columns 0 to 7 once, got"),
        ({"groups": [*GROUPS, (7,)]}, "columns 0 to 7 once, got"),
        ({"incumbent": torch.ones(3)}, r"must be k x 1 x 8, got the shape \(3,\)"),
        ({"incumbent": torch.ones(2, 3, DIM)}, r"must be k x 1 x 8, got the shape \(2, 3, 8\)"),
        ({"incumbent": torch.ones(3, DIM), "q": 2}, r"must be k x 2 x 8, got the shape \(3, 8\)"),
        ({"incumbent": torch.full((DIM,), 5.0)}, "must lie within the bounds"),
        ({"bounds": BOUNDS[0]}, "must be 2 x D and finite"),
        ({"bounds": BOUNDS * torch.inf}, "must be 2 x D and finite"),
        ({"q": 0}, "q must be at least 1, got 0"),
        ({"num_restarts": 0}, "num_restarts must be at least 1, got 0"),
        ({"raw_samples": 0}, "raw_samples must be at least 1, got 0"),
        ({"sweeps": -1}, "sweeps must be at least 0, got -1"),
    ],
)
def test_errors_name_what_came(options, message):
    with pytest.raises(ValueError, match=message):
        find(Sum(), **options)
