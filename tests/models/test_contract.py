"""The contract on every model, in all variants."""

import inspect

import pytest
from botorch.models.model import Model

from gpytorch_nkn import models
from tests.models.contract import CHECKS, check_device
from tests.models.registry import CASES


def each_case(*checks):
    """Run every check on every case, unless another case is equivalent."""
    return [
        pytest.param(check, case, id=f"{check.__name__}-{case.name}")
        for check in checks
        for case in CASES
        if case.checks is None or check.__name__ in case.checks
    ]


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
@pytest.mark.parametrize("check, case", each_case(*CHECKS))
def test_contract(check, case, device):
    check(case)


@pytest.mark.parametrize("check, case", each_case(check_device))
def test_another_device_predicts_the_same(check, case, device):
    check(case, device)


def test_every_model_is_registered():
    public = {getattr(models, name) for name in models.__all__}
    public = {cls for cls in public if inspect.isclass(cls) and issubclass(cls, Model)}
    assert len(public) > 5 and public == {case.cls for case in CASES}


def test_every_check_is_made_of_every_model_and_has_its_name():
    whole = {case.cls for case in CASES if case.checks is None}
    partial = {models.NKNMultiTaskGP}  # a column of its inputs holds the task
    assert whole == {case.cls for case in CASES} - partial
    names = {check.__name__ for check in (*CHECKS, check_device)}
    assert all(set(case.checks or ()) <= names for case in CASES)
