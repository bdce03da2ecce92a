"""Processes of joblib that start quickly."""

import multiprocessing

import pytest
from joblib.externals.loky.backend import context

IMPORTED = ["distributed", "gpytorch_nkn.fit", "tests.fit.models"]


@pytest.fixture
def forked_workers(monkeypatch):
    """Fork workers from a process that has imported PyTorch; workers of Ray import it anew."""
    multiprocessing.set_forkserver_preload(IMPORTED)
    monkeypatch.setattr(context, "_DEFAULT_START_METHOD", "forkserver")
