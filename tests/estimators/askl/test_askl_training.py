"""Steps and epochs of ASKL."""

import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from gpytorch_nkn.estimators.askl.askl_network import LOSSES
from gpytorch_nkn.estimators.askl.askl_training import Objective, Trainer
from tests.estimators.askl.test_askl_network import formula, loss_value, network, rows, targets

RATES = (0.03, 0.01)


def trainer(net, penalty=0.1, trace_norm=True, loss="log_loss"):
    objective = Objective(LOSSES[loss], penalty, trace_norm, 0.2, RATES, 8)
    return Trainer(net, objective, np.random.RandomState(0))


def reference(net, x, y, penalty, trace_norm, steps):
    """Autograd, torch's own optimiser, and an SVD after each of its steps."""
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
def test_steps_are_those_of_torch_and_a_decomposition(trace_norm):
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


def run(net, x, y, cycles=(2, 3), **options):
    return trainer(net, penalty=1e-4).run(x, y, cycles, **options)


def scored(scores, copies):
    scores = iter(scores)

    def validate(network):
        copies.append(network.values.clone())
        return next(scores)

    return validate


def test_the_best_cycle_is_kept():
    net, x, y = network(), rows(), targets("log_loss")
    copies = []
    validate = scored([0.0, 2.0, 1.0, 2.0, 1.5, 9.0], copies)
    record = run(net, x, y, [1, 2, 1, 1, 1, 1], validate=validate, patience=3)
    assert record.scores == [0.0, 2.0, 1.0, 2.0, 1.5]
    assert record.best == 2 and record.best_epoch == 3 and len(record.losses) == 6
    assert torch.equal(net.values, copies[1]) and not torch.equal(copies[1], copies[4])


def interrupt(monkeypatch, number):
    step, count = Trainer.step, [0]

    def counted(self, x, targets, factor=1.0):
        count[0] += 1
        if count[0] == number:
            raise KeyboardInterrupt
        return step(self, x, targets, factor)

    monkeypatch.setattr(Trainer, "step", counted)


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    net, x, y = network(), rows(16), targets("log_loss", 16)
    interrupt(monkeypatch, 8)  # two steps an epoch: in the fourth
    copies = []
    record = run(net, x, y, [1, 1, 1, 9], validate=scored([1.0, 3.0, 2.0], copies))
    assert record.best == 2 and record.stopped == "interrupted"
    assert torch.equal(net.values, copies[1])


def test_a_training_that_diverges_keeps_the_last_finite_cycle(monkeypatch):
    net, x, y = network(), rows(16), targets("log_loss", 16)
    epoch, copies = Trainer.epoch, []

    def fourth_fails(self, *args):
        if len(copies) == 3:
            self.network.values.fill_(math.nan)
            return 1.0
        loss = epoch(self, *args)
        copies.append(self.network.values.clone())
        return loss

    monkeypatch.setattr(Trainer, "epoch", fourth_fails)
    with pytest.warns(ConvergenceWarning, match="in epoch 4.* epoch 2 are kept"):
        record = run(net, x, y)
    assert record.stopped == "diverged" and torch.equal(net.values, copies[1])
    monkeypatch.undo()
    x[0, 0] = math.inf
    with pytest.raises(FloatingPointError, match="Values became infinite or NaN in epoch 1"):
        run(net, x, y)
