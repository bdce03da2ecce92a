"""Networks that are asked with the values that their parameters had."""

from types import SimpleNamespace

import pytest
import torch
from botorch.settings import propagate_grads
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.settings import detach_test_caches

from gpytorch_nkn.kernels import BatchPredictionStrategy, NeuralKernelNetwork
from gpytorch_nkn.kernels.network import frozen_kernels, frozen_matrices
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP
from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.evaluation.networks import needs_compiled


def random_network(seed, scaled=False):
    kernel = NeuralKernelNetwork.optimization(3).double()
    torch.manual_seed(seed)
    for parameter in kernel.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return ScaleKernel(kernel).double() if scaled else kernel


def strategy():
    return BatchPredictionStrategy.__new__(BatchPredictionStrategy)


def draw(*shape):
    return torch.rand(*shape, 3, generator=torch.Generator().manual_seed(1)).double()


@needs_compiled
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 1, 5)])
def test_values_and_gradients_are_those_of_the_kernels(shape):
    kernels = [random_network(0), random_network(1, scaled=True)]
    x1, x2 = draw(*shape).requires_grad_(), draw(6)
    found = frozen_matrices(frozen_kernels(strategy(), kernels, 3), x1, x2)
    expected = torch.stack([kernel(x1, x2).to_dense() for kernel in kernels], -3)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), x1),
        torch.autograd.grad((expected * weights).sum(), x1),
    )


@needs_compiled
def test_they_are_looked_up_once():
    kernel, kept = random_network(0), strategy()
    x = draw(5)
    before = frozen_matrices(frozen_kernels(kept, [kernel], 3), x, x)
    for parameter in kernel.parameters():
        parameter.data += 1
    torch.testing.assert_close(frozen_matrices(frozen_kernels(kept, [kernel], 3), x, x), before)
    after = frozen_matrices(frozen_kernels(strategy(), [kernel], 3), x, x)
    assert not torch.allclose(before, after)


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
    frozen = frozen_kernels(strategy(), [random_network(0), make().double()], 3)
    assert frozen[1] is None
    assert frozen_matrices(frozen, draw(5), draw(5)) is None


def test_without_a_strategy_of_ours_or_with_gradients_through_caches_nothing_is_kept():
    kernels = [random_network(0)]
    assert list(frozen_kernels(SimpleNamespace(), kernels, 3)) == [None]
    kept = strategy()
    with detach_test_caches(False):
        assert list(frozen_kernels(kept, kernels, 3)) == [None]
    assert kept.frozen is None


@pytest.mark.parametrize("cls", [NKNSingleTaskGP, StructureEnsembleGP])
def test_posteriors_are_those_of_plain_evaluation(cls):
    x, points = draw(9), draw(4, 2)
    model = cls(x, (4 * x).sin().sum(-1, keepdim=True)).eval()
    found = model.posterior(points)
    with kernel_evaluation("plain"):
        model.train().eval()
        expected = model.posterior(points)
        torch.testing.assert_close(found.mean, expected.mean)
        torch.testing.assert_close(
            found.distribution.covariance_matrix, expected.distribution.covariance_matrix
        )


@pytest.mark.parametrize("cls", [NKNSingleTaskGP, StructureEnsembleGP])
def test_a_model_that_was_trained_on_predicts_with_its_new_parameters(cls):
    x, points = draw(9), draw(4, 2)
    y = (4 * x).sin().sum(-1, keepdim=True)
    model, fresh = cls(x, y).eval(), cls(x, y)
    model.posterior(points)
    for one in (model, fresh):
        one.train()
        for parameter in one.covar_module.parameters():
            parameter.data += 0.5
        one.eval()
    torch.testing.assert_close(model.posterior(points).mean, fresh.posterior(points).mean)


@pytest.mark.parametrize("cls", [NKNSingleTaskGP, StructureEnsembleGP])
def test_gradients_of_parameters_through_predictions(cls):
    x = draw(9)
    model = cls(x, (4 * x).sin().sum(-1, keepdim=True)).eval()
    with propagate_grads():
        model.posterior(draw(2)).mean.sum().backward()
    assert any(bool(p.grad.any()) for p in model.covar_module.parameters() if p.grad is not None)
