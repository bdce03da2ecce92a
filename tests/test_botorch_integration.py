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


@pytest.mark.parametrize("outputs", [1, 2])
def test_refit_after_a_failure_samples_every_prior(data, outputs):
    (x, y), batch_shape = data, torch.Size([2] if outputs == 2 else [])
    model = single_task(x, torch.cat([y, -y], -1)[:, :outputs], covar_module=network(batch_shape))
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
