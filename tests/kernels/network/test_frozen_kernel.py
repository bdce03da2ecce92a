"""Networks that are asked with the values that their parameters had."""

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import BatchPredictionStrategy, NeuralKernelNetwork
from gpytorch_nkn.kernels.network import frozen_matrices
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP
from tests.kernels.evaluation.networks import needs_compiled

pytestmark = pytest.mark.usefixtures("default_evaluation")

MODELS = [NKNSingleTaskGP, StructureEnsembleGP]


def random_network(seed, scaled=False):
    kernel = NeuralKernelNetwork.optimization(3).double()
    torch.manual_seed(seed)
    for parameter in kernel.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return ScaleKernel(kernel).double() if scaled else kernel


def strategy():
    made = BatchPredictionStrategy.__new__(BatchPredictionStrategy)
    made.frozen = {}
    return made


def draw(*shape, columns=3):
    return torch.rand(*shape, columns, generator=torch.Generator().manual_seed(1)).double()


def frozen(kernels, x1, x2, kept=None):
    kept = strategy() if kept is None else kept
    return frozen_matrices(kept, kernels, range(len(kernels)), x1, x2)


def model_of(cls):
    x = draw(9)
    return cls(x, (4 * x).sin().sum(-1, keepdim=True)).eval()


@needs_compiled
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 1, 5)])
def test_values_and_gradients_match_the_kernels(shape):
    kernels = [random_network(0), random_network(1, scaled=True)]
    x1, x2 = draw(*shape).requires_grad_(), draw(6)
    found = frozen(kernels, x1, x2)
    expected = torch.stack([kernel(x1, x2).to_dense() for kernel in kernels], -3)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), x1),
        torch.autograd.grad((expected * weights).sum(), x1),
    )


def hooked():
    kernel = random_network(0)
    kernel.register_forward_hook(lambda module, given, out: 2 * out)
    return kernel


class Doubled(NeuralKernelNetwork):
    def forward(self, x1, x2, diag=False, **params):
        return 2 * super().forward(x1, x2, diag=diag, **params)


def doubled():
    made = random_network(0)
    return Doubled(made.primitives, made.layers, skip=made.skip)


@torch.no_grad()
@pytest.mark.parametrize(
    "make",
    [
        lambda: RBFKernel(),
        lambda: ScaleKernel(NeuralKernelNetwork.optimization(2, active_dims=(0, 2))),
        hooked,
        doubled,
    ],
    ids=["no network", "some columns", "hook", "subclass"],
)
def test_other_kernels_are_left_to_themselves(make):
    assert frozen([random_network(0), make().double()], draw(5), draw(5)) is None


@torch.no_grad()
@pytest.mark.parametrize("cls", MODELS)
def test_a_model_that_was_trained_on_predicts_with_its_new_parameters(cls):
    model, fresh, points = model_of(cls), model_of(cls), draw(4, 2)
    model.posterior(points)
    for one in (model, fresh):
        one.train()
        for parameter in one.covar_module.parameters():
            parameter.data += 0.5
        one.eval()
    torch.testing.assert_close(model.posterior(points).mean, fresh.posterior(points).mean)
