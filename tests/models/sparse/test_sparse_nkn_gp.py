import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms.input import Warp
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.utils.warnings import GPInputWarning
from torch.distributions import MultivariateNormal

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import SparseNKNGP, fit_sparse_gp
from gpytorch_nkn.models.sparse.fit_sparse import bound_loss
from tests.models.small_models import Largest, data, moved

SMALL = "Linear4-Product2-Linear1"


def network(d=2, batch_shape=None):
    return NeuralKernelNetwork.regression(d, wiring=SMALL, batch_shape=batch_shape)


def sparse(m=1, n=40, number=9, batch_shape=(), **options):
    x, y = data(m, n, 2, batch_shape)
    y = y + 0.1 * torch.randn_like(y)
    options = {"structure": network(), "inducing_points": number} | options
    return moved_but_for_points(SparseNKNGP(x, y, **options), batch_shape)


def moved_but_for_points(model, batch_shape=()):
    points = model.inducing_points.detach().clone()
    moved(model, batch_shape).inducing_points.data.copy_(points)
    return model


def dense_parts(model):
    """Kernel matrices of a model of one output as NumPy arrays, residuals and noise."""
    model.eval()
    x, z = model.train_inputs[0], model.inducing_points
    kernel = model.covar_module.base_kernel
    with torch.no_grad():
        parts = kernel(z).to_dense(), kernel(z, x).to_dense(), kernel(x).to_dense()
        residual = model.train_targets - model.mean_module(x)
        return [p.numpy() for p in (*parts, residual)] + [model.likelihood.noise.item()]


def test_posterior_equals_the_formulas_of_the_book():
    model = sparse(outcome_transform=None)
    kuu, kuf, _, residual, noise = dense_parts(model)
    test = torch.rand(6, 2)
    kernel, z = model.covar_module.base_kernel, model.inducing_points
    with torch.no_grad():
        ksu, kss = kernel(test, z).to_dense().numpy(), kernel(test).to_dense().numpy()
        prior_mean = model.mean_module(test).numpy()
    inner = np.linalg.inv(kuu + kuf @ kuf.T / noise)  # Titsias (2009), equations 6 and 10
    mean = prior_mean + ksu @ inner @ kuf @ residual / noise
    covariance = kss - ksu @ (np.linalg.inv(kuu) - inner) @ ksu.T
    posterior = model.posterior(test)
    np.testing.assert_allclose(posterior.mean.detach().numpy()[:, 0], mean, rtol=1e-5, atol=1e-5)
    found = posterior.distribution.covariance_matrix.detach().numpy()
    np.testing.assert_allclose(found, covariance, rtol=1e-4, atol=1e-6)
    assert np.abs(mean - prior_mean).max() > 0.3 and np.ptp(np.diag(covariance)) > 1e-3


@pytest.mark.parametrize("chunk, m, batch_shape", [(15 * 9, 2, (2,)), (10**7, 1, ())])
def test_loss_and_gradient_equal_dense_matrices(chunk, m, batch_shape, monkeypatch):
    monkeypatch.setattr("gpytorch_nkn.linalg.low_rank_gaussian._CHUNK_ENTRIES", chunk)
    model = sparse(m, batch_shape=batch_shape, mean_module=None).train()
    ours, trained = bound_loss(model), [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(ours, trained)
    output = model(*model.train_inputs)
    own = model.likelihood(output).log_prob(model.train_targets).sum()
    priors = list(model.named_priors())
    assert len({id(prior) for _, _, prior, _, _ in priors}) == len(priors)  # each one once
    of_priors = sum(p.log_prob(get(part)).sum() for _, part, p, get, _ in priors)
    for value in (own, titsias(model).sum()):
        value = value + of_priors
        expected = torch.autograd.grad(-value, trained, retain_graph=True)
        torch.testing.assert_close(ours, -value, rtol=1e-7, atol=1e-6)
        for mine, other in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5 * other.abs().max().item())


def titsias(model):
    """The bound by dense matrices, with the jitter of the model."""
    x, z, kernel = model.train_inputs[0], model.inducing_points, model.covar_module.base_kernel
    inner = kernel(z).to_dense()
    eye = torch.eye(inner.size(-1)) * inner.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    shape = torch.broadcast_shapes(x.shape[:-2], z.shape[:-2])
    between = kernel(z.expand(*shape, -1, -1), x.expand(*shape, -1, -1)).to_dense()
    low_rank = between.mT @ torch.linalg.solve(inner + 1e-8 * eye, between)
    noise = model.likelihood.noise
    covariance = low_rank + torch.diag_embed(noise.expand(*low_rank.shape[:-1]))
    density = MultivariateNormal(model.mean_module(x), covariance).log_prob(model.train_targets)
    rest = kernel(x, diag=True) - low_rank.diagonal(dim1=-2, dim2=-1)
    return density - 0.5 * (rest / noise).sum(-1)


def test_gradient_reaches_a_transform_that_learns():
    x, y = data(n=30)
    warp = Warp(d=2, indices=[0])
    model = SparseNKNGP(x, y, structure=network(), inducing_points=8, input_transform=warp).train()
    (found,) = torch.autograd.grad(bound_loss(model), [warp.concentration0])
    raw, step = warp.concentration0, 1e-5
    values = []
    for sign in (1, -1):
        raw.data += sign * step
        values.append(bound_loss(model).item())
        raw.data -= sign * step
    assert found.item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-4)
    assert abs(found.item()) > 1e-2


def test_known_noise_of_other_data_is_an_error_until_it_is_set():
    x, y = data(n=40)
    model = SparseNKNGP(x, y, torch.full_like(y, 0.01), structure=network(), inducing_points=8)
    model.set_train_data(x[:30], model.train_targets[:30], strict=False)
    match = r"must have the shape of the training targets, \(30,\), got \(40,\)"
    with pytest.warns(GPInputWarning), pytest.raises(ValueError, match=match):
        model.posterior(x)
    model.likelihood.noise_covar.noise = model.likelihood.noise[:30]
    assert model.posterior(x).variance.shape == (40, 1)


def test_nothing_of_n_times_n_is_formed():
    n, number = 6000, 5
    x, y = data(n=n)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    with Largest() as largest:
        kernel(x[:1500]).to_dense()
    assert largest.elements >= 1500**2  # it would notice
    with Largest() as largest:
        model = SparseNKNGP(x, y, structure=network(), inducing_points=number).train()
        bound_loss(model).backward()
        output = model(*model.train_inputs)
        ExactMarginalLogLikelihood(model.likelihood, model)(output, model.train_targets).backward()
        model.predict(x)
        with torch.no_grad():
            posterior = model.posterior(x, observation_noise=True)
            assert posterior.mean.shape == posterior.variance.shape == (n, 1)
    assert largest.elements < 20 * n * number


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_noise_free_data_are_followed_in_float32():
    x, y = (t.float() for t in data(n=40))
    model = SparseNKNGP(x, y, structure=network(), inducing_points=25)
    fit_sparse_gp(model, max_iterations=6, restarts=1)
    test, truth = (t.float() for t in data(n=50))
    mean, variance = model.predict(test)
    assert mean.dtype == torch.float32 and (variance >= 0).all()
    assert model.likelihood.noise.item() < 1e-4
    assert (mean - truth).abs().max() < 0.02 * truth.std()


def test_default_fit_raises_the_bound_and_beats_its_start():
    x, y = data(n=150)
    y = y + 0.1 * torch.randn_like(y)
    before = torch.get_rng_state()
    model = SparseNKNGP(x, y, structure=network(), inducing_points=12)
    start = model.bound()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, restarts=1, max_iterations=0)
    after_blocks = -bound_loss(model.train())
    points = model.inducing_points.detach().clone()
    fit_gpytorch_mll(mll, start=None, max_iterations=10)
    assert not model.training and not torch.equal(points, model.inducing_points)
    assert model.bound() > start
    assert -bound_loss(model.train()) > after_blocks
    assert torch.equal(before, torch.get_rng_state())
    noise = model.likelihood.noise.sqrt().item() * y.std().item()
    assert noise == pytest.approx(0.1, rel=0.3)


def test_fixed_points_stay_and_several_outputs_are_trained(short_start):
    model = sparse(2)
    model.inducing_points.requires_grad_(False)
    points, bound = model.inducing_points.clone(), model.bound()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, restarts=1, max_iterations=3)
    assert torch.equal(points, model.inducing_points)
    assert (model.bound() > bound).all()
