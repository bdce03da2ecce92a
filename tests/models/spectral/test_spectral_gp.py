import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import NeuralKernelNetwork, NonStationarySpectralKernel
from gpytorch_nkn.models import SpectralGP
from tests.models.registry import spectral
from tests.models.small_models import Largest, data, moved

BOTH = pytest.mark.parametrize("rbf", [True, False], ids=["beside", "alone"])
ALL = pytest.mark.parametrize(
    "rbf", [True, "points", False], ids=["beside", "at inducing points", "alone"]
)


def gp(rbf, m=1, n=30, batch_shape=(), **options):
    """A model whose parameters have moved, of data with noise."""
    x, y = data(m, n, 2, batch_shape)
    y = y + 0.2 * torch.randn_like(y)
    model = spectral(x, y, rbf=rbf, **{"inducing_points": 8} | options)
    if rbf != "points":
        return moved(model, batch_shape)
    points = model.covar_module.kernels[0].inducing_points.detach().clone()
    moved(model, batch_shape).covar_module.kernels[0].inducing_points.data.copy_(points)
    return model


def waves_times_envelopes(kernel, x, y, at):
    """Values of an element of a spectral kernel as the docstring has them."""
    part = {name: value.detach().numpy()[at] for name, value in kernel.named_parameters()}
    scale, outputscale = kernel.lengthscale.detach().numpy()[at], kernel.outputscale.detach()
    z, w = (x - part["center"]) / scale, (y - part["center"]) / scale
    total = 0.0
    for m, d in zip(part["mean_frequencies"], part["half_differences"], strict=True):
        left, right = np.cos(z @ d), np.cos(w @ d)
        total = total + np.outer(left, right) * np.cos(np.subtract.outer(z @ m, w @ m))
    return outputscale.numpy()[at] / kernel.num_features * total


def rbf_values(model, x, y, at):
    rbf = model.rbf_kernel
    scale = rbf.base_kernel.lengthscale.detach().numpy()[at]
    squares = np.square((x[:, None] - y[None]) / scale).sum(-1)
    return rbf.outputscale.detach().numpy()[at] * np.exp(-0.5 * squares)


def covariance(model, x, y, at, *, prior=False):
    """Of the model, or of the kernel that it stands for."""
    found = waves_times_envelopes(model.spectral_kernel, x, y, at)
    if model.rbf_kernel is None:
        return found
    if prior or isinstance(model.covar_module, NeuralKernelNetwork):
        return found + rbf_values(model, x, y, at)
    points = model.covar_module.kernels[0].inducing_points.detach().numpy()[at]
    left, right = rbf_values(model, x, points, at), rbf_values(model, points, y, at)
    return found + left @ np.linalg.solve(rbf_values(model, points, points, at), right)


@ALL
@pytest.mark.parametrize(
    ("m", "batch_shape", "options"),
    [
        (1, (), {"num_features": 40}),
        (1, (3,), {"train_Yvar": 0.04}),
        (2, (3,), {}),
        (2, (), {"train_Yvar": 0.04, "num_features": 40}),
    ],
)
def test_posterior_and_predictions_match_dense_algebra(rbf, m, batch_shape, options):
    options = dict(options)
    if "train_Yvar" in options:
        level = options["train_Yvar"]
        options["train_Yvar"] = level * (1 + torch.rand(*batch_shape, 30, m))
    model = gp(rbf, m, 30, batch_shape, outcome_transform=None, **options)
    test = torch.rand(*batch_shape, 5, 2)
    posterior = model.posterior(test)
    mean, variance = model.predict(test)
    noisy = model.predict(test, observation_noise=True)[1]
    inputs = model.train_inputs[0]
    center = model.mean_module(inputs)[..., 0].detach()
    joint = posterior.distribution.covariance_matrix.detach()
    train_noise = model.likelihood.noise.detach().expand(model.train_targets.shape)
    for element in np.ndindex(batch_shape):
        for k in range(m):
            at = (*element, k) if m > 1 else element
            x, t = inputs[at].numpy(), test[element].numpy()
            known = covariance(model, x, x, at) + np.diag(train_noise[at].numpy())
            between = covariance(model, t, x, at)
            prior = float(center[at])
            residual = model.train_targets[at].numpy() - prior
            expected = prior + between @ np.linalg.solve(known, residual)
            spread = covariance(model, t, t, at, prior=True)
            spread = spread - between @ np.linalg.solve(known, between.T)
            column = (*element, slice(None), k)
            for own in (posterior.mean.detach(), mean):
                np.testing.assert_allclose(own[column], expected, rtol=1e-5, atol=1e-5)
            for own in (posterior.variance.detach(), variance):
                np.testing.assert_allclose(own[column], np.diag(spread), rtol=1e-5, atol=1e-6)
            block = slice(5 * k, 5 * (k + 1))  # of outputs that are independent
            np.testing.assert_allclose(joint[(*element, block, block)], spread, atol=1e-6)
            assert np.abs(expected - prior).max() > 0.1
            added = (noisy - variance)[column]
            level = train_noise[at].mean() if "train_Yvar" in options else train_noise[at][0]
            np.testing.assert_allclose(added, np.full(5, level), rtol=1e-6)


def test_which_kernels_it_has():
    def kernels(n, **options):
        model = SpectralGP(torch.rand(n, 3), torch.rand(n, 1), **options)
        kind = type(model.covar_module)
        return kind is NeuralKernelNetwork, model.spectral_kernel.num_features

    assert kernels(20) == (True, 5)  # the fewest
    assert kernels(400) == (True, 20)
    assert kernels(2000) == (True, 50)  # the most
    assert kernels(2001) == (False, 133)
    assert kernels(6000) == (False, 300)  # the most
    assert kernels(20, rbf=False) == (False, 50)  # the fewest
    assert kernels(20, rbf=False, num_features=7) == (False, 7)
    assert kernels(20, num_features=7) == (True, 7)
    many = SpectralGP(torch.rand(2001, 3), torch.rand(2001, 1))
    assert many.covar_module.kernels[0].inducing_points.shape == (300, 3)
    assert many.covar_module.feature_dim == 300 + 2 * 133


def test_posterior_with_a_kernel_of_simplify():
    model, points = gp(True, outcome_transform=None), torch.rand(600, 2)
    model.covar_module = kernel = ScaleKernel(RBFKernel(active_dims=(1,)))
    x, constant = model.train_inputs[0], model.mean_module.constant
    rows = kernel(x).add_diagonal(model.likelihood.noise)
    expected = constant + kernel(points, x) @ rows.solve(model.train_targets - constant)
    for count in (5, 600):
        found = model.eval().posterior(points[:count]).mean
        torch.testing.assert_close(found[:, 0], expected[:count])


@BOTH
def test_options_reach_the_kernel(rbf):
    x, y = data(2, 20, 3)
    kernel = SpectralGP(x, y, rbf=rbf, num_features=6, seed=3).spectral_kernel
    expected = NonStationarySpectralKernel(6, 3, seed=3)
    assert kernel.batch_shape == (2,)
    for element in range(2):
        torch.testing.assert_close(kernel.frequencies[element], expected.frequencies)
    stationary = SpectralGP(x, y, rbf=rbf, stationary=True).spectral_kernel
    names = [name for name, *_ in stationary.named_priors()]
    assert stationary.stationary and names == ["frequency_prior"] * rbf
    default = SpectralGP(x, y, rbf=rbf).spectral_kernel
    assert (default.difference_prior.scale == 0.1).all()
    assert hasattr(default, "frequency_prior") == rbf
    assert not rbf or (default.frequency_prior.scale == 0.3).all()


@pytest.mark.parametrize("m, known", [(1, True), (2, False)])
def test_predictions_need_no_matrix_of_the_data(m, known):
    x, y = data(m, 20_000)
    noise = torch.full_like(y, 0.01) if known else None
    model = SpectralGP(x, y, noise, num_features=5, inducing_points=5)
    test = torch.rand(20, 2, requires_grad=True)
    with Largest() as largest:
        posterior = model.posterior(test)
        posterior.rsample(torch.Size([3])).sum().backward()
        model.predict(x[:5000])
    assert test.grad.isfinite().all()
    assert largest.elements < 20 * m * 20_000 * 15
