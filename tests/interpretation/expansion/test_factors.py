import numpy as np
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel

from gpytorch_nkn.interpretation.expansion.factors import label_of
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.kernels import StepKernel


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
