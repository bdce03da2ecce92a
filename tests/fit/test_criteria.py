import math

import pytest
import torch

from gpytorch_nkn.fit import evaluate_criterion
from gpytorch_nkn.fit.objective import flat_targets, noisy_prior
from tests.fit.models import network_model
from tests.multitask_models import KINDS, make_multitask


def held_out_density(model, blocks):
    """Each block from a Gaussian conditioned on the other points, computed by solves."""
    mean, covariance = noisy_prior(model)
    y, total = flat_targets(model), 0.0
    for block in blocks:
        rest = torch.tensor([i for i in range(y.numel()) if i not in block])
        gain = torch.linalg.solve(covariance[rest][:, rest], covariance[rest][:, block]).T
        center = mean[block] + gain @ (y - mean)[rest]
        variance = (covariance[block][:, block] - gain @ covariance[rest][:, block]).diagonal()
        total += torch.distributions.Normal(center, variance.sqrt()).log_prob(y[block]).sum()
    return (total / y.numel()).item()


@pytest.mark.parametrize("kind", ["one output", *KINDS])
def test_leave_one_out(kind):
    model = network_model(15) if kind == "one output" else make_multitask(kind)
    model.train()
    with torch.no_grad():
        points = torch.arange(flat_targets(model).numel()).unsqueeze(-1)
        expected = held_out_density(model, list(points))
    assert evaluate_criterion(model, "loo", math.nan, 8) == pytest.approx(expected)


def test_blocks_are_contiguous_along_the_input_whatever_the_order_of_rows():
    model = network_model(16).train()
    mixed = torch.randperm(16)
    model.set_train_data(model.train_inputs[0][mixed], model.train_targets[mixed], strict=False)
    order = model.train_inputs[0][:, 0].argsort()
    with torch.no_grad():
        expected = held_out_density(model, order.view(4, 4))
    assert evaluate_criterion(model, "blocked_cv", math.nan, 4) == pytest.approx(expected)
