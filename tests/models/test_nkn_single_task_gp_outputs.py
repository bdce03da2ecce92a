"""Some outputs of a model, taken by ``subset_output``."""

from copy import deepcopy

import pytest
import torch
from gpytorch.kernels import RFFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, ZeroMean

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import NKNSingleTaskGP
from tests.models.small_models import data, moved


@pytest.mark.parametrize(
    ("mean", "noise"),
    [
        (ConstantMean(), "shared"),
        (ConstantMean(batch_shape=torch.Size([2])), "each"),
        (ZeroMean(), "known"),
        (LinearMean(2), "each"),  # as many weights as outputs, but a weight per column
        (LinearMean(2, batch_shape=torch.Size([2])), "known and more"),
    ],
    ids=lambda mean: (
        mean
        if isinstance(mean, str)
        else f"{type(mean).__name__} {[tuple(p.shape) for p in mean.parameters()]}"
    ),
)
def test_outputs_of_models_with_other_means_and_noise(mean, noise):
    x, y = data(m=2)
    likelihood = {
        "shared": GaussianLikelihood(),
        "each": GaussianLikelihood(batch_shape=torch.Size([2])),
        "known": None,
        "known and more": FixedNoiseGaussianLikelihood(
            0.1 * torch.rand(2, 9), learn_additional_noise=True, batch_shape=torch.Size([2])
        ),
    }[noise]
    known = 0.1 * torch.rand_like(y) if noise == "known" else None
    model = NKNSingleTaskGP(x, y, known, likelihood=likelihood, mean_module=deepcopy(mean))
    model = moved(model)
    full = model.posterior(x + 0.1)
    for i in range(2):
        some = model.subset_output([i]).posterior(x + 0.1)
        assert some.mean.shape == (9, 1)
        torch.testing.assert_close(some.mean, full.mean[:, [i]])
        torch.testing.assert_close(some.variance, full.variance[:, [i]])


class OtherLinearMean(LinearMean):
    pass


class OtherConstantMean(ConstantMean):
    pass


TWO = torch.Size([2])
UNKNOWN = {
    "linear": ({"mean_module": OtherLinearMean(2, TWO)}, r"mean_module.weights .*\(2, 2, 1\)"),
    "constant": ({"mean_module": OtherConstantMean(batch_shape=TWO)}, r"raw_constant .*\(2,\)"),
    "batch of one": (
        {"likelihood": GaussianLikelihood(batch_shape=torch.Size([1]))},
        r"likelihood.noise_covar.raw_noise .*\(1, 1\)",
    ),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_outputs_of_means_and_noise_that_are_not_known(kind):
    options, message = UNKNOWN[kind]
    model = NKNSingleTaskGP(*data(m=2), **options)
    with pytest.raises(NotImplementedError, match=message):
        model.subset_output([0])


def test_a_scale_without_a_batch_shape_of_its_own_is_subset_with_its_network():
    network = NeuralKernelNetwork.optimization(2, batch_shape=torch.Size([2]))
    kernel = ScaleKernel(network)  # its output scale takes the shape of the network
    kernel.outputscale = torch.tensor([0.5, 2.0])
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(6, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    model = NKNSingleTaskGP(x, y, structure=kernel)
    subset = model.subset_output([1])
    assert subset.covar_module.batch_shape == torch.Size([])
    assert subset.covar_module.outputscale.item() == pytest.approx(2.0)
    torch.testing.assert_close(subset.posterior(x).mean, model.posterior(x).mean[:, 1:])


@pytest.mark.parametrize("batch_shape", [torch.Size([]), torch.Size([2])])
def test_random_features_of_as_many_columns_as_outputs(batch_shape):
    x, y = data(m=2)
    structure = RFFKernel(5, num_dims=2, batch_shape=batch_shape)
    model = NKNSingleTaskGP(x, y, structure=structure.to(x))
    subset = model.subset_output([1])
    torch.testing.assert_close(subset.posterior(x).mean, model.posterior(x).mean[:, 1:])
