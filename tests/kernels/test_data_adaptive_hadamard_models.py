"""The kernel with a learned factor in the models and fits that take kernels."""

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import DataAdaptiveHadamardKernel
from gpytorch_nkn.models import SparseNKNGP, VariationalNKNGP, fit_sparse_gp, fit_variational_gp
from tests.kernels.contract import perturb


def data(n=40):
    """A wave whose amplitude is large on the right."""
    x = torch.linspace(-2, 2, n)[:, None]
    return x, (8 * x + 0.3).sin().squeeze(-1) * (2 * x.squeeze(-1)).exp() / 10


def adaptive(x, num_anchors=6, **options):
    return DataAdaptiveHadamardKernel.from_data(RBFKernel(), x, num_anchors, **options)


def test_sparse_gp_with_all_points_is_the_exact_gp():
    x, y = data(20)
    kernel = ScaleKernel(perturb(adaptive(x)))
    sparse = SparseNKNGP(x, y[:, None], structure=kernel, inducing_points=20)
    sparse.likelihood.noise = 0.05
    exact = SingleTaskGP(x, y[:, None], covar_module=kernel, likelihood=sparse.likelihood)
    exact.mean_module = sparse.mean_module
    new = x[:5] + 0.03
    with torch.no_grad():
        first, second = (model.eval().posterior(new) for model in (sparse, exact))
        torch.testing.assert_close(first.mean, second.mean, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(first.variance, second.variance, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("model_class", [SparseNKNGP, VariationalNKNGP])
def test_sparse_and_variational_gps_train_the_weights(model_class):
    x, y = data(60)
    model = model_class(x, y[:, None], structure=ScaleKernel(adaptive(x)), inducing_points=12)
    (kernel,) = (m for m in model.modules() if isinstance(m, DataAdaptiveHadamardKernel))
    start = kernel.weights.detach().clone()
    if model_class is SparseNKNGP:
        fit_sparse_gp(model, restarts=1, max_iterations=5)
    else:
        fit_variational_gp(model, epochs=5, batch_size=20, start=None, progress=False)
    assert (kernel.weights - start).abs().max() > 0.01
    assert (model.posterior(x[:3]).variance > 0).all()
