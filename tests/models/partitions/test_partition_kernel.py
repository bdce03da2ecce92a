import math
import pickle

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from torch.nn.functional import softmax

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.models.partitions.partition_kernel import (
    PartitionKernel,
    correlation,
    num_shape_parameters,
)
from tests.kernels import contract

KERNELS = ("rbf", "matern", "nkn")
PARTITIONS = [((0, 2), (1,)), ((0,), (1, 2)), ((0, 1, 2),), ((0,), (1,), (2,))]


def make(kernel, num_columns=3, *, partitions=PARTITIONS[:1], seed=0, **options):
    batch_shape = options.pop("batch_shape", torch.Size([]))
    result = PartitionKernel(num_columns, kernel=kernel, batch_shape=batch_shape, **options)
    entries = batch_shape.numel()
    result.partitions = [partitions[i % len(partitions)] for i in range(entries)]
    return contract.perturb(result.double(), seed)


def inputs():
    generator = torch.Generator().manual_seed(3)
    draw = torch.randn(17, 3, generator=generator, dtype=torch.float64)
    return draw[:12], draw[12:]


@pytest.mark.parametrize("check", contract.PROPERTIES, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_contract(kernel, check):
    # the contract copies parameters from entry to entry, and not the partition
    partitions = PARTITIONS[:1] if check is contract.check_batch_shapes else PARTITIONS

    def build(batch_shape=torch.Size([]), active_dims=None):  # noqa: B008
        return make(kernel, partitions=partitions, batch_shape=batch_shape, active_dims=active_dims)

    check(contract.Subject(build(), *inputs(), build, last_dim_is_batch=False))


@pytest.mark.parametrize("kernel", ["rbf", "matern"])
def test_values_equal_the_formula_for_one_pair(kernel):
    covariance = make(kernel, 4, partitions=[((0, 3), (1,), (2,))])
    x, y = 0.4 * torch.randn(2, 4)
    ell, scale = covariance.lengthscale[0].tolist(), covariance.outputscale.tolist()
    expected = 0.0
    for s, group in zip(scale, ((0, 3), (1,), (2,)), strict=False):
        r = math.sqrt(sum(((x[d] - y[d]).item() / ell[d]) ** 2 for d in group))
        if kernel == "rbf":
            expected += s * math.exp(-(r**2) / 2)
        else:
            a = math.sqrt(5) * r
            expected += s * (1 + a + a**2 / 3) * math.exp(-a)
    assert expected > 0.05
    value = covariance(x[None], y[None]).to_dense().item()
    assert value == pytest.approx(expected, rel=1e-10)


def test_group_of_the_network_equals_a_neural_kernel_network():
    covariance = make("nkn", 3, partitions=[((0, 2), (1,))])
    x = 0.5 * torch.randn(6, 3)
    expected = torch.zeros(6, 6)
    for number, group in enumerate(((0, 2), (1,))):
        shape = covariance.shape_parameters[number].detach()
        shares = softmax(shape[1:13].view(4, 3), -1)
        ell = covariance.lengthscale.detach()[:, list(group)]
        rbfs = [RBFKernel(ard_num_dims=len(group), active_dims=group) for _ in range(2)]
        rbfs[0].lengthscale, rbfs[1].lengthscale = ell, (1 + shape[0].exp()) * ell
        layers = [Linear(2, 4), Product(4, 2), Linear(2, 1, bias=False)]
        layers[0].weight, layers[0].bias = shares[:, :2], shares[:, 2]
        layers[2].weight = softmax(shape[13:], -1).unsqueeze(0)
        matrix = NeuralKernelNetwork(rbfs, layers)(x).to_dense()
        torch.testing.assert_close(matrix.diagonal(), torch.ones(6))
        expected += covariance.outputscale[number] * matrix
    torch.testing.assert_close(covariance(x).to_dense(), expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_entries_of_a_batch_have_partitions_of_their_own(kernel):
    covariance = make(kernel, partitions=PARTITIONS, batch_shape=torch.Size([4]))
    assert covariance.partitions == PARTITIONS
    x1, x2 = inputs()
    matrices = covariance(x1, x2).to_dense()
    for number, partition in enumerate(PARTITIONS):
        expected = torch.zeros(12, 5)
        for group, columns in enumerate(partition):
            ell = covariance.lengthscale[number, 0, list(columns)]
            sq_dist = ((x1[:, None, list(columns)] - x2[None, :, list(columns)]) / ell).square()
            shape = covariance.shape_parameters[number, group]
            value = correlation(kernel, sq_dist.sum(-1).flatten(), shape).view(12, 5)
            expected += covariance.outputscale[number, group] * value
        torch.testing.assert_close(matrices[number], expected)
        torch.testing.assert_close(covariance[number](x1, x2).to_dense(), expected)


def test_one_group_is_gpytorchs_kernel():
    x = torch.randn(7, 3)
    for kernel, theirs in (("rbf", RBFKernel), ("matern", MaternKernel)):
        ours = make(kernel, partitions=[((0, 1, 2),)])
        reference = theirs(ard_num_dims=3)
        reference.lengthscale = ours.lengthscale.detach()
        expected = ours.outputscale[0] * reference(x).to_dense()
        torch.testing.assert_close(ours(x).to_dense(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_permuted_columns_and_groups_give_equal_values(kernel):
    ours = make(kernel, partitions=[((0, 2), (1,))])
    x, order = torch.randn(6, 3), [1, 2, 0]  # new column i is old column order[i]
    permuted = make(kernel, partitions=[((0,), (1, 2))])
    permuted.lengthscale = ours.lengthscale.detach()[:, order]
    swap = [1, 0, 2]  # the group of old column 1 comes first now
    permuted.outputscale = ours.outputscale.detach()[swap]
    if kernel == "nkn":
        permuted.initialize(raw_shape=ours.raw_shape.detach()[swap])
    torch.testing.assert_close(permuted(x[:, order]).to_dense(), ours(x).to_dense())


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_agree_with_differences(kernel):
    shape = torch.randn(2, num_shape_parameters(kernel), requires_grad=True)
    sq_dist = (torch.rand(2, 5) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda d, s: correlation(kernel, d, s), (sq_dist, shape))
    at_zero = correlation(kernel, torch.zeros(2, 5), shape)
    torch.testing.assert_close(at_zero, torch.ones(2, 5))


def test_scales_of_groups_that_are_not_there_do_nothing():
    kernel = make("rbf", batch_shape=torch.Size([2]), partitions=PARTITIONS[2:])
    before = kernel(inputs()[0]).to_dense()
    with torch.no_grad():
        kernel.raw_outputscale[0, 1:] += 3.0  # the first entry has one group
    torch.testing.assert_close(kernel(inputs()[0]).to_dense(), before)


def test_partition_is_part_of_the_state():
    kernel = make("nkn", batch_shape=torch.Size([2]), partitions=PARTITIONS)
    other = PartitionKernel(3, kernel="nkn", batch_shape=torch.Size([2])).double()
    other.load_state_dict(kernel.state_dict())
    assert other.partitions == kernel.partitions == PARTITIONS[:2]
    assert pickle.loads(pickle.dumps(kernel)).partitions == PARTITIONS[:2]


def test_as_many_entries_as_columns_are_not_mixed_up():
    kernel = make("rbf", partitions=[((0, 2), (1,))])
    expanded = kernel.expand_batch(3)
    assert expanded.partitions == [((0, 2), (1,))] * 3
    x = inputs()[0]
    torch.testing.assert_close(expanded[1](x).to_dense(), kernel(x).to_dense())


def test_errors_name_what_came():
    with pytest.raises(ValueError, match="must be one of .*'linear'"):
        PartitionKernel(3, kernel="linear")
    with pytest.raises(ValueError, match="must be one of .*'linear'"):
        correlation("linear", torch.ones(1, 1), torch.ones(1, 0))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        PartitionKernel(0)
    kernel = PartitionKernel(3, batch_shape=torch.Size([2]))
    with pytest.raises(ValueError, match="Expected 2 partitions.*got 1"):
        kernel.partitions = PARTITIONS[:1]
    with pytest.raises(ValueError, match="columns 0 to 2 once"):
        kernel.partitions = [((0, 1),), ((0,), (1,), (2,))]
    with pytest.raises(NotImplementedError, match="column by column"):
        kernel.forward(torch.randn(2, 3), torch.randn(2, 3), last_dim_is_batch=True)
