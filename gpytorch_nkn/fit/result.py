"""Results of a fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from gpytorch.kernels import Kernel
from gpytorch.models import ExactGP
from torch import Tensor, nn

__all__ = ["Fit", "FitResult", "HeldOut", "RestartRecord", "Start"]


class Start:
    """Number, wall time and status of a start."""

    number: int
    seconds: float
    status: str

    @property
    def failed(self) -> bool:
        """Whether the start failed; the status gives the reason."""
        return self.status.startswith("failed")


S = TypeVar("S", bound=Start)


class Fit(Generic[S]):
    """Trained model, its starts, and the number of the best start."""

    model: Any
    restarts: list[S]
    best: int

    # Heading, attribute name and format of each printed column.
    _columns: ClassVar[tuple[tuple[str, str, str], ...]] = ()

    @property
    def seconds(self) -> float:
        """Wall time of all starts."""
        return sum(record.seconds for record in self.restarts)

    def __str__(self) -> str:
        heads = [f"{head:>{form.split('.')[0].rstrip('df')}}" for head, _, form in self._columns]
        lines = [f"{'restart':>7} {' '.join(heads)}  status"]
        for record in self.restarts:
            mark = "*" if record.number == self.best else " "
            values = [f"{getattr(record, name):>{form}}" for _, name, form in self._columns]
            lines.append(f"{record.number:>6}{mark} {' '.join(values)}  {record.status}")
        return "\n".join(lines)


@dataclass(frozen=True)
class RestartRecord(Start):
    """Outcome of one restart.

    Attributes:
        number: Number of the restart, from 0.
        origin: Source of the start values: ``data``, ``given``, ``make_model``, ``callable``.
        loss: Negative log posterior at the best point, in nats, summed over the data.
        evaluations: Evaluations of the loss and its gradient.
        seconds: Wall time. Restarts in one batch share the time equally.
        status: ``ok``, ``interrupted`` (kept at its best point), or ``failed: ...`` with the
            reason.
        trace: Lowest loss so far after each evaluation, a vector of length ``evaluations`` in
            nats, infinite before the first finite loss.
    """

    number: int
    origin: str
    loss: float
    evaluations: int
    seconds: float
    status: str
    trace: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows ``H`` held out while a model was trained, and the model's state dict."""

    rows: Tensor
    parameters: dict[str, Tensor]


@dataclass
class FitResult(Fit[RestartRecord]):
    """Best model of a fit, and records of all restarts.

    Attributes:
        model: Trained model in eval mode, with the parameters of the best restart. If a function
            made the models, a copy of the best one.
        restarts: One record per restart, in order.
        best: Number of the best restart.
        members: Trained copies of the model for successful restarts, by number.
        held_out: Rows held out by the first stage of ``fit_in_stages``, by number of the member.
        interrupted: Whether Ctrl-C ended the training.
    """

    model: ExactGP
    restarts: list[RestartRecord]
    best: int
    members: dict[int, ExactGP]
    held_out: dict[int, HeldOut] = field(default_factory=dict)
    interrupted: bool = False

    _columns: ClassVar = (
        ("loss", "loss", "10.3f"),
        ("evals", "evaluations", "6d"),
        ("s", "seconds", "6.1f"),
    )

    def before_held_out(self, number: int) -> tuple[ExactGP, np.ndarray]:
        """Return member ``number`` trained without its held-out rows, and these rows' mask ``N``.

        Without held-out rows, return the member itself and a mask of all rows.
        """
        member, held_out = self.members[number], self.held_out.get(number)
        if held_out is None:
            return member, np.ones(member.train_targets.size(-1), dtype=bool)
        start = copy_model(member)
        start.load_state_dict(held_out.parameters)
        return start, np.isin(np.arange(start.train_targets.size(-1)), held_out.rows.cpu())


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Switch to train or eval mode inside a context.

    BoTorch's models have transformed inputs in eval mode, and untransformed inputs in train mode.
    """
    modes = [(module, module.training) for module in model.modules()]
    changes = any(mode != training for _, mode in modes)
    if changes:  # visiting hundreds of modules takes as long as a small matrix
        model.train(training)
    try:
        yield
    finally:
        if changes or model.training != training:
            _restore(model, modes)


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Switch to eval mode inside a context."""
    return in_mode(model, training=False)


def copy_model(model: ExactGP, kernel: Kernel | None = None) -> ExactGP:
    """Return a deep copy, with ``kernel`` itself as ``covar_module`` if given.

    Prediction caches, whose graph tensors cannot be copied, are cleared.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.train()  # clears GPyTorch's prediction caches
    memo: dict[int, Any] = {} if kernel is None else {id(model.covar_module): kernel}
    for module, _ in modes:  # copying hundreds of empty hook dictionaries takes long
        for value in vars(module).values():
            if type(value) in (OrderedDict, dict, set) and not value:
                memo[id(value)] = type(value)()
    try:
        return deepcopy(model, memo).train(modes[0][1])
    finally:
        _restore(model, modes)


def _restore(model: nn.Module, modes: list[tuple[nn.Module, bool]]) -> None:
    model.train(modes[0][1])
    for module, mode in modes:  # submodules may differ in mode
        module.training = mode
