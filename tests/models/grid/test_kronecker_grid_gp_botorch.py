import warnings

import pytest
import torch
from botorch.acquisition import qExpectedImprovement, qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_nkn.models import KroneckerGridGP
from tests.models.grid.small_grids import all_points

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def peak(x):
    return 4 - 9 * (x[..., 0] - 0.62) ** 2 - 7 * (x[..., 1] - 0.31) ** 2


def peak_model(**options):
    """Values of a hill on a grid, its top missing."""
    rows, columns = torch.linspace(0, 1, 9), torch.linspace(0, 1, 8)
    values = peak(all_points([rows, columns])).view(9, 8)
    values[4:7, 1:4] = torch.nan
    kernels = [ScaleKernel(RBFKernel()), RBFKernel()]
    for base in (kernels[0].base_kernel, kernels[1]):
        base.lengthscale = 0.5
    model = KroneckerGridGP([rows, columns], values, kernels, **options)
    model.likelihood.noise = 1e-3
    return model.eval()


@pytest.mark.parametrize("acquisition", [qLogExpectedImprovement, qExpectedImprovement])
def test_acquisition_functions_find_the_top_of_a_hill_between_the_cells(acquisition):
    model = peak_model()
    sampler = SobolQMCNormalSampler(torch.Size([64]), seed=0)
    function = acquisition(model, best_f=3.4, sampler=sampler)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NumericalWarning)
        found, value = optimize_acqf(
            function, BOUNDS, q=1, num_restarts=2, raw_samples=32, options={"maxiter": 30}
        )
    assert (found - torch.tensor([[0.62, 0.31]])).abs().max() < 0.08
    gradient = torch.autograd.grad(
        function(x := torch.tensor([[[0.5, 0.4]]], requires_grad=True)).sum(), x
    )[0]
    step = 1e-5 * torch.eye(2)[:, None]
    numeric = [(function(x + s) - function(x - s)).item() / 2e-5 for s in step]
    torch.testing.assert_close(gradient.flatten(), torch.tensor(numeric), rtol=1e-4, atol=1e-6)


# --- fit_gpytorch_mll ---


def mll_of(model):
    return ExactMarginalLogLikelihood(model.likelihood, model)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"step_limit": 3}, r"Expected options of fit_grid_gp .*got \['step_limit'\]"),
        ({"optimizer": print}, "trained by fit_grid_gp only"),
        ({"optimizer_kwargs": {"options": {}}}, "trained by fit_grid_gp only"),
        ({"closure": lambda: None}, "trained by fit_grid_gp only"),
        ({"seed": 1, "max_attempts": 2}, "Expected options of fit_grid_gp"),
    ],
)
def test_foreign_options_are_refused(options, match):
    model = peak_model()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(TypeError, match=match):
        fit_gpytorch_mll(mll_of(model), **options)
    torch.testing.assert_close(model.state_dict(), state)
