import pytest
import torch
from gpytorch.kernels import ScaleKernel

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.estimators.nkn import table_models
from gpytorch_nkn.grids import STRUCTURES, inpaint
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import NETWORKS, named_kernel, named_network
from gpytorch_nkn.models import NKNSingleTaskGP, SparseNKNGP


def num_columns(word):
    return 1 if word in ("texture", "time_series") else 2


def parts(kernel):
    """The network of a kernel, as its kinds of primitives and its parameters."""
    network = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    return [type(part) for part in network.primitives], network.state_dict()


def assert_equal(kernel, other):
    (kinds, values), (expected_kinds, expected) = parts(kernel), parts(other)
    assert kinds == expected_kinds
    torch.testing.assert_close(dict(values), dict(expected))


@pytest.mark.parametrize("word", NETWORKS)
def test_a_word_is_the_same_network_everywhere(word):
    x = torch.rand(6, num_columns(word))
    network = named_network(word, num_columns(word))
    assert_equal(NKNSingleTaskGP(x, x[:, :1], structure=word).covar_module, network)
    sparse = SparseNKNGP(x, x[:, :1], structure=word, inducing_points=3)
    kernels = [part for part in sparse.modules() if isinstance(part, NeuralKernelNetwork)]
    assert_equal(kernels[0], network)
    assert_equal(table_models._make_kernel(word, x, ()), network)
    assert_equal(named_kernel(word, num_columns(word)), network)


def test_words_of_image_filling_are_kernels_of_one_column():
    for word in STRUCTURES:
        kernel = named_kernel(word, 1, priors=False)
        assert kernel(torch.rand(3, 1)).to_dense().shape == (3, 3)


@pytest.mark.parametrize("word", [*NETWORKS, "matern", "periodic", "rbf", "spectral_mixture"])
def test_words_have_no_priors_if_none_are_wanted(word):
    width = num_columns(word)
    assert not list(named_kernel(word, width, priors=False).named_priors())
    if width > 1 and word not in ("periodic", "spectral_mixture"):  # these are for numbers
        mixed = named_kernel(word, width, priors=False, cat_dims=[0])
        assert not list(mixed.named_priors())


def test_options_of_a_preset_go_before_options_of_a_word():
    assert not list(named_network("paper", 2).named_priors())
    assert list(named_network("paper", 2, priors=True).named_priors())
    assert len(named_network("additive", 2, wiring="Linear1").layers) == 1
    with pytest.raises(ValueError, match="one input column, got 2.*active_dims"):
        named_network("texture", 2)


def test_unknown_words_are_answered_by_the_known_ones():
    x = torch.rand(9, 2)
    for ask in (
        lambda: NKNSingleTaskGP(x, x[:, :1], structure="joint"),
        lambda: NKNRegressor("joint").fit(x.numpy(), x[:, 0].numpy()),
    ):
        with pytest.raises(ValueError, match="structure must be one of .*'tabular'.*got 'joint'"):
            ask()
    with pytest.raises(ValueError, match="one of .*'texture'.*, got 'tabular'"):
        inpaint(x.numpy(), structure="tabular")
