import pytest
import torch
from botorch.models.transforms.utils import kumaraswamy_warp
from gpytorch.kernels import MultitaskKernel, RBFKernel
from torch.distributions import Kumaraswamy
from torch.testing import assert_close

from gpytorch_nkn.kernels import InputWarpKernel, NeuralKernelNetwork
from gpytorch_nkn.layers import LogNormalPrior
from tests.fit.closed_forms import has_closed_form
from tests.fit.models import SmallGP

A = torch.tensor([[0.4, 1.0, 2.5]], dtype=torch.float64)
B = torch.tensor([[1.3, 1.0, 0.6]], dtype=torch.float64)
X = torch.rand(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def bent(base=None, **options):
    base = RBFKernel(ard_num_dims=3).double() if base is None else base
    options = {"concentration1": A, "concentration0": B, **options}
    return InputWarpKernel(base, 3, **options).double()


def test_curves_match_kumaraswamy_and_of_botorch():
    inside = 0.01 + 0.98 * X
    expected = Kumaraswamy(A, B, validate_args=False).cdf(inside)
    assert_close(bent().warp(inside), expected)
    botorchs = kumaraswamy_warp(inside, c0=B, c1=A, eps=1e-8)
    assert_close(bent().warp(inside), botorchs, rtol=1e-6, atol=1e-6)


def test_values_match_the_base_kernel_on_warped_inputs():
    kernel = bent()
    other = X[:4] + 0.01
    expected = kernel.base_kernel(kernel.warp(X), kernel.warp(other)).to_dense()
    assert_close(kernel(X, other).to_dense(), expected)
    assert_close(kernel(X).to_dense(), kernel(X, X.clone()).to_dense())
    plain = bent(concentration1=1.0, concentration0=1.0)
    assert_close(plain(X).to_dense(), plain.base_kernel(X).to_dense())
    assert not kernel.is_stationary


def test_some_columns_stay_as_they_are():
    kernel = bent(columns=[-1, 0], concentration1=0.5, concentration0=1.0)
    assert kernel.columns == [0, 2] and kernel.concentration1.shape == (1, 2)
    found = kernel.warp(X)
    assert torch.equal(found[:, 1], X[:, 1])
    assert_close(found[:, [0, 2]], X[:, [0, 2]].sqrt(), atol=0.01, rtol=0)


def test_ends_are_straight_and_what_lies_beyond_is_left_alone():
    ends = torch.tensor([0.0, 1e-12, 1e-5, 1e-4, 0.5, 1 - 1e-4, 1 - 1e-5, 1.0], dtype=torch.float64)
    x = torch.cat([ends.new_tensor([-2.0, -1e-9]), ends, ends.new_tensor([1 + 1e-9, 4.0])])
    x = x.unsqueeze(-1).repeat(1, 3).requires_grad_()
    found = bent().warp(x)
    assert (found.diff(dim=0) >= 0).all()  # rises
    outside = (x < 0) | (x > 1)
    assert torch.equal(found[outside], x[outside])
    assert_close(found[2], torch.zeros(3, dtype=x.dtype))
    assert_close(found[9], torch.ones(3, dtype=x.dtype))
    (slopes,) = torch.autograd.grad(found.sum(), x)
    assert slopes.isfinite().all() and (slopes > 0).all() and slopes.max() < 1e3


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("batch_shape", [torch.Size(), torch.Size([2])])
@pytest.mark.parametrize("columns", [None, [0, 2], []])
def test_a_network_on_warped_inputs_is_trained_in_closed_form(columns, batch_shape, frozen):
    base = NeuralKernelNetwork.optimization(3, batch_shape=batch_shape)
    priors = {f"concentration{n}_prior": LogNormalPrior(0.0, 0.75) for n in (0, 1)}
    kernel = InputWarpKernel(base, 3, columns=columns, concentration1=0.8, **priors).double()
    assert kernel.raw_concentration0.requires_grad and kernel.raw_concentration1.requires_grad
    kernel.raw_concentration0.requires_grad_(not frozen)
    y = (5 * X.sqrt()).sin().sum(-1).expand(*batch_shape, -1).contiguous()
    model = SmallGP(X, y, kernel).double().train()
    assert has_closed_form(model)  # compared with autograd, values and gradients


def test_errors():
    with pytest.raises(TypeError, match="base_kernel must be a gpytorch.kernels.Kernel"):
        InputWarpKernel(torch.nn.Linear(1, 1), 2)
    with pytest.raises(ValueError, match="columns must be indices of 3"):
        bent(columns=[3])
    for columns in (3, [0.5]):
        with pytest.raises(TypeError, match="columns must be integers"):
            bent(columns=columns)
    with pytest.raises(ValueError, match=r"a number or of shape \(1, 3\), got \(2,\)"):
        bent(concentration1=torch.ones(2))
    several = InputWarpKernel(MultitaskKernel(RBFKernel(), num_tasks=2), 3).double()
    with pytest.raises(NotImplementedError, match="one output per input, got MultitaskKernel"):
        several(X).to_dense()
    with pytest.raises(ValueError, match="concentration1 must be finite and positive"):
        bent(concentration1=-1.0)
    with pytest.raises(ValueError, match="x must have 3 columns"):
        bent()(X[:, :2]).to_dense()
