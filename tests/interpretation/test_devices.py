"""Interpretation of a model on another device equals interpretation on the CPU."""

import copy

import numpy as np
import torch

from gpytorch_nkn.interpretation import decompose, report
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.fit.models import SmallGP


def test_components_and_report_of_walks_and_seasons(device):
    x = torch.linspace(-1.7, 1.7, 24).unsqueeze(-1)
    y = torch.sin(9 * x[:, 0]) + 0.5 * x[:, 0]
    kernel = NeuralKernelNetwork.forecast(origin=-1.9, seasons=[0.7])
    model = SmallGP(x, y, kernel).eval()
    here = copy.deepcopy(model).cpu()
    here.set_train_data(x.cpu(), y.cpu(), strict=False)
    one, two = decompose(model), decompose(here)
    np.testing.assert_allclose(one.shares, two.shares, rtol=1e-5, atol=1e-6)
    if device.type != "cpu":  # tested elsewhere
        report(model)
