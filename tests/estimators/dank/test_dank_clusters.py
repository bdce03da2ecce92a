"""Data-adaptive machines in clusters, against dense computations."""

import pickle

import numpy as np
import pytest
from joblib import parallel_config
from scipy.optimize import minimize
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, SVR, LinearSVC

from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor
from gpytorch_nkn.estimators.dank import dank_base

GAMMA = 1.0


def rows(count=90, classes=2, seed=0):
    """Three groups, a pattern in each."""
    rng = np.random.default_rng(seed)
    within = rng.uniform(-1, 1, size=(count, 2))
    X = within + 2.5 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[np.arange(count) % 3]
    y = within[:, 0] * within[:, 1]
    return X, np.digitize(y, [0.0] if classes == 2 else [-0.15, 0.15]), y


def classifier(**options):
    defaults = {"n_clusters": 3, "eta": 0.05, "gamma": GAMMA, "C": 3.0, "random_state": 0}
    return DANKClassifier(**{**defaults, **options})


def regressor(**options):
    defaults = {"n_clusters": 3, "eta": 0.05, "gamma": GAMMA, "C": 3.0, "random_state": 0}
    return DANKRegressor(**{"epsilon": 0.02, **defaults, **options})


def clusters_of(X):
    """Groups of the inputs, by the nearest of three means."""
    means = np.stack([X[np.arange(len(X)) % 3 == group].mean(axis=0) for group in range(3)])
    return lambda new: np.argmin(np.linalg.norm(new[:, None] - means, axis=-1), axis=1)


def test_global_machine_is_that_of_the_dense_learned_kernel():
    X, labels, y = rows()
    new, _, _ = rows(60, seed=1)
    model = classifier().fit(X, labels)
    exact = SVC(C=3.0, kernel="precomputed", tol=1e-6).fit(model.learned_kernel(X), labels)
    expected = exact.decision_function(model.learned_kernel(new, X))
    np.testing.assert_allclose(model.decision_function(new), expected, atol=5e-3)
    plain = SVC(C=3.0, gamma=GAMMA).fit(X, labels).decision_function(new)
    assert np.abs(plain - expected).max() > 0.05
    model = regressor().fit(X, y)
    exact = SVR(C=3.0, epsilon=0.02, kernel="precomputed", tol=1e-6)
    exact.fit(model.learned_kernel(X), y)
    expected = exact.predict(model.learned_kernel(new, X))
    np.testing.assert_allclose(model.predict(new), expected, atol=5e-3 * y.std())
    outputs = model.learned_kernel(new, X[model.support_]) @ model.dual_coef_[0] + model.intercept_
    np.testing.assert_allclose(model.predict(new), outputs, atol=1e-9)
    assert abs(model.dual_coef_.sum()) < 1e-9 and np.abs(model.dual_coef_).max() <= 3.0


@pytest.mark.parametrize(
    ("kind", "eta"), [("classes", 0.02), ("targets", 0.02), ("targets", "norm")]
)
def test_learned_kernel_has_factors_inside_clusters_alone(kind, eta):
    X, labels, y = rows(90 if eta == 0.02 else 300)
    new, _, _ = rows(60, seed=1)
    make, targets = (classifier, labels) if kind == "classes" else (regressor, y)
    model = make(eta=eta).fit(X, targets)
    assign = clusters_of(X)
    own, other = assign(X), assign(new)
    gram, base = model.learned_kernel(new, X), rbf_kernel(new, X, gamma=GAMMA)
    different = other[:, None] != own
    np.testing.assert_allclose(gram[different], base[different], rtol=1e-12)
    for group in range(3):
        alone = make(eta=eta, n_clusters=1, relevance=None)
        alone.fit(X[own == group], targets[own == group])
        part = np.ix_(other == group, own == group)
        expected = alone.learned_kernel(new[other == group], X[own == group]) / base[part]
        change = np.ptp(expected)
        assert change > (0.1 if eta == 0.02 else 1e-3)
        np.testing.assert_allclose(gram[part] / base[part], expected, atol=0.1 * change)


def test_block_variant_is_local_machines_without_intercepts():
    X, labels, _ = rows()
    new, _, _ = rows(60, seed=1)
    model = classifier(decomposition="block").fit(X, labels)
    gram, cross = model.learned_kernel(X), model.learned_kernel(new, X)
    assign = clusters_of(X)
    own, other = assign(X), assign(new)
    assert not cross[other[:, None] != own].any() and model.intercept_ == 0.0
    for group in range(3):
        inside, outside = own == group, other == group
        values, vectors = np.linalg.eigh(gram[np.ix_(inside, inside)])
        used = values > 1e-12 * values[-1]
        root = vectors[:, used] * np.sqrt(values[used])
        new_root = cross[np.ix_(outside, inside)] @ (vectors[:, used] / np.sqrt(values[used]))
        machine = LinearSVC(C=3.0, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=10**6)
        machine.fit(root, labels[inside])
        expected = machine.decision_function(new_root)
        np.testing.assert_allclose(model.decision_function(new[outside]), expected, atol=0.01)
        alone = classifier(decomposition="block", n_clusters=3).fit(X, labels)
        np.testing.assert_array_equal(alone.dual_coef_, model.dual_coef_)


def test_block_variant_of_regression_is_optimal_in_each_cluster():
    X, _, y = rows()
    model = regressor(decomposition="block").fit(X, y)
    gram, group = model.learned_kernel(X), clusters_of(X)(X)
    signed = np.zeros(90)
    signed[model.support_] = model.dual_coef_[0]
    for cluster in range(3):
        inside = group == cluster
        part, target = gram[np.ix_(inside, inside)], y[inside]

        def dual(s, part=part, target=target):
            return 0.5 * s @ part @ s - s @ target + 0.02 * np.abs(s).sum()

        def of_both(u, part=part, target=target):
            up, down = np.split(u, 2)
            s = up - down
            slope = part @ s - target
            value = 0.5 * s @ part @ s - s @ target + 0.02 * u.sum()
            return value, np.concatenate([slope + 0.02, 0.02 - slope])

        general = minimize(of_both, np.zeros(2 * inside.sum()), jac=True, method="L-BFGS-B",
                           bounds=[(0, 3.0)] * (2 * inside.sum()),
                           options={"maxiter": 5000, "ftol": 1e-12})  # fmt: skip
        assert dual(signed[inside]) <= general.fun + 2e-3 * abs(general.fun)
    outputs = gram @ signed
    np.testing.assert_allclose(model.predict(X), outputs, atol=1e-9)


@pytest.mark.parametrize(
    ("decomposition", "eta"),
    [("global", 0.05), ("block", "norm"), ("global", "cv"), ("global", np.inf), ("block", np.inf)],
)
def test_kernels_are_positive_semi_definite_and_free_of_the_batch(decomposition, eta):
    X, labels, _ = rows()
    new = np.random.default_rng(1).uniform(-2, 5, size=(60, 2))
    model = classifier(decomposition=decomposition, eta=eta).fit(X, labels)
    everything = np.vstack([X, new])
    gram = model.learned_kernel(everything)
    values = np.linalg.eigvalsh(gram)
    assert values[0] > -1e-8 * values[-1]
    np.testing.assert_allclose(gram, gram.T, atol=1e-12)
    outputs = model.decision_function(new)
    alone = [model.decision_function(new[i : i + 1])[0] for i in (0, 7, 59)]
    np.testing.assert_allclose(alone, outputs[[0, 7, 59]], atol=1e-10)
    if eta == np.inf:
        same = clusters_of(X)(X)[:, None] == clusters_of(X)(X)
        expected = rbf_kernel(X, gamma=GAMMA)
        if decomposition == "block":
            expected = np.where(same, expected, 0.0)
        np.testing.assert_allclose(gram[:90, :90], expected, atol=1e-12)
    if eta == "cv":
        assert len(model.cv_results_) >= 3
    if isinstance(eta, float):
        assert model.eta_ == eta


@pytest.mark.parametrize("make", [classifier, regressor])
def test_without_a_factor_it_is_the_machine_of_scikit_learn(make):
    X, labels, y = rows()
    model = make(eta=np.inf)
    if make is classifier:
        exact = SVC(C=3.0, gamma=GAMMA, tol=1e-5).fit(X, labels)
        values = model.fit(X, labels).decision_function(X)
        np.testing.assert_allclose(values, exact.decision_function(X), atol=5e-3)
    else:
        exact = SVR(C=3.0, gamma=GAMMA, epsilon=0.02, tol=1e-5).fit(X, y)
        np.testing.assert_allclose(model.fit(X, y).predict(X), exact.predict(X), atol=5e-3)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_what_was_compared_is_told_per_row_with_the_plain_machine_first(make):
    X, labels, y = rows(300)
    targets = labels if make is classifier else y
    model = make(eta="cv").fit(X, targets)
    reference, *others = model.cv_results_
    assert {c.stage for c in model.cv_results_} == {"eta"}
    assert reference.params == {} and (reference.gain, reference.error) == (0.0, 0.0)
    assert [c.params for c in others] == [{"eta_share": share} for share in (10.0, 1.0, 0.1)]
    assert sorted(c.weight for c in model.cv_results_) == [0.0, 0.0, 0.0, 1.0]
    for candidate in others:
        assert candidate.gain == pytest.approx(reference.mean_loss - candidate.mean_loss)
    changed = [c for c in others if c.gain]
    assert changed and all(0.0 < c.error < 0.1 for c in changed)
    seed = np.random.RandomState(0).randint(2**31)
    # 100 rows in each cluster, 30 of them held out.
    losses = []
    for inside in model._svms.svms[0].kernel.clusters.rows:
        order = inside[np.random.default_rng(seed).permutation(len(inside))]
        test, train = order[:30], order[30:]
        if make is classifier:
            plain = SVC(C=3.0, gamma=GAMMA).fit(X[train], labels[train])
            losses.append(plain.predict(X[test]) != labels[test])
        else:
            plain = SVR(C=3.0, gamma=GAMMA, epsilon=0.02).fit(X[train], y[train])
            losses.append((plain.predict(X[test]) - y[test]) ** 2)
    assert reference.mean_loss == pytest.approx(np.mean(losses), rel=0.05)
    if make is classifier:
        counts = [90 * c.mean_loss for c in model.cv_results_]
        np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)


def test_units_of_targets_do_not_count():
    X, _, y = rows(210)
    model = regressor(eta="cv").fit(X, y)
    for scale in (2.0**-13, 2.0**13):
        scaled = regressor(eta="cv", C=3.0 * scale, epsilon=0.02 * scale).fit(X, scale * y)
        np.testing.assert_allclose(scaled.predict(X) / scale, model.predict(X), rtol=1e-9)
        for one, other in zip(model.cv_results_, scaled.cv_results_, strict=True):
            assert one.weight == other.weight
            expected = scale**2 * np.array([one.mean_loss, one.gain, one.error])
            found = [other.mean_loss, other.gain, other.error]
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_three_classes_and_weights():
    X, labels, _ = rows(classes=3)
    model = classifier(eta=np.inf, class_weight={0: 2.0, 1: 1.0, 2: 0.5}).fit(X, labels)
    exact = SVC(
        C=3.0, gamma=GAMMA, class_weight={0: 2.0, 1: 1.0, 2: 0.5}, break_ties=True, tol=1e-6
    )
    exact.fit(X, labels)
    values = model.decision_function(X)
    assert values.shape == (90, 3)
    clear = np.abs(np.sort(exact.decision_function(X))[:, -1] - values.max(axis=1)) < 0.01
    assert clear.mean() > 0.95
    np.testing.assert_array_equal(model.predict(X)[clear], exact.predict(X)[clear])
    learned = classifier().fit(X, labels)
    assert learned.score(X, labels) > 0.9 and learned.dual_coef_.shape[0] == 3
    with pytest.raises(ValueError, match="each of the 3 pairs of classes"):
        learned.learned_kernel(X)


@pytest.mark.parametrize(("make", "decomposition"), [(classifier, "block"), (regressor, "global")])
def test_jobs_and_copies_find_the_same(make, decomposition):
    X, labels, y = rows()
    targets = labels if make is classifier else y
    model = make(decomposition=decomposition, eta="cv").fit(X, targets)
    with parallel_config("threading"):
        parallel = make(decomposition=decomposition, eta="cv", n_jobs=2).fit(X, targets)
    copy = pickle.loads(pickle.dumps(model))
    for other in (parallel, copy, make(decomposition=decomposition, eta="cv").fit(X, targets)):
        np.testing.assert_allclose(other.predict(X), model.predict(X), rtol=1e-9)
        np.testing.assert_allclose(other.dual_coef_, model.dual_coef_, rtol=1e-9)
    assert not hasattr(model, "factor_") and not hasattr(model, "rank_")
    assert np.isnan(model.gap_)


def test_number_of_clusters_is_found(monkeypatch):
    X, labels, _ = rows()
    monkeypatch.setattr(dank_base, "_WHOLE", 50)
    monkeypatch.setattr(dank_base, "_CLUSTER", 40)
    options = {"n_clusters": "auto", "relevance": None}
    model = classifier(**options).fit(X, labels)
    kernel = model._svms.svms[0].kernel
    assert len(kernel.clusters.rows) == 3  # of 30 rows each
    assert classifier(**options).fit(X[:50], labels[:50]).factor_.shape[0] == 50
    gram = rbf_kernel(X, gamma=GAMMA)
    dense = classifier(**options, kernel="precomputed").fit(gram, labels)
    assert dense.factor_.shape[0] == 90
    reciprocal = classifier(**options, extension="reciprocal").fit(X, labels)
    assert reciprocal.factor_.shape[0] == 90


@pytest.mark.parametrize(
    ("make", "decomposition", "eta"),
    [
        (classifier, "global", 0.05),
        (classifier, "block", "norm"),
        (classifier, "global", "cv"),
        (regressor, "block", 0.05),
        (regressor, "global", "norm"),
        (regressor, "block", "cv"),
    ],
)
def test_small_clusters_of_one_class_or_one_row(make, decomposition, eta):
    X, labels, y = rows(12)
    labels = (np.arange(12) % 3 == 0).astype(int)  # a class has a cluster of its own
    targets = labels if make is classifier else y
    for clusters in (3, 12):
        model = make(n_clusters=clusters, decomposition=decomposition, eta=eta).fit(X, targets)
        assert np.isfinite(model.predict(X)).all()
        if make is classifier:
            assert model.score(X, labels) == 1.0
    same = make(n_clusters=3, decomposition=decomposition, eta=eta).fit(np.ones((12, 2)), targets)
    assert np.isfinite(same.predict(X)).all()
    constant = regressor(decomposition=decomposition, eta=eta).fit(X, np.full(12, 5.0))
    if decomposition == "global":
        np.testing.assert_allclose(constant.predict(X), 5.0, atol=0.021)


@pytest.mark.usefixtures("few_paths")
def test_relevances_are_learned_before_clusters_if_asked_for():
    X, labels, _ = rows()
    wide = np.c_[X, np.random.default_rng(3).normal(size=(90, 2))]
    model = classifier(relevance="cv", cv=2, C=10.0).fit(wide, labels)
    assert any("relevance_penalty" in c.params for c in model.cv_results_)
    assert classifier().fit(wide, labels).relevance_kernel_ is None
    if model.relevance_kernel_ is not None:
        labels_of = model._svms.svms[0].kernel.clusters.assign
        gram = model.learned_kernel(wide)
        different = labels_of(wide)[:, None] != labels_of(wide)
        expected = model.relevance_kernel_(wide, wide)
        np.testing.assert_allclose(gram[different], expected[different], rtol=1e-9)


def test_dask_learns_the_same_factors():
    distributed = pytest.importorskip("distributed")
    X, labels, _ = rows()
    here = classifier().fit(X, labels)
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster), parallel_config("dask"):
        there = classifier().fit(X, labels)
    np.testing.assert_allclose(there.learned_kernel(X), here.learned_kernel(X), atol=1e-8)
    assert not np.allclose(here.learned_kernel(X), rbf_kernel(X, gamma=GAMMA))


def test_a_factor_stays_if_it_gains_two_standard_errors_on_rows_held_out():
    """Noise to learn from, or a wave that a kernel this wide cannot follow but for a factor."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(600, 2))
    for targets in (rng.normal(size=600), np.sin(4 * X[:, 0]) * np.sin(4 * X[:, 1])):
        model = regressor(eta="cv", gamma=0.3, C=1.0).fit(X, targets)
        reference, *others = model.cv_results_
        sure = [c for c in others if c.gain > 2.0 * c.error]
        (chosen,) = [c for c in model.cv_results_ if c.weight]
        assert chosen == (max(sure, key=lambda c: c.gain) if sure else reference)
        trivial = model._svms.svms[0].kernel.is_trivial
        assert trivial or chosen.params
        assert np.isnan(model.eta_) == bool(chosen.params)
    assert chosen.params and not trivial
