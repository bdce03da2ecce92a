import numpy as np
import pytest
import torch
from gpytorch.priors import GammaPrior

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


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"bias=False has no bias to set, got 1\.0"):
        Linear(2, 1, bias=False).bias = 1.0
    with pytest.raises(ValueError, match=r"bias_prior needs bias=True, got bias=False"):
        Linear(2, 1, bias=False, bias_prior=GammaPrior(1.0, 1.0))
    with pytest.raises(TypeError, match=r"weight_prior must be a gpytorch.priors.Prior, got 0\.5"):
        Linear(2, 1, weight_prior=0.5)
    with pytest.raises(TypeError, match=r"bias_prior must be a gpytorch.priors.Prior, got 'x'"):
        Linear(2, 1, bias_prior="x")
