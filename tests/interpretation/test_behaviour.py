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


TREND, VARIATION, CONSTANT = ("trend", None), ("variation", None), ("constant", None)
ROLES = [  # of the terms of a kernel
    (
        periodic(1.0) + LinearKernel() + ScaleKernel(rbf(0.3)) + ScaleKernel(rbf(8.0)),
        {
            "PER(1.00)": ("cycle", 1.0),
            "constant": CONSTANT,
            "LIN": TREND,
            "RBF(0.300)": VARIATION,
            "RBF(8.00)": TREND,
        },
    ),
    # periods that drift apart by less than half a cycle are one
    (periodic(1.0) + periodic(1.02, 0.5), {"PER(1.02)": ("cycle", 1.0)}),
    (periodic(1.0) + periodic(1.1, 0.5), {"PER(1.10)": ("cycle", 1.1)}),
    # periods beyond the span are no cycles
    (periodic(40.0), {"PER(40.0)": TREND}),
    (CosineKernel().initialize(period_length=4 * SPAN), {"COS(80.0)": TREND}),  # cos(pi d / p)
    (periodic(9.9), {"PER(9.90)": ("cycle", 9.9)}),
    # a bump for a tenth of the span is fast all the same
    (periodic(12.0, lengthscale=0.01), {"PER(12.0)": VARIATION}),
    # smooth factors beside a cycle
    (rbf(1.1) * periodic(1.0), {"PER(1.00)*RBF(1.10)": ("cycle", 1.0)}),
    (rbf(0.9) * periodic(1.0), {"PER(1.00)*RBF(0.900)": VARIATION}),
    # the smooth part of a variation does not stretch the period of a cycle
    (rbf(0.4) * periodic(2.0, 5.0) + periodic(1.0), {"PER(1.00)": ("cycle", 1.0)}),
    (LinearKernel() * periodic(1.0), {"LIN*PER(1.00)": ("cycle", 1.0)}),
    (LinearKernel() * rbf(1e4), {"LIN*RBF(10000)": TREND}),
    (CenteredLinearKernel() * rbf(0.3), {"LIN*RBF(0.300)": VARIATION}),
    (ConstantKernel(), {"constant": CONSTANT}),
    (rbf(1e5), {"RBF(100000)": CONSTANT}),
]


@pytest.mark.parametrize(("kernel", "expected"), ROLES)
def test_roles_of_terms(kernel, expected):
    found = roles(kernel.double())
    for label, (kind, period) in expected.items():
        assert found[label] == (kind, period and pytest.approx(period))


@pytest.mark.parametrize("order", [(3.0, 2.0, 1.0), (1.0, 2.0, 3.0), (1.0, 3.0, 2.0)])
def test_harmonics_are_one_cycle_whichever_is_largest(order):
    """Periods p, p/2 and p/3, one of them strongest."""
    p = 6.0 / 5
    kernels = [periodic(p / k, share) for k, share in zip((1, 2, 3), order, strict=True)]
    found = roles(kernels[0] + kernels[1] + kernels[2])
    cycles = [period for kind, period in found.values() if kind == "cycle"]
    assert cycles == pytest.approx([p, p, p]) and len(found) == 4


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
