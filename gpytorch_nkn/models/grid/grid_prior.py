"""The prior of a Gaussian process on a grid, and the values of its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, Mean, ZeroMean
from gpytorch.models.gp import GP
from torch import Tensor, nn

from gpytorch_nkn.kernels import factor_kernels
from gpytorch_nkn.linalg import PartialGrid
from gpytorch_nkn.models.common import check_likelihood, make_likelihood
from gpytorch_nkn.models.grid.factor_matrix import cross_matrix, factor_matrix
from gpytorch_nkn.models.grid.grid_data import (
    GridData,
    check_coordinates,
    check_tolerance,
    is_regular,
    standardize,
    transform_outcomes,
)

__all__ = ["GridPrior"]

_CACHES = ("_grid", "_likelihood", "_posterior", "_double")


class GridPrior(GPyTorchModel, GP):
    """Kernels, mean, noise, coordinates and values of :class:`KroneckerGridGP`.

    Args:
        data: Coordinates and values, checked.
        kernels, likelihood, mean_module, outcome_transform: See :class:`KroneckerGridGP`.
    """

    outcome_transform: OutcomeTransform
    _tolerance: float | None
    _grid: tuple[Tensor, PartialGrid] | None

    def __init__(
        self,
        data: GridData,
        kernels: Sequence[Kernel] | Kernel,
        *,
        likelihood: GaussianLikelihood | None,
        mean_module: Mean | None,
        outcome_transform: OutcomeTransform | _DefaultType | None,
    ):
        super().__init__()
        self.num_dims = len(data.coordinates)
        batch_shape = data.targets.shape[: data.targets.dim() - self.num_dims]
        for dim, (part, kept) in enumerate(zip(data.coordinates, data.kept, strict=True)):
            self.register_buffer(f"_coordinates_{dim}", part, persistent=False)
            self.register_buffer(f"_kept_{dim}", kept, persistent=False)
        self._batch_shape = torch.Size(batch_shape)
        self._regular = [is_regular(x) for x in self.train_coordinates]
        self._regular_whole = [is_regular(x) for x in self.coordinates]
        self.kernels = nn.ModuleList(self._check_kernels(kernels))
        shapes = [kernel.batch_shape for kernel in self.kernels]
        kernel_shape = self._check_batch("the kernels", *shapes)
        check_likelihood(likelihood)
        self.likelihood = make_likelihood(kernel_shape) if likelihood is None else likelihood
        if mean_module is None:
            mean_module = ConstantMean(batch_shape=self._batch_shape)
        self.mean_module = mean_module
        if outcome_transform == DEFAULT:
            outcome_transform = standardize(data, batch_shape)
        self.register_buffer("_observed", data.observed, persistent=False)
        if outcome_transform is None:
            values = data.targets
        else:
            outcome_transform = outcome_transform.to(data.targets)  # type: ignore[union-attr]
            outcome_transform.train()
            values = transform_outcomes(outcome_transform, data)
            self.outcome_transform = outcome_transform.eval()
        self.register_buffer("_targets", values.contiguous(), persistent=False)
        self._forget()
        self.to(data.targets)
        with torch.no_grad():
            self._check_factors(self.factor_matrices())
            mean = self._mean_on(self.train_coordinates)
            self._check_batch("mean_module", mean.shape[: mean.dim() - self.num_dims])
            self._check_batch("likelihood", self.noise_variance().shape)

    # --- what there is ---

    @property
    def tolerance(self) -> float:
        """Relative residual of the solves of predictions."""
        if self._tolerance is not None:
            return self._tolerance
        return 1e-6 if self.get_buffer("_targets").dtype == torch.float64 else 1e-4

    @tolerance.setter
    def tolerance(self, value: float | None) -> None:
        check_tolerance(value)
        self._tolerance = value
        self._forget()

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the grids."""
        return self._batch_shape

    @property
    def coordinates(self) -> list[Tensor]:
        """Coordinates ``n_p x c_p`` of all slices."""
        return [self.get_buffer(f"_coordinates_{dim}") for dim in range(self.num_dims)]

    @property
    def kept(self) -> list[Tensor]:
        """Positions of the slices in which a cell is observed."""
        return [self.get_buffer(f"_kept_{dim}") for dim in range(self.num_dims)]

    @property
    def train_coordinates(self) -> list[Tensor]:
        """Coordinates of the slices in which a cell is observed."""
        return [x[rows] for x, rows in zip(self.coordinates, self.kept, strict=True)]

    @property
    def grid(self) -> PartialGrid:
        """Which cells of these slices are observed; without a batch if that is the same in it."""
        observed = self.get_buffer("_observed")
        if self._grid is None or self._grid[0] is not observed:
            first = observed.reshape(-1, *observed.shape[observed.dim() - self.num_dims :])[0]
            shared = first if bool((observed == first).all()) else observed
            self._grid = observed, PartialGrid(shared, self.num_dims)
        return self._grid[1]

    @property
    def missing(self) -> Tensor:
        """Which cells of the grid are missing, ``... x n_1 x ... x n_P``."""
        gone = ~self.get_buffer("_observed")
        sizes = [x.size(0) for x in self.coordinates]
        whole = torch.ones(*self.batch_shape, *sizes, dtype=torch.bool, device=gone.device)
        index: tuple[Any, ...] = torch.meshgrid(*self.kept, indexing="ij")
        whole[(..., *index)] = gone
        return whole

    def factor_matrices(self) -> list[Tensor]:
        """Covariances ``... x k_p x k_p`` of the slices in which a cell is observed."""
        parts = zip(self.kernels, self.train_coordinates, self._regular, strict=True)
        return [factor_matrix(kernel, x, regular=regular) for kernel, x, regular in parts]

    def residual(self) -> Tensor:
        """Targets less their prior mean on the slices in which a cell is observed."""
        return self.get_buffer("_targets") - self._mean_on(self.train_coordinates)

    def noise_variance(self) -> Tensor:
        """Variance of the noise, of the batch shape of the likelihood."""
        return self.likelihood.noise.squeeze(-1)

    def trimmed(self, array: Tensor) -> Tensor:
        """Part of an array ``... x n_1 x ... x n_P`` on slices in which a cell is observed."""
        sizes = tuple(x.size(0) for x in self.coordinates)
        if tuple(array.shape[-self.num_dims :]) != sizes:
            raise ValueError(
                f"Expected an array whose last dimensions are those of the grid, {sizes}, got "
                f"shape {tuple(array.shape)}."
            )
        for dim, rows in enumerate(self.kept):
            array = array.index_select(dim - self.num_dims, rows)
        return array

    def load_state_dict(  # type: ignore[override]
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Load the parameters and transforms of another model.

        Args:
            state_dict, strict, assign: As in torch.
            keep_transforms: Transform this model's targets anew, by the transform that is loaded.
        """
        # BoTorch's own asks for training inputs of N rows, which there are none of here.
        values = self.get_buffer("_targets")
        flat = values.flatten(-self.num_dims).unsqueeze(-1)
        transform = getattr(self, "outcome_transform", None) if keep_transforms else None
        if transform is not None:
            flat, _ = transform.untransform(flat)
        keys = nn.Module.load_state_dict(self, state_dict, strict=strict, assign=assign)
        if transform is not None:
            flat, _ = transform.eval()(flat)
        observed = self.get_buffer("_observed")
        self._targets = torch.where(observed, flat.reshape(values.shape), 0.0)
        self._forget()
        return keys

    def condition_on_observations(self, X: Tensor, Y: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Not available: single points are no grid."""
        raise NotImplementedError(
            "KroneckerGridGP cannot take in further points: make one of the grid with the new "
            "cells, with this one's state_dict."
        )

    def fantasize(self, X: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Not available, as :meth:`condition_on_observations`."""
        return self.condition_on_observations(X, X)

    def train(self, mode: bool = True) -> Any:
        """Training mode; forgets cached predictions."""
        if mode:
            self._forget()
        return super().train(mode)

    def _apply(self, fn: Callable, recurse: bool = True) -> Any:
        self._forget()
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(_CACHES)}

    def _forget(self) -> None:
        """Drop what was computed with other parameters or values."""
        for name in _CACHES:
            setattr(self, name, None)

    # --- parts ---

    def _check_batch(self, name: str, *shapes: Any) -> torch.Size:
        """The batch shape that some shapes have together, which must fit that of the targets."""
        try:
            shape = torch.broadcast_shapes(*shapes)
            fits = torch.broadcast_shapes(shape, self.batch_shape) == self.batch_shape
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(
                f"The batch shape of {name} must broadcast to that of the targets, "
                f"{tuple(self.batch_shape)}, got {', '.join(str(tuple(s)) for s in shapes)}."
            )
        return shape

    def _sample_factors(
        self, coordinates: Sequence[Tensor] | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Covariances of a grid that holds the observed slices, and where these are.

        Args:
            coordinates: Of another grid, which comes after them; None for the model's own.
        """
        if coordinates is None:
            points, kept, regular = self.coordinates, self.kept, self._regular_whole
        else:
            mine = self.train_coordinates
            others = self._other_coordinates(coordinates)
            points = [torch.cat(pair) for pair in zip(mine, others, strict=True)]
            kept = [torch.arange(x.size(0), device=x.device) for x in mine]
            regular = [False] * self.num_dims
        parts = zip(self.kernels, points, regular, strict=True)
        return [factor_matrix(kernel, x, regular=flag) for kernel, x, flag in parts], kept

    def _crosses(self, points: Sequence[Tensor]) -> list[Tensor]:
        parts = zip(self.kernels, points, self.train_coordinates, strict=True)
        return [cross_matrix(kernel, x, own) for kernel, x, own in parts]

    def _other_coordinates(self, coordinates: Sequence[Tensor] | None) -> list[Tensor]:
        if coordinates is None:
            return self.coordinates
        points = check_coordinates(coordinates, self.get_buffer("_targets"))
        expected = [x.size(-1) for x in self.coordinates]
        if [x.size(-1) for x in points] != expected:
            raise ValueError(
                f"coordinates must have {expected} columns in {self.num_dims} dimensions, got "
                f"{[x.size(-1) for x in points]}."
            )
        return points

    def _mean_on(self, coordinates: Sequence[Tensor]) -> Tensor:
        """Prior mean on a grid, ``... x n_1 x ... x n_P`` or of sizes 1 where it is constant."""
        sizes = [x.size(0) for x in coordinates]
        if isinstance(self.mean_module, ConstantMean | ZeroMean):
            point = torch.cat([x[:1] for x in coordinates], -1)
            mean = self.mean_module(point)
            return mean.reshape(*mean.shape[:-1], *[1] * self.num_dims)
        index = torch.meshgrid(*[torch.arange(n) for n in sizes], indexing="ij")
        points = [x[i.flatten()] for x, i in zip(coordinates, index, strict=True)]
        mean = self.mean_module(torch.cat(points, -1))
        return mean.reshape(*mean.shape[:-1], *sizes)

    def _check_kernels(self, kernels: Sequence[Kernel] | Kernel) -> list[Kernel]:
        widths = [x.size(-1) for x in self.coordinates]
        if isinstance(kernels, Kernel) and self.num_dims == 1:
            kernels = [kernels]
        columns = [c.tolist() for c in torch.arange(sum(widths)).split(widths)]
        return factor_kernels(kernels, columns, self.train_coordinates)

    def _check_factors(self, factors: Sequence[Tensor]) -> None:
        for number, (factor, x) in enumerate(zip(factors, self.train_coordinates, strict=True)):
            if tuple(factor.shape[-2:]) != (x.size(0), x.size(0)):
                raise ValueError(
                    f"The kernel of dimension {number} must give {x.size(0)} x {x.size(0)} "
                    f"covariances, got shape {tuple(factor.shape)}."
                )
