"""Functions from the posterior of a GP whose kernel has finitely many features."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from botorch.models.gpytorch import GPyTorchModel
from botorch.sampling.pathwise.features import FeatureMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.kernels import FeatureKernel, feature_function
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.linalg import low_rank_posterior

__all__ = ["draw_weight_space_paths"]


@torch.no_grad()
def draw_weight_space_paths(
    model: ExactGP, sample_shape: torch.Size, *, seed: int | None = None
) -> GeneralizedLinearPath:
    """Draw functions from the posterior, exactly and in the space of the features.

    A function is a weighted sum of the features of the kernel, whose weights have a Gaussian
    posterior: drawing takes :math:`O(N P^2)` time for ``P`` features, the memory of P x P
    matrices, and no covariance of the data; evaluating takes :math:`O(P)` per input. BoTorch's
    ``draw_matheron_paths`` draws from the same posterior with a factorisation of an N x N matrix.

    Args:
        model: An exact GP of BoTorch whose kernel is a :class:`.NonStationarySpectralKernel`, in
            ScaleKernels or not, or a :class:`SpectralGP` of low rank, of whose RBF kernel the paths
            show what is at its inducing points. Its present parameters are copied.
        sample_shape: Shape ``S`` of the sample.
        seed: Of the draws; ``None`` uses PyTorch's global random state.

    Returns:
        A path, which maps inputs ``... x q x d`` to ``S x ... x q``, of a model of several outputs
        ``S x ... x m x q``, in units of the outcomes (the form of BoTorch's paths).

    Raises:
        TypeError: The model or its kernel is of another kind.
        NotPSDError: The data or the features are not finite.

    Reference: Rasmussen and Williams (2006), section 2.1.
    """
    if not (isinstance(model, ExactGP) and isinstance(model, GPyTorchModel)):
        raise TypeError(f"model must be an exact GP of BoTorch, got {type(model).__name__}.")
    gp: Any = model
    kernel = gp.covar_module
    if not isinstance(unwrap_scales(kernel)[0], FeatureKernel):
        raise TypeError(
            "The kernel must be one of finitely many features, such as a "
            f"NonStationarySpectralKernel, in ScaleKernels or not, got {type(kernel).__name__}."
        )
    was_training = model.training
    model.train()  # raw inputs, which the transforms of a model in training mode take
    try:
        inputs = gp.transform_inputs(gp.train_inputs[0])
        residual = gp.train_targets - gp.mean_module(inputs)
    finally:
        model.train(was_training)
    noise = gp.likelihood.noise.expand(residual.shape)
    features = _KernelFeatures(kernel)
    mean, factor = low_rank_posterior(features, inputs, residual, noise)
    generator = None
    if seed is not None:
        generator = torch.Generator(mean.device).manual_seed(seed)
    draws = torch.randn(
        *sample_shape, *mean.shape, generator=generator, dtype=mean.dtype, device=mean.device
    )
    spread = torch.linalg.solve_triangular(factor.mT, draws.unsqueeze(-1), upper=True).squeeze(-1)
    path = GeneralizedLinearPath(
        feature_map=features,
        weight=(mean + spread).to(residual),
        bias_module=deepcopy(gp.mean_module),
        input_transform=deepcopy(get_input_transform(model)),
        output_transform=deepcopy(get_output_transform(model)),
    )
    return path.eval().requires_grad_(False)  # some transforms learn from what they see in training


class _KernelFeatures(FeatureMap):
    """All features of a copy of a kernel."""

    def __init__(self, kernel: Any):
        super().__init__()
        self.input_transform = self.output_transform = None
        self.kernel = deepcopy(kernel)
        self.num_outputs = unwrap_scales(kernel)[0].feature_dim
        self.batch_shape = kernel.batch_shape

    def forward(self, x: Tensor) -> Tensor:
        """Features ``... x N x P`` of inputs ``... x N x D``."""
        if self.kernel.active_dims is not None:
            x = x.index_select(-1, self.kernel.active_dims)
        features = feature_function(self.kernel)
        assert features is not None
        return features(x)
