from typing import Any

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, SVR

from gpytorch_nkn.estimators.dank.support_vectors.local_problem import (
    Comparison,
    compare_etas,
    learn_extension,
    learn_machine,
    solve_local,
)
from gpytorch_nkn.estimators.dank.support_vectors.sequential import solve_quartic


def problem(n=90, noise=0.2, seed=0):
    generator = np.random.default_rng(seed)
    inputs = generator.uniform(size=(n, 2))
    wave = np.sin(6 * inputs[:, 0]) + generator.normal(0, noise, n)
    return rbf_kernel(inputs, gamma=4.0), wave, np.full(n, 10.0)


def test_a_regression_without_a_factor_is_that_of_libsvm():
    gram, targets, upper = problem()
    machine = SVR(C=10.0, epsilon=0.1, kernel="precomputed", tol=1e-8).fit(gram, targets)
    expected = np.zeros(90)
    expected[machine.support_] = machine.dual_coef_[0]
    signed = solve_local(gram, targets, upper, np.inf, epsilon=0.1, tol=1e-6)
    np.testing.assert_allclose(signed, expected, atol=1e-2)


def test_a_share_is_relative_to_the_plain_machine():
    gram, wave, upper = problem(noise=0.0)
    labels = np.sign(wave)
    machine = SVC(C=10.0, kernel="precomputed", tol=1e-8).fit(gram, labels)
    eta = 0.1 * (machine.dual_coef_**2).sum() / 90
    signed = solve_quartic(gram, labels, upper, eta, tol=1e-6)
    found = learn_extension(gram, labels, upper, share=0.1, tol=1e-6)
    assert found.eta == pytest.approx(eta, rel=1e-4)
    assert not found.is_trivial
    ridge = found.ridge_ * np.eye(90)
    smooth = gram @ np.linalg.solve(gram + ridge, signed) / (2 * np.sqrt(eta))
    np.testing.assert_allclose(found.features_[:, 0], smooth, rtol=1e-2, atol=1e-2)
    same = learn_extension(gram, labels, upper, eta=found.eta, tol=1e-6)
    np.testing.assert_allclose(same.features_, found.features_, rtol=1e-6)
    paper = learn_extension(gram, labels, upper, tol=1e-6)
    assert paper.eta == pytest.approx((machine.dual_coef_**2).sum(), rel=1e-4)
    with pytest.raises(ValueError, match=r"either eta or share, got eta=1.0 and share=1.0"):
        learn_extension(gram, labels, upper, eta=1.0, share=1.0)


def test_a_machine_of_the_block_diagonal_form_has_no_bias_and_solves_its_problem():
    gram, wave, upper = problem(noise=0.0)
    labels = np.sign(wave)
    extension, signed = learn_machine(gram, labels, upper, share=0.1, tol=1e-6)
    expected = learn_extension(gram, labels, upper, share=0.1, bias=False, tol=1e-6)
    np.testing.assert_array_equal(extension.features_, expected.features_)
    features = extension.features_
    learned = gram * (1 + features @ features.T * gram)
    assert not extension.is_trivial and abs(signed.sum()) > 1e-3
    gradient = 1 - labels * (learned @ signed)  # optimality of a box-constrained maximum
    alpha = labels * signed
    assert (gradient[alpha == 0] <= 1e-6).all()
    assert (gradient[alpha == upper] >= -1e-6).all()
    assert np.abs(gradient[(alpha > 0) & (alpha < upper)]).max() <= 1e-6


def test_a_cluster_of_one_class_has_no_factor():
    gram, _, upper = problem()
    assert learn_extension(gram, np.ones(90), upper, share=0.1).is_trivial
    comparison = compare_etas(gram, np.ones(90), upper, shares=(1.0, 0.1))
    assert not comparison.gains.any() and not comparison.squares.any()
    assert comparison.best() is None


def test_the_best_share_must_gain_two_standard_errors():
    first = Comparison(np.array([3.0, 8.0, -5.0]), np.array([9.0, 12.0, 5.0]), 20.0, 60)
    second = Comparison(np.array([1.0, 1.0, -2.0]), np.array([1.0, 2.0, 4.0]), 5.0, 40)
    total = first + second
    np.testing.assert_array_equal(total.gains, [4.0, 9.0, -7.0])
    assert total.best() == 1  # 9 / sqrt(14) = 2.4
    assert total.best(least=2.5) is None
    errors = np.sqrt([0, 10, 14, 9]) / 100
    expected = np.stack([[0.25, 0.21, 0.16, 0.32], [0, 0.04, 0.09, -0.07], errors], axis=1)
    np.testing.assert_allclose(total.means(), expected)
    assert np.isnan(Comparison(np.zeros(1), np.zeros(1), 0.0, 0).means()[1][0])
    assert Comparison(np.array([-1.0]), np.array([1.0]), 2.0, 9).best() is None


@pytest.mark.parametrize(("epsilon", "share"), [(None, 0.001), (0.05, 0.1)])
def test_gains_are_those_of_machines_trained_on_the_rest(epsilon, share):
    gram, wave, upper = problem(n=200)
    targets = np.sign(wave) if epsilon is None else wave
    options: dict[str, Any] = {"shares": (share,), "epsilon": epsilon, "tol": 1e-6, "seed": 3}
    found = compare_etas(gram, targets, upper, held_out=0.25, **options)
    order = np.random.default_rng(3).permutation(200)
    test, train = order[:50], order[50:]
    inner, cross = gram[np.ix_(train, train)], gram[np.ix_(test, train)]
    plain = solve_local(inner, targets[train], upper[train], np.inf, epsilon=epsilon, tol=1e-6)
    extension = learn_extension(
        inner, targets[train], upper[train], share=share, epsilon=epsilon, tol=1e-6
    )
    assert not extension.is_trivial
    near, far = extension.features_, extension.features(cross)
    errors = []
    for left, right in (
        (inner, cross),
        (inner * (1 + near @ near.T * inner), cross * (1 + far @ near.T * cross)),
    ):
        if epsilon is None:
            machine = SVC(C=10.0, kernel="precomputed", tol=1e-7).fit(left, targets[train])
            errors.append((machine.predict(right) != targets[test]).astype(float))
        else:
            machine = SVR(C=10.0, kernel="precomputed", epsilon=epsilon, tol=1e-7)
            errors.append((machine.fit(left, wave[train]).predict(right) - wave[test]) ** 2)
    difference = errors[0] - errors[1]
    assert difference.any() and plain.any()
    assert found.count == 50 and found.loss == pytest.approx(errors[0].sum(), abs=1e-3)
    assert found.gains[0] == pytest.approx(difference.sum(), abs=1e-3)
    assert found.squares[0] == pytest.approx((difference**2).sum(), abs=1e-3)
