"""What of learned kernels is kept, and how left-out rows tell."""

import sys

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor
from gpytorch_nkn.estimators.dank import dank_base, dank_selection
from gpytorch_nkn.estimators.dank.dank_selection import average, choose
from gpytorch_nkn.estimators.dank.support_vectors.dual import regression_blocks
from gpytorch_nkn.estimators.dank.support_vectors.relevance import relevance_factor, relevance_path
from tests.estimators.dank import test_dank_classifier, test_dank_regressor

GAMMA = 1.0


def test_choice_is_the_least_loss_if_it_is_less_for_sure():
    start = np.ones(10)
    np.testing.assert_array_equal(choose(np.stack([start, 0.5 * start, 0.4 * start])), [0, 0, 1])
    np.testing.assert_array_equal(choose(np.stack([start, 1.1 * start])), [1, 0])
    np.testing.assert_array_equal(choose(np.stack([start, start])), [1, 0])
    # three rows better and one worse by 1: a gain of 2 over a standard error of 2
    mixed = start.copy()
    mixed[:3], mixed[3] = 0.0, 2.0
    np.testing.assert_array_equal(choose(np.stack([start, mixed])), [1, 0])
    np.testing.assert_array_equal(choose(np.stack([start, mixed]), least=0.99), [0, 1])
    mixed[4] = 0.0  # 3 over sqrt(5)
    np.testing.assert_array_equal(choose(np.stack([start, mixed])), [0, 1])
    np.testing.assert_array_equal(choose(np.stack([start, mixed]), least=2.0), [1, 0])


def test_average_written_out():
    rng = np.random.default_rng(0)
    losses = rng.uniform(0.5, 1.5, size=(4, 30)) * np.array([1.0, 0.97, 1.06, 3.0])[:, None]
    means = losses.mean(axis=1)
    best = np.argmin(means)
    weights = []
    for row in losses:
        differences = row - losses[best]
        error = np.std(differences, ddof=1) / np.sqrt(30)
        certain = differences.mean() / error if error else 0.0
        excess = (row.mean() / means[best] - 1) / 0.1
        weights.append(np.exp(-(certain**2) / 2 - excess**2 / 2))
    expected = np.array(weights) / np.sum(weights)
    expected[expected < 1e-3] = 0.0
    assert expected[3] == 0 and min(expected[:3]) > 1e-3
    np.testing.assert_allclose(average(losses), expected / expected.sum(), rtol=1e-12)


def test_average_of_equals_and_of_nothing_to_lose():
    np.testing.assert_allclose(average(np.ones((3, 5))), 1 / 3)
    losses = np.array([[1.0, 2.0, 0.5], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(average(losses), choose(losses))
    np.testing.assert_array_equal(average(np.zeros((2, 4))), [1, 0])


def left_out_losses(X, y, folds, fit, loss):
    """Mean loss of each row, given what fits machines."""
    sums, times = np.zeros(len(y)), np.zeros(len(y))
    for known, left_out in folds:
        predict = fit(X[known], y[known])
        sums[left_out] += loss(predict(X[left_out]), y[left_out])
        times[left_out] += 1
    assert (times > 0).all()
    return sums / times


def assert_reported(candidate, reference, losses, rtol):
    gains = reference - losses
    np.testing.assert_allclose(candidate.mean_loss, losses.mean(), rtol=rtol)
    atol = rtol * reference.mean()
    np.testing.assert_allclose(candidate.gain, gains.mean(), atol=atol)
    error = np.sqrt(np.sum(gains**2)) / len(gains)
    np.testing.assert_allclose(candidate.error, error, atol=atol)


def regression_task(count=60):
    X, y = test_dank_regressor.rows(count)
    options = {"C": 3.0, "epsilon": 0.02, "gamma": GAMMA, "random_state": 0, "cv": 3}
    seed = np.random.RandomState(0).randint(2**31)
    folds = list(KFold(3, shuffle=True, random_state=seed).split(X))
    return X, y, options, folds


def square(predictions, truth):
    return (predictions - truth) ** 2


def test_what_is_reported_of_etas_is_that_of_left_out_rows():
    X, y, options, folds = regression_task()
    model = DANKRegressor(relevance=None, **options).fit(X, y)
    assert [c.params for c in model.cv_results_] == [
        {},
        *({"eta_share": s} for s in (1.0, 60**-0.5, 1 / 60, 0.1 / 60, 0.01 / 60)),
    ]

    def plain(known, targets):
        machine = SVR(C=3.0, epsilon=0.02, gamma=GAMMA, tol=1e-6).fit(known, targets)
        return machine.predict

    reference = left_out_losses(X, y, folds, plain, square)
    assert_reported(model.cv_results_[0], reference, reference, 1e-3)

    def learned(known, targets):
        machine = SVR(C=3.0, epsilon=0.02, gamma=GAMMA, tol=1e-6).fit(known, targets)
        eta = np.sum(machine.dual_coef_**2) / 60
        settings = {**options, "eta": eta, "relevance": None}
        return DANKRegressor(**settings).fit(known, targets).predict

    losses = left_out_losses(X, y, folds, learned, square)
    assert np.abs(losses - reference).mean() > 0.1 * reference.mean()
    assert_reported(model.cv_results_[3], reference, losses, 0.03)
    shares = [c.weight for c in model.cv_results_]
    assert sorted(shares) == [0.0] * 5 + [1.0]
    chosen = model.cv_results_[int(np.argmax(shares))]
    if not chosen.params:
        assert model.eta_ == np.inf
        return
    plain_norm = np.sum(DANKRegressor(**{**options, "eta": np.inf, "relevance": None}).fit(X, y)
                        .dual_coef_ ** 2)  # fmt: skip
    np.testing.assert_allclose(model.eta_, chosen.params["eta_share"] * plain_norm, rtol=1e-9)


def test_what_is_reported_of_relevances_is_that_of_left_out_rows():
    X, y, options, folds = regression_task()
    model = DANKRegressor(eta=np.inf, **options).fit(X, y)
    names = ["relevance_penalty", "power", "widening", "cost", "relevance_share"]
    assert all(list(c.params) == names for c in model.cv_results_[1:])
    (candidate,) = [
        c for c in model.cv_results_[1:] if list(c.params.values()) == [0.01, 2, 2.0, 1.0, 0.5]
    ]

    def plain(known, targets):
        return SVR(C=3.0, epsilon=0.02, gamma=GAMMA, tol=1e-6).fit(known, targets).predict

    def learned(known, targets):
        wide = rbf_kernel(known, gamma=GAMMA / 4)
        path = relevance_path(
            wide,
            known,
            regression_blocks(targets, 0.02, np.full(len(known), 3.0)),
            (0.1, 0.03, 0.01),
            scale=1 / (2 * GAMMA / 4),
            power=2,
            tol=1e-3,
            max_iter=20,
        )

        def kernel(a, b):
            narrowed = rbf_kernel(a, b, gamma=GAMMA / 4) * relevance_factor(a, b, path[2], 2)
            return 0.5 * rbf_kernel(a, b, gamma=GAMMA) + 0.5 * narrowed

        machine = SVR(C=3.0, epsilon=0.02, kernel="precomputed", tol=1e-6)
        machine.fit(kernel(known, known), targets)
        return lambda new: machine.predict(kernel(new, known))

    reference = left_out_losses(X, y, folds, plain, square)
    losses = left_out_losses(X, y, folds, learned, square)
    assert losses.mean() < 0.8 * reference.mean()
    assert_reported(candidate, reference, losses, 5e-3)


def test_folds_of_classes_are_repeated_and_keep_rows_that_are_alone():
    X, y = test_dank_classifier.rows(40, 3)
    y[7] = 9
    model = DANKClassifier(cv=3, random_state=0, relevance=None, gamma=GAMMA, C=3.0).fit(X, y)
    others = np.flatnonzero(y != 9)
    state, folds = np.random.RandomState(0), []
    for _ in range(2):
        splitter = StratifiedKFold(3, shuffle=True, random_state=state.randint(2**31))
        folds += [
            (np.setdiff1d(np.arange(40), others[left_out]), others[left_out])
            for _, left_out in splitter.split(others, y[others])
        ]
    found = model._folds(_codes(model, y))
    for expected, fold in zip(folds, found, strict=True):
        np.testing.assert_array_equal(fold[0], expected[0])
        np.testing.assert_array_equal(fold[1], expected[1])
    sums = np.zeros(40)
    for known, left_out in folds:
        machine = SVC(C=3.0, gamma=GAMMA, break_ties=True).fit(X[known], y[known])
        sums[left_out] += machine.predict(X[left_out]) != y[left_out]
    np.testing.assert_allclose(model.cv_results_[0].mean_loss, sums.sum() / 2 / 39, atol=1.1 / 78)


def _codes(model, y):
    return np.searchsorted(model.classes_, y)


def test_relevances_are_learned_from_some_rows_of_every_class():
    X, y = test_dank_classifier.rows(90, 3)
    y[5], y[[30, 60]] = 7, 8
    model = DANKClassifier(random_state=0, relevance=None, eta=np.inf).fit(X, y)
    codes = _codes(model, y)
    for size in (10, 30, 60):
        rows = model._sample(codes, size)
        assert len(rows) == size == len(np.unique(rows))
        counts = np.bincount(codes[rows], minlength=5)
        assert counts[3] == 1 and counts[4] == 2 and min(counts[:3]) >= 2
        shares = np.bincount(codes)[:3] / 90
        np.testing.assert_allclose(counts[:3] / size, shares, atol=3.5 / size)
    assert set(codes[model._sample(codes, 4)]) == set(range(5))  # no class is left out
    regressor = DANKRegressor(random_state=0)
    rows = regressor._sample(np.arange(90.0), 30)
    assert len(np.unique(rows)) == 30 and (np.diff(rows) > 0).all()


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("estimator", [DANKClassifier, DANKRegressor])
def test_more_rows_than_relevances_are_learned_from(estimator, monkeypatch):
    X, y = test_dank_classifier.rows(80)
    sizes = []
    learn = dank_base.learn_relevances

    def watched(task, base, table, *rest):
        sizes.append((task.gram.shape, len(task.target), table.shape))
        return learn(task, base, table, *rest)

    monkeypatch.setattr(dank_base, "learn_relevances", watched)
    monkeypatch.setattr(estimator, "_max_rows", 40)
    model = estimator(C=10.0, cv=2, random_state=0, eta=np.inf).fit(X, y)
    assert sizes == [((40, 40), 40, (40, 3))]
    assert len(model._kernel.rows) == 80 and model.support_.max() >= 40


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("estimator", [DANKClassifier, DANKRegressor])
def test_interruption_leaves_the_machine_with_the_base_kernel(estimator, monkeypatch):
    X, y = test_dank_classifier.rows(60)

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(dank_base, "learn_relevances", interrupted)
    model = estimator(C=10.0, cv=2, random_state=0)
    with pytest.warns(UserWarning, match="Interrupted.*without a learned factor"):
        model.fit(X, y)
    plain = estimator(C=10.0, relevance=None, eta=np.inf).fit(X, y)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=1e-9)
    np.testing.assert_allclose(model.dual_coef_, plain.dual_coef_, atol=1e-9)
    assert model.eta_ == np.inf and model.relevance_kernel_ is None and model.rank_ == 1
    np.testing.assert_array_equal(model.relevances_, 0)
    np.testing.assert_allclose(model.learned_kernel(X), plain.learned_kernel(X))
    assert set(vars(plain)) <= set(vars(model))


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("estimator", [DANKClassifier, DANKRegressor])
def test_interruption_after_relevances_keeps_them(estimator, monkeypatch):
    X, y = test_dank_classifier.rows(60)

    def interrupted(*args):
        raise KeyboardInterrupt

    options = {"C": 10.0, "cv": 2, "random_state": 0}
    expected = estimator(**options, eta=np.inf).fit(X, y)
    assert expected.relevance_kernel_ is not None
    monkeypatch.setattr(dank_base, "choose_eta", interrupted)
    with pytest.warns(UserWarning, match="Interrupted.*with relevances alone"):
        model = estimator(**options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), atol=1e-9)
    np.testing.assert_array_equal(model.relevances_, expected.relevances_)
    assert model.C_ == expected.C_ and model.eta_ == np.inf
    assert set(vars(expected)) <= set(vars(model))


@pytest.mark.parametrize("better", [True, False])
def test_relevances_of_some_rows_must_be_better_with_more(better, monkeypatch):
    X, y = test_dank_classifier.rows(80)
    monkeypatch.setattr(DANKClassifier, "_max_rows", 60)
    monkeypatch.setattr(dank_base, "confirm", lambda *args: better)
    model = DANKClassifier(C=10.0, cv=2, random_state=0, eta=np.inf).fit(X, y)
    (chosen,) = [c for c in model.cv_results_ if c.weight]
    assert bool(chosen.params) == better == (model.relevance_kernel_ is not None)


@pytest.mark.usefixtures("few_paths")
def test_parallel_jobs_find_the_same():
    X, y = test_dank_classifier.rows(20)
    alone = DANKRegressor(C=10.0, cv=2, random_state=0).fit(X, y)
    with parallel_config("multiprocessing"):
        parallel = DANKRegressor(C=10.0, cv=2, random_state=0, n_jobs=2).fit(X, y)
    np.testing.assert_allclose(parallel.predict(X), alone.predict(X), rtol=1e-9)
    for one, other in zip(alone.cv_results_, parallel.cv_results_, strict=True):
        assert one.params == other.params
        np.testing.assert_allclose(one.mean_loss, other.mean_loss, rtol=1e-9)


def test_kernels_without_a_width_are_not_widened():
    X, y = test_dank_classifier.rows(40)
    for kernel in ("linear", "poly", lambda a, b: rbf_kernel(a, b)):
        model = DANKClassifier(kernel=kernel, cv=2, random_state=0, eta=np.inf).fit(X, y)
        assert {c.params["widening"] for c in model.cv_results_[1:]} == {1.0}
    model = DANKClassifier(kernel="laplacian", cv=2, random_state=0, eta=np.inf).fit(X, y)
    assert {c.params["widening"] for c in model.cv_results_[1:]} == {1.0, 2.0, 4.0}
    assert all(c.params["cost"] == c.params["widening"] ** 2 for c in model.cv_results_[1:])


@pytest.mark.parametrize("estimator", [DANKClassifier, DANKRegressor])
def test_few_rows_and_precomputed_kernels_are_compared_as_said(estimator):
    X, y = test_dank_classifier.rows(40)
    few = estimator(cv=5, random_state=0).fit(X[:9], y[:9])
    assert few.cv_results_ == [] and few.eta_ == np.inf and few.relevance_kernel_ is None
    gram = rbf_kernel(X)
    model = estimator(kernel="precomputed", cv=2, random_state=0).fit(gram, y)
    assert all("relevance_penalty" not in c.params for c in model.cv_results_)
    reciprocal = estimator(extension="reciprocal", cv=2, random_state=0).fit(X, y)
    assert all("relevance_penalty" not in c.params for c in reciprocal.cv_results_)
    assert len(reciprocal.cv_results_) == 6


def test_progress_bar_is_for_terminals(monkeypatch, capsys):
    X, y = test_dank_classifier.rows(20)
    monkeypatch.setattr(DANKClassifier, "_paths", DANKClassifier._paths[:1])
    DANKClassifier(cv=2, random_state=0).fit(X, y)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    DANKClassifier(cv=2, random_state=0).fit(X, y)
    shown = capsys.readouterr().err
    assert "relevances" in shown and "eta" in shown
    DANKClassifier(cv=2, random_state=0, progress=False).fit(X, y)
    assert capsys.readouterr().err == ""


def test_nothing_is_learned_without_support_vectors():
    X, _ = test_dank_classifier.rows(30)
    y = np.linspace(-0.01, 0.01, 30)
    model = DANKRegressor(cv=2, random_state=0, epsilon=0.5).fit(X, y)
    assert model.eta_ == np.inf
    assert all(c.gain == 0.0 and c.error == 0.0 for c in model.cv_results_)


def test_scale_of_penalties_is_free_of_units():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    kernels = [
        dank_selection.BaseKernel("rbf", 0.5),
        dank_selection.BaseKernel("linear"),
    ]
    for kernel in kernels:
        for power in (1, 2):
            if power == 2 and kernel.width is not None:
                assert dank_selection._scale(kernel, 2, X) == pytest.approx(1.0)
                continue
            one, other = (dank_selection._scale(kernel, power, c * X) for c in (1.0, 10.0))
            np.testing.assert_allclose(other, 10.0**power * one)
    distances = [np.abs(X[i] - X[j]).sum() for i in range(40) for j in range(i)]
    np.testing.assert_allclose(dank_selection._scale(kernels[0], 1, X), np.median(distances) / 4)


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_widened_kernels_are_those_of_inputs_drawn_together(name):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(6, 3))
    kernel = dank_selection.BaseKernel(name, 0.6)
    np.testing.assert_allclose(kernel.widened(4.0)(a, b), kernel(a / 4, b / 4), rtol=1e-12)
    np.testing.assert_allclose(kernel.widened(4.0).width, 4 * kernel.width)
    np.testing.assert_allclose(kernel(np.zeros((1, 1)), np.full((1, 1), kernel.width)), np.exp(
        -0.5 if name == "rbf" else -1.0))  # fmt: skip
