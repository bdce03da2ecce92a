import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
)

from gpytorch_nkn.interpretation.expansion.factors import (
    columns_of,
    label_of,
    name_of,
    real_part,
)
from gpytorch_nkn.interpretation.expansion.products import combine, rewrite
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.kernels import (
    BivariateComplexExponentialKernel,
    CenteredLinearKernel,
    ComplexExponentialKernel,
    ZeroMeanPeriodicKernel,
)
from tests.interpretation.small_models import perturbed

BATCHES = [torch.Size(), torch.Size([2]), torch.Size([2, 3])]


def values(kernel, x):
    return kernel(x).to_dense().detach()


def check_product(first, second, x):
    """The product as one kernel, against the product of the matrices."""
    merged = combine(first, second)
    assert merged is not None and type(merged) is type(first)
    torch.testing.assert_close(
        values(merged, x), values(first, x) * values(second, x), rtol=1e-10, atol=1e-10
    )
    return merged


@pytest.fixture
def x():
    return torch.randn(9, 3)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    "columns",
    [((0,), (0,)), ((0,), (2,)), ((0, 2), (2, 1)), ((2, 0), (0, 2)), ((0, 0), (1,)), (None, None)],
)
@pytest.mark.parametrize("ard", [False, True])
def test_products_of_rbf_kernels(x, batch, columns, ard):
    kernels = []
    for seed, own in enumerate(columns):
        width = 3 if own is None else len(own)
        kernel = RBFKernel(batch_shape=batch, active_dims=own, ard_num_dims=width if ard else None)
        kernels.append(perturbed(kernel, seed))
    check_product(*kernels, x)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("ard", [None, 2])
def test_products_of_periodic_kernels_with_one_period(x, batch, ard):
    def make(seed):
        options = {} if ard is None else {"ard_num_dims": ard}  # GPyTorch refuses None
        return perturbed(PeriodicKernel(active_dims=(0, 1), batch_shape=batch, **options), seed)

    first, second = make(0), make(1)
    assert combine(first, second) is None  # other periods
    second.period_length = first.period_length.detach()
    check_product(first, second, x)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("ard", [None, 2])
def test_powers_of_rational_quadratics(x, batch, ard):
    kernel = perturbed(RQKernel(active_dims=(0, 1), ard_num_dims=ard, batch_shape=batch))
    square = check_product(kernel, kernel, x)
    cube = check_product(square, kernel, x)
    torch.testing.assert_close(cube.alpha, 3 * kernel.alpha)
    other = perturbed(RQKernel(active_dims=(0, 1), ard_num_dims=ard, batch_shape=batch), 5)
    assert combine(kernel, other) is None


@pytest.mark.parametrize("batch", BATCHES)
def test_products_of_exponentials_in_one_dimension(x, batch):
    kernels = [perturbed(MaternKernel(0.5, active_dims=(1,), batch_shape=batch), s) for s in (0, 1)]
    check_product(*kernels, x)


def test_no_rule_where_products_leave_the_family():
    for make in (
        lambda: MaternKernel(1.5, active_dims=(0,)),
        lambda: MaternKernel(0.5, active_dims=(0, 1)),
        lambda: MaternKernel(0.5),
        lambda: ZeroMeanPeriodicKernel(active_dims=(0,)),
        lambda: LinearKernel(active_dims=(0,)),
        lambda: CosineKernel(),
    ):
        assert combine(make(), make()) is None
    assert combine(RBFKernel(), RQKernel()) is None
    assert combine(PeriodicKernel(active_dims=(0,)), PeriodicKernel(active_dims=(1,))) is None


@pytest.mark.parametrize("batch", BATCHES)
def test_products_of_complex_exponentials_add_frequencies(x, batch):
    kernels = [
        perturbed(ComplexExponentialKernel(ard_num_dims=3, batch_shape=batch), s) for s in range(3)
    ]
    merged = real_part(kernels)
    assert type(merged) is ComplexExponentialKernel
    expected = torch.stack([k.complex_values(x, x) for k in kernels]).prod(0).real
    torch.testing.assert_close(values(merged, x), expected.detach())


def test_real_part_of_mixed_complex_kernels(x):
    kernels = [
        perturbed(ComplexExponentialKernel(active_dims=(0,))),
        perturbed(BivariateComplexExponentialKernel(active_dims=(2,)), 1),
    ]
    part = real_part([*kernels, kernels[1]])
    one, two = (k.complex_values(x[:, c : c + 1], x[:, c : c + 1]) for k, c in zip(kernels, (0, 2)))  # noqa: B905
    torch.testing.assert_close(values(part, x), (one * two**2).real.detach())
    assert columns_of(part) == (0, 2)
    assert name_of(part).startswith("Re(COS*")
    assert real_part(kernels[:1]) is kernels[0]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("make", [LinearKernel, CenteredLinearKernel])
def test_unit_linear(x, batch, make):
    kernel = perturbed(make(active_dims=(1,), batch_shape=batch))
    variance, unit = rewrite(kernel, "unit")
    assert variance.shape == batch
    torch.testing.assert_close(variance[..., None, None] * values(unit, x), values(kernel, x))
    assert rewrite(make(active_dims=(0, 1)), "unit") is None
    assert rewrite(make(), "unit") is None


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("lengthscale", [0.05, 0.9, 30.0])
def test_split_of_a_periodic_kernel_is_exact(x, batch, lengthscale):
    kernel = PeriodicKernel(active_dims=(1,), batch_shape=batch)
    kernel.lengthscale, kernel.period_length = lengthscale, 0.77
    level, rest = rewrite(kernel, "terms")
    assert level.shape == batch
    level = level[..., None, None]
    torch.testing.assert_close(level + (1 - level) * values(rest, x), values(kernel, x))
    # the level is the average over a period, by quadrature
    grid = torch.zeros(512, 3)
    grid[:, 1] = torch.arange(512) / 512 * 0.77
    average = kernel(grid[:1], grid).to_dense().detach().mean(-1, keepdim=True)
    torch.testing.assert_close(average, level.expand_as(average), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("ard", [None, 2])
@pytest.mark.parametrize("make", [LinearKernel, CenteredLinearKernel])
def test_split_of_a_linear_kernel_is_exact(x, batch, ard, make):
    kernel = perturbed(make(active_dims=(2, 0), ard_num_dims=ard, batch_shape=batch))
    if make is CenteredLinearKernel:
        kernel.initialize(center=torch.randn_like(kernel.center))
    parts = rewrite(kernel, "columns")
    assert [columns_of(part) for part in parts] == [(2,), (0,)]
    torch.testing.assert_close(sum(values(part, x) for part in parts), values(kernel, x))


def test_labels_are_in_units_of_the_data():
    units = Units(
        x_offset=np.zeros(2), x_scale=np.array([10.0, 0.5]), names=("age", "dose"), x_unit="yr"
    )
    kernel = RBFKernel(active_dims=(0, 1), ard_num_dims=2)
    kernel.lengthscale = torch.tensor([[0.34, 2.0]])
    assert label_of(kernel, units) == "RBF[age, dose](3.40 yr, 1.00)"
    kernel = PeriodicKernel(active_dims=(1,))
    kernel.period_length = 2.0
    assert label_of(kernel, units) == "PER[dose](1.00)"
    assert label_of(LinearKernel(active_dims=(1,)), units) == "LIN[dose]"
    batch = MaternKernel(1.5, active_dims=(1,), batch_shape=torch.Size([2]))
    batch.lengthscale = torch.tensor([1.0, 4.0]).view(2, 1, 1)
    assert label_of(batch, units) == "MATERN3/2[dose](0.500 to 2.00)"


def test_labels_of_many_columns_are_short():
    units = Units.plain(9)
    kernel = RBFKernel(active_dims=tuple(range(9)), ard_num_dims=9)
    kernel.lengthscale = torch.arange(1.0, 10.0).unsqueeze(0)
    assert label_of(kernel, units) == "RBF[9 columns](1.00 to 9.00)"
