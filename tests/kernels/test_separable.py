import pickle
from copy import deepcopy

import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    AdditiveKernel,
    CosineKernel,
    IndexKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.module import Module
from gpytorch.priors import GammaPrior
from torch import nn

from gpytorch_nkn.kernels import CenteredLinearKernel, NeuralKernelNetwork, SpectralComponentKernel
from gpytorch_nkn.kernels.separable import factor_kernels, separate
from gpytorch_nkn.layers import Linear, Product
from tests.kernels.contract import differ, global_state, perturb

COLUMNS = [(0,), (1,), (2,)]
INPUTS = [
    torch.linspace(0.0, 1.0, 6, dtype=torch.float64)[:, None],
    torch.linspace(-3.0, 2.0, 5, dtype=torch.float64)[:, None],
    torch.tensor([0.3, -0.7, 0.1, 1.5], dtype=torch.float64)[:, None],
]


def kronecker(factors, inputs):
    """The matrix on the grid, by torch.kron, and the one on the grid of some other points."""
    total = None
    for factor, x in zip(factors, inputs, strict=True):
        matrix = factor(x).to_dense()
        total = matrix if total is None else torch.kron(total, matrix)
    return total


def check(kernel, columns=COLUMNS, inputs=INPUTS):
    """The product of the factors is the kernel, also with other parameters and other inputs."""
    factors = separate(kernel, columns, inputs)
    assert len(factors) == len(columns)
    for seed in (None, 1, 2):
        if seed is not None:
            perturb(kernel, seed)
        for points in (inputs, [0.7 * x + 0.05 for x in inputs]):
            rows = torch.cartesian_prod(*(torch.arange(len(x)) for x in points))
            cells = torch.empty(len(rows), sum(map(len, columns)))
            for group, x, row in zip(columns, points, rows.unbind(-1), strict=True):
                cells[:, list(group)] = x[row]
            expected = kernel(cells).to_dense()
            torch.testing.assert_close(kronecker(factors, points), expected, rtol=1e-7, atol=1e-7)
            assert expected.abs().max() > 0.1
    return factors


def product_of_parts():
    return ProductKernel(
        RBFKernel(active_dims=(0,)),
        ScaleKernel(PeriodicKernel(active_dims=(1,))),
        AdditiveKernel(RBFKernel(active_dims=(2,)), LinearKernel(active_dims=(2,))),
    )


SEPARABLE = {
    "rbf": RBFKernel,
    "rbf-ard": lambda: ScaleKernel(RBFKernel(ard_num_dims=3)),
    "periodic": PeriodicKernel,
    "periodic-ard": lambda: PeriodicKernel(ard_num_dims=3),
    "product": product_of_parts,
    "scaled-product": lambda: ScaleKernel(ScaleKernel(product_of_parts())),
    "nested-product": lambda: ProductKernel(ScaleKernel(product_of_parts()), RBFKernel()),
    "linear-times-rbf": lambda: LinearKernel(active_dims=(1,)) * RBFKernel(),
    "product-of-two-columns": lambda: MaternKernel(active_dims=(2,)) * RBFKernel(active_dims=(0,)),
    "mixture": lambda: SpectralMixtureKernel(num_mixtures=2, ard_num_dims=3),
    "network-of-products": lambda: NeuralKernelNetwork(
        [RBFKernel(ard_num_dims=3), PeriodicKernel()], [Product(2, 1)]
    ),
    "network-of-a-column": lambda: NeuralKernelNetwork(
        [RQKernel(active_dims=(1,)), CenteredLinearKernel(active_dims=(1,))],
        [Linear(2, 4), Product(4, 2), Linear(2, 1)],
    ),
}


def idle_sum():
    """A sum that is a product as long as one weight is zero."""
    kernel = RBFKernel() + ScaleKernel(RBFKernel(ard_num_dims=3))
    kernel.kernels[1].base_kernel.lengthscale = 0.3
    kernel.kernels[1].raw_outputscale.data.fill_(-60.0)
    return kernel


NOT_SEPARABLE = {
    "matern-1/2": lambda: MaternKernel(nu=0.5),
    "matern-5/2": MaternKernel,
    "short-matern": lambda: MaternKernel().initialize(lengthscale=1e-4),
    "long-matern": lambda: MaternKernel(nu=1.5).initialize(lengthscale=1e3),
    "rq": RQKernel,
    "rq-that-is-nearly-rbf": lambda: RQKernel().initialize(alpha=1e8),
    "long-rq": lambda: RQKernel().initialize(lengthscale=1e5),
    "sum": lambda: RBFKernel() + PeriodicKernel(),
    "sum-over-columns": lambda: RBFKernel(active_dims=(0,)) + RBFKernel(active_dims=(1,)),
    "idle-sum": idle_sum,
    "linear": LinearKernel,
    "polynomial": lambda: PolynomialKernel(power=2),
    "cosine": CosineKernel,
    "directions": lambda: SpectralComponentKernel(ard_num_dims=3),
    "network": lambda: NeuralKernelNetwork.regression(3),
    "network-with-bias": lambda: NeuralKernelNetwork([RBFKernel(ard_num_dims=3)], [Linear(1, 1)]),
    "product-with-matern": lambda: RBFKernel() * PeriodicKernel(active_dims=(0,)) * MaternKernel(),
}


@pytest.mark.parametrize("name", SEPARABLE)
def test_product_of_the_factors_is_the_kernel(name):
    check(SEPARABLE[name]())


@pytest.mark.parametrize("name", NOT_SEPARABLE)
def test_kernels_that_are_no_products_are_refused(name):
    with pytest.raises(ValueError, match=r"is not a product over the groups of columns \(0,\)"):
        separate(NOT_SEPARABLE[name](), COLUMNS, INPUTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
def test_units_of_the_inputs_and_their_data_type_do_not_matter(scale, dtype):
    inputs = [(scale * (x + 3)).to(dtype) for x in INPUTS]
    lengthscale = 0.3 * scale
    separate(RBFKernel().to(dtype).initialize(lengthscale=lengthscale), COLUMNS, inputs)
    separate(PeriodicKernel(ard_num_dims=3).to(dtype), COLUMNS, inputs)
    for kernel in (MaternKernel(), RQKernel().initialize(alpha=1e6)):
        kernel = kernel.to(dtype).initialize(lengthscale=lengthscale)
        with pytest.raises(ValueError, match="is not a product"):
            separate(kernel, COLUMNS, inputs)


def test_the_error_names_the_part_and_what_changed():
    kernel = NOT_SEPARABLE["product-with-matern"]()
    with pytest.raises(ValueError, match=r"^MaternKernel is not .*present param.*one kernel per"):
        separate(kernel, COLUMNS, INPUTS)
    with pytest.raises(ValueError, match="AdditiveKernel of RBF, Scale.*kernels.1.raw_outputscale"):
        separate(idle_sum(), COLUMNS, INPUTS)
    with pytest.raises(ValueError, match="RQKernel is not .*other values of raw_alpha it is"):
        separate(NOT_SEPARABLE["rq-that-is-nearly-rbf"](), COLUMNS, INPUTS)


def test_lengthscales_that_are_short_beside_the_range_of_the_inputs():
    inputs = [1e5 * x for x in INPUTS]
    check(RBFKernel(), inputs=[x[:2] for x in inputs])
    with pytest.raises(ValueError, match="is not a product"):
        separate(MaternKernel(), COLUMNS, inputs)


class Bounded(RBFKernel):
    """No values with a lengthscale out of bounds, as where it is the argument of a logarithm."""

    def forward(self, x1, x2, diag=False, **params):
        assert 0.4 <= self.lengthscale <= 0.6
        return super().forward(x1, x2, diag=diag, **params)


def test_bounds_of_parameters_are_kept():
    kernel = Bounded(lengthscale_constraint=Interval(0.4, 0.6, transform=None))
    separate(kernel.initialize(lengthscale=0.5), COLUMNS, INPUTS)


def test_groups_of_several_columns_in_any_order():
    kernel = MaternKernel(active_dims=(2, 0)) * RBFKernel(active_dims=(1, 3))
    columns = [(2, 0), (3,), (1,)]
    check(kernel, columns, [torch.randn(4, 2), torch.randn(3, 1), torch.randn(2, 1)])
    with pytest.raises(ValueError, match=r"MaternKernel.*\(0, 1\), \(2, 3\)"):
        separate(kernel, [(0, 1), (2, 3)], [torch.randn(4, 2), torch.randn(4, 2)])


def test_active_dims_of_the_kernel_itself():
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2, active_dims=(2, 0)))
    kernel.base_kernel.lengthscale = torch.tensor([[0.2, 1.3]])
    factors = check(kernel)
    torch.testing.assert_close(factors[1](INPUTS[1]).to_dense(), torch.ones(5, 5))


def test_one_group_is_the_kernel_itself():
    kernel = MaternKernel()
    assert separate(kernel, [(0, 1)], [torch.rand(3, 2)]) == [kernel]


def test_parts_of_one_group_need_no_values_between_the_inputs():
    index = IndexKernel(num_tasks=3, rank=2, active_dims=(1,))
    factors = separate(RBFKernel(active_dims=(0,)) * index, COLUMNS[:2], [INPUTS[0], rows(3)])
    torch.testing.assert_close(factors[1](rows(3)).to_dense(), index.covar_matrix.to_dense())


def rows(n):
    return torch.arange(float(n))[:, None]


@pytest.mark.parametrize("name", ["rbf-ard", "scaled-product", "nested-product"])
def test_training_the_factors_trains_the_kernel(name):
    kernel = SEPARABLE[name]()
    factors = nn.ModuleList(separate(kernel, COLUMNS, INPUTS))
    assert {id(p) for p in factors.parameters()} == {id(p) for p in kernel.parameters()}
    cells = torch.cartesian_prod(*(x[:, 0] for x in INPUTS))
    weights = torch.randn(len(cells), len(cells))
    parameters = list(kernel.parameters())
    expected = torch.autograd.grad((kernel(cells).to_dense() * weights).sum(), parameters)
    gradients = torch.autograd.grad((kronecker(factors, INPUTS) * weights).sum(), parameters)
    for gradient, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-6, atol=1e-6)
        assert right.abs().max() > 1e-3


def test_priors_of_the_kernel_count_once():
    kernel = RBFKernel(ard_num_dims=3, lengthscale_prior=GammaPrior(3.0, 6.0))
    holder = Module()
    holder.kernels = nn.ModuleList(separate(kernel, COLUMNS, INPUTS))
    assert len(list(holder.named_priors())) == 1
    assert len(holder.state_dict()) == len(kernel.state_dict()) + 3  # points of reference


@pytest.mark.parametrize("name", ["rbf-ard", "scaled-product", "nested-product"])
def test_copies_share_among_themselves_only(name):
    kernel = SEPARABLE[name]()
    factors = nn.ModuleList(separate(kernel, COLUMNS, INPUTS))
    before = kronecker(factors, INPUTS).detach()
    for copy in (deepcopy(factors), pickle.loads(pickle.dumps(factors))):
        torch.testing.assert_close(kronecker(copy, INPUTS), before)
        perturb(copy)
        changed = [factor(x).to_dense() for factor, x in zip(copy, INPUTS, strict=True)]
        old = [factor(x).to_dense() for factor, x in zip(factors, INPUTS, strict=True)]
        assert all(differ(torch.stack(pair)) for pair in zip(changed, old, strict=True))
        torch.testing.assert_close(kronecker(factors, INPUTS), before)
        perturb(copy, seed=3)
        copy.load_state_dict(factors.state_dict())
        torch.testing.assert_close(kronecker(copy, INPUTS), before)


def test_data_type_follows_the_kernel():
    factors = nn.ModuleList(separate(RBFKernel(ard_num_dims=3), COLUMNS, INPUTS)).float()
    for factor, x in zip(factors, INPUTS, strict=True):
        assert factor.dtype == torch.float32
        assert factor(x.float()).to_dense().dtype == torch.float32


@pytest.mark.parametrize("name", ["rbf", "nested-product"])
def test_batch_shapes(name):
    kernel = perturb(NeuralKernelNetwork([SEPARABLE[name]()], []).expand_batch(3, 2))
    kernel = kernel.primitives[0]
    factors = separate(kernel, COLUMNS, [torch.stack([x, 1.1 * x]) for x in INPUTS])
    cells = torch.cartesian_prod(*(x[:, 0] for x in INPUTS))
    expected = NeuralKernelNetwork([kernel], [])(cells).to_dense()
    assert expected.shape[:2] == (3, 2) and differ(expected.flatten(0, 1))
    matrices = [factor(x).to_dense() for factor, x in zip(factors, INPUTS, strict=True)]
    for index in [(0, 0), (2, 1), (1, 0)]:
        product = torch.kron(torch.kron(matrices[0][index], matrices[1][index]), matrices[2][index])
        torch.testing.assert_close(product, expected[index], rtol=1e-6, atol=1e-7)
    for factor, x, matrix in zip(factors, INPUTS, matrices, strict=True):
        assert factor.batch_shape == (3, 2)
        one = factor[1, 0]
        assert one.batch_shape == () and list(one.parameters())
        torch.testing.assert_close(one(x).to_dense(), matrix[1, 0])
        torch.testing.assert_close(factor(x)[1, 0].to_dense(), matrix[1, 0])
        torch.testing.assert_close(factor(x, diag=True), matrix.diagonal(dim1=-1, dim2=-2))
        wide = one.expand_batch(4)
        torch.testing.assert_close(wide(x).to_dense(), matrix[1, 0].expand(4, -1, -1))


def test_stationarity_of_a_factor_is_that_of_its_parts():
    factors = separate(product_of_parts(), COLUMNS, INPUTS)
    assert [factor.is_stationary for factor in factors] == [True, True, False]


def test_columns_one_by_one_are_refused():
    factor = separate(RBFKernel(), COLUMNS, INPUTS)[1]
    with (
        pytest.raises(NotImplementedError, match="column by column"),
        pytest.warns(DeprecationWarning, match="last_dim_is_batch"),
    ):
        factor(INPUTS[1], last_dim_is_batch=True).to_dense()


def test_nothing_is_changed_by_separating():
    kernel = product_of_parts() * RBFKernel(ard_num_dims=3)
    parameters, before = deepcopy(kernel.state_dict()), global_state()
    separate(kernel, COLUMNS, INPUTS)
    assert all(torch.equal(a, b) for a, b in zip(before, global_state(), strict=True))
    assert all(torch.equal(parameters[name], p) for name, p in kernel.state_dict().items())


class Overflowing(Kernel):
    def forward(self, x1, x2, diag=False, **params):
        values = torch.full((len(x1), len(x2)), float("inf"), dtype=x1.dtype)
        return values.diagonal() if diag else values


@pytest.mark.parametrize(
    "kernel, columns, inputs, error, message",
    [
        ("rbf", COLUMNS, INPUTS, TypeError, "gpytorch.kernels.Kernel, got 'rbf'"),
        (RBFKernel(), [(0,), (2,)], INPUTS[:2], ValueError, r"every column once.*\(2,\)"),
        (RBFKernel(), [(0,), (0, 1)], INPUTS[:2], ValueError, r"every column once.*\(0, 1\)"),
        (RBFKernel(), [(0,), ()], INPUTS[:2], ValueError, "every column once"),
        (RBFKernel(), [], [], ValueError, r"every column once.*\[\]"),
        (RBFKernel(), COLUMNS, INPUTS[:2], ValueError, r"one tensor n x c .*\(5, 1\)"),
        (RBFKernel(), COLUMNS[:2], [torch.rand(3, 2), torch.rand(3, 1)], ValueError, r"\(3, 2\)"),
        (Overflowing(), COLUMNS, INPUTS, ValueError, "finite and not all zero.*inf"),
        (LinearKernel(), COLUMNS, [0 * x for x in INPUTS], ValueError, "not all zero.* 0 to 0"),
        (
            MultitaskKernel(RBFKernel(), num_tasks=2),
            COLUMNS,
            INPUTS,
            NotImplementedError,
            "MultitaskKernel has 2 outputs",
        ),
    ],
)
def test_wrong_arguments(kernel, columns, inputs, error, message):
    with pytest.raises(error, match=message):
        separate(kernel, columns, inputs)


def test_a_list_of_kernels_is_taken_as_it_is():
    kernels = [MaternKernel(), LinearKernel(active_dims=(0,)), RBFKernel()]
    assert factor_kernels(kernels, COLUMNS, INPUTS) == kernels
    joint = factor_kernels(RBFKernel(), COLUMNS, INPUTS)
    torch.testing.assert_close(joint[0](INPUTS[0]).to_dense(), RBFKernel()(INPUTS[0]).to_dense())


@pytest.mark.parametrize(
    "kernels, error, message",
    [
        ([RBFKernel()], ValueError, "each of 3 groups.*got 1"),
        ([RBFKernel(), "rbf", RBFKernel()], TypeError, "got 'rbf'"),
        (
            [RBFKernel(), RBFKernel(active_dims=(1,)), RBFKernel()],
            ValueError,
            r"kernels\[1\].*\(1,\)",
        ),
        (
            [RBFKernel(), RBFKernel(), MultitaskKernel(RBFKernel(), 2)],
            NotImplementedError,
            "2 outp",
        ),
    ],
)
def test_wrong_lists_of_kernels(kernels, error, message):
    with pytest.raises(error, match=message):
        factor_kernels(kernels, COLUMNS, INPUTS)
