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

from gpytorch_nkn.interpretation.expansion.factors import combine, label_of
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.kernels import StepKernel, ZeroMeanPeriodicKernel
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
        options = {} if ard is None else {"ard_num_dims": ard}  # GPyTorch rejects None
        return perturbed(PeriodicKernel(active_dims=(0, 1), batch_shape=batch, **options), seed)

    first, second = make(0), make(1)
    assert combine(first, second) is None  # other periods
    second.period_length = first.period_length.detach()
    check_product(first, second, x)


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


def test_locations_of_a_batch_of_steps_are_a_range():
    step = StepKernel(location=torch.tensor([9.0, 11.0, 10.0]).view(3, 1, 1), batch_shape=[3])
    assert label_of(step, Units.plain(1)) == "AFTER(9.0 to 11.0)"


def test_labels_of_many_columns_are_short():
    units = Units.plain(9)
    kernel = RBFKernel(active_dims=tuple(range(9)), ard_num_dims=9)
    kernel.lengthscale = torch.arange(1.0, 10.0).unsqueeze(0)
    assert label_of(kernel, units) == "RBF[9 columns](1.00 to 9.00)"
