"""A user's module, which type checkers read: ``make lint`` and tests/test_packaging.py."""

from typing import assert_type

import torch

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import FitResult, fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import NKNSingleTaskGP

__all__: list[str] = []

x = torch.rand(9, 2, dtype=torch.float64)
assert_type(NeuralKernelNetwork.regression(2), NeuralKernelNetwork)
model = NKNSingleTaskGP(x, x[:, :1])
assert_type(fit_best_of(model, restarts=1), FitResult)
assert_type(NKNForecaster(random_state=0).fit(x[:, 0].numpy(), x[:, 1].numpy()), NKNForecaster)
