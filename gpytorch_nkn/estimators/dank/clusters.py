"""Data-adaptive kernels with one factor per cluster of rows, and their SVMs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from gpytorch_nkn.estimators.dank.dual import Block
from gpytorch_nkn.estimators.dank.extension import Function, times_factor
from gpytorch_nkn.estimators.dank.svm import FittedSVMs, fit_svms, plain_svms
from gpytorch_nkn.fit import as_finished

__all__ = ["Clusters", "LearnedKernel", "fit_clusters"]

_KMEANS_ROWS = 20_000  # largest number of rows for k-means
_DENSE = 8_000  # largest number of rows in the SVM's Gram matrix (0.5 GB)


class Clusters:
    """Nearest-centroid partition of training rows by k-means, without empty clusters."""

    def __init__(self, inputs: np.ndarray, number: int, random: np.random.RandomState):
        if number == 1:
            self.centers, self.rows = inputs[:1], [np.arange(len(inputs))]
            return
        size = min(len(inputs), max(_KMEANS_ROWS, number))
        sample = inputs[random.permutation(len(inputs))[:size]]
        number = min(number, len(np.unique(sample, axis=0)))
        centers = KMeans(number, n_init=1, random_state=random).fit(sample).cluster_centers_
        used, labels = np.unique(pairwise_distances_argmin(inputs, centers), return_inverse=True)
        self.centers = centers[used]
        self.rows = [np.flatnonzero(labels == cluster) for cluster in range(len(used))]

    def assign(self, inputs: np.ndarray) -> np.ndarray:
        """Return the index of the nearest centroid, ``N``, of inputs ``N x D``."""
        return pairwise_distances_argmin(inputs, self.centers)


class LearnedKernel:
    r"""Base kernel with learned factors inside clusters.

    .. math::
        \tilde k(x, x') = k(x, x') \begin{cases}
            F_c(x, x') & c(x) = c(x') = c \\ 1 & \text{otherwise} \end{cases}

    where ``c(x)`` is the nearest centroid. Thus ``F = 11' + blockdiag(E_c)`` with positive
    semi-definite ``E_c = F_c - 11'``. By lemma 5 of the paper, this ``F`` solves problem (20)
    without the nuclear norm: optimal entries between clusters are 1. Features of different clusters
    are different columns of ``f``, so that ``F = 1 + k f f'`` as in :func:`smooth_coefficients`.
    """

    def __init__(
        self,
        base: Function,
        rows: np.ndarray,
        clusters: Clusters,
        svms: Sequence[FittedSVMs | None],
    ):
        self.base, self.rows, self.clusters = base, rows, clusters
        self.parts = [
            (cluster, rows[clusters.rows[cluster]], fitted.coefficients)
            for cluster, fitted in enumerate(svms)
            if fitted is not None and fitted.coefficients is not None
        ]

    def features(self, inputs: np.ndarray) -> np.ndarray:
        """Return features ``f``, ``N x Q``, of inputs ``N x D``: columns of each factor in turn."""
        labels = self.clusters.assign(inputs)
        features = np.zeros((len(inputs), sum(part[2].shape[1] for part in self.parts)))
        end = 0
        for cluster, rows, coefficients in self.parts:
            start, end = end, end + coefficients.shape[1]
            members = np.flatnonzero(labels == cluster)
            if len(members):
                features[members, start:end] = self.base(inputs[members], rows) @ coefficients
        return features

    def __call__(
        self, left: np.ndarray, right: np.ndarray, features: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the Gram matrix ``M x N``, given features of the second argument, if known."""
        gram = self.base(left, right)
        features = self.features(right) if features is None else features
        return times_factor(gram, self.features(left), features) if features.size else gram


def fit_clusters(
    table: np.ndarray,
    blocks: Sequence[Block],
    base: Function,
    clusters: Clusters,
    share: float | None,
    eta: float,
    order: np.ndarray,
) -> tuple[LearnedKernel, FittedSVMs, np.ndarray]:
    """Learn factors in clusters, then the SVMs; return the kernel, the SVMs, their row indices.

    With several clusters, the final SVMs use up to 8000 rows, preferably support vectors of the
    clusters' SVMs (Hsieh, Si and Dhillon, 2014). (Theorem 7 of the paper, an exact screening of
    rows, does not hold as printed: for large ``eta`` no row can satisfy (21).)

    ``share`` is ``eta`` of a cluster, relative to the squared norm of its dual variables; ``None``
    for the given ``eta`` (infinite for ``F = 1``). ``order`` has row indices: a sample of every
    class, which is always used, then a permutation of all rows.
    """
    kept = np.arange(len(table))
    if len(clusters.rows) == 1:
        svms = fit_svms(base(table, table), blocks, share, eta)
        return LearnedKernel(base, table, clusters, [svms]), svms, kept
    learned: list[FittedSVMs | None] = [None] * len(clusters.rows)
    if share is not None or np.isfinite(eta) or len(table) > _DENSE:
        jobs = [(table[rows], _cluster_blocks(blocks, rows)) for rows in clusters.rows]
        for number, fitted in as_finished(_learn_cluster, jobs, None, shared=(base, share, eta)):
            learned[number] = fitted
    if len(table) > _DENSE:
        support = np.zeros(len(table), dtype=bool)
        for rows, fitted in zip(clusters.rows, learned, strict=True):
            if fitted is not None:
                support[rows[fitted.signed.any(axis=1)]] = True
        support[order[: len(order) - len(table)]] = True
        kept = np.unique(order[np.argsort(~support[order], kind="stable")][:_DENSE])
    kernel = LearnedKernel(base, table, clusters, learned)
    inner = [block.restricted(kept) for block in blocks]
    svms = plain_svms(kernel(table[kept], table[kept]), inner)
    return kernel, replace(svms, eta=eta if share is None else math.nan), kept


def _cluster_blocks(blocks: Sequence[Block], rows: np.ndarray) -> list[Block]:
    """Return the SVMs of a cluster, without those whose targets are all equal."""
    inside = [block.restricted(rows) for block in blocks]
    return [block for block in inside if len(block.rows) and np.ptp(block.targets) > 0.0]


def _learn_cluster(shared: tuple, inputs: np.ndarray, blocks: Sequence[Block]) -> FittedSVMs | None:
    """Train the SVMs of a cluster; return ``None`` if there are no SVMs."""
    base, share, eta = shared
    return fit_svms(base(inputs, inputs), blocks, share, eta) if blocks else None
