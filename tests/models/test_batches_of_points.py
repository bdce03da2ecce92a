"""Many batches of points share the factors of the training data."""

import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import StudentTLikelihood
from gpytorch.means import ConstantMean

from gpytorch_nkn.models import LaplaceGP, NKNSingleTaskGP, SpectralGP, spectral
from tests.models.peak_memory import peak_memory


def laplace(x, y):
    model = LaplaceGP(x, y, StudentTLikelihood(), ConstantMean(), RBFKernel())
    return model.double().eval()


def at_inducing_points(x, y):
    model = SpectralGP(x, y.unsqueeze(-1), inducing_points=400, num_features=10).eval()
    return lambda points: model.posterior(points).distribution


def test_inputs_and_outcomes_of_other_batches_are_named():
    with pytest.raises(ValueError, match=r"same number of rows and batch shape.*\(1, 6, 2\)"):
        NKNSingleTaskGP(torch.rand(1, 6, 2), torch.rand(3, 6, 1))


@pytest.mark.parametrize("make", [laplace, at_inducing_points])
def test_batches_need_no_copies(make, monkeypatch):
    monkeypatch.setattr(spectral.spectral_gp, "_MAX_DENSE", 300)
    x = torch.rand(400, 2, dtype=torch.float64)
    predict, points = make(x, x.sum(-1).sin()), torch.rand(200, 2, 2, dtype=torch.float64)
    single, batches = predict(points[0]), []
    used = peak_memory(lambda: batches.append(predict(points)))
    assert used < 0.1, used  # GiB; a copy of the factor for each batch takes 0.24
    torch.testing.assert_close(batches[0].mean[0], single.mean)
    torch.testing.assert_close(batches[0].covariance_matrix[0], single.covariance_matrix)
