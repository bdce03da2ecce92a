import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from gpytorch_nkn.linalg import block_predictions, gaussian_negative_log_likelihood


def random_covariance(*shape):
    root = torch.randn(*shape, shape[-1])
    return root @ root.mT + 0.1 * torch.eye(shape[-1])


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_value_equals_the_density_of_torch(batch):
    covariance, residual = random_covariance(*batch, 6), torch.randn(*batch, 6)
    expected = -MultivariateNormal(torch.zeros(6), covariance).log_prob(residual)
    torch.testing.assert_close(gaussian_negative_log_likelihood(covariance, residual), expected)


@pytest.mark.parametrize("shapes", [((5, 5), (5,)), ((2, 5, 5), (5,)), ((5, 5), (2, 5))])
def test_gradient_equals_that_of_autograd_through_cholesky(shapes):
    covariance = random_covariance(*shapes[0][:-1]).requires_grad_()
    residual = torch.randn(shapes[1], requires_grad=True)
    symmetric = (covariance + covariance.mT) / 2
    ours = gaussian_negative_log_likelihood(symmetric, residual)
    theirs = -MultivariateNormal(torch.zeros(5), symmetric).log_prob(residual)
    weights = torch.rand(ours.shape)
    got = torch.autograd.grad((weights * ours).sum(), (covariance, residual), retain_graph=True)
    expected = torch.autograd.grad((weights * theirs).sum(), (covariance, residual))
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("broken", [-torch.eye(4), torch.full((4, 4), math.nan)])
def test_a_bad_matrix_gets_infinity_and_does_not_disturb_the_batch(broken):
    good = random_covariance(4)
    covariance = torch.stack([good, broken]).requires_grad_()
    residual = torch.randn(2, 4, requires_grad=True)
    value = gaussian_negative_log_likelihood(covariance, residual)
    assert value[1] == math.inf
    expected = gaussian_negative_log_likelihood(good, residual[0])
    torch.testing.assert_close(value[0], expected)
    value[0].backward()
    assert covariance.grad[0].abs().sum() > 0
    assert (covariance.grad[1] == 0).all() and (residual.grad[1] == 0).all()
    value = gaussian_negative_log_likelihood(covariance, residual)
    (gradient,) = torch.autograd.grad(value.square().sum(), covariance)  # infinite outer factor
    assert gradient.isfinite().all()


def test_a_singular_matrix_is_repaired_by_a_jitter():
    vector = torch.randn(5)
    assert gaussian_negative_log_likelihood(torch.outer(vector, vector), vector).isfinite()


def test_block_predictions_equal_conditioning_on_the_rest():
    covariance, residual = random_covariance(7), torch.randn(7)
    blocks = [torch.tensor([0]), torch.tensor([2, 5]), torch.tensor([1, 3, 4, 6])]
    for block, (mean, variance) in zip(
        blocks, block_predictions(covariance, residual, blocks), strict=True
    ):
        rest = torch.tensor([i for i in range(7) if i not in block])
        gain = covariance[block][:, rest] @ covariance[rest][:, rest].inverse()
        torch.testing.assert_close(mean, gain @ residual[rest])
        expected = covariance[block][:, block] - gain @ covariance[rest][:, block]
        torch.testing.assert_close(variance, expected.diagonal())


def test_block_predictions_refuse_an_indefinite_matrix():
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"):
        block_predictions(-torch.eye(3), torch.ones(3), [torch.tensor([0])])
