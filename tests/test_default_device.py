"""Everything public under a default device that is not the CPU.

A cheap part of what the contracts do with ``--device second``.

``torch.set_default_device`` and ``with torch.device(...)`` say where tensors are made whose device
nobody names. Models and kernels then are there, or where their data are; estimators are on the CPU.
"""

import inspect
import shutil
from copy import deepcopy

import numpy as np
import pytest
import torch

import gpytorch_nkn.layers
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from tests import devices
from tests.estimators import test_contract as estimators
from tests.kernels.contract import dense
from tests.kernels.registry import REGISTRY
from tests.models import contract as models
from tests.models.registry import CASES, case_of

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in for a GPU is compiled"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


@pytest.fixture(scope="module")
def second():
    return devices.check("second")


def tensors_of(module):
    """Parameters, buffers, and what distributions keep beside them."""
    yield from module.state_dict().values()
    for part in module.modules():
        yield from (v for v in vars(part).values() if isinstance(v, torch.Tensor))
        base = getattr(part, "base_dist", None)
        yield from (v for v in vars(base or part).values() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name)
def test_kernels(entry, second):
    """They are made there, with the start values that they have on the CPU, and meet data there."""
    torch.set_default_dtype(torch.float32)  # as most scripts have it
    here = entry.make()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, entry.dims, generator=generator).requires_grad_()
    expected = dense(here, x)
    with devices.made_on(second, "data and default"):
        there = entry.make()
        found = dense(there, x.to(second))
        found.square().sum().backward()
        beside = dense(deepcopy(here), x)  # on the CPU
    assert {value.device for value in tensors_of(there)} <= {second}
    assert beside.device == x.device
    torch.testing.assert_close(there.state_dict(), here.state_dict(), check_device=False)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(beside, expected)


def test_layers(second):
    public = (getattr(gpytorch_nkn.layers, name) for name in gpytorch_nkn.layers.__all__)
    classes = {c for c in public if inspect.isclass(c) and issubclass(c, Layer)} - {Layer}
    with torch.device(second):
        layers = [Linear(2, 2), Product(2, 1), Activation(2, [1.0, 0.5])]
        values = [layer(torch.rand(2, 3)) for layer in layers]
    assert classes == {type(layer) for layer in layers}
    assert {v.device for v in (*values, *(t for m in layers for t in tensors_of(m)))} == {second}


@pytest.mark.parametrize("way", ["data and default", "default"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_models(case, way, second):
    """They are where their data are."""
    if way == "default" and case is not case_of(case.cls):
        return
    with devices.made_on(second, way) as device:
        models.check_state(case)
        model = case.make(*case.data())
        assert {value.device for value in model.state_dict().values()} == {device}


@pytest.mark.parametrize("cls", estimators.MAKE, ids=lambda cls: cls.__name__)
def test_estimators_are_on_the_cpu(cls, second):
    X, _ = estimators.data(cls)
    expected = estimators.values(estimators.fitted(cls), X)
    with torch.device(second):
        model = estimators.fitted(cls)
        found = estimators.values(model, X)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(estimators.values(model, X), expected)
