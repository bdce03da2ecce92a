"""Gaussian process on a grid with missing cells and one kernel per dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import wraps
from typing import Any, NoReturn

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, Mean, ZeroMean
from gpytorch.models.gp import GP
from gpytorch.settings import detach_test_caches
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from torch import Tensor, nn

from gpytorch_nkn._devices import normal
from gpytorch_nkn.kernels import variances_of
from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.linalg import (
    GridLikelihood,
    HeldOutBlocks,
    KroneckerEigen,
    PartialGrid,
    PartialKronecker,
    check_counts,
    check_flags,
    check_number,
    kronecker_multiply,
)
from gpytorch_nkn.linalg.grid import outer_product, put_slices, take_slices
from gpytorch_nkn.models.base_gp import TrainerOnly, explained_mismatch, jittered
from gpytorch_nkn.models.common import check_batch, check_likelihood, check_parts, make_likelihood
from gpytorch_nkn.models.grid.grid_data import (
    check_grid,
    check_kernels,
    check_variances,
    transform_outcomes,
)
from gpytorch_nkn.models.grid.grid_posterior import GridPosterior

__all__ = ["KroneckerGridGP", "factor_matrix"]

_LEAST = 1e-9  # smallest variance without a warning from GPyTorch
_LEAST_EXTRA = 1e-6  # smaller differences of known variances are rounded to 0
_MAX_ELEMENTS = 2**27  # largest number of tensor elements of a joint posterior


def _in_double(method: Callable) -> Callable:
    """Run a method of a float32 model on a cached float64 copy.

    Variances are small differences of large numbers, which float32 cannot represent.
    """

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = self.get_buffer("_targets").dtype
        if dtype == torch.float64:
            return method(self, *args, **kwargs)
        double = self._cached("double", lambda: deepcopy(self).double().eval())
        result = method(double, *args, **kwargs)
        return result.to(dtype) if isinstance(result, Tensor) else [t.to(dtype) for t in result]

    return wrapped


class KroneckerGridGP(TrainerOnly, GPyTorchModel, GP):
    r"""Exact Gaussian process on a grid with missing cells.

    .. math::
        y(x_1, \dots, x_P) = m + f(x_1, \dots, x_P) + \varepsilon, \qquad
        \operatorname{cov}(f(x), f(x')) = \prod_{p=1}^P k_p(x_p, x'_p)

    Use it for images, videos and sensor arrays of ten thousand to millions of cells. The Kronecker
    product is never formed; one evaluation takes :math:`O(\sum_p n_p^3 + i N \sum_p n_p)` time for
    N cells and i iterations. The model conditions on the observed cells only, without the paper's
    imaginary observations. It drops slices without an observed cell, so coordinates that are only
    predicted cost nothing in training.

    Args:
        coordinates: One tensor ``n_p`` or ``n_p x c_p`` per dimension, in any order and spacing.
        targets: Values ``... x n_1 x ... x n_P``, NaN where missing. Batch elements are grids, such
            as the channels of an image.
        kernels: One kernel per dimension, on its columns. Their batch shapes must broadcast to the
            batch shape of the targets.
        train_Yvar: Known noise variance, or one per cell, in addition to the learned noise. If the
            variances differ, every solve uses conjugate gradients on all cells, and the
            determinant is approximated, see :class:`.GridLikelihood`.
        likelihood: ``None`` for a Gaussian likelihood with a weak log-normal prior on the noise.
        mean_module: ``None`` for a constant.
        outcome_transform: By default, standardise; ``None`` for no transform.
        tolerance: Relative residual of solves in predictions; ``None`` for 1e-6 (float32: 1e-4).
        max_iterations: Largest number of conjugate gradient iterations. If a residual then exceeds
            ten times the tolerance, a :class:`NumericalWarning` is issued.

    ``fit_gpytorch_mll`` trains the model by :func:`fit_grid_gp` and accepts its options. A custom
    loop minimises ``-model.log_marginal_likelihood()``. The model has no ``train_inputs``.

    Raises:
        TypeError: Targets are not floating-point numbers, or a kernel or the likelihood has a wrong
            type.
        ValueError: Shapes do not fit, coordinates are not finite, or a grid has fewer than two
            observed cells.

    Reference: Sun et al. (2018), section 5.4 and appendix J.4; Wilson et al. (2014), Fast Kernel
    Learning for Multidimensional Pattern Extrapolation; Saatçi (2012).

    Example:
        >>> from gpytorch.kernels import PeriodicKernel, RBFKernel
        >>> rows, columns = torch.linspace(0, 1, 30).double(), torch.linspace(0, 2, 20).double()
        >>> image = torch.sin(9 * rows)[:, None] * columns.cos()
        >>> image[10:15, 5:12] = torch.nan
        >>> model = KroneckerGridGP([rows, columns], image, [PeriodicKernel(), RBFKernel()])
        >>> mean, variance = model.predict()  # at the missing cells
    """

    _num_outputs = 1
    max_residual = 10.0  # largest residual of a solve without a warning, over the tolerance
    likelihood: GaussianLikelihood
    outcome_transform: OutcomeTransform
    _known_noise: Tensor | None
    _cache: dict[str, Any]

    def __init__(
        self,
        coordinates: Sequence[Tensor],
        targets: Tensor,
        kernels: Sequence[Kernel],
        *,
        train_Yvar: Tensor | float | None = None,
        likelihood: GaussianLikelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        tolerance: float | None = None,
        max_iterations: int = 1000,
    ):
        super().__init__()
        if tolerance is not None:
            check_number("tolerance", tolerance, positive=False)
            if not 0 < tolerance < 1:
                raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}.")
        check_counts(1, max_iterations=max_iterations)
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self._clear_cache()
        data = check_grid(coordinates, targets)
        self.num_dims = len(data.coordinates)
        self._num_columns = (sum(x.size(-1) for x in data.coordinates),)
        self._sizes = tuple(x.size(0) for x in data.coordinates)
        self._batch_shape = data.targets.shape[: -self.num_dims]
        for dim, (x, kept) in enumerate(zip(data.coordinates, data.kept, strict=True)):
            self.register_buffer(f"_coordinates_{dim}", x, persistent=False)
            self.register_buffer(f"_kept_{dim}", kept, persistent=False)
        self.kernels = nn.ModuleList(check_kernels(kernels, self.train_coordinates))
        shapes = [kernel.batch_shape for kernel in self.kernels]
        kernel_shape = check_batch("the kernels", self._batch_shape, *shapes)
        check_likelihood(likelihood)
        self.likelihood = make_likelihood(kernel_shape) if likelihood is None else likelihood
        if mean_module is None:
            mean_module = ConstantMean(batch_shape=self._batch_shape)
        self.mean_module = mean_module
        values = data.targets
        if outcome_transform is not None:
            self.outcome_transform, values = transform_outcomes(data, outcome_transform)
        known_noise = None
        if train_Yvar is not None:
            known_noise = check_variances(train_Yvar, data, self._sizes)
            if outcome_transform is not None:
                known_noise = self._flat_call(self.outcome_transform, data.targets, known_noise)[1]
        self.register_buffer("_known_noise", known_noise, persistent=False)
        self.register_buffer("_observed", data.observed, persistent=False)
        self.register_buffer("_targets", values.contiguous(), persistent=False)
        self.to(data.targets)
        cell = torch.cat([x[:1] for x in self.train_coordinates], -1)
        check_parts(self._batch_shape, cell, self.mean_module, self.likelihood)

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
        """Indices of the slices with an observed cell."""
        return [self.get_buffer(f"_kept_{dim}") for dim in range(self.num_dims)]

    @property
    def train_coordinates(self) -> list[Tensor]:
        """Coordinates of the slices with an observed cell."""
        return [x[rows] for x, rows in zip(self.coordinates, self.kept, strict=True)]

    @property
    def grid(self) -> PartialGrid:
        """Observed cells of these slices, without a batch if they are equal in all grids."""
        if "grid" not in self._cache:
            parts = [self.get_buffer("_observed")]
            if self._known_noise is not None:
                extra = self._known_noise - self._least_noise()
                parts.append(torch.where(extra > _LEAST_EXTRA, extra, 0.0))
            firsts = [part.reshape(-1, *part.shape[-self.num_dims :])[0] for part in parts]
            pairs = zip(parts, firsts, strict=True)
            if all(bool((part == first).all()) for part, first in pairs):
                parts = firsts
            observed, *known = parts
            self._cache["grid"] = PartialGrid(observed, self.num_dims, *known)
        return self._cache["grid"]

    def _least_noise(self) -> Tensor:
        """Return the smallest known noise variance, which is part of the noise of every cell."""
        return self.get_buffer("_known_noise")[self.get_buffer("_observed")].min()

    def _flat_call(self, function: Callable, *arrays: Tensor) -> list[Tensor]:
        """Call a function of outcomes and variances ``... x N x 1`` with grids."""
        shape = arrays[0].shape
        results = function(*(array.flatten(-self.num_dims).unsqueeze(-1) for array in arrays))
        return [result.reshape(shape) for result, _ in zip(results, arrays, strict=False)]

    @property
    def missing(self) -> Tensor:
        """Mask of the missing cells, ``... x n_1 x ... x n_P``."""
        return ~put_slices(self.get_buffer("_observed"), self.kept, self._sizes)

    def _matrices(self, coordinates: Sequence[Tensor]) -> list[Tensor]:
        return [factor_matrix(k, x) for k, x in zip(self.kernels, coordinates, strict=True)]

    def residual(self) -> Tensor:
        """Return targets minus prior mean on the slices with an observed cell."""
        return self.get_buffer("_targets") - self._mean_on(self.train_coordinates)

    def noise_variance(self) -> Tensor:
        """Return the noise variance of all cells, with the batch shape of the likelihood."""
        learned = self.likelihood.noise.squeeze(-1)
        return learned if self._known_noise is None else learned + self._least_noise()

    def _new_noise(self) -> Tensor:
        """Return the noise variance of new observations: learned noise and mean known noise."""
        if self.grid.extra is None:
            return self.noise_variance()
        return self.noise_variance() + self.grid.extra[self.grid.observed].mean()

    def trimmed(self, array: Tensor) -> Tensor:
        """Select the slices with an observed cell from a tensor ``... x n_1 x ... x n_P``."""
        shape = tuple(getattr(array, "shape", ()))
        if shape[-self.num_dims :] != self._sizes:
            raise ValueError(
                f"Expected a tensor with the grid's last dimensions, {self._sizes}, got shape "
                f"{shape}."
            )
        return take_slices(array, self.kept)

    def _options(self) -> dict[str, Any]:
        default = 1e-6 if self.get_buffer("_targets").dtype == torch.float64 else 1e-4
        tolerance = default if self.tolerance is None else self.tolerance
        limits = {"max_iterations": self.max_iterations, "max_residual": self.max_residual}
        return {"tolerance": tolerance} | limits

    def loss_inputs(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return residual, noise variance and factor matrices for :class:`.GridLikelihood`."""
        factors = self._matrices(self.train_coordinates)
        return self.residual(), self.noise_variance(), factors

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood ``...`` of the transformed targets, differentiable.

        If cells are missing, the log-determinant is an approximation, see
        :class:`.GridLikelihood`.
        """
        return -GridLikelihood(self.grid, **self._options())(*self.loss_inputs())

    def block_means(self, blocks: Tensor) -> Iterator[Tensor]:
        """Yield predictions of all cells ``... x n_1 x ... x n_P`` without each block.

        Predictions are transformed targets, and 0 in slices without an observed cell.

        Args:
            blocks: Masks of blocks ``B x n_1 x ... x n_P``; missing cells are ignored.
        """
        loss = HeldOutBlocks(self.grid, self.trimmed(blocks), **self._options())
        with torch.no_grad():
            mean = self._mean_on(self.train_coordinates)
            for prediction in loss.predictions(*self.loss_inputs()):
                inner = (prediction + mean).expand(
                    *self.batch_shape, *prediction.shape[-self.num_dims :]
                )
                yield put_slices(inner, self.kept, self._sizes)

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, **options: Any) -> dict[str, Any]:
        """Raise a NotImplementedError: rows of a data set do not define a grid."""
        raise NotImplementedError(
            "KroneckerGridGP does not support data sets of rows: call its constructor with the "
            "coordinates of each dimension."
        )

    @_in_double
    def grid_mean(self) -> Tensor:
        """Return the posterior mean ``... x n_1 x ... x n_P``, without gradients.

        Means are in units of the targets, or medians if the outcome transform is not affine.
        """
        with torch.no_grad():
            mean = self._grid_posterior().mean(self._crosses(self.coordinates))
            mean = mean + self._mean_on(self.coordinates)
            flat = mean.reshape(*self.batch_shape, -1)
            return self._untransformed(flat, torch.zeros_like(flat))[0].view_as(mean)

    @_in_double
    def predict(
        self, cells: Tensor | None = None, *, observation_noise: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Predict means and variances ``... x T`` at selected cells, in units of the targets.

        If more than 6,000 cells are missing, each variance needs a solve. Many variances can then
        be estimated from S draws of :meth:`sample`, with relative standard error ``sqrt(2 / S)``.

        Args:
            cells: Mask ``n_1 x ... x n_P`` of T cells; ``None`` for the cells that are missing in
                any grid of the batch.
            observation_noise: Include the noise in the variances.

        Raises:
            ValueError: ``cells`` is not a mask of the grid.
        """
        check_flags(observation_noise=observation_noise)
        solved = self._grid_posterior()
        if cells is None:
            cells = self.missing.reshape(-1, *self._sizes).any(0)
        cells = torch.as_tensor(cells)
        if cells.dtype != torch.bool or tuple(cells.shape) != self._sizes:
            raise ValueError(
                f"cells must be booleans of shape {self._sizes}, got {cells.dtype} of shape "
                f"{tuple(cells.shape)}."
            )
        with torch.no_grad():
            crosses = self._crosses(self.coordinates)
            mean = solved.mean(crosses) + self._mean_on(self.coordinates)
            mean = mean.expand(*self.batch_shape, *self._sizes)[..., cells]
            parts = zip(self.kernels, self.coordinates, strict=True)
            prior = outer_product([variances_of(k, x) for k, x in parts])[..., cells]
            index = cells.nonzero().unbind(-1)
            rows = [cross[..., i, :] for cross, i in zip(crosses, index, strict=True)]
            variance = (prior - solved.explained(rows, diag=True)).clamp_min(0.0)
            if observation_noise:
                variance = variance + self._new_noise().unsqueeze(-1)
            return self._untransformed(mean, variance.expand_as(mean))

    @_in_double
    def sample(self, num_samples: int, *, observation_noise: bool = False, seed: int = 0) -> Tensor:
        """Draw joint posterior samples ``S x ... x n_1 x ... x n_P``, in units of the targets.

        Each sample takes one solve.

        Args:
            num_samples: Number S of samples.
            observation_noise: Add noise.
            seed: Determines the samples; the global random state does not change.

        Reference: Wilson et al. (2021), Pathwise Conditioning of Gaussian Processes.
        """
        check_counts(1, num_samples=num_samples)
        check_flags(observation_noise=observation_noise)
        generator = torch.Generator().manual_seed(int(seed))

        def draw(like: Tensor) -> Tensor:
            return normal(like.shape, generator).to(like)

        with torch.no_grad():
            solved, crosses = self._grid_posterior(), self._crosses(self.coordinates)
            grid = solved.system.grid
            residual = solved.residual.expand(*self.batch_shape, *grid.shape)
            noise = solved.system.noise if grid.extra is None else solved.system.noise + grid.extra
            eigen = KroneckerEigen(self._matrices(self.coordinates))
            pairs = zip(eigen.vectors, eigen.values, strict=True)
            roots = [vectors * values.sqrt().unsqueeze(-2) for vectors, values in pairs]
            like = residual.new_empty(*self.batch_shape, *self._sizes)
            samples = []
            for _ in range(num_samples):  # prior sample, corrected by its difference to the data
                prior = kronecker_multiply(roots, draw(like))
                values = take_slices(prior, self.kept)
                values = values + noise.sqrt() * draw(values)
                error = GridPosterior(solved.system, grid.observed * (residual - values))
                samples.append(prior + error.mean(crosses))
            drawn = torch.stack(samples) + self._mean_on(self.coordinates)
            if observation_noise:
                scale = self._new_noise().sqrt()[(..., *[None] * self.num_dims)]
                drawn = drawn + scale * draw(drawn)
            if hasattr(self, "outcome_transform"):
                flat = drawn.flatten(-self.num_dims).unsqueeze(-1)
                drawn = self.outcome_transform.untransform(flat)[0].view_as(drawn)
            return drawn

    def _untransformed(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances ``... x T`` in units of the targets."""
        if not hasattr(self, "outcome_transform"):
            return mean, variance
        normal = GPyTorchPosterior(
            MultivariateNormal(mean, DiagLinearOperator(variance.clamp_min(_LEAST)))
        )
        posterior: Any = self.outcome_transform.untransform_posterior(normal)
        if isinstance(posterior, GPyTorchPosterior):  # in small units GPyTorch limits variances
            covariance = posterior.distribution.lazy_covariance_matrix
            return posterior.mean.squeeze(-1), covariance.diagonal(dim1=-1, dim2=-2)
        return posterior.mean.squeeze(-1), posterior.variance.squeeze(-1)

    def __call__(self, X: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Return the joint prior (training mode) or posterior of the function at points.

        Args:
            X: Points ``... x q x D``, the coordinates of all dimensions concatenated.

        Raises:
            NotImplementedError: ``propagate_grads`` requests gradients through the training data.
        """
        if not self.training and detach_test_caches.off() and torch.is_grad_enabled():
            raise NotImplementedError(
                "Posteriors of a KroneckerGridGP have gradients with respect to X only, but "
                "propagate_grads requests gradients with respect to parameters and data."
            )
        mean, covariance = self._joint(self._check_points(X), posterior=not self.training)
        normal = MultivariateNormal(mean, to_linear_operator(covariance))
        return normal if self.training else jittered(normal)

    @_in_double
    def _joint(self, X: Tensor, *, posterior: bool) -> tuple[Tensor, Tensor]:
        X = X.to(self.get_buffer("_targets"))
        points = X.split([x.size(-1) for x in self.coordinates], -1)
        if posterior:
            solved = self._grid_posterior()
            size = X.shape[:-1].numel() * max(solved.system.inverse.numel(), X.size(-2))
            if size > _MAX_ELEMENTS:
                raise ValueError(
                    f"Points X must need at most {_MAX_ELEMENTS} tensor elements, got "
                    f"{X.size(-2)} points that need {size}; pass fewer at a time, or use predict "
                    "or sample for cells of the grid."
                )
        covariance = torch.ones((), dtype=X.dtype, device=X.device)
        for kernel, x in zip(self.kernels, points, strict=True):
            covariance = covariance * kernel_values(kernel, x, x)
        mean = self.mean_module(X)
        if posterior:
            rows = self._crosses(points)
            mean = mean + solved.point_means(rows)
            covariance = covariance - solved.explained(rows)
        covariance = covariance.expand(*mean.shape[:-1], *covariance.shape[-2:])
        return mean.expand(covariance.shape[:-1]), covariance

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """Return the posterior as in BoTorch, at points ``... x q x D``."""
        if observation_noise is True and self._known_noise is not None:
            shape = torch.broadcast_shapes(self._check_points(X).shape[:-2], self.batch_shape)
            X = X.expand(*shape, *X.shape[-2:])
            observation_noise = self._new_noise()[..., None, None].expand(*X.shape[:-1], 1)
        return super().posterior(X, output_indices, observation_noise, posterior_transform)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Call the model."""
        return self(X)

    def load_state_dict(  # type: ignore[override]
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Load a state as in BoTorch; with ``keep_transforms``, transform the targets again."""
        # BoTorch's method needs training inputs with N rows
        names = ["_targets", "_known_noise"][: 1 if self._known_noise is None else 2]
        data = [self.get_buffer(name) for name in names]
        transform = getattr(self, "outcome_transform", None) if keep_transforms else None
        if transform is not None:
            data = self._flat_call(transform.untransform, *data)
        with explained_mismatch():
            keys = nn.Module.load_state_dict(self, state_dict, strict=strict, assign=assign)
        if transform is not None:
            data = self._flat_call(transform.eval(), *data)
        for name, values in zip(names, data, strict=True):
            setattr(self, name, torch.where(self.get_buffer("_observed"), values, 0.0))
        self._clear_cache()
        return keys

    def condition_on_observations(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error, because single points do not form a grid."""
        raise NotImplementedError(
            "KroneckerGridGP cannot condition on points: make a model of the grid with the new "
            "cells and load this model's state_dict."
        )

    fantasize = get_fantasy_model = condition_on_observations

    def _apply(self, fn: Callable, recurse: bool = True) -> Any:
        self._clear_cache()
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    def _clear_cache(self) -> None:
        """Clear cached results; GPyTorch calls this if parameters change."""
        self._cache = {}

    def _cached(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a cached result, recomputed if a parameter or an option has changed."""
        # compare values, because GPyTorch's setters write to .data without a new version
        numbers = [torch.tensor(list(self._options().values())), *self.parameters()]
        key = torch.cat([number.detach().reshape(-1).double().cpu() for number in numbers])
        if name not in self._cache or not torch.equal(self._cache[name][0], key):
            self._cache[name] = key, make()
        return self._cache[name][1]

    def _grid_posterior(self) -> GridPosterior:
        @torch.no_grad()
        def make() -> GridPosterior:
            residual, noise, factors = self.loss_inputs()
            system = PartialKronecker(self.grid, factors, noise, **self._options())
            return GridPosterior(system, self.grid.observed * residual)

        return self._cached("posterior", make)

    def _crosses(self, points: Sequence[Tensor]) -> list[Tensor]:
        parts = zip(self.kernels, points, self.train_coordinates, strict=True)
        return [kernel_values(kernel, x, train) for kernel, x, train in parts]

    def _mean_on(self, coordinates: Sequence[Tensor]) -> Tensor:
        """Return the prior mean ``... x n_1 x ... x n_P``; for a constant, all n_p are 1."""
        sizes = [x.size(0) for x in coordinates]
        if isinstance(self.mean_module, ConstantMean | ZeroMean):
            coordinates, sizes = [x[:1] for x in coordinates], [1] * self.num_dims
        steps = [torch.arange(n, device=coordinates[0].device) for n in sizes]
        index = torch.meshgrid(*steps, indexing="ij")
        points = [x[i.flatten()] for x, i in zip(coordinates, index, strict=True)]
        mean = self.mean_module(torch.cat(points, -1))
        return mean.reshape(*mean.shape[:-1], *sizes)


def factor_matrix(kernel: Kernel, x: Tensor) -> Tensor:
    """Compute the covariance ``... x n x n`` of coordinates ``n x c``, differentiable.

    For a stationary kernel and one column of equal steps, the first row determines the matrix. The
    middle row is checked against it, because GPyTorch treats every kernel with a lengthscale as
    stationary.
    """
    n, eps, steps = x.size(0), torch.finfo(x.dtype).eps, x.diff(dim=0)
    regular = x.size(-1) == 1 and n > 2
    if kernel.is_stationary and regular and _is_small(steps - steps.mean(), 16 * eps * x):
        rows = kernel(x[[0, n // 2]], x).to_dense()
        index = torch.arange(n, device=x.device)
        lags = (index.unsqueeze(-1) - index).abs()
        difference = rows[..., 1, :] - rows[..., 0, lags[n // 2]]
        if _is_small(difference, 1e4 * eps * rows[..., 0, 0]):
            return rows[..., 0, :][..., lags]
    return kernel(x).to_dense()


def _is_small(difference: Tensor, scale: Tensor) -> bool:
    return bool(difference.detach().abs().max() <= scale.detach().abs().max())
