import inspect
import math
import pickle
from copy import deepcopy

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from gpytorch_nkn import settings
from gpytorch_nkn.interpretation import expand
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear
from tests.global_state import unchanged
from tests.kernels.contract import dense

PRESETS = [
    ("time_series", (), 1),
    ("regression", (3,), 3),
    ("additive", (4,), 4),
    ("texture", (), 1),
]
# What the layers of the paper's wiring add, from 4, 6 or 8 primitives.
LAYERS = {p: (8 * p + 8) + (4 * 4 + 4) + (2 + 1) for p in range(1, 20)}


WIRINGS = [
    "Linear8-Product4-Linear4-Product2-Linear1",
    "Linear1-Linear1",
    "Linear8-Product2-Linear4-Product1",
    "Product2-Linear2-Product1",
    "Linear8-Product4-Linear8-Product4-Linear4-Product2-Linear1",
]
# All presets, by name, positional arguments and options of their own.
STARTS = [
    ("time_series", (), {}),
    ("texture", (), {}),
    ("pairs", (4,), {"cat_dims": [1]}),
    ("tabular", (12,), {"columns": True, "spectral": 2}),
    ("tabular", (5,), {"ard": False, "columns": True, "spectral": 2, "cat_dims": [1]}),
    ("tabular", (2,), {"cat_dims": [0, 1]}),
    *[
        (name, (dim,), {"cat_dims": cat_dims})
        for name in ("regression", "tabular", "additive", "optimization")
        for dim, cat_dims in [(1, []), (5, [1]), (12, [])]
    ],
]
OPTIONS = [
    {"sparsity": "l1"},
    {"priors": False, "sparsity": "l1", "batch_shape": torch.Size([2])},
    {"priors": False, "batch_shape": torch.Size([1, 2])},
]


def build(name, args=(), **options):
    return getattr(NeuralKernelNetwork, name)(*args, **options)


def num_trained(module):
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def base(kernel):
    return kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel


def test_time_series_has_the_papers_number_of_parameters():
    """The paper's 111 less a variance of each of eight primitives, plus two exponents."""
    assert num_trained(build("time_series")) == 111 - 8 + 2


@pytest.mark.parametrize("dim", [1, 2, 8])
def test_regression_has_the_papers_parameters_for_rbf_and_rq(dim):
    """Table 4 without variances: RBF d; RQ d and an exponent; linear d, or none if d is 1."""
    network = build("regression", (dim,))
    assert num_trained(network) == 2 * dim + 2 * (dim + 1) + 2 * dim * (dim > 1) + LAYERS[6]
    assert LAYERS[6] == 4 * dim + 85 - (4 * (dim + 1) + 2)  # the paper's total, less its kernels


@pytest.mark.parametrize("name, args, own", STARTS)
def test_variance_at_the_start_is_near_one_and_float32_is_enough(name, args, own):
    method, dim = getattr(NeuralKernelNetwork, name), args[0] if args else 1
    known = inspect.signature(method).parameters
    num_primitives = len(method(*args, **own).primitives)
    generator = torch.Generator().manual_seed(dim)
    wirings = WIRINGS[: None if dim == 5 or not args else 1] if "wiring" in known else [None]
    cases = *(({}, wiring) for wiring in wirings), *((o, wirings[0]) for o in OPTIONS)
    for options, wiring in cases:
        kept = {key: value for key, value in options.items() if key in known}
        kept |= {"wiring": wiring} if wiring else {}
        if wiring and num_primitives % 2 and wiring.startswith("Product2"):
            continue
        if name in ("tabular", "optimization") and not wiring.endswith("Linear1"):
            continue  # a skip connection ends in a Linear layer
        network = method(*args, **own, **kept).float()
        for scale in (3.0, 30.0):
            corners = 2.0 * torch.randint(0, 2, (12, dim), generator=generator) - 1
            inner = 2 * torch.rand(12, dim, generator=generator) - 1
            x = scale * torch.cat([torch.zeros(1, dim), corners, inner]).float()
            matrix = network(x).to_dense()
            variance = matrix.diagonal(dim1=-1, dim2=-2)
            if scale == 3.0:
                assert variance.min() >= 0.3 and variance.max() <= 3.0, (kept, variance)
            noisy = matrix + 1e-3 * torch.eye(len(x), dtype=torch.float32)
            assert not torch.linalg.cholesky_ex(noisy).info.any(), (kept, variance.max())


@pytest.mark.parametrize("name, args, dim", PRESETS)
@pytest.mark.parametrize("priors", [False, True])
def test_sparse_priors_replace_only_priors_of_the_weights(name, args, dim, priors):
    network = build(name, args, sparsity="l1", priors=priors)
    usual = {key for key, *_ in build(name, args, priors=True).named_priors()}
    weights = {key for key in usual if key.endswith("weight_prior")}
    names = {key for key, *_ in network.named_priors()}
    assert len(weights) == 3 and names == (usual if priors else weights)
    x = torch.randn(6, dim)
    torch.testing.assert_close(dense(network, x), dense(build(name, args), x))
    for copy in (pickle.loads(pickle.dumps(network)), deepcopy(network)):
        copy.load_state_dict(network.state_dict())
        for key, module, prior, closure, _ in list(copy.named_priors()):
            assert prior.log_prob(closure(module)).isfinite().all(), key
            module.sample_from_prior(key.rpartition(".")[2])
        assert dense(copy, x).isfinite().all()
    with pytest.raises(ValueError, match="sparsity must be 'l1' or None, got 'no'"):
        build(name, args, sparsity="no")


@pytest.mark.parametrize("name, args, dim", PRESETS)
def test_start_is_independent_of_the_random_state_and_leaves_it_alone(name, args, dim):
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with unchanged():
            states.append(build(name, args).state_dict())
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.mark.parametrize("name, args, dim", PRESETS)
def test_gradients_of_different_units_differ(name, args, dim):
    network, x = build(name, args), torch.randn(12, dim)
    (dense(network, x) * torch.randn(12, 12)).sum().backward()
    for layer in network.layers:
        if isinstance(layer, Linear) and layer.out_features > 1:
            rows = layer.raw_weight.grad
            distances = torch.cdist(rows, rows) + torch.eye(len(rows))
            assert distances.min() > 1e-6 * rows.abs().max()
    kinds = {}
    for kernel in network.primitives:
        kinds.setdefault(type(base(kernel)), []).append(kernel)
    for kind, copies in kinds.items():
        gradients = [
            torch.cat([p.grad.flatten() for p in copy.parameters() if p.requires_grad])
            for copy in copies
            if num_trained(copy)
        ]
        for other in gradients[1:]:
            assert (other - gradients[0]).abs().max() > 1e-6, kind


@pytest.mark.parametrize("name", ["regression", "tabular", "additive", "optimization", "pairs"])
@pytest.mark.parametrize("input_dim", [0, -1, 2.0, "3"])
def test_number_of_columns_must_be_a_positive_integer(name, input_dim):
    expected = "at least 1" if isinstance(input_dim, int) else "an integer"
    with pytest.raises(
        (TypeError, ValueError), match=f"input_dim must be {expected}, got {input_dim!r}"
    ):
        build(name, (input_dim,))


@pytest.mark.parametrize("name", ["additive", "optimization"])
def test_start_is_near_a_sum_of_one_dimensional_kernels(name):
    network, shares = build(name, (4,)), {}
    if name == "optimization":  # two units of the layer before, and the primitives
        assert network.layers[-1].weight[0, 2:6].sum().item() == pytest.approx(0.7, abs=1e-9)
    for term in expand(network, torch.rand(30, 4)).terms:
        shares[len(term.columns)] = shares.get(len(term.columns), 0.0) + term.share
    assert shares[1] > 0.5 * sum(shares.values())


# the networks for tables


def test_lengthscales_of_tabular_grow_with_the_columns_that_a_kernel_sees():
    network = build("tabular", (4,), columns=True)
    single, joint = network.primitives[0], network.primitives[4]
    torch.testing.assert_close(joint.lengthscale, 2 * single.lengthscale.expand(1, 4))
    mode = [(k.lengthscale_prior.loc - k.lengthscale_prior.scale**2).exp() for k in (single, joint)]
    torch.testing.assert_close(mode[1] / mode[0], torch.tensor(2.0))
    without = build("tabular", (4,), columns=True, priors=False)
    assert not list(without.named_priors())
    x = torch.randn(5, 4)
    torch.testing.assert_close(dense(network, x), dense(without, x))


# the network for Bayesian optimisation


def test_optimization_has_a_kernel_of_each_column_and_one_of_all():
    kernels = build("optimization", (3,)).primitives
    kinds = [(type(k), k.ard_num_dims) for k in kernels]
    assert kinds == [*[(RBFKernel, None)] * 3, (MaternKernel, 3)]
    assert [k.active_dims.tolist() for k in kernels[:3]] == [[0], [1], [2]]
    torch.testing.assert_close(kernels[3].lengthscale, torch.full((1, 3), 0.7 * math.sqrt(3)))


def test_pairs_equals_the_formula():
    network, x, y = build("pairs", (3,)), torch.rand(6, 3), torch.rand(5, 3)
    assert [k.active_dims.tolist() for k in network.primitives] == [[0], [1], [2]]
    k = [torch.exp(-0.5 * torch.cdist(x[:, [i]], y[:, [i]]).square() / 0.7**2) for i in range(3)]
    sums, total = network.layers[0], network.layers[2]
    u, v = torch.einsum("oc,cnm->onm", sums.weight, torch.stack(k)) + sums.bias[:, None, None]
    w = total.weight[0]
    expected = total.bias + w[0] * u * v + sum(w[1 + i] * k[i] for i in range(3))
    torch.testing.assert_close(dense(network, x, y), expected)
    assert 0.25 < w[0].item() < 0.75  # neither a sum nor a product alone
    assert not torch.equal(sums.weight[0], sums.weight[1])


@pytest.mark.parametrize("name", ["optimization", "pairs"])
def test_convex_presets_have_a_variance_of_one_whatever_their_parameters(name):
    network, x = build(name, (4,)), torch.rand(5, 4)
    for _ in range(3):
        torch.testing.assert_close(dense(network, x).diagonal(), torch.ones(5))
        for parameter in network.parameters():
            parameter.data.normal_()


READY = {
    "time_series": ((), 1),
    "forecast": ((), 1),
    "regression": ((3,), 3),
    "tabular": ((3,), 3),
    "additive": ((3,), 3),
    "texture": ((), 1),
    "optimization": ((3,), 3),
    "pairs": ((3,), 3),
}


@pytest.mark.parametrize(
    "name, evaluation",
    [*((name, "auto") for name in READY), ("forecast", "plain"), ("optimization", "plain")],
)
def test_inputs_of_other_columns_than_a_preset_is_for_are_rejected(name, evaluation):
    args, columns = READY[name]
    options = {"origin": -1.0} if name == "forecast" else {}
    network = build(name, args, **options)
    for kernel in (network, ScaleKernel(network), network.expand_batch(torch.Size([2]))):
        with settings.kernel_evaluation(evaluation):
            assert kernel(torch.rand(5, columns)).to_dense().shape[-2:] == (5, 5)
            for other in {1, columns - 1, columns + 1} - {0, columns}:
                x = torch.rand(5, other)
                with pytest.raises(ValueError, match=f"needs {columns} input columns.*5, {other}"):
                    kernel(x).to_dense()
                with pytest.raises(ValueError, match=f"needs {columns} input columns"):
                    kernel(x, diag=True)
    x = torch.rand(5, columns + 2)
    chosen = tuple(range(1, columns + 1))
    network = build(name, args, active_dims=chosen, **options)
    expected = build(name, args, **options)(x[:, 1 : columns + 1]).to_dense()
    torch.testing.assert_close(network(x).to_dense(), expected)
    with pytest.raises(ValueError, match=f"needs {columns} input columns, got active_dims"):
        build(name, args, active_dims=(*chosen, 0), **options)


def test_without_ard_every_kernel_has_one_lengthscale_and_the_network_is_isotropic():
    network = NeuralKernelNetwork.tabular(3, ard=False).double()
    assert all(part.lengthscale.numel() == 1 for part in network.primitives if part.has_lengthscale)
    x, rotation = torch.randn(6, 3).double(), torch.linalg.qr(torch.randn(3, 3).double())[0]
    torch.testing.assert_close(dense(network, x @ rotation, x @ rotation), dense(network, x, x))


@pytest.mark.parametrize("name", READY)
def test_an_unknown_option_is_rejected_in_the_name_of_the_preset(name):
    with pytest.raises(TypeError, match=rf"{name}\(\) got .* 'prior'"):
        build(name, READY[name][0], prior=False)
