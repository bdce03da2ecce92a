"""Posterior of a function's gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from botorch.models.model import ModelList
from botorch.utils.transforms import is_ensemble
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import GridInterpolationKernel, InducingPointKernel, Kernel
from gpytorch.models.exact_prediction_strategies import LinearPredictionStrategy
from linear_operator import to_linear_operator
from torch import Tensor
from torch.autograd import grad

from gpytorch_nkn.fit import evaluating
from gpytorch_nkn.kernels import NeuralKernelNetwork, check_has_derivatives, explained_derivatives
from gpytorch_nkn.linalg import check_finite, check_tensors
from gpytorch_nkn.models.base_gp import ExactBaseGP

__all__ = ["gradient_posterior"]


def gradient_posterior(model: Any, X: Tensor) -> MultitaskMultivariateNormal:
    r"""Return the joint posterior of the partial derivatives of the function at points.

    .. math::
        \operatorname{E}[\partial_a f(x)] = \partial_a m(x), \qquad
        \operatorname{cov}(\partial_a f(x), \partial_b f(x')) =
            \frac{\partial^2 c(x, x')}{\partial x_a\, \partial x'_b}

    with posterior mean m and covariance c, in units of the outcomes per unit of ``X``. For an
    ensemble these are the moments of the mixture. For an ``InducingPointKernel`` they omit
    GPyTorch's correction of the diagonal, which has no derivative.

    Args:
        model: A fitted model with one output, of GPyTorch, BoTorch or this package.
        X: Points ``... x q x d``.

    Returns:
        A normal distribution with mean ``... x q x d`` and covariance ``... x (q d) x (q d)``,
        points first, then columns. If an input transform turns one point into n
        (``InputPerturbation``), q is n times as large, as in ``model.posterior(X)``.

    Raises:
        TypeError: ``X`` is not a floating-point tensor.
        ValueError: ``X`` is not ``... x q x d``, empty or not finite, or the kernel is not twice
            differentiable.
        NotImplementedError: The model has several outputs, or its posterior is not Gaussian.

    Example:
        >>> train_X = torch.rand(12, 2, dtype=torch.float64)
        >>> model = SingleTaskGP(train_X, train_X.sin().sum(-1, keepdim=True))
        >>> gradient_posterior(model, train_X[:3]).mean.shape
        torch.Size([3, 2])
    """
    check_tensors(X=X)
    check_finite(X=X)
    if X.dim() < 2 or not X.numel():
        raise ValueError(f"X must be non-empty points ... x q x d, got shape {tuple(X.shape)}.")
    while isinstance(model, ModelList) and len(model.models) == 1:
        model = model.models[0]
    if getattr(model, "num_outputs", 1) != 1:
        raise NotImplementedError(
            f"The model must have one output, got {model.num_outputs}: use "
            "model.subset_output([0]), one of the models of a list, or output_tasks=[0] of a "
            "multitask model."
        )
    X = X.to(next(model.parameters()).dtype)
    kernel = getattr(model, "covar_module", model)
    with evaluating(model), torch.enable_grad(), _smooth(model, X) as (*shape, count):
        X = X.repeat_interleave(count, -2)  # each of several transformed points has its own copy
        x1, x2 = (X.detach().expand(*shape, *X.shape[-2:]).clone().requires_grad_() for _ in "12")
        normal = _normal(model, torch.cat([x1, x2], -2))
        q = X.size(-2)
        copies = torch.arange(2 * q, device=X.device)
        index = copies * count + copies % count
        zero = 0 * x1.sum() * x2.sum()  # constants have derivative zero
        means = normal.mean[..., index[:q]] + zero
        covariance = normal.lazy_covariance_matrix.to_dense()[..., index[:q], :][..., index[q:]]
        covariance = covariance + zero
        parts = [means]
        if is_ensemble(model):  # ... x members x q
            covariance, parts = covariance.mean(-3), list(means.unbind(-2))
        with explained_derivatives(kernel):
            members = [grad(mean.sum(), x1, retain_graph=True)[0] for mean in parts]
            (slopes,) = grad(covariance.sum(), x1, create_graph=True)
            rows = [
                grad(slope.sum(), x2, retain_graph=True)[0].flatten(-2)
                for slope in slopes.flatten(-2).unbind(-1)
            ]
    gradients = torch.stack(members)
    gradient_covariance = torch.stack(rows, -2)
    check_has_derivatives(gradient_covariance, kernel)
    centred = (gradients - gradients.mean(0)).flatten(-2)
    between = torch.einsum("s...a,s...b->...ab", centred, centred) / len(centred)
    gradient_covariance = (gradient_covariance + gradient_covariance.mT) / 2 + between
    # an operator, because the covariance of repeated points is singular
    return MultitaskMultivariateNormal(gradients.mean(0), to_linear_operator(gradient_covariance))


def _normal(model: Any, X: Tensor) -> MultivariateNormal:
    """Return the posterior ``... x q`` of the function values."""
    if not hasattr(model, "posterior"):
        normal = model(X)
    else:
        normal = getattr(model.posterior(X), "distribution", None)
    if isinstance(normal, MultitaskMultivariateNormal):
        raise NotImplementedError(
            f"The model must have one output, got a distribution of {normal.num_tasks}."
        )
    if not isinstance(normal, MultivariateNormal):
        raise NotImplementedError(
            f"The posterior of {type(model).__name__} must be Gaussian, got a nonlinear outcome "
            "transform: transform the outcomes beforehand."
        )
    return normal


@contextmanager
def _smooth(model: Any, X: Tensor) -> Iterator[torch.Size]:
    """Make a GPyTorch or BoTorch model twice differentiable inside a context.

    Yields the batch shape of the posterior at points ``... x q x d``, without members, and the
    number of points into which the input transform turns each of them.

    The kernel becomes the only primitive of a network, whose distances, unlike GPyTorch's, are
    differentiable at equal inputs. In kernels with structured predictions, only the base kernel is
    replaced, and kernels whose predictions use features remain.
    """
    owner, name = model, "covar_module"
    kernel = getattr(model, name, None)
    with torch.no_grad():  # this also computes the caches, with the original kernel
        shape = _normal(model, X[..., :1, :]).mean.shape
    if is_ensemble(model):
        shape = shape[:-2] + shape[-1:]
    if not isinstance(kernel, Kernel) or isinstance(model, ExactBaseGP):
        yield shape
        return
    for module in kernel.modules():
        if isinstance(module, InducingPointKernel | GridInterpolationKernel):
            owner, name, kernel = module, "base_kernel", module.base_kernel
    if not isinstance(getattr(model, "prediction_strategy", None), LinearPredictionStrategy):
        setattr(owner, name, NeuralKernelNetwork([kernel], []))
    try:
        yield shape
    finally:
        setattr(owner, name, kernel)
