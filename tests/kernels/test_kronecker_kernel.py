import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from linear_operator.operators import (
    InterpolatedLinearOperator,
    KroneckerProductLinearOperator,
    MaskedLinearOperator,
)

from gpytorch_nkn.kernels import KroneckerKernel, NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, Product
from tests.kernels.contract import perturb
from tests.kernels.registry import NO_BATCH

COORDINATES = [
    torch.tensor([0.0, 0.3, 1.1, 0.7], dtype=torch.float64),  # neither sorted nor regular
    torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.5, 1.0]], dtype=torch.float64),
    torch.linspace(-1.0, 1.0, 5, dtype=torch.float64),
]
COLUMNS = [[0], [1, 2], [3]]


def factors(b=NO_BATCH):
    network = NeuralKernelNetwork(
        [RBFKernel(batch_shape=b), LinearKernel(batch_shape=b)],
        [Linear(2, 2, batch_shape=b), Product(2, 1)],
    )
    periodic = ScaleKernel(PeriodicKernel(batch_shape=b), batch_shape=b)
    return [network, MaternKernel(batch_shape=b), periodic]


def make(b=NO_BATCH):
    return perturb(KroneckerKernel(factors(b), COORDINATES))


def by_hand(kernel, x1, x2):
    """The product of the factors' values, for all inputs alike."""
    total = 1.0
    for part, columns in zip(kernel.kernels, COLUMNS, strict=True):
        total = total * part(x1[..., columns], x2[..., columns]).to_dense()
    return total


def as_operator():
    """No matrix is small enough to be given as a tensor."""
    return gpytorch.settings.max_cholesky_size(1)


def test_all_cells_are_a_kronecker_product():
    kernel = make()
    cells = kernel.cells()
    for context in (gpytorch.settings.max_cholesky_size(800), as_operator()):
        with context:
            operator = kernel(cells).evaluate_kernel()
        assert isinstance(operator, KroneckerProductLinearOperator)
        torch.testing.assert_close(operator.to_dense(), by_hand(kernel, cells, cells))


SUBSETS = {
    "mask": (torch.arange(60)[::2], MaskedLinearOperator),
    "other order": (59 - torch.arange(60), InterpolatedLinearOperator),
    "repeated": (torch.arange(45) // 2 * 2, InterpolatedLinearOperator),
}


@pytest.mark.parametrize("name", SUBSETS)
def test_some_cells_are_rows_and_columns_of_the_product(name):
    rows, operator_class = SUBSETS[name]
    kernel = make()
    x = kernel.cells()[rows]
    expected = by_hand(kernel, x, x)
    dense = kernel(x)
    assert not isinstance(dense.evaluate_kernel(), operator_class)
    torch.testing.assert_close(dense.to_dense(), expected)
    with as_operator():
        operator = kernel(x).evaluate_kernel()
        assert isinstance(operator, operator_class)
        torch.testing.assert_close(operator.to_dense(), expected)
        vector = torch.randn(x.size(0), 2)
        torch.testing.assert_close(operator @ vector, expected @ vector)
        torch.testing.assert_close(operator.diagonal(), expected.diagonal())
        torch.testing.assert_close(kernel(x, diag=True), expected.diagonal())
        torch.testing.assert_close(kernel(x)[2:4, 1:3].to_dense(), expected[2:4, 1:3])


def test_inputs_off_the_grid_have_exact_values():
    kernel = make()
    x1 = kernel.cells()[:50].clone()
    x1[3, 2] += 1e-9
    x2 = torch.randn(40, 4)
    with as_operator():
        for first, second in ((x1, x1), (x1, x2), (x2, kernel.cells())):
            value = kernel(first, second).evaluate_kernel()
            assert not isinstance(value, MaskedLinearOperator | InterpolatedLinearOperator)
            torch.testing.assert_close(value.to_dense(), by_hand(kernel, first, second))


@pytest.mark.parametrize("kind", ["all", "mask", "order", "each its own"])
def test_batches_of_kernels_and_inputs_with_gradients(kind):
    kernel = make(torch.Size([3, 1]))
    cells = kernel.cells()
    x = {
        "all": cells.expand(2, -1, -1),
        "mask": cells[10:].expand(2, -1, -1),
        "order": cells[torch.arange(59, 20, -1)],
        "each its own": torch.stack([cells[5:45], cells[torch.randperm(60)[:40]]]),
    }[kind]
    expected = by_hand(kernel, x, x)
    weights = torch.randn(expected.shape)
    parameters = list(kernel.parameters())
    right = torch.autograd.grad((expected * weights).sum(), parameters)
    with as_operator():
        values = kernel(x).to_dense()
        assert values.shape[0] == 3
        torch.testing.assert_close(values, expected)
        for gradient, other in zip(
            torch.autograd.grad((values * weights).sum(), parameters), right, strict=True
        ):
            torch.testing.assert_close(gradient, other)
        torch.testing.assert_close(
            kernel[2, 0](cells[:9]).to_dense(), kernel(cells[:9])[2, 0].to_dense()
        )
        vector = torch.randn(x.size(-2), 2)
        operator = kernel(x).evaluate_kernel()
        gradients = torch.autograd.grad((operator @ vector).square().sum(), parameters)
        right = torch.autograd.grad((by_hand(kernel, x, x) @ vector).square().sum(), parameters)
        for gradient, other in zip(gradients, right, strict=True):
            torch.testing.assert_close(gradient, other)


def test_large_grids_stay_factors():
    coordinates = [torch.linspace(0, 1, 300, dtype=torch.float64)] * 2
    kernel = KroneckerKernel([RBFKernel(), RBFKernel()], coordinates)
    cells = kernel.cells()
    vector = torch.ones(90_000)
    expected = kernel.kernels[0](coordinates[0]).to_dense().sum(-1)
    whole = kernel(cells).evaluate_kernel()
    torch.testing.assert_close(whole @ vector, torch.outer(expected, expected).flatten())
    mask = torch.ones(300, 300, dtype=torch.bool)
    mask[100:150, 120:180] = False
    part = kernel(cells[mask.flatten()]).evaluate_kernel()
    assert isinstance(part, MaskedLinearOperator) and part.shape == (87_000, 87_000)
    vector = mask.double()
    matrix = kernel.kernels[0](coordinates[0]).to_dense()
    right = (matrix @ vector @ matrix)[mask]
    torch.testing.assert_close(part @ torch.ones(87_000), right)


@pytest.mark.parametrize(
    "kernels, coordinates, error, message",
    [
        ([], [], ValueError, "at least one tensor"),
        ([RBFKernel()], [torch.rand(2, 2, 2)], ValueError, r"n or n x c, got shape \(2, 2, 2\)"),
        ([RBFKernel()], [torch.empty(0)], ValueError, r"coordinates\[0\] .*\(0, 1\)"),
        ([RBFKernel()], [torch.tensor([0.0, float("nan")])], ValueError, "finite tensor"),
        ([RBFKernel()], [torch.tensor([0, 1, 0])], ValueError, "got 3 with 2 different values"),
        ([RBFKernel()], [torch.rand(3), torch.rand(3)], ValueError, "each of 2 groups.*got 1"),
        (["rbf"], [torch.rand(3)], TypeError, "got 'rbf'"),
        ([RBFKernel(active_dims=(1,))], [torch.rand(3)], ValueError, r"active_dims .* got \(1,\)"),
        (RBFKernel(), [torch.rand(3)], TypeError, "got one RBFKernel"),
        (
            [MultitaskKernel(RBFKernel(), 2)],
            [torch.rand(3)],
            NotImplementedError,
            "one output per input, got 2",
        ),
    ],
)
def test_wrong_arguments(kernels, coordinates, error, message):
    with pytest.raises(error, match=message):
        KroneckerKernel(kernels, coordinates)


def test_wrong_inputs():
    with pytest.raises(ValueError, match="4 columns, as the coordinates, got 3"):
        make()(torch.rand(2, 3)).to_dense()
