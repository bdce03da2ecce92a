import math

import numpy as np
import torch

from gpytorch_nkn.interpretation.expansion.polynomial import (
    Bounds,
    Polynomials,
)


def bounds(max_terms=10_000, tolerance=0.0):
    return Bounds(
        lambda exponents: torch.ones(len(exponents), dtype=torch.float64), max_terms, tolerance
    )


def value_at(polynomials, point):
    """Values ``... x U`` written out, one power at a time."""
    total = torch.zeros(polynomials.weights.shape[:-1], dtype=polynomials.weights.dtype)
    for number, row in enumerate(polynomials.exponents):
        term = math.prod(float(v) ** int(e) for v, e in zip(point, row, strict=False))
        total = total + polynomials.weights[..., number] * term
    return total


def test_exponential_of_polynomials_with_a_constant():
    p = Polynomials(np.array([[0], [1], [2]], dtype=np.uint16), torch.tensor([[3.0, 0.4, 0.2]]))
    result = p.exponential(bounds(tolerance=1e-16))
    expected = math.exp(3.0 + 0.4 * 0.9 + 0.2 * 0.81)
    torch.testing.assert_close(value_at(result, (0.9,)), torch.tensor([expected]))
    # the coefficient of v^2 in exp(3) exp(0.4 v) exp(0.2 v^2), by hand
    place = result.exponents[:, 0].tolist().index(2)
    by_hand = math.exp(3.0) * (0.4**2 / 2 + 0.2)
    torch.testing.assert_close(result.weights[0, place], torch.tensor(by_hand))


def test_pruning_keeps_what_matters_to_any_unit_or_batch_entry():
    exponents = np.arange(4, dtype=np.uint16)[:, None]
    weights = torch.tensor([[[1.0, 1e-9, 0.0, 0.5]], [[1.0, 0.3, 0.0, 1e-9]]])  # 2 x 1 x 4
    kept = Polynomials(exponents, weights).prune(bounds(tolerance=1e-6))
    assert kept.exponents[:, 0].tolist() == [0, 1, 3]
    kept = Polynomials(exponents, weights).prune(bounds(max_terms=2))
    assert kept.exponents[:, 0].tolist() == [0, 3]  # shares 0.77 and 0.33, the third has 0.23
