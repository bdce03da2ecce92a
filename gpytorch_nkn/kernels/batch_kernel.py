"""Batch expansion and batch indexing that reach every part of a composite kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.priors import NormalPrior, Prior
from linear_operator import to_dense
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_prediction_strategy import BatchPredictionStrategy
from gpytorch_nkn.layers import Layer, for_prior, from_prior

__all__ = [
    "BatchKernel",
    "constrained",
    "expand_kernel_batch",
    "index_kernel_batch",
]

K = TypeVar("K", bound=Kernel)


class BatchKernel(Kernel):
    """A kernel whose batch can be expanded and indexed, whatever its parts and its columns.

    GPyTorch's own ``kernel[i]`` indexes the ``active_dims`` too, and its ``expand_batch`` ties the
    entries of the batch to one memory. The copies that both return have parameters of their own.
    Every ``forward`` takes ``last_dim_is_batch=True``, with which GPyTorch's
    ``AdditiveStructureKernel`` and its like ask for the matrix of each column.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in cls.__dict__:
            cls.forward = _by_columns(cls.forward)

    def expand_batch(self: K, *sizes: torch.Size | tuple[int, ...] | int) -> K:
        """Return a copy of the kernel, all of whose parts carry the given batch shape."""
        one = sizes[0] if len(sizes) == 1 else sizes
        batch_shape = torch.Size([one] if isinstance(one, int) else one)  # type: ignore[arg-type]
        if batch_shape == self.batch_shape:
            return self
        return expand_kernel_batch(self._alone(), batch_shape)

    def __getitem__(self: K, index: Any) -> K:
        """Return a copy of the kernel with its batch indexed; itself if it has no batch."""
        return self if not self.batch_shape else index_kernel_batch(self._alone(), index)

    def _alone(self: K) -> K:
        """The kernel as one that holds all of its parts, where it only refers to some."""
        return self

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: Any, likelihood: Any
    ) -> BatchPredictionStrategy:
        """As in GPyTorch, also for fantasies of a batch in a batch of one."""
        return BatchPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def add_constrained(self, name: str, shape: Sequence[int], constraint: Interval | None) -> None:
        """Register ``raw_<name>``, zeros under a constraint; positive where that is ``None``."""
        self.register_parameter(f"raw_{name}", nn.Parameter(torch.zeros(shape)))
        self.register_constraint(f"raw_{name}", Positive() if constraint is None else constraint)

    def add_prior(
        self,
        name: str,
        prior: Prior | float | None,
        attribute: str,
        location: Tensor | None = None,
    ) -> None:
        """Register a prior on an attribute, by functions that pickle; ``None`` is no prior.

        With a location, a number is the deviation of a normal prior around it.
        """
        if prior is None:
            return
        if location is not None and isinstance(prior, float | int) and not isinstance(prior, bool):
            if not 0 < prior < math.inf:
                raise ValueError(f"The deviation of a prior must be positive, got {prior}.")
            prior = NormalPrior(location, torch.full_like(location, prior))
        if not isinstance(prior, Prior):
            raise TypeError(f"{name} must be a gpytorch.priors.Prior, got {prior!r}.")
        closures = partial(_get, attribute=attribute), partial(_set, attribute=attribute)
        self.register_prior(name, prior, *closures)


def _get(kernel: Kernel, attribute: str) -> Tensor:
    return for_prior(kernel, getattr(kernel, attribute))


def _set(kernel: Kernel, value: Any, attribute: str) -> None:
    kernel.initialize(**{attribute: from_prior(getattr(kernel, attribute), value)})


def constrained(name: str, meaning: str) -> Any:
    """A property, the value that ``raw_<name>`` of a kernel stands for, constrained or not."""

    def read(kernel: Kernel) -> Tensor:
        raw: Any = kernel._parameters[f"raw_{name}"]
        constraint = kernel.constraint_for_parameter_name(f"raw_{name}")
        return raw if constraint is None else constraint.transform(raw)

    def write(kernel: Kernel, value: Any) -> None:
        value = torch.as_tensor(value).to(kernel._parameters[f"raw_{name}"])
        constraint = kernel.constraint_for_parameter_name(f"raw_{name}")
        raw = value if constraint is None else constraint.inverse_transform(value)
        kernel.initialize(**{f"raw_{name}": raw})

    return property(read, write, doc=meaning)


def _by_columns(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``forward`` return one matrix per column, ``... x D x N x M``, if asked to."""

    @wraps(forward)
    def each(
        self: Kernel,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Any:
        if not last_dim_is_batch:
            return forward(self, x1, x2, diag=diag, **params)
        for part in self.modules():
            own = part is not self and getattr(part, "active_dims", None) is not None
            if isinstance(part, Kernel) and (own or (part.ard_num_dims or 1) > 1):
                raise ValueError(
                    "last_dim_is_batch=True evaluates a kernel at every column alone, but "
                    f"{type(part).__name__} has active_dims or several lengthscales. Make the "
                    "kernel for one column."
                )
        # The columns come first, so that they broadcast with the batch of the kernel.
        ones = (slice(None), *[None] * len(self.batch_shape))
        left, right = (x.mT.unsqueeze(-1).movedim(-3, 0)[ones] for x in (x1, x2))
        values = to_dense(forward(self, left, right, diag=diag, **params))
        return values.movedim(0, -2 if diag else -3)

    return each


def expand_kernel_batch(kernel: K, batch_shape: torch.Size) -> K:
    """Return a copy of a kernel all of whose parts have the batch shape.

    GPyTorch's own ``expand_batch`` does not reach kernels in a ModuleList.
    """
    try:
        fits = torch.broadcast_shapes(kernel.batch_shape, batch_shape) == batch_shape
    except RuntimeError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"Cannot expand a kernel with batch shape {tuple(kernel.batch_shape)} to "
            f"{tuple(batch_shape)}."
        )

    def expand(value: Tensor, old: torch.Size) -> Tensor:
        # clone: entries that share memory cannot be updated in place by an optimiser
        return value.expand(*batch_shape, *value.shape[len(old) :]).clone()

    return _map_batch(kernel, batch_shape, expand)


def index_kernel_batch(kernel: K, index: Any) -> K:
    """Return a copy of a kernel whose batch is indexed, in all of its parts."""
    batch_shape = kernel.batch_shape
    # The entry numbers that the index picks: indexing these can never touch event dimensions.
    index = tuple(_on_cpu(i) for i in index) if isinstance(index, tuple) else _on_cpu(index)
    entries = torch.arange(batch_shape.numel()).view(batch_shape)[index]

    def select(value: Tensor, old: torch.Size) -> Tensor:
        event_shape = value.shape[len(old) :]  # a part's batch may be smaller than the kernel's
        flat = value.expand(*batch_shape, *event_shape)
        flat = flat.reshape(batch_shape.numel(), *event_shape)
        picked = flat[entries.flatten().to(value.device)]
        return picked.view((*entries.shape, *event_shape))

    return _map_batch(kernel, entries.shape, select)


def _on_cpu(index: Any) -> Any:
    return index.cpu() if isinstance(index, Tensor) else index


def _map_batch(
    kernel: K, batch_shape: torch.Size, function: Callable[[Tensor, torch.Size], Tensor]
) -> K:
    new_kernel = deepcopy(kernel)
    done: set[int] = set()  # a parameter may be shared by several parts
    for module in new_kernel.modules():
        if not isinstance(module, Kernel | Layer):
            continue
        old = module._batch_shape
        if isinstance(module, ScaleKernel):  # without a shape of its own it takes its base's
            old = module.raw_outputscale.shape
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in done and parameter.shape[: len(old)] == old:
                parameter.data = function(parameter.data, old)
                done.add(id(parameter))
        for name, buffer in list(module.named_buffers(recurse=False)):
            # A buffer of a kernel without batch (active_dims, a grid) belongs to all of the batch.
            if name != "active_dims" and len(old) and buffer.shape[: len(old)] == old:
                setattr(module, name, function(buffer, old))
        for constraint in module.children():
            if isinstance(constraint, Interval) and len(old):  # bounds may differ in a batch
                for name, bound in list(constraint.named_buffers(recurse=False)):
                    if bound.dim() > len(old) and bound.shape[: len(old)] == old:
                        setattr(constraint, name, function(bound, old))
        module._batch_shape = batch_shape
    return new_kernel
