"""Priors on parameters of any shape count as often as there are kernels that have them."""

import inspect

import pytest
import torch
from botorch.optim.utils.model_utils import sample_all_priors
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, NormalPrior

from gpytorch_nkn import kernels
from gpytorch_nkn.layers import Linear
from tests.fit.models import SmallGP

SIGNED = NormalPrior(0.2, 0.7)
POSITIVE = GammaPrior(3.0, 2.0)
OWN = {  # what each kernel has priors on that are no lengthscales
    kernels.BivariateComplexExponentialKernel: {"frequency_prior": SIGNED},
    kernels.BivariateSpectralMixtureKernel: {
        "weight_prior": POSITIVE,
        "scale_prior": POSITIVE,
        "correlation_prior": NormalPrior(0.5, 0.05),
        "frequency_prior": SIGNED,
    },
    kernels.ChangePointKernel: {"location_prior": SIGNED, "width_prior": POSITIVE},
    kernels.StepKernel: {"location_prior": SIGNED, "width_prior": POSITIVE},
    kernels.CenteredLinearKernel: {"variance_prior": POSITIVE},
    kernels.ComplexExponentialKernel: {"frequency_prior": SIGNED},
    kernels.DataAdaptiveHadamardKernel: {"weight_prior": SIGNED},
    kernels.InputWarpKernel: {
        "concentration1_prior": POSITIVE,
        "concentration0_prior": POSITIVE,
    },
    kernels.NonStationarySpectralKernel: {
        "outputscale_prior": POSITIVE,
        "frequency_prior": 0.5,
        "difference_prior": 0.1,
    },
    kernels.SpectralComponentKernel: {"frequency_prior": SIGNED},
    kernels.ZeroMeanPeriodicKernel: {"period_length_prior": POSITIVE},
}


def make(cls, **options):
    if cls is kernels.NonStationarySpectralKernel:
        return cls(3, 2, **options)
    if cls is kernels.DataAdaptiveHadamardKernel:
        return cls(RBFKernel(), torch.rand(4, 2, generator=torch.Generator().manual_seed(0)), 2)
    if cls is kernels.ChangePointKernel:
        return cls(
            RBFKernel(), RBFKernel(), RBFKernel(), location=torch.tensor([0.2, 0.5]), **options
        )
    if cls is kernels.InputWarpKernel:
        return cls(RBFKernel(), 2, **options)
    if cls is kernels.StepKernel:
        return cls(active_dims=(0,), **options)
    kernel = cls(ard_num_dims=2, **options)
    if isinstance(kernel, kernels.ComplexKernel):
        return kernels.NeuralKernelNetwork([kernel], [Linear(1, 1)])
    return kernel


def test_every_kernel_with_priors_of_its_own_is_here():
    found = {
        (cls, name)
        for cls in (getattr(kernels, name) for name in kernels.__all__)
        if inspect.isclass(cls)
        for name in inspect.signature(cls).parameters
        if name.endswith("_prior") and name != "lengthscale_prior"
    }
    assert found == {(cls, name) for cls, priors in OWN.items() for name in priors}


@pytest.mark.parametrize("batch_shape", [(3,), (4,), (2, 3)])
@pytest.mark.parametrize("cls", OWN, ids=lambda cls: cls.__name__)
def test_priors_of_an_unbatched_kernel_count_for_every_data_set(cls, batch_shape):
    kernel = make(cls, **OWN[cls])
    x = torch.rand(*batch_shape, 5, 2)
    y = x.sum(-1).cos()

    def value(x, y):
        model = SmallGP(x, y, kernel).train()
        return ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)

    together = value(x, y)
    flat = zip(x.flatten(0, -3), y.flatten(0, -2), strict=True)
    torch.testing.assert_close(together.flatten(), torch.stack([value(*one) for one in flat]))
    before = {name: p.detach().clone() for name, p in kernel.named_parameters()}
    named = list(kernel.named_priors())
    assert len(named) >= len(OWN[cls])
    sample_all_priors(SmallGP(x, y, kernel))
    for name, parameter in kernel.named_parameters():
        assert parameter.shape == before[name].shape
    assert any(not torch.equal(p, before[name]) for name, p in kernel.named_parameters())
