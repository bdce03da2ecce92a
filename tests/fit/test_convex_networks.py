"""The loss in closed form of networks of convex combinations, and of several outputs."""

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.priors import GammaPrior, NormalPrior

from gpytorch_nkn.fit.minimize import FlatParameters
from gpytorch_nkn.fit.training_loss import TrainingLoss
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, Product
from tests.fit.closed_forms import assert_same, check_loss_and_gradient, has_closed_form, make, wide
from tests.fit.models import SmallGP
from tests.kernels.contract import perturb

pytestmark = pytest.mark.usefixtures("default_evaluation")

TWO = torch.Size([2])


def convex(priors=False):
    """Three primitives, and a layer of pairs."""
    kernels = [RBFKernel(active_dims=(1,)), RQKernel(), MaternKernel(ard_num_dims=3)]
    layers = [
        Linear(3, 4, weights="simplex"),
        Product(4, 2),
        Linear(2, 1, weights="simplex", seed=1),
    ]
    if priors:
        for layer in (layers[0], layers[2]):
            layer.add_raw_priors()
        kernels[0].register_prior("lengthscale_prior", GammaPrior(3.0, 6.0), "lengthscale")
    return NeuralKernelNetwork(kernels, layers)


def frozen():
    """Weights of a layer are frozen, and all parameters of another."""
    model = wide(ScaleKernel(convex(priors=True)))
    layers = model.covar_module.base_kernel.layers
    layers[0].raw_weight.requires_grad_(False)
    layers[2].requires_grad_(False)
    return model


def shared_layer():
    layer = Linear(2, 2, weights="simplex")
    last = Linear(2, 1, weights="simplex")
    return wide(NeuralKernelNetwork([RBFKernel(), RQKernel()], [layer, layer, last]))


def mixed():
    """Simplex and softplus weights in one network."""
    layers = [Linear(2, 4), Product(4, 2), Linear(2, 2, weights="simplex"), Linear(2, 1)]
    return wide(NeuralKernelNetwork([RBFKernel(), RQKernel()], layers))


def extreme():
    """Shares that are exactly zero, and a logit whose exponential is infinite."""
    model = wide(ScaleKernel(convex()))
    layers = model.covar_module.base_kernel.layers
    layers[0].raw_weight.data[0] = -1e3
    layers[2].raw_weight.data[0, 0] = 800.0
    return model


def botorch():
    """Noise and lengthscales without a transform, with BoTorch's priors; standardised targets."""
    kernels = [
        get_covar_module_with_dim_scaled_prior(ard_num_dims=3),
        get_covar_module_with_dim_scaled_prior(ard_num_dims=1, active_dims=[1]),
    ]
    layers = [Linear(2, 2, weights="simplex"), Linear(2, 1, weights="simplex")]
    x = torch.rand(25, 3)
    y, kernel = torch.sin(6 * x[:, :1]) + x[:, 1:2] ** 2, NeuralKernelNetwork(kernels, layers)
    return SingleTaskGP(x, y, covar_module=ScaleKernel(kernel))


def convex_batch(batch_shape=TWO):
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


def botorch_outputs(num_outputs=2, **options):
    x = torch.rand(15, 3)
    y = torch.stack([torch.sin((4 + k) * x[:, 0]) + x[:, 1] for k in range(num_outputs)], -1)
    kernel = ScaleKernel(
        convex_batch(torch.Size([num_outputs])), batch_shape=torch.Size([num_outputs])
    )
    return SingleTaskGP(x, y, covar_module=perturb(kernel), **options)


def one_network_for_all():
    """With an output scale for each output."""
    return outputs(ScaleKernel(convex_batch(torch.Size([])), batch_shape=TWO))


def one_layer_for_all():
    network = convex_batch()
    network.layers[0] = Linear(2, 4, weights="simplex")
    return outputs(network)


def frozen_outputs():
    model = outputs(ScaleKernel(convex_batch(), batch_shape=TWO))
    model.covar_module.base_kernel.requires_grad_(False)
    return model


def noise_of_outputs():
    noise = 0.01 + 0.1 * torch.rand(2, 15)
    likelihood = FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True, batch_shape=TWO)
    return outputs(convex_batch(), likelihood=likelihood)


def mean_prior():
    model = outputs(convex_batch())
    model.mean_module.register_prior("constant_prior", NormalPrior(0.3, 2.0), "constant")
    return model


KNOWN = {
    "priors": lambda: wide(ScaleKernel(convex(priors=True))),
    "frozen weights": frozen,
    "a layer twice": shared_layer,
    "beside softplus": mixed,
    "extreme values": extreme,
    "BoTorch": botorch,
    "outputs: inputs for all": lambda: outputs(convex_batch(), x=torch.randn(15, 3)),
    "outputs: one network for all": one_network_for_all,
    "outputs: one layer for all": one_layer_for_all,
    "outputs: one noise for all": lambda: outputs(convex_batch(), likelihood=GaussianLikelihood()),
    "outputs: one mean for all": lambda: outputs(convex_batch(), mean=ConstantMean()),
    "outputs: linear mean": lambda: outputs(convex_batch(), mean=LinearMean(3, batch_shape=TWO)),
    "outputs: frozen network": frozen_outputs,
    "outputs: fixed noise": noise_of_outputs,
    "outputs: a prior on all": mean_prior,
    "outputs: BoTorch, three outputs": lambda: botorch_outputs(3, input_transform=Normalize(3)),
    "outputs: BoTorch, known noise": lambda: botorch_outputs(train_Yvar=0.01 + torch.rand(15, 2)),
    "outputs: one network for the last dimension": lambda: outputs(
        ScaleKernel(convex_batch(torch.Size([2, 1])), batch_shape=torch.Size([2, 3])),
        likelihood=GaussianLikelihood(batch_shape=torch.Size([1, 3])),
        batch_shape=torch.Size([2, 3]),
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_loss_and_gradient_equal_the_objectives(name):
    model = make(KNOWN, name)
    check_loss_and_gradient(model)
    assert has_closed_form(model)


def test_single_precision_agrees_with_double_precision():
    model = wide(ScaleKernel(convex(priors=True))).double().train()
    double = TrainingLoss(model, FlatParameters(model).values)()
    single = wide(ScaleKernel(convex(priors=True))).float().train()
    single.load_state_dict(model.state_dict())
    single.set_train_data(model.train_inputs[0].float(), model.train_targets.float(), strict=False)
    loss, gradient = TrainingLoss(single, FlatParameters(single).values)()
    assert gradient.dtype == torch.float32
    assert_same((loss, gradient.double()), double, 1e-3)
