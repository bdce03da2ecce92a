import pytest
import torch

from gpytorch_nkn.averaging import leave_blocks_out, leave_one_out
from gpytorch_nkn.fit import noisy_prior
from tests.fit.models import network_model


def held_out(model, blocks):
    """Each block from a Gaussian conditioned on the other points, computed by solves."""
    with torch.no_grad():
        mean, covariance = noisy_prior(model)
    y, means, variances = model.train_targets, torch.empty(len(mean)), torch.empty(len(mean))
    for block in blocks:
        rest = torch.tensor([i for i in range(len(y)) if i not in block])
        gain = torch.linalg.solve(covariance[rest][:, rest], covariance[rest][:, block]).T
        means[block] = mean[block] + gain @ (y - mean)[rest]
        variances[block] = (covariance[block][:, block] - gain @ covariance[rest][:, block]).diag()
    return means, variances


@pytest.mark.parametrize("size", [1, 4])
def test_rows_and_blocks_along_the_input_are_held_out_whatever_the_order_of_rows(size):
    model = network_model(16).train()
    mixed = torch.randperm(16)
    model.set_train_data(model.train_inputs[0][mixed], model.train_targets[mixed], strict=False)
    blocks = model.train_inputs[0][:, 0].argsort().view(-1, size)
    found = leave_one_out(model) if size == 1 else leave_blocks_out(model, 16 // size)
    torch.testing.assert_close(found, held_out(model, blocks))
