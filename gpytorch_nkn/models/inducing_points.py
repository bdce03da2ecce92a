"""The choice of inducing points among inputs."""

from __future__ import annotations

import numpy as np
import torch
from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.kernels import index_kernel_batch

__all__ = ["SELECTIONS", "select_inducing_points"]

SELECTIONS = ("greedy_variance", "kmeans")

# Rows that are looked at: k-means takes time in proportion, greedy selection a square matrix.
_MAX_ROWS = {"kmeans": 20_000, "greedy_variance": 4_000}
_ITERATIONS = 25  # of k-means; later ones hardly move the centres


def select_inducing_points(
    x: Tensor,
    num_points: int,
    *,
    method: str = "kmeans",
    kernel: Kernel | None = None,
    seed: int = 0,
) -> Tensor:
    """Choose inducing points for inputs.

    Args:
        x: Inputs ``... x n x d``. Of more than 20,000 distinct rows (4,000 for
            ``"greedy_variance"``) a random subset stands for all.
        num_points: How many points to choose.
        method: ``"kmeans"`` takes the centres of clusters, columns scaled to unit variance, so
            that points lie where the data are. ``"greedy_variance"`` takes those rows, one after
            another, whose variance given the rows before them is largest under ``kernel``
            (:class:`~botorch.models.utils.inducing_point_allocators.GreedyVarianceReduction`), to
            be used with trained hyperparameters. It may find that fewer do.
        kernel: Kernel of ``"greedy_variance"``; of a batch of kernels the first counts.
        seed: Determines every draw; the global random state is left alone.

    Returns:
        Points ``... x m x d``: all distinct rows, if they are ``num_points`` or fewer. Elements of
        a batch have as many points as the one with the fewest distinct rows can have.

    Raises:
        ValueError: An option has no meaning, or the inputs are not finite.

    Reference: Burt, Rasmussen and van der Wilk (2020), Convergence of Sparse Variational Inference
    in Gaussian Processes Regression.
    """
    _check(x, num_points, method, kernel)
    elements = x.detach().reshape(-1, *x.shape[-2:])
    distinct = [torch.unique(element, dim=0, return_counts=True) for element in elements]
    num_points = min(num_points, *(len(rows) for rows, _ in distinct))
    chosen = []
    for number, (rows, counts) in enumerate(distinct):
        rng = np.random.default_rng([seed, number])
        limit = max(_MAX_ROWS[method], num_points)
        if len(rows) > limit:
            kept = torch.from_numpy(np.sort(rng.choice(len(rows), limit, replace=False)))
            rows, counts = rows[kept.to(rows.device)], counts[kept.to(rows.device)]
        if len(rows) <= num_points:
            chosen.append(rows)
        elif method == "kmeans":
            chosen.append(_centres(rows, counts, num_points, rng))
        else:
            assert kernel is not None
            chosen.append(_greedy(rows, num_points, kernel))
    fewest = min(len(points) for points in chosen)
    points = torch.stack([points[:fewest] for points in chosen])
    return points.reshape(*x.shape[:-2], *points.shape[1:])


def _check(x: Tensor, num_points: int, method: str, kernel: Kernel | None) -> None:
    if method not in SELECTIONS:
        raise ValueError(f"The selection must be one of {SELECTIONS}, got {method!r}.")
    if x.dim() < 2 or x.size(-2) == 0 or x.numel() == 0:
        raise ValueError(f"x must be ... x n x d and not empty, got shape {tuple(x.shape)}.")
    if num_points < 1:
        raise ValueError(f"At least one inducing point is needed, got {num_points}.")
    if not bool(x.isfinite().all()):
        raise ValueError("x must be finite, got NaN or infinite values.")
    if method == "greedy_variance" and kernel is None:
        raise ValueError("The selection 'greedy_variance' needs a kernel, got None.")


def _centres(rows: Tensor, counts: Tensor, num_points: int, rng: np.random.Generator) -> Tensor:
    """Centres of clusters of distinct rows that stand for so many rows each."""
    from sklearn.cluster import KMeans  # takes a second to import

    values, weights = rows.double().cpu().numpy(), counts.double().cpu().numpy()
    location = np.average(values, axis=0, weights=weights)
    scale = np.sqrt(np.average((values - location) ** 2, axis=0, weights=weights))
    # rounding leaves constant columns a scale of their own
    scale[scale <= 1e-9 * np.abs(values).max(axis=0)] = 1.0
    means = KMeans(
        num_points, n_init=1, max_iter=_ITERATIONS, random_state=int(rng.integers(2**31))
    )
    means.fit((values - location) / scale, sample_weight=weights)
    return torch.from_numpy(means.cluster_centers_ * scale + location).to(rows)


def _greedy(rows: Tensor, num_points: int, kernel: Kernel) -> Tensor:
    batch = len(kernel.batch_shape) - 1  # dimensions before that of the outputs
    if batch > 0:
        kernel = index_kernel_batch(kernel, (0,) * batch)
    with torch.no_grad():
        return GreedyVarianceReduction().allocate_inducing_points(
            inputs=rows,
            covar_module=kernel,
            num_inducing=num_points,
            input_batch_shape=torch.Size([]),
        )
