import numpy as np
import pytest

from gpytorch_nkn.interpretation.effects.averages import Empirical, draw_rows, independent_copies


def test_quantiles_are_values_of_the_data():
    values = np.array([3.0, 1.0, 1.0, 2.0])
    np.testing.assert_array_equal(
        Empirical(values).ppf(np.array([[0.0, 0.2], [0.49, 0.51], [0.8, 1.0]])),
        [[1, 1], [1, 2], [3, 3]],
    )


def test_rows_are_different_and_typical():
    inputs = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 100.0, 0.0] + 7
    rows = draw_rows(inputs, 50, np.random.default_rng(1))
    assert len(np.unique(rows, axis=0)) == 50
    assert {tuple(row) for row in rows} <= {tuple(row) for row in inputs}
    gaps = (rows.mean(0) - inputs.mean(0))[:2] / inputs.std(0)[:2]
    assert np.abs(gaps).max() < 0.05  # of one draw 0.12 is the standard deviation
    np.testing.assert_array_equal(draw_rows(inputs, 300, np.random.default_rng(1)), inputs)


@pytest.mark.parametrize("n", [3, 30, 300])
def test_independent_copies_are_balanced_and_uncorrelated(n):
    rows = np.repeat(np.arange(float(n))[:, None], 2, axis=1)  # both columns are one
    base, (values,) = independent_copies(rows, (0,), np.random.default_rng(0))
    for column in (base[:, 0], values):
        counts = np.unique(column, return_counts=True)[1]
        assert len(counts) == n and len(set(counts)) == 1
    assert abs(np.corrcoef(base[:, 0], values)[0, 1]) < 0.1
