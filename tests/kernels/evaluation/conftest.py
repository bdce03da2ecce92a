"""A record of how networks were evaluated."""

import sys

import pytest

from gpytorch_nkn.kernels.evaluation.autograd import AutogradEvaluator
from gpytorch_nkn.kernels.evaluation.closed_form import ClosedFormEvaluator
from gpytorch_nkn.kernels.evaluation.native import NativeEvaluator

EVALUATORS = {
    "autograd": AutogradEvaluator,
    "closed_form": ClosedFormEvaluator,
    "compiled": NativeEvaluator,
}


@pytest.fixture
def ran(monkeypatch):
    """The paths of the evaluators that were made since the start of the test, in order."""
    paths = []

    def watch(path, cls):
        original = cls.__init__

        def counted(self, *args, **kwargs):
            paths.append(path)
            original(self, *args, **kwargs)

        monkeypatch.setattr(cls, "__init__", counted)

    for path, cls in EVALUATORS.items():
        watch(path, cls)
    return paths


@pytest.fixture
def large(monkeypatch):
    """Number of points from which on auto evaluates any network by tiles, fewer than usual."""
    choice = sys.modules["gpytorch_nkn.kernels.evaluation.network_matrix"]
    monkeypatch.setattr(choice, "_AUTOGRAD_ENTRIES", 1600)
    return 40
