"""Everything that reads a model reads models of correlated tasks, with the task as a column."""

import re

import numpy as np
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel

from gpytorch_nkn.interpretation import decompose, effects, expand, report, simplify
from tests.multitask_models import KINDS, Wide, make_multitask, predict_task

POINTS = torch.rand(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
COLUMN = {kind: 1 if kind == "MultiTaskGP" else 2 for kind in KINDS}  # of the task


def with_task(kind, x, task):
    column = COLUMN[kind]
    return torch.cat([x[:, :column], torch.full((len(x), 1), task), x[:, column:]], -1)


@pytest.mark.parametrize("kind", KINDS)
def test_components_add_up_to_the_posterior_of_every_task(kind):
    model = make_multitask(kind)
    split = decompose(model)
    for task in (0, 1):
        found = split.posterior(with_task(kind, POINTS, task))
        expected = predict_task(model, POINTS, task).numpy()
        np.testing.assert_allclose(found.total_mean, expected, rtol=1e-3)
    assert "task" in str(split)


@pytest.mark.parametrize("kind", ["LCMKernel", "MultiTaskGP"])
def test_effect_of_the_task_is_the_average_difference_of_the_tasks(kind):
    model = make_multitask(kind)
    found = effects(model, samples=64)
    (effect,) = [one for one in found.main if one.columns == (COLUMN[kind],)]
    assert list(effect.levels[0]) == ["0", "1"]
    x = model.train_inputs[0]
    x = getattr(model, "_original_train_inputs", x) if hasattr(model, "input_transform") else x
    x = x[:, [0, 2]] if kind == "MultiTaskGP" else x[:, :2]
    first, second = (predict_task(model, x, task).mean() for task in (0, 1))
    assert effect.mean[1] - effect.mean[0] == pytest.approx(float(second - first), rel=1e-3)


@pytest.mark.parametrize("kind", ["index", "KroneckerMultiTaskGP"])
def test_expansion_and_report_name_the_task(kind):
    model = make_multitask(kind)
    assert all("Index" in term.label for term in expand(model).terms[:2])
    text = str(report(model, progress=False))
    assert "about the means of the tasks" in " ".join(text.split())
    found = re.search(r"0 and 1 (\S+) \((\S+) to (\S+)\)", text)
    means = [predict_task(model, POINTS, task).numpy() for task in (0, 1)]
    middle, lower, upper = map(float, found.groups())
    assert lower - 0.01 < np.corrcoef(means)[0, 1] < upper + 0.01 and lower < middle < upper


def test_simplification_of_tasks_is_a_kernel_of_gpytorch():
    found = simplify(make_multitask("index"), max_terms=1, max_candidates=1, progress=False)
    assert {type(part).__module__.split(".")[0] for part in found.kernel.modules()} <= {
        "gpytorch",
        "torch",
    }
    assert found.loss < 0.2


def test_models_without_a_long_form_are_rejected():
    with pytest.raises(NotImplementedError, match="got a MultitaskGaussianLikelihood of rank 1"):
        expand(Wide(MultitaskKernel(RBFKernel(), num_tasks=2), rank=1).eval())

    class Shifted(Wide):
        def forward(self, x):
            return super().forward(2 * x)

    with pytest.raises(NotImplementedError, match="must return its mean_module.*got another prior"):
        decompose(Shifted(MultitaskKernel(RBFKernel(), num_tasks=2)).double().eval())


def test_values_of_other_tasks_are_rejected():
    split = decompose(make_multitask("MultiTaskGP"))
    with pytest.raises(ValueError, match=r"Tasks must be among \[0, 1\], got \[4.0\]"):
        split.posterior(torch.tensor([[0.1, 4.0, 0.2]]))


@pytest.mark.parametrize("kind", ["MultitaskKernel", "MultiTaskGP"])
def test_shares_are_of_the_variation_within_a_task(kind):
    model = make_multitask(kind)
    split = decompose(model)
    gp = split.gp
    tasks = gp.inputs[:, gp.task_column]
    fitted = split.posterior_at(gp.inputs).mean - split.gp.units.y_offset * torch.tensor(
        [[float(part.has_mean)] for part in split.components]
    )
    y = gp.units.y_scale * gp.targets
    shares, left, size = 0.0, 0.0, 0.0
    for task in (0, 1):
        own = fitted[:, tasks == task] - fitted[:, tasks == task].mean(-1, keepdim=True)
        target = y[tasks == task] - y[tasks == task].mean()
        shares = shares + (own * own.sum(0)).sum(-1) / target.var()
        left += (target - own.sum(0)).square().sum() / target.square().mean() / len(y)
        size += own.sum(0).square().sum() / target.var()
    np.testing.assert_allclose(split.shares, shares / size, rtol=0.02, atol=0.01)
    assert split.explained[-1] == pytest.approx(1 - float(left), abs=1e-4)
    assert "about the means of the tasks" in str(split)


def test_indices_of_columns_are_of_the_variation_within_a_task():
    model = make_multitask("MultiTaskGP")
    found = effects(model, samples=1024)
    assert found.first_order[COLUMN["MultiTaskGP"]] == pytest.approx(0, abs=0.03)
    assert found.total_order[0] > 0.3
    assert "about the means of the tasks" in " ".join(str(found).split())
