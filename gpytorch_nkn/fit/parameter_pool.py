"""Natural values of a model's parameters in one vector, and the vjp to their raw values."""

from __future__ import annotations

import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.kernels.evaluation import has_softplus

__all__ = ["ParameterPool", "UnknownPartError", "require", "to_numpy"]

_THRESHOLD = 20  # value above which PyTorch's softplus is the identity


class UnknownPartError(Exception):
    """A part of the model has no closed-form gradient in this package."""


def require(condition: bool, subject: str) -> None:
    """Raise an UnknownPartError that names ``subject`` unless ``condition`` holds."""
    if not condition:
        raise UnknownPartError(subject)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Convert to a float64 array, which shares the tensor's memory where possible."""
    return tensor.detach().double().cpu().numpy()


class ParameterPool:
    """Trained parameters (after constraints), constants and simplex weights in one vector.

    Natural values are raw values after the transforms of their constraints. NumPy has less overhead
    than PyTorch for such short vectors. ``values`` are the model's trained raw values.

    Raises:
        UnknownPartError: A constraint has a transform other than softplus.

    Attributes:
        num_trained, size: Number of trained values, which come first, and current length of the
            vector.
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
                is_softplus = type(constraint) in (Positive, GreaterThan)
                require(is_softplus and has_softplus(constraint), f"the constraint of {name}")
                softplus.append(np.arange(span.start, span.stop))
                bound = constraint.lower_bound.to(parameter).expand_as(parameter)
                lower.append(to_numpy(bound).ravel())
        self._softplus, self._lower = np.concatenate(softplus), np.concatenate(lower)
        self._constants = [np.empty(self.size)]
        self._rows: list[np.ndarray] = []  # indices of the logits of each simplex
        self._simplexes: list[np.ndarray] = []  # indices of the weights of each simplex

    @property
    def spans(self) -> list[slice]:
        """Slice of each trained parameter."""
        return list(self._spans.values())

    def add_constants(self, values: Tensor) -> np.ndarray:
        """Append constants, and return their indices in the shape of ``values``."""
        numbers = to_numpy(values)
        self._constants.append(numbers.ravel())
        self.size += numbers.size
        return np.arange(self.size - numbers.size, self.size).reshape(numbers.shape)

    def indices(self, parameter: Tensor) -> np.ndarray | None:
        """Return indices of a parameter's natural values, in its shape; ``None`` if frozen."""
        span = self._spans.get(id(parameter))
        return None if span is None else np.arange(span.start, span.stop).reshape(parameter.shape)

    def indices_of(self, parameter: Tensor, natural: Tensor) -> np.ndarray:
        """Return indices of natural values, which are appended as constants if frozen."""
        indices = self.indices(parameter)
        return self.add_constants(natural) if indices is None else indices

    def add_simplexes(self, logits: np.ndarray) -> np.ndarray:
        """Append softmax weights, given indices ``R x K`` of logits, and return their indices."""
        indices = self.add_constants(torch.zeros(logits.shape))
        self._rows.extend(logits)
        self._simplexes.append(indices.ravel())
        return indices

    def finish(self) -> None:
        """Prepare the arrays for evaluation, after all values are appended."""
        lengths = [len(row) for row in self._rows]
        self._template = np.concatenate(self._constants)
        self._logits = np.concatenate([np.arange(0), *self._rows])
        self._starts = np.cumsum([0, *lengths])[:-1]
        self._row_of = np.repeat(np.arange(len(lengths)), lengths)
        self._simplex_indices = np.concatenate([np.arange(0), *self._simplexes])

    def reaches_all(self, indices: np.ndarray) -> bool:
        """Return whether ``indices``, with the logits of simplexes, cover all trained values."""
        read = np.concatenate([indices.ravel(), self._logits])
        return len(np.unique(read[read < self.num_trained])) == self.num_trained

    @np.errstate(under="ignore")  # small terms vanish
    def natural(self) -> np.ndarray:
        """Return the natural values of the trained parameters."""
        natural = to_numpy(self._values).copy()
        raw = natural[self._softplus]
        smooth = np.log1p(np.exp(np.minimum(raw, _THRESHOLD)))
        natural[self._softplus] = np.where(raw > _THRESHOLD, raw, smooth) + self._lower
        return natural

    @np.errstate(under="ignore")  # small terms vanish
    def numbers(self) -> np.ndarray:
        """Return the whole vector."""
        numbers = self._template.copy()
        numbers[: self.num_trained] = self.natural()
        if self._rows:
            logits = numbers[self._logits]
            largest = np.maximum.reduceat(logits, self._starts)
            powers = np.exp(logits - largest[self._row_of])
            totals = np.add.reduceat(powers, self._starts)
            numbers[self._simplex_indices] = powers / totals[self._row_of]
        return numbers

    @np.errstate(under="ignore")  # small terms vanish
    def vjp(self, numbers: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the gradient with respect to the raw values.

        ``gradient`` is with respect to ``numbers``, a result of :meth:`numbers`; it is overwritten.
        """
        if self._rows:
            weights = numbers[self._simplex_indices]
            terms = weights * gradient[self._simplex_indices]
            totals = np.add.reduceat(terms, self._starts)
            terms -= weights * totals[self._row_of]
            gradient = gradient + np.bincount(self._logits, terms, self.size)
        gradient = gradient[: self.num_trained]
        gradient[self._softplus] /= 1 + np.exp(-to_numpy(self._values)[self._softplus])
        return gradient
