"""GPyTorch's kernel of a sparse GP, without what it keeps and shares by mistake."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel, Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn

from gpytorch_nkn.linalg import factorize_inducing

__all__ = ["LowRankNormal", "NystromKernel"]


class LowRankNormal(MultivariateNormal):
    """Normal distribution whose density uses the structure of its covariance.

    BoTorch turns GPyTorch's structured densities off for the whole process, upon which the density
    under a :class:`NystromKernel` would factorise a dense n x n matrix.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density ``...`` at a value ``... x n``, by Woodbury's identity where it applies."""
        covariance = self.lazy_covariance_matrix.evaluate_kernel()
        error = value - self.loc
        batch_shape = torch.broadcast_shapes(error.shape[:-1], covariance.batch_shape)
        if covariance.batch_shape != batch_shape:
            covariance = covariance.expand(*batch_shape, *covariance.matrix_shape)
        error = error.expand(*batch_shape, -1).unsqueeze(-1)
        quadratic, log_det = covariance.inv_quad_logdet(error, logdet=True)
        return -0.5 * (quadratic + log_det + value.size(-1) * math.log(2 * math.pi))


class NystromKernel(InducingPointKernel):
    r"""Low-rank kernel :math:`k(x, Z) k(Z, Z)^{-1} k(Z, x')` of a base kernel.

    In training it adds the trace term of Titsias' bound to the loss, as
    :class:`gpytorch.kernels.InducingPointKernel` does. That one keeps factorisations of old
    parameters, which also break copies; a deep copy of it learns with the noise of the original;
    and the likelihood is one of its modules, by which the prior on the noise counts once more.
    Here nothing is kept, copies are whole, and the likelihood belongs to the model alone.

    Args:
        base_kernel: The kernel to approximate.
        inducing_points: Z ``... x m x d``.
        likelihood: Likelihood of the model, whose noise the trace term is divided by.

    Reference: Titsias (2009), Variational Learning of Inducing Variables in Sparse Gaussian
    Processes.
    """

    def __init__(
        self, base_kernel: Kernel, inducing_points: Tensor, likelihood: GaussianLikelihood
    ):
        super().__init__(base_kernel, inducing_points, likelihood)
        del self._modules["likelihood"]
        self._held = (likelihood,)  # a tuple hides it from the list of modules

    @property
    def likelihood(self) -> GaussianLikelihood:
        """Likelihood of the model."""
        return self._held[0]

    @property
    def _inducing_mat(self) -> Tensor:
        return self.base_kernel(self.inducing_points).to_dense()

    @property
    def _inducing_inv_root(self) -> Tensor:
        covariance = self._inducing_mat
        factor, _ = factorize_inducing(covariance)
        eye = torch.eye(factor.size(-1), dtype=factor.dtype, device=factor.device)
        inverse = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
        return inverse.mT.to(covariance)

    def __deepcopy__(self, memo: dict[int, Any]) -> NystromKernel:
        copy = self.__class__.__new__(self.__class__)
        nn.Module.__init__(copy)
        memo[id(self)] = copy
        copy.__dict__.update(deepcopy(self.__getstate__(), memo))
        return copy

    def __getstate__(self) -> dict[str, Any]:
        # the term of the last loss holds its graph
        return {**self.__dict__, "_added_loss_terms": dict.fromkeys(self._added_loss_terms)}
