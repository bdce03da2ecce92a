import math

import gpytorch
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import PeriodicKernel, RBFKernel
from torch.nn.functional import softplus

from gpytorch_nkn.fit import adam
from gpytorch_nkn.models.grid.fit_grid import LogParameters


class Sizes(gpytorch.Module):
    """Parameters of every kind."""

    def __init__(self):
        super().__init__()
        self.kernel = PeriodicKernel()
        self.kernel.lengthscale, self.kernel.period_length = 0.3, 5.0
        self.floor = RBFKernel(lengthscale_constraint=GreaterThan(0.5))
        self.floor.lengthscale = 0.7
        self.interval = RBFKernel(lengthscale_constraint=Interval(0.1, 2.0))
        self.free = torch.nn.Parameter(torch.tensor([-2.0, 0.3]))
        self.frozen = torch.nn.Parameter(torch.tensor(4.0), requires_grad=False)

    def loss(self):
        return (
            self.kernel.lengthscale.sum().square()
            + 2 * self.kernel.period_length.sum().sqrt()
            + self.floor.lengthscale.sum() ** 3
            + self.interval.lengthscale.sum().exp()
            + (self.free**2 * torch.tensor([1.0, 3.0])).sum()
        )


def make(cycles=None):
    model = Sizes()
    counts = {id(model.kernel.raw_period_length): torch.tensor([[cycles]])} if cycles else {}
    return model, LogParameters(model, model.loss, counts)


def one_step(parameters, rate):
    """The first step of Adam changes each parameter by its size times the rate."""
    next(adam(parameters, 1, lambda _: rate))


@pytest.mark.parametrize(("cycles", "share"), [(None, 1.0), (8.0, 1 / 8), (0.2, 1.0)])
def test_a_step_is_a_fraction_of_a_positive_value_above_its_floor(cycles, share):
    model, parameters = make(cycles)
    interval = model.interval.raw_lengthscale.item()
    one_step(parameters, 1e-3)
    assert model.kernel.lengthscale.item() == pytest.approx(0.3 * math.exp(-1e-3))
    assert model.kernel.period_length.item() == pytest.approx(5 * math.exp(-1e-3 * share))
    assert model.floor.lengthscale.item() == pytest.approx(0.5 + 0.2 * math.exp(-1e-3))
    assert model.interval.raw_lengthscale.item() == pytest.approx(interval - 1e-3)
    torch.testing.assert_close(model.free.data, torch.tensor([-2.0 + 1e-3, 0.3 - 1e-3]))
    assert model.frozen.item() == 4.0


@pytest.mark.parametrize("value", [1e-30, 1e-8, 1e8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_values_are_moved_by_fractions(value, dtype):
    kernel = RBFKernel().to(dtype)
    kernel.lengthscale = value
    start = kernel.lengthscale.item()
    one_step(LogParameters(kernel, lambda: kernel.lengthscale.log().sum(), {}), 0.01)
    assert kernel.lengthscale.item() == pytest.approx(start * math.exp(-0.01), rel=1e-4)


@pytest.mark.parametrize("failure", ["value", "gradient", "error"])
def test_a_step_to_a_loss_that_is_not_finite_is_halved(failure):
    kernel = RBFKernel()
    kernel.lengthscale = 1.0
    raw = kernel.raw_lengthscale

    def loss():
        length = softplus(raw).sum()
        if length > 1.3:
            if failure == "error":
                raise RuntimeError("not positive definite")
            if failure == "value":
                return length * math.nan
            return (length - length.detach()).sqrt()
        return -length

    losses = list(adam(LogParameters(kernel, loss, {}), 8, lambda _: 0.1))
    assert len(losses) == 8 and all(map(math.isfinite, losses))
    assert 1.1 < kernel.lengthscale.item() <= 1.5
