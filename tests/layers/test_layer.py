import torch
from gpytorch.priors import LogNormalPrior

from gpytorch_nkn.layers import Linear, Product


def test_samples_make_a_batch_of_layers_that_have_parameters():
    layer = Linear(2, 1, bias=False, weight_prior=LogNormalPrior(0.0, 1.0))
    samples = {"weight_prior": torch.rand(5, 1, 2)}
    layer.pyro_load_from_samples(samples)
    assert layer.batch_shape == (5,)
    torch.testing.assert_close(layer.weight, samples["weight_prior"])
    product = Product(2, 1)
    product.pyro_load_from_samples(samples)
    assert product.batch_shape == ()
