"""GPyTorch's own test case on every public kernel."""

import unittest

import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from gpytorch_nkn.kernels import (
    ChangePointKernel,
    DampedTrendKernel,
    DataAdaptiveHadamardKernel,
    IntegratedWienerKernel,
    NeuralKernelNetwork,
    NonStationarySpectralKernel,
    StepKernel,
    WienerKernel,
)
from tests.kernels.registry import NO_BATCH, REGISTRY, ard, simple

# Kernels of any number of columns, next to the same kernel with ARD over two columns. One network
# stands for all: what differs between them is in our own contract.
ANY_COLUMNS = [
    entry
    for entry in REGISTRY
    if not entry.ard and (entry.cls is not NeuralKernelNetwork or entry.name == "network-real")
]
TWO_COLUMNS = {
    "network-real": next(entry for entry in REGISTRY if entry.name == "network-ard"),
    **{
        entry.name: simple(entry.cls, dims=2, ard=True)
        for entry in REGISTRY
        if "." not in entry.name and "network" not in entry.name and not entry.ard
    },
}
# Kernels of a given number of columns: those for two, without the cases on other numbers of them.
OF_COLUMNS = {
    entry.name: entry
    for entry in REGISTRY
    if entry.dims == 2 and entry.cls in (DataAdaptiveHadamardKernel, NonStationarySpectralKernel)
}
# Kernels of one column, on which the cases run too.
OF_ONE_COLUMN = {
    entry.name: entry
    for entry in REGISTRY
    if entry.dims == 1
    and entry.cls
    in (ChangePointKernel, DampedTrendKernel, IntegratedWienerKernel, StepKernel, WienerKernel)
}


def test_case(entry):
    def create_kernel_no_ard(self, batch_shape=NO_BATCH, active_dims=None):
        return entry.make(batch_shape=batch_shape, active_dims=active_dims)

    members = {"seed": 0, "create_kernel_no_ard": create_kernel_no_ard}
    if entry.name in TWO_COLUMNS:
        of_two = TWO_COLUMNS[entry.name]

        def create_kernel_ard(self, num_dims, batch_shape=NO_BATCH, active_dims=None):
            assert num_dims == of_two.dims == 2
            return of_two.make(batch_shape=batch_shape, active_dims=active_dims)

        members["create_kernel_ard"] = create_kernel_ard
    if entry.name in OF_COLUMNS | OF_ONE_COLUMN:
        members["test_active_dims_list"] = members["test_active_dims_range"] = None
    if entry.name in OF_ONE_COLUMN:
        members["create_data_single_batch"] = lambda self: torch.randn(2, 3, 1)
        members["create_data_double_batch"] = lambda self: torch.randn(3, 2, 50, 1)
    name = "Test" + entry.name.title().replace("-", "").replace(".", "").replace("_", "")
    return type(name, (BaseKernelTestCase, unittest.TestCase), members)


test_case.__test__ = False  # a maker of test cases, not a test
for _entry in [*ANY_COLUMNS, *OF_COLUMNS.values(), *OF_ONE_COLUMN.values()]:
    _case = test_case(_entry)
    globals()[_case.__name__] = _case
del _case, _entry


def test_every_registered_kernel_is_covered():
    entries = [*ANY_COLUMNS, *OF_COLUMNS.values(), *OF_ONE_COLUMN.values()]
    covered = {entry.cls for entry in entries}
    assert covered == {entry.cls for entry in REGISTRY}
    assert len(TWO_COLUMNS) >= 7 and all(entry.ard for entry in TWO_COLUMNS.values())


def test_ard_network_has_ard_primitives():
    assert isinstance(ard(NO_BATCH)[0], RBFKernel) and ard(NO_BATCH)[0].ard_num_dims == 2
    with pytest.raises(ValueError, match="needs 2 input columns, got inputs of shape"):
        TWO_COLUMNS["network-real"].make()(torch.randn(2, 3)).to_dense()
