import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from gpytorch_nkn.averaging import WIDTHS, stack_predictions, stacking_weights

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("concentration", [0.0, 0.05, 0.7])
def test_weights_of_two_models_maximise_the_objective_written_out(concentration):
    logs = RNG.normal(size=(2, 30)) * 2
    logs[1] += 0.3

    def objective(w):
        mixed = np.log(w * np.exp(logs[0]) + (1 - w) * np.exp(logs[1])).mean()
        return -mixed - concentration / 2 * (np.log(w) + np.log(1 - w))

    best = minimize_scalar(objective, bounds=(1e-9, 1 - 1e-9), options={"xatol": 1e-10})
    assert 0.05 < best.x < 0.95
    found = stacking_weights(logs, concentration=concentration)
    np.testing.assert_allclose(found, [best.x, 1 - best.x], atol=1e-4)


def test_a_model_that_is_better_everywhere_takes_all_but_the_prior():
    logs = np.array([np.full(50, -1.0), np.full(50, -400.0)])
    np.testing.assert_allclose(stacking_weights(logs, concentration=0), [1, 0], atol=1e-12)
    found = stacking_weights(logs, concentration=0.05)
    np.testing.assert_allclose(found, [1.025 / 1.05, 0.025 / 1.05], atol=1e-9)


def test_models_and_points_without_a_finite_density_do_no_harm():
    logs = RNG.normal(size=(3, 10))
    expected = stacking_weights(logs[:2, :8])
    logs[2] = np.nan
    logs[:, 8:] = -np.inf
    found = stacking_weights(logs)
    np.testing.assert_allclose(found, [*expected, 0.0], atol=1e-9)


def test_densities_far_below_the_smallest_number_are_weighed_all_the_same():
    logs = RNG.normal(size=(2, 15))
    expected = stacking_weights(logs)
    np.testing.assert_allclose(stacking_weights(logs - 1e5), expected, atol=1e-6)


def test_what_has_no_meaning_is_rejected():
    with pytest.raises(ValueError, match=r"matrix M x N, got shape \(3,\)"):
        stacking_weights(np.zeros(3))
    with pytest.raises(ValueError, match="not negative, got -1"):
        stacking_weights(np.zeros((2, 3)), concentration=-1)
    with pytest.raises(ValueError, match="must have a finite entry"):
        stacking_weights(np.full((2, 3), -np.inf))


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0, 4.0])
def test_the_width_that_targets_have_is_found(width):
    y = 3 + width * 0.1 * RNG.normal(size=2000)
    _, shares = stack_predictions(y, np.full((1, 2000), 3.0), np.full((1, 2000), 0.01))
    mean_width = np.exp(shares @ np.log(WIDTHS))
    assert mean_width == pytest.approx(width, rel=0.12)


def test_weights_and_shares_maximise_the_objective_together():
    y = RNG.standard_t(3, size=60)
    means = np.stack([np.zeros(60), 0.3 * y + RNG.normal(size=60)])
    variances = np.stack([np.full(60, 1.5), np.full(60, 0.8)])
    weights, shares = stack_predictions(y, means, variances)
    logs = norm.logpdf(y, means[:, None], np.sqrt(variances)[:, None] * WIDTHS[:, None])

    def objective(w, s):
        prior = np.where(WIDTHS == 1, 5.0, 0.0) + 0.005 * 60 / 9
        fit = np.log(np.einsum("m,k,mkn->n", w, s, np.exp(logs))).sum()
        return fit + 0.05 * 60 / 2 * np.log(w).sum() + prior @ np.log(s)

    best = objective(weights, shares)
    for _ in range(200):  # no neighbour is better
        w = weights * np.exp(0.02 * RNG.normal(size=2))
        s = shares * np.exp(0.02 * RNG.normal(size=9))
        assert objective(w / w.sum(), s / s.sum()) < best + 1e-6


def test_a_target_far_off_does_not_break_the_weights():
    y = np.r_[RNG.normal(size=30), 1e8]
    weights, shares = stack_predictions(y, np.zeros((2, 31)), np.ones((2, 31)))
    np.testing.assert_allclose(weights, 0.5)
    assert np.isfinite(shares).all() and shares[-1] > 0.01
