import numpy as np
import pytest
from scipy.special import logit

from gpytorch_nkn.averaging import TRANSFORMS, OrderedProbit, as_bounds, candidate_transforms

SHARES = np.array([0.2, 0.5, 0.1, 0.9, 0.7])


def only(option, values, bounds=None):
    (transform,) = candidate_transforms(option, np.asarray(values, dtype=float), bounds)
    return transform


@pytest.mark.parametrize("option", TRANSFORMS)
@pytest.mark.parametrize("values", [SHARES, np.array([0.3, 0.0, 0.5, 1.0])])
def test_inverse_and_slope_match_the_map(option, values):
    bounds = (0.0, 1.0)
    if option == "log" and values.min() == 0:
        pytest.skip("has no value")
    transform = only(option, values, bounds)
    assert transform.name == option and transform.accepts(values)
    assert not transform.accepts(np.array([-0.1])) and not transform.accepts(np.array([1.1]))
    scaled = transform.forward(values)
    np.testing.assert_allclose(transform.inverse(scaled), values, atol=1e-12)
    assert (np.diff(transform.forward(np.linspace(0, 1, 50))) > 0).all()
    inside = np.array([0.21, 0.5, 0.77])
    ends = (transform.forward(inside + shift) for shift in (1e-6, -1e-6))
    slope = np.subtract(*ends) / 2e-6
    np.testing.assert_allclose(np.exp(transform.log_slope(inside)), slope, rtol=1e-6)
    assert (transform.log_slope(np.array([-1e-9, 1 + 1e-9])) == -np.inf).all()
    beyond = transform.inverse(np.array([-1e9, 1e9]))
    if option in ("identity", "logit"):
        np.testing.assert_allclose(beyond, bounds, atol=1e-12)
    assert beyond.min() >= 0 and beyond.max() <= 1


def test_maps_match_their_names():
    y = np.array([1.5, 4.0, 9.25])
    np.testing.assert_allclose(only("log", y).forward(y), np.log(y))
    np.testing.assert_allclose(only("log", y, (1.0, None or np.inf)).forward(y), np.log(y - 1))
    np.testing.assert_allclose(only("sqrt", y).forward(y), np.sqrt(y))
    counts = np.array([0.0, 3.0, 1.0, 7.0])
    np.testing.assert_allclose(only("log1p", counts).forward(counts), np.log1p(counts))
    np.testing.assert_allclose(only("sqrt", counts).forward(counts), np.sqrt(counts + 3 / 8))
    rain = np.array([0.0, 0.4, 1.2])
    np.testing.assert_allclose(only("sqrt", rain).forward(rain), np.sqrt(rain + 0.15))
    np.testing.assert_allclose(only("log1p", rain).forward(rain), np.log(rain + 0.4))
    np.testing.assert_allclose(only("logit", SHARES, (0, 1)).forward(SHARES), logit(SHARES))
    per_cent = np.array([0.0, 100.0, 40.0])
    moved = only("logit", per_cent, (0, 100)).forward(per_cent)
    np.testing.assert_allclose(moved, logit((per_cent + 20) / 140))


def test_counts_from_any_lower_bound_come_back_from_their_scores():
    probit = OrderedProbit.of(np.array([2.0, 2.0, 3.0, 5.0, 9.0]), 2.0, np.inf).extended_to(40.0)
    counts = np.arange(2.0, 41.0)
    np.testing.assert_array_equal(probit.inverse(probit.forward(counts)), counts)
    np.testing.assert_array_equal(probit.inverse(probit.upper_end(counts) - 1e-9), counts)
    np.testing.assert_array_equal(probit.inverse(probit.upper_end(counts) + 1e-9), counts + 1)


def test_numbers_stay_finite():
    transform = only("log", [1.0, 2.0])
    assert transform.inverse(np.array([1e4]))[0] == np.finfo(float).max
    assert transform.forward(np.array([0.0, -1.0])).tolist() == [-np.inf, -np.inf]


def test_auto_tries_what_targets_and_bounds_allow():
    def names(values, bounds=None):
        found = candidate_transforms("auto", np.asarray(values, dtype=float), bounds)
        return [transform.name for transform in found], found[0].lower, found[0].upper

    assert names([-1, 2]) == (["identity"], -np.inf, np.inf)
    assert names([0, 2]) == (["identity", "sqrt"], 0, np.inf)
    assert names([1, 2]) == (["identity", "sqrt", "log"], 0, np.inf)
    assert names([1, 2], (-np.inf, 3)) == (["identity"], -np.inf, 3)
    assert names([1, 2], (0.5, np.inf)) == (["identity", "sqrt", "log"], 0.5, np.inf)
    assert names([0, 2], (0, 3)) == (["identity", "logit"], 0, 3)


@pytest.mark.parametrize(
    ("bounds", "expected"), [((None, 3), (-np.inf, 3)), ([0, None], (0, np.inf)), (None, None)]
)
def test_bounds_are_two_numbers(bounds, expected):
    assert as_bounds(bounds) == expected


@pytest.mark.parametrize("bounds", [(1,), (2, 1), (0, 0), 5, ("a", 1), (np.nan, 1), (0, 1, 2)])
def test_other_bounds_are_rejected(bounds):
    with pytest.raises(ValueError, match="bounds must be \\(lower, upper\\), increasing numbers"):
        as_bounds(bounds)


@pytest.mark.parametrize(
    ("option", "values", "bounds", "message"),
    [
        ("log", [0.0, 1.0], None, "needs positive targets, got 0; 'log1p'"),
        ("log", [2.0, 3.0], (2.0, np.inf), "needs targets above 2, got 2; "),
        ("sqrt", [-1.0, 1.0], None, "transform='sqrt' needs non-negative targets, got -1"),
        ("auto", [-1.0, 1.0], (0.0, 2.0), r"bounds=\(0.0, 2.0\).* got -1"),
        ("identity", [1.0, 3.0], (0.0, 2.0), "within the bounds, got 3"),
        ("logit", [0.2, 0.3], None, r"needs finite bounds=\(lower, upper\).*got None"),
        ("logit", [0.2, 0.3], (0.0, np.inf), "such as"),
        ("log", [0.2, 0.3], (-np.inf, 1.0), "needs a lower bound"),
    ],
)
def test_targets_that_a_transform_has_no_value_for_are_rejected(option, values, bounds, message):
    with pytest.raises(ValueError, match=message):
        only(option, values, bounds)
