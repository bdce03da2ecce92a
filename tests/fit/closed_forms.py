"""References for tests of the loss in closed form."""

import pytest
import torch
from gpytorch.means import ConstantMean

from gpytorch_nkn.fit.minimize import FlatParameters
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.fit.training_loss import TrainingLoss
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import is_compiled
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.settings import kernel_evaluation
from tests.fit.models import SmallGP
from tests.kernels.contract import perturb

FORMULAS_HERE = ["tiles", "compiled"] if is_compiled() else ["tiles"]


def wide(kernel=None, mean=None, likelihood=None, n=25):
    x = torch.randn(n, 3)
    y = torch.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * torch.randn(n)
    kernel = NeuralKernelNetwork.regression(3) if kernel is None else kernel
    model = SmallGP(x, y, perturb(kernel), likelihood)
    model.mean_module = ConstantMean() if mean is None else mean
    return model


def small_network(*primitives, **options):
    layers = [Linear(len(primitives), 4), Product(4, 2), Linear(2, 1, seed=1)]
    return NeuralKernelNetwork(list(primitives), layers, **options)


def make(models, name):
    return models[name]().double().train()


def has_closed_form(model):
    """Whether a model in training mode is trained without autograd; its parameters stay."""
    flat = FlatParameters(model)
    start = flat.values.clone()
    flat.evaluate()
    flat.release(start)
    return flat.closed_form is not None


def loss_and_gradient(objective):
    """By autograd, on whole matrices; the gradient is flat."""
    with kernel_evaluation("plain"):
        loss = objective().sum()
        parameters = [p for p in objective.model.parameters() if p.requires_grad]
        found = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return loss.item(), torch.cat([gradient.flatten() for gradient in found])


def assert_same(actual, expected, tolerance=1e-9):
    assert actual[0] == pytest.approx(expected[0], rel=tolerance, abs=tolerance)
    assert actual[1].shape == expected[1].shape
    assert float((actual[1] - expected[1]).abs().max()) <= tolerance * float(
        expected[1].abs().max()
    )


def check_loss_and_gradient(model):
    """Compare with autograd at the model's point, at another point, and again at the first."""
    objective = Objective(model)
    flat = FlatParameters(objective.model)
    here = flat.values.clone()
    there = here + 0.3 * torch.rand_like(here)
    expected = []
    for place in (there, here):
        flat.values.copy_(place)  # the parameters are views
        expected.append(loss_and_gradient(objective))
    assert expected[0][0] != expected[1][0]
    for path in FORMULAS_HERE:  # auto takes one of them
        with kernel_evaluation(path):
            loss = TrainingLoss(objective.model, flat.values)
            assert torch.equal(flat.values, here)
            assert_same(loss(), expected[1])
            flat.values.copy_(there)
            assert_same(loss(), expected[0])
            flat.values.copy_(here)
            assert_same(loss(), expected[1])
