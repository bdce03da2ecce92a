"""A record of how networks were evaluated."""

import pytest

from gpytorch_nkn.kernels.evaluation.native import NativeEvaluator
from gpytorch_nkn.kernels.evaluation.tiled import TiledEvaluator


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

    watch("tiles", TiledEvaluator)
    watch("compiled", NativeEvaluator)
    return paths
