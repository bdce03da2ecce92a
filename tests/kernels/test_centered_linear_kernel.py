import pytest
import torch
from gpytorch.kernels import LinearKernel

from gpytorch_nkn.kernels import CenteredLinearKernel


def test_value_equals_the_formula_written_out_for_one_pair():
    kernel = CenteredLinearKernel(ard_num_dims=2)
    kernel.variance = torch.tensor([[2.0, 0.5]])
    kernel.initialize(center=torch.tensor([[1.0, -1.0]]))
    x, y = torch.tensor([[3.0, 0.5]]), torch.tensor([[2.0, 2.0]])
    expected = 2.0 * (3.0 - 1.0) * (2.0 - 1.0) + 0.5 * (0.5 + 1.0) * (2.0 + 1.0)
    assert kernel(x, y).to_dense().item() == pytest.approx(expected, rel=1e-14)


def test_equals_gpytorchs_linear_kernel_at_centre_zero():
    kernel, plain = CenteredLinearKernel(), LinearKernel().initialize(variance=1.7)
    kernel.variance = 1.7
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    torch.testing.assert_close(kernel(x, y).to_dense(), plain(x, y).to_dense())


def test_centre_is_trained_on_request_only():
    trained = {name for name, p in CenteredLinearKernel().named_parameters() if p.requires_grad}
    assert trained == {"raw_variance"}
    assert "center" in CenteredLinearKernel().state_dict()
