"""Networks on the device of ``--device``; compiled code is for the CPU alone."""

import copy

import pytest
import torch

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import native
from gpytorch_nkn.settings import kernel_evaluation


@pytest.mark.parametrize("path", ["auto", "compiled", "tiles", "plain"])
def test_values_and_gradients_match_the_cpu(path, device, monkeypatch):
    x = torch.rand(50, 2)
    kernel = NeuralKernelNetwork.optimization(2).to(device)
    reference, there = copy.deepcopy(kernel).cpu(), x.clone().requires_grad_()
    here = x.cpu().requires_grad_()
    with kernel_evaluation("plain"):
        expected = reference(here).to_dense()
    expected.square().sum().backward()
    if device.type != "cpu":  # whoever hands it over a pointer of the device fails here
        monkeypatch.setattr(native, "_pointer", None)
    with kernel_evaluation(path):
        found = kernel(there).to_dense()
        found.square().sum().backward()
    assert found.device == there.grad.device == device
    torch.testing.assert_close(found.cpu(), expected)
    torch.testing.assert_close(there.grad.cpu(), here.grad)
    for one, two in zip(kernel.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), two.grad)
