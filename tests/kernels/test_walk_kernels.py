"""Processes that start at an origin, compared with integrals, simulations and filters."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from scipy.integrate import quad

from gpytorch_nkn.initialization import initialize_from_data
from gpytorch_nkn.interpretation import expand
from gpytorch_nkn.interpretation.expansion import words_of
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.kernels import (
    DampedTrendKernel,
    IntegratedWienerKernel,
    NeuralKernelNetwork,
    WienerKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Linear

KERNELS = [WienerKernel, IntegratedWienerKernel, DampedTrendKernel]
RESPONSES = {  # of the process to noise a time ago
    WienerKernel: lambda time, kernel: 1.0,
    IntegratedWienerKernel: lambda time, kernel: time,
    DampedTrendKernel: lambda time, kernel: (
        kernel.lengthscale.item() * -math.expm1(-time / kernel.lengthscale.item())
    ),
}
POWERS = {WienerKernel: 1, IntegratedWienerKernel: 3, DampedTrendKernel: 3}


def value(kernel, x, y):
    return kernel(torch.tensor([[x]]), torch.tensor([[y]])).to_dense().item()


@pytest.mark.parametrize("cls", KERNELS)
@pytest.mark.parametrize("origin, unit", [(0.0, 1.0), (-1.5, 0.4), (100.0, 7.0)])
def test_values_are_integrals_over_the_noise(cls, origin, unit):
    kernel = cls(origin=origin, unit=unit)
    response = RESPONSES[cls]
    for a, b in [(0.3, 2.0), (2.0, 0.3), (1.7, 1.7), (5.0, 6.0), (1e-3, 4.0)]:
        expected, _ = quad(
            lambda s, a=a, b=b: response(a - s, kernel) * response(b - s, kernel), 0, min(a, b)
        )
        expected /= unit ** POWERS[cls]
        assert value(kernel, origin + a, origin + b) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("lengthscale", [0.02, 0.7, 3.0, 5.0, 100.0, 1e5])
@pytest.mark.parametrize("a, b", [(0.3, 2.0), (2.0, 0.3), (1.7, 1.7), (1e-3, 4.0), (50.0, 51.0)])
def test_damped_trends_of_any_lengthscale(lengthscale, a, b):
    kernel = DampedTrendKernel()
    kernel.lengthscale = lengthscale
    response = RESPONSES[DampedTrendKernel]
    expected, _ = quad(
        lambda s: response(a - s, kernel) * response(b - s, kernel),
        *(0, min(a, b)),
        points=[max(min(a, b) - lengthscale, 0)],
        epsrel=1e-12,
    )
    assert value(kernel, a, b) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("cls", KERNELS)
def test_nothing_happens_ahead_of_the_origin(cls):
    kernel = cls(origin=1.0)
    x = torch.tensor([[-3.0], [0.5], [1.0], [2.0], [4.0]], requires_grad=True)
    matrix = kernel(x).to_dense()
    assert (matrix[:3] == 0).all() and (matrix[:, :3] == 0).all() and (matrix[3:, 3:] > 0).all()
    (gradient,) = torch.autograd.grad(matrix.sum(), x)
    assert (gradient[:2] == 0).all() and gradient.isfinite().all()


@pytest.mark.parametrize("cls", KERNELS)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_start_values_from_data(cls, scale):
    x = torch.stack([torch.rand(50), scale * torch.arange(50.0).flip(0) + 3.0], -1)
    x[7, 1] = x[8, 1]  # a time that comes twice
    kernel = ScaleKernel(cls(active_dims=(1,)))
    initialize_from_data(kernel, x, x[:, 0])
    walk = kernel.base_kernel
    assert walk.origin.item() == pytest.approx(3.0 - scale)
    assert kernel(x[:1]).to_dense().item() == pytest.approx(kernel.outputscale.item())
    given = cls(origin=1.0, active_dims=(1,))
    initialize_from_data(given, x, x[:, 0])
    assert given.origin.item() == 1.0 and given(x[:1]).to_dense().item() == pytest.approx(1.0)
    for one in (x[:1], torch.zeros(3, 2)):  # no step, no span
        initialize_from_data(kernel, one, one[:, 0])
        assert walk.origin.item() == one[0, 1].item() - 1 and walk.unit.item() > 0


@pytest.mark.parametrize("cls", KERNELS)
def test_bad_arguments(cls):
    with pytest.raises(ValueError, match="unit must be positive, got -1.0"):
        cls(unit=-1.0)
    if not cls.has_lengthscale:
        with pytest.raises(TypeError, match=f"{cls.__name__} has no lengthscale"):
            cls(lengthscale_prior=GammaPrior(2.0, 2.0))


def test_expansion_knows_equal_walks_and_keeps_others_apart():
    layers = [Linear(4, 1, bias=False)]
    walks = [WienerKernel(origin=o, active_dims=(0,)) for o in (-1.0, -1.0, -2.0)]
    network = NeuralKernelNetwork([*walks, IntegratedWienerKernel(active_dims=(0,))], layers)
    x = torch.rand(9, 1)
    expansion = expand(network, x)
    assert sorted(term.label for term in expansion.terms) == ["IWIE", "WIE#1", "WIE#2"]
    torch.testing.assert_close(expansion.evaluate(x), network(x).to_dense().detach())


def test_words():
    units = Units.plain(1)
    walk, trend = WienerKernel(), IntegratedWienerKernel()

    def words(kernel):
        return words_of(expand(kernel, torch.rand(5, 1), split=False).terms[0], units)

    assert words(walk) == "a random walk"
    assert words(ScaleKernel(trend)) == "a local linear trend"
    smooth = RBFKernel().initialize(lengthscale=2.0)
    assert words(walk * smooth) == "a random walk times variation over 2.00"
    cycle = PeriodicKernel().initialize(period_length=12.0)
    assert words(trend * cycle) == "a cycle of 12.0, whose shape follows a random walk"
    assert words(walk * trend) == "a local linear trend times a random walk"


def test_shifts_and_covariates_of_a_forecast_have_terms_of_their_own():
    network = NeuralKernelNetwork.forecast(
        origin=-1, terms=["walk"], shifts=[0, 1], covariates=[1, 2], nonlinear=[2]
    )
    x = torch.tensor([[0.5, 1.3, -0.4], [2.0, -0.7, 0.9]])
    weights = network.layers[-1].weight.flatten().tolist()
    curve = math.exp(-0.5 * (1.3 / network.primitives[-1].lengthscale.item()) ** 2)
    walk, first, second = 1.5, 1.3 * -0.7, -0.4 * 0.9
    season = network.primitives[7](x[:1], x[1:]).to_dense().item()  # half a period apart
    assert isinstance(network.primitives[7], ZeroMeanPeriodicKernel) and season < -0.1
    terms = [walk, 1.0, 0.0, first, first * walk, first * season]
    terms += [second, second * walk, second * season, curve]
    expected = 10.0 + sum(weight * term for weight, term in zip(weights, terms, strict=True))
    assert network(x[:1], x[1:]).to_dense().item() == pytest.approx(expected)


def test_periods_and_columns_of_any_sequence_and_order():
    def periods(**options):
        terms = ["walk", "season", "fixed_season"]
        network = NeuralKernelNetwork.forecast(origin=0.0, terms=terms, **options)
        return sorted(
            m.period_length.item() for m in network.modules() if hasattr(m, "period_length")
        )

    expected = periods(seasons=[1.0, 12.0, 144.0], covariates=[1])
    for seasons in ([12.0, 1.0, 144.0], np.array([1.0, 12.0, 144.0]), iter([1.0, 12.0, 144.0])):
        assert periods(seasons=seasons, covariates=np.array([1])) == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seasons": 12.0}, TypeError, "seasons must be a sequence of numbers, got 12.0"),
        ({"kinks": 12.0}, TypeError, "kinks must be a sequence of numbers, got 12.0"),
        ({"cycles": [0.0]}, ValueError, "seasons and cycles must be positive, got 0.0"),
        ({"time_scale": "day"}, TypeError, "time_scale must be a number, got 'day'"),
        ({"covariates": [0]}, ValueError, "covariates must"),
        ({"covariates": [1, 1]}, ValueError, "covariates must"),
        ({"covariates": [1], "nonlinear": [2]}, ValueError, "covariates must"),
        ({"covariates": [1.5]}, ValueError, "covariates must"),
    ],
)
def test_wrong_options_of_the_forecast_preset_are_named(options, error, message):
    with pytest.raises(error, match=message):
        NeuralKernelNetwork.forecast(origin=0.0, **options)
