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


def test_kernel_matrices_stay_positive_semi_definite():
    feature = torch.randn(8, 3, dtype=torch.complex128)
    matrix = (feature @ feature.mH).flatten().unsqueeze(0)
    for coefficients in ("exp", [0.0, 0.5, 0.0, 2.0]):
        out = Activation(1, coefficients)(0.1 * matrix).view(8, 8)
        assert torch.linalg.eigvalsh(out)[0] > -1e-10 * out.abs().max()


def test_dtype_is_kept_and_gradients_are_right():
    assert Activation(1, [0.1, 2.0])(torch.ones(1, 2, dtype=torch.float32)).dtype == torch.float32
    values = torch.tensor([[0.0, 0.4, -1.0]], requires_grad=True)
    for coefficients in ("exp", [0.2, 0.0, 1.5, 0.3]):
        assert torch.autograd.gradcheck(Activation(1, coefficients), (values,))


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
    with pytest.raises(
        ValueError, match=f"needs finite coefficients, none of them negative .*{got}"
    ):
        Activation(2, coefficients)


def test_only_exp_has_a_name():
    with pytest.raises(
        ValueError, match=r"'exp' or a sequence of non-negative numbers, got 'relu'"
    ):
        Activation(2, "relu")


def test_representation_shows_the_coefficients():
    assert repr(Activation(2, [1, 0.5])) == "Activation(2, (1.0, 0.5))"
