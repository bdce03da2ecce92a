"""Data-adaptive SVMs for many rows: one factor per cluster, and a single SVM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from gpytorch_nkn.estimators.dank.dual import Block
from gpytorch_nkn.estimators.dank.extension import Function, LearnedKernel
from gpytorch_nkn.estimators.dank.svm import FittedSVMs, fit_svms, plain_svms
from gpytorch_nkn.fit import as_finished

__all__ = ["ClusteredKernel", "Clusters", "fit_clusters"]

_KMEANS_ROWS = 20_000  # largest number of rows for k-means
_DENSE = 8_000  # largest number of rows in the SVM's Gram matrix (0.5 GB)


class Clusters:
    """Nearest-centroid partition of training rows by k-means, without empty clusters."""

    def __init__(self, inputs: np.ndarray, number: int, random: np.random.RandomState):
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


class ClusteredKernel(LearnedKernel):
    r"""Base kernel with learned factors inside clusters.

    .. math::
        \tilde k(x, x') = k(x, x') \begin{cases}
            F_c(x, x') & c(x) = c(x') = c \\ 1 & \text{otherwise} \end{cases}

    where ``c(x)`` is the nearest centroid. Thus ``F = 11' + blockdiag(E_c)`` with positive
    semi-definite ``E_c = F_c - 11'``. By lemma 5 of the paper this solves problem (20) without the
    nuclear norm, whose optimal entries between clusters are one. Features of different clusters use
    different columns, so that ``F = 1 + k f f'`` as in :class:`LearnedKernel`.
    """

    def __init__(
        self,
        base: Function,
        rows: np.ndarray,
        clusters: Clusters,
        coefficients: Sequence[np.ndarray | None],
    ):
        super().__init__(base, rows)
        self.clusters = clusters
        self.parts = [
            (cluster, rows[clusters.rows[cluster]], own)
            for cluster, own in enumerate(coefficients)
            if own is not None
        ]

    def features(self, inputs: np.ndarray) -> np.ndarray:
        """Return the features of inputs ``N x D``, with columns for each cluster."""
        labels = self.clusters.assign(inputs)
        found = np.zeros((len(inputs), sum(part[2].shape[1] for part in self.parts)))
        end = 0
        for cluster, rows, coefficients in self.parts:
            start, end = end, end + coefficients.shape[1]
            own = np.flatnonzero(labels == cluster)
            if len(own):
                found[own, start:end] = self.base(inputs[own], rows) @ coefficients
        return found


def fit_clusters(
    table: np.ndarray,
    blocks: Sequence[Block],
    base: Function,
    clusters: Clusters,
    share: float | None,
    eta: float,
    order: np.ndarray,
) -> tuple[ClusteredKernel, FittedSVMs, np.ndarray]:
    """Learn factors inside clusters, then the SVMs.

    The SVMs use as many rows as fit into memory, the support vectors of the clusters' SVMs first
    (Hsieh, Si and Dhillon, 2014). (Theorem 7 of the paper, an exact screening of rows, does not
    hold as printed: for large ``eta`` no row can satisfy (21).)

    Args:
        share: ``eta`` of a cluster, relative to the squared norm of its dual variables; ``None``
            for the given ``eta`` (infinite for ``F = 1``) in all clusters.
        order: Rows in order of use: some of every class, then all.

    Returns:
        The kernel, the SVMs, and the rows of the SVMs.
    """
    kept = np.arange(len(table))
    coefficients: list[np.ndarray | None] = [None] * len(clusters.rows)
    if share is not None or np.isfinite(eta) or len(table) > _DENSE:
        jobs = [(table[rows], [b.restricted(rows) for b in blocks]) for rows in clusters.rows]
        support = np.zeros(len(table), dtype=bool)
        for number, (own, used) in as_finished(
            _learn_cluster, jobs, None, shared=(base, share, eta)
        ):
            coefficients[number] = own
            support[clusters.rows[number][used]] = True
        if len(table) > _DENSE:
            support[order[: len(order) - len(table)]] = True
            kept = np.unique(order[np.argsort(~support[order], kind="stable")][:_DENSE])
    kernel = ClusteredKernel(base, table, clusters, coefficients)
    inner = [block.restricted(kept) for block in blocks]
    return kernel, plain_svms(kernel(table[kept], table[kept]), inner), kept


def _learn_cluster(
    shared: tuple, inputs: np.ndarray, blocks: Sequence[Block]
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the coefficients of the factor of one cluster, and the mask of its support vectors."""
    base, share, eta = shared
    blocks = [block for block in blocks if len(block.rows) and np.ptp(block.targets) > 0.0]
    if not blocks:
        return None, np.zeros(len(inputs), dtype=bool)
    svms, _ = fit_svms(base(inputs, inputs), blocks, share, eta)
    return svms.coefficients, np.any(svms.signed != 0.0, axis=1)
