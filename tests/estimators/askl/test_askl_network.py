"""Features, losses and gradients of ASKL."""

import math

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from torch.nn.functional import cross_entropy

from gpytorch_nkn.estimators import ASKLRegressor
from gpytorch_nkn.estimators.askl import askl_network
from gpytorch_nkn.estimators.askl.askl_network import LOSSES, SpectralNetwork


def network(terms=2, *, dim=3, size=16, outputs=4, learned=True):
    made = SpectralNetwork(
        torch.randn(terms, size, dim),
        6 * torch.rand(size),
        outputs,
        learned=learned,
        device=torch.device("cpu"),
    )
    made.weight.normal_()
    made.intercept.normal_()
    made.parts()
    return made


def rows(count=20, dim=3):
    return torch.cat([torch.randn(count, dim), torch.ones(count, 1)], 1).float()


def targets(loss, count=20, outputs=4):
    if loss == "squared_error":
        return torch.randn(count, outputs).float()
    return torch.randint(0, outputs, (count, 1))


def formula(net, x, values):
    """Features and outputs as the paper writes them, from a vector of parameters."""
    weight, intercept, matrix = net._views(values)
    size = net.num_features
    waves = torch.cos(x @ matrix[:-1] + matrix[-1])
    if net.terms == 2:
        seen = (waves[:, :size] + waves[:, size:]) / math.sqrt(2 * size)
    else:
        seen = waves * math.sqrt(2 / size)
    return seen, seen @ weight.T + intercept


def loss_value(name, outputs, y):
    if name == "log_loss":
        return cross_entropy(outputs, y[:, 0])
    if name == "squared_error":
        return (outputs - y).square().sum(1).mean()
    right = outputs.gather(1, y)
    others = outputs.masked_fill(torch.zeros_like(outputs).scatter(1, y, 1.0).bool(), -math.inf)
    return (1 - right + others.max(1, keepdim=True).values).clamp_min(0).mean()


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_gradients_match_autograd(loss, terms, learned):
    net, x, y = network(terms, learned=learned), rows(), targets(loss)
    values = net.values.double().requires_grad_()
    features, outputs = formula(net, x[:, :-1].double(), values)
    value = loss_value(loss, outputs, y)
    (value + 0.7 * features.square().sum(1).mean()).backward()
    total = net.compute_gradient(x, y, LOSSES[loss], feature_penalty=0.7)
    assert float(total) / len(x) == pytest.approx(value.item(), rel=1e-5)
    expected = values.grad.clone()
    matrix = net._views(expected)[2]
    matrix[-1 if learned else slice(None)] = 0.0  # phases are not learned
    torch.testing.assert_close(net.gradient.double(), expected, rtol=1e-3, atol=1e-5)
    assert [bool(part.abs().max() > 1e-3) for _, part in net.parts()] == [True] * (1 + learned)


def test_blocks_of_rows_add_up(monkeypatch):
    net, x, y = network(), rows(23), targets("log_loss", 23)
    total = net.compute_gradient(x, y, LOSSES["log_loss"], feature_penalty=0.7)
    whole, outputs = net.gradient.clone(), net.outputs(x)
    monkeypatch.setattr(askl_network, "_BLOCK", 5 * 32)
    again = network()
    again.values.copy_(net.values)
    again.parts()
    assert again.block_rows == 5 and net.block_rows > 23
    parts = again.compute_gradient(x, y, LOSSES["log_loss"], feature_penalty=0.7)
    torch.testing.assert_close(parts, total)
    torch.testing.assert_close(again.gradient, whole, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(again.outputs(x), outputs)


def test_log_loss_of_large_outputs_is_finite():
    outputs = torch.tensor([[1e4, 0.0], [0.0, 1e4]])
    assert float(LOSSES["log_loss"](outputs, torch.tensor([[0], [0]]))) == pytest.approx(1e4)
    assert torch.equal(outputs, torch.tensor([[0.0, 0.0], [-1.0, 1.0]]))


@pytest.mark.parametrize("method", ["SKL", "ASKL"])
def test_the_learned_kernel_goes_into_a_gaussian_process(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    learner = ASKLRegressor(method, n_components=20, max_iter=5, random_state=0).fit(X, y)
    kernel = learner.kernel()
    inputs = torch.from_numpy(learner.input_map_(X))
    features = learner.features(X)
    np.testing.assert_allclose(kernel.features(inputs).detach(), features, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        kernel(inputs).to_dense().detach(), features @ features.T, rtol=1e-6, atol=1e-6
    )
    assert kernel.stationary == (method == "SKL")
    assert not kernel.mean_frequencies.requires_grad
    model = SingleTaskGP(inputs, torch.from_numpy(y)[:, None], covar_module=kernel)
    assert model.posterior(inputs).mean.isfinite().all()
