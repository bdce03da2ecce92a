"""The loss in closed form of several independent outputs."""

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from gpytorch.priors import NormalPrior

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.settings import kernel_evaluation
from tests.fit.closed_forms import (
    check_loss_and_gradient,
    has_closed_form,
    make,
)
from tests.fit.models import SmallGP
from tests.kernels.contract import perturb

TWO = torch.Size([2])


@pytest.fixture(autouse=True)
def _auto():
    """Without a path that takes the closed form away."""
    with kernel_evaluation("auto"):
        yield


def convex(batch_shape=TWO):
    options = {"weights": "simplex", "batch_shape": batch_shape}
    layers = [Linear(2, 4, **options), Product(4, 2), Linear(2, 1, seed=1, **options)]
    kernels = [
        RBFKernel(batch_shape=batch_shape, active_dims=(1,)),
        MaternKernel(ard_num_dims=3, batch_shape=batch_shape),
    ]
    for layer in (layers[0], layers[2]):
        layer.add_raw_priors()
    return NeuralKernelNetwork(kernels, layers)


def outputs(kernel, mean=None, likelihood=None, x=None, batch_shape=TWO):
    x = torch.randn(*batch_shape, 15, 3) if x is None else x
    y = torch.sin(2 * x[..., 0]) * torch.ones(*batch_shape, 1) + 0.1 * torch.randn(*batch_shape, 15)
    likelihood = GaussianLikelihood(batch_shape=batch_shape) if likelihood is None else likelihood
    model = SmallGP(x, y, perturb(kernel), perturb(likelihood))
    model.mean_module = ConstantMean(batch_shape=batch_shape) if mean is None else mean
    perturb(model.mean_module)
    return model


def botorch(num_outputs=2, **options):
    x = torch.rand(15, 3)
    y = torch.stack([torch.sin((4 + k) * x[:, 0]) + x[:, 1] for k in range(num_outputs)], -1)
    kernel = ScaleKernel(convex(torch.Size([num_outputs])), batch_shape=torch.Size([num_outputs]))
    return SingleTaskGP(x, y, covar_module=perturb(kernel), **options)


def one_network_for_all():
    """With an output scale for each output."""
    return outputs(ScaleKernel(convex(torch.Size([])), batch_shape=TWO))


def one_layer_for_all():
    network = convex()
    network.layers[0] = Linear(2, 4, weights="simplex")
    return outputs(network)


def frozen(*names):
    model = outputs(ScaleKernel(convex(), batch_shape=TWO))
    for name in names:
        model.get_submodule(name).requires_grad_(False)
    return model


def fixed_noise(*shape):
    noise = 0.01 + 0.1 * torch.rand(*shape)
    likelihood = FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True, batch_shape=TWO)
    return outputs(convex(), likelihood=likelihood)


def mean_prior():
    model = outputs(convex())
    model.mean_module.register_prior("constant_prior", NormalPrior(0.3, 2.0), "constant")
    return model


KNOWN = {
    "softplus": lambda: outputs(NeuralKernelNetwork.regression(3, batch_shape=TWO)),
    "zero-mean periodic": lambda: outputs(
        NeuralKernelNetwork.time_series(batch_shape=TWO, zero_mean=True, active_dims=(0,))
    ),
    "simplex": lambda: outputs(convex()),
    "scaled": lambda: outputs(ScaleKernel(convex(), batch_shape=TWO)),
    "inputs for all": lambda: outputs(convex(), x=torch.randn(15, 3)),
    "one network for all": one_network_for_all,
    "one layer for all": one_layer_for_all,
    "one noise for all": lambda: outputs(convex(), likelihood=GaussianLikelihood()),
    "one mean for all": lambda: outputs(convex(), mean=ConstantMean()),
    "zero mean": lambda: outputs(convex(), mean=ZeroMean()),
    "linear mean": lambda: outputs(convex(), mean=LinearMean(3, batch_shape=TWO)),
    "frozen mean": lambda: frozen("mean_module"),
    "frozen network": lambda: frozen("covar_module.base_kernel"),
    "frozen noise": lambda: frozen("likelihood"),
    "fixed noise": lambda: fixed_noise(2, 15),
    "fixed noise for all": lambda: fixed_noise(15),
    "a prior on all": mean_prior,
    "BoTorch": botorch,
    "BoTorch, three outputs": lambda: botorch(3, input_transform=Normalize(3)),
    "BoTorch, known noise": lambda: botorch(train_Yvar=0.01 + torch.rand(15, 2)),
    "one network for the last dimension": lambda: outputs(
        ScaleKernel(convex(torch.Size([2, 1])), batch_shape=torch.Size([2, 3])),
        likelihood=GaussianLikelihood(batch_shape=torch.Size([1, 3])),
        batch_shape=torch.Size([2, 3]),
    ),
    "two batch dimensions": lambda: outputs(
        convex(torch.Size([2, 3])), batch_shape=torch.Size([2, 3])
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_loss_and_gradient_equal_the_objectives(name):
    model = make(KNOWN, name)
    check_loss_and_gradient(model)
    assert has_closed_form(model)
