import copy
import pickle

import gpytorch
import torch

from gpytorch_nkn.layers import LogNormalPrior, log_normal_prior


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


def test_the_density_is_highest_at_the_mode():
    prior, mode = log_normal_prior(0.4, 1.5), torch.tensor(0.4)
    near = prior.log_prob(mode * torch.tensor([0.99, 1.01]))
    assert (near < prior.log_prob(mode)).all()
