import math

import numpy as np
import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

from gpytorch_nkn.initialization import initialize_from_data
from gpytorch_nkn.interpretation import expand
from gpytorch_nkn.kernels import ChangePointKernel, NeuralKernelNetwork, StepKernel
from gpytorch_nkn.layers import Linear


def logistic(x, location, width):
    return 1 / (1 + math.exp(-(x - location) / width))


def test_values_equal_the_formula_written_out():
    a, b, location, width = 0.7, 1.6, 1.2, 0.3
    first = RBFKernel().initialize(lengthscale=0.8)
    second = PeriodicKernel().initialize(lengthscale=1.3, period_length=2.1)
    s, t = logistic(a, location, width), logistic(b, location, width)
    smooth = math.exp(-((a - b) ** 2) / (2 * 0.8**2))
    cycle = math.exp(-2 * math.sin(math.pi * (a - b) / 2.1) ** 2 / 1.3)
    expected = (1 - s) * smooth * (1 - t) + s * cycle * t
    x, y = torch.tensor([[a]]), torch.tensor([[b]])
    kernel = ChangePointKernel(first, second, location=location, width=width)
    assert expected > 0.05
    assert kernel(x, y).to_dense().item() == pytest.approx(expected, rel=1e-12)
    step = StepKernel(location=location, width=width)
    assert step(x, y).to_dense().item() == pytest.approx(s * t, rel=1e-12)
    step = StepKernel("before", location=location, width=width)
    assert step(x, y).to_dense().item() == pytest.approx((1 - s) * (1 - t), rel=1e-12)


def test_several_changes_equal_the_formula_of_gpflow():
    """gpflow.kernels.ChangePoints: starters and stoppers of sorted locations, written in NumPy."""
    kernels = [RBFKernel(), LinearKernel(), PeriodicKernel()]
    x = np.linspace(-2, 3, 11)
    location, width = np.array([-0.4, 1.1]), np.array([0.2, 0.5])
    sigmoids = 1 / (1 + np.exp(-(x[:, None, None] - location) / width))  # N x 1 x C
    starters = sigmoids * sigmoids.transpose(1, 0, 2)
    stoppers = (1 - sigmoids) * (1 - sigmoids.transpose(1, 0, 2))
    ones = np.ones((11, 11, 1))
    inputs = torch.as_tensor(x)[:, None]
    stack = np.stack([k(inputs).to_dense().detach().numpy() for k in kernels], -1)
    parts = np.concatenate([ones, starters], -1) * np.concatenate([stoppers, ones], -1)
    expected = torch.as_tensor((stack * parts).sum(-1))
    # in any order: they are sorted, each with its width
    for order in ([0, 1], [1, 0]):
        kernel = ChangePointKernel(
            *kernels, location=torch.tensor(location[order]), width=torch.tensor(width[order])
        )
        torch.testing.assert_close(kernel(inputs).to_dense().detach(), expected)


def test_parts_see_their_own_columns_and_change_along_another():
    x = torch.randn(7, 3)
    first, second = RBFKernel(active_dims=(0,)), LinearKernel(active_dims=(2,))
    kernel = ChangePointKernel(first, second, location=0.1, width=0.2, switch_dim=1)
    s = torch.sigmoid((x[:, [1]] - 0.1) / 0.2)
    expected = (1 - s) * first(x).to_dense() * (1 - s.mT) + s * second(x).to_dense() * s.mT
    torch.testing.assert_close(kernel(x).to_dense(), expected)


def test_float64_times_keep_their_digits_under_the_default_dtype_float32():
    torch.set_default_dtype(torch.float32)
    time = torch.tensor(1.7e9 + 13, dtype=torch.float64)
    steps = StepKernel(location=time), ChangePointKernel(RBFKernel(), RBFKernel(), location=time)
    assert all(kernel.double().location == time for kernel in steps)


def test_bad_arguments():
    with pytest.raises(ValueError, match="side must be 'before' or 'after', got 'left'"):
        StepKernel("left")
    with pytest.raises(ValueError, match="width must be finite and positive, got -1.0"):
        StepKernel(width=-1.0)
    with pytest.raises(ValueError, match="location must be finite, got nan"):
        StepKernel(location=math.nan)
    with pytest.raises(ValueError, match=r"a number or of shape \(1, 1\), got \(2,\)"):
        StepKernel(location=torch.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="at least 2 kernels, got 1"):
        ChangePointKernel(RBFKernel())
    with pytest.raises(TypeError, match=r"gpytorch\.kernels\.Kernel, got 3"):
        ChangePointKernel(RBFKernel(), 3)
    with pytest.raises(ValueError, match="switch_dim must be at least 0, got -1"):
        ChangePointKernel(RBFKernel(), RBFKernel(), switch_dim=-1)
    with pytest.raises(ValueError, match="switch_dim=2 is out of range for 1 input columns"):
        ChangePointKernel(RBFKernel(), RBFKernel(), switch_dim=2)(torch.rand(3, 1)).to_dense()


def test_start_values_are_where_the_targets_change():
    torch.manual_seed(0)
    x = torch.linspace(0, 20, 100).unsqueeze(-1)
    y = torch.where(x[:, 0] < 13, 0.0, 4.0) + torch.randn(100)
    kernel = ScaleKernel(ChangePointKernel(RBFKernel(), RBFKernel()))
    initialize_from_data(kernel, x, y)
    assert kernel.base_kernel.location.item() == pytest.approx(13.0, abs=0.6)
    assert 0 < kernel.base_kernel.width.item() < 2
    steps = [StepKernel("before", active_dims=(0,)), StepKernel(active_dims=(0,))]
    initialize_from_data(NeuralKernelNetwork(steps, [Linear(2, 1)]), x, y)
    assert [step.location.item() for step in steps] == pytest.approx([13.0, 13.0], abs=0.6)
    bounded = StepKernel(location=2.0)
    bounded.register_constraint("raw_location", Interval(0.0, 5.0))
    initialize_from_data(bounded, x, y)
    assert 4.9 < bounded.location.item() < 5.0
    frozen = StepKernel(location=2.0)
    frozen.raw_location.requires_grad_(False)
    initialize_from_data(frozen, x, y, restart=3)
    assert frozen.location.item() == 2.0
    for few in (x[:1], torch.zeros(3, 1)):
        initialize_from_data(kernel, few, few[:, 0])
        assert all(p.isfinite().all() for p in kernel.parameters())


def test_expansion_splits_change_points_into_products():
    x = torch.rand(9, 2)
    parts = RBFKernel(active_dims=(0,)), LinearKernel(active_dims=(1,)), PeriodicKernel()
    kernel = ScaleKernel(
        ChangePointKernel(*parts, location=torch.tensor([0.7, 0.3]), width=0.1, switch_dim=1)
    )
    expansion = expand(kernel, x)
    torch.testing.assert_close(expansion.evaluate(x), kernel(x).to_dense().detach())
    families = {term.signature for term in expansion.terms}
    assert families == {
        ("BEFORE[1]", "RBF[0]"),
        ("AFTER[1]", "BEFORE[1]", "LIN[1]"),
        ("AFTER[1]", "PER[0, 1]"),
    }
