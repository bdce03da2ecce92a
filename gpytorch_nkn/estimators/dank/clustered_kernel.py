"""Factors learned cluster by cluster, and the kernels they make of a base kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state

from gpytorch_nkn.estimators.dank.support_vectors import SmoothExtension
from gpytorch_nkn.fit import as_finished

__all__ = [
    "ClusteredKernel",
    "Clusters",
    "find_clusters",
    "map_clusters",
]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Kernel = Callable[[Array, Array], Array]

_TILE = 2**22  # entries of a kernel block made at a time, 32 MB


@dataclass(frozen=True)
class Clusters:
    """Nearest-centroid partition of the training rows.

    Attributes:
        centers: ``v x D``.
        labels: Cluster of each row, ``n``.
        rows: Row numbers of each cluster, ``v`` arrays, none empty.
    """

    centers: Array
    labels: Rows
    rows: tuple[Rows, ...]

    def assign(self, inputs: Array) -> Rows:
        """Cluster of each input, ``N x D`` to ``N``: that of the nearest centroid."""
        return pairwise_distances_argmin(inputs, self.centers).astype(np.intp)


def find_clusters(
    inputs: Array,
    n_clusters: int,
    *,
    random_state: int | np.random.RandomState | None = None,
    max_rows: int = 20_000,
) -> Clusters:
    """k-means, from at most ``max_rows`` random rows; clusters left without a row are dropped.

    Raises:
        ValueError: If ``n_clusters`` is not between 1 and ``n``.
    """
    if not 1 <= n_clusters <= len(inputs):
        raise ValueError(
            f"n_clusters must be between 1 and the number of rows, {len(inputs)}, got {n_clusters}."
        )
    sample = inputs
    if len(inputs) > max(max_rows, n_clusters):
        generator = check_random_state(random_state)
        sample = inputs[generator.choice(len(inputs), max(max_rows, n_clusters), replace=False)]
    distinct = len(np.unique(sample, axis=0)) if len(sample) <= 10 * n_clusters else n_clusters
    found = KMeans(min(n_clusters, distinct), n_init=1, random_state=random_state).fit(sample)
    labels = pairwise_distances_argmin(inputs, found.cluster_centers_)
    used, labels = np.unique(labels, return_inverse=True)
    rows = tuple(np.flatnonzero(labels == c) for c in range(len(used)))
    return Clusters(found.cluster_centers_[used], labels.astype(np.intp), rows)


def map_clusters(
    function: Callable[..., Any],
    kernel: Kernel,
    inputs: Array,
    clusters: Clusters,
    parts: Sequence[Any],
    *,
    n_jobs: int | None = None,
) -> list[Any]:
    """``function(gram, part)`` for each cluster, in their order, in parallel through joblib.

    A worker gets the inputs of its cluster and makes the Gram matrix itself, so what travels and
    what a worker holds depend on the largest cluster. ``joblib.parallel_config`` chooses the
    backend, Dask's among others.
    """
    largest_first = np.argsort([-len(rows) for rows in clusters.rows], kind="stable")
    work = ((function, kernel, inputs[clusters.rows[c]], parts[c]) for c in largest_first)
    in_order: list[Any] = [None] * len(largest_first)
    for number, result in as_finished(_on_cluster, work, n_jobs):
        in_order[largest_first[number]] = result
    return in_order


def _on_cluster(function: Callable[..., Any], kernel: Kernel, inputs: Array, part: Any) -> Any:
    return function(kernel(inputs, inputs), part)


class ClusteredKernel:
    r"""A base kernel with learned factors inside clusters.

    .. math::
        \tilde k(x, x') = k(x, x') \begin{cases}
            F_c(x, x') & c(x) = c(x') = c \\ b & \text{otherwise} \end{cases}

    with ``c(x)`` the nearest centroid, so that a value depends on nothing but ``x`` and ``x'``.
    For ``b = 1``, ``F = 11' + blockdiag(E_c)`` with positive semi-definite ``E_c = F_c - 11'``, a
    kernel by Schur's product theorem. It is the solution of the paper's problem (20) with
    ``tau = 0``, for entries between clusters do not enter the predictor there and cost least at
    one. For ``b = 0`` it is the paper's block-diagonal kernel: a set of local SVMs.

    Args:
        kernel: Base kernel of two tables, ``M x D`` and ``N x D`` to ``M x N``.
        inputs: Training inputs, ``n x D``.
        clusters: Of the training inputs.
        extensions: ``F_c`` of each cluster; ``None`` or a trivial one for ones.
        between: ``b``, 1 or 0.

    Raises:
        ValueError: If ``between`` is neither 0 nor 1, or the numbers of clusters differ.
    """

    def __init__(
        self,
        kernel: Kernel,
        inputs: Array,
        clusters: Clusters,
        extensions: Sequence[SmoothExtension | None],
        *,
        between: float = 1.0,
    ):
        if between not in (0.0, 1.0):
            raise ValueError(f"between must be 0 or 1, got {between}.")
        if len(extensions) != len(clusters.rows):
            raise ValueError(
                f"extensions must be as many as clusters, {len(clusters.rows)}, "
                f"got {len(extensions)}."
            )
        self.kernel, self.inputs, self.clusters, self.between = kernel, inputs, clusters, between
        self.extensions = [None if e is None or e.is_trivial else e for e in extensions]
        width = max((e.features_.shape[1] for e in self.extensions if e is not None), default=0)
        self._features = np.zeros((len(inputs), width))
        for rows, extension in zip(clusters.rows, self.extensions, strict=True):
            if extension is not None:
                self._features[rows, : extension.features_.shape[1]] = extension.features_

    @property
    def is_trivial(self) -> bool:
        """Whether it is the base kernel itself."""
        return self.between == 1.0 and all(e is None for e in self.extensions)

    def block(self, left: Rows, right: Rows) -> Array:
        """Values between training rows given by number, ``len(left) x len(right)``."""
        labels, features = self.clusters.labels[left], self._features[left]
        return self._times_factor(self.inputs[left], labels, features, right)

    def outputs(self, inputs: ArrayLike, signed: Array) -> Array:
        """``k~(x, X) s`` at inputs ``N x D``, from ``n`` coefficients; zeros are left out."""
        inputs = np.asarray(inputs, dtype=np.float64)
        used = np.flatnonzero(signed)
        result = np.zeros(len(inputs))
        labels = self.clusters.assign(inputs)
        features = self._new_features(inputs, labels)
        order = np.argsort(labels, kind="stable")  # for b = 0 a tile meets few clusters
        step = max(1, _TILE // max(1, len(used)))
        for first in range(0, len(order), step):
            tile = order[first : first + step]
            right = used
            if self.between == 0.0:
                right = used[np.isin(self.clusters.labels[used], np.unique(labels[tile]))]
            if right.size:
                block = self._times_factor(inputs[tile], labels[tile], features[tile], right)
                result[tile] = block @ signed[right]
        return result

    def _new_features(self, inputs: Array, labels: Rows) -> Array:
        features = np.zeros((len(inputs), self._features.shape[1]))
        for cluster, extension in enumerate(self.extensions):
            new, rows = np.flatnonzero(labels == cluster), self.clusters.rows[cluster]
            if extension is None:
                continue
            step = max(1, _TILE // len(rows))
            for first in range(0, len(new), step):
                tile = new[first : first + step]
                found = extension.features(self.kernel(inputs[tile], self.inputs[rows]))
                features[tile, : found.shape[1]] = found
        return features

    def between_inputs(self, left: Array, right: Array) -> Array:
        """Values between any inputs, ``M x D`` and ``N x D`` to ``M x N``."""
        left_labels, right_labels = self.clusters.assign(left), self.clusters.assign(right)
        return self._times(
            self.kernel(left, right),
            left_labels,
            self._new_features(left, left_labels),
            right_labels,
            self._new_features(right, right_labels),
        )

    def _times_factor(self, inputs: Array, labels: Rows, features: Array, right: Rows) -> Array:
        block = self.kernel(inputs, self.inputs[right])
        return self._times(
            block, labels, features, self.clusters.labels[right], self._features[right]
        )

    def _times(
        self,
        block: Array,
        left_labels: Rows,
        left_features: Array,
        right_labels: Rows,
        right_features: Array,
    ) -> Array:
        """Values of the base kernel times ``F``."""
        if self.between == 0.0:
            block = np.where(left_labels[:, None] == right_labels, block, 0.0)
        for cluster in np.intersect1d(left_labels, right_labels):
            extension = self.extensions[cluster]
            if extension is None:
                continue
            rows = np.flatnonzero(left_labels == cluster)
            columns = np.flatnonzero(right_labels == cluster)
            width = extension.features_.shape[1]
            part = np.ix_(rows, columns)
            inner = block[part]
            block[part] = inner * extension.factor(
                inner, left_features[rows, :width], right_features[columns, :width]
            )
        return block
