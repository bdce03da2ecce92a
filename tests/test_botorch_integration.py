"""The network in BoTorch: fitting, acquisition, several outputs, fantasies."""

import warnings

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim.core import OptimizationResult, OptimizationStatus
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError

from gpytorch_nkn.kernels import NeuralKernelNetwork


@pytest.fixture
def data():
    x = torch.rand(12, 2)
    return x, (torch.sin(6 * x[:, :1]) + x[:, 1:]) / 2


def network(batch_shape=None, **options):
    return NeuralKernelNetwork.regression(
        2, wiring="Linear4-Product2-Linear1", batch_shape=batch_shape, **options
    )


def single_task(x, y, **options):
    options = {"covar_module": network(), "outcome_transform": None, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # data that are not standardised
        return SingleTaskGP(x, y, **options)


def two_outputs(data):
    """A model of two outputs whose parameters differ between them."""
    x, y = data
    both = torch.cat([y, torch.cos(5 * x[:, 1:])], -1)
    model = single_task(x, both, covar_module=network(torch.Size([2])))
    with torch.no_grad():
        for parameter in model.covar_module.parameters():
            parameter += 0.4 * torch.rand_like(parameter)
        model.likelihood.noise = torch.tensor([[0.01], [0.05]])
        model.mean_module.constant.copy_(torch.tensor([0.1, -0.3]))
    return model, both


def single_of(model, data, both, i):
    single = single_task(data[0], both[:, [i]], covar_module=model.covar_module[i])
    single.likelihood.noise = model.likelihood.noise[i]
    single.mean_module.initialize(constant=model.mean_module.constant[i].item())
    return single.eval()


def test_two_outputs_equal_two_models(data):
    model, both = two_outputs(data)
    x = torch.rand(5, 2)
    posterior = model.eval().posterior(x)
    assert posterior.mean.shape == (5, 2)
    for i in range(2):
        single = single_of(model, data, both, i).posterior(x)
        assert single.mean.abs().max() > 0.05
        torch.testing.assert_close(posterior.mean[:, [i]], single.mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            posterior.variance[:, [i]], single.variance, rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("outputs", [1, 2])
def test_refit_after_a_failure_samples_every_prior(data, outputs):
    model = two_outputs(data)[0] if outputs == 2 else single_task(*data)
    starts = []

    def fails_twice(mll, closure=None, **options):
        starts.append({n: p.detach().clone() for n, p in model.named_parameters()})
        if len(starts) < 3:
            raise NotPSDError("on purpose")
        with torch.no_grad():
            assert closure is None or closure()[0].isfinite().all()
        return OptimizationResult(fval=0.0, step=1, status=OptimizationStatus.SUCCESS, message="")

    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(mll, optimizer=fails_twice, max_attempts=3)
    assert len(starts) == 3
    for name, start in starts[0].items():
        if name.startswith("covar_module") and model.get_parameter(name).requires_grad:
            assert (start != starts[1][name]).all() and (starts[1][name] != starts[2][name]).all()
            flat = starts[1][name].flatten()
            assert flat.unique().numel() == flat.numel(), f"{name}: units start alike"
    assert model.posterior(torch.rand(3, 2)).mean.isfinite().all()
