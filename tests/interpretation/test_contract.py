"""What all functions that read a model have in common."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import ChainedInputTransform, Normalize
from botorch.models.transforms.input import InputPerturbation
from gpytorch.kernels import RBFKernel

from gpytorch_nkn.averaging import leave_one_out, rolling_forecasts
from gpytorch_nkn.interpretation import decompose, effects, expand, report, report_search, simplify
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP, gradient_posterior
from tests.global_state import unchanged
from tests.interpretation.small_models import GP

X = torch.rand(16, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CALLS = {
    "decompose": decompose,
    "effects": partial(effects, samples=64),
    "expand": expand,
    "report": report,
    "report_search": report_search,
    "simplify": partial(simplify, max_terms=1, max_candidates=1),
}


def two_columns():
    y = torch.sin(5 * X[:, :1]) * X[:, 1:]
    kernel = RBFKernel(ard_num_dims=2).initialize(lengthscale=0.4)
    model = SingleTaskGP(X, y, covar_module=kernel, input_transform=Normalize(2))
    model.likelihood.noise = 0.01
    return model


@pytest.mark.usefixtures("few_iterations")
@pytest.mark.parametrize("name", ["decompose", "effects", "report_search"])
def test_perturbations_of_the_inputs_do_not_change_what_is_read(name):
    plain, model = two_columns(), two_columns()
    shifts = InputPerturbation(torch.tensor([[0.1, 0.2], [0.0, 0.1]], dtype=X.dtype))
    model.input_transform = ChainedInputTransform(shifts=shifts, scale=model.input_transform)
    assert str(CALLS[name](model)) == str(CALLS[name](plain))


def batch_of_models():
    x = X.expand(3, 16, 2)
    return GP(x, x[..., 0], RBFKernel(), batch_shape=torch.Size([3]))


def modes_of(model):
    """Modes of all modules but GPyTorch's Softplus, one object for all constraints."""
    return {n: m.training for n, m in model.named_modules() if not n.endswith("_transform")}


def ensemble():
    return StructureEnsembleGP(
        X, two_columns().train_targets[:, None], structures=("rbf", "matern")
    )


# Functions of other packages that read a model.
READ = {
    "gradient_posterior": lambda model: gradient_posterior(model, X[:3]).mean,
    "leave_one_out": leave_one_out,
    "predict": lambda model: model.predict(X[:3]),
    "rolling_forecasts": partial(rolling_forecasts, origins=[10, 12], horizon=3),
}
CALLS_OF_ALL = CALLS | READ


def network():
    y = two_columns().train_targets[:, None]
    return NKNSingleTaskGP(X, y, structure="additive", input_transform=Normalize(2))


@pytest.mark.usefixtures("few_iterations")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        *((name, two_columns) for name in CALLS),
        *((n, ensemble) for n in ("effects", "report_search", "gradient_posterior", "predict")),
        *((name, network) for name in READ),
    ],
)
def test_models_and_global_state_stay_as_they_were_and_results_repeat(name, make):
    model = make().train()
    model.likelihood.eval()
    modes, before = modes_of(model), deepcopy(model.state_dict())
    with unchanged():
        found = str(CALLS_OF_ALL[name](model))
    assert modes_of(model) == modes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert bool((model.train_inputs[0] == X).all())
    assert str(CALLS_OF_ALL[name](model.eval())) == found and not any(modes_of(model).values())


@pytest.mark.parametrize("name", ["effects", "report", "report_search", "simplify"])
def test_several_outputs_are_rejected(name):
    with pytest.raises(NotImplementedError, match=r"one output, got targets of shape \(2, 16\)"):
        CALLS[name](SingleTaskGP(X, X))
    if name != "report_search":  # for BoTorch's models only
        with pytest.raises(NotImplementedError, match=r"got targets of shape \(3, 16\)"):
            CALLS[name](batch_of_models())


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("decompose", {"columns": ["a"]}, ValueError, "columns must hold 2 names, got 1"),
        ("effects", {"max_effects": 0}, ValueError, "max_effects must be at least 1, got 0"),
        ("effects", {"samples": 10.5}, TypeError, "samples must be an integer, got 10.5"),
        ("effects", {"columns": ["a"]}, ValueError, "columns must hold 2 names, got 1"),
        ("expand", {"columns": "ab"}, TypeError, "sequence of names, got 'ab'"),
        ("expand", {"max_terms": 0}, ValueError, "max_terms must be at least 1, got 0"),
        ("expand", {"max_terms": 2.5}, TypeError, "integer"),
        ("report", {"horizon": 1.0}, ValueError, "x_unit are for one input column, got 2"),
        ("report", {"columns": ["a"]}, ValueError, "columns must hold 2 names, got 1"),
        ("simplify", {"max_terms": 0}, ValueError, "max_terms must be at least 1, got 0"),
        ("simplify", {"max_candidates": 1.5}, TypeError, "max_candidates must be an integer, got"),
    ],
)
def test_wrong_options_are_named(name, options, error, message):
    with pytest.raises(error, match=message):
        CALLS[name](two_columns(), **options)
