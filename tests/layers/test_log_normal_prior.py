import copy
import math
import pickle

import gpytorch
import pytest
import torch

from gpytorch_nkn.layers import LogNormalPrior, ShrunkLogNormalPrior, log_normal_prior


def test_it_goes_with_its_module(device):
    loc, scale = torch.tensor([0.3, -1.0]), torch.tensor([0.5, 2.0])
    layer = gpytorch.kernels.RBFKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(loc, scale))
    kernel = layer.float().to(device)
    prior, x = kernel.lengthscale_prior, torch.tensor([0.7, 3.0], dtype=torch.float32)
    for one in (prior, copy.deepcopy(prior), pickle.loads(pickle.dumps(prior)), prior.expand((2,))):
        density = one.log_prob(x)
        assert density.dtype == torch.float32 and density.device == device
        assert one.rsample((3,)).device == device and type(one) is LogNormalPrior
        expected = torch.distributions.LogNormal(loc, scale).log_prob(x.double())
        torch.testing.assert_close(density.double(), expected, rtol=1e-5, atol=1e-5)
    wide = prior.expand(torch.Size([4, 2])).double()
    assert wide.log_prob(x.double()).shape == (4, 2) and wide.loc.dtype == torch.float64


def test_a_shrunk_one_is_expanded_copied_and_moved(device):
    prior = ShrunkLogNormalPrior(log_normal_prior(0.2, 1.5), 2.0)
    wide = prior.expand(torch.Size([4, 3])).float().to(device)
    x = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float32, device=device)
    for one in (wide, copy.deepcopy(wide), pickle.loads(pickle.dumps(wide))):
        draws = one.sample(torch.Size([5]))
        assert draws.shape == (5, 4, 3) and draws.device == device and (draws > 0).all()
        assert one.log_prob(x).dtype == torch.float32 and one.batch_shape == (4, 3)
        mean, std = torch.tensor([math.log(0.2) + 1.5**2, 1.5], device=device)
        density = torch.distributions.LogNormal(mean, std).log_prob(x.double())
        expected = density + math.log(2) - 2 * x.double()
        torch.testing.assert_close(one.log_prob(x)[0].double(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(NotImplementedError):
        _ = wide.mean  # of the product: not that of the log-normal factor


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_densities_and_gradients_match_torch(shape, dtype, device):
    loc, scale = torch.tensor([[-4.0, 0.3, 2.0], [0.2, 1.5, 3.0]], device="cpu")
    x = torch.tensor([1e-30, 1e-3, 0.4, 7.0, 1e6], dtype=dtype).view(5, *[1] * len(shape))
    x = x.expand(5, *shape).to(device).requires_grad_()
    for number in range(3):
        own = LogNormalPrior(loc[number], scale[number]).to(device=device, dtype=dtype)
        stock = torch.distributions.LogNormal(loc[number], scale[number])
        values, expected = own.log_prob(x), stock.log_prob(x.cpu().double())
        assert values.dtype == dtype and values.device == device and values.shape == x.shape
        torch.testing.assert_close(values.cpu().double(), expected, rtol=1e-4, atol=1e-4)
        gradients = torch.autograd.grad(values.sum(), x)[0].cpu().double()
        expected = torch.autograd.grad(expected.sum(), x)[0].cpu().double()
        torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=0)


def test_new_locations_scales_transforms_and_checks_count():
    prior, x = LogNormalPrior(0.0, 1.0), torch.tensor(0.7)
    prior.loc, prior.scale = torch.tensor(0.5), torch.tensor(2.0)
    expected = torch.distributions.LogNormal(0.5, 2.0).log_prob(x)
    torch.testing.assert_close(prior.log_prob(x), expected)
    other = LogNormalPrior(0.0, 1.0)
    other.load_state_dict(prior.state_dict())
    torch.testing.assert_close(other.log_prob(x), expected)
    exponential = LogNormalPrior(0.5, 2.0, transform=torch.exp)
    torch.testing.assert_close(exponential.log_prob(x.log()), expected)
    torch.testing.assert_close(exponential.expand((3,)).log_prob(x.log()), expected.expand(3))
    with pytest.raises(ValueError, match="within the support"):
        LogNormalPrior(0.0, 1.0, validate_args=True).log_prob(-x)
