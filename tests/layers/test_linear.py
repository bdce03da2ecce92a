import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from gpytorch.priors import GammaPrior, LogNormalPrior

from gpytorch_nkn.layers import Linear


def test_values_equal_numpy_on_the_softplus_of_the_raw_parameters():
    layer = Linear(3, 2)
    layer.raw_weight.data.normal_()
    layer.raw_bias.data.normal_()
    values = torch.randn(3, 5)
    raw = layer.raw_weight.detach().numpy()
    expected = np.log1p(np.exp(raw)) @ values.numpy()
    expected += np.log1p(np.exp(layer.raw_bias.detach().numpy()))[:, None]
    np.testing.assert_allclose(layer(values).detach().numpy(), expected, rtol=1e-12)


def test_complex_values_are_mixed_in_real_and_imaginary_part():
    layer = Linear(3, 2)
    layer.bias = torch.tensor([0.5, 2.0])
    values = torch.randn(4, 3, 5, dtype=torch.complex128)
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    out = layer(values).detach().numpy()
    assert out.shape == (4, 2, 5) and np.abs(out.imag).max() > 0.1
    np.testing.assert_allclose(out, weight @ values.numpy() + bias[:, None], rtol=1e-12)


def test_complex_and_real_values_agree_where_the_imaginary_part_is_zero():
    layer, values = Linear(3, 2), torch.randn(3, 5)
    out = layer(values.to(torch.complex128))
    torch.testing.assert_close(out, layer(values).to(torch.complex128))


def test_without_bias():
    layer, values = Linear(3, 2, bias=False), torch.randn(3, 5)
    assert layer.bias is None and [n for n, _ in layer.named_parameters()] == ["raw_weight"]
    torch.testing.assert_close(layer(values), layer.weight @ values)


def test_batch_of_layers_equals_one_layer_at_a_time():
    layer = Linear(3, 2, batch_shape=torch.Size([4, 1]))
    layer.raw_bias.data.normal_()
    values = torch.randn(4, 5, 3, 6)
    out = layer(values)
    assert out.shape == (4, 5, 2, 6)
    for i in range(4):
        for j in range(5):
            expected = layer.weight[i, 0] @ values[i, j] + layer.bias[i, 0].unsqueeze(-1)
            torch.testing.assert_close(out[i, j], expected)


def test_weights_and_biases_of_exactly_zero():
    layer = Linear(3, 2)
    layer.weight = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    layer.bias = torch.tensor([0.0, 2.5])
    assert layer.weight[0, 0] == 0 and layer.weight[1].abs().max() == 0 and layer.bias[0] == 0
    values = torch.randn(3, 5)
    out = layer(values)
    torch.testing.assert_close(out[0], values[1])
    torch.testing.assert_close(out[1], torch.full((5,), 2.5))
    out.sum().backward()
    assert layer.raw_weight.grad[0, 0] == 0 and layer.raw_weight.grad.isfinite().all()
    assert layer.raw_weight.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 1e-6, 0.3, 1.0, 40.0])
def test_what_is_set_is_what_is_read(dtype, value):
    layer = Linear(2, 2).to(dtype)
    layer.weight, layer.bias = value, value
    assert layer.weight.dtype == dtype
    torch.testing.assert_close(
        layer.weight, torch.full((2, 2), value, dtype=dtype), atol=1e-12, rtol=1e-5
    )
    torch.testing.assert_close(
        layer.bias, torch.full((2,), value, dtype=dtype), atol=1e-12, rtol=1e-5
    )


def test_start_weights_lie_in_the_interval_and_differ_between_units():
    layer = Linear(6, 5)
    assert (layer.weight > 0.5 / 6).all() and (layer.weight < 1.5 / 6).all()
    assert layer.weight.detach().unique().numel() == 30
    torch.testing.assert_close(layer.bias, torch.full((5,), 0.01))


def test_seed_decides_the_start_and_the_global_random_state_does_not():
    before = torch.get_rng_state()
    layers = [Linear(3, 2, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    again = Linear(3, 2)
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert torch.equal(layers[0].weight, again.weight)
    assert not torch.equal(layers[0].weight, layers[2].weight)


def test_reset_parameters_draws_from_the_generator():
    layer = Linear(3, 2)
    layer.bias = 2.0
    layer.reset_parameters(torch.Generator().manual_seed(7))
    assert torch.equal(layer.weight, Linear(3, 2, seed=7).weight)
    torch.testing.assert_close(layer.bias, torch.full((2,), 0.01))


@pytest.mark.parametrize("batch_shape", [torch.Size(), torch.Size([2])])
def test_priors_can_be_sampled_pickled_and_copied(batch_shape):
    layer = Linear(
        3,
        2,
        batch_shape=batch_shape,
        weight_prior=LogNormalPrior(-2.0, 1.0),
        bias_prior=GammaPrior(2.0, 3.0),
    )
    for copy in (layer, pickle.loads(pickle.dumps(layer)), deepcopy(layer)):
        weight, bias = copy.weight.clone(), copy.bias.clone()
        copy.sample_from_prior("weight_prior")
        copy.sample_from_prior("bias_prior")
        assert not torch.equal(copy.weight, weight) and not torch.equal(copy.bias, bias)
        assert (copy.weight >= 0).all() and copy.weight.shape == weight.shape
        names = {name for name, _, prior, closure, _ in copy.named_priors() if closure(copy).sum()}
        assert names == {"weight_prior", "bias_prior"}


def test_a_sample_of_weights_per_connection_is_loaded():
    prior = LogNormalPrior(torch.zeros(2, 3), torch.ones(2, 3))
    layer = Linear(3, 2, weight_prior=prior)
    torch.manual_seed(3)
    expected = prior.sample()
    torch.manual_seed(3)
    layer.sample_from_prior("weight_prior")
    torch.testing.assert_close(layer.weight, expected)


def test_representation_shows_the_widths():
    assert repr(Linear(3, 2, bias=False)).startswith("Linear(\n  3, 2, bias=False")


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_weights_and_biases_must_be_finite_and_non_negative(value):
    layer = Linear(2, 1)
    with pytest.raises(ValueError, match=r"weight must be finite and non-negative, got .*"):
        layer.weight = torch.tensor([[1.0, value]])
    with pytest.raises(ValueError, match=rf"bias must be finite and non-negative, got {value}"):
        layer.bias = value


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_wrong_shapes_are_shown(batch_shape):
    layer = Linear(3, 2, batch_shape=torch.Size(batch_shape))
    with pytest.raises(
        ValueError, match=r"weight must have the shape ... x \(2, 3\), got \(3, 2\)"
    ):
        layer.weight = torch.ones(3, 2)
    with pytest.raises(ValueError, match=r"weight must have the shape ... x \(2, 3\), got \(5,\)"):
        layer.weight = torch.ones(5)
    with pytest.raises(ValueError, match=r"bias must have the shape ... x \(2,\), got \(1, 3\)"):
        layer.bias = torch.ones(1, 3)


def test_values_that_broadcast_can_be_set():
    layer = Linear(3, 2, batch_shape=torch.Size([2]))
    layer.weight = torch.tensor([[1.0], [2.0]])
    layer.bias = torch.tensor([[3.0], [4.0]])
    torch.testing.assert_close(layer.weight, torch.tensor([[[1.0] * 3, [2.0] * 3]] * 2))
    torch.testing.assert_close(layer.bias, torch.tensor([[3.0, 3.0], [4.0, 4.0]]))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"bias=False, got the bias 1\.0"):
        Linear(2, 1, bias=False).bias = 1.0
    with pytest.raises(ValueError, match=r"bias_prior needs bias=True, got bias=False"):
        Linear(2, 1, bias=False, bias_prior=GammaPrior(1.0, 1.0))
    with pytest.raises(TypeError, match=r"weight_prior must be a gpytorch.priors.Prior, got 0\.5"):
        Linear(2, 1, weight_prior=0.5)
    with pytest.raises(TypeError, match=r"bias_prior must be a gpytorch.priors.Prior, got 'x'"):
        Linear(2, 1, bias_prior="x")


@pytest.mark.parametrize("widths, name, got", [((0, 1), "in", "0"), ((2, -1), "out", "-1")])
def test_width_below_one_is_refused(widths, name, got):
    with pytest.raises(ValueError, match=f"{name}_features must be at least 1, got {got}"):
        Linear(*widths)


@pytest.mark.parametrize("widths, name, got", [((2.0, 1), "in", "2.0"), ((2, True), "out", "True")])
def test_width_must_be_an_integer(widths, name, got):
    with pytest.raises(TypeError, match=f"{name}_features must be an integer, got {got}"):
        Linear(*widths)


def test_gradcheck():
    layer, values = Linear(3, 2), torch.randn(3, 4, dtype=torch.complex128, requires_grad=True)
    parameters = dict(layer.named_parameters())

    def function(values, *raw):
        return torch.func.functional_call(layer, dict(zip(parameters, raw, strict=True)), (values,))

    assert torch.autograd.gradcheck(function, (values, *parameters.values()))
    assert torch.autograd.gradcheck(
        function, (values.real.detach().requires_grad_(), *parameters.values())
    )


def test_initial_bias_is_where_biases_start_and_go_back_to():
    layer = Linear(3, 2, initial_bias=1.5)
    torch.testing.assert_close(layer.bias, torch.full((2,), 1.5))
    layer.bias = 0.2
    layer.reset_parameters(torch.Generator().manual_seed(1))
    torch.testing.assert_close(layer.bias, torch.full((2,), 1.5))
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"initial_bias must be finite.*got {value}"):
            Linear(3, 2, initial_bias=value)
