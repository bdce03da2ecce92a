"""The numbers that a loss is computed from, and the way of its gradient back to raw values."""

from __future__ import annotations

import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.kernels.evaluation import has_softplus

__all__ = ["ParameterPool", "UnknownPartError", "require", "to_numpy"]

_THRESHOLD = 20  # of PyTorch's softplus, which is the identity beyond


class UnknownPartError(Exception):
    """A part of the model is not among those whose formulas are written out here."""


def require(condition: bool, what: str) -> None:
    """Refuse a model with a part that is not known."""
    if not condition:
        raise UnknownPartError(what)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Its numbers in double precision; in the memory of the tensor where that is possible."""
    return tensor.detach().double().cpu().numpy()


class ParameterPool:
    """Natural values of all trained parameters, constants, and shares made of both, in one vector.

    Parameters are few and short. In NumPy, one operation on all of them takes a fraction of what
    PyTorch needs to start one; on a GPU they would wait for it in the end.

    Args:
        model: A model.
        values: The raw values of its trained parameters, one after another.

    Raises:
        UnknownPartError: A constraint has another transform than softplus.

    Attributes:
        num_trained: Number of trained values, which come first.
        size: Numbers so far.
    """

    def __init__(self, model: ExactGP, values: Tensor):
        self._values = values
        self.num_trained = self.size = values.numel()
        self._spans: dict[int, slice] = {}
        softplus, lower = [np.arange(0)], [np.empty(0)]
        start = 0
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            span = self._spans[id(parameter)] = slice(start, start + parameter.numel())
            start = span.stop
            constraint = model.constraint_for_parameter_name(name)
            if constraint is not None and constraint.enforced:
                known = type(constraint) in (Positive, GreaterThan)
                require(known and has_softplus(constraint), f"the constraint of {name}")
                softplus.append(np.arange(span.start, span.stop))
                bound = constraint.lower_bound.to(parameter).expand_as(parameter)
                lower.append(to_numpy(bound).ravel())
        self._softplus, self._lower = np.concatenate(softplus), np.concatenate(lower)
        self._constants = [np.empty(self.size)]
        self._rows: list[np.ndarray] = []  # places of the logits of each share
        self._shares: list[np.ndarray] = []  # places of the shares

    @property
    def spans(self) -> list[slice]:
        """Where each trained parameter lies."""
        return list(self._spans.values())

    def add_constants(self, values: Tensor) -> np.ndarray:
        """Places, in the shape of ``values``, of numbers that stay."""
        numbers = to_numpy(values)
        self._constants.append(numbers.ravel())
        self.size += numbers.size
        return np.arange(self.size - numbers.size, self.size).reshape(numbers.shape)

    def places(self, parameter: Tensor) -> np.ndarray | None:
        """Places, in the shape of a parameter, of its natural values; None if it is frozen."""
        span = self._spans.get(id(parameter))
        return None if span is None else np.arange(span.start, span.stop).reshape(parameter.shape)

    def add_shares(self, logits: np.ndarray) -> np.ndarray:
        """Places ``R x K`` of the softmax of every row of numbers at places ``R x K``."""
        places = self.add_constants(torch.zeros(logits.shape))
        self._rows.extend(logits)
        self._shares.append(places.ravel())
        return places

    def finish(self) -> None:
        """Arrange what was added, before the first value is asked for."""
        lengths = [len(row) for row in self._rows]
        self._template = np.concatenate(self._constants)
        self._logits = np.concatenate([np.arange(0), *self._rows])
        self._starts = np.cumsum([0, *lengths])[:-1]
        self._row_of = np.repeat(np.arange(len(lengths)), lengths)
        self._share_places = np.concatenate([np.arange(0), *self._shares])

    def reaches_all(self, places: np.ndarray) -> bool:
        """Whether all trained values are among the numbers at some places, or their logits."""
        read = np.concatenate([places.ravel(), self._logits])
        return len(np.unique(read[read < self.num_trained])) == self.num_trained

    @np.errstate(under="ignore")  # small terms vanish
    def natural(self) -> np.ndarray:
        """Natural values of the trained parameters."""
        natural = to_numpy(self._values).copy()
        raw = natural[self._softplus]
        smooth = np.log1p(np.exp(np.minimum(raw, _THRESHOLD)))
        natural[self._softplus] = np.where(raw > _THRESHOLD, raw, smooth) + self._lower
        return natural

    @np.errstate(under="ignore")  # small terms vanish
    def numbers(self) -> np.ndarray:
        """All numbers."""
        numbers = self._template.copy()
        numbers[: self.num_trained] = self.natural()
        if self._rows:
            logits = numbers[self._logits]
            largest = np.maximum.reduceat(logits, self._starts)
            powers = np.exp(logits - largest[self._row_of])
            totals = np.add.reduceat(powers, self._starts)
            numbers[self._share_places] = powers / totals[self._row_of]
        return numbers

    @np.errstate(under="ignore")  # small terms vanish
    def pull_back(self, numbers: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Gradient by the raw values.

        Args:
            numbers: What :meth:`numbers` gave.
            gradient: Gradient by them; overwritten.
        """
        if self._rows:
            shares = numbers[self._share_places]
            terms = shares * gradient[self._share_places]
            totals = np.add.reduceat(terms, self._starts)
            terms -= shares * totals[self._row_of]
            gradient = gradient + np.bincount(self._logits, terms, self.size)
        gradient = gradient[: self.num_trained]
        gradient[self._softplus] /= 1 + np.exp(-to_numpy(self._values)[self._softplus])
        return gradient
