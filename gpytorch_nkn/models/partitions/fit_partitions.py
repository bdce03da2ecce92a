"""Metropolis sampling of the partitions of an additive GP."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any

import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean, Mean
from gpytorch.priors import Prior
from torch import Tensor

from gpytorch_nkn._devices import on_cpu
from gpytorch_nkn.fit import Session, check_counts
from gpytorch_nkn.layers import apply_to_base
from gpytorch_nkn.models.common import trains
from gpytorch_nkn.models.partitions.additive_partition_gp import AdditivePartitionGP
from gpytorch_nkn.models.partitions.partition_evidence import (
    USUAL_BOUNDS,
    Hyperparameters,
    PartitionEvidence,
)
from gpytorch_nkn.models.partitions.partitions import (
    Partition,
    canonical_partition,
    labels_of,
    metropolis,
)

__all__ = ["fit_additive_partition_gp"]

# On functions of six columns in three groups nine of ten chains had found the groups by then.
_WARMUP = 100


@trains(AdditivePartitionGP)
@on_cpu()
def fit_additive_partition_gp(
    model: AdditivePartitionGP,
    *,
    num_steps: int = 30,
    warmup: int | None = None,
    previous: AdditivePartitionGP | None = None,
    start: Iterable[Iterable[int]] | None = None,
    log_prior: Callable[[Partition], float] | None = None,
    max_iter: int = 25,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> AdditivePartitionGP:
    """Sample partitions of the columns by Metropolis-Hastings and make them the ensemble.

    Each step proposes to split a group, to merge two, or to move a column from one to another
    (``gpytorch_nkn.models.partitions.partitions.propose``), and accepts by the ratio of
    evidence times prior, with the Hastings correction. The evidence of a partition is that of its
    best hyperparameters, a maximum a posteriori found by L-BFGS from those of the partition it was
    proposed from (:class:`gpytorch_nkn.models.partitions.partition_evidence.PartitionEvidence`).

    In Bayesian optimisation each iteration makes a new model and continues the chain of the last
    one through ``previous``. The paper takes 30 steps in each of the first 30 iterations and 10
    later. The members of the ensemble are ``num_samples`` states at equal distances, the last
    one included; ``model.partitions`` counts all.

    Ctrl-C (with a warning) and the budget end the sampling; what was sampled by then counts.

    Args:
        model: Model to fit in place.
        num_steps: Steps whose states are kept.
        warmup: Steps before them; ``None`` takes 100 for a new chain and none for one that
            continues. Proposals that come again cost nothing.
        previous: Fitted model on fewer or other data, with as many columns and the same kernel,
            whose chain goes on; ``model`` itself is allowed. Its hyperparameters are start values.
        start: Groups of columns to start from; ``None`` is the last state of ``previous``, or
            every column on its own.
        log_prior: Log prior of a partition, up to a constant; ``None`` is uniform over partitions.
        max_iter: L-BFGS iterations per partition.
        budget: Wall time in seconds; the first partition has one evaluation in any case.
        seed: Determines all draws, together with the steps that ``previous`` has taken. The
            global random state is neither read nor changed.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        ``model``, in eval mode.

    Raises:
        TypeError: ``model`` or ``previous`` is not an AdditivePartitionGP.
        ValueError: A number of steps is negative or zero, ``start`` is not a partition of the
            columns, ``previous`` is of other columns or another kernel, or ``model`` is a fantasy.
        RuntimeError: The covariance of the first partition is not positive definite.
        KeyboardInterrupt: Ctrl-C came before the first partition was done.

    Reference: Gardner et al. (2017), Discovering and Exploiting Additive Structure for Bayesian
    Optimization; Sun et al. (2018), appendix J.3.
    """
    warmup, first = _check_options(model, num_steps, warmup, previous, start, max_iter)
    session = Session(budget=budget, seed=seed, progress=progress)
    model.eval()  # makes the transformed inputs the training inputs
    fixed = isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
    x, y, mean = model.train_inputs[0][0], model.train_targets[0], model.mean_module
    learn_mean = any(parameter.requires_grad for parameter in mean.parameters())
    if not learn_mean:
        with torch.no_grad():
            y = y - model.member_parts(model.member_values()[0])[0](x)
    elif not _is_free_constant(mean):
        raise TypeError(
            "mean_module must be a ConstantMean without prior and constraint, whose optimum is in "
            f"closed form, or have no trained parameters, got {type(mean).__name__}: freeze its "
            "parameters by requires_grad_(False)."
        )
    model.part_members()
    evidence = PartitionEvidence(
        x,
        y,
        model.likelihood.noise[0] if fixed else None,
        kernel=model.covar_module.kernel,
        max_iter=max_iter,
        end=session.end,
        learn_mean=learn_mean,
        limits=_limits(model),
        priors=_priors(model),
    )
    steps_before = 0
    if previous is not None:
        steps_before = int(previous.sample.num_steps)
        for partition, hyperparameters in _members(previous).items():
            evidence.add_start(partition, hyperparameters)

    def log_target(partition: Partition, origin: Partition) -> float:
        value = evidence.log_evidence(partition, None if partition == origin else origin)
        return value if log_prior is None else value + log_prior(partition)

    if not math.isfinite(log_target(first, first)):
        raise RuntimeError(
            f"The partition {first} to start from has no finite log probability, got "
            f"{log_target(first, first)}: its covariance is not positive definite, or log_prior "
            "excludes it."
        )
    states = [first]
    rng = random.Random(f"{seed}, {steps_before}")
    chain = islice(metropolis(first, log_target, rng), warmup + num_steps)
    total = warmup + num_steps

    def message() -> str:
        return (
            f"Interrupted after {len(states) - 1} of {total} steps; the ensemble is of the "
            "partitions sampled so far."
        )

    with session.bar(total, "partitions") as bar, session.interruptible(message=message):
        for state in chain:
            states.append(state)
            bar.update()
            if session.is_over:
                break
    kept = states[warmup + 1 :] or states[-1:]
    _set_ensemble(model, kept, evidence)
    # a new tensor: the old one may be that of a state_dict loaded with assign=True
    model.sample.num_steps = torch.full_like(model.sample.num_steps, steps_before + len(states) - 1)
    return model


def _check_options(
    model: AdditivePartitionGP,
    num_steps: int,
    warmup: int | None,
    previous: AdditivePartitionGP | None,
    start: Iterable[Iterable[int]] | None,
    max_iter: int,
) -> tuple[int, Partition]:
    """Number of warm-up steps and first partition."""
    if model.train_targets.dim() != 2:
        raise ValueError(
            "model must hold one data set, got targets of shape "
            f"{tuple(model.train_targets.shape)}: fantasies keep the partitions of their model."
        )
    if warmup is None:
        warmup = _WARMUP if previous is None else 0
    check_counts(0, warmup=warmup)
    check_counts(1, num_steps=num_steps, max_iter=max_iter)
    num_columns = model.covar_module.ard_num_dims
    first: Partition = tuple((column,) for column in range(num_columns))
    if previous is not None:
        if not isinstance(previous, AdditivePartitionGP):
            raise TypeError(
                f"previous must be an AdditivePartitionGP, got {type(previous).__name__}."
            )
        old, new = previous.covar_module, model.covar_module
        if (old.ard_num_dims, old.kernel) != (num_columns, new.kernel):
            raise ValueError(
                f"previous must have {num_columns} columns and the kernel {new.kernel!r}, got "
                f"{old.ard_num_dims} and {old.kernel!r}."
            )
        first = (previous.sample.states() or [first])[-1]
    return warmup, first if start is None else canonical_partition(start, num_columns)


def _is_free_constant(mean: Mean) -> bool:
    constrained = hasattr(mean, "raw_constant_constraint")
    return type(mean) is ConstantMean and not constrained and not [*mean.named_priors()]


def _limits(model: AdditivePartitionGP) -> dict[str, list[tuple[float, float]]]:
    """Bounds of the parameters of one member; frozen ones have two equal bounds."""
    kernel, likelihood = model.covar_module, model.likelihood
    owners: dict[str, Any] = {"lengthscale": kernel, "outputscale": kernel}
    if kernel.kernel == "nkn":
        owners["shape"] = kernel
    if not isinstance(likelihood, FixedNoiseGaussianLikelihood):
        owners["noise"] = likelihood.noise_covar
    found = {}
    for name, owner in owners.items():
        raw = getattr(owner, f"raw_{name}")
        values = (raw if name == "shape" else getattr(owner, name).log())[0].detach().flatten()
        low, high = USUAL_BOUNDS[name]
        constraint = owner.constraint_for_parameter_name(f"raw_{name}")
        if constraint is not None:
            inside = 1e-3 if constraint.enforced else 0.0  # raw values are infinite at the bounds
            least, most = constraint.lower_bound.max(), constraint.upper_bound.min()
            if least > 0:
                low = float(least.double().log()) + inside
            if most < math.inf:
                high = float(most.double().log()) - inside
            low, high = min(low, high), max(low, high)
        found[name] = [(low, high)] * values.numel()
        if not raw.requires_grad:
            found[name] = [(value, value) for value in values.tolist()]
    return found


def _priors(model: AdditivePartitionGP) -> list[Callable[[Any], Tensor]]:
    """Log priors of likelihood and kernel, as functions of what has the values of one member."""
    parts = (model.likelihood, model.covar_module)
    named = [(prior, get) for part in parts for _, _, prior, get, _ in part.named_priors()]
    found: list[Callable[[Any], Tensor]] = []
    for prior, get in named:
        own = deepcopy(prior).to("cpu", torch.float64)
        apply_to_base(own, lambda value: value.to("cpu", torch.float64))
        found.append(partial(_log_prior, own, get))
    return found


def _log_prior(prior: Prior, get: Callable[[Any], Tensor], read: Any) -> Tensor:
    return prior.log_prob(get(read))


def _members(model: AdditivePartitionGP) -> dict[Partition, Hyperparameters]:
    """Hyperparameters of the members, by their partitions."""
    kernel = model.covar_module
    fixed = isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
    members = {}
    for number, partition in enumerate(kernel.partitions):
        num_groups = len(partition)
        members[partition] = Hyperparameters(
            lengthscale=torch.as_tensor(kernel.lengthscale)[number, 0].detach(),
            outputscale=kernel.outputscale[number, :num_groups].detach(),
            shape=kernel.shape_parameters[number, :num_groups].detach(),
            noise=None if fixed else model.likelihood.noise[number].item(),
            mean=0.0,  # the next training estimates it anew
        )
    return members


def _set_ensemble(
    model: AdditivePartitionGP, states: list[Partition], evidence: PartitionEvidence
) -> None:
    """Make states at equal distances, the last one included, the members of the ensemble."""
    size, kernel = model.num_samples, model.covar_module
    picked = [states[len(states) - 1 - number * len(states) // size] for number in range(size)]
    fitted = {partition: evidence.hyperparameters(partition) for partition in set(picked)}
    members = [fitted[partition] for partition in picked]

    def padded(values: Tensor) -> Tensor:
        """Values per group with room for as many groups as columns."""
        room = values.new_ones(kernel.ard_num_dims - len(values), *values.shape[1:])
        return torch.cat([values, room])

    data = model.train_targets  # elsewhere than the evidence, which is of the CPU, maybe

    def stacked(values: list[Tensor]) -> Tensor:
        return torch.stack(values).to(data)

    kernel.partitions = picked
    if kernel.raw_lengthscale.requires_grad:
        kernel.initialize(lengthscale=stacked([h.lengthscale for h in members]).unsqueeze(-2))
    if kernel.raw_outputscale.requires_grad:
        kernel.outputscale = stacked([padded(h.outputscale) for h in members])
    if kernel.kernel == "nkn" and kernel.raw_shape.requires_grad:
        kernel.initialize(raw_shape=stacked([padded(h.shape) for h in members]))
    if any(parameter.requires_grad for parameter in model.mean_module.parameters()):
        mean = torch.tensor([h.mean for h in members], dtype=torch.float64)
        model.mean_module.initialize(constant=mean.to(data))
    noise = [h.noise for h in members if h.noise is not None]
    if noise and model.likelihood.noise_covar.raw_noise.requires_grad:
        values = torch.tensor(noise, dtype=torch.float64).unsqueeze(-1).to(data)
        least = model.likelihood.noise_covar.raw_noise_constraint.lower_bound
        model.likelihood.noise = torch.maximum(values, least.to(data))  # rounding may fall below
    labels = torch.tensor([labels_of(partition) for partition in states])
    model.sample.labels = labels.to(model.sample.labels.device)
    model.train()  # forgets what was computed with other hyperparameters
    model.eval()
