"""Densities of rows that a GP has not seen, against dense matrices in NumPy."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from scipy.stats import norm

from gpytorch_nkn.kernels import NonStationarySpectralKernel
from gpytorch_nkn.models.inducing_points import InducingFeatureKernel
from gpytorch_nkn.models.spectral.feature_sum_kernel import FeatureSumKernel
from gpytorch_nkn.models.spectral.fit_spectral import Rows, _SubsetGP


def draws(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pairs(number, batch_shape=()):
    kernel = NonStationarySpectralKernel(
        number, 2, correlation=0.3, batch_shape=torch.Size(batch_shape)
    )
    for seed, parameter in enumerate(kernel.parameters()):
        parameter.data += 0.3 * draws(*parameter.shape, seed=seed)
    return kernel


def rbf(batch_shape=()):
    shape = torch.Size(batch_shape)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2, batch_shape=shape), batch_shape=shape)
    kernel.outputscale = 0.5 + torch.arange(max(1, shape.numel())).to(draws(1)).view(shape)
    return kernel


KERNELS = {
    "more features": lambda b: pairs(15, b),
    "scaled": lambda b: ScaleKernel(pairs(3, b), batch_shape=torch.Size(b)),
    "rbf": rbf,
    "beside": lambda b: AdditiveKernel(rbf(b), pairs(3, b)),
    "at inducing points": lambda b: at_points(b, 4),
    "at many points": lambda b: at_points(b, 15),
}


def at_points(batch_shape, number):
    base = InducingFeatureKernel(rbf(batch_shape), draws(number, 2, seed=7))
    return FeatureSumKernel(base, pairs(3, batch_shape))


def problem(name, batch_shape, known):
    """A GP of 18 rows and 7 others."""
    x = draws(25, 2, seed=1)
    y = x.sum(-1).sin() + draws(*batch_shape, 25, seed=2)
    noise = 0.1 + draws(*batch_shape, 25, seed=3).square() if known else None
    everything = Rows(x, y, noise)
    shape = torch.Size(batch_shape)
    likelihood = GaussianLikelihood(batch_shape=shape)
    likelihood.noise = (0.2 + 0.3 * torch.arange(max(1, shape.numel()))).view(*shape, 1)
    mean = ConstantMean(batch_shape=shape)
    mean.constant.data += 0.7 + draws(*shape, seed=4)
    index = torch.arange(25)
    gp = _SubsetGP(everything[index < 18], KERNELS[name](batch_shape), mean, likelihood)
    return gp, everything[index >= 18]


def dense(gp, rows):
    """Joint covariance without noise, and noise and residuals, of all rows as arrays of NumPy."""
    shape = rows.y.shape[:-1]
    with torch.no_grad():
        x = torch.cat([part.x.expand(*shape, *part.x.shape[-2:]) for part in (gp.rows, rows)], -2)
        covariance = gp.covar_module(x).to_dense().numpy()
        residual = torch.cat([gp.rows.y, rows.y], -1) - gp.mean_module(x)
        if rows.noise is None:
            noise = gp.likelihood.noise.expand(residual.shape)
        else:
            learned = (0.2 + 0.3 * torch.arange(max(1, shape.numel()))).view(*shape, 1)
            noise = torch.cat([gp.rows.noise, rows.noise], -1) + learned
    return covariance, noise.numpy(), residual.numpy()


def rest(gp, rows):
    """Variance of an RBF kernel that its inducing points leave out."""
    if not isinstance(gp.covar_module, FeatureSumKernel):
        return np.zeros(rows.y.shape)
    base = gp.covar_module.kernels[0]
    with torch.no_grad():
        points = base.inducing_points
        x = rows.x.expand(*points.shape[:-2], *rows.x.shape[-2:])
        between = base.base_kernel(x, points).to_dense()
        known = between @ torch.linalg.solve(base.base_kernel(points).to_dense(), between.mT)
        return (base.base_kernel(x, diag=True) - known.diagonal(dim1=-2, dim2=-1)).numpy()


def oracle(gp, rows):
    """Log densities of one element after another."""
    covariance, noise, residual = dense(gp, rows)
    found, n = np.empty(rows.y.shape), len(gp.rows)
    for at in np.ndindex(*rows.y.shape[:-1]):
        k, s, r = covariance[at], noise[at], residual[at]
        gain = k[n:, :n] @ np.linalg.inv(k[:n, :n] + np.diag(s[:n]))
        variance = np.diag(k[n:, n:] - gain @ k[:n, n:]) + s[n:] + rest(gp, rows)[at]
        found[at] = norm.logpdf(r[n:], gain @ r[:n], np.sqrt(variance))
    return found


@pytest.mark.parametrize("batch_shape, known", [((), True), ((3, 2), False)])
@pytest.mark.parametrize("name", KERNELS)
def test_densities_match_dense_matrices(name, batch_shape, known):
    gp, rows = problem(name, batch_shape, known)
    found = gp.log_density(rows)
    expected = oracle(gp, rows)
    assert found.shape == (*batch_shape, 7) and not found.requires_grad
    tolerance = 1e-5 if name == "at many points" else 1e-8  # they need some jitter
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)
    alone = norm.logpdf(dense(gp, rows)[2][..., 18:], 0.0, 1.0)
    assert np.abs(expected - alone).mean() > 0.1  # the rows that it has seen matter
