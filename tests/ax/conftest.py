"""Fixtures of the tests of Ax, which are skipped without ax-platform."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("ax") else ["test_*.py"]


@pytest.fixture
def few_steps(monkeypatch):
    """Models that train with few steps."""
    from tests.ax.clients import take_few_steps  # needs Ax

    take_few_steps(monkeypatch)
