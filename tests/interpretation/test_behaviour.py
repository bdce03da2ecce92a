import math

import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)

from gpytorch_nkn.interpretation import expand
from gpytorch_nkn.interpretation.behaviour import Geometry, behaviours_of, roles_of
from gpytorch_nkn.kernels import (
    CenteredLinearKernel,
    DampedTrendKernel,
    IntegratedWienerKernel,
    NeuralKernelNetwork,
    WienerKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Linear, Product

SPAN = 10.0
X = torch.linspace(0, SPAN, 201, dtype=torch.float64).unsqueeze(-1)  # a step of 0.05
GEOMETRY = Geometry.of(X)


def periodic(period, share=1.0, lengthscale=1.0):
    kernel = ScaleKernel(PeriodicKernel())
    kernel.outputscale = share
    kernel.base_kernel.period_length, kernel.base_kernel.lengthscale = period, lengthscale
    return kernel


def rbf(lengthscale):
    kernel = RBFKernel()
    kernel.lengthscale = lengthscale
    return kernel


def roles(kernel, x=X):
    """Kind and period of the role of each term, by label."""
    terms = expand(kernel, x).terms
    found = {}
    for term, role in zip(terms, roles_of(terms, Geometry.of(x)), strict=True):
        found[term.label] = (role.kind, role.period)
    return found


def test_the_parts_of_a_series():
    kernel = periodic(1.0) + LinearKernel() + ScaleKernel(rbf(0.3)) + ScaleKernel(rbf(8.0))
    assert roles(kernel) == {
        "PER(1.00)": ("cycle", 1.0),
        "constant": ("constant", None),
        "LIN": ("trend", None),
        "RBF(0.300)": ("variation", None),
        "RBF(8.00)": ("trend", None),
    }


@pytest.mark.parametrize("order", [(3.0, 2.0, 1.0), (1.0, 2.0, 3.0), (1.0, 3.0, 2.0)])
def test_harmonics_are_one_cycle_whichever_is_largest(order):
    """Periods p, p/2 and p/3, one of them strongest."""
    p = 6.0 / 5
    kernels = [periodic(p / k, share) for k, share in zip((1, 2, 3), order, strict=True)]
    found = roles(kernels[0] + kernels[1] + kernels[2])
    cycles = [period for kind, period in found.values() if kind == "cycle"]
    assert cycles == pytest.approx([p, p, p]) and len(found) == 4


def test_periods_that_drift_apart_are_two():
    near, far = periodic(1.02, 0.5), periodic(1.1, 0.5)
    assert roles(periodic(1.0) + near)["PER(1.02)"] == ("cycle", pytest.approx(1.0))
    assert roles(periodic(1.0) + far)["PER(1.10)"] == ("cycle", pytest.approx(1.1))


def test_periods_beyond_the_span_are_no_cycle():
    cosine = CosineKernel()
    cosine.period_length = 4 * SPAN
    assert roles(periodic(40.0))["PER(40.0)"] == ("trend", None)
    assert roles(cosine) == {"COS(80.0)": ("trend", None)}  # cos(pi d / p)
    # one that bumps for a tenth of the span is fast all the same
    assert roles(periodic(12.0, lengthscale=0.01))["PER(12.0)"] == ("variation", None)
    assert roles(periodic(9.9))["PER(9.90)"][0] == "cycle"


def test_smooth_factors_beside_a_cycle():
    assert roles(rbf(100.0) * periodic(1.0))["PER(1.00)*RBF(100)"] == ("cycle", 1.0)
    assert roles(rbf(1.1) * periodic(1.0))["PER(1.00)*RBF(1.10)"] == ("cycle", 1.0)
    assert roles(rbf(0.9) * periodic(1.0))["PER(1.00)*RBF(0.900)"] == ("variation", None)
    # the smooth part of what is no cycle does not stretch a cycle's period
    found = roles(rbf(0.4) * periodic(2.0, 5.0) + periodic(1.0))
    assert found["PER(1.00)"] == ("cycle", 1.0)


def test_linear_factors():
    assert roles(LinearKernel() * periodic(1.0))["LIN*PER(1.00)"] == ("cycle", 1.0)
    assert roles(LinearKernel() * rbf(1e4)) == {"LIN*RBF(10000)": ("trend", None)}
    assert roles(CenteredLinearKernel() * rbf(0.3)) == {"LIN*RBF(0.300)": ("variation", None)}


def test_what_does_not_vary_is_constant():
    assert roles(ConstantKernel()) == {"constant": ("constant", None)}
    assert roles(rbf(1e5)) == {"RBF(100000)": ("constant", None)}


def test_lengths_against_the_formula():
    terms = expand(rbf(2.0) * rbf(1.5) * LinearKernel() * LinearKernel(), X).terms
    (behaviour,) = behaviours_of(terms, GEOMETRY)
    resolution = 1.01 * SPAN / 400
    assert behaviour.degree == 2
    merged = (2.0**-2 + 1.5**-2) ** -0.5  # precisions add; exp(-1/2) is at one lengthscale
    assert behaviour.length == pytest.approx(merged, abs=resolution)
    (behaviour,) = behaviours_of(expand(rbf(40.0), X).terms, GEOMETRY)
    assert behaviour.length == math.inf
    fall = 1 - math.exp(-((SPAN / 40) ** 2) / 2)
    expected = 40 * math.sqrt(-2 * math.log1p(-fall * (1 - math.exp(-0.5))))
    assert behaviour.relative_length == pytest.approx(expected, abs=resolution)
    exponential = MaternKernel(0.5)
    exponential.lengthscale = 3.0
    (behaviour,) = behaviours_of(expand(exponential, X).terms, GEOMETRY)
    assert behaviour.length == pytest.approx(1.5, abs=resolution)


@pytest.mark.parametrize("walk", [WienerKernel, IntegratedWienerKernel, DampedTrendKernel])
def test_walks_are_trends_and_make_shapes_of_cycles_drift(walk):
    period = ZeroMeanPeriodicKernel()
    period.period_length = 1.0
    network = NeuralKernelNetwork(
        [walk(origin=-0.1), period, walk(origin=-0.1)], [Product(3, 2, groups=[1, 2]), Linear(2, 1)]
    )
    x = torch.linspace(0, 10, 200, dtype=torch.float64).unsqueeze(-1)
    terms = expand(network.double(), x).terms
    geometry = Geometry(span=10.0, step=0.05)
    walks = [behaviour for behaviour in behaviours_of(terms, geometry) if behaviour.walks]
    alone, shape = sorted(walks, key=lambda behaviour: len(behaviour.periods))
    assert shape.periods == (1.0,) and not alone.others and not shape.others
    assert {"cycle", "trend"} <= {role.kind for role in roles_of(terms, geometry)}
    if walk is WienerKernel:  # the correlation of its end with what was d before is sqrt(1 - d)
        assert alone.length == pytest.approx(10 * (1 - math.exp(-1)), rel=0.01)
