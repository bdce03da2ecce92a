import pickle
from functools import partial

import joblib
import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from gpytorch_nkn.estimators.dank import clustered_kernel
from gpytorch_nkn.estimators.dank.clustered_kernel import (
    ClusteredKernel,
    find_clusters,
    map_clusters,
)
from gpytorch_nkn.estimators.dank.support_vectors.extension import SmoothExtension

kernel = partial(rbf_kernel, gamma=3.0)


def blobs(n=120, seed=0):
    generator = np.random.default_rng(seed)
    centers = generator.integers(0, 3, n)
    inputs = generator.normal(0, 0.4, (n, 2)) + 1.5 * np.stack([centers, centers % 2], 1)
    labels = np.where(np.sin(4 * inputs[:, 0]) + generator.normal(0, 0.3, n) > 0, 1.0, -1.0)
    return inputs, labels


def learned(inputs, clusters, seed=1, between=1.0):
    """A kernel whose factors are far from one, made of random coefficients."""
    generator = np.random.default_rng(seed)
    extensions = []
    for rows in clusters.rows:
        gram = kernel(inputs[rows], inputs[rows])
        signed = gram @ generator.normal(size=(len(rows), 2))  # smooth, so that it is learned
        extensions.append(SmoothExtension(gram, signed, 0.5, 0.0))
    return ClusteredKernel(kernel, inputs, clusters, extensions, between=between)


def gram_size_and_sum(gram, labels):
    return len(gram), gram.sum(), labels.sum()


def test_clusters_are_those_of_the_nearest_centroid():
    inputs, _ = blobs()
    clusters = find_clusters(inputs, 3, random_state=0)
    distances = ((inputs[:, None] - clusters.centers) ** 2).sum(-1)
    np.testing.assert_array_equal(clusters.labels, distances.argmin(1))
    np.testing.assert_array_equal(clusters.assign(inputs), clusters.labels)
    for cluster, rows in enumerate(clusters.rows):
        np.testing.assert_array_equal(rows, np.flatnonzero(clusters.labels == cluster))
        np.testing.assert_allclose(clusters.centers[cluster], inputs[rows].mean(0), atol=1e-6)
    again = find_clusters(inputs, 3, random_state=0)
    np.testing.assert_array_equal(again.labels, clusters.labels)
    few = find_clusters(inputs, 3, random_state=0, max_rows=40)
    assert len(few.labels) == 120 and len(few.rows) == 3


def test_equal_rows_make_fewer_clusters_without_a_warning():
    inputs = np.repeat([[0.0], [1.0]], 4, axis=0)
    clusters = find_clusters(inputs, 5, random_state=0)
    assert [len(rows) for rows in clusters.rows] == [4, 4]
    with pytest.raises(ValueError, match=r"between 1 and the number of rows, 8, got 9"):
        find_clusters(inputs, 9)


@pytest.mark.parametrize("between", [1.0, 0.0])
def test_values_equal_the_formula_written_out(between):
    inputs, _ = blobs()
    clusters = find_clusters(inputs, 3, random_state=0)
    clustered = learned(inputs, clusters, between=between)
    full = clustered.block(np.arange(120), np.arange(120))
    same_pair, other_pair = clusters.rows[1][:2], (clusters.rows[0][0], clusters.rows[1][0])
    i, j = same_pair
    base = np.exp(-3 * ((inputs[i] - inputs[j]) ** 2).sum())
    rows, extension = clusters.rows[1], clustered.extensions[1]
    smooth = [kernel(inputs[[r]], inputs[rows])[0] @ extension.coefficients_ for r in (i, j)]
    expected = base * (1 + base * (smooth[0] @ smooth[1]) / (4 * 0.5))
    assert abs(expected / base - 1) > 0.1
    assert full[i, j] == pytest.approx(expected)
    i, j = other_pair
    base = np.exp(-3 * ((inputs[i] - inputs[j]) ** 2).sum())
    assert full[i, j] == pytest.approx(between * base)


def test_the_kernel_is_semi_definite_and_the_same_for_new_inputs_in_any_batch(monkeypatch):
    inputs, _ = blobs()
    clusters = find_clusters(inputs, 3, random_state=0)
    clustered = learned(inputs, clusters)
    full = clustered.block(np.arange(120), np.arange(120))
    assert np.linalg.eigvalsh(full)[0] > -1e-10 * np.abs(full).max()
    order = np.random.default_rng(0).permutation(120)[:50]
    np.testing.assert_allclose(
        clustered.block(order, order[:20]), full[np.ix_(order, order[:20])], rtol=1e-10
    )
    signed = np.random.default_rng(3).normal(size=120)
    signed[::3] = 0.0
    np.testing.assert_allclose(clustered.outputs(inputs, signed), full @ signed, rtol=1e-8)
    monkeypatch.setattr(clustered_kernel, "_TILE", 500)
    new = inputs[:30] + 0.05
    together = clustered.outputs(new, signed)
    alone = np.concatenate([clustered.outputs(x[None], signed) for x in new])
    np.testing.assert_allclose(together, alone, rtol=1e-10)
    block = learned(inputs, clusters, between=0.0)
    full = block.block(np.arange(120), np.arange(120))
    np.testing.assert_allclose(block.outputs(inputs, signed), full @ signed, rtol=1e-8)
    copy = pickle.loads(pickle.dumps(clustered))
    np.testing.assert_array_equal(copy.outputs(new, signed), together)


def test_no_factor_is_the_base_kernel():
    inputs, labels = blobs()
    clusters = find_clusters(inputs, 3, random_state=0)
    clustered = ClusteredKernel(kernel, inputs, clusters, [None] * 3)
    assert clustered.is_trivial
    machine = SVC(C=2.0, gamma=3.0, tol=1e-8).fit(inputs, labels)
    signed = np.zeros(120)
    signed[machine.support_] = machine.dual_coef_[0]
    expected = machine.decision_function(inputs + 0.1) - machine.intercept_
    np.testing.assert_allclose(clustered.outputs(inputs + 0.1, signed), expected, atol=1e-9)
    assert not learned(inputs, clusters).is_trivial
    with pytest.raises(ValueError, match=r"as many as clusters, 3, got 2"):
        ClusteredKernel(kernel, inputs, clusters, [None, None])
    with pytest.raises(ValueError, match=r"between must be 0 or 1, got 0\.5"):
        ClusteredKernel(kernel, inputs, clusters, [None] * 3, between=0.5)


def test_clusters_are_worked_on_one_by_one_and_given_back_in_order():
    inputs, labels = blobs()
    clusters = find_clusters(inputs, 3, random_state=0)
    expected = [
        (len(r), kernel(inputs[r], inputs[r]).sum(), labels[r].sum()) for r in clusters.rows
    ]
    assert len({size for size, *_ in expected}) == 3
    with joblib.parallel_config("threading", n_jobs=2):
        parts = [labels[rows] for rows in clusters.rows]
        found = map_clusters(gram_size_and_sum, kernel, inputs, clusters, parts)
    np.testing.assert_allclose(found, expected)
