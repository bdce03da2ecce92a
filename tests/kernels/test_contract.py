"""The contract on every registered kernel, and the contract's own test."""

from functools import partial
from itertools import product

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
    ComplexKernel,
    GradientKernel,
    NeuralKernelNetwork,
    StationaryKernel,
    ZeroMeanPeriodicKernel,
)
from tests.kernels import contract
from tests.kernels.contract import PROPERTIES, PROPERTIES_OF, Subject, perturb
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
    subject = Subject(kernel, *inputs(entry.dims), make, thorough)
    for check in PROPERTIES_OF[properties]:
        check(subject)


@pytest.mark.parametrize(
    "entry",  # change points are in one column, the kernels between them may use more
    [entry for entry in REGISTRY if entry.ard and "ChangePoint" not in entry.name],
    ids=lambda entry: entry.name,
)
def test_every_kernel_for_some_columns_rejects_others_with_one_error(entry):
    for columns, diag in product({entry.dims - 1, entry.dims + 1} - {0}, (False, True)):
        with pytest.raises(ValueError, match="input column"):
            entry.make()(torch.rand(2, 4, columns), diag=diag).sum()


def test_every_public_kernel_is_registered():
    public = {getattr(gpytorch_nkn.kernels, name) for name in gpytorch_nkn.kernels.__all__}
    kernels = {c for c in public if isinstance(c, type) and issubclass(c, Kernel)}
    registered = {entry.cls for entry in REGISTRY}
    # the first two are base classes, the third has several outputs for an input
    assert kernels - {ComplexKernel, StationaryKernel, GradientKernel} == registered
    for entry in REGISTRY:
        assert type(entry.make()) is entry.cls


class Broken(ZeroMeanPeriodicKernel):
    """Has the values that ``change(values, x1, x2, diag)`` returns."""

    def __init__(self, change, **options):
        super().__init__(**options)
        self.change = change

    def forward(self, x1, x2, diag=False, **params):
        return self.change(super().forward(x1, x2, diag=diag, **params), x1, x2, diag)


def difference(x1, x2, diag):
    return x1 - x2 if diag else x1.unsqueeze(-2) - x2.unsqueeze(-3)


def asymmetric(values, x1, x2, diag):
    return values * (1 + 0.1 * difference(x1, x2, diag).sum(-1))


def box(values, x1, x2, diag):
    """Symmetric, one on the diagonal, and not PSD."""
    near = (difference(x1, x2, diag).abs() < 1).all(-1)
    return torch.where(near, 1 + 0 * values, 0.5 * values)


def white_noise(values, x1, x2, diag):
    """Depends on the number of rows, not on the inputs alone."""
    same = not diag and x1.shape == x2.shape
    return values + torch.eye(x1.size(-2), dtype=x1.dtype) if same else values


def infinite_gradient(values, x1, x2, diag):
    return values * torch.exp(-difference(x1, x2, diag).square().sum(-1).sqrt())


def draws_random_numbers(values, x1, x2, diag):
    torch.rand(1)
    return values


class BatchIgnored(ZeroMeanPeriodicKernel):
    """Every entry of the batch gets the lengthscale of the first."""

    @property
    def lengthscale(self):
        value = self.raw_lengthscale_constraint.transform(self.raw_lengthscale)
        return value.flatten(0, -3)[:1].expand(value.shape) if value.dim() > 2 else value


class NotStationary(ZeroMeanPeriodicKernel):
    is_stationary = False


class GPyTorchsIndexing(ZeroMeanPeriodicKernel):
    """What indexing and expansion do in GPyTorch's base class."""

    __getitem__ = Kernel.__getitem__
    expand_batch = Kernel.expand_batch


@pytest.mark.parametrize(
    "broken, caught_by",
    [
        (partial(Broken, asymmetric), {"symmetry"}),
        (partial(Broken, box), {"positive_semi_definite"}),
        (partial(Broken, lambda values, x1, x2, diag: values * (1 + diag)), {"diag"}),
        (BatchIgnored, {"batch_shapes"}),
        (partial(Broken, white_noise), {"cross_blocks"}),
        (NotStationary, {"is_stationary"}),
        (partial(Broken, infinite_gradient), {"gradients"}),
        (partial(Broken, draws_random_numbers), {"global_state"}),
        (partial(Broken, lambda values, *_: values.double()), {"dtypes"}),
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


def test_comparison_is_not_blind():
    with pytest.raises(AssertionError, match="off"):
        contract.close(torch.ones(2), torch.tensor([1.0, 1.0 + 1e-5]), "off")
    assert not contract.differ(torch.ones(2, 3, 3))
    assert RBFKernel().is_stationary


def test_structure_kernels_of_gpytorch_take_networks_of_one_column():
    x = torch.rand(8, 3)
    networks = NeuralKernelNetwork.additive(1), ScaleKernel(NeuralKernelNetwork.pairs(1))
    for network in networks:
        each = torch.stack([network(x[:, [d]]).to_dense() for d in range(3)])
        total = AdditiveStructureKernel(network, num_dims=3)(x).to_dense()
        product = ProductStructureKernel(network, num_dims=3)(x).to_dense()
        pairs = NewtonGirardAdditiveKernel(network, 3, max_degree=2)
        pairs.outputscale = torch.tensor([0.5, 2.0]).view(pairs.outputscale.shape)
        of_pairs = sum(each[i] * each[j] for i in range(3) for j in range(i))
        torch.testing.assert_close(total, each.sum(0))
        torch.testing.assert_close(product, each.prod(0))
        torch.testing.assert_close(pairs(x).to_dense(), 0.5 * each.sum(0) + 2 * of_pairs)
