"""Which cells of a grid are observed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["PartialGrid"]


class PartialGrid:
    """A grid with missing cells, and the smallest sub-grid that holds all of these.

    Args:
        observed: Whether a cell is observed, ``... x n_1 x ... x n_P``.
        num_dims: Number of dimensions ``P`` of the grid; those in front of them are a batch.

    Attributes:
        observed: As given.
        num_dims: As given.
        shape: Sizes ``n_1 x ... x n_P``.
        batch_shape: ``...``.
        num_cells: Cells of the grid.
        num_observed: Observed cells ``...``.
        rows: For each dimension the positions at which a cell of any batch entry is missing.
        missing: Missing cells of the sub-grid of these, ``... x h_1 x ... x h_P``.

    Raises:
        ValueError: A batch entry has no observed cell, or there are too few dimensions.
    """

    def __init__(self, observed: Tensor, num_dims: int):
        if observed.dtype != torch.bool or observed.dim() < num_dims or num_dims < 1:
            raise ValueError(
                f"observed must be boolean with at least {max(num_dims, 1)} dimensions, got "
                f"{observed.dtype} of shape {tuple(observed.shape)}."
            )
        self.observed = observed
        self.num_dims = num_dims
        self.shape = observed.shape[observed.dim() - num_dims :]
        self.batch_shape = observed.shape[: observed.dim() - num_dims]
        self.num_cells = self.shape.numel()
        self.num_observed = observed.flatten(-num_dims).sum(-1)
        if bool((self.num_observed == 0).any()):
            raise ValueError("There is no observed cell in the grid (or in an entry of its batch).")
        gone = ~observed.reshape(-1, *self.shape).all(0)
        self.rows = []
        for dim in range(num_dims):
            others = [d for d in range(num_dims) if d != dim]
            along = gone.any(dim=others) if others else gone
            self.rows.append(along.nonzero()[:, 0])
        self.missing = self.restrict(~observed)
        self._all_missing = bool(self.missing.all())

    @property
    def is_complete(self) -> bool:
        """Whether every cell is observed."""
        return self.missing.numel() == 0

    @property
    def is_mostly_missing(self) -> bool:
        """Whether there are more missing cells than observed ones, over the whole batch."""
        return bool(2 * self.num_observed.sum() < self.num_observed.numel() * self.num_cells)

    def restrict(self, array: Tensor) -> Tensor:
        """Part ``... x h_1 x ... x h_P`` of an array ``... x n_1 x ... x n_P``."""
        for dim, rows in enumerate(self.rows):
            array = array.index_select(dim - self.num_dims, rows)
        return array

    def only_missing(self, array: Tensor) -> Tensor:
        """Zero out the observed cells of an array ``... x h_1 x ... x h_P``."""
        return array if self._all_missing else array * self.missing

    def only_observed(self, array: Tensor) -> Tensor:
        """Zero out the missing cells of an array ``... x n_1 x ... x n_P``."""
        return array if self.is_complete else array * self.observed

    def place(self, array: Tensor) -> Tensor:
        """Array ``... x n_1 x ... x n_P`` with ``... x h_1 x ... x h_P`` in its place, else 0."""
        batch = array.shape[: array.dim() - self.num_dims]
        whole = array.new_zeros(*batch, *self.shape)
        index: tuple[Any, ...] = torch.meshgrid(*self.rows, indexing="ij")
        whole[(..., *index)] = array
        return whole
