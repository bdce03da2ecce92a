"""The contract on every registered kernel, and the contract's own test."""

import math
from functools import partial

import pytest
import torch
from gpytorch.kernels import (
    AdditiveStructureKernel,
    Kernel,
    NewtonGirardAdditiveKernel,
    ProductStructureKernel,
    RBFKernel,
    ScaleKernel,
)

import gpytorch_nkn.kernels
from gpytorch_nkn.kernels import (
    ChangePointKernel,
    ComplexKernel,
    NeuralKernelNetwork,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Product
from tests.kernels import contract
from tests.kernels.contract import PROPERTIES, PROPERTIES_OF, Subject, check_kernel, perturb
from tests.kernels.registry import REGISTRY


def inputs(dims):
    """Inputs of irregular spacing, N x D and M x D."""
    generator = torch.Generator().manual_seed(dims)
    draw = torch.randn(17, dims, generator=generator, dtype=torch.float64)
    return 1.5 * draw[:12], 1.5 * draw[12:]


@pytest.mark.parametrize("properties", PROPERTIES_OF)
@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name)
def test_kernel_contract(entry, properties, device):
    """Every form of every kernel has every property; the first of each class thoroughly."""

    def make(**options):
        return entry.make(**options).to(device)

    kernel = perturb(make().double())
    thorough = entry is next(other for other in REGISTRY if other.cls is entry.cls)
    subject = Subject(kernel, *inputs(entry.dims), make, entry.columns_alike, thorough)
    for check in PROPERTIES_OF[properties]:
        check(subject)


ONE_COLUMN = [
    *[entry.make for entry in REGISTRY if entry.dims == 1 and entry.columns_alike],
    *[
        partial(getattr(NeuralKernelNetwork, name), 1, **options)
        for name, options in [
            ("regression", {}),
            ("tabular", {}),
            ("tabular", {"columns": True, "spectral": 1}),
            ("additive", {}),
            ("optimization", {}),
            ("pairs", {}),
            *[(name, {"cat_dims": [0]}) for name in ("regression", "tabular", "additive")],
            *[(name, {"cat_dims": [0]}) for name in ("optimization", "pairs")],
        ]
    ],
    partial(NeuralKernelNetwork.forecast, origin=-6.0),
]


@pytest.mark.parametrize("make", ONE_COLUMN)
@pytest.mark.filterwarnings("ignore:.*StructureKernel is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*NewtonGirard.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*last_dim_is_batch:DeprecationWarning")
def test_structure_kernels_add_and_multiply_all_columns(make):
    kernel, x = perturb(make().double()), inputs(3)[0].round(decimals=1)
    columns = torch.stack([kernel(x[:, [d]]).to_dense() for d in range(3)])
    pairs = columns[0] * columns[1] + columns[0] * columns[2] + columns[1] * columns[2]
    second = NewtonGirardAdditiveKernel(kernel, 3, max_degree=2).double()
    weights = second.outputscale.flatten()
    for structure, expected in [
        (AdditiveStructureKernel(kernel, 3), columns.sum(0)),
        (ProductStructureKernel(kernel, 3), columns.prod(0)),
        (second, weights[0] * columns.sum(0) + weights[1] * pairs),
        (AdditiveStructureKernel(ScaleKernel(kernel).double(), 3), math.log(2) * columns.sum(0)),
    ]:
        torch.testing.assert_close(structure(x).to_dense(), expected)
        if not isinstance(structure, ProductStructureKernel):  # GPyTorch's own diagonal fails
            torch.testing.assert_close(structure(x, diag=True), expected.diagonal())
    contract.check_second_derivatives_of_columns(kernel, x[0])


@pytest.mark.filterwarnings("ignore:.*last_dim_is_batch:DeprecationWarning")
def test_networks_of_several_columns_drop_none_of_them():
    x = inputs(3)[0]
    kernel = RBFKernel(active_dims=(0,))
    for network, message in [
        (NeuralKernelNetwork.additive(3), "RBFKernel with active_dims=\\(0,\\)"),
        (NeuralKernelNetwork.pairs(3), "RBFKernel with active_dims=\\(0,\\)"),
        (NeuralKernelNetwork.regression(2), "is for 2 input columns"),
        (NeuralKernelNetwork.regression(3, cat_dims=[0]), "with active_dims=\\(0,\\)"),
        (NeuralKernelNetwork([kernel, RBFKernel()], [Product(2, 1)]), "RBFKernel with active_dims"),
        (ChangePointKernel(kernel, RBFKernel()), "RBFKernel with active_dims"),
    ]:
        with pytest.raises(ValueError, match=message):
            network.double()(x, last_dim_is_batch=True).to_dense()


def test_every_public_kernel_is_registered():
    public = {getattr(gpytorch_nkn.kernels, name) for name in gpytorch_nkn.kernels.__all__}
    kernels = {c for c in public if isinstance(c, type) and issubclass(c, Kernel)}
    registered = {entry.cls for entry in REGISTRY}
    assert kernels - {ComplexKernel} == registered
    for entry in REGISTRY:
        assert type(entry.make()) is entry.cls


def test_registered_names_are_unique():
    names = [entry.name for entry in REGISTRY]
    assert len(names) == len(set(names))


class Asymmetric(ZeroMeanPeriodicKernel):
    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2 + 0.1, diag=diag, **params)


class Box(ZeroMeanPeriodicKernel):
    """Symmetric, one on the diagonal, and not PSD."""

    def forward(self, x1, x2, diag=False, **params):
        smooth = super().forward(x1, x2, diag=diag, **params)
        near = self.covar_dist(x1, x2, diag=diag, last_dim_is_batch=True) < 1
        near = near.all(-2 if diag else -3)
        return torch.where(near, 1 + 0 * smooth, 0.5 * smooth)


class WrongDiagonal(ZeroMeanPeriodicKernel):
    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2, diag=diag, **params) * (2.0 if diag else 1.0)


class DiagonalOfX1(ZeroMeanPeriodicKernel):
    """Ones are the diagonal of x1 with x1 only."""

    def forward(self, x1, x2, diag=False, **params):
        values = super().forward(x1, x2, diag=diag, **params)
        return values * 0 + 1 if diag else values


class BatchIgnored(ZeroMeanPeriodicKernel):
    """Every entry of the batch gets the lengthscale of the first."""

    @property
    def lengthscale(self):
        value = self.raw_lengthscale_constraint.transform(self.raw_lengthscale)
        return value.flatten(0, -3)[:1].expand(value.shape) if value.dim() > 2 else value


class BatchUndeclared(ZeroMeanPeriodicKernel):
    @property
    def batch_shape(self):
        return torch.Size()

    @batch_shape.setter
    def batch_shape(self, value):
        self._batch_shape = value


class WhiteNoise(ZeroMeanPeriodicKernel):
    """Depends on the number of rows, not on the inputs alone."""

    def forward(self, x1, x2, diag=False, **params):
        values = super().forward(x1, x2, diag=diag, **params)
        same = not diag and x1.shape == x2.shape
        return values + torch.eye(x1.size(-2), dtype=x1.dtype) if same else values


class NotStationary(ZeroMeanPeriodicKernel):
    is_stationary = False


class InfiniteGradient(ZeroMeanPeriodicKernel):
    def forward(self, x1, x2, diag=False, **params):
        values = super().forward(x1, x2, diag=diag, **params)
        difference = x1 - x2 if diag else x1.unsqueeze(-2) - x2.unsqueeze(-3)
        return values * torch.exp(-difference.square().sum(-1).sqrt())


class DrawsRandomNumbers(ZeroMeanPeriodicKernel):
    def forward(self, x1, x2, diag=False, **params):
        torch.rand(1)
        return super().forward(x1, x2, diag=diag, **params)


class LeavesTrainingMode(ZeroMeanPeriodicKernel):
    def forward(self, x1, x2, diag=False, **params):
        self.eval()
        return super().forward(x1, x2, diag=diag, **params)


class ModifiesInputs(ZeroMeanPeriodicKernel):
    def forward(self, x1, x2, diag=False, **params):
        result = super().forward(x1, x2, diag=diag, **params)
        with torch.no_grad():
            x1 += 0.1
        return result


class AlwaysDouble(ZeroMeanPeriodicKernel):
    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2, diag=diag, **params).double()


class DoesNotPickle(ZeroMeanPeriodicKernel):
    def __init__(self, **options):
        super().__init__(**options)
        self.period = lambda: 2 * math.pi


class UnusedParameter(ZeroMeanPeriodicKernel):
    def __init__(self, **options):
        super().__init__(**options)
        shape = (*self.batch_shape, 1, 1)
        self.register_parameter("unused", torch.nn.Parameter(torch.zeros(shape)))


class GPyTorchsIndexing(ZeroMeanPeriodicKernel):
    """What indexing and expansion do in GPyTorch's base class."""

    __getitem__ = Kernel.__getitem__
    expand_batch = Kernel.expand_batch


@pytest.mark.parametrize(
    "broken, caught_by",
    [
        (Asymmetric, {"symmetry"}),
        (Box, {"positive_semi_definite"}),
        (WrongDiagonal, {"diag"}),
        (DiagonalOfX1, {"diag"}),
        (BatchIgnored, {"batch_shapes"}),
        (BatchUndeclared, {"batch_shapes"}),
        (WhiteNoise, {"cross_blocks"}),
        (NotStationary, {"is_stationary"}),
        (InfiniteGradient, {"gradients"}),
        (DrawsRandomNumbers, {"global_state"}),
        (LeavesTrainingMode, {"global_state"}),
        (ModifiesInputs, {"global_state"}),
        (AlwaysDouble, {"dtypes"}),
        (DoesNotPickle, {"copies"}),
        (UnusedParameter, {"gradients"}),
        (GPyTorchsIndexing, {"batch_indexing", "expand_batch", "active_dims"}),
    ],
)
@pytest.mark.parametrize("thorough", [True, False])
def test_contract_rejects_broken_kernels(broken, caught_by, thorough):
    checks = {check.__name__.removeprefix("check_"): check for check in PROPERTIES}
    for name in caught_by:
        with pytest.raises(Exception, match="."):
            kernel = perturb(broken().double())
            checks[name](Subject(kernel, *inputs(2), broken, thorough=thorough))


@pytest.mark.parametrize("broken", [Asymmetric, DrawsRandomNumbers])  # first and last property
def test_check_kernel_rejects_broken_kernels(broken):
    with pytest.raises(Exception, match="."):
        check_kernel(perturb(broken().double()), *inputs(2), make=broken)


def test_check_kernel_accepts_a_kernel_without_a_factory():
    check_kernel(ZeroMeanPeriodicKernel(), *inputs(2))


def test_comparison_is_not_blind():
    with pytest.raises(AssertionError, match="off"):
        contract.close(torch.ones(2), torch.tensor([1.0, 1.0 + 1e-5]), "off")
    assert not contract.differ(torch.ones(2, 3, 3))
    assert RBFKernel().is_stationary
