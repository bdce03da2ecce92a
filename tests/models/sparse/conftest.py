"""Shorter starts for tests of later stages."""

import pytest

from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.models.sparse import fit_sparse


@pytest.fixture
def short_start(monkeypatch):
    """Few iterations on blocks of the rows."""
    few = Recipe(adam_steps=0, lbfgs_iterations=4)
    monkeypatch.setattr(fit_sparse, "Recipe", lambda **_: few)
