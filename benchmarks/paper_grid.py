"""The two ways to learn from a grid with a hole that Kronecker grids are compared with.

:class:`PaperGrid` is the formulation of Sun et al. (2018), appendix J.4, after Wilson et al.
(2014), as a reader would write it in PyTorch: the grid is completed with imaginary observations of
noise 1e6, conjugate gradients solve the system scaled by D^(-1/2), and the log-determinant is that
of scaled eigenvalues. :func:`latent_kronecker_loss` is BoTorch's LatentKroneckerGP with the same
kernels, evaluated as its own fit does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from botorch.models.latent_kronecker_gp import LatentKroneckerGP
from botorch.optim.closures import get_loss_closure_with_grads
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor, nn

from gpytorch_nkn.initialization import initialize_grid_kernels
from gpytorch_nkn.kernels import NeuralKernelNetwork

_EPSILON = 1e-6  # precision of the imaginary observations
# Conjugate gradients, as in the authors' code: their criterion on the squared residual amounts to
# about 1e-4.
_MAX_ITERATIONS, _TOLERANCE = 100, 1e-4

__all__ = ["PaperGrid", "latent_kronecker_loss", "standardized_grid", "start_kernels"]


class PaperGrid(nn.Module):
    """Gaussian process on a complete grid of two dimensions; missing cells are imaginary.

    Args:
        coordinates: Rows ``n_1 x 1`` and columns ``n_2 x 1``.
        targets: Values ``n_1 x n_2``; those of missing cells are not used.
        missing: Booleans ``n_1 x n_2``.
        kernels: A kernel of rows and one of columns; their product is learned.
        noise: Start value of the noise variance.
        warm_start: Start conjugate gradients from the last solution, which the authors do not do.
    """

    def __init__(
        self,
        coordinates: Sequence[Tensor],
        targets: Tensor,
        missing: Tensor,
        kernels: Sequence[Kernel],
        *,
        noise: float = 0.1,
        warm_start: bool = False,
    ):
        super().__init__()
        self.kernels = nn.ModuleList(kernels)
        self.likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6)).to(targets)
        self.likelihood.noise = noise
        self.coordinates = tuple(coordinates)
        self.missing = missing
        self.targets = torch.where(missing, 0.0, targets)
        self.num_observed = int((~missing).sum())
        self.warm_start = warm_start
        self._last: Tensor | None = None

    def forward(self) -> Tensor:
        """Negative log marginal likelihood per observation, differentiable."""
        rows, columns = self._factors()
        noise = self.likelihood.noise
        diagonal = torch.where(self.missing, noise + 1 / _EPSILON, noise)
        with torch.no_grad():
            weights = self._solve(rows, columns, diagonal)
        # value y' A^-1 y and gradient -a' dA a, without the steps of conjugate gradients
        product = rows @ weights @ columns + diagonal * weights
        quadratic = 2 * (self.targets * weights).sum() - (weights * product).sum()
        count = self.num_observed
        spectra = [torch.linalg.eigvalsh(factor).clamp_min(0) for factor in (rows, columns)]
        largest = torch.outer(*spectra).flatten().topk(count, sorted=False).values
        log_det = torch.log(largest * (count / self.targets.numel()) + noise).sum()
        return (quadratic + log_det + count * math.log(2 * math.pi)) / (2 * count)

    def _factors(self) -> list[Tensor]:
        pairs = zip(self.kernels, self.coordinates, strict=True)
        return [kernel(x).to_dense() for kernel, x in pairs]

    def _solve(self, rows: Tensor, columns: Tensor, diagonal: Tensor) -> Tensor:
        """Solve ``(K + D) a = y`` as ``C (K + D) C z = C y`` with ``a = C z``, ``C = D^(-1/2)``."""
        scale = diagonal.rsqrt()
        right_side = scale * self.targets
        largest = _TOLERANCE * right_side.norm()
        if self.warm_start and self._last is not None:
            solution = self._last / scale
            residual = right_side - solution - scale * (rows @ (scale * solution) @ columns)
        else:
            solution = torch.zeros_like(right_side)
            residual = right_side.clone()
        direction, square = residual.clone(), residual.square().sum()
        iterations = 0
        while iterations < _MAX_ITERATIONS and square.sqrt() > largest:
            product = direction + scale * (rows @ (scale * direction) @ columns)
            step = square / (direction * product).sum()
            solution += step * direction
            residual -= step * product
            last, square = square, residual.square().sum()
            direction = residual + square / last * direction
            iterations += 1
        self._last = scale * solution
        return self._last


def latent_kronecker_loss(
    coordinates: Sequence[Tensor],
    targets: Tensor,
    missing: Tensor,
    kernels: Sequence[Kernel],
    *,
    noise: float,
) -> Callable[[], Tensor]:
    """What one evaluation of BoTorch's LatentKroneckerGP in its fit does.

    The function that is returned computes the negative log marginal likelihood per observation and
    writes its gradient to the parameters, under the iterative methods with the model's settings.
    """
    observed = torch.where(missing, torch.nan, targets)
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6))
    model = LatentKroneckerGP(
        *coordinates,
        observed,
        likelihood=likelihood,
        covar_module_X=kernels[0],
        covar_module_T=kernels[1],
        outcome_transform=None,
    )
    likelihood.noise = noise
    mll = ExactMarginalLogLikelihood(likelihood, model).train()
    parameters = {n: p for n, p in mll.named_parameters() if p.requires_grad}
    closure = get_loss_closure_with_grads(mll, parameters)

    def loss() -> Tensor:
        with model.use_iterative_methods():
            return closure()[0]

    return loss


def standardized_grid(
    image: np.ndarray, mask: np.ndarray, *, dtype: torch.dtype = torch.float64
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Coordinates, targets and missing cells of an image.

    Coordinates ``n_p x 1`` and the observed targets have mean 0 and variance 1.
    """
    coordinates = []
    for size in image.shape:
        x = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
        coordinates.append((x / x.std(correction=0)).unsqueeze(-1).to(dtype))
    missing = torch.as_tensor(mask)
    values = torch.as_tensor(image, dtype=torch.float64)
    observed = values[~missing]
    targets = (values - observed.mean()) / observed.std(correction=0)
    return coordinates, targets.to(dtype), missing


def start_kernels(
    coordinates: Sequence[Tensor], targets: Tensor, missing: Tensor
) -> list[NeuralKernelNetwork]:
    """A texture network per dimension, with start values from the data."""
    kernels = [NeuralKernelNetwork.texture(priors=False).to(targets.dtype) for _ in coordinates]
    initialize_grid_kernels(kernels, coordinates, targets, ~missing)
    return kernels
