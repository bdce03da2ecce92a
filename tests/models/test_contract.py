"""Every model goes through the contract, in every kind."""

import inspect

import pytest
from botorch.models.model import Model

from gpytorch_nkn import models
from tests.models.contract import CHECKS, check_device
from tests.models.registry import CASES

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
@each_case
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(case, check, device):
    check(case)


@each_case
def test_another_device_predicts_the_same(case, device):
    check_device(case, device)


def test_every_model_is_registered():
    public = {getattr(models, name) for name in models.__all__}
    public = {cls for cls in public if inspect.isclass(cls) and issubclass(cls, Model)}
    assert len(public) > 5 and public == {case.cls for case in CASES}
