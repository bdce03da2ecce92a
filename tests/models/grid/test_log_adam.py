import math
import time

import gpytorch
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import PeriodicKernel, RBFKernel, SpectralMixtureKernel
from torch.nn.functional import softplus

from gpytorch_nkn.models.grid.log_adam import LogAdam, LogParameters, period_counts


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
    return model, LogParameters(model, counts)


def entry(model, parameters, name):
    """Position in the vector of a parameter of one entry."""
    names = [n for n, p in model.named_parameters() if p.requires_grad for _ in range(p.numel())]
    assert len(names) == len(parameters.values)
    return names.index(name)


@pytest.mark.parametrize("cycles", [None, 8.0])
def test_gradient_equals_finite_differences_in_the_vector(cycles):
    model, parameters = make(cycles)
    parameters.values += 0.1
    parameters.write()
    model.loss().backward()
    gradient = parameters.gradient()
    assert all(p.grad is None for p in model.parameters())
    numeric = []
    for number in range(len(gradient)):
        values = []
        for step in (1e-5, -1e-5):
            parameters.values[number] += step
            parameters.write()
            values.append(model.loss().item())
            parameters.values[number] -= step
        numeric.append((values[0] - values[1]) / 2e-5)
    torch.testing.assert_close(gradient, torch.tensor(numeric), rtol=1e-7, atol=1e-8)
    assert gradient.abs().min() > 1e-3


def test_a_step_is_a_share_of_a_positive_value_above_its_floor():
    model, parameters = make(cycles=8.0)
    parameters.values += math.log(2)
    parameters.write()
    assert model.kernel.lengthscale.item() == pytest.approx(0.6)
    assert model.kernel.period_length.item() == pytest.approx(5 * 2 ** (1 / 8))
    assert model.floor.lengthscale.item() == pytest.approx(0.5 + 2 * 0.2)
    torch.testing.assert_close(model.free.data, torch.tensor([-2.0, 0.3]) + math.log(2))
    assert model.frozen.item() == 4.0


def test_few_periods_do_not_make_steps_larger():
    model, parameters = make(cycles=0.2)
    parameters.values += math.log(2)
    parameters.write()
    assert model.kernel.period_length.item() == pytest.approx(10.0)


def test_write_and_restore_are_round_trips():
    model, parameters = make()
    before = parameters.snapshot()
    parameters.write()
    torch.testing.assert_close(parameters.snapshot(), before)
    parameters.values += torch.linspace(-1, 1, len(before))
    parameters.write()
    moved = parameters.snapshot()
    assert not torch.allclose(moved, before)
    parameters.restore(before)
    torch.testing.assert_close(parameters.snapshot(), before, rtol=0, atol=0)
    assert (parameters.values == 0).all()
    parameters.restore(moved)
    parameters.write()
    torch.testing.assert_close(parameters.snapshot(), moved)


@pytest.mark.parametrize("value", [1e-30, 1e-8, 1e8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_values_stay_what_they_are(value, dtype):
    kernel = RBFKernel().to(dtype)
    kernel.lengthscale = value
    start = kernel.lengthscale.item()
    parameters = LogParameters(kernel, {})
    parameters.values += math.log(1.5)
    parameters.write()
    assert kernel.lengthscale.item() == pytest.approx(1.5 * start, rel=1e-4)
    kernel.lengthscale.log().sum().backward()
    torch.testing.assert_close(parameters.gradient(), torch.ones(1, dtype=dtype), rtol=1e-4, atol=0)


def test_nothing_to_move():
    kernel = RBFKernel()
    kernel.raw_lengthscale.requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable parameters"):
        LogParameters(kernel, {})


def test_periods_and_frequencies_are_counted():
    periodic, mixture = PeriodicKernel() + RBFKernel(), SpectralMixtureKernel(num_mixtures=2)
    periodic.kernels[0].period_length = 0.5
    mixture.mixture_means = torch.tensor([3.0, 7.0]).view(2, 1, 1)
    x, t = torch.linspace(1, 4, 5)[:, None], torch.linspace(0, 2, 7)[:, None]
    counts = period_counts([periodic, mixture], [x, t])
    assert counts[id(periodic.kernels[0].raw_period_length)].item() == pytest.approx(6)
    assert counts[id(mixture.raw_mixture_means)].flatten().tolist() == pytest.approx([6, 14])
    assert len(counts) == 2


# --- Adam ---


def test_steps_equal_those_of_torch():
    """On free parameters the vector is a shift of them."""
    module = gpytorch.Module()
    module.free = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    other = torch.nn.Parameter(module.free.detach().clone())
    scale = torch.tensor([1.0, 10.0, 0.1])
    ours = LogAdam(LogParameters(module, {}), lambda: None, math.inf)
    theirs = torch.optim.Adam([other], lr=0.05)
    for _ in range(12):
        value = ours.step(lambda: (scale * module.free**2).sum(), 0.05)
        theirs.zero_grad()
        loss = (scale * other**2).sum()
        loss.backward()
        theirs.step()
        assert value == pytest.approx(loss.item())
        torch.testing.assert_close(module.free.data, other.data)
    assert ours.steps == 12


def test_it_finds_the_minimum_over_a_lengthscale():
    kernel, seen = RBFKernel(), []
    kernel.lengthscale = 40.0
    climber = LogAdam(LogParameters(kernel, {}), lambda: seen.append(1), math.inf)
    for step in range(200):
        climber.step(lambda: (kernel.lengthscale.log() - math.log(0.02)).square().sum(), 0.1)
        assert len(seen) == step + 1
    assert kernel.lengthscale.item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("failure", ["value", "gradient", "error"])
def test_a_step_that_leads_nowhere_is_halved(failure):
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

    climber = LogAdam(LogParameters(kernel, {}), lambda: None, math.inf)
    for _ in range(8):
        value = climber.step(loss, 0.1)
        assert math.isfinite(value)
    assert 1.1 < kernel.lengthscale.item() <= 1.5


def test_a_first_step_that_leads_nowhere_is_an_error():
    kernel = RBFKernel()
    climber = LogAdam(LogParameters(kernel, {}), lambda: None, math.inf)
    with pytest.raises(ArithmeticError, match="not finite"):
        climber.step(lambda: kernel.lengthscale.sum() * math.inf, 0.1)


def test_many_steps_that_lead_nowhere_are_an_error():
    kernel, calls = RBFKernel(), []

    def loss():
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("gone")
        return kernel.lengthscale.sum()

    climber = LogAdam(LogParameters(kernel, {}), lambda: None, math.inf)
    for _ in range(3):
        climber.step(loss, 0.1)
    with pytest.raises(RuntimeError, match="gone"):
        climber.step(loss, 0.1)
    assert len(calls) < 12


def test_other_errors_pass():
    kernel = RBFKernel()
    climber = LogAdam(LogParameters(kernel, {}), lambda: None, math.inf)

    def loss():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        climber.step(loss, 0.1)


def test_the_end_of_time():
    kernel = RBFKernel()
    climber = LogAdam(LogParameters(kernel, {}), lambda: None, time.monotonic() - 1)
    with pytest.raises(TimeoutError):
        climber.step(lambda: kernel.lengthscale.sum(), 0.1)
    assert climber.steps == 0
