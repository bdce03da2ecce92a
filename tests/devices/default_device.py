"""Everything public under a default device that is not the CPU.

A cheap part of what the contracts do with ``--device``, for a process of its own:
test_default_device.py starts it. PyTorch takes no further device once it has computed gradients.

``torch.set_default_device`` and ``with torch.device(...)`` set the device of tensors that are made
without one. Models and kernels then are there, or where their data are; estimators are on the CPU.
"""

import inspect
import re
from copy import deepcopy
from functools import partial
from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import BernoulliLikelihood, SoftmaxLikelihood, StudentTLikelihood
from gpytorch.means import ConstantMean

import gpytorch_nkn.layers
from gpytorch_nkn import interpretation, plotting
from gpytorch_nkn.bo import coordinate_sweep_initial_conditions, fit_bo_model
from gpytorch_nkn.grids import inpaint
from gpytorch_nkn.kernels import GradientKernel, NeuralKernelNetwork
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from gpytorch_nkn.models import (
    TRAINERS,
    LaplaceGP,
    NKNSingleTaskGP,
    StructureEnsembleGP,
    VariationalNKNGP,
    fit_variational_gp,
    gradient_posterior,
)
from gpytorch_nkn.models.sparse import fit_variational
from tests.devices import made_on
from tests.estimators import test_contract as estimators
from tests.fit.test_trainers import QUICK, short_starts
from tests.kernels.contract import dense
from tests.kernels.registry import REGISTRY
from tests.models import contract as models
from tests.models.registry import CASES, case_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.usefixtures("few_iterations"),
]


@pytest.fixture(autouse=True)
def few_mini_batches(monkeypatch):
    monkeypatch.setattr(fit_variational, "_STEPS", 10)


def tensors_of(module):
    """Parameters, buffers, and what distributions keep beside them."""
    yield from module.state_dict().values()
    for part in module.modules():
        yield from (v for v in vars(part).values() if isinstance(v, torch.Tensor))
        base = getattr(part, "base_dist", None)
        yield from (v for v in vars(base or part).values() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name)
def test_kernels(entry, bare_device):
    """Kernels and layers have the start values of the CPU on the device, and accept data there."""
    torch.set_default_dtype(torch.float32)  # as most scripts have it
    here = entry.make()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, entry.dims, generator=generator).requires_grad_()
    expected = dense(here, x)
    with made_on(bare_device, "data and default"):
        there = entry.make()
        found = dense(there, x.to(bare_device))
        found.square().sum().backward()
        beside = dense(deepcopy(here), x)  # on the CPU
    assert {value.device for value in tensors_of(there)} <= {bare_device}
    assert beside.device == x.device
    torch.testing.assert_close(there.state_dict(), here.state_dict(), check_device=False)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(beside, expected)


def test_layers(bare_device):
    public = (getattr(gpytorch_nkn.layers, name) for name in gpytorch_nkn.layers.__all__)
    classes = {c for c in public if inspect.isclass(c) and issubclass(c, Layer)} - {Layer}
    with torch.device(bare_device):
        layers = [Linear(2, 2), Product(2, 1), Activation(2, [1.0, 0.5])]
        values = [layer(torch.rand(2, 3)) for layer in layers]
    assert classes == {type(layer) for layer in layers}
    found = [*values, *(value for layer in layers for value in tensors_of(layer))]
    assert {value.device for value in found} == {bare_device}


FIRST = [case for case in CASES if case is case_of(case.cls)]
OWN_TENSORS = [case for case in CASES if case.name in ("spectral at points", "structures warped")]


def in_turn(cases, *ways):
    """Cases with one of the ways each."""
    pairs = [*zip(cases, cycle(ways))]
    return pytest.mark.parametrize(
        ("case", "way"), pairs, ids=lambda value: getattr(value, "name", value)
    )


@in_turn(FIRST + OWN_TENSORS, "default", "data and default")
def test_models(case, way, bare_device):
    """Models are on the device of their data."""
    here = case.make(*case.data()).state_dict()
    with made_on(bare_device, way) as device:
        models.check_state(case)
        there = case.make(*case.data()).state_dict()
    assert {value.device for value in there.values()} == {device}
    torch.testing.assert_close(there, here, check_device=False, equal_nan=True)


READERS = {
    "data": [interpretation.report],
    "default": [interpretation.expand, interpretation.decompose],
}


@in_turn([FIRST[0], *FIRST], "data", "default")
def test_training_and_interpretation(case, way, bare_device):
    """Reports on data there; under a default device their parts, see also test_functions."""
    with made_on(bare_device, way):
        model = case.make(*case.data())
        with short_starts():
            TRAINERS[case.cls](model, **QUICK.get(case.cls, QUICK[NKNSingleTaskGP]))
        for function in READERS[way]:
            try:
                function(model)
            except (NotImplementedError, TypeError) as error:
                assert re.search(rf"got (an ensemble|{case.cls.__name__})", str(error))


def predictions(likelihood, is_trained):
    x = torch.linspace(0, 1, 12).unsqueeze(-1)
    y = (x > 0.5).to(x)
    laplace = LaplaceGP(x, y[:, 0], likelihood(), ConstantMean(), RBFKernel()).to(x).eval()
    options = {"likelihood": likelihood(), "inducing_points": 4, "structure": "isotropic"}
    variational = VariationalNKNGP(x, y, **options)
    if is_trained:
        with short_starts():
            fit_variational_gp(variational, epochs=1, restarts=1, progress=False)
    return [laplace(x).mean, variational.posterior(x).mean]


@pytest.mark.parametrize(
    ("likelihood", "way", "is_trained"),
    [(BernoulliLikelihood, "data", True), (StudentTLikelihood, "default", False)],
)
def test_likelihoods(likelihood, way, is_trained, bare_device):
    """LaplaceGP is moved after its construction, as GPyTorch's models; VariationalNKNGP moves."""
    expected = predictions(likelihood, is_trained)
    with made_on(bare_device, way) as device:
        found = predictions(likelihood, is_trained)
    assert {values.device for values in found} == {device}
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3, check_device=False)


@pytest.mark.parametrize("cls", estimators.MAKE, ids=lambda cls: cls.__name__)
def test_estimators_are_on_the_cpu(cls, bare_device):
    X, _ = estimators.data(cls)
    expected = estimators.values(estimators.fitted(cls), X)
    with torch.device(bare_device):
        model = estimators.fitted(cls)
        found = estimators.values(model, X)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(estimators.values(model, X), expected)


def small_model():
    x = torch.linspace(0, 1, 12).unsqueeze(-1).repeat(1, 2)
    x[:, 1] = x[:, 1].flip(0).square()
    return x, NKNSingleTaskGP(x, x.sin().sum(-1, keepdim=True))


def test_functions(bare_device):
    """Functions that read a model or draw it."""
    with made_on(bare_device, "data and default"):
        x, model = small_model()
        interpretation.effects(model)
        kernel = NeuralKernelNetwork.time_series().to(x)
        axes = plt.subplots()[1]
        plotting.plot_network(axes, kernel)
        plotting.plot_kernel(axes, kernel, x[:, 0])
        for one in (model, case_of(StructureEnsembleGP).model().to(x)):
            draw_matheron_paths(one, torch.Size([2]))(x)
        gradient_posterior(model, x[:2])
        GradientKernel(kernel)(x[:2, :1]).to_dense()


def test_search_and_classes(bare_device):
    with made_on(bare_device, "default"):
        x, model = small_model()
        fit_bo_model(model, **QUICK[NKNSingleTaskGP])
        interpretation.report_search(model)
        bounds = torch.tensor([[0.0], [1.0]]).expand(2, 2)
        starts = partial(coordinate_sweep_initial_conditions, incumbent=x[0])
        acquisition = qLogExpectedImprovement(model, 0.5)
        options = {"num_restarts": 2, "raw_samples": 4, "ic_generator": starts}
        optimize_acqf(acquisition, bounds, q=1, options={"maxiter": 1}, **options)
        labels, likelihood = (x[:, :1] > 0.5).to(x), SoftmaxLikelihood(2, 2).to(x)
        options = {"likelihood": likelihood, "inducing_points": 4, "structure": "isotropic"}
        classes = VariationalNKNGP(x, labels, **options)
        fit_variational_gp(classes, epochs=1, start=None).predictive(x)


def test_inpainting(bare_device):
    image = np.sin(np.add.outer(np.arange(8.0), np.arange(8.0)))
    image[2, 3:5] = np.nan
    with torch.device(bare_device):
        assert np.isfinite(inpaint(image).filled).all()
