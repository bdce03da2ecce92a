"""Everything public under a default device that is not the CPU.

A cheap part of what the contracts do with ``--device``, for a process of its own:
test_default_device.py starts it. PyTorch takes no further device once it has computed gradients.

``torch.set_default_device`` and ``with torch.device(...)`` say where tensors are made whose device
nobody names. Models and kernels then are there, or where their data are; estimators are on the CPU.
"""

import inspect
from copy import deepcopy

import numpy as np
import pytest
import torch

import gpytorch_nkn.layers
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from tests.devices import made_on
from tests.estimators import test_contract as estimators
from tests.kernels.contract import dense
from tests.kernels.registry import REGISTRY
from tests.models import contract as models
from tests.models.registry import CASES, case_of

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")


def tensors_of(module):
    """Parameters, buffers, and what distributions keep beside them."""
    yield from module.state_dict().values()
    for part in module.modules():
        yield from (v for v in vars(part).values() if isinstance(v, torch.Tensor))
        base = getattr(part, "base_dist", None)
        yield from (v for v in vars(base or part).values() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name)
def test_kernels(entry, bare_device):
    """They are made there, with the start values that they have on the CPU, and meet data there."""
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


@pytest.mark.parametrize("way", ["data and default", "default"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_models(case, way, bare_device):
    """They are where their data are."""
    if way == "default" and case is not case_of(case.cls):
        return
    with made_on(bare_device, way) as device:
        models.check_state(case)
        model = case.make(*case.data())
        assert {value.device for value in model.state_dict().values()} == {device}


@pytest.mark.parametrize("cls", estimators.MAKE, ids=lambda cls: cls.__name__)
def test_estimators_are_on_the_cpu(cls, bare_device):
    X, _ = estimators.data(cls)
    expected = estimators.values(estimators.fitted(cls), X)
    with torch.device(bare_device):
        model = estimators.fitted(cls)
        found = estimators.values(model, X)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(estimators.values(model, X), expected)
