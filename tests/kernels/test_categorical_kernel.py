"""Kernels of categories: BoTorch's values, and networks of mixed columns by every path."""

import numpy as np
import pytest
import torch
from botorch.models.kernels.categorical import CategoricalKernel as BoTorchKernel
from gpytorch.kernels import MaternKernel, ProductKernel, RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import CategoricalKernel, NeuralKernelNetwork, expand_kernel_batch
from gpytorch_nkn.kernels.network import mixed_parts
from gpytorch_nkn.layers import Linear, Product
from tests.kernels.contract import perturb
from tests.kernels.evaluation.networks import PATHS, assert_same, evaluate


def mixed_inputs(rows, *batch):
    """Two columns of numbers, and codes of three and of two categories between them."""
    x = torch.rand(*batch, rows, 4)
    x[..., 1] = torch.randint(3, (*batch, rows)) - 1
    x[..., 3] = 7 * torch.randint(2, (*batch, rows))
    return x


@pytest.mark.parametrize("ard_num_dims", [None, 4])
def test_values_match_botorch(ard_num_dims):
    ours, theirs = (
        perturb(cls(ard_num_dims=ard_num_dims)) for cls in (CategoricalKernel, BoTorchKernel)
    )
    theirs.load_state_dict(ours.state_dict())
    x, y = mixed_inputs(9), mixed_inputs(5)
    torch.testing.assert_close(ours(x, y).to_dense(), theirs(x, y).to_dense())
    torch.testing.assert_close(ours(x, x + 0, diag=True), theirs(x, x).to_dense().diagonal())


@pytest.mark.parametrize("batch_shape", [torch.Size(), torch.Size([2])])
@pytest.mark.parametrize("path", PATHS)
def test_networks_of_mixed_columns_are_the_same_by_every_path(path, batch_shape):
    primitives = [
        CategoricalKernel(active_dims=(1,)),
        ScaleKernel(CategoricalKernel(active_dims=(3, 1), ard_num_dims=2)),
        ProductKernel(
            MaternKernel(nu=2.5, ard_num_dims=2, active_dims=(0, 2)),
            ScaleKernel(CategoricalKernel(ard_num_dims=2, active_dims=(1, 3))),
        ),
        RBFKernel(active_dims=(0,)),
    ]
    network = NeuralKernelNetwork(primitives, [Linear(4, 4), Product(4, 2), Linear(2, 1)])
    network = expand_kernel_batch(network, batch_shape) if batch_shape else network
    network = perturb(network.double())
    x, y = mixed_inputs(60, *batch_shape), mixed_inputs(50, *batch_shape)
    for one in (None, y):
        assert_same(evaluate(path, network, x, one), evaluate("plain", network, x, one))


def test_value_of_a_mixed_sum_written_out():
    parts = mixed_parts(lambda **columns: MaternKernel(nu=0.5, **columns), 4, (1, -1))
    network = perturb(NeuralKernelNetwork(*parts))
    first, categories, product = network.primitives
    (x, y), scales = mixed_inputs(2), network.layers[0].fractions[0]
    y[1], y[3] = x[1], x[3] + 1  # one category is the same

    def number(kernel):
        distances = (x - y)[[0, 2]] / kernel.lengthscale[0]
        return (-distances.norm()).exp()

    def category(kernel):
        return (-0.5 / kernel.lengthscale[0, 1]).exp()

    expected = [number(first), category(categories)]
    expected.append(number(product.kernels[0]) * category(product.kernels[1]))
    expected = (scales * torch.stack(expected)).sum()
    torch.testing.assert_close(network(x[None], y[None]).to_dense()[0, 0], expected)


@pytest.mark.parametrize("name", ["additive", "optimization", "pairs", "regression", "tabular"])
@pytest.mark.parametrize("cat_dims", [(1, -1), (0, 1, 2, 3)])
def test_presets_see_categories_as_such(name, cat_dims):
    """Other codes for the same categories change nothing, other numbers do."""
    preset = getattr(NeuralKernelNetwork, name)
    network, x = preset(4, cat_dims=cat_dims), mixed_inputs(8)
    other = x.clone()
    other[:, 1], other[:, 3] = 5 - 2 * x[:, 1], -x[:, 3]
    before, after = network(x).to_dense(), network(other).to_dense()
    torch.testing.assert_close(before, after)
    assert not torch.allclose(preset(4)(x).to_dense(), preset(4)(other).to_dense())
    seen = [kernel for kernel in network.modules() if isinstance(kernel, CategoricalKernel)]
    assert all(prior is not None for kernel in seen for prior in kernel._priors.values())
    assert len(seen) == len(cat_dims) + (name not in ("additive", "pairs")) * (
        1 if name == "optimization" or len(cat_dims) == 4 else 3
    )


def test_categories_add_to_and_multiply_the_other_columns():
    network = NeuralKernelNetwork.optimization(3, cat_dims=[-2])
    x = torch.tensor([[0.2, 4.0, 0.5], [0.2, 2.0, 0.5], [0.9, 2.0, 0.1], [0.9, 4.0, 0.1]])
    value = network(x).to_dense()
    # two columns and the category make one, the diagonal, and each of them less
    assert value[0, 2] < value[0, 1] < value[0, 0]
    assert value[0, 2] < value[0, 3] < value[0, 0]
    torch.testing.assert_close(value.diagonal(), torch.ones(4))


@pytest.mark.parametrize(
    ("cat_dims", "error", "message"),
    [
        ([1.0], TypeError, r"must be integers, got \(1.0,\)"),
        ([True], TypeError, r"must be integers, got \(True,\)"),
        ([3], ValueError, r"indices of 3 columns, got \(3,\)"),
        ([-4], ValueError, r"indices of 3 columns, got \(-4,\)"),
        ([0, -3], ValueError, r"must be distinct, got \(0, -3\)"),
    ],
)
def test_wrong_columns_are_rejected(cat_dims, error, message):
    with pytest.raises(error, match=message):
        NeuralKernelNetwork.tabular(3, cat_dims=cat_dims)
    one, two = (NeuralKernelNetwork.tabular(3, cat_dims=d) for d in ([1], np.array([1])))
    assert str(one) == str(two)
