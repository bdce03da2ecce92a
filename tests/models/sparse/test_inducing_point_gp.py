import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import SparseNKNGP, VariationalNKNGP, fit_sparse_gp, fit_variational_gp
from tests.models.small_models import data

MODELS = pytest.mark.parametrize("model_class", [SparseNKNGP, VariationalNKNGP])


def fit(model):
    options = {"restarts": 1, "progress": False}
    if isinstance(model, SparseNKNGP):
        return fit_sparse_gp(model, max_iterations=2, **options)
    return fit_variational_gp(model, epochs=1, batch_size=20, **options)


THREE = torch.Size([3])


@MODELS
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structure": "deep"}, ValueError, "got 'deep'"),
        ({"structure": torch.nn.Linear(2, 2)}, TypeError, "got Linear"),
        ({"structure": RBFKernel(ard_num_dims=3)}, ValueError, "does not fit 2 input columns"),
        ({"inducing_points": 1.5}, TypeError, r"integer, got 1\.5"),
        ({"inducing_points": torch.rand(4, 3)}, ValueError, r"\('m', 2\), got shape \(4, 3\)"),
        ({"inducing_points": torch.rand(2, 4, 2)}, ValueError, r"got shape \(2, 4, 2\)"),
        (
            {"likelihood": FixedNoiseGaussianLikelihood(torch.ones(9))},
            TypeError,
            "got FixedNoiseGaussianLikelihood",
        ),
        ({"likelihood": GaussianLikelihood(batch_shape=THREE)}, ValueError, r"likelihood .*\(3,"),
        ({"mean_module": LinearMean(3)}, ValueError, r"mean_module does not fit .*\(9, 2\)"),
        ({"mean_module": ConstantMean(batch_shape=THREE)}, ValueError, r"mean_module .*got \(3,"),
    ],
)
def test_what_does_not_fit_is_rejected(model_class, options, error, message):
    with pytest.raises(error, match=message):
        model_class(*data(n=9), **{"structure": "additive", "inducing_points": 4} | options)


@MODELS
def test_any_kernel_is_copied_and_may_be_the_structure(model_class):
    kernel, mean = ScaleKernel(RBFKernel(ard_num_dims=2)), LinearMean(2)
    x, y = data(n=20)
    x, y = x.repeat(2, 1), y.repeat(2, 1)
    model = model_class(x, y, structure=kernel, inducing_points=1000, mean_module=mean)
    assert model.inducing_points.shape == (20, 2)  # the distinct rows
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


def known_noise(n=40):
    x, y = data(n=n)
    return x, y, 0.01 + torch.rand(n, 1) * y.var()


@MODELS
@pytest.mark.parametrize("known", [False, True])
def test_with_all_rows_as_inducing_points_it_is_the_exact_gp(model_class, known):
    x, y, noise = known_noise()
    noise, kernel = noise if known else None, NeuralKernelNetwork.regression(2)
    model = model_class(x, y, noise, structure=kernel, inducing_points=x)
    if model_class is VariationalNKNGP:
        fit_variational_gp(model, epochs=0, start=None, progress=False)
    likelihood = None if known else model.likelihood
    exact = SingleTaskGP(x, y, noise, likelihood, covar_module=kernel).eval()
    new = torch.rand(5, 2)
    for observed in (False, True):
        found, expected = (m.posterior(new, observation_noise=observed) for m in (model, exact))
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.variance, expected.variance, rtol=1e-3, atol=1e-4)


@MODELS
def test_bound_with_known_noise_equals_the_formula_of_titsias(model_class):
    x, y, noise = known_noise()
    model = model_class(x, y, noise, structure=NeuralKernelNetwork.regression(2), inducing_points=7)
    gp = model.collapsed()
    with torch.no_grad():
        found = gp.bound()
        between, inducing = gp.kernel(x, gp.points).to_dense(), gp.kernel(gp.points).to_dense()
        low = between @ torch.linalg.solve(inducing, between.mT)
        noise = noise.squeeze(-1) / model.outcome_transform.stdvs.item() ** 2
        normal = torch.distributions.MultivariateNormal(gp.mean_module(x), low + noise.diag())
        rest = (gp.kernel(x, diag=True) - low.diagonal()) / noise
        expected = normal.log_prob(gp.targets) - rest.sum() / 2
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@MODELS
def test_known_noise_is_trained_with_and_weighs_rows(model_class, short_start):
    x, y, noise = known_noise(60)
    noise[:30], y[:30] = 1e9, y[:30] + 5  # rows that do not count
    options = {"structure": "additive", "inducing_points": x[::7], "outcome_transform": None}
    model = model_class(x, y, noise, **options)
    fit(model)
    rest = model_class(x[30:], y[30:], noise[30:], **options)
    rest.load_state_dict(model.state_dict(), strict=False)
    if model_class is VariationalNKNGP:
        for one in (model, rest):
            fit_variational_gp(one, epochs=0, start=None, progress=False)
    torch.testing.assert_close(
        model.posterior(x).mean, rest.posterior(x).mean, rtol=1e-3, atol=1e-3
    )
    for wrong in (-noise, noise[:9], noise.squeeze(-1), noise.T):
        with pytest.raises(ValueError, match="train_Yvar must be non-negative variances of shape"):
            model_class(x, y, wrong)
    with pytest.raises(ValueError, match="likelihood or train_Yvar, got both"):
        model_class(x, y, noise, likelihood=GaussianLikelihood())
