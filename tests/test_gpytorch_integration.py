"""Samples of all parameters of networks, as Pyro's samplers load them."""

import pytest
import torch

from gpytorch_nkn.kernels import NeuralKernelNetwork

NETWORKS = {
    "time_series": NeuralKernelNetwork.time_series,
    "regression": lambda **options: NeuralKernelNetwork.regression(1, **options),
}


def samples_of_priors(module, num_samples):
    torch.manual_seed(1)
    samples = {}
    for name, owner, prior, closure, _ in module.named_priors():
        samples[name] = prior.sample((num_samples, *closure(owner).shape)).clamp(0.05, 5.0)
    return samples


@pytest.mark.parametrize(
    ("name", "batch_shape"), [("time_series", (2,)), ("regression", ()), ("regression", (2,))]
)
def test_samples_of_all_parameters_can_be_loaded(name, batch_shape):
    """What Pyro's samplers call: every parameter gets a batch of samples."""
    kernel = NETWORKS[name](batch_shape=torch.Size(batch_shape))
    samples = samples_of_priors(kernel, 4)
    x = torch.randn(5, 1)
    expected = []
    for i in range(4):
        single = NETWORKS[name](batch_shape=torch.Size(batch_shape))
        for key, owner, _, _, setting_closure in single.named_priors():
            setting_closure(owner, samples[key][i])
        expected.append(single(x).to_dense())
    kernel.pyro_load_from_samples(samples)
    assert kernel.batch_shape == (4, *batch_shape)
    matrix = kernel(x.expand(4, *[1] * len(batch_shape), 5, 1)).to_dense()
    torch.testing.assert_close(matrix, torch.stack(expected), rtol=1e-5, atol=1e-6)
    diagonal = kernel(x, diag=True)
    torch.testing.assert_close(diagonal, matrix.diagonal(dim1=-1, dim2=-2), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(kernel[2](x).to_dense(), matrix[2])
