"""Base class of kernels whose batch can be expanded and indexed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import wraps
from typing import Any, TypeVar

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.priors import NormalPrior, Prior
from linear_operator import to_dense
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_prediction_strategy import BatchPredictionStrategy
from gpytorch_nkn.layers import Layer, add_prior, repeat_parameters
from gpytorch_nkn.linalg import broadcasts, check_number

__all__ = [
    "BatchKernel",
    "check_columns",
    "constrained",
    "expand_kernel_batch",
    "index_kernel_batch",
    "least_columns",
    "variances_of",
]

K = TypeVar("K", bound=Kernel)


class BatchKernel(Kernel):
    """Kernel whose batch can be expanded and indexed, including its sub-kernels.

    ``expand_batch`` and ``kernel[i]`` return copies with independent parameters. In GPyTorch,
    ``kernel[i]`` also indexes ``active_dims``, and the entries of an expanded batch share memory.
    Every ``forward`` accepts ``last_dim_is_batch=True``, with which GPyTorch's
    ``AdditiveStructureKernel`` requests one matrix per column.

    Raises:
        TypeError: An argument is unknown, or a kernel without a lengthscale gets a prior or
            constraint for it.
        ValueError: On evaluation, the number of input columns is wrong.
    """

    def __init__(
        self,
        ard_num_dims: int | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
    ):
        lengthscale = lengthscale_prior, lengthscale_constraint
        if not self.has_lengthscale and lengthscale != (None, None):
            raise TypeError(
                f"{type(self).__name__} has no lengthscale, got a prior or constraint for it."
            )
        super().__init__(ard_num_dims, batch_shape, active_dims, *lengthscale)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in cls.__dict__:
            cls.forward = _by_columns(cls.forward)

    def __call__(
        self,
        x1: Tensor,
        x2: Tensor | None = None,
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Any:
        """Evaluate the kernel as in GPyTorch; convert integer inputs to the kernel's dtype."""
        if not x1.is_floating_point():
            x1 = x1.to(self.dtype)
        if x2 is not None and not x2.is_floating_point():
            x2 = x2.to(self.dtype)
        if self.active_dims is None and x1.dim() > 1:
            check_columns(self, x1, self.ard_num_dims)
        if not diag:
            return super().__call__(x1, x2, False, last_dim_is_batch, **params)
        # GPyTorch would take the diagonal of values B x N if B equals N
        left = _points(self, x1, self.ard_num_dims)
        right = left if x2 is None or x2 is x1 else _points(self, x2, left.size(-1))
        params["last_dim_is_batch"] = last_dim_is_batch
        return super(Kernel, self).__call__(left, right, diag=True, **params)

    def expand_batch(self: K, *sizes: torch.Size | tuple[int, ...] | int) -> K:
        """Return a copy of the kernel and its sub-kernels with the given batch shape."""
        shape = sizes[0] if len(sizes) == 1 else sizes
        batch_shape = torch.Size([shape] if isinstance(shape, int) else shape)  # type: ignore[arg-type]
        if batch_shape == self.batch_shape:
            return self
        return expand_kernel_batch(self, batch_shape)

    def __getitem__(self: K, index: Any) -> K:
        """Return a copy for the indexed batch entries, or the kernel itself without a batch."""
        return self if not self.batch_shape else index_kernel_batch(self, index)

    def local_load_samples(self, samples_dict: dict[str, Tensor], memo: set, prefix: str) -> None:
        """Load a batch of parameter samples (GPyTorch's hook for fully Bayesian models)."""
        repeat_parameters(self, samples_dict, memo)
        super().local_load_samples(samples_dict, memo, prefix)

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: Any, likelihood: Any
    ) -> BatchPredictionStrategy:
        """Return a prediction strategy that supports any batch shape, also with fantasies."""
        return BatchPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def add_constrained(
        self,
        name: str,
        shape: Sequence[int],
        start: float | Tensor | None = None,
        *,
        positive: bool = True,
    ) -> None:
        """Register the parameter ``raw_<name>`` of an attribute made by :func:`constrained`.

        The start value is broadcast to ``shape``; with ``None`` the raw value starts at zero.
        """
        precise = isinstance(start, Tensor) and start.dtype == torch.float64
        raw = torch.zeros(shape, dtype=torch.float64 if precise else None)
        self.register_parameter(f"raw_{name}", nn.Parameter(raw))
        if positive:
            self.register_constraint(f"raw_{name}", Positive())
        if start is None:
            return
        start = torch.as_tensor(start).detach()
        if not broadcasts(start.shape, shape):
            raise ValueError(
                f"{name} must be a number or of shape {tuple(shape)}, got {tuple(start.shape)}."
            )
        if not bool(start.isfinite().all()) or (positive and not bool((start > 0).all())):
            kind = "finite and positive" if positive else "finite"
            raise ValueError(f"{name} must be {kind}, got {start.tolist()}.")
        self.initialize(**{name: start.expand(shape)})

    def add_normal_prior(
        self, name: str, std: float | None, attribute: str, location: Tensor
    ) -> None:
        """Register a normal prior on an attribute around ``location``; ``None`` for no prior."""
        if std is None:
            return
        check_number(name, std, positive=True)
        prior = NormalPrior(location, torch.full_like(location, std))
        add_prior(self, attribute, prior, name)


def check_columns(kernel: Kernel, x: Tensor, number: int | None) -> None:
    """Raise a ValueError unless inputs ``... x N x D`` have ``number`` columns (None: any)."""
    if number not in (None, x.size(-1)):
        raise ValueError(
            f"{type(kernel).__name__} needs {number} input columns, got inputs of shape "
            f"{tuple(x.shape)}: create it for {x.size(-1)}, or select columns by active_dims."
        )


def _points(kernel: Kernel, x: Tensor, number: int | None) -> Tensor:
    """Return the columns of inputs ``... x N x D`` or ``N`` that a kernel selects."""
    x = x.unsqueeze(-1) if x.dim() == 1 else x
    x = x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)
    check_columns(kernel, x, number)
    return x


def least_columns(kernel: Kernel) -> int:
    """Return a number of input columns that a kernel and its parts accept."""
    columns = 1
    for part in kernel.modules():
        if isinstance(part, Kernel):
            active = () if part.active_dims is None else part.active_dims.tolist()
            columns = max(columns, part.ard_num_dims or 1, *(column + 1 for column in active))
    return columns


def variances_of(kernel: Kernel, x: Tensor) -> Tensor:
    """Return the variances ``... x N`` of a kernel at inputs ``... x N x D``."""
    # if B equals N, GPyTorch reads variances B x N as a matrix unless x has a batch
    missing = len(kernel.batch_shape) - (x.dim() - 2)
    return to_dense(kernel(x[(None,) * missing], diag=True))


def constrained(name: str, meaning: str) -> Any:
    """Create a property for the constrained value of ``raw_<name>``."""

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
    """Add ``last_dim_is_batch`` to ``forward``: one matrix per column, ``... x D x N x M``."""

    @wraps(forward)
    def with_columns(
        self: Kernel,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Any:
        if not last_dim_is_batch:
            return forward(self, x1, x2, diag=diag, **params)
        for module in self.modules():
            selects = module is not self and getattr(module, "active_dims", None) is not None
            if isinstance(module, Kernel) and (selects or (module.ard_num_dims or 1) > 1):
                raise ValueError(
                    "last_dim_is_batch=True requires a kernel over one column, got a "
                    f"{type(module).__name__} with active_dims or several lengthscales: create the "
                    "kernel for one column."
                )
        # columns become the first batch dimension, before the batches of the kernel and the inputs
        most = max(len(self.batch_shape) + 2, x1.dim(), x2.dim())
        padded = (x[(None,) * (most - x.dim())] for x in (x1, x2))
        left, right = (x.mT.unsqueeze(-1).movedim(-3, 0) for x in padded)
        values = to_dense(forward(self, left, right, diag=diag, **params))
        return values.movedim(0, -2 if diag else -3)

    return with_columns


def expand_kernel_batch(kernel: K, batch_shape: torch.Size) -> K:
    """Return a copy of a kernel, including all sub-kernels, with this batch shape."""
    if not broadcasts(kernel.batch_shape, batch_shape):
        raise RuntimeError(
            f"Cannot expand a kernel with batch shape {tuple(kernel.batch_shape)} to "
            f"{tuple(batch_shape)}."
        )

    def expand(value: Tensor, old: torch.Size) -> Tensor:
        # clone, because optimisers cannot update entries that share memory
        return value.expand(*batch_shape, *value.shape[len(old) :]).clone()

    return _map_batch(kernel, batch_shape, expand)


def index_kernel_batch(kernel: K, index: Any) -> K:
    """Return a copy of a kernel, including all sub-kernels, for the indexed batch entries."""
    batch_shape = kernel.batch_shape
    # index an array of entry numbers, so that the index cannot reach other dimensions
    index = tuple(_on_cpu(i) for i in index) if isinstance(index, tuple) else _on_cpu(index)
    entries = torch.arange(batch_shape.numel()).view(batch_shape)[index]

    def select(value: Tensor, old: torch.Size) -> Tensor:
        event_shape = value.shape[len(old) :]  # the batch of a sub-kernel may broadcast
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
    done: set[int] = set()  # sub-kernels may share parameters
    for module in new_kernel.modules():
        if not isinstance(module, Kernel | Layer):
            continue
        attribute = "batch_shape" if isinstance(module, Layer) else "_batch_shape"
        old = getattr(module, attribute)
        if isinstance(module, ScaleKernel):  # batch_shape includes the base kernel's
            old = module.raw_outputscale.shape
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in done and parameter.shape[: len(old)] == old:
                parameter.data = function(parameter.data, old)
                done.add(id(parameter))
        for owner, name, buffer in list(_batch_buffers(module, old)):
            setattr(owner, name, function(buffer, old))
        setattr(module, attribute, batch_shape)
    return new_kernel


def _batch_buffers(module: Kernel | Layer, shape: torch.Size) -> Iterator[tuple[Any, str, Tensor]]:
    """Yield owners, names and values of buffers with an entry for each kernel of a batch.

    All kernels of the batch share the other buffers, such as ``active_dims`` or a grid.
    """
    bounds = [child for child in module.children() if isinstance(child, Interval)]
    for owner in (module, *bounds) if shape else ():
        entry_dims = len(shape) + (owner is not module)
        for name, buffer in owner.named_buffers(recurse=False):
            least = entry_dims + 2 * (name == "randn_weights")  # of RFFKernel
            is_batch = buffer.dim() >= least and buffer.shape[: len(shape)] == shape
            if is_batch and name != "active_dims":
                yield owner, name, buffer
