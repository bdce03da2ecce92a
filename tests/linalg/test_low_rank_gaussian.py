"""The likelihood of features plus noise against dense algebra and autograd."""

import pytest
import torch
from linear_operator.utils.errors import NotPSDError
from torch.distributions import MultivariateNormal

from gpytorch_nkn.linalg import (
    low_rank_gaussian,
    low_rank_negative_log_likelihood,
    low_rank_posterior,
)


class Problem:
    """Features sin(x A + b) of a batch, with parameters of its own and some that are shared."""

    def __init__(self, *batch_shape, size=23, width=6, seed=0, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        self.slope = draw(*batch_shape, 3, width).requires_grad_()
        self.shift = draw(width).requires_grad_()  # shared by the batch
        self.inputs = draw(size, 3).requires_grad_()
        self.residual = draw(*batch_shape, size).requires_grad_()
        self.noise = (0.1 + draw(*batch_shape, size).square()).detach().requires_grad_()

    @property
    def tensors(self):
        return [self.inputs, self.residual, self.noise, self.slope, self.shift]

    def features(self, x):
        return torch.sin(x @ self.slope + self.shift)

    def map(self, x):
        return self.features(x), None

    def value(self):
        return low_rank_negative_log_likelihood(self.map, self.inputs, self.residual, self.noise)

    def dense(self):
        phi = self.features(self.inputs)
        covariance = phi @ phi.mT + torch.diag_embed(self.noise)
        return -MultivariateNormal(torch.zeros_like(self.residual), covariance).log_prob(
            self.residual
        )


@pytest.fixture(params=[10**6, 40], ids=["one chunk", "chunks"])
def chunks(request, monkeypatch):
    monkeypatch.setattr(low_rank_gaussian, "_CHUNK_ENTRIES", request.param)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("batch_shape", [(), (2,), (3, 1)])
@pytest.mark.parametrize("width", [1, 6, 40])
def test_value_and_gradients_match_the_dense_matrix(batch_shape, width):
    problem = Problem(*batch_shape, width=width)
    value, expected = problem.value(), problem.dense()
    torch.testing.assert_close(value, expected)
    weights = torch.arange(1.0, 1 + value.numel(), dtype=value.dtype).view(value.shape)
    own = torch.autograd.grad((weights * value).sum(), problem.tensors)
    dense = torch.autograd.grad((weights * expected).sum(), problem.tensors)
    for a, b in zip(own, dense, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_what_features_leave_out_counts_as_in_the_bound_of_titsias(batch_shape):
    problem = Problem(*batch_shape)
    scale = torch.rand(*batch_shape, 1, dtype=torch.float64, requires_grad=True)

    def rest(x):
        return scale * x.square().sum(-1)

    value = low_rank_negative_log_likelihood(
        lambda x: (problem.features(x), rest(x)), problem.inputs, problem.residual, problem.noise
    )
    expected = problem.dense() + (rest(problem.inputs) / problem.noise).sum(-1) / 2
    torch.testing.assert_close(value, expected)
    sources = [*problem.tensors, scale]
    own = torch.autograd.grad(value.sum(), sources)
    for a, b in zip(own, torch.autograd.grad(expected.sum(), sources), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.usefixtures("chunks")
def test_posterior_of_the_weights_is_that_of_a_linear_model():
    problem = Problem(2)
    with torch.no_grad():
        mean, factor = low_rank_posterior(
            problem.map, problem.inputs, problem.residual, problem.noise
        )
    phi = problem.features(problem.inputs)
    precision = torch.eye(6, dtype=torch.float64) + phi.mT @ (phi / problem.noise.unsqueeze(-1))
    torch.testing.assert_close(factor @ factor.mT, precision.detach())
    gain = torch.linalg.solve(phi @ phi.mT + torch.diag_embed(problem.noise), phi).mT
    expected = (gain @ problem.residual.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(mean, expected.detach())


def test_little_noise_costs_no_accuracy():
    """The quadratic form is a difference of large numbers unless it is taken from residuals."""
    problem = Problem(size=400)
    phi = problem.features(problem.inputs).detach()
    noise = torch.full((400,), 1e-10, dtype=torch.float64)
    residual = 1e3 * phi.sum(-1) + noise.sqrt() * problem.residual.detach()
    value = low_rank_negative_log_likelihood(lambda x: (phi[: len(x)], None), phi, residual, noise)
    # the same in the basis of singular vectors, where nothing is subtracted
    left, singular, _ = torch.linalg.svd(phi)
    variance = noise.clone()
    variance[:6] += singular.square()
    expected = torch.distributions.Normal(0.0, variance.sqrt()).log_prob(left.mT @ residual)
    torch.testing.assert_close(value, -expected.sum(), rtol=1e-4, atol=0.0)


def test_float32_works_in_float64_inside():
    problem, reference = Problem(dtype=torch.float32), Problem()
    value = problem.value()
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), reference.value(), rtol=1e-5, atol=1e-5)
    value.backward()
    assert problem.slope.grad.dtype == torch.float32


def test_an_element_that_is_not_finite_does_not_disturb_the_others():
    problem = Problem(2)
    with torch.no_grad():
        problem.residual[1, 3] = torch.nan
    value = problem.value()
    assert value[1] == torch.inf
    torch.testing.assert_close(value[0], first(problem))
    value.nan_to_num(posinf=0.0).sum().backward()
    assert problem.slope.grad[0].abs().sum() > 0 and problem.shift.grad.isfinite().all()
    assert (problem.slope.grad[1] == 0).all() and (problem.noise.grad[1] == 0).all()
    with pytest.raises(NotPSDError, match="not finite"):
        low_rank_posterior(problem.map, problem.inputs, problem.residual, problem.noise)


def first(problem):
    phi = torch.sin(problem.inputs @ problem.slope[0] + problem.shift)
    covariance = phi @ phi.mT + torch.diag(problem.noise[0])
    zeros = torch.zeros_like(problem.residual[0])
    return -MultivariateNormal(zeros, covariance).log_prob(problem.residual[0])
