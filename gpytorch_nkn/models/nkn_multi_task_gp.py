"""BoTorch's MultiTaskGP with a network as the kernel of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models import MultiTaskGP
from botorch.models.kernels.positive_index import PositiveIndexKernel
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, StratifiedStandardize
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import Kernel, ProductKernel
from gpytorch.likelihoods import HadamardGaussianLikelihood, Likelihood
from gpytorch.means import Mean
from gpytorch.priors import LogNormalPrior, Prior
from torch import Tensor

from gpytorch_nkn._devices import normal, on_cpu, uniform
from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.fit import check_dense
from gpytorch_nkn.kernels import BatchKernel
from gpytorch_nkn.linalg import DelayedMatrix, check_counts
from gpytorch_nkn.models.base_gp import FEW_POINTS, TRAINERS, ExactModel, transform_inputs_again
from gpytorch_nkn.models.common import check_parts, check_training_data
from gpytorch_nkn.models.structure import check_columns, check_scale, make_kernel

__all__ = ["NKNMultiTaskGP"]

_ROUNDING = 10.0  # largest rounding error of constant outcomes, in machine epsilons
_MAX_TASK = 99_999  # largest task; noise variances and indices are stored for all smaller numbers


class TaskStandardize(StratifiedStandardize):
    """BoTorch's standardisation by task, with lazy covariances between many points.

    A task without two different outcomes has the scale of the other tasks, and a task without
    outcomes the mean and scale of all outcomes.
    """

    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Standardise outcomes ``n x 1`` and variances; in training mode, learn from them."""
        transformed = super().forward(Y, Yvar=Yvar, X=X)
        if not self.training or X is None:
            return transformed
        assert self.strata_mapping is not None
        strata = self.strata_mapping[X[:, self._stratification_idx].long()]
        groups = [Y[strata == number] for number in range(len(self.means))]

        rounding = _ROUNDING * torch.finfo(Y.dtype).eps * Y.abs().max()

        def scale_of(values: Tensor) -> Tensor:
            std = values.std() if len(values) > 1 else Y.new_zeros(())
            return torch.where(std > rounding, std, 0.0)

        scales, overall = torch.stack([scale_of(group) for group in groups]), scale_of(Y)
        typical = scales[scales > 0].square().mean().sqrt() if scales.any() else overall
        for number, group in enumerate(groups):
            if len(group) == 0:
                self.means[number], scales[number] = Y.mean(), overall
        scales = torch.where(scales > 0, scales, typical)
        self.stdvs = torch.where(scales > 0, scales, 1.0).unsqueeze(-1)
        self._stdvs_sq = self.stdvs.square()
        self.training = False
        transformed = super().forward(Y, Yvar=Yvar, X=X)
        self.training = True
        return transformed

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
        assert self.strata_mapping is not None
        self.strata_mapping = fn(self.strata_mapping)  # BoTorch leaves it on its device
        return super()._apply(fn, *args, **kwargs)

    def untransform_posterior(self, posterior: Any, X: Tensor | None = None) -> Any:
        """Return the posterior ``... x q x 1`` at ``... x q x (d + 1)``, in units of the data."""
        normal: Any = getattr(posterior, "distribution", None)
        if type(normal) is not MultivariateNormal or X is None or X.size(-2) <= FEW_POINTS:
            return super().untransform_posterior(posterior, X)
        means, scales, _ = self._get_per_input_means_stdvs(X, include_stdvs_sq=False)
        mean, scale = means.squeeze(-1), scales.squeeze(-1)
        covariance = DelayedMatrix(
            scale.square() * normal.variance,
            lambda: scale.unsqueeze(-1) * normal.covariance_matrix * scale.unsqueeze(-2),
        )
        return GPyTorchPosterior(MultivariateNormal(mean + scale * normal.mean, covariance))


class _TaskProduct(ProductKernel):
    """Product of an input kernel and a task kernel, with the package's prediction strategy."""

    prediction_strategy: Any = BatchKernel.prediction_strategy


class NKNMultiTaskGP(ExactModel, MultiTaskGP):
    r"""Exact GP of correlated tasks with a network as the kernel of the inputs.

    .. math::
        \operatorname{cov}(f_s(x), f_t(x')) = B_{st}\, k(x, x')

    with a network :math:`k` and BoTorch's task covariance :math:`B`, whose entries are positive.
    Each row is one observation of one task. Use it in place of
    :class:`botorch.models.MultiTaskGP` for several outcomes, outcomes with missing values, and
    transfer from earlier experiments.

    Unlike MultiTaskGP, it standardises the outcomes of each task separately; tasks with one outcome
    or none have the scale of the other tasks. Tasks with their own noise variance may be any
    integers from 0 to 99,999 (MultiTaskGP needs tasks 0, 1, ...).

    Args:
        train_X: Inputs ``n x (d + 1)``; one column is the task, a non-negative integer.
        train_Y: Outcomes ``n x 1``.
        task_feature: Index of the task column.
        train_Yvar: Known noise variances ``n x 1``; ``None`` infers one variance per task.
        structure: Kernel of the inputs, as in :class:`.NKNSingleTaskGP`.
        rank: Rank of the task covariance; ``None`` for full rank.
        output_tasks: Tasks that posteriors predict; ``None`` for all.
        all_tasks: All tasks, if some have no observations.
        task_covar_prior, likelihood, mean_module: As in BoTorch; a mean other than its
            ``MultitaskMean`` receives all ``d + 1`` columns.
        outcome_transform: By default, standardise each task; ``None`` for no transform.
        input_transform: Applied to all ``d + 1`` columns; exclude the task
            (``Normalize(d + 1, indices=...)``).

    ``fit_gpytorch_mll`` trains it by :func:`gpytorch_nkn.bo.fit_bo_model`.

    Raises:
        MemoryError: The covariance matrices do not fit into free memory.
        TypeError: The data are not floating-point tensors, or ``structure`` is neither a name nor a
            kernel.
        ValueError: Tasks are not integers from 0 to 99,999, shapes of the data do not match, or
            ``structure`` does not fit the input columns.

    Reference: Bonilla, Chai and Williams (2007), Multi-task Gaussian Process Prediction, equation
    2, with the network of Sun et al. (2018).

    Example:
        >>> from botorch.fit import fit_gpytorch_mll
        >>> x = torch.rand(16, 2, dtype=torch.float64)
        >>> x[:, 1] = torch.arange(16) % 2  # the task
        >>> y = (1 + x[:, 1:]) * (6 * x[:, :1]).sin()
        >>> model = NKNMultiTaskGP(x, y, task_feature=-1)
        >>> mll = fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> model.posterior(x[:3, :1]).mean.shape
        torch.Size([3, 2])
    """

    construct_inputs = MultiTaskGP.construct_inputs  # type: ignore[assignment] # has tasks

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        task_feature: int,
        train_Yvar: Tensor | None = None,
        *,
        structure: str | Kernel = "optimization",
        rank: int | None = None,
        task_covar_prior: Prior | _DefaultType | None = DEFAULT,
        output_tasks: list[int] | None = None,
        all_tasks: list[int] | None = None,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        check_training_data(train_X, train_Y, train_Yvar)
        if train_X.dim() != 2 or train_Y.shape != (len(train_X), 1) or not len(train_X):
            raise ValueError(
                "train_X must be n x (d + 1) and train_Y n x 1 with n > 0, got shapes "
                f"{tuple(train_X.shape)} and {tuple(train_Y.shape)}."
            )
        check_dense("NKNMultiTaskGP", train_X.size(-2), train_X)
        output_tasks = _listed("output_tasks", output_tasks)
        tasks = _tasks(train_X, task_feature, _listed("all_tasks", all_tasks))
        if not set(output_tasks or tasks) <= set(tasks):
            raise ValueError(
                f"output_tasks must be observed or in all_tasks, {tasks}, got {output_tasks}."
            )
        if rank is not None:
            check_counts(1, rank=rank)
            if rank > len(tasks):
                raise ValueError(f"rank must be at most {len(tasks)}, the tasks, got {rank}.")
        num_columns = train_X.size(-1) - 1
        task_feature %= num_columns + 1
        if isinstance(outcome_transform, _DefaultType):
            values = torch.tensor(tasks, device=train_X.device)
            outcome_transform = TaskStandardize(task_feature, values, dtype=train_X.dtype)
        if likelihood is None and train_Yvar is None:
            prior = LogNormalPrior(-4.0, 1.0)
            floor = GreaterThan(MIN_INFERRED_NOISE_LEVEL, None, initial_value=prior.mode)
            # the likelihood indexes its noise by task
            likelihood = HadamardGaussianLikelihood(
                tasks[-1] + 1, prior, floor, task_feature_index=task_feature
            )
        kernel = make_kernel(structure, num_columns, torch.Size([])).to(train_X)
        check_columns(kernel, num_columns, train_X)
        with torch.random.fork_rng():  # BoTorch draws the task covariance, replaced below
            super().__init__(
                train_X,
                train_Y,
                task_feature,
                train_Yvar,
                mean_module=mean_module,
                covar_module=kernel,
                likelihood=likelihood,
                task_covar_prior=task_covar_prior,
                output_tasks=output_tasks,
                rank=rank,
                all_tasks=tasks,
                outcome_transform=outcome_transform,
                input_transform=input_transform,
            )
        with torch.no_grad():
            inputs = self.transform_inputs(train_X).clone()
        check_parts(torch.Size(), inputs, mean_module, likelihood)
        inputs[..., task_feature] = 0.0
        check_scale(kernel, inputs)
        self.covar_module = _TaskProduct(*self.covar_module.kernels)
        self.register_load_state_dict_post_hook(transform_inputs_again)
        task_kernel, generator = self.covar_module.kernels[-1], torch.Generator().manual_seed(0)
        # independent of the default dtype and device
        task_kernel.raw_var.data.copy_(normal(task_kernel.raw_var.shape, generator))
        factor = task_kernel.raw_covar_factor.data
        factor.copy_(uniform(factor.shape, generator))
        if "IndexKernelPrior" in task_kernel._priors:  # BoTorch's lambdas cannot be pickled
            prior = task_kernel._priors["IndexKernelPrior"][0]
            task_kernel.register_prior("IndexKernelPrior", prior, _correlations, _set_correlations)

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """Return the posterior at ``... x q x (d + 1)``, or of all tasks at ``... x q x d``."""
        X = self._check_points(X)
        if X.size(-1) == self.num_non_task_features + 1:
            return super().posterior(X, output_indices, observation_noise, posterior_transform)
        tasks = _listed("output_indices", output_indices) or self._output_tasks
        # long form, because the outcome transform needs the task of every row
        rows = self._with_tasks(X.unsqueeze(-3), tasks).flatten(-3, -2)
        posterior = super().posterior(rows, None, observation_noise)
        if len(tasks) > 1:
            if not hasattr(posterior, "distribution"):  # not a Gaussian, transformed without tasks
                return super().posterior(X, tasks, observation_noise, posterior_transform)
            normal = posterior.distribution
            mean = normal.mean.unflatten(-1, (len(tasks), -1)).mT
            covariance = normal.lazy_covariance_matrix
            posterior = GPyTorchPosterior(
                MultitaskMultivariateNormal(mean, covariance, interleaved=False)
            )
        return posterior if posterior_transform is None else posterior_transform(posterior, X=X)

    def _with_tasks(self, X: Tensor, tasks: list[int] | None = None) -> Tensor:
        """Return rows ``... x t x q x (d + 1)`` of each task at points ``... x 1 x q x d``."""
        codes = X.new_tensor(tasks or self._output_tasks).view(-1, 1, 1)
        X = X.expand(*X.shape[:-3], len(codes), *X.shape[-2:])
        column = self._task_feature
        rows = [X[..., :column], codes.expand(*X.shape[:-1], 1), X[..., column:]]
        return torch.cat(rows, -1)

    def _values(self, x1: Tensor, x2: Tensor) -> Tensor:
        x1, x2 = (torch.cat(self._split_inputs(x), -1) for x in (x1, x2))
        return super()._values(x1, x2)

    def _prior_variances(self, x: Tensor) -> Tensor:
        return super()._prior_variances(torch.cat(self._split_inputs(x), -1))

    def _prior_mean(self, x: Tensor) -> Tensor:
        return self.forward(x).mean

    def _check_points(self, X: Tensor, added: bool = False, width: int | None = None) -> Tensor:
        width = self.num_non_task_features + 1
        has_task = added or (isinstance(X, Tensor) and X.shape[-1:] == (width,))
        X = super()._check_points(X, added, width if has_task else width - 1)
        if not X.numel():
            raise ValueError(f"X must have at least one point, got shape {tuple(X.shape)}.")
        tasks = self._expected_task_values
        if has_task and (unknown := set(X[..., self._task_feature].unique().tolist()) - tasks):
            raise ValueError(f"Tasks must be among {sorted(tasks)}, got {sorted(unknown)[:5]}.")
        return X


@on_cpu()  # BoTorch makes indices on the default device
def _correlations(kernel: PositiveIndexKernel) -> Tensor:
    return kernel._lower_triangle_corr


@on_cpu()
def _set_correlations(kernel: PositiveIndexKernel, value: Tensor) -> None:
    kernel._set_lower_triangle_corr(value)


def _tasks(train_X: Tensor, task_feature: int, all_tasks: list[int] | None) -> list[int]:
    """Return the sorted tasks."""
    check_counts(None, task_feature=task_feature)
    width = train_X.size(-1)
    if width < 2 or not -width <= task_feature < width:
        raise ValueError(
            "task_feature must be the index of one of at least two columns, got "
            f"{task_feature} for {width}."
        )
    values = train_X[..., task_feature].unique().tolist()
    given = [*values, *(all_tasks or [])]
    wrong = [task for task in given if not 0 <= task <= _MAX_TASK or task != int(task)]
    if wrong:
        raise ValueError(f"Tasks must be integers from 0 to {_MAX_TASK}, got {wrong[:5]}.")
    observed = [int(task) for task in values]
    if all_tasks is None:
        return observed
    if not set(observed) <= set(all_tasks):
        raise ValueError(f"all_tasks must contain all observed tasks {observed}, got {all_tasks}.")
    return sorted(set(all_tasks))


def _listed(name: str, tasks: Any) -> list[int] | None:
    """Return an option as a list of at least one task, or ``None``."""
    if tasks is None:
        return None
    values = list(tasks) if isinstance(tasks, Iterable) else []
    if not values:
        raise ValueError(f"{name} must be a list of at least one task, got {tasks!r}.")
    check_counts(0, **{f"{name}[{number}]": task for number, task in enumerate(values)})
    return [int(task) for task in values]


TRAINERS[NKNMultiTaskGP] = fit_bo_model
