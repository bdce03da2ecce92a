import pickle
from functools import cache

import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.acquisition.objective import LinearMCObjective
from botorch.exceptions import InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP
from botorch.models.transforms import Log, Normalize
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import get_matheron_path_model
from botorch.utils.datasets import MultiTaskDataset, SupervisedDataset
from gpytorch.kernels import RBFKernel
from gpytorch.means import LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch.nn.functional import pad

from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.interpretation import decompose
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import NKNMultiTaskGP


def data(codes=(0, 1), offset=50.0):
    """Task one at 24 points, task two at the first 8, ten times as large and shifted."""
    x = torch.rand(24, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wave = torch.sin(7 * x)
    rows = [pad(x[:n], (0, 1), value=code) for n, code in zip((24, 8), codes, strict=True)]
    return torch.cat(rows).double(), torch.cat([wave, offset + 10 * wave[:8]])


@cache
def trained(codes=(0, 1)):
    model = NKNMultiTaskGP(*data(codes), -1, output_tasks=codes)
    return fit_bo_model(model, fresh_starts=0, max_iterations=60)


GRID = torch.linspace(0.02, 0.98, 25, dtype=torch.float64).unsqueeze(-1)


def test_a_task_of_few_points_borrows_from_the_other():
    mean = trained().posterior(GRID).mean
    truth = torch.sin(7 * GRID)
    torch.testing.assert_close(mean[:, :1], truth, atol=0.05, rtol=0)
    torch.testing.assert_close(mean[:, 1:], 50 + 10 * truth, atol=1.0, rtol=0)


def test_values_of_tasks_are_only_names():
    plain, coded = trained(), trained((3, 7))
    one, two = (model.posterior(GRID).mean for model in (plain, coded))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    noisy, exact = (coded.posterior(GRID, observation_noise=n).variance for n in (True, False))
    assert bool((noisy > exact).all())  # BoTorch's model has no noise here


def test_posterior_and_paths_agree_with_the_long_form():
    model = trained((3, 7))
    joint = model.posterior(GRID[:3])
    single = model.posterior(torch.cat([pad(GRID[:3], (0, 1), value=task) for task in (3.0, 7.0)]))
    torch.testing.assert_close(joint.mean.mT.reshape(-1, 1), single.mean)
    expected = single.distribution.covariance_matrix
    torch.testing.assert_close(joint.distribution.covariance_matrix, expected)
    torch.testing.assert_close(model.posterior(GRID, output_indices=[7]).mean[:3], single.mean[3:])
    torch.manual_seed(0)
    with torch.no_grad():
        paths = get_matheron_path_model(model, torch.Size([2048]))
        draws = paths(GRID[:3]).mT.flatten(1).mT
    with pytest.raises(ValueError, match="x q x 1, got shape .*3, 2"):
        paths(pad(GRID[:3], (0, 1), value=3.0))  # paths have an output per task
    scale = torch.outer(expected.diagonal(), expected.diagonal()).sqrt()
    torch.testing.assert_close(torch.cov(draws) / scale, expected / scale, atol=0.25, rtol=0)


@pytest.mark.parametrize("transform", [None, Log()])
def test_moments_match_botorch_with_the_same_parts(transform):
    x, y = data()
    y, kernel = 2 + y / 10, NeuralKernelNetwork.additive(1)
    options = {"outcome_transform": transform, "input_transform": Normalize(2, indices=[0])}
    ours = NKNMultiTaskGP(x, y, -1, structure=kernel, **options)
    stock = MultiTaskGP(x, y, -1, covar_module=kernel, **options)
    stock.load_state_dict(ours.state_dict())
    for noise in (False, True):
        one, two = (m.posterior(GRID, observation_noise=noise) for m in (ours, stock))
        torch.testing.assert_close(one.mean, two.mean)
        torch.testing.assert_close(one.variance, two.variance, rtol=1e-4, atol=1e-8)


def test_optimisation_of_one_task_with_data_of_another():
    model = NKNMultiTaskGP(*data(), -1, output_tasks=[1])
    model.load_state_dict(trained().state_dict())
    model = pickle.loads(pickle.dumps(model.eval()))
    function = qLogExpectedImprovement(model, best_f=50.0)
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    point, _ = optimize_acqf(function, bounds, q=1, num_restarts=2, raw_samples=8)
    assert abs(float(point) - torch.pi / 14) < 0.05
    weighted = LinearMCObjective(torch.tensor([1.0, -1.0], dtype=torch.float64))
    both = qLogExpectedImprovement(trained(), best_f=-40.0, objective=weighted)
    assert both(GRID[:3].unsqueeze(-2)).shape == (3,)


def test_ax_and_botorch_make_it_of_a_data_set():
    x, y = data()
    parts = [
        SupervisedDataset(x[rows], y[rows], feature_names=["x", "task"], outcome_names=[name])
        for rows, name in ((slice(24), "old"), (slice(24, None), "new"))
    ]
    dataset = MultiTaskDataset(parts, target_outcome_name="new", task_feature_index=-1)
    options = NKNMultiTaskGP.construct_inputs(dataset, task_feature=1, output_tasks=[1])
    assert NKNMultiTaskGP(**options).posterior(GRID).mean.shape == (25, 1)


def test_fit_gpytorch_mll_trains_and_readers_read_it():
    model = NKNMultiTaskGP(*data(), -1, structure="additive")
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), max_iterations=3)
    assert "task" in str(decompose(model))


@pytest.mark.parametrize("rows", [[0, 24], [0, 1, 24], [*range(25)], [0, 1, 24, 24]])
def test_predictions_of_tasks_with_few_outcomes_have_their_unit(rows):
    """Task 1 has one outcome (or the same twice) and task 2 none."""
    (x, y), tasks = data(), torch.tensor([2, 1, 0, 2])
    one, two = (
        NKNMultiTaskGP(x[rows], unit * y[rows], -1, all_tasks=tasks).posterior(GRID)
        for unit in (1.0, 1000.0)
    )
    torch.testing.assert_close(two.mean, 1000 * one.mean)
    torch.testing.assert_close(two.variance, 1e6 * one.variance)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda x: x + 0.5, {}, r"Tasks must be integers from 0 to 99999, got \[0.5, 1.5\]"),
        (lambda x: x - 1, {}, "Tasks must be integers from 0"),
        (lambda x: 1e9 * x, {}, "Tasks must be integers from 0 to 99999, got"),
        (lambda x: x, {"all_tasks": [0, 1, 10**9]}, r"from 0 to 99999, got \[1000000000\]"),
        (lambda x: x, {"all_tasks": [0]}, r"observed tasks \[0, 1\], got \[0\]"),
        (lambda x: x, {"all_tasks": RBFKernel()}, "all_tasks must be a list .* got RBFKernel"),
        (lambda x: x, {"output_tasks": []}, r"output_tasks must be a list .* got \[\]"),
        (lambda x: x, {"output_tasks": [5]}, r"in all_tasks, \[0, 1\], got \[5\]"),
        (lambda x: x, {"rank": 3}, "rank must be at most 2, the tasks, got 3"),
        (lambda x: x, {"task_feature": 2}, "task_feature must be the index .* got 2 for 2"),
        (lambda x: x, {"task_feature": "t"}, "task_feature must be an integer, got 't'"),
        (lambda x: x, {"structure": 3}, "structure must be a name or a kernel, got int"),
        (lambda x: x, {"mean_module": LinearMean(1)}, "mean_module does not fit inputs of shape"),
    ],
)
def test_bad_tasks_are_rejected(change, options, message):
    x, y = data()
    rows = torch.cat([x[:, :1], change(x[:, 1:])], -1)
    with pytest.raises((TypeError, ValueError), match=message):
        NKNMultiTaskGP(rows, y, **{"task_feature": -1, **options})
    with pytest.raises(InputDataError, match="share the same dtype"):
        NKNMultiTaskGP(x.float(), y, -1)


def test_points_are_checked():
    model, row = NKNMultiTaskGP(*data(), -1), torch.tensor([[0.1, 0.0]])
    add = model.eval().condition_on_observations
    model.posterior(row)
    messages = "finite", r"among \[0, 1\], got \[0.5\]", r"\(2, 3\)"
    for x, message in zip((row * torch.nan, row + 0.5, torch.zeros(2, 3)), messages, strict=True):
        for call in (model.posterior, lambda x: add(x, x[:, :1])):
            with pytest.raises(ValueError, match=message):
                call(x)
    for x, y in ((row[:, :1], row[:, :1]), (row, row), (row, row[:, :1] * torch.nan)):
        with pytest.raises(ValueError, match="must be"):
            add(x, y)
