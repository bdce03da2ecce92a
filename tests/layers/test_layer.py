import pytest
import torch
from gpytorch.priors import LogNormalPrior

from gpytorch_nkn.layers import Layer, Linear, Product


def test_widths_and_batch_shape_are_read_back():
    layer = Layer(3, 2, batch_shape=[4])
    assert (layer.in_features, layer.out_features) == (3, 2)
    assert layer.batch_shape == torch.Size([4]) and isinstance(layer.batch_shape, torch.Size)
    assert Layer(1, 1).batch_shape == torch.Size()


def test_forward_is_left_to_subclasses():
    with pytest.raises(NotImplementedError, match=r"^$"):
        Layer(1, 1)(torch.ones(1, 1))


def test_samples_make_a_batch_of_layers_that_have_parameters():
    layer = Linear(2, 1, bias=False, weight_prior=LogNormalPrior(0.0, 1.0))
    samples = {"weight_prior": torch.rand(5, 1, 2)}
    layer.pyro_load_from_samples(samples)
    assert layer.batch_shape == (5,)
    torch.testing.assert_close(layer.weight, samples["weight_prior"])
    product = Product(2, 1)
    product.pyro_load_from_samples(samples)
    assert product.batch_shape == ()
