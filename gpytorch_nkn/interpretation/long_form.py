"""Conversion of multitask models to models of one output with a task column."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from botorch.models import MultiTaskGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.input import InputTransform
from gpytorch.constraints import Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    AdditiveKernel,
    IndexKernel,
    Kernel,
    LCMKernel,
    MultitaskKernel,
    ProductKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    HadamardGaussianLikelihood,
    Likelihood,
    MultitaskGaussianLikelihood,
)
from gpytorch.means import Mean, MultitaskMean
from gpytorch.models import ExactGP
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.fit import copy_model, flat_targets, noisy_prior
from gpytorch_nkn.interpretation.affine import affine_inputs, affine_outcome
from gpytorch_nkn.interpretation.units import Units

__all__ = ["LongFormGP", "long_form"]


class LongFormGP(GPyTorchModel, ExactGP):
    """Exact GP over inputs ``N x (D + 1)`` with a task column.

    ``units`` has the names of columns and tasks, and one offset and scale for all targets.
    """

    _num_outputs = 1
    input_transform: _TaskInputs

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        kernel: Kernel,
        mean: Mean,
        likelihood: Likelihood,
        transform: _TaskInputs,
        task_column: int,
        units: Units,
    ):
        super().__init__(inputs, targets, likelihood)
        self.covar_module, self.mean_module, self.input_transform = kernel, mean, transform
        self.task_column, self.units = task_column, units

    @property
    def noise(self) -> Tensor:
        """Noise variances ``N`` at the training inputs, in eval mode."""
        noise: Any = self.likelihood.noise
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            return noise
        tasks = self.train_inputs[0][:, self.task_column].long()  # type: ignore[index]
        return noise[self.input_transform.values[tasks]]

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at inputs ``... x N x (D + 1)``."""
        x = self.transform_inputs(x) if self.training else x
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


@torch.no_grad()
def long_form(model: ExactGP) -> ExactGP:
    """Return a multitask model in long form, and other models unchanged.

    The long form has the same posterior; its kernel is a sum of products with GPyTorch's
    IndexKernel. ``model`` may be BoTorch's MultiTaskGP or KroneckerMultiTaskGP, or have a
    MultitaskGaussianLikelihood. The task index may also be the second input of a model whose kernel
    is ``covar_module`` times an IndexKernel.
    """
    assert model.train_inputs is not None
    index = model.train_inputs[1:]
    has_index = len(index) == 1 and not index[0].is_floating_point()
    is_wide = isinstance(model.likelihood, MultitaskGaussianLikelihood)
    if not (has_index or is_wide or isinstance(model, MultiTaskGP)):
        return model
    if model.train_inputs[0].dim() > 2:
        raise NotImplementedError(
            "Expected one data set N x D of correlated tasks, got a batch of shape "
            f"{tuple(model.train_inputs[0].shape)}."
        )
    model = copy_model(model).train()  # BoTorch's models have untransformed inputs in train mode
    assert model.train_inputs is not None
    rows, kernel = model.train_inputs[0], model.covar_module
    column = rows.size(-1)
    if isinstance(model, MultiTaskGP):
        column, values = model._task_feature, sorted(model._expected_task_values)
        tasks = model._map_tasks(rows[:, column]).long()
        inputs, samples = rows, rows[:1].repeat(len(values), 1)
        samples[:, column] = torch.as_tensor(values).to(rows)
    else:
        if is_wide:
            values = list(range(model.likelihood.num_tasks))
            tasks = torch.arange(len(values), device=rows.device).repeat(len(rows))
            rows = rows.repeat_interleave(len(values), 0)
        else:
            task_kernel = _task_kernel(model)
            kernel = ProductKernel(kernel, task_kernel)
            values, tasks = list(range(task_kernel.raw_var.size(-1))), index[0].flatten()
        inputs, samples = torch.cat([rows, tasks.unsqueeze(-1).to(rows)], -1), None
    affine = affine_outcome(model, samples)
    offsets, scales = (torch.as_tensor(v).to(rows).expand(len(values)) for v in affine)
    offset, scale = offsets.mean(), scales.square().mean().sqrt()
    factors, shifts = scales / scale, (offsets - offset) / scale
    codes = torch.tensor(values, device=rows.device)
    noise = _noise(model.likelihood, values)
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        likelihood: Likelihood = FixedNoiseGaussianLikelihood(noise * factors[tasks].square())
    else:  # the index is the task value
        likelihood = HadamardGaussianLikelihood(
            values[-1] + 1, noise_constraint=Positive(), task_feature_index=column
        ).to(rows)
        noises = torch.ones_like(likelihood.noise)
        likelihood.noise = noises.index_copy(0, codes, noise * factors.square())
    other_columns = [other for other in range(inputs.size(-1)) if other != column]
    with_task = isinstance(model, MultiTaskGP)
    long = LongFormGP(
        inputs,
        factors[tasks] * flat_targets(model) + shifts[tasks],
        _convert(kernel, torch.tensor(other_columns, device=rows.device), column, factors),
        _TaskMean(model.mean_module, column, with_task, factors, shifts),
        likelihood,
        _TaskInputs(getattr(model, "input_transform", None), column, with_task, codes),
        column,
        _units(model, column, values, float(offset), float(scale)),
    )
    _check_same_prior(model, long, factors[tasks])
    return long.eval()


def _task_kernel(model: ExactGP) -> IndexKernel:
    kernels = [child for child in model.children() if isinstance(child, IndexKernel)]
    if len(kernels) != 1:
        raise NotImplementedError(
            "A model with a task index needs one IndexKernel in addition to its covar_module, got "
            f"{len(kernels)}."
        )
    return kernels[0]


def _noise(likelihood: Likelihood, values: list[int]) -> Tensor:
    """Return noise variances ``T`` of the tasks, or ``N`` of the rows if they are fixed."""
    if isinstance(likelihood, HadamardGaussianLikelihood):
        if not 0 <= values[0] <= values[-1] < likelihood.num_tasks:
            raise NotImplementedError(
                "BoTorch's MultiTaskGP has noise only for tasks 0, 1, ..., got "
                f"{values}: number the tasks from 0, or use NKNMultiTaskGP."
            )
        return likelihood.noise[values]
    if not isinstance(likelihood, MultitaskGaussianLikelihood):
        noise = likelihood.noise
        return noise.expand(len(values)) if noise.numel() == 1 else noise
    if likelihood.has_task_noise and likelihood.rank:
        raise NotImplementedError(
            "The noise of tasks must be independent, got a MultitaskGaussianLikelihood of rank "
            f"{likelihood.rank}: use rank 0."
        )
    parts = [likelihood.noise] if likelihood.has_global_noise else []
    parts += [likelihood.task_noises] if likelihood.has_task_noise else []
    return torch.stack([part.expand(len(values)) for part in parts]).sum(0)


def _units(model: ExactGP, column: int, values: list[int], offset: float, scale: float) -> Units:
    width = model.train_inputs[0].size(-1)
    x_offset, x_scale, affine = affine_inputs(model.train(), width)
    size = max(width, column + 1)
    names = [*Units.plain(width).names, "task"][:size]
    x_offset, x_scale = np.append(x_offset, 0.0)[:size], np.append(x_scale, 1.0)[:size]
    names[column], x_offset[column], x_scale[column] = "task", 0.0, 1.0
    codes = {column: {float(value): f"{value}" for value in values}}
    return Units(x_offset, x_scale, offset, scale, tuple(names), affine=affine, categories=codes)


def _convert(kernel: Kernel, other_columns: Tensor, column: int, factors: Tensor) -> Kernel:
    """Return the kernel over inputs with a task column; tasks are scaled by factors ``T``."""
    if isinstance(kernel, LCMKernel):
        kernel = AdditiveKernel(*kernel.covar_module_list)
    if isinstance(kernel, MultitaskKernel):
        kernel = ProductKernel(kernel.data_covar_module, kernel.task_covar_module)
    if isinstance(kernel, IndexKernel):
        return _index_kernel(kernel, column, factors)
    if not _has_tasks(kernel):
        copied = deepcopy(kernel)
        copied.active_dims = other_columns if copied.active_dims is None else copied.active_dims
        return copied
    if isinstance(kernel, ScaleKernel):
        scaled = deepcopy(kernel)
        scaled.base_kernel = _convert(kernel.base_kernel, other_columns, column, factors)
        scaled.active_dims = None
        return scaled
    is_sum = isinstance(kernel, AdditiveKernel)
    if is_sum or (isinstance(kernel, ProductKernel) and sum(map(_has_tasks, kernel.kernels)) == 1):
        parts = [_convert(part, other_columns, column, factors) for part in kernel.kernels]
        return AdditiveKernel(*parts) if is_sum else ProductKernel(*parts)
    raise NotImplementedError(
        "Expected sums of products of a kernel of the inputs and one of the tasks (IndexKernel, "
        f"MultitaskKernel, LCMKernel), got {type(kernel).__name__}."
    )


def _has_tasks(kernel: Kernel) -> bool:
    return any(isinstance(module, IndexKernel | MultitaskKernel) for module in kernel.modules())


def _index_kernel(kernel: IndexKernel, column: int, factors: Tensor) -> IndexKernel:
    """Return GPyTorch's IndexKernel (BoTorch normalises its own), scaled by factors ``T``."""
    factor, extra = kernel.covar_factor.detach(), kernel.var.detach()
    plain = factor[..., 0, :].square().sum(-1) + extra[..., 0]
    norm = (plain / to_dense(kernel.covar_matrix)[..., 0, 0]).unsqueeze(-1)
    made = IndexKernel(*factor.shape[-2:], active_dims=[column]).to(factor)
    made.covar_factor.data = factors.unsqueeze(-1) * factor / norm.sqrt().unsqueeze(-1)
    made.var = factors.square() * extra / norm
    return made


def _check_same_prior(model: ExactGP, long: LongFormGP, factors: Tensor) -> None:
    (mean, covariance), (long_mean, long_covariance) = noisy_prior(model), noisy_prior(long.train())
    expected = factors.unsqueeze(-1) * covariance * factors
    targets: Any = long.train_targets
    shifted = targets - long_mean - factors * (flat_targets(model) - mean)
    size = expected.diagonal().mean()
    same = torch.allclose(long_covariance, expected, rtol=1e-4, atol=1e-5 * float(size))
    if not same or float(shifted.abs().max()) > 1e-4 * float(size) ** 0.5:
        raise NotImplementedError(
            "The model's forward must return its mean_module and the product of its input and task "
            "kernels, got another prior. For independent outputs use one model each."
        )


class _TaskInputs(InputTransform):
    """Input transform of a model that also replaces task values by their indices."""

    transform_on_train = transform_on_eval = transform_on_fantasize = True
    values: Tensor

    def __init__(
        self, base: InputTransform | None, column: int, with_task: bool, values: Tensor
    ) -> None:
        super().__init__()
        self.base, self.column, self.with_task = base, column, with_task
        self.register_buffer("values", values)

    def transform(self, X: Tensor) -> Tensor:
        """Return inputs ``... x N x (D + 1)`` of the kernel."""
        matches = X[..., self.column].unsqueeze(-1) == self.values
        if not bool(matches.any(-1).all()):
            raise ValueError(
                f"Tasks must be among {self.values.tolist()}, got "
                f"{X[..., self.column].unique().tolist()}."
            )
        tasks = matches.to(X).argmax(-1, keepdim=True).to(X)
        others = X if self.with_task else _without(X, self.column)
        if self.base is not None:
            others = self.base.preprocess_transform(others)
        others = _without(others, self.column) if self.with_task else others
        return torch.cat([others[..., : self.column], tasks, others[..., self.column :]], -1)


class _TaskMean(Mean):
    """Mean function of a multitask model, at inputs with a task column."""

    factors: Tensor
    shifts: Tensor

    def __init__(self, base: Mean, column: int, with_task: bool, factors: Tensor, shifts: Tensor):
        super().__init__()
        self.base, self.column, self.with_task = base, column, with_task
        self.register_buffer("factors", factors)
        self.register_buffer("shifts", shifts)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean ``... x N`` at inputs ``... x N x (D + 1)``."""
        tasks = x[..., self.column].long()
        if isinstance(self.base, MultitaskMean):
            values = self.base(_without(x, self.column))
            values = values.gather(-1, tasks.unsqueeze(-1)).squeeze(-1)
        else:
            values = self.base(x if self.with_task else _without(x, self.column))
        return self.factors[tasks] * values + self.shifts[tasks]


def _without(x: Tensor, column: int) -> Tensor:
    return torch.cat([x[..., :column], x[..., column + 1 :]], -1)
