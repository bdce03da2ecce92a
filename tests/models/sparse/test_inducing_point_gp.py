import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import LinearMean

from gpytorch_nkn.models import (
    SparseNKNGP,
    VariationalNKNGP,
    fit_sparse_gp,
    fit_variational_gp,
)
from tests.models.small_models import data

MODELS = pytest.mark.parametrize("model_class", [SparseNKNGP, VariationalNKNGP])


def fit(model):
    options = {"block_size": 10, "restarts": 1, "progress": False}
    if isinstance(model, SparseNKNGP):
        return fit_sparse_gp(model, max_iterations=2, **options)
    return fit_variational_gp(model, epochs=1, batch_size=20, **options)


@MODELS
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structure": "deep"}, ValueError, "got 'deep'"),
        ({"structure": torch.nn.Linear(2, 2)}, TypeError, "got Linear"),
        ({"structure": RBFKernel(ard_num_dims=3)}, ValueError, "does not fit 2 input columns"),
        ({"inducing_points": 0}, ValueError, "got 0"),
        ({"inducing_points": torch.rand(4, 3)}, ValueError, r"\('m', 2\), got shape \(4, 3\)"),
        ({"inducing_points": torch.rand(2, 4, 2)}, ValueError, r"got shape \(2, 4, 2\)"),
        (
            {"likelihood": FixedNoiseGaussianLikelihood(torch.ones(9))},
            TypeError,
            "got FixedNoiseGaussianLikelihood",
        ),
    ],
)
def test_what_does_not_fit_is_refused(model_class, options, error, message):
    with pytest.raises(error, match=message):
        model_class(*data(n=9), **{"structure": "additive", "inducing_points": 4} | options)


@MODELS
def test_any_kernel_is_copied_and_may_be_the_structure(model_class):
    kernel, mean = ScaleKernel(RBFKernel(ard_num_dims=2)), LinearMean(2)
    x, y = data(n=20)
    model = model_class(x, y, structure=kernel, inducing_points=1000, mean_module=mean)
    assert model.inducing_points.shape == (20, 2)
    owned = list(model.modules())
    assert any(part is mean for part in owned) and not any(part is kernel for part in owned)


@MODELS
def test_inputs_that_need_gradients_are_trained_on(model_class, short_start):
    x, y = data(n=20)
    options = {"structure": "additive", "inducing_points": 5}
    model = model_class(x.clone().requires_grad_(), y, **options)
    plain = model_class(x, y, **options)
    fit(model), fit(plain)
    with torch.no_grad():
        # Diagonals are evaluated by other code, and training magnifies the rounding.
        torch.testing.assert_close(model.predict(x), plain.predict(x), rtol=1e-3, atol=1e-3)
