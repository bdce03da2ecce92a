import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy.stats import multivariate_normal

from gpytorch_nkn.models.partitions.partition_evidence import PartitionEvidence
from gpytorch_nkn.models.partitions.partition_kernel import correlation

KERNELS = ("rbf", "matern", "nkn")
PARTITION = ((0, 2), (1,))
SINGLE = ((0,), (1,), (2,))


@pytest.fixture(scope="module")
def data():
    x = torch.rand(25, 3, generator=torch.Generator().manual_seed(1))
    y = torch.sin(5 * x[:, 0] * x[:, 2]) + torch.cos(4 * x[:, 1])
    return x, (y - y.mean()) / y.std()


def covariance(x, partition, h, kernel):
    """Covariance matrix of the targets without noise, group by group."""
    matrix = torch.zeros(len(x), len(x))
    for number, group in enumerate(partition):
        scaled = x[:, list(group)] / h.lengthscale[list(group)]
        sq_dist = (scaled.unsqueeze(0) - scaled.unsqueeze(1)).square().sum(-1)
        values = correlation(kernel, sq_dist.flatten(), h.shape[number]).view_as(sq_dist)
        matrix += h.outputscale[number] * values
    return matrix


def log_prior(partition, h, kernel):
    """Normal log priors on the logarithms, zero at their centres, written out."""
    total = 0.0
    for number, group in enumerate(partition):
        for d in group:
            z = math.log(h.lengthscale[d]) - math.log(0.4 * math.sqrt(len(group)))
            total -= (z / 1.7) ** 2 / 2
        total -= ((math.log(h.outputscale[number]) - math.log(0.5)) / 3) ** 2 / 2
        if kernel == "nkn":
            center = [math.log(2), 2, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 1, 0]
            total -= (h.shape[number] - torch.tensor(center)).square().sum().item() / 2
    return total if h.noise is None else total - (math.log(h.noise) + 5) ** 2 / 2


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("given_noise", [False, True])
def test_value_is_scipys_density_plus_the_log_prior(data, kernel, given_noise):
    x, y = data
    noise = 0.01 + 0.02 * torch.rand(25) if given_noise else None
    evidence = PartitionEvidence(x, y, noise, kernel=kernel)
    value = evidence.log_evidence(PARTITION)
    h = evidence.hyperparameters(PARTITION)
    assert (h.noise is None) == given_noise
    matrix = covariance(x, PARTITION, h, kernel)
    matrix += (noise if given_noise else torch.full((25,), h.noise)).diag()
    density = multivariate_normal.logpdf(y.numpy(), np.full(25, h.mean), matrix.numpy())
    assert value == pytest.approx(density + log_prior(PARTITION, h, kernel), rel=1e-8)
    inverse = torch.linalg.inv(matrix)
    assert h.mean == pytest.approx((inverse @ y).sum().item() / inverse.sum().item())


@pytest.mark.parametrize("kernel", KERNELS)
def test_hyperparameters_are_at_a_maximum(data, kernel):
    x, y = data
    evidence = PartitionEvidence(x, y, kernel=kernel, max_iter=200)
    evidence.log_evidence(PARTITION)
    h = evidence.hyperparameters(PARTITION)
    raw = [h.lengthscale.log(), h.outputscale.log(), h.shape, torch.tensor(h.noise).log()]
    raw = [value.clone().requires_grad_() for value in raw]
    moved = type(h)(raw[0].exp(), raw[1].exp(), raw[2], raw[3].exp(), h.mean)
    matrix = covariance(x, PARTITION, moved, kernel) + moved.noise * torch.eye(25)
    loss = -torch.distributions.MultivariateNormal(torch.full((25,), h.mean), matrix).log_prob(y)
    sizes = torch.tensor([2.0, 1.0, 2.0])
    loss = loss + ((raw[0] - (0.4 * sizes.sqrt()).log()) / 1.7).square().sum() / 2
    loss = loss + ((raw[1] - math.log(0.5)) / 3).square().sum() / 2
    loss = loss + (raw[3] + 5).square() / 2
    if kernel == "nkn":
        center = [math.log(2), 2, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 1, 0]
        loss = loss + (raw[2] - torch.tensor(center)).square().sum() / 2
    gradients = torch.autograd.grad(loss, raw, allow_unused=True)
    at_bound = h.noise < 1.01e-4
    assert not at_bound or gradients[3] > 0
    free = gradients[: 3 if at_bound else 4]
    assert all(g is None or g.abs().amax() < 2e-2 for g in free if g is None or g.numel())


def test_prior_alone_decides_without_informative_data():
    evidence = PartitionEvidence(torch.rand(2, 3), torch.zeros(2), torch.full((2,), 1e6))
    for partition in (PARTITION, SINGLE, ((0, 1, 2),)):
        evidence.log_evidence(partition)
        h = evidence.hyperparameters(partition)
        sizes = torch.zeros(3)
        for group in partition:
            sizes[list(group)] = float(len(group))
        torch.testing.assert_close(h.lengthscale, 0.4 * sizes.sqrt(), rtol=1e-3, atol=0)
        torch.testing.assert_close(
            h.outputscale, torch.full((len(partition),), 0.5), rtol=1e-3, atol=0
        )
    values = [evidence.log_evidence(p) for p in (PARTITION, SINGLE, ((0, 1, 2),))]
    assert max(values) - min(values) < 1e-4  # no group is punished for its parameters


def test_start_from_a_neighbour_reaches_what_a_start_from_the_prior_reaches(data):
    warm, fresh = PartitionEvidence(*data), PartitionEvidence(*data, max_iter=200)
    warm.log_evidence(SINGLE)
    for target in (((0, 2), (1,)), ((0,), (1, 2)), ((0, 1), (2,))):
        # there may be several maxima, of nearly the same height
        assert warm.log_evidence(target, SINGLE) > fresh.log_evidence(target) - 2
    one = ((0, 1, 2),)
    assert warm.log_evidence(one, PARTITION) > fresh.log_evidence(one) - 0.3
    assert warm.log_evidence(SINGLE) == pytest.approx(fresh.log_evidence(SINGLE), abs=0.01)


def test_a_partition_is_fitted_once(data):
    evidence = PartitionEvidence(*data, max_iter=3)
    evidence.log_evidence(SINGLE)
    first = evidence.log_evidence(PARTITION, SINGLE)
    count = evidence.evaluations
    assert evidence.log_evidence(PARTITION, ((0,), (1, 2))) == first
    assert evidence.log_evidence(PARTITION) == first and evidence.evaluations == count


def test_known_hyperparameters_are_start_values(data):
    long = PartitionEvidence(*data, max_iter=200)
    best = long.log_evidence(PARTITION)
    short = PartitionEvidence(*data, max_iter=1)
    short.log_evidence(SINGLE)
    without = short.log_evidence(PARTITION, SINGLE)
    again = PartitionEvidence(*data, max_iter=1)
    again.add_start(PARTITION, long.hyperparameters(PARTITION))
    again.log_evidence(SINGLE)
    assert again.log_evidence(PARTITION, SINGLE) > best - 1e-3 > without + 0.1


def test_columns_permuted_with_their_groups_have_equal_evidence(data):
    x, y = data
    value = PartitionEvidence(x, y, max_iter=200).log_evidence(((0, 2), (1,)))
    permuted = PartitionEvidence(x[:, [1, 2, 0]], y, max_iter=200).log_evidence(((0,), (1, 2)))
    assert value == pytest.approx(permuted, abs=1e-3)


def test_the_true_partition_has_the_highest_evidence(data):
    evidence = PartitionEvidence(*data)
    others = [SINGLE, ((0, 1), (2,)), ((0,), (1, 2)), ((0, 1, 2),)]
    assert evidence.log_evidence(PARTITION) > max(map(evidence.log_evidence, others)) + 2


def test_a_covariance_that_cannot_be_factorised_has_no_evidence():
    evidence = PartitionEvidence(torch.rand(5, 2), torch.randn(5), torch.full((5,), -1e9))
    assert evidence.log_evidence(((0,), (1,))) == -math.inf


def test_single_precision_and_gradients_of_the_data_do_not_matter(data):
    x, y = data
    value = PartitionEvidence(x, y, max_iter=100).log_evidence(PARTITION)
    rough = PartitionEvidence(x.float().requires_grad_(), y.float(), max_iter=100)
    with torch.no_grad():
        assert rough.log_evidence(PARTITION) == pytest.approx(value, abs=1e-2)
    assert rough.hyperparameters(PARTITION).lengthscale.dtype == torch.float64


def test_gpytorch_agrees_on_one_group(data):
    x, y = data
    evidence = PartitionEvidence(x, y)
    value, one = evidence.log_evidence(((0, 1, 2),)), ((0, 1, 2),)
    h = evidence.hyperparameters(one)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3))
    kernel.outputscale, kernel.base_kernel.lengthscale = h.outputscale[0], h.lengthscale
    matrix = kernel(x).add_diagonal(torch.tensor(h.noise)).to_dense().detach()
    density = multivariate_normal.logpdf(y.numpy(), np.full(25, h.mean), matrix.numpy())
    assert value == pytest.approx(density + log_prior(one, h, "rbf"), rel=1e-6)
