import math

import numpy as np
import pytest
import torch

from gpytorch_nkn.interpretation.expansion import polynomial
from gpytorch_nkn.interpretation.expansion.polynomial import (
    Bounds,
    Polynomials,
    constant,
    monomial,
    stack,
)


def bounds(max_terms=10_000, tolerance=0.0):
    return Bounds(
        lambda exponents: torch.ones(len(exponents), dtype=torch.float64), max_terms, tolerance
    )


def random_polynomials(units, count, variables=3, batch=(), seed=0):
    generator = np.random.default_rng(seed)
    exponents = np.unique(generator.integers(0, 4, (count, variables)), axis=0).astype(np.uint16)
    weights = torch.as_tensor(generator.random((*batch, units, len(exponents))))
    return Polynomials(exponents, weights)


def value_at(polynomials, point):
    """Values ``... x U`` written out, one power at a time."""
    total = torch.zeros(polynomials.weights.shape[:-1], dtype=polynomials.weights.dtype)
    for number, row in enumerate(polynomials.exponents):
        term = math.prod(float(v) ** int(e) for v, e in zip(point, row, strict=False))
        total = total + polynomials.weights[..., number] * term
    return total


POINT = (0.7, 1.3, 0.4)


def test_linear_combinations_with_and_without_constants():
    p = random_polynomials(3, 9)
    weight, bias = torch.rand(2, 3), torch.rand(2)
    expected = weight @ value_at(p, POINT)
    torch.testing.assert_close(value_at(p.linear(weight, None), POINT), expected)
    torch.testing.assert_close(value_at(p.linear(weight, bias), POINT), expected + bias)


def test_products_of_neighbouring_groups():
    p = random_polynomials(6, 7)
    values = value_at(p, POINT).view(2, 3).prod(-1)
    torch.testing.assert_close(value_at(p.product((3, 3), bounds()), POINT), values)
    parts = value_at(p, POINT).split((1, 3, 2))
    expected = torch.stack([part.prod() for part in parts])
    torch.testing.assert_close(value_at(p.product((1, 3, 2), bounds()), POINT), expected)


def test_batches_broadcast_through_every_operation():
    p = random_polynomials(2, 5)
    weight = torch.rand(2, 3, 4, 2)  # a batch of 2 x 3 layers over polynomials without batch
    stage = p.linear(weight, torch.rand(3, 4))
    values = (weight @ value_at(p, POINT).unsqueeze(-1))[..., 0]
    values = values + value_at(stage, (0.0, 0.0, 0.0)) - weight @ value_at(p, (0.0, 0.0, 0.0))
    torch.testing.assert_close(value_at(stage, POINT), values)
    product = stage.product((2, 2), bounds())
    torch.testing.assert_close(value_at(product, POINT), values.unflatten(-1, (2, 2)).prod(-1))
    factor = torch.rand(2, 3)
    torch.testing.assert_close(
        value_at(product.scale(factor).total(), POINT)[..., 0],
        factor * value_at(product, POINT).sum(-1),
    )


def test_times_a_polynomial_in_fewer_variables():
    p = random_polynomials(2, 6)
    other = monomial(0, p.weights)
    torch.testing.assert_close(
        value_at(p.times(other, bounds()), POINT), POINT[0] * value_at(p, POINT)
    )


def test_power_series():
    p = random_polynomials(2, 4)
    z = value_at(p, POINT)
    result = p.power_series((0.3, 0.0, 1.5, 0.2), bounds())
    torch.testing.assert_close(value_at(result, POINT), 0.3 + 1.5 * z**2 + 0.2 * z**3)
    torch.testing.assert_close(
        value_at(p.power_series((0.3,), bounds()), POINT), torch.full_like(z, 0.3)
    )
    torch.testing.assert_close(value_at(p.power_series((0.0, 2.0, 0.0), bounds()), POINT), 2 * z)


def test_exponential_of_polynomials_with_a_constant():
    p = Polynomials(np.array([[0], [1], [2]], dtype=np.uint16), torch.tensor([[3.0, 0.4, 0.2]]))
    result = p.exponential(bounds(tolerance=1e-16))
    expected = math.exp(3.0 + 0.4 * 0.9 + 0.2 * 0.81)
    torch.testing.assert_close(value_at(result, (0.9,)), torch.tensor([expected]))
    # the coefficient of v^2 in exp(3) exp(0.4 v) exp(0.2 v^2), by hand
    place = result.exponents[:, 0].tolist().index(2)
    by_hand = math.exp(3.0) * (0.4**2 / 2 + 0.2)
    torch.testing.assert_close(result.weights[0, place], torch.tensor(by_hand))


def test_equal_monomials_become_one_and_stacks_share_them():
    a, b = random_polynomials(2, 8, seed=1), random_polynomials(3, 8, seed=2)
    both = stack([a, b, constant(torch.tensor([2.0]))])
    assert len(np.unique(both.exponents, axis=0)) == len(both.exponents)
    torch.testing.assert_close(
        value_at(both, POINT),
        torch.cat([value_at(a, POINT), value_at(b, POINT), torch.tensor([2.0])]),
    )


def test_pruning_keeps_what_matters_to_any_unit_or_batch_entry():
    exponents = np.arange(4, dtype=np.uint16)[:, None]
    weights = torch.tensor([[[1.0, 1e-9, 0.0, 0.5]], [[1.0, 0.3, 0.0, 1e-9]]])  # 2 x 1 x 4
    kept = Polynomials(exponents, weights).prune(bounds(tolerance=1e-6))
    assert kept.exponents[:, 0].tolist() == [0, 1, 3]
    kept = Polynomials(exponents, weights).prune(bounds(max_terms=2))
    assert kept.exponents[:, 0].tolist() == [0, 3]  # shares 0.77 and 0.33, the third has 0.23


def test_sizes_decide_what_is_small():
    exponents = np.arange(3, dtype=np.uint16)[:, None]
    sized = Bounds(lambda rows: 1000.0 ** torch.as_tensor(rows[:, 0].astype(float)), 1, 0.0)
    kept = Polynomials(exponents, torch.tensor([[1.0, 0.1, 1e-5]])).prune(sized)
    assert kept.exponents[:, 0].tolist() == [1]  # 1, 100 and 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_unit_that_is_zero_does_not_touch_the_others(dtype):
    p = Polynomials(
        np.arange(2, dtype=np.uint16)[:, None], torch.tensor([[0, 0], [0.5, 2]], dtype=dtype)
    )
    kept = p.prune(bounds(tolerance=1e-12))
    torch.testing.assert_close(kept.weights, p.weights)
    nothing = Polynomials(p.exponents, torch.zeros(1, 2, dtype=dtype)).prune(bounds())
    assert len(nothing.exponents) >= 1 and bool((nothing.weights == 0).all())


def test_rows_with_one_hash_are_told_apart(monkeypatch):
    class Constant:
        def integers(self, low, high, size, dtype):
            return np.ones(size, dtype=dtype)  # the hash is the sum of the row

    monkeypatch.setattr(polynomial.np.random, "default_rng", lambda seed: Constant())
    p = Polynomials(np.array([[1, 0], [0, 1], [1, 0]], dtype=np.uint16), torch.rand(2, 3))
    merged = p.linear(torch.eye(2), torch.zeros(2))
    assert sorted(map(tuple, merged.exponents.tolist())) == [(0, 0), (0, 1), (1, 0)]
    torch.testing.assert_close(value_at(merged, POINT), value_at(p, POINT))


def test_a_product_of_too_many_pairs_is_pruned_first(monkeypatch):
    monkeypatch.setattr(polynomial, "_MAX_PAIRS", 16)
    exponents = np.arange(30, dtype=np.uint16)[:, None]
    weights = (0.1 ** torch.arange(30.0, dtype=torch.float64)).unsqueeze(0)
    p = Polynomials(exponents, weights)
    product = p.times(p, bounds(tolerance=0.0))
    assert len(product.exponents) <= 16
    exact = value_at(p, (1.0,)) ** 2
    found = value_at(product, (1.0,))
    assert bool((found <= exact).all()) and bool((found > 0.999 * exact).all())


def test_global_random_state_is_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    random_polynomials(2, 20).times(random_polynomials(2, 20), bounds())
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
