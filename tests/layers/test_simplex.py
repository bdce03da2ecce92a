"""Linear layers whose units are convex combinations."""

import numpy as np
import pytest
import torch

from gpytorch_nkn.layers import Linear


def simplex(*widths, **options):
    return Linear(*widths, weights="simplex", **options)


def shares_of(layer):
    """Weights and biases ``O x (C + 1)``, by NumPy from the raw values."""
    raw = layer.raw_weight.detach().numpy()
    if layer.raw_bias is not None:
        raw = np.concatenate([raw, layer.raw_bias.detach().numpy()[..., None]], -1)
    powers = np.exp(raw)
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("bias", [True, False])
def test_values_equal_numpy_on_the_softmax_of_the_raw_parameters(bias):
    layer = simplex(3, 2, bias=bias)
    for raw in layer.parameters():
        raw.data.normal_()
    shares, values = shares_of(layer), torch.randn(3, 5)
    expected = shares[:, :3] @ values.numpy()
    if bias:
        expected += shares[:, 3:]
        np.testing.assert_allclose(layer.bias.detach().numpy(), shares[:, 3], rtol=1e-12)
    else:
        assert layer.bias is None
    np.testing.assert_allclose(layer(values).detach().numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(layer.weight.detach().numpy(), shares[:, :3], rtol=1e-12)
    np.testing.assert_allclose(layer.fractions.detach().numpy(), shares, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [[0.2, 0.3, 0.4], [1e-6, 0.5, 0.1], [0.2, 0.3, 0.5], [0.1] * 3])
def test_weights_that_are_set_are_read_and_the_bias_is_what_is_missing(dtype, row):
    layer = simplex(3, 2).to(dtype)
    weight = torch.tensor([row, [0.1, 0.2, 0.3]], dtype=dtype)
    layer.weight = weight
    assert layer.weight.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(layer.weight, weight, rtol=20 * eps, atol=0)
    torch.testing.assert_close(layer.bias, 1 - weight.sum(-1), rtol=20 * eps, atol=2 * eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 1e-6, 0.3, 0.999])
def test_a_bias_that_is_set_is_read_and_the_weights_keep_their_ratios(dtype, value):
    layer = simplex(3, 2).to(dtype)
    before = layer.weight.detach()
    layer.bias = torch.tensor([value, 0.25], dtype=dtype)
    eps = torch.finfo(dtype).eps
    wanted = torch.tensor([value, 0.25], dtype=dtype)
    torch.testing.assert_close(layer.bias, wanted, rtol=30 * eps, atol=0)
    ratio = layer.weight / before
    torch.testing.assert_close(ratio, ratio[:, :1].expand(2, 3), rtol=100 * eps, atol=0)
    torch.testing.assert_close(layer.weight.sum(-1), 1 - wanted, rtol=100 * eps, atol=eps)


def test_weights_of_exactly_zero():
    layer = simplex(3, 3)
    layer.weight = torch.tensor([[0.0, 0.6, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert layer.weight[0, 0] == 0 and layer.weight[1].abs().max() == 0 and layer.bias[2] == 0
    torch.testing.assert_close(layer.bias, torch.tensor([0.4, 1.0, 0.0]))
    assert layer.raw_weight.isfinite().all() and layer.raw_bias.isfinite().all()
    values = torch.randn(3, 5)
    torch.testing.assert_close(layer(values)[0], 0.6 * values[1] + 0.4)
    torch.testing.assert_close(layer(values)[2], values[2])
    (layer(values) * torch.randn(3, 5)).sum().backward()
    assert layer.raw_weight.grad[0, 0] == 0 and layer.raw_weight.grad.isfinite().all()
    assert layer.raw_weight.grad[0, 1] != 0
    layer.weight = torch.tensor([0.2, 0.3, 0.4])  # and back
    torch.testing.assert_close(layer.weight, torch.tensor([[0.2, 0.3, 0.4]] * 3))


@pytest.mark.parametrize("bias", [True, False])
def test_without_slack_what_does_not_sum_to_one_is_rejected(bias):
    layer = simplex(2, 1, bias=bias)
    before = layer.weight.clone()
    limit = "at most 1" if bias else "1"
    with pytest.raises(ValueError, match=rf"weights of a unit must sum to {limit}, got .*1\.1"):
        layer.weight = torch.tensor([[0.6, 0.5]])
    if not bias:
        with pytest.raises(ValueError, match=r"weights of a unit must sum to 1, got .*0\.9"):
            layer.weight = torch.tensor([[0.4, 0.5]])
        with pytest.raises(ValueError, match=r"bias=False has no bias to set, got 0\.5"):
            layer.bias = 0.5
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("batch_shape", [torch.Size(), torch.Size([2])])
@pytest.mark.parametrize("bias", [True, False])
def test_raw_priors_are_centred_on_the_values_of_the_moment(bias, batch_shape):
    layer = simplex(3, 2, bias=bias, batch_shape=batch_shape)
    layer.weight = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    layer.add_raw_priors()
    priors = {name: prior for name, _, prior, _, _ in layer.named_priors()}
    assert set(priors) == ({"weight_prior", "bias_prior"} if bias else {"weight_prior"})
    assert all(torch.all(prior.scale == 1.0) for prior in priors.values())
    center = priors["weight_prior"].loc
    assert center.shape == (2, 3)
    torch.testing.assert_close(center.expand_as(layer.raw_weight), layer.raw_weight.detach())
    powers = center.exp()
    torch.testing.assert_close(powers[0] / powers[0, 0], torch.tensor([1.0, 1.5, 2.5]))


def test_a_prior_on_raw_weights_leaves_pruned_ones_alone():
    layer = Linear(3, 2, weights="simplex").double()
    layer.add_raw_priors()
    weight = layer.weight.detach().clone()
    weight[0, 0] = 0.0
    layer.weight = weight
    density = sum(p.log_prob(get(m)).sum() for _, m, p, get, _ in layer.named_priors())
    # the least density is far from that of ten standard deviations for any weight
    assert density > -50
    density.backward()
    assert layer.raw_weight.grad[0, 0] == 0 and layer.raw_weight.grad[0, 1] != 0
    assert layer.weight[0, 0] == 0
