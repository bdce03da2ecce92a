"""Posterior sample paths of ensembles, sparse GPs and exact GPs in BoTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from botorch.models import ModelList, ModelListGP
from botorch.sampling.pathwise.features import FeatureMap
from botorch.sampling.pathwise.features.maps import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath, PathList, SamplePath
from botorch.sampling.pathwise.posterior_samplers import (
    DrawMatheronPaths,
    MatheronPath,
    draw_matheron_paths,
)
from botorch.sampling.pathwise.prior_samplers import DrawKernelFeaturePaths
from botorch.sampling.pathwise.update_strategies import GaussianUpdate
from botorch.sampling.pathwise.utils import (
    GetTrainInputs,
    get_input_transform,
    get_output_transform,
    get_train_inputs,
)
from botorch.utils.context_managers import delattr_ctx
from botorch.utils.transforms import is_ensemble
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    HadamardGaussianLikelihood,
)
from gpytorch.models import ExactGP
from linear_operator.operators import DiagLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor, nn

from gpytorch_nkn.kernels import NonStationarySpectralKernel, index_kernel_batch, noise_variances
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.models.averaging import StructureEnsembleGP
from gpytorch_nkn.models.base_gp import BaseGP, ExactBaseGP
from gpytorch_nkn.models.nkn_multi_task_gp import NKNMultiTaskGP
from gpytorch_nkn.models.pathwise.spectral_features import spectral_features
from gpytorch_nkn.models.sparse import SparseNKNGP, VariationalNKNGP

__all__ = ["SharedMapPath"]

_MAPS = 16  # feature maps per kernel, which reduce the error of the variance to a quarter
_CHUNK = 1000  # number of points whose features are computed together


class SharedMapPath(SamplePath):
    r"""Functions :math:`\phi_{g(e)}(x)^\top w_e + m_e(x)` with shared feature maps.

    An entry e is one draw of a batch element or ensemble member. Each map is evaluated once for
    all its entries.

    Args:
        maps: Feature maps from inputs ``N x D`` to ``N x F``.
        number: Index of the map of each entry, ``samples x batch``.
        weight: Weights ``samples x batch x F``.
        mean: Mean function with values ``batch x N``, if any.
        input_transform: Transform of the inputs, if any.
        is_ensemble: Whether the last batch dimension is the members, which inputs lack.
    """

    number: Tensor
    weight: Tensor

    def __init__(
        self,
        maps: Sequence[FeatureMap],
        number: Tensor,
        weight: Tensor,
        *,
        mean: nn.Module | None = None,
        input_transform: Any = None,
        is_ensemble: bool = False,
    ):
        super().__init__()
        self.maps = nn.ModuleList(maps)
        self.register_buffer("number", number)
        self.register_buffer("weight", weight)
        self.mean, self.input_transform = mean, input_transform
        self.is_ensemble, self.ensemble_as_batch = is_ensemble, False

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Set whether inputs have a dimension of members, ``... x members x N x D``."""
        self.ensemble_as_batch = ensemble_as_batch

    def __call__(self, values: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Transform inputs of the path's dtype, and evaluate the path."""
        if values.dtype != self.weight.dtype:
            raise TypeError(f"Inputs must have the dtype {self.weight.dtype}, got {values.dtype}.")
        return super().__call__(values, *args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        """Return values ``... x samples x batch x N`` at transformed inputs ``... x N x D``.

        The batch shape of the inputs must broadcast with ``samples x batch``.
        """
        if self.is_ensemble and not self.ensemble_as_batch:
            x = x.unsqueeze(-3)
        shape = self.number.shape
        missing = max(0, len(shape) + 2 - x.dim())
        rows = x.reshape(*(1,) * missing, *x.shape)
        lead, batch = rows.shape[: -len(shape) - 2], rows.shape[-len(shape) - 2 : -2]
        shared = batch.numel() == 1
        full = torch.broadcast_shapes(shape, batch)
        if not shared:
            rows = rows.expand(*lead, *full, *x.shape[-2:])
        rows = rows.reshape(lead.numel(), -1, *x.shape[-2:])  # L x (1 or E) x N x D
        numbers = self.number.expand(full).flatten()
        weights = self.weight.expand(*full, -1).reshape(-1, self.weight.size(-1))
        values, order = [], []
        for number, feature_map in enumerate(self.maps):
            entries = (numbers == number).nonzero()[:, 0]
            if not len(entries):  # a structure without members
                continue
            own_weights = weights[entries]
            if shared:
                chunks = rows.flatten(0, -2).split(_CHUNK)
                sums = torch.cat([_weighted_features(feature_map, p, own_weights) for p in chunks])
                values.append(sums.view(len(rows), -1, len(entries)).mT)
            else:
                points = rows[:, entries]
                features = feature_map(points.flatten(0, -2)).view(*points.shape[:-1], -1)
                values.append((features @ own_weights[..., : features.size(-1), None]).squeeze(-1))
            order.append(entries)
        result = torch.cat(values, 1)[:, torch.cat(order).argsort()]
        result = result.view(*lead, *full, x.size(-2))
        return result if self.mean is None else result + self.mean(x)


class _Values(KernelEvaluationMap):
    """Kernel values at given points, computed by the package's fast evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        return kernel_values(self.kernel, x, self.points)


def _weighted_features(feature_map: nn.Module, x: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums ``N x S`` of features at ``N x D``, for weights ``S x F``."""
    features = feature_map(x)
    return features @ weights[:, : features.size(-1)].mT


def _elements(kernel: Kernel, model: BaseGP) -> tuple[list[Kernel], Tensor]:
    """Return kernels without a batch shape, and the index (on the CPU) of each element's kernel."""
    if isinstance(model, StructureEnsembleGP):
        return list(model.covar_module.kernels), model.covar_module.members.cpu()
    numbers = torch.arange(kernel.batch_shape.numel(), device="cpu").view(kernel.batch_shape)
    indices = (tuple(index) for index in numpy.ndindex(kernel.batch_shape))
    return [index_kernel_batch(kernel, i) if i else kernel for i in indices], numbers


def _prior_kernel(model: Any) -> tuple[Kernel, nn.Module | None]:
    """Return the kernel and the mean of the prior."""
    parts = model.model if isinstance(model, VariationalNKNGP) else model
    kernel = parts.covar_module
    if isinstance(model, NKNMultiTaskGP):  # of a latent function
        return kernel.kernels[0], None
    return (kernel.base_kernel if isinstance(model, SparseNKNGP) else kernel), parts.mean_module


@DrawKernelFeaturePaths.register((ExactBaseGP, VariationalNKNGP))
def _draw_prior(
    model: Any,
    *,
    sample_shape: torch.Size,
    num_features: int = 1024,
    map_generator: Callable[..., FeatureMap] = spectral_features,
) -> SharedMapPath:
    """Draw prior paths by several feature maps for each kernel of a batch or an ensemble."""
    kernel, mean = _prior_kernel(model)
    (x,) = get_train_inputs(model, transformed=True)
    kernels, members = _elements(kernel, model)
    shape = sample_shape + members.shape
    element = members.expand(shape).reshape(sample_shape.numel(), -1)
    draws = torch.arange(len(element), device="cpu").unsqueeze(-1)
    number = torch.empty_like(element)
    maps: list[FeatureMap] = []
    for index in element.unique().tolist():
        inner, _ = unwrap_scales(kernels[index])
        exact = isinstance(inner, NonStationarySpectralKernel)
        count = 1 if exact else min(_MAPS, len(draws))
        number = torch.where(element == index, draws % count + len(maps), number)
        maps += [
            map_generator(kernel=kernels[index], num_inputs=x.size(-1), num_outputs=num_features)
            for _ in range(count)
        ]
    size = max(m.num_outputs for m in maps)
    # BoTorch's Sobol points would bias draws: every second coordinate of a point is one half
    weight = torch.randn(*shape, size, device=x.device, dtype=x.dtype)
    return SharedMapPath(
        maps,
        number.view(shape).to(x.device),
        weight,
        mean=mean,
        input_transform=get_input_transform(model),
        is_ensemble=isinstance(model, StructureEnsembleGP),
    )


@GetTrainInputs.register(StructureEnsembleGP)
def _inputs_of_all_members(
    model: StructureEnsembleGP, transformed: bool = False
) -> tuple[Tensor, ...]:
    """Return training inputs ``N x D``, without a dimension of members."""
    if model.train_inputs[0].dim() != 3:
        raise NotImplementedError(
            "The model must have one data set (no fantasies), got training inputs of shape "
            f"{tuple(model.train_inputs[0].shape)}."
        )
    (x,) = GetTrainInputs.dispatch(ExactBaseGP)(model, transformed=transformed)
    return (x if x.dim() == 2 else x[0],)


@GaussianUpdate.register(StructureEnsembleGP, (GaussianLikelihood, FixedNoiseGaussianLikelihood))
def _update_of_ensemble(
    model: StructureEnsembleGP, likelihood: GaussianLikelihood, **options: Any
) -> SharedMapPath:
    """Return BoTorch's update, evaluating each structure's kernel once for all its members."""
    update = GaussianUpdate.dispatch(ExactGP, GaussianLikelihood)(model, likelihood, **options)
    (points,) = get_train_inputs(model, transformed=True)
    kernels, members = _elements(model.covar_module, model)
    return SharedMapPath(
        [_Values(kernel, points) for kernel in kernels],
        members.to(points.device).expand(update.weight.shape[:-1]),
        update.weight.detach(),
        input_transform=get_input_transform(model),
        is_ensemble=True,
    )


@GaussianUpdate.register(SparseNKNGP, (GaussianLikelihood, FixedNoiseGaussianLikelihood))
def _update_at_inducing_points(
    model: SparseNKNGP, _: GaussianLikelihood, *, sample_values: Tensor
) -> GeneralizedLinearPath:
    """Return the update from prior draws ``samples x batch x m`` to draws of inducing values."""
    posterior, points = model.collapsed().posterior(), model.inducing_points
    white = posterior.mean + (
        posterior.root @ torch.randn_like(sample_values).double().unsqueeze(-1)
    ).squeeze(-1)
    factor = posterior.factor
    change = sample_values - model.mean_module(points)
    change = torch.linalg.solve_triangular(factor, change.double().unsqueeze(-1), upper=False)
    weight = torch.linalg.solve_triangular(factor.mT, white.unsqueeze(-1) - change, upper=True)
    return GeneralizedLinearPath(
        KernelEvaluationMap(model.covar_module.base_kernel, points),
        weight.squeeze(-1).to(sample_values),
        input_transform=get_input_transform(model),
    )


@DrawMatheronPaths.register(SparseNKNGP)
def _draw_of_inducing_values(
    model: SparseNKNGP,
    *,
    sample_shape: torch.Size,
    prior_sampler: Callable[..., SamplePath],
    update_strategy: Callable[..., SamplePath],
) -> MatheronPath:
    """Draw prior paths conditioned on draws of inducing values, which is fast for many rows."""
    with delattr_ctx(model, "outcome_transform"):
        prior = prior_sampler(model=model, sample_shape=sample_shape)
        values = prior.forward(model.inducing_points)
        update = update_strategy(model=model, sample_values=values)
    transform = get_output_transform(model)
    return MatheronPath(prior_paths=prior, update_paths=update, output_transform=transform)


class _TaskPath(SamplePath):
    r"""Functions :math:`f_t(x) = m_t(x) + \sum_j L_{tj} u_j(x)` of the output tasks.

    The task covariance is L L'. Paths of independent functions u are in the last batch dimension.
    """

    def __init__(self, model: NKNMultiTaskGP, latent: SamplePath):
        super().__init__()
        self.model, self.latent = model, latent

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Do nothing, because the model is not an ensemble."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``samples x tasks x N`` values at ``N x d`` or ``... x 1 x N x d`` inputs.

        With one output task there is no dimension of tasks.
        """
        width = self.model.num_non_task_features
        if x.dim() < 2 or x.size(-1) != width:
            raise ValueError(f"X must be ... x q x {width}, got shape {tuple(x.shape)}.")
        one_task = self.model.num_outputs == 1
        rows = self.model._with_tasks(x.unsqueeze(-3) if one_task or x.dim() == 2 else x)
        latent = self.latent(rows[..., :1, :, :])
        inputs = self.model.transform_inputs(rows)
        root = _task_roots(self.model, inputs[..., :1, :]).squeeze(-2)
        values = self.model._prior_mean(inputs) + root @ latent
        transform = getattr(self.model, "outcome_transform", None)
        if transform is not None:
            values = transform.untransform(values.unsqueeze(-1), X=inputs)[0].squeeze(-1)
        return values.squeeze(-2) if one_task else values


def _task_roots(model: NKNMultiTaskGP, inputs: Tensor) -> Tensor:
    """Return for each row ``... x N x (d + 1)`` the row of L of its task, ``... x N x T``."""
    _, index, _ = model._split_inputs(inputs)
    root = psd_safe_cholesky(model.covar_module.kernels[1].covar_matrix.to_dense())
    return root[index.squeeze(-1).long()]


@DrawKernelFeaturePaths.register(NKNMultiTaskGP)
def _draw_prior_of_tasks(
    model: NKNMultiTaskGP, *, sample_shape: torch.Size, **options: Any
) -> _TaskPath:
    """Draw as many latent functions as tasks."""
    shape = torch.Size([*sample_shape, model.num_tasks])
    return _TaskPath(model, _draw_prior(model, sample_shape=shape, **options))


@DrawMatheronPaths.register(NKNMultiTaskGP)
def _draw_of_tasks(
    model: NKNMultiTaskGP,
    *,
    sample_shape: torch.Size,
    prior_sampler: Callable[..., _TaskPath],
    update_strategy: Callable[..., SamplePath],
) -> _TaskPath:
    """Draw latent functions conditioned on the observations of all tasks."""
    prior = prior_sampler(model=model, sample_shape=sample_shape).latent
    (x,) = get_train_inputs(model, transformed=True)
    values = (_task_roots(model, x) * prior.forward(x).mT).sum(-1) + model._prior_mean(x)
    update = update_strategy(model=model, sample_values=values)
    return _TaskPath(model, MatheronPath(prior_paths=prior, update_paths=update))


@GaussianUpdate.register(ExactBaseGP, FixedNoiseGaussianLikelihood)
def _update_with_known_noise(
    model: ExactBaseGP, likelihood: FixedNoiseGaussianLikelihood, **options: Any
) -> SamplePath:
    """Return BoTorch's update, which omits learned noise in addition to the known noise."""
    inputs = [*get_train_inputs(model, transformed=True)]
    noise = noise_variances(likelihood, model.train_targets, inputs)
    options.setdefault("noise_covariance", DiagLinearOperator(noise))
    return GaussianUpdate.dispatch(ExactGP, GaussianLikelihood)(model, likelihood, **options)


@GaussianUpdate.register(
    NKNMultiTaskGP, (GaussianLikelihood, FixedNoiseGaussianLikelihood, HadamardGaussianLikelihood)
)
def _update_of_tasks(
    model: NKNMultiTaskGP, likelihood: Any, *, sample_values: Tensor
) -> SharedMapPath:
    """Return the update of the latent functions by prior draws ``samples x N`` of the tasks."""
    (x,) = get_train_inputs(model, transformed=True)
    before, index, after = model._split_inputs(x)
    targets: Any = model.train_targets
    noise = noise_variances(likelihood, targets, [x])
    update = GaussianUpdate.dispatch(ExactGP, GaussianLikelihood)(
        model,
        likelihood,
        sample_values=sample_values,
        points=torch.cat([before, index, after], -1),
        noise_covariance=DiagLinearOperator(noise),
    )
    weight = (update.weight.unsqueeze(-2) * _task_roots(model, x).mT).detach()
    number = torch.zeros(weight.shape[:-1], dtype=torch.long, device=weight.device)
    return SharedMapPath(
        [_Values(model.covar_module.kernels[0], x)],
        number,
        weight,
        input_transform=get_input_transform(model),
    )


class _OneMember(SamplePath):
    """Path of a single model in a list with ensembles; its draws have a dimension of one member."""

    def __init__(self, path: SamplePath):
        super().__init__()
        self.path, self.ensemble_as_batch = path, False

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Set whether inputs have a dimension of members, ``... x members x N x D``."""
        self.ensemble_as_batch = ensemble_as_batch

    def forward(self, x: Tensor) -> Tensor:
        return self.path(x if self.ensemble_as_batch else x.unsqueeze(-3))


_draw_of_list = DrawMatheronPaths.dispatch(ModelListGP)


@DrawMatheronPaths.register((ModelList, ModelListGP))
def _draw_of_models(model: Any, *, sample_shape: torch.Size, **options: Any) -> SamplePath:
    """Draw as in BoTorch, with a dimension of members for all models if one is an ensemble."""
    if not is_ensemble(model):
        return _draw_of_list(model, sample_shape=sample_shape, **options)
    paths = [
        draw_matheron_paths(submodel, sample_shape, **options)
        if is_ensemble(submodel)
        else _OneMember(draw_matheron_paths(submodel, torch.Size([*sample_shape, 1]), **options))
        for submodel in model.models
    ]
    return PathList(paths, join=_broadcast)


def _broadcast(values: list[Tensor]) -> Any:
    return list(torch.broadcast_tensors(*values))
