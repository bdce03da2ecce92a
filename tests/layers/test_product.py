import numpy as np
import pytest
import torch

from gpytorch_nkn.layers import Product


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("widths", [(4, 2), (6, 2), (6, 3), (3, 1), (3, 3)])
def test_values_are_the_products_of_neighbouring_groups(widths, dtype):
    values = torch.randn(2, widths[0], 5, dtype=dtype)
    expected = values.numpy().reshape(2, widths[1], -1, 5).prod(2)
    out = Product(*widths)(values).numpy()
    assert out.shape == (2, widths[1], 5)
    np.testing.assert_allclose(out, expected, rtol=1e-12)


@pytest.mark.parametrize("groups", [(1, 2, 1), (3, 1), (1, 1, 2)])
def test_groups_of_several_sizes(groups):
    values = torch.randn(2, 4, 5)
    expected = [part.prod(-2) for part in values.split(groups, -2)]
    layer = Product(4, len(groups), groups=groups)
    torch.testing.assert_close(layer(values), torch.stack(expected, -2))
    assert f"groups={groups}" in repr(layer)


@pytest.mark.parametrize("groups", [(2, 1), (4,), (2, 3), (4, 0), (5, -1)])
def test_groups_must_add_up(groups):
    with pytest.raises(ValueError, match="2 positive sizes that add up to 4, got"):
        Product(4, 2, groups=groups)


@pytest.mark.parametrize("groups", [[1.5, 1.5], [2.0, 1.0], ["2", 1], 3])
def test_groups_must_be_integers(groups):
    with pytest.raises(TypeError, match="groups must be integers, got"):
        Product(3, 2, groups=groups)


def test_gradients_at_zeros():
    values = torch.tensor([[0.0, 1.5], [0.0, 0.0], [2.0, -1.0], [0.5, 0.0]], requires_grad=True)
    assert torch.autograd.gradcheck(Product(4, 2), (values,))
    assert torch.autograd.gradgradcheck(Product(4, 1), (values,))


@pytest.mark.parametrize(("width", "units"), [(5, 2), (2, 4)])
def test_width_must_divide(width, units):
    message = f"unless groups are given, got in_features={width} and out_features={units}"
    with pytest.raises(ValueError, match=message):
        Product(width, units)
