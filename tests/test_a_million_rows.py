"""Every estimator and model with a million rows: an early message, or a result.

The classes come from the public interfaces, so that a new one is tested, too.
"""

import inspect
import warnings

import numpy as np
import pytest
import torch
from botorch.models.model import Model
from gpytorch.kernels import RBFKernel
from sklearn.base import BaseEstimator

from gpytorch_nkn import estimators, models
from gpytorch_nkn.fit import SizeWarning
from gpytorch_nkn.grids import inpaint

ROWS = 1_000_000
WORK = {estimators.NKNForecaster}  # whose budget is kept all the same


def classes(face, base):
    found = [getattr(face, name) for name in face.__all__]
    return [one for one in found if inspect.isclass(one) and issubclass(one, base)]


def table():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(ROWS, 2))
    return x, x.sum(1)


@pytest.fixture(autouse=True)
def answer_by_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SizeWarning)
        yield


@pytest.mark.parametrize("cls", classes(estimators, BaseEstimator))
def test_estimators(cls):
    x, y = table()
    if cls in WORK:
        fitted = cls(budget=0.2, quality="fast", random_state=0).fit(np.arange(float(ROWS)), y)
        assert np.isfinite(fitted.predict([ROWS + 1.0])).all()
        return
    if cls.__name__.endswith("Classifier"):
        y = y > 1
    with pytest.raises((MemoryError, SizeWarning), match=r"1,000,000.*[a-z]\."):
        cls(random_state=0).fit(x, y)


@pytest.mark.parametrize("cls", classes(models, Model))
def test_models(cls):
    x, y = (torch.from_numpy(part) for part in table())
    with pytest.raises((MemoryError, SizeWarning), match=r"1,000,000.*[a-z]\."):
        if cls is models.KroneckerGridGP:
            side = torch.linspace(0, 1, 1000, dtype=torch.float64)
            model = cls([side, side], y.view(1000, 1000), [RBFKernel(), RBFKernel()])
        elif cls in (models.SparseNKNGP, models.VariationalNKNGP):
            model = cls(x, y.unsqueeze(-1), inducing_points=x[:10])
        elif cls is models.NKNMultiTaskGP:
            model = cls(x.round(), y.unsqueeze(-1), task_feature=-1)
        else:
            model = cls(x, y.unsqueeze(-1))
        models.TRAINERS[cls](model)


def test_images():
    image = table()[1].reshape(1000, 1000)
    with pytest.raises(SizeWarning, match=r"1,000,000.*[a-z]\."):
        inpaint(image, image > 1.9)
