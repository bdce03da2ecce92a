"""Small models on grids, and what they must predict by dense matrices."""

import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from gpytorch_nkn.models import KroneckerGridGP


def some_kernels(number, batch_shape=()):
    """Kernels of different kinds, whose parameters differ over a batch."""
    options = {"batch_shape": torch.Size(batch_shape)}
    kernels = [
        ScaleKernel(RBFKernel(**options), **options),
        MaternKernel(nu=1.5, **options),
        PeriodicKernel(**options),
    ][:number]
    step = 1 + 0.2 * torch.arange(torch.Size(batch_shape).numel()).view(*batch_shape, 1, 1)
    for place, kernel in enumerate(kernels):
        base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
        base.lengthscale = (0.3 + 0.2 * place) * step
    kernels[0].outputscale = 0.8 * step.view(batch_shape)
    return kernels


def columns(coordinates):
    return [x.unsqueeze(-1) if x.dim() == 1 else x for x in coordinates]


def all_points(coordinates):
    """Every cell's coordinates side by side, ``N x D``."""
    parts = columns(coordinates)
    index = torch.meshgrid(*[torch.arange(len(x)) for x in parts], indexing="ij")
    return torch.cat([x[i.flatten()] for x, i in zip(parts, index, strict=True)], -1)


def grid_data(shape, share=0.2, batch=(), shared_mask=False, seed=0):
    """Irregular coordinates, values and missing cells."""
    generator = torch.Generator().manual_seed(seed)
    coordinates = [torch.linspace(0, 1, n) ** (1 + d) for d, n in enumerate(shape)]
    values = 3 * torch.randn(*batch, *shape, generator=generator) + 5
    missing = torch.rand(*(() if shared_mask else batch), *shape, generator=generator) < share
    return coordinates, values, missing.expand(values.shape)


def holed(values, missing):
    return values.masked_fill(missing, torch.nan)


def make(shape, share=0.2, batch=(), kernels=None, **options):
    """A model in eval mode with parameters of its own, its values and its missing cells."""
    data = {k: options.pop(k) for k in ("shared_mask", "seed") if k in options}
    coordinates, values, missing = grid_data(shape, share, batch, **data)
    kernels = some_kernels(len(shape), batch) if kernels is None else kernels
    options = {"tolerance": 1e-11, **options}
    model = KroneckerGridGP(coordinates, holed(values, missing), kernels, **options)
    move(model)
    return model.eval(), values, missing


def move(model):
    """Noise and mean away from where they start."""
    noise = model.likelihood.noise
    model.likelihood.noise = 0.2 + 0.1 * torch.arange(noise.numel()).view(noise.shape)
    with torch.no_grad():
        for number, parameter in enumerate(model.mean_module.parameters()):
            parameter.copy_(
                0.3 + number + 0.1 * torch.arange(parameter.numel()).view(parameter.shape)
            )


def product(model, left, right):
    """Covariance ``... x q x m`` of points, one kernel after the other."""
    widths = [x.size(-1) for x in columns(model.coordinates)]
    value = torch.ones(())
    for kernel, a, b in zip(
        model.kernels, left.split(widths, -1), right.split(widths, -1), strict=True
    ):
        value = value * kernel(a, b).to_dense()
    return value


def dense(model, values, missing, points, standardize=True, known=0.0):
    """Mean ``... x q`` and covariance ``... x q x q`` at points ``q x D``, in the values' units."""
    known = (known + torch.zeros_like(values)).flatten(-model.num_dims)
    batch, cells = model.batch_shape, all_points(model.coordinates)
    joint = product(model, torch.cat([cells, points]), torch.cat([cells, points]))
    size = len(cells) + len(points)
    joint = joint.expand(*batch, size, size).reshape(-1, size, size)
    prior = model.mean_module(torch.cat([cells, points])).expand(*batch, size).reshape(-1, size)
    noise = model.likelihood.noise.expand(*batch, 1).reshape(-1)
    means, covariances = [], []
    flat, masks = values.reshape(len(joint), -1), missing.reshape(len(joint), -1)
    parts = joint, prior, flat, masks, noise, known.reshape(len(joint), -1)
    for k, m, y, gone, s2, v in zip(*parts, strict=True):
        seen, new = (~gone).nonzero()[:, 0], torch.arange(len(cells), size)
        shift, scale = (y[seen].mean(), y[seen].std()) if standardize is True else (0.0, 1.0)
        if isinstance(standardize, tuple):
            shift, scale = standardize
        own = k[seen][:, seen] + (s2 + v[seen] / scale**2).diag()
        gain = torch.linalg.solve(own, k[seen][:, new]).mT
        mean = m[new] + gain @ ((y[seen] - shift) / scale - m[seen])
        means.append(shift + scale * mean)
        covariances.append(scale**2 * (k[new][:, new] - gain @ k[seen][:, new]))
    q = len(points)
    return torch.stack(means).view(*batch, q), torch.stack(covariances).view(*batch, q, q)
