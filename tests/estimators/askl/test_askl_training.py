"""Steps and epochs of ASKL."""

import math

import numpy as np
import pytest
import torch

from gpytorch_nkn.estimators.askl.askl_network import LOSSES
from gpytorch_nkn.estimators.askl.askl_training import Objective, Trainer
from tests.estimators.askl.test_askl_network import formula, loss_value, network, rows, targets

RATES = (0.03, 0.01)


def trainer(net, penalty=0.1, trace_norm=True, loss="log_loss"):
    objective = Objective(LOSSES[loss], penalty, trace_norm, 0.2, RATES, 8)
    return Trainer(net, objective, np.random.RandomState(0))


def reference(net, x, y, penalty, trace_norm, steps):
    """Train by autograd, PyTorch's optimiser, and an SVD after each step."""
    size = net.weight.numel()
    start = net.values.double()
    head = start[: size + net.num_outputs].clone().requires_grad_()
    layer = start[size + net.num_outputs :].clone().requires_grad_()
    groups = [{"params": [head]}, {"params": [layer]}]
    optimizer = torch.optim.Adam(groups, eps=0.01 / math.sqrt(net.num_features))
    for factor in steps:
        for group, rate in zip(optimizer.param_groups, RATES, strict=True):
            group["lr"] = factor * rate
        features, outputs = formula(net, x[:, :-1].double(), torch.cat([head, layer]))
        value = loss_value("log_loss", outputs, y) + 0.2 * features.square().sum(1).mean()
        if not trace_norm:
            value = value + penalty * head[:size].square().sum()
        optimizer.zero_grad()
        value.backward()
        layer.grad.view(net.matrix.shape)[-1] = 0.0
        optimizer.step()
        if trace_norm:
            with torch.no_grad():
                u, s, v = torch.linalg.svd(head[:size].view(net.weight.shape), full_matrices=False)
                s = (s - penalty * factor * RATES[0]).clamp_min(0)
                head[:size] = ((u * s) @ v).reshape(-1)
    return torch.cat([head, layer]).detach()


@pytest.mark.parametrize("trace_norm", [True, False])
def test_steps_match_torch_and_a_decomposition(trace_norm):
    net, x, y = network(), rows(), targets("log_loss")
    steps = [1.0, 0.8, 0.5, 0.9, 0.2, 1.0, 1.0, 1.0]
    expected = reference(net, x, y, 3.0, trace_norm, steps)
    begin = net.values.clone()
    one = trainer(net, 3.0, trace_norm)
    for factor in steps:
        one.step(x, y, factor)
    torch.testing.assert_close(net.values.double(), expected, rtol=1e-3, atol=2e-4)
    assert (net.values - begin)[: 17 * 4].abs().max() > 0.05
    assert (net.values - begin)[17 * 4 :].abs().max() > 0.005


def interrupt(monkeypatch, number):
    step, count = Trainer.step, [0]

    def counted(self, x, targets, factor=1.0):
        count[0] += 1
        if count[0] == number:
            raise KeyboardInterrupt
        return step(self, x, targets, factor)

    monkeypatch.setattr(Trainer, "step", counted)
