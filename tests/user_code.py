"""A user's module, which type checkers read: ``make lint`` and tests/test_packaging.py."""

from typing import assert_type

import numpy as np
import torch

import gpytorch_nkn
from gpytorch_nkn.estimators import NKNForecaster, NKNRegressor
from gpytorch_nkn.fit import FitResult, fit_best_of
from gpytorch_nkn.grids import InpaintResult
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import NKNSingleTaskGP

__all__: list[str] = []

x = torch.rand(9, 2, dtype=torch.float64)
assert_type(NeuralKernelNetwork.regression(2), NeuralKernelNetwork)
model = NKNSingleTaskGP(x, x[:, :1])
assert_type(fit_best_of(model, restarts=1), FitResult)
series = NKNForecaster(random_state=0).fit(x[:, 0].numpy(), x[:, 1].numpy())
assert_type(series, NKNForecaster)
assert_type(series.predict([1.0]), np.ndarray)
assert_type(series.predict([1.0], return_std=True), tuple[np.ndarray, np.ndarray])
table = NKNRegressor(random_state=0).fit(x.numpy(), x[:, 1].numpy())
assert_type(table.predict(x.numpy()), np.ndarray)
assert_type(table.predict(x.numpy(), return_std=True), tuple[np.ndarray, np.ndarray])
either = np.ndarray | tuple[np.ndarray, np.ndarray]
assert_type(table.predict(x.numpy(), return_std=bool(x[0, 0] > 0)), either)
assert_type(series.predict([1.0], return_std=bool(x[0, 0] > 0)), either)
assert_type(gpytorch_nkn.NeuralKernelNetwork.additive(2), NeuralKernelNetwork)
assert_type(gpytorch_nkn.NKNForecaster(random_state=0), NKNForecaster)
assert_type(gpytorch_nkn.fit_best_of(model, restarts=1), FitResult)
filled = gpytorch_nkn.inpaint(x.numpy())
assert_type(filled, InpaintResult)
