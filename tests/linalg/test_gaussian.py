import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from gpytorch_nkn.linalg import entrywise_negative_log_likelihood, gaussian_negative_log_likelihood
from tests.linalg.test_entrywise import random_matrix


def random_covariance(*shape):
    root = torch.randn(*shape, shape[-1])
    return root @ root.mT + 0.1 * torch.eye(shape[-1])


@pytest.mark.parametrize("shapes", [((5, 5), (5,)), ((2, 5, 5), (5,)), ((5, 5), (2, 5))])
def test_gradient_equals_that_of_autograd_through_cholesky(shapes):
    covariance = random_covariance(*shapes[0][:-1]).requires_grad_()
    residual = torch.randn(shapes[1], requires_grad=True)
    symmetric = (covariance + covariance.mT) / 2
    ours = gaussian_negative_log_likelihood(symmetric, residual)
    theirs = -MultivariateNormal(torch.zeros(5), symmetric).log_prob(residual)
    torch.testing.assert_close(ours, theirs)
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


def expected_density(matrix, residual, noise):
    covariance = matrix.dense() + torch.diag_embed(noise)
    return -MultivariateNormal(torch.zeros(residual.size(-1)), covariance).log_prob(residual)


ENTRYWISE = [  # shapes of x, of the scale, of the residual and of the noise
    ((6,), (1,), (6,), (6,)),
    ((1,), (1,), (1,), (1,)),
    ((300,), (1,), (300,), (300,)),
    ((2, 6), (1,), (2, 6), (6,)),
    ((6,), (2, 1), (6,), (2, 6)),
    ((2, 1, 6), (3, 1), (3, 6), (1, 6)),
    ((6,), (3, 1), (6,), (1,)),
]


@pytest.mark.parametrize("shapes", ENTRYWISE)
def test_entrywise_value_and_gradients_equal_torchs_density(shapes):
    matrix = random_matrix(shapes[0], None, shapes[1])
    residual = torch.randn(shapes[2], requires_grad=True)
    noise = (0.1 + torch.rand(shapes[3])).requires_grad_()
    sources = (*matrix.tensors, residual, noise)
    ours = entrywise_negative_log_likelihood(matrix, residual, noise)
    theirs = expected_density(matrix, residual, noise.expand(*noise.shape[:-1], shapes[0][-1]))
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    weights = torch.randn(ours.shape)
    torch.testing.assert_close(
        torch.autograd.grad((weights * ours).sum(), sources),
        torch.autograd.grad((weights * theirs).sum(), sources),
        rtol=1e-8,
        atol=1e-9,
    )


@pytest.mark.parametrize("broken", [-5.0, math.nan, -math.inf])
def test_a_bad_element_gets_infinity_and_does_not_disturb_the_others(broken):
    matrix = random_matrix((4,), None, (2, 1))
    residual = torch.randn(2, 4, requires_grad=True)
    noise = torch.tensor([[1.0], [broken]]).expand(2, 4).clone().requires_grad_()
    sources = (*matrix.tensors, residual, noise)
    value = entrywise_negative_log_likelihood(matrix, residual, noise)
    assert value[1] == math.inf and value[0].isfinite()
    expected = expected_density(matrix, residual, noise.detach().clone().fill_(1.0))[0]
    torch.testing.assert_close(value[0], expected)
    gradients = torch.autograd.grad(value.square().sum(), sources, retain_graph=True)
    assert all(gradient.isfinite().all() for gradient in gradients)
    found = torch.autograd.grad(value[0], sources)
    wanted = torch.autograd.grad(expected, sources[:-1])
    torch.testing.assert_close(found[:-1], wanted)
    assert (found[-1][1] == 0).all()
    matrix.scale.requires_grad_(False)
    value = entrywise_negative_log_likelihood(matrix, residual, noise)
    torch.testing.assert_close(torch.autograd.grad(value[0], sources[0])[0], found[0])


@pytest.mark.parametrize("entrywise", [True, False])
def test_second_derivatives_are_rejected(entrywise):
    matrix, residual, noise = random_matrix((4,), None), torch.randn(4), torch.ones(4)
    if entrywise:
        value = entrywise_negative_log_likelihood(matrix, residual, noise)
    else:
        covariance = matrix.dense() + torch.diag(noise)
        value = gaussian_negative_log_likelihood(covariance, residual)
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        torch.autograd.grad(value, matrix.tensors, create_graph=True)


def test_the_jitter_is_no_larger_than_it_has_to_be():
    root = torch.randn(5, 4)
    singular, vector = root @ root.mT, root @ torch.ones(4)
    jitter = 1e-8 * singular.diagonal().mean()
    density = MultivariateNormal(torch.zeros(5), singular + jitter * torch.eye(5)).log_prob(vector)
    value = gaussian_negative_log_likelihood(singular - 1e-14 * torch.eye(5), vector)
    torch.testing.assert_close(value, -density, rtol=1e-4, atol=1e-4)
