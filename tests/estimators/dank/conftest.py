"""Shorter searches for tests of other properties."""

import pytest

from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor


@pytest.fixture
def few_paths(monkeypatch):
    """Relevances come from one path in place of three, or two in place of four."""
    monkeypatch.setattr(DANKClassifier, "_paths", DANKClassifier._paths[1:2])
    monkeypatch.setattr(DANKRegressor, "_paths", DANKRegressor._paths[:2])
