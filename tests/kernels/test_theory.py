"""Theorems of the paper about the network, by construction and by value."""

import pytest
import torch
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import (
    BivariateComplexExponentialKernel,
    ComplexExponentialKernel,
    NeuralKernelNetwork,
)
from gpytorch_nkn.layers import Activation, Linear, Product
from tests.kernels.contract import dense, perturb
from tests.kernels.network.test_neural_kernel_network import linear

# the real part at the end


def test_real_part_at_the_end_differs_from_the_real_part_of_each_unit():
    x = torch.linspace(-1, 1, 9).unsqueeze(-1)
    tau = x - x.mT
    units = [ComplexExponentialKernel().initialize(frequency=mu) for mu in (1.0, 2.0)]
    at_the_end = dense(NeuralKernelNetwork(units, [Product(2, 1)]), x)
    # a ScaleKernel hands on the real part
    real = [ScaleKernel(unit).initialize(outputscale=1.0) for unit in units]
    per_unit = dense(NeuralKernelNetwork(real, [Product(2, 1)]), x)
    torch.testing.assert_close(at_the_end, torch.cos(3 * tau))
    torch.testing.assert_close(per_unit, torch.cos(tau) * torch.cos(2 * tau))
    assert (at_the_end - per_unit).abs().max() > 0.5


# theorem 7


def real_and_complex(seed):
    primitives = [
        ComplexExponentialKernel().initialize(frequency=4.0),
        BivariateComplexExponentialKernel().initialize(frequencies=torch.tensor([[5.0], [1.0]])),
        RBFKernel().initialize(lengthscale=0.3),
        PeriodicKernel(),
        LinearKernel(),
    ]
    layers = [
        Linear(5, 6, seed=seed),
        Product(6, 3),
        Activation(3, [0.0, 1.0, 0.5]),
        Linear(3, 2, seed=seed + 1),
        Product(2, 1),
    ]
    return perturb(NeuralKernelNetwork(primitives, layers), seed)


@pytest.mark.parametrize("seed", range(5))
def test_real_part_of_every_unit_is_positive_semi_definite(seed):
    network, x = real_and_complex(seed), torch.randn(15, 1)
    num_units = 0
    for stage in network.unit_values(x):
        for unit in stage.detach():
            torch.testing.assert_close(unit, unit.mH)  # Hermitian
            scale = unit.abs().max()
            assert torch.linalg.eigvalsh(unit.real)[0] > -1e-10 * scale
            assert torch.linalg.eigvalsh(unit)[0] > -1e-10 * scale
            num_units += 1
    assert num_units == 5 + 6 + 3 + 3 + 2 + 1
    assert stage.is_complex() and stage.imag.abs().max() > 1e-3


# theorem 3


def theorem_3(num_primitives, polynomial):
    """Layers of width 2 B + 6 at most for ``{(power of each primitive, ...): weight}``.

    Units between two modules are the B primitives, a one, the running term and the output. In a
    module every unit is paired with a factor, (k, 1), (1, 1), (term, factor), (output, 1), and
    each pair is multiplied.
    """
    b = num_primitives
    one, term, output = b, b + 1, b + 2

    def module(term_row, factor, output_row):
        rows = []
        for k in range(b):
            rows += [{k: 1.0}, {one: 1.0}]
        rows += [{one: 1.0}, {one: 1.0}, term_row, {factor: 1.0}, output_row, {one: 1.0}]
        return [linear([[row.get(i, 0.0) for i in range(b + 3)] for row in rows]), widths()]

    def widths():
        return Product(2 * b + 6, b + 3)

    start = [[0.0] * b for _ in range(2 * b + 6)]
    for k in range(b):
        start[2 * k][k] = 1.0
    bias = [0.0, 1.0] * b + [1.0, 1.0, 1.0, 1.0, 0.0, 1.0]
    layers = [linear(start, bias), widths()]  # primitives, one, term = 1, output = 0
    for powers, weight in polynomial.items():
        for k, power in enumerate(powers):
            for _ in range(power):
                layers += module({term: 1.0}, k, {output: 1.0})  # term times primitive k
        layers += module({one: 1.0}, one, {output: 1.0, term: weight})  # term back to one
    return [*layers, linear([[0.0] * (b + 2) + [1.0]])]


@pytest.mark.parametrize(
    "num_primitives, polynomial",
    [
        (2, {(1, 2): 0.3}),
        (2, {(2, 1): 0.7, (0, 3): 1.9, (0, 0): 0.25, (1, 0): 0.1}),
        (3, {(1, 2, 0): 0.3, (2, 0, 3): 4.0, (0, 1, 1): 0.5, (1, 1, 1): 1e-3}),
    ],
)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_theorem_3_width_2_b_plus_6_represents_any_positive_polynomial(
    num_primitives, polynomial, kind
):
    real = [RBFKernel().initialize(lengthscale=0.8), LinearKernel(), PeriodicKernel()]
    primitives = [
        ComplexExponentialKernel().initialize(frequency=1.7),
        BivariateComplexExponentialKernel().initialize(frequencies=torch.tensor([[2.0], [0.5]])),
        real[0],
    ]
    primitives = (real if kind == "real" else primitives)[:num_primitives]
    layers = theorem_3(num_primitives, polynomial)
    assert max(layer.out_features for layer in layers) == 2 * num_primitives + 6
    network = NeuralKernelNetwork(primitives, layers)
    x, y = torch.randn(6, 1), torch.randn(5, 1)
    values = [
        k.complex_values(x, y) if hasattr(k, "complex_values") else dense(k, x, y)
        for k in primitives
    ]
    expected = 0.0
    for powers, weight in polynomial.items():
        monomial = torch.ones_like(values[0])
        for value, power in zip(values, powers, strict=True):
            monomial = monomial * value**power
        expected = expected + weight * monomial
    assert expected.real.abs().max() > 0.05
    torch.testing.assert_close(dense(network, x, y), expected.real, rtol=1e-10, atol=1e-10)
