"""NaN, infinities, overflow and underflow are what they are in plain evaluation."""

import math
from itertools import product

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel

from gpytorch_nkn.kernels import (
    CategoricalKernel,
    CenteredLinearKernel,
    DampedTrendKernel,
    IntegratedWienerKernel,
    NeuralKernelNetwork,
    SpectralComponentKernel,
    StepKernel,
    WienerKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Linear
from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.evaluation.networks import PATHS, PATHS_HERE, evaluate, rough_inputs

KERNELS = {
    "rbf": RBFKernel,
    "rbf-ard": lambda: RBFKernel(ard_num_dims=2),
    "matern12": lambda: MaternKernel(nu=0.5),
    "matern32": lambda: MaternKernel(nu=1.5),
    "matern52": lambda: MaternKernel(nu=2.5),
    "matern52-ard": lambda: MaternKernel(nu=2.5, ard_num_dims=2),
    "rq": RQKernel,
    "periodic": PeriodicKernel,
    "zero-mean": lambda: ZeroMeanPeriodicKernel(active_dims=(0,)),
    "linear": LinearKernel,
    "linear-ard": lambda: LinearKernel(ard_num_dims=2),
    "categorical": lambda: CategoricalKernel(ard_num_dims=2),
    "centered": lambda: CenteredLinearKernel().requires_grad_(),
    "spectral": SpectralComponentKernel,
    "spectral-ard": lambda: SpectralComponentKernel(ard_num_dims=2),
    "step-after": lambda: StepKernel(location=0.3, active_dims=(0,)),
    "step-before": lambda: StepKernel("before", location=0.3, active_dims=(0,)),
    "wiener": lambda: WienerKernel(origin=-3.0, active_dims=(0,)),
    "damped-trend": lambda: DampedTrendKernel(origin=-3.0, active_dims=(0,)),
    "integrated-wiener": lambda: IntegratedWienerKernel(origin=-3.0, active_dims=(0,)),
}

# At an infinite input, what came before a walk goes on, and a step is over.
LIMITS = ("damped-trend", "step-after", "step-before", "wiener")


def network_of(kernel, *layers):
    return NeuralKernelNetwork([kernel], list(layers) or [Linear(1, 1)])


def values(path, network, x1, x2=None):
    with kernel_evaluation(path), torch.no_grad():
        return network(x1, x2).to_dense()


@pytest.mark.parametrize("name", KERNELS)
def test_infinite_parameters_give_the_limit_or_nothing_finite(name):
    x1, x2 = rough_inputs(9, 2) + 0.1, rough_inputs(8, 2) + 0.7
    for parameter, bad in product(dict(KERNELS[name]().named_parameters()), (-math.inf, math.inf)):
        network = network_of(KERNELS[name]())
        raw = network.primitives[0].get_parameter(parameter).data.fill_(math.nan)
        for path in PATHS_HERE:
            assert not values(path, network, x1, x2).isfinite().any(), (parameter, path)
        raw.fill_(bad)
        _assert_as_plain_or_limit(network, raw, x1, x2)


@pytest.mark.parametrize("name", KERNELS)
def test_a_bad_input_gives_no_finite_garbage_and_spoils_no_others(name):
    network, x1, x2 = network_of(KERNELS[name]()), rough_inputs(9, 2) + 0.1, rough_inputs(8, 2)
    others = [i for i in range(9) if i != 3]
    good = values("plain", network, x1[others], x2)
    for bad, path in product((math.nan, math.inf, -math.inf, 1e12), PATHS_HERE):
        x1[3, 0] = bad
        plain = values("plain", network, x1, x2)
        actual = values(path, network, x1, x2)
        far_away = actual[3][actual[3].isfinite()]
        if math.isnan(bad):
            assert not far_away.numel(), path
        elif name in LIMITS:
            torch.testing.assert_close(actual[3], plain[3])
        elif (
            math.isinf(bad) and far_away.numel()
        ):  # a stationary kernel has decayed: what is left is the bias
            torch.testing.assert_close(far_away, network.layers[0].bias.expand_as(far_away))
        torch.testing.assert_close(actual[others], good)


@pytest.mark.parametrize("name", KERNELS)
def test_underflow_far_away(name):
    network = network_of(KERNELS[name](), Linear(1, 1, bias=False))
    x1, near = torch.tensor([[0.0, 0.1], [0.3, 0.0]]), torch.tensor([[0.0, 0.2], [0.2, 0.5]])
    for distance, path in product((10.0, 38.0, 1e8, 1e160), PATHS_HERE):
        x2 = near + torch.tensor([[0.0], [distance]])
        expected = values("plain", network, x1, x2)
        actual = values(path, network, x1, x2)
        if distance < 1e8 or name not in ("periodic", "zero-mean"):  # whose phase is lost by then
            _assert_as_plain(actual, expected, absolute=1e-300)
        assert not (actual.isfinite() & (actual.abs() > 1e-300) & (expected == 0)).any(), path


@pytest.mark.parametrize("name", KERNELS)
def test_tiny_and_huge_parameters(name):
    x1, x2 = rough_inputs(4, 2) + 0.1, rough_inputs(3, 2) + 0.7
    names = dict(KERNELS[name]().named_parameters()).keys() - {"center"}
    for parameter, raw in product(sorted(names), (-700.0, -36.0, 19.9, 20.1, 700.0)):
        if parameter == "raw_period_length" and raw < -20:  # phases beyond what doubles resolve
            continue
        network = network_of(KERNELS[name](), Linear(1, 1, bias=False))
        data = network.primitives[0].get_parameter(parameter).data.fill_(raw)
        absolute = 1e-14 if name == "zero-mean" else 1e-300  # a difference of numbers near one
        _assert_as_plain_or_limit(network, data, x1, x2, absolute)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ard", [None, 3])
@pytest.mark.parametrize("raw", [-3.0, -7.0, -10.0])
def test_gradients_of_tiny_lengthscales(raw, ard, path):
    """Against explicit differences: GPyTorch's distances lose digits as closed forms do."""
    kernel = RBFKernel(ard_num_dims=ard)
    kernel.raw_lengthscale.data[..., -1] = raw
    lengthscale = kernel.lengthscale.detach()
    x1 = torch.randn(6, 3)
    x2 = x1 + lengthscale * torch.randn(6, 3)
    x1, x2 = torch.cat([x1, torch.randn(3, 3)]), torch.cat([x2, x1[:2]])
    weights = torch.randn(9, 8)
    found = evaluate(path, NeuralKernelNetwork([kernel], []), x1, x2, weights)
    difference = (x1.unsqueeze(-2) - x2.unsqueeze(-3)) / kernel.lengthscale
    expected = difference.square().sum(-1).mul(-0.5).exp()
    assert 0.1 < expected.max() <= 1
    slope = torch.autograd.grad((weights * expected).sum(), kernel.raw_lengthscale)[0]
    scale = slope.abs().max()
    shortest = float(lengthscale.min())
    tolerance = 1e-13 / shortest if path == "compiled" else 3e-14 / shortest**2
    torch.testing.assert_close(found["values"], expected, rtol=0, atol=tolerance)
    gradient = found["primitives.0.raw_lengthscale"]
    torch.testing.assert_close(gradient, slope, rtol=0, atol=float(10 * tolerance * scale))


def _assert_as_plain(actual, expected, absolute=0.0):
    """Close where plain values are finite, infinite or NaN where those are."""
    finite = expected.isfinite()
    torch.testing.assert_close(actual[finite], expected[finite], rtol=1e-9, atol=absolute)
    assert not actual[~finite].isfinite().any()


def _assert_as_plain_or_limit(network, raw, x1, x2, absolute=0.0):
    """Finite values equal plain evaluation, or are near the values at a less extreme parameter."""
    expected = values("plain", network, x1, x2)
    found = [values(path, network, x1, x2) for path in PATHS_HERE]
    raw.clamp_(-20.0, 1e6)
    limit = None
    for actual in found:
        both = expected.isfinite() & actual.isfinite()
        torch.testing.assert_close(actual[both], expected[both], rtol=1e-9, atol=absolute)
        ours = actual.isfinite() & ~expected.isfinite()
        if ours.any():
            limit = values("plain", network, x1, x2) if limit is None else limit
            torch.testing.assert_close(actual[ours], limit[ours], rtol=1e-4, atol=1e-4)
