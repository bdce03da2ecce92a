import math

import numpy as np
import torch

from gpytorch_nkn.interpretation.expansion.polynomial import (
    Bounds,
    Polynomials,
    constant,
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
