"""A spec is sufficient to add a kernel: two kernels that only their specs define."""

import math

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import to_dense

from gpytorch_nkn.initialization import initialize_from_data
from gpytorch_nkn.interpretation import decompose, expand, report
from gpytorch_nkn.interpretation.expansion import words_of
from gpytorch_nkn.interpretation.expansion.candidates import as_gpytorch
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.kernels import (
    Formula,
    KernelSpec,
    NeuralKernelNetwork,
    StationaryKernel,
    kernel_spec,
    register,
    short_name,
    spec_of,
)
from gpytorch_nkn.kernels.measures import rational_quadratic
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.models import spectral_features
from gpytorch_nkn.plotting.network import kernel_name
from tests.fit.models import SmallGP
from tests.kernels.contract import check_kernel, perturb
from tests.kernels.evaluation.conftest import ran as ran
from tests.kernels.evaluation.networks import assert_same, evaluate


class CauchyKernel(StationaryKernel):
    """All that a kernel of one's own takes, with the row below."""

    @staticmethod
    def of_square(square):
        return 1 / (1 + square)


def cauchy_measure(kernel, columns, batch_shape, lengthscale):
    """That of a rational quadratic kernel with alpha one."""
    alpha, width = torch.ones(len(lengthscale)), lengthscale / math.sqrt(2)
    return rational_quadratic(kernel, columns, batch_shape, alpha.double(), width)


CAUCHY = KernelSpec(
    CauchyKernel,
    "CAUCHY",
    {"lengthscale": "lengthscale"},
    role="smooth",
    words="over",
    measure=cauchy_measure,
    simpler=lambda kernel: [RBFKernel().initialize(lengthscale=kernel.lengthscale.detach())],
)


class WalkKernel(Kernel):
    """min(x, x') - origin behind an origin, zero ahead of it: a Wiener process."""

    is_stationary = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.register_parameter("origin", torch.nn.Parameter(-torch.ones(1, 1)))

    def forward(self, x1, x2, diag=False, **params):
        if diag:
            return torch.minimum(x1, x2).sub(self.origin).clamp_min(0).squeeze(-1)
        return walk_values(x1, x2, self.origin)


def walk_values(x1, x2, origin):
    return torch.minimum(x1, x2.mT).sub(origin).clamp_min(0)


WALK = KernelSpec(
    WalkKernel,
    "WALK",
    {"origin": "center"},
    words="a random walk",
    start=lambda kernel, x: kernel.initialize(origin=x.min() - 1.0) and None,
    formula=Formula(walk_values, max_columns=1),
)


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    monkeypatch.setattr(kernel_spec, "_REGISTRY", dict(kernel_spec._REGISTRY))
    register(CAUCHY)
    register(WALK)


def toy_network():
    primitives = [CauchyKernel(), ScaleKernel(CauchyKernel()), WalkKernel(), RBFKernel()]
    return perturb(NeuralKernelNetwork(primitives, [Linear(4, 4), Product(4, 2), Linear(2, 1)]))


def test_the_contract_holds_with_one_class_and_one_row():
    x1, x2 = 1.5 * torch.randn(12, 2), 1.5 * torch.randn(5, 2)
    check_kernel(perturb(CauchyKernel(ard_num_dims=2).double()), x1, x2)
    kernel = CauchyKernel().initialize(lengthscale=0.5)
    square = (x1[:, None] - x2).square().sum(-1) / 0.25
    torch.testing.assert_close(kernel(x1, x2).to_dense(), 1 / (1 + square))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [7, 300])
def test_values_and_gradients_by_tiles(symmetric, size, ran):
    network = toy_network()
    x1 = (3 * torch.rand(size, 1)).requires_grad_(True)
    x2 = None if symmetric else torch.rand(5, 1).requires_grad_(True)
    for path in ("tiles", "auto"):
        ran.clear()
        actual = evaluate(path, network, x1, x2)
        assert set(ran) == {"tiles"}
        assert_same(actual, evaluate("plain", network, x1, x2))


def test_names():
    assert short_name(CauchyKernel()) == "CAUCHY"
    assert kernel_name(CauchyKernel(active_dims=(1,)), [3, 5]) == "CAUCHY (5)"


def test_expansion_and_its_words():
    network, x = toy_network(), torch.rand(30, 1)
    expansion = expand(network, x)
    torch.testing.assert_close(expansion.evaluate(x), network(x).to_dense().detach())
    single = expand(CauchyKernel().initialize(lengthscale=0.5), x).terms[0]
    assert single.label == "CAUCHY(0.500)"
    assert words_of(single, Units.plain(1)) == "variation over 0.500"
    walk = expand(WalkKernel(), x).terms[0]
    assert walk.label == "WALK"
    assert words_of(walk, Units.plain(1)) == "a random walk"


def test_report():
    x = torch.linspace(0, 10, 60)
    y = torch.sin(3 * x) + 0.3 * x
    kernel = ScaleKernel(CauchyKernel()) + ScaleKernel(WalkKernel())
    likelihood = GaussianLikelihood().initialize(noise=0.01)
    model = SmallGP(x.unsqueeze(-1), y, kernel, likelihood).eval()
    model.covar_module.kernels[0].base_kernel.lengthscale = 0.5
    kinds = {component.role.kind for component in decompose(model).components if component.role}
    assert "variation" in kinds and "other" in kinds  # the smooth one, and the one of its own words
    text = str(report(model))
    assert "A random walk" in text and "A variation without" in text


def test_start_values():
    x = torch.rand(20, 2) + torch.tensor([0.0, 5.0])
    kernel = ScaleKernel(WalkKernel(active_dims=(1,))) * RBFKernel()
    initialize_from_data(kernel, x, x[:, 0])
    torch.testing.assert_close(kernel.kernels[0].base_kernel.origin.squeeze(), x[:, 1].min() - 1)


def test_random_features():
    kernel = ScaleKernel(CauchyKernel().initialize(lengthscale=0.7)).double()
    network = NeuralKernelNetwork([CauchyKernel(), PeriodicKernel()], [Product(2, 1)])
    x = torch.rand(6, 1)
    for one in (kernel, network):
        features = spectral_features(one, num_inputs=1, num_outputs=40_000)(x)
        torch.testing.assert_close(
            features @ features.mT, one(x).to_dense().detach(), atol=0.03, rtol=0
        )


def test_a_subclass_has_the_words_of_its_base_and_its_own_values():
    class Twice(CauchyKernel):
        def forward(self, *args, **kwargs):
            return 2 * super().forward(*args, **kwargs)

    class Same(CauchyKernel):
        pass

    x = torch.rand(6, 1)
    assert spec_of(Twice()).role == "smooth" and short_name(Twice()) == "Twice"
    spectral_features(NeuralKernelNetwork([Same()], []), num_inputs=1, num_outputs=2)
    with pytest.raises(NotImplementedError, match="Twice has no random features"):
        spectral_features(NeuralKernelNetwork([Twice()], []), num_inputs=1, num_outputs=2)
    network = NeuralKernelNetwork([Twice()], [])
    assert_same(evaluate("tiles", network, x), evaluate("plain", network, x))
    assert as_gpytorch(Same(), 1) is None and as_gpytorch(_Square(), 1) is None


class _Square(LinearKernel):
    """Has the words, but not the values, of its base."""

    def forward(self, *args, **kwargs):
        return to_dense(super().forward(*args, **kwargs)) ** 2


def test_only_classes_of_kernels_are_registered():
    with pytest.raises(TypeError, match="subclass of gpytorch.kernels.Kernel, got <class 'int'>"):
        register(KernelSpec(int, "INT"))
    with pytest.raises(TypeError, match="spec must be a KernelSpec, got 3"):
        register(3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parameters": {"lengthscale": "width"}}, "among .*'lengthscale': 'width'"),
        ({"role": "wavy"}, "role must be one of .*, got 'wavy'"),
    ],
)
def test_words_of_a_row_are_checked(fields, message):
    class Own(RBFKernel):
        pass

    with pytest.raises(ValueError, match=message):
        register(KernelSpec(Own, "OWN", **fields))
    assert short_name(Own()) == "Own"
