import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, RBFKernelGrad
from sklearn.cluster import KMeans

from gpytorch_nkn.kernels import DataAdaptiveHadamardKernel
from tests.global_state import unchanged


def make(dims=2, num_anchors=4, rank=2, **options):
    base = options.pop("base_kernel", None) or RBFKernel(ard_num_dims=dims)
    anchors = options.pop("anchors", None)
    anchors = torch.randn(num_anchors, dims) if anchors is None else anchors
    return DataAdaptiveHadamardKernel(base, anchors, rank, **options)


def rbf(x, y, lengthscale):
    """Written out in NumPy, ``N x M``."""
    difference = (x[:, None, :] - y[None, :, :]) / lengthscale
    return np.exp(-0.5 * (difference**2).sum(-1))


def written_out(x, y, lengthscale, own, anchors, weights, jitter=1e-4):
    """The formula of the docstring with an explicit inverse, ``N x M``."""
    covar = rbf(anchors, anchors, own) + jitter * np.eye(len(anchors))
    inverse_root = np.linalg.inv(np.linalg.cholesky(covar))
    g, h = (weights.T @ inverse_root @ rbf(anchors, points, own) for points in (x, y))
    return rbf(x, y, lengthscale) * (1 + g.T @ h)


def test_values_equal_the_formula_written_out():
    x, y, anchors = np.random.randn(5, 3), np.random.randn(4, 3), np.random.randn(6, 3)
    lengthscale, own = np.array([0.7, 1.3, 2.0]), np.array([1.1, 0.8, 1.6])
    kernel = make(3, anchors=torch.tensor(anchors))
    kernel.base_kernel.lengthscale, kernel.factor_kernel.lengthscale = map(
        torch.tensor, (lengthscale, own)
    )
    weights = np.random.randn(6, 2)
    kernel.initialize(weights=torch.tensor(weights))
    expected = torch.tensor(written_out(x, y, lengthscale, own, anchors, weights))
    plain = torch.tensor(rbf(x, y, lengthscale))
    assert (expected / plain - 1).abs().median() > 0.1  # the factor does something
    x, y = torch.tensor(x), torch.tensor(y)
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)
    assert (kernel(x, diag=True) > 1.05).all()


def test_joint_matrix_is_positive_semi_definite_with_large_weights_and_coincident_anchors():
    anchors = torch.randn(3, 2).repeat(3, 1)
    kernel = make(anchors=anchors, rank=4).initialize(weights=30 * torch.randn(9, 4))
    x = torch.cat([torch.randn(40, 2), anchors])
    eigenvalues = torch.linalg.eigvalsh(kernel(x).to_dense().detach())
    assert eigenvalues[-1] > 1000 and eigenvalues[0] > -1e-9 * eigenvalues[-1]


def test_start_is_no_stationary_point_where_zero_weights_are():
    kernel, x = make(), torch.randn(6, 2)

    def gradient():
        (found,) = torch.autograd.grad(kernel(x).to_dense().sum(), kernel.weights)
        return found

    at_start = gradient()
    assert (at_start.abs() > 1e-5).all() and at_start.abs().max() > 0.1
    assert not torch.allclose(at_start[:, 0], at_start[:, 1])  # columns can part
    kernel.initialize(weights=torch.zeros(4, 2))
    assert (gradient() == 0).all()


def test_start_values_are_the_same_every_time_and_leave_random_numbers_alone():
    anchors = torch.randn(5, 2)
    with unchanged():
        first, second, other = (make(anchors=anchors, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.weights, second.weights)
    assert not torch.equal(first.weights, other.weights)
    assert 0.03 < first.weights.std() < 0.3


def test_default_factor_kernel_has_root_of_columns_times_deviations_of_the_anchors():
    anchors = torch.tensor([[0.0, 5.0, 10.0], [2e-6, 5.0, 40.0]])
    expected = math.sqrt(3) * torch.tensor([[1e-6, 1.0, 15.0]])  # 1 for the constant column
    fixed = make(3, anchors=anchors).factor_kernel
    torch.testing.assert_close(fixed.lengthscale, expected)
    assert not fixed.raw_lengthscale.requires_grad and list(fixed.named_priors()) == []


def test_batch_shape_is_that_of_the_parts_unless_it_is_given():
    batched = RBFKernel(batch_shape=torch.Size([2]))
    assert make(base_kernel=batched).batch_shape == (2,)
    of_anchors = make(base_kernel=RBFKernel(), anchors=torch.randn(2, 4, 2))
    assert of_anchors.batch_shape == (2,) and of_anchors(torch.randn(3, 2)).shape == (2, 3, 3)
    assert make(batch_shape=torch.Size([3, 1]), base_kernel=batched).batch_shape == (3, 2)
    assert make(base_kernel=batched).factor_kernel.batch_shape == (2,)


def test_from_data_takes_the_centres_of_clusters_of_scaled_columns():
    x = torch.randn(60, 2) * torch.tensor([1.0, 100.0]) + 3.0
    with unchanged():
        kernel = DataAdaptiveHadamardKernel.from_data(RBFKernel(), x, 5, 3, seed=4)
    z = (x.numpy() - x.numpy().mean(0)) / x.numpy().std(0)
    labels = KMeans(5, n_init=1, max_iter=25, random_state=4).fit(z[np.lexsort(z.T[::-1])]).labels_
    expected = np.stack([x.numpy()[np.lexsort(z.T[::-1])][labels == k].mean(0) for k in range(5)])
    order = [np.argsort(points[:, 1]) for points in (kernel.anchors.detach().numpy(), expected)]
    np.testing.assert_allclose(kernel.anchors.detach().numpy()[order[0]], expected[order[1]])
    assert kernel.rank == 3 and kernel.weights.shape == (5, 3)


def test_from_data_sees_active_columns_and_distinct_rows():
    x = torch.randn(3, 4).repeat(5, 1)
    kernel = DataAdaptiveHadamardKernel.from_data(
        RBFKernel(ard_num_dims=2), x, active_dims=(3, 1), batch_shape=torch.Size([2])
    )
    assert kernel.anchors.shape == (2, 3, 2)
    rows = {tuple(row) for row in kernel.anchors[1].tolist()}
    assert rows == {tuple(row) for row in x[:3, [3, 1]].tolist()}
    assert kernel(x).shape == (2, 15, 15)
    from_data, whole = DataAdaptiveHadamardKernel.from_data, (9 * x).long()
    assert from_data(RBFKernel(), x.float(), 2).anchors.dtype == torch.float32
    centers = [from_data(RBFKernel(), points, 2).anchors for points in (whole, whole.double())]
    torch.testing.assert_close(*centers)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"base_kernel": "rbf"}, TypeError, "base_kernel must be a .*Kernel, got 'rbf'"),
        ({"anchors": torch.zeros(3)}, ValueError, r"M x D .*got shape \(3,\)"),
        ({"anchors": torch.zeros(0, 2)}, ValueError, r"got shape \(0, 2\)"),
        ({"anchors": torch.tensor([[math.nan, 1.0]])}, ValueError, "finite"),
        ({"rank": 0}, ValueError, "at least 1, got 0"),
        ({"rank": 1.5}, TypeError, "an integer, got 1.5"),
        ({"weight_prior": -1.0}, ValueError, "positive, got -1"),
        ({"weight_prior": "normal"}, TypeError, "got 'normal'"),
    ],
)
def test_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def test_wrong_data():
    with pytest.raises(ValueError, match=r"N x D, got shape \(3,\)"):
        DataAdaptiveHadamardKernel.from_data(RBFKernel(), torch.zeros(3))
    with pytest.raises(ValueError, match="num_anchors must be at least 1, got 0"):
        DataAdaptiveHadamardKernel.from_data(RBFKernel(), torch.zeros(3, 2), 0)


@pytest.mark.parametrize(
    "make_base",
    [lambda: MultitaskKernel(RBFKernel(), num_tasks=2), RBFKernelGrad],
    ids=["tasks", "gradients"],
)
def test_kernels_of_several_outputs_are_rejected(make_base):
    with pytest.raises(ValueError, match=r"one value per pair.*\((6|9), (6|9)\)"):
        make(base_kernel=make_base())(torch.randn(3, 2)).to_dense()
