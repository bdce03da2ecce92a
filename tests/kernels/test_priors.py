"""Priors on parameters of any shape count as often as there are kernels that have them."""

import inspect
import math
from functools import partial

import numpy as np
import pytest
import torch
from botorch.optim.utils.model_utils import sample_all_priors
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn import kernels
from gpytorch_nkn.estimators.series.candidates import SeriesGP
from gpytorch_nkn.fit import Rows
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood
from gpytorch_nkn.models import NKNMultiTaskGP
from tests.fit.models import SmallGP
from tests.kernels.registry import REGISTRY
from tests.models.registry import CASES

OWN = {  # what each kernel has priors on that are no lengthscales
    kernels.DataAdaptiveHadamardKernel: {"weight_prior": 0.7},
    kernels.NonStationarySpectralKernel: {"frequency_prior": 0.5, "difference_prior": 0.1},
}


def make(cls, **options):
    if cls is kernels.NonStationarySpectralKernel:
        return cls(3, 2, **options)
    if cls is kernels.DataAdaptiveHadamardKernel:
        return cls(RBFKernel(), torch.rand(4, 2, generator=torch.Generator().manual_seed(0)), 2)
    return cls(RBFKernel(), 2, **options)


def test_every_kernel_with_priors_of_its_own_is_here():
    found = {
        (cls, name)
        for cls in (getattr(kernels, name) for name in kernels.__all__)
        if inspect.isclass(cls)
        for name in inspect.signature(cls).parameters
        if name.endswith("_prior") and name != "lengthscale_prior"
    }
    assert found == {(cls, name) for cls, priors in OWN.items() for name in priors}


UNBATCHED = {cls.__name__: partial(make, cls, **priors) for cls, priors in OWN.items()}
NETWORK = kernels.NeuralKernelNetwork
UNBATCHED |= {
    "forecast": partial(NETWORK.forecast, origin=-1.0, active_dims=(0,)),
    "texture": partial(NETWORK.texture, sparsity="l1", active_dims=(1,)),
    "tabular": partial(NETWORK.tabular, 2),
    "optimization": partial(NETWORK.optimization, 2),
    "pairs": partial(NETWORK.pairs, 2),
}
MLLS = ExactMarginalLogLikelihood, AnalyticExactMarginalLogLikelihood


@pytest.mark.parametrize(
    ("name", "batch_shape"),
    [
        *((name, (2, 3)) for name in UNBATCHED),
        ("DataAdaptiveHadamardKernel", (4,)),  # as many as there are anchors
        ("texture", (8,)),  # as many as there are units
    ],
)
def test_priors_of_an_unbatched_kernel_count_for_every_data_set(name, batch_shape):
    kernel = UNBATCHED[name]()
    x = torch.rand(*batch_shape, 5, 2)
    y = x.sum(-1).cos()

    def value(x, y):
        model = SmallGP(x, y, kernel).train()
        return torch.stack([mll(model.likelihood, model)(model(x), y) for mll in MLLS], -1)

    together = value(x, y)
    flat = zip(x.flatten(0, -3), y.flatten(0, -2), strict=True)
    assert together.shape == (*batch_shape, len(MLLS))
    torch.testing.assert_close(together.flatten(0, -2), torch.stack([value(*one) for one in flat]))
    before = {name: p.detach().clone() for name, p in kernel.named_parameters()}
    assert list(kernel.named_priors())
    sample_all_priors(SmallGP(x, y, kernel))
    for name, parameter in kernel.named_parameters():
        assert parameter.shape == before[name].shape
    assert any(not torch.equal(p, before[name]) for name, p in kernel.named_parameters())


def with_priors():
    """Everything that has priors of its own: kernels, presets, and parts of models."""
    found = {cls.__name__: make(cls, **priors) for cls, priors in OWN.items()}
    found |= {entry.name: entry.make() for entry in REGISTRY}
    network = kernels.NeuralKernelNetwork
    found["forecast"] = network.forecast(
        origin=0.0, cycles=[3.0], shifts=[0.5], covariates=[1, 2], nonlinear=[2]
    )
    found["categories"] = network.tabular(3, cat_dims=[1])
    found["time_series l1"] = network.time_series(sparsity="l1")
    for case in CASES:
        if case.cls is NKNMultiTaskGP:
            continue  # BoTorch's prior is on correlations, which two parameters make
        model = case.make(*case.data(batch_shape=(2,) if case.batches else ()))
        found[case.name] = getattr(model, "model", model)  # BoTorch's holds GPyTorch's
    data, network = Rows(torch.rand(5, 1), torch.rand(5)), network.time_series()
    found["series"] = SeriesGP(data, network, line=True)
    return {name: made for name, made in found.items() if any(True for _ in made.named_priors())}


def test_draws_of_a_parameter_have_the_density_of_its_posterior():
    """That multiplies the densities of all priors on a parameter, draws are of the last one."""
    torch.manual_seed(0)
    tried = set()
    for place, module in with_priors().items():
        parameters = {key: p for key, p in module.named_parameters() if p.requires_grad}
        before = {key: p.detach().clone() for key, p in parameters.items()}
        seen = set()
        for name, owner, prior, read, _ in module.named_priors():
            value = read(owner)
            if value.requires_grad:
                slopes = torch.autograd.grad(value.sum(), parameters.values(), allow_unused=True)
                own = {key for key, s in zip(parameters, slopes, strict=True) if s is not None}
                assert own and not own & seen, f"{place}: {name} is not the only prior on {own}"
                seen |= own
            kind = repr((type(prior), prior.state_dict(), getattr(prior, "rate", None)))
            if kind not in tried:
                tried.add(kind)
                check_draws(prior, f"{place}: {name}")
        sample_all_priors(module)
        moved = [key for key, p in parameters.items() if not torch.equal(p, before[key])]
        assert seen <= set(moved) and all(p.isfinite().all() for p in parameters.values())
    assert len(tried) > 30


def check_draws(prior, name, count=4000):
    """Kolmogorov and Smirnov's test of the first element, which one in 1,000 would fail."""
    draws = prior.sample(torch.Size([count]))
    others = [1] * (draws.dim() - 1)
    first = draws.reshape(count, -1)[:, 0]
    if bool((first > 0).all()):
        grid = torch.logspace(-20, 12, 20_001, dtype=first.dtype)
    else:
        grid = first.mean() + first.std() * torch.linspace(-8, 8, 20_001, dtype=first.dtype)
    density = prior.log_prob(grid.view(-1, *others)).reshape(len(grid), -1)[:, 0].exp()
    cumulative = torch.cumulative_trapezoid(density.double(), grid.double())
    cumulative = np.concatenate([[0.0], cumulative / cumulative[-1]])
    expected = np.interp(np.sort(first.numpy()), grid.numpy(), cumulative)
    distance = np.abs(expected - (np.arange(count) + 0.5) / count).max()
    assert distance < 1.95 / math.sqrt(count), f"{name}: {distance:.3f}"
