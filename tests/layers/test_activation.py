import cmath

import numpy as np
import pytest
import torch

from gpytorch_nkn.layers import Activation


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("coefficients", [[0.3, 1.2, 0.0, 0.7], [2.0], [0, 0, 1], (0.0, 1.0)])
def test_polynomial_equals_numpy(coefficients, dtype):
    values = torch.randn(3, 5, dtype=dtype)
    expected = np.polynomial.polynomial.polyval(values.numpy(), coefficients)
    np.testing.assert_allclose(Activation(3, coefficients)(values).numpy(), expected, rtol=1e-12)


def test_exponential_of_real_and_complex_values():
    z = 0.7 - 1.2j
    out = Activation(1, "exp")(torch.tensor([[z]], dtype=torch.complex128))
    assert abs(out.item() - cmath.exp(z)) < 1e-14 and abs(out.imag.item()) > 0.1
    np.testing.assert_allclose(Activation(1, "exp")(torch.tensor([[1.5]])).item(), np.exp(1.5))


@pytest.mark.parametrize(
    "coefficients, got",
    [
        ([1.0, -0.5], r"\(1\.0, -0\.5\)"),
        ([1.0, float("nan")], r"\(1\.0, nan\)"),
        ([float("inf")], r"\(inf,\)"),
        ([0.0, 0.0], r"\(0\.0, 0\.0\)"),
        ([], r"\(\)"),
    ],
)
def test_wrong_coefficients_are_shown(coefficients, got):
    with pytest.raises(ValueError, match=f"finite and non-negative, .*{got}"):
        Activation(2, coefficients)
