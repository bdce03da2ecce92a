import inspect
import itertools
import pickle
from copy import deepcopy

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.optim.utils.model_utils import sample_all_priors
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP

from gpytorch_nkn import settings
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.interpretation import expand
from gpytorch_nkn.kernels import (
    CenteredLinearKernel,
    NeuralKernelNetwork,
    SpectralComponentKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood
from tests.fit.models import SmallGP
from tests.kernels.contract import close, dense

PRESETS = [
    pytest.param("time_series", (), 1, id="time_series"),
    pytest.param("regression", (3,), 3, id="regression"),
    pytest.param("additive", (4,), 4, id="additive"),
    pytest.param("texture", (), 1, id="texture"),
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
    ("time_series", (), {"zero_mean": True}),
    ("texture", (), {}),
    ("pairs", (4,), {"cat_dims": [1]}),
    *[("tabular", (dim,), {"columns": True, "spectral": 2}) for dim in (1, 2, 20)],
    *[
        (name, (dim,), {"cat_dims": cat_dims})
        for name in ("regression", "tabular", "additive", "optimization")
        for dim, cat_dims in [(1, []), (2, [0, 1]), (5, [1]), (20, [])]
    ],
]
OPTIONS = [
    {},
    {"variances": True, "sparsity": "l1"},
    {"priors": False, "sparsity": "horseshoe", "batch_shape": torch.Size([2])},
    {"priors": False, "batch_shape": torch.Size([3, 2])},
]


def build(name, args=(), **options):
    return getattr(NeuralKernelNetwork, name)(*args, **options)


def num_trained(module):
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def base(kernel):
    return kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel


@pytest.mark.parametrize("zero_mean", [False, True])
def test_time_series_has_the_papers_111_parameters_and_two_exponents(zero_mean):
    network = build("time_series", zero_mean=zero_mean, variances=True)
    exponents = sum(
        k.raw_alpha.numel() for k in map(base, network.primitives) if hasattr(k, "alpha")
    )
    assert exponents == 2 and num_trained(network) == 111 + exponents


@pytest.mark.parametrize("dim", [1, 2, 8])
def test_regression_has_the_papers_parameters_for_rbf_and_rq(dim):
    """Table 4: RBF d + 1; RQ d + 1 and GPyTorch's exponent; linear with a variance per column."""
    network = build("regression", (dim,), variances=True)
    assert num_trained(network) == 2 * (dim + 1) + 2 * (dim + 2) + 2 * dim + LAYERS[6]
    assert LAYERS[6] == 4 * dim + 85 - (4 * (dim + 1) + 2)  # the paper's total, less its kernels


@pytest.mark.parametrize("dim", [1, 4, 10])
def test_additive_has_one_rbf_per_column(dim):
    network = build("additive", (dim,), variances=True)
    assert num_trained(network) == 2 * dim + LAYERS[dim]
    x = torch.randn(4, dim)
    for column, kernel in enumerate(network.primitives):
        alone = RBFKernel().initialize(lengthscale=base(kernel).lengthscale.item())
        close(dense(kernel, x), dense(alone, x[:, [column]]), f"primitive {column}")


def test_texture_has_one_of_each():
    network = build("texture", variances=True)
    assert num_trained(network) == 1 + 2 + 3 + 3 + LAYERS[4]
    kinds = [type(base(k)) for k in network.primitives]
    assert kinds == [LinearKernel, RBFKernel, RQKernel, PeriodicKernel]


@pytest.mark.parametrize(
    "name, args, without",
    [
        ("time_series", (), 2 + 4 + 0 + 4 + LAYERS[8]),
        ("regression", (3,), 6 + 6 + 8 + LAYERS[6]),
        ("additive", (4,), 4 + LAYERS[4]),
        ("texture", (), 0 + 1 + 2 + 2 + LAYERS[4]),
    ],
)
def test_without_variances_the_first_weights_scale_the_primitives(name, args, without):
    network = build(name, args)
    assert num_trained(network) == without
    assert not any(isinstance(k, ScaleKernel) for k in network.primitives)


def test_primitives_of_time_series():
    plain = [type(k) for k in build("time_series").primitives]
    assert plain == [
        *[RBFKernel] * 2,
        *[PeriodicKernel] * 2,
        *[LinearKernel] * 2,
        *[RQKernel] * 2,
    ]
    readable = [type(k) for k in build("time_series", zero_mean=True).primitives]
    assert readable[2:6] == [ZeroMeanPeriodicKernel] * 2 + [CenteredLinearKernel] * 2


@pytest.mark.parametrize("name, args, dim", PRESETS)
@pytest.mark.parametrize("variances", [False, True])
def test_value_at_the_start_equals_the_composition_by_hand(name, args, dim, variances):
    network, x = build(name, args, variances=variances), torch.randn(5, dim)
    units = torch.stack([dense(k, x) for k in network.primitives])
    for layer in network.layers:
        if isinstance(layer, Linear):
            units = torch.einsum("oc,cnm->onm", layer.weight, units) + layer.bias[:, None, None]
        else:
            units = units.unflatten(0, (layer.out_features, -1)).prod(1)
    assert units.abs().max() > 0.01
    torch.testing.assert_close(dense(network, x), units.squeeze(0))


def test_starts_cover_every_preset():
    presets = {
        name
        for name, method in vars(NeuralKernelNetwork).items()
        if isinstance(method, classmethod) and not name.startswith("_")
    }
    # The level of a forecast has a known variance of 10.
    assert presets == {name for name, *_ in STARTS} | {"forecast"}


@pytest.mark.parametrize("name, args, own", STARTS)
def test_variance_at_the_start_is_near_one_and_float32_is_enough(name, args, own):
    method, dim = getattr(NeuralKernelNetwork, name), args[0] if args else 1
    known = inspect.signature(method).parameters
    num_primitives = len(method(*args, **own).primitives)
    generator = torch.Generator().manual_seed(dim)
    for options, wiring in itertools.product(OPTIONS, WIRINGS if "wiring" in known else [None]):
        kept = {key: value for key, value in options.items() if key in known}
        kept |= {"wiring": wiring} if wiring else {}
        if wiring and num_primitives % 2 and wiring.startswith("Product2"):
            continue
        if name in ("tabular", "optimization") and not wiring.endswith("Linear1"):
            continue  # a skip connection ends in a Linear layer
        network = method(*args, **own, **kept).float()
        for scale in (3.0, 30.0):
            corners = 2.0 * torch.randint(0, 2, (20, dim), generator=generator) - 1
            inner = 2 * torch.rand(20, dim, generator=generator) - 1
            x = scale * torch.cat([torch.zeros(1, dim), corners, inner]).float()
            matrix = network(x).to_dense()
            variance = matrix.diagonal(dim1=-1, dim2=-2)
            if scale == 3.0:
                assert variance.min() >= 0.3 and variance.max() <= 3.0, (kept, variance)
            noisy = matrix + 1e-3 * torch.eye(len(x), dtype=torch.float32)
            assert not torch.linalg.cholesky_ex(noisy).info.any(), (kept, variance.max())


@pytest.mark.parametrize("name, args, dim", PRESETS)
def test_wiring_of_the_paper_is_the_default_and_any_other_can_be_had(name, args, dim):
    network = build(name, args)
    kinds = [(type(layer), layer.out_features) for layer in network.layers]
    assert kinds == [(Linear, 8), (Product, 4), (Linear, 4), (Product, 2), (Linear, 1)]
    other = build(name, args, wiring="Linear4-Product2-Linear1")
    assert [layer.out_features for layer in other.layers] == [4, 2, 1]
    with pytest.raises(ValueError, match="got 'Linaer4' in 'Linaer4-Linear1'"):
        build(name, args, wiring="Linaer4-Linear1")
    with pytest.raises(ValueError, match=r"last one must give 1; .* -> Linear\(\d, 2\)"):
        build(name, args, wiring="Linear2")


@pytest.mark.parametrize("name, args, dim", PRESETS)
@pytest.mark.parametrize("batch_shape", [(2,), (3, 2)])
def test_batch_shape_reaches_every_parameter(name, args, dim, batch_shape):
    single, network = build(name, args), build(name, args, batch_shape=torch.Size(batch_shape))
    assert network.batch_shape == batch_shape
    for (key, p), q in zip(network.named_parameters(), single.parameters(), strict=True):
        assert p.shape == (*batch_shape, *q.shape), key
    x = torch.randn(4, dim)
    assert dense(network, x).shape == (*batch_shape, 4, 4)


def test_regression_learns_a_lengthscale_per_column():
    network = build("regression", (4,))
    assert [tuple(k.lengthscale.shape) for k in network.primitives if k.has_lengthscale] == [
        (1, 4)
    ] * 4
    x = torch.randn(5, 4)
    gradients = torch.autograd.grad(
        dense(network, x).sum(),
        [k.raw_lengthscale for k in network.primitives if k.has_lengthscale],
    )
    assert all(g.unique().numel() == 4 for g in gradients)


def test_active_dims_select_the_column_of_time():
    x = torch.randn(5, 3)
    network = build("time_series", active_dims=(2,))
    torch.testing.assert_close(dense(network, x), dense(build("time_series"), x[:, [2]]))
    network = build("additive", (2,), active_dims=(2, 0))
    torch.testing.assert_close(dense(network, x), dense(build("additive", (2,)), x[:, [2, 0]]))


@pytest.mark.parametrize("name, args, dim", PRESETS)
@pytest.mark.parametrize("variances, batch_shape", [(False, ()), (True, (2,))])
def test_every_prior_can_be_sampled_pickled_and_copied(name, args, dim, variances, batch_shape):
    network = build(name, args, variances=variances, batch_shape=torch.Size(batch_shape))
    with_prior = {
        f"{key.rpartition('.')[0]}.raw_{key.rpartition('.')[2].removesuffix('_prior')}"
        for key, *_ in network.named_priors()
    }
    assert with_prior == {key for key, p in network.named_parameters() if p.requires_grad}
    x = torch.randn(6, dim)
    for copy in (network, pickle.loads(pickle.dumps(network)), deepcopy(network)):
        close(dense(copy, x), dense(network, x), "a copy has other values")
        for key, module, prior, closure, _ in list(copy.named_priors()):
            before = closure(module).detach().clone()
            assert prior.log_prob(before).isfinite().all(), key
            module.sample_from_prior(key.rpartition(".")[2])
            after = closure(module)
            assert after.shape == before.shape and not torch.equal(after, before), key
            assert (after > 0).all() and after.isfinite().all(), key
        assert dense(copy, x).isfinite().all()
        network = build(name, args, variances=variances, batch_shape=torch.Size(batch_shape))


@pytest.mark.parametrize("name, args, dim", PRESETS)
@pytest.mark.parametrize("sparsity, priors", [("l1", False), ("horseshoe", True)])
def test_sparse_priors_replace_those_of_the_weights_alone(name, args, dim, sparsity, priors):
    network = build(name, args, sparsity=sparsity, priors=priors)
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
    with pytest.raises(ValueError, match="sparsity must be 'l1', 'horseshoe' or None, got 'no'"):
        build(name, args, sparsity="no")


class _SeriesGP(ExactGP):
    def __init__(self, kernel):
        x = torch.linspace(-1.5, 1.5, 30).unsqueeze(-1)
        super().__init__(x, torch.sin(6 * x[:, 0]) + x[:, 0], GaussianLikelihood())
        self.mean_module, self.covar_module = ConstantMean(), kernel

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("sparsity", ["l1", "horseshoe"])
def test_networks_with_sparse_priors_are_trained_on_the_right_loss(sparsity):
    model = _SeriesGP(build("time_series", sparsity=sparsity, wiring="Linear4-Product2-Linear1"))
    recipe = Recipe(adam_steps=150, lbfgs_iterations=30)
    record = fit_best_of(model, restarts=1, recipe=recipe, progress=False).restarts
    assert all(r.status == "ok" for r in record)
    model.train()
    prior = model.likelihood(model(*model.train_inputs))
    expected = -prior.log_prob(model.train_targets)
    for _, module, density, closure, _ in model.named_priors():
        expected -= density.log_prob(closure(module)).sum()
    torch.testing.assert_close(Objective(model)().squeeze(), expected, rtol=1e-6, atol=1e-6)
    best = min(r.loss for r in record)
    assert best == pytest.approx(expected.item(), rel=1e-6)
    weights = model.covar_module.layers[0].weight
    assert (weights < 0.05 * weights.max()).sum() >= 16  # half of the 32


@pytest.mark.parametrize("name, args, dim", PRESETS)
def test_without_priors_there_are_none_and_values_are_the_same(name, args, dim):
    network, x = build(name, args, priors=False), torch.randn(5, dim)
    assert list(network.named_priors()) == []
    torch.testing.assert_close(dense(network, x), dense(build(name, args), x))


@pytest.mark.parametrize("name, args, dim", PRESETS)
def test_start_is_independent_of_the_random_state_and_leaves_it_alone(name, args, dim):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build(name, args)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    second = build(name, args)
    for (key, value), other in zip(
        first.state_dict().items(), second.state_dict().values(), strict=True
    ):
        assert torch.equal(value, other), key


@pytest.mark.parametrize("name, args, dim", PRESETS)
@pytest.mark.parametrize("variances", [False, True])
def test_gradients_of_different_units_differ(name, args, dim, variances):
    network, x = build(name, args, variances=variances), torch.randn(12, dim)
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


@pytest.mark.parametrize("name, args", [("time_series", ()), ("regression", (3,))])
def test_copies_of_a_primitive_start_apart(name, args):
    starts = {}
    for kernel in build(name, args).primitives:
        for value in ("lengthscale", "period_length"):
            if getattr(kernel, value, None) is not None:
                starts.setdefault((type(kernel), value), []).append(getattr(kernel, value))
    assert (RBFKernel, "lengthscale") in starts and all(len(v) == 2 for v in starts.values())
    for key, (first, second) in starts.items():
        assert (second / first - 1).abs().min() > 0.5, key


@pytest.mark.parametrize("name", ["regression", "tabular", "additive", "optimization", "pairs"])
@pytest.mark.parametrize("input_dim", [0, -1, 2.0, "3"])
def test_number_of_columns_must_be_a_positive_integer(name, input_dim):
    with pytest.raises(
        ValueError, match=f"input_dim must be a positive integer, got {input_dim!r}"
    ):
        build(name, (input_dim,))


@pytest.mark.parametrize("name, args, dim", PRESETS)
def test_misspelt_options_are_refused(name, args, dim):
    with pytest.raises(TypeError, match="unexpected keyword argument 'prior'"):
        build(name, args, prior=False)


def test_additive_preset_starts_near_a_sum_of_its_primitives():
    x = torch.rand(40, 6)
    shares = {}
    for term in expand(NeuralKernelNetwork.additive(6), x).terms:
        shares[len(term.columns)] = shares.get(len(term.columns), 0.0) + term.share
    assert shares[1] > max(shares[2], shares[3], shares[4])


# the networks for tables


@pytest.mark.parametrize("options", [{}, {"columns": True}, {"spectral": 2}])
def test_tabular_equals_the_composition_by_hand(options):
    network, x = build("tabular", (3,), **options), torch.randn(6, 3)
    units = first = torch.stack([dense(k, x) for k in network.primitives])
    for number, layer in enumerate(network.layers):
        if number == 4:
            units = torch.cat([units, first])
        if isinstance(layer, Linear):
            units = torch.einsum("oc,cnm->onm", layer.weight, units) + layer.bias[:, None, None]
        else:
            units = units.unflatten(0, (layer.out_features, -1)).prod(1)
    torch.testing.assert_close(dense(network, x), units.squeeze(0))


def test_primitives_of_tabular():
    kinds = [type(k) for k in build("tabular", (3,)).primitives]
    assert kinds == [RBFKernel] * 2 + [MaternKernel] * 2 + [RQKernel, LinearKernel]
    network = build("tabular", (3,), columns=True, spectral=2)
    assert [type(k) for k in network.primitives] == [
        *[RBFKernel] * 3, *[SpectralComponentKernel] * 2,
        RBFKernel, MaternKernel, RQKernel, LinearKernel,
    ]  # fmt: skip
    assert [k.active_dims.tolist() for k in network.primitives[:3]] == [[0], [1], [2]]
    assert network.primitives[6].nu == 2.5
    directions = [k.frequency.flatten() for k in network.primitives[3:5]]
    assert torch.cosine_similarity(*directions, dim=0).abs() < 0.9  # they start apart
    assert network.skip and network.layers[-1].in_features == 2 + 9


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


@pytest.mark.parametrize("batch_shape", [(2,), (3, 2)])
def test_tabular_in_a_batch_and_over_some_columns(batch_shape):
    options = {"columns": True, "spectral": 2}
    network = build("tabular", (3,), batch_shape=torch.Size(batch_shape), **options)
    single, x = build("tabular", (3,), **options), torch.randn(4, 3)
    assert network.batch_shape == batch_shape
    for (key, p), q in zip(network.named_parameters(), single.parameters(), strict=True):
        assert p.shape == (*batch_shape, *q.shape), key
    assert dense(network, x).shape == (*batch_shape, 4, 4)
    some = build("tabular", (3,), active_dims=(4, 0, 2), **options)
    wide = torch.randn(4, 5)
    torch.testing.assert_close(dense(some, wide), dense(single, wide[:, [4, 0, 2]]))


@pytest.mark.parametrize("spectral", [-1, 1.5, "two"])
def test_the_number_of_spectral_components_is_checked(spectral):
    with pytest.raises(ValueError, match="number of components, got"):
        build("tabular", (3,), spectral=spectral)


# the network for Bayesian optimisation


@pytest.mark.parametrize("wiring", ["Linear8-Product4-Linear4-Product2-Linear1", "Linear3-Linear1"])
def test_optimization_equals_the_composition_by_hand(wiring):
    network, x, y = build("optimization", (3,), wiring=wiring), torch.rand(6, 3), torch.rand(5, 3)
    kinds = [(type(k), k.ard_num_dims) for k in network.primitives]
    assert kinds == [*[(RBFKernel, None)] * 3, (MaternKernel, 3)]
    assert [k.active_dims.tolist() for k in network.primitives[:3]] == [[0], [1], [2]]
    first = units = torch.stack([dense(k, x, y) for k in network.primitives])
    for number, layer in enumerate(network.layers, start=1):
        if number == len(network.layers):
            units = torch.cat([units, first])
        if isinstance(layer, Linear):
            logits = torch.cat([layer.raw_weight, layer.raw_bias[:, None]], -1).exp()
            shares = logits / logits.sum(-1, keepdim=True)
            ones = torch.ones_like(units[:1])
            units = torch.einsum("oc,cnm->onm", shares, torch.cat([units, ones]))
        else:
            units = units.unflatten(0, (layer.out_features, -1)).prod(1)
    assert units.std() > 0.01
    torch.testing.assert_close(dense(network, x, y), units.squeeze(0))


def test_pairs_equals_the_formula():
    network, x, y = build("pairs", (3,)), torch.rand(6, 3), torch.rand(5, 3)
    assert [k.active_dims.tolist() for k in network.primitives] == [[0], [1], [2]]
    k = [torch.exp(-0.5 * torch.cdist(x[:, [i]], y[:, [i]]).square() / 0.3**2) for i in range(3)]
    sums, total = network.layers[0], network.layers[2]
    u, v = torch.einsum("oc,cnm->onm", sums.weight, torch.stack(k)) + sums.bias[:, None, None]
    w = total.weight[0]
    expected = total.bias + w[0] * u * v + sum(w[1 + i] * k[i] for i in range(3))
    torch.testing.assert_close(dense(network, x, y), expected)
    assert 0.25 < w[0].item() < 0.75  # neither a sum nor a product alone
    assert not torch.equal(sums.weight[0], sums.weight[1])


def test_pairs_has_terms_of_two_columns_at_most():
    shares = {}
    for term in expand(build("pairs", (4,)), torch.rand(30, 4)).terms:
        shares[len(term.columns)] = shares.get(len(term.columns), 0.0) + term.share
    assert set(shares) - {0} == {1, 2}
    assert min(shares[1], shares[2]) > 0.1 * sum(shares.values())


@pytest.mark.parametrize("name", ["optimization", "pairs"])
def test_convex_presets_have_a_variance_of_one_whatever_their_parameters(name):
    network, x = build(name, (4,)), torch.rand(5, 4)
    for _ in range(3):
        torch.testing.assert_close(dense(network, x).diagonal(), torch.ones(5))
        for parameter in network.parameters():
            parameter.data.normal_()


def test_optimization_starts_near_a_sum_of_one_dimensional_kernels():
    network, x = build("optimization", (4,)), torch.rand(30, 4)
    last = network.layers[-1].weight[0]  # of two units of the layer before, and the primitives
    assert last[2:6].sum().item() == pytest.approx(0.7, abs=1e-9)
    shares = {}
    for term in expand(network, x).terms:
        shares[len(term.columns)] = shares.get(len(term.columns), 0.0) + term.share
    assert shares[1] > 0.5 * sum(shares.values())


@pytest.mark.parametrize("name", ["optimization", "pairs"])
@pytest.mark.parametrize("batch_shape", [(), (2,), (3, 2)])
def test_convex_presets_in_batches_and_copies(name, batch_shape):
    network = build(name, (3,), batch_shape=torch.Size(batch_shape))
    single, x = build(name, (3,)), torch.rand(5, 3)
    assert network.batch_shape == batch_shape
    for (key, p), q in zip(network.named_parameters(), single.parameters(), strict=True):
        assert p.shape == (*batch_shape, *q.shape), key
    expected = dense(single, x).expand(*batch_shape, 5, 5)
    for copy in (network, pickle.loads(pickle.dumps(network)), deepcopy(network)):
        torch.testing.assert_close(dense(copy, x), expected)
        with_prior = set()
        for key, module, prior, closure, _ in list(copy.named_priors()):
            before = closure(module).detach().clone()
            module.sample_from_prior(key.rpartition(".")[2])
            after = closure(module)
            assert after.shape == before.shape and not torch.equal(after, before), key
            assert prior.log_prob(after).isfinite().all()
            with_prior.add(key.rpartition(".")[0] + key.rpartition(".")[2])
        assert len(with_prior) == len(list(copy.parameters()))


@pytest.mark.parametrize("name", ["optimization", "pairs"])
def test_convex_presets_without_priors_and_with_columns(name):
    network, x = build(name, (2,), priors=False), torch.rand(5, 4)
    assert list(network.named_priors()) == []
    expected = dense(build(name, (2,)), x[:, [3, 1]])
    torch.testing.assert_close(dense(network, x[:, [3, 1]]), expected)
    some = build(name, (2,), active_dims=(3, 1))
    torch.testing.assert_close(dense(some, x), expected)


def test_optimization_needs_a_last_linear_layer():
    with pytest.raises(ValueError, match="a last Linear layer, got 'Linear4-Product2'"):
        build("optimization", (2,), wiring="Linear4-Product2")


def test_optimization_starts_alike_whatever_the_random_state():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build("optimization", (3,))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    for a, b in zip(first.parameters(), build("optimization", (3,)).parameters(), strict=True):
        assert torch.equal(a, b)


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


def test_every_preset_is_among_those_that_know_their_columns():
    made = {n for n, m in vars(NeuralKernelNetwork).items() if isinstance(m, classmethod)}
    assert {name for name in made if not name.startswith("_")} == set(READY)


@pytest.mark.parametrize(
    "name, evaluation",
    [*((name, "auto") for name in READY), ("forecast", "plain"), ("optimization", "plain")],
)
def test_inputs_of_other_columns_than_a_preset_is_for_are_refused(name, evaluation):
    args, columns = READY[name]
    options = {"origin": -1.0} if name == "forecast" else {}
    network = build(name, args, **options)
    for kernel in (network, ScaleKernel(network), network.expand_batch(torch.Size([2]))):
        with settings.kernel_evaluation(evaluation):
            assert kernel(torch.rand(5, columns)).to_dense().shape[-2:] == (5, 5)
            for other in {1, columns - 1, columns + 1} - {0, columns}:
                x = torch.rand(5, other)
                with pytest.raises(ValueError, match=f"for {columns} input columns.*5, {other}"):
                    kernel(x).to_dense()
                with pytest.raises(ValueError, match=f"for {columns} input columns"):
                    kernel(x, diag=True)
    x = torch.rand(5, columns + 2)
    chosen = tuple(range(1, columns + 1))
    network = build(name, args, active_dims=chosen, **options)
    expected = build(name, args, **options)(x[:, 1 : columns + 1]).to_dense()
    torch.testing.assert_close(network(x).to_dense(), expected)
    with pytest.raises(ValueError, match=f"for {columns} input columns, got active_dims"):
        build(name, args, active_dims=(*chosen, 0), **options)


@pytest.mark.parametrize("mll", [ExactMarginalLogLikelihood, AnalyticExactMarginalLogLikelihood])
def test_a_model_of_other_columns_than_its_network_is_for_has_no_likelihood(mll):
    x = torch.rand(9, 4)
    kernel = ScaleKernel(build("additive", (2,)))
    model = SingleTaskGP(x, x.sum(-1, keepdim=True), covar_module=kernel).train()
    with pytest.raises(ValueError, match="for 2 input columns"):
        mll(model.likelihood, model)(model(x), model.train_targets)
    with pytest.raises(RuntimeError, match="for 2 input columns"):
        fit_best_of(model, restarts=1)


@pytest.mark.parametrize(
    "name, batch_shape, mll",
    [
        *((name, (2,), AnalyticExactMarginalLogLikelihood) for name in READY),
        # as many as a layer has units
        *((name, (8,), ExactMarginalLogLikelihood) for name in ("time_series", "texture")),
        *((name, (2, 3), AnalyticExactMarginalLogLikelihood) for name in ("forecast", "additive")),
    ],
)
def test_priors_of_an_unbatched_preset_count_for_every_data_set(name, batch_shape, mll):
    args, columns = READY[name]
    options = {"origin": -1.0} if name == "forecast" else {}
    if name in ("additive", "texture"):
        options["sparsity"] = "horseshoe" if name == "texture" else "l1"
    network = build(name, args, **options)
    x = torch.rand(*batch_shape, 5, columns)
    y = x.sum(-1).cos()

    def value(x, y):
        model = SmallGP(x, y, network).train()
        return mll(model.likelihood, model)(model(x), y)

    together = value(x, y)
    assert together.shape == batch_shape
    flat = zip(x.flatten(0, -3), y.flatten(0, -2), strict=True)
    apart = torch.stack([value(*one) for one in flat])
    torch.testing.assert_close(together.flatten(), apart)
    before = deepcopy(network.state_dict())
    model = SmallGP(x, y, network)
    sample_all_priors(model)  # what BoTorch does before it tries again
    after = network.state_dict()
    assert {k: v.shape for k, v in after.items()} == {k: v.shape for k, v in before.items()}
    assert not torch.equal(network(x).to_dense(), build(name, args, **options)(x).to_dense())
