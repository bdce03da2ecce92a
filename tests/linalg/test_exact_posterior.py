import pytest
import torch

from gpytorch_nkn.linalg import ExactPosterior
from tests.linalg.test_gaussian import random_covariance

BLOCKS = [torch.tensor([0]), torch.tensor([2, 5]), torch.tensor([1, 3, 4, 6])]


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_predictions_match_the_textbook(batch):
    joint = random_covariance(*batch, 10)
    covariance, cross, prior = joint[..., :7, :7], joint[..., 7:, :7], joint[..., 7:, 7:]
    residual = torch.randn(*batch, 7)
    posterior = ExactPosterior(covariance, residual)
    gain = cross @ covariance.inverse()
    mean = (gain @ residual.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(posterior.mean(cross), mean)
    expected = prior - gain @ cross.mT
    half = posterior.whiten(cross)
    torch.testing.assert_close(prior - half.mT @ half, expected)
    variance = prior.diagonal(dim1=-2, dim2=-1) - posterior.reduction(cross)
    torch.testing.assert_close(variance, expected.diagonal(dim1=-2, dim2=-1))


def test_held_out_blocks_are_predicted_by_conditioning_on_the_rest():
    covariance, residual = random_covariance(2, 7), torch.randn(2, 7)
    posterior = ExactPosterior(covariance, residual)
    without = posterior.alpha_without(BLOCKS)
    for number, (mean, variance) in enumerate(posterior.leave_blocks_out(BLOCKS)):
        block = BLOCKS[number]
        rest = torch.tensor([i for i in range(7) if i not in block])
        others = ExactPosterior(covariance[..., rest, :][..., rest], residual[..., rest])
        cross = covariance[..., block, :][..., rest]
        torch.testing.assert_close(mean, others.mean(cross))
        prior = covariance.diagonal(dim1=-2, dim2=-1)[..., block]
        torch.testing.assert_close(variance, prior - others.reduction(cross))
        torch.testing.assert_close(without[..., rest, number], others.alpha)
        assert (without[..., block, number] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_matrix_that_is_written_in_place_gives_the_same(dtype):
    covariance, residual = random_covariance(9).to(dtype), torch.randn(9, dtype=dtype)
    filled = ExactPosterior.from_fill(lambda out: out.copy_(covariance), residual)
    whole = ExactPosterior(covariance, residual)
    cross = torch.randn(4, 9, dtype=dtype)
    assert filled.alpha.dtype == dtype
    for method in ("mean", "reduction"):
        got, expected = getattr(filled, method)(cross), getattr(whole, method)(cross)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(filled.leave_one_out(), whole.leave_one_out())


def test_an_indefinite_matrix_is_rejected():
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"):
        ExactPosterior(-torch.eye(3), torch.ones(3))
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"):
        ExactPosterior.from_fill(lambda out: out.copy_(-torch.eye(3)), torch.ones(3))
