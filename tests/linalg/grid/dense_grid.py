"""Dense references for structured computations on grids."""

import math

import torch
from scipy.optimize import brentq
from torch.distributions import MultivariateNormal

from gpytorch_nkn.linalg import PartialGrid

TIGHT = {"tolerance": 1e-12, "max_iterations": 2000}


def factor(n, lengthscale, batch=()):
    """Covariances ``batch x n x n``, different for each element of the batch."""
    x = torch.linspace(-1, 1, n)
    scale = lengthscale * (1 + 0.3 * torch.arange(torch.Size(batch).numel()).view(*batch, 1, 1))
    return torch.exp(-0.5 * ((x[:, None] - x) / scale) ** 2) + 0.1 * torch.eye(n)


def factors_of(shape, batches=()):
    """One factor per dimension, with the given batch shapes (none by default)."""
    batches = batches or [()] * len(shape)
    pairs = enumerate(zip(shape, batches, strict=True))
    return [factor(n, 0.4 + 0.2 * dim, batch).requires_grad_() for dim, (n, batch) in pairs]


def kron(factors):
    """The Kronecker product ``... x N x N``."""
    product = factors[0]
    for other in factors[1:]:
        blocks = torch.einsum("...ij,...kl->...ikjl", product, other)
        product = blocks.flatten(-4, -3).flatten(-2)
    return product


def random_grid(shape, share, batch=(), seed=0):
    """Cells with about a share missing, but neither the first nor the last one."""
    generator = torch.Generator().manual_seed(seed)
    observed = torch.rand(*batch, *shape, generator=generator) >= share
    flat = observed.view(*batch, -1)
    flat[..., 0] = flat[..., -1] = True
    return PartialGrid(observed, len(shape))


def density(residual, observed, noise, factors):
    """Negative log density of the observed cells of one grid."""
    seen = observed.flatten()
    covariance = kron(factors)[seen][:, seen] + noise * torch.eye(int(seen.sum()))
    normal = MultivariateNormal(torch.zeros(len(covariance)), covariance)
    return -normal.log_prob(residual.flatten()[seen])


def held_out(residual, observed, block, noise, factors):
    """Squared errors and variances of new observations of a block, given all other cells."""
    covariance = kron(factors)
    gone = (block & observed).flatten()
    seen = observed.flatten() & ~gone
    own = covariance[seen][:, seen] + noise * torch.eye(int(seen.sum()))
    gain = torch.linalg.solve(own, covariance[seen][:, gone]).mT
    error = gain @ residual.flatten()[seen] - residual.flatten()[gone]
    explained = (gain * covariance[gone][:, seen]).sum(-1)
    return error.square(), covariance.diagonal()[gone] + noise - explained


def compressed_density(residual, observed, noise, factors):
    """As :func:`density`, with the log-determinant of a free compression."""
    seen = observed.flatten()
    covariance, count, size = kron(factors), int(seen.sum()), seen.numel()
    own = covariance[seen][:, seen] + noise * torch.eye(count)
    y = residual.flatten()[seen]
    values = torch.linalg.eigvalsh(covariance) + noise
    known = values.detach().numpy()
    root = brentq(lambda r: (known / (known + r)).sum() - count, 1e-9, 1e9, xtol=1e-15, rtol=1e-14)
    determinant = (values + root).log().sum() - (size - count) * math.log(root)
    share = count / size
    determinant = determinant + count * math.log(share) + (size - count) * math.log(1 - share)
    normalizer = count * math.log(2 * math.pi)
    return 0.5 * (y @ torch.linalg.solve(own, y) + determinant + normalizer)


def symmetric(gradients):
    """Symmetrise gradients, which a dense computation leaves asymmetric."""
    return [0.5 * (g + g.mT) for g in gradients]
