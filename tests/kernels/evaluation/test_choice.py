"""Which path evaluates a network, and that plain evaluation takes over where no other applies."""

import copy

import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import (
    CosineKernel,
    GridInterpolationKernel,
    InducingPointKernel,
    Kernel,
    LinearKernel,
    MultitaskKernel,
    RBFKernel,
    RBFKernelGrad,
    RFFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from torch import nn

from gpytorch_nkn.kernels import ComplexExponentialKernel, NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import is_compiled, native
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.evaluation.networks import (
    COMPILED,
    FORMULAS,
    PATHS,
    assert_same,
    evaluate,
    make_network,
    needs_compiled,
    rough_inputs,
)


class DeepKernel(Kernel):
    """RBF of features."""

    def __init__(self, features):
        super().__init__()
        self.features = features
        self.base_kernel = RBFKernel()

    def forward(self, x1, x2, diag=False, **params):
        return self.base_kernel.forward(self.features(x1), self.features(x2), diag=diag)


def network_of(*primitives, **options):
    layers = [Linear(len(primitives), 2), Product(2, 1)]
    return NeuralKernelNetwork(list(primitives), layers, **options)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["regression", "skip", "skip-product", "optimization"])
def test_a_forced_path_runs(name, path, ran):
    evaluate(path, make_network(name), rough_inputs(5, 3))
    assert set(ran) == {path}


def test_plain_makes_no_evaluator(ran, large):
    evaluate("plain", make_network("regression"), rough_inputs(large, 3))
    assert ran == []


@needs_compiled
@pytest.mark.parametrize("size", [3, 300])
@pytest.mark.parametrize("name", ["regression", "optimization-scaled"])
def test_auto_prefers_compiled_code(name, size, ran):
    evaluate("auto", make_network(name), rough_inputs(size, 3))
    assert set(ran) == {"compiled"}


@pytest.mark.parametrize("size", [3, 300])
def test_auto_takes_closed_forms_without_compiled_code(size, ran, monkeypatch):
    monkeypatch.setattr(native, "applies_to", lambda x: False)
    evaluate("auto", make_network("regression"), rough_inputs(size, 3))
    assert set(ran) == {"closed_form"}


def test_auto_takes_closed_forms_for_float32(ran):
    evaluate("auto", make_network("regression").float(), rough_inputs(50, 3).float())
    assert set(ran) == {"closed_form"}


def test_closed_forms_take_the_elements_of_a_batch_one_after_the_other(ran):
    evaluate("closed_form", make_network("regression", (3,)), rough_inputs(5, 3))
    assert set(ran) == {"closed_form"} and len(ran) >= 3


@pytest.mark.parametrize("batches", [((3,), ()), ((), (3,)), ((3,), (3,))])
@needs_compiled
def test_compiled_code_takes_a_batch_of_any_size_at_once(batches, ran):
    for path, size in (("compiled", 5), ("auto", 1), ("auto", 70)):
        ran.clear()
        evaluate(path, make_network("regression", batches[0]), rough_inputs(*batches[1], size, 3))
        assert ran == ["compiled"]


def test_closed_forms_leave_batches_of_small_matrices_plain(ran, monkeypatch):
    monkeypatch.setattr(native, "applies_to", lambda x: False)
    evaluate("auto", make_network("regression", (3,)), rough_inputs(5, 3))
    assert ran == []
    evaluate("auto", make_network("regression", (3,)), rough_inputs(70, 3))
    assert len(ran) >= 3


@pytest.mark.parametrize("batches", [((2,), ()), ((), (2,))])
def test_autograd_by_tiles_leaves_batches_plain(batches, ran):
    network = make_network("regression", batches[0])
    evaluate("autograd", network, rough_inputs(*batches[1], 5, 3))
    assert ran == []


def test_compiled_does_not_apply_to_float32(ran):
    evaluate("compiled", make_network("regression").float(), rough_inputs(5, 3).float())
    assert ran == []


UNKNOWN = {
    "cosine": lambda: network_of(RBFKernel(), CosineKernel()),
    "complex": lambda: network_of(RBFKernel(), ComplexExponentialKernel()),
    "deep": lambda: network_of(DeepKernel(nn.Sequential(nn.Linear(3, 4), nn.Tanh()))),
    "sum": lambda: network_of(RBFKernel() + LinearKernel(), RBFKernel() * CosineKernel()),
    "scaled twice": lambda: network_of(ScaleKernel(ScaleKernel(RBFKernel()))),
    "network": lambda: network_of(make_network("regression"), CosineKernel()),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_primitives_are_evaluated_by_autograd(name, ran, large):
    network = UNKNOWN[name]().double()
    for path in ("closed_form", "compiled"):
        evaluate(path, network, rough_inputs(5, 3))
    assert "autograd" not in ran
    for size, path in ((5, "autograd"), (large, "auto"), (large, "autograd")):
        ran.clear()
        x = rough_inputs(size, 3).requires_grad_(name != "network")
        actual = evaluate(path, network, x)
        assert "autograd" in ran
        assert_same(actual, evaluate("plain", network, x))
    ran.clear()
    evaluate("auto", network, rough_inputs(5, 3))
    assert "autograd" not in ran


@pytest.mark.parametrize("path", FORMULAS)
def test_an_inner_network_is_evaluated_by_its_own_path(path, ran):
    network = network_of(make_network("regression"), CosineKernel()).double()
    x = rough_inputs(6, 3)
    actual = evaluate(path, network, x)
    assert set(ran) == {path}
    assert_same(actual, evaluate("plain", network, x))


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_last_dim_is_batch_is_evaluated_plainly(path, ran):
    network, x = make_network("time_series"), rough_inputs(6, 3)
    with kernel_evaluation("plain"):
        expected = network(x, last_dim_is_batch=True).to_dense()
    with kernel_evaluation(path):
        actual = network(x, last_dim_is_batch=True).to_dense()
    assert ran == []
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("path", ["auto", *PATHS])
@pytest.mark.parametrize("batch_shape", [(), (3,)])
@pytest.mark.parametrize("other", [False, True])
def test_diagonals(other, batch_shape, path, ran):
    network = NeuralKernelNetwork.tabular(3, batch_shape=torch.Size(batch_shape)).double()
    x1 = rough_inputs(6, 3)
    x2 = x1.flip(0) if other else x1
    parameters = [p for p in network.parameters() if p.requires_grad]

    def evaluate_diagonal(way):
        with kernel_evaluation(way):
            values = network.forward(x1, x2, diag=True)
            grads = torch.autograd.grad(values.exp().sum(), parameters, allow_unused=True)
        return values, [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, grads, strict=True)
        ]

    expected = evaluate_diagonal("plain")
    ran.clear()
    torch.testing.assert_close(evaluate_diagonal(path), expected)
    by_code = is_compiled() and path in ("auto", "compiled")
    assert ran == (["compiled"] if by_code else [])
    assert expected[0].shape == (*batch_shape, 6)


def test_diagonals_of_inputs_with_gradients_are_differentiated_twice(ran):
    network = make_network("regression")
    x = rough_inputs(4, 3).requires_grad_()
    hessian = torch.autograd.functional.hessian(lambda z: network(z, diag=True).sum(), x)
    assert ran == [] and hessian.shape == (4, 3, 4, 3)


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_derivative_kernels_are_refused(path):
    with kernel_evaluation(path), pytest.raises(NotImplementedError, match="RBFKernelGrad models"):
        network_of(RBFKernelGrad())


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_several_outputs_per_input_are_evaluated_plainly(path, ran):
    network = network_of(MultitaskKernel(RBFKernel(), num_tasks=2)).double()
    x = rough_inputs(150, 3)
    actual = evaluate(path, network, x)
    assert ran == [] and actual["values"].shape == (300, 300)
    assert_same(actual, evaluate("plain", network, x))


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_functional_transforms_of_inputs(path, ran):
    network, x = make_network("regression"), rough_inputs(4, 3)

    def total(x):
        return network(x).to_dense().sum()

    with kernel_evaluation(path):
        backward, forward = torch.func.jacrev(total)(x), torch.func.jacfwd(total)(x)
        assert ran == []
        expected = torch.autograd.functional.jacobian(total, x)
    assert set(ran) == {_fastest(path)}
    torch.testing.assert_close(backward, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(forward, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_vmap_over_parameters(path, ran):
    """Of a layer: GPyTorch's own kernels cannot be mapped over."""
    network, x = make_network("regression"), rough_inputs(4, 3)
    last = len(network.layers) - 1
    weights = torch.randn(3, *network.layers[last].raw_weight.shape)
    with kernel_evaluation(path):
        mapped = torch.func.vmap(lambda w: _with_weight(network, last, w, x))(weights)
        assert ran == []
        one_by_one = torch.stack([_with_weight(network, last, w, x) for w in weights])
    assert set(ran) == {_fastest(path)}
    torch.testing.assert_close(mapped, one_by_one)


def _with_weight(network, layer, weight, x):
    class Matrix(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x).to_dense()

    named = {f"network.layers.{layer}.raw_weight": weight}
    return torch.func.functional_call(Matrix(), named, (x,))


def _fastest(path):
    if path != "auto":
        return path
    with kernel_evaluation("auto"):
        return "compiled" if is_compiled() else "closed_form"


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_forward_mode_differentiation(path, ran):
    network, x, tangent = make_network("regression"), rough_inputs(4, 3), torch.randn(4, 3)
    with kernel_evaluation(path):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            values = network(dual).to_dense()
            assert ran == []
            actual = torch.autograd.forward_ad.unpack_dual(values).tangent
    with kernel_evaluation("plain"):
        above, below = (network(x + step * tangent).to_dense() for step in (1e-6, -1e-6))
    torch.testing.assert_close(actual, (above - below) / 2e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_traces_hold_for_other_inputs(path, ran):
    network = make_network("without-layers").requires_grad_(False)
    with kernel_evaluation(path):
        traced = torch.jit.trace(
            lambda x: network(x).to_dense(), rough_inputs(5, 3), check_trace=False
        )
        assert ran == []
        x = rough_inputs(5, 3) + 0.2
        torch.testing.assert_close(traced(x), network(x).to_dense())


@pytest.mark.parametrize("path", ["auto", *PATHS])
@pytest.mark.parametrize("where", ["primitive", "layer", "scaled"])
def test_hooked_parts_are_evaluated_plainly_by_formulas(where, path, ran):
    network = make_network("rbf")
    part = {
        "primitive": network.primitives[0],
        "layer": network.layers[0],
        "scaled": network.primitives[1],
    }[where]
    part.register_forward_hook(lambda *_: None)
    x = rough_inputs(5, 3)
    assert_same(evaluate(path, network, x), evaluate("plain", network, x))
    assert set(ran) <= {"autograd"}


NOT_ENTRYWISE = {
    "RFF": lambda: RFFKernel(num_samples=5, num_dims=3),
    "BatchNorm": lambda: DeepKernel(nn.BatchNorm1d(3)),
    "Dropout": lambda: DeepKernel(nn.Dropout(0.5)),
    "AlphaDropout": lambda: DeepKernel(nn.Sequential(nn.Linear(3, 3), nn.AlphaDropout(0.5))),
    "inducing points": lambda: InducingPointKernel(
        RBFKernel(), torch.randn(5, 3), GaussianLikelihood()
    ),
    "grid": lambda: GridInterpolationKernel(RBFKernel(), grid_size=8, num_dims=3),
}


@pytest.mark.parametrize("path", ["auto", *PATHS])
@pytest.mark.parametrize("name", NOT_ENTRYWISE)
def test_kernels_whose_entries_hang_together_are_evaluated_plainly(name, path, ran, large):
    network = network_of(NOT_ENTRYWISE[name]()).double()
    with kernel_evaluation(path):
        network(rough_inputs(large, 3)).to_dense()
    assert ran == []


class Standardize(nn.Module):
    def forward(self, x):
        return (x - x.mean(-2, keepdim=True)) / x.std(-2, keepdim=True)


class InstanceNorm(nn.InstanceNorm1d):
    def forward(self, x):
        return super().forward(x.mT.unsqueeze(0)).squeeze(0).mT


class FunctionalDropout(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


def scale_to_bounds():
    from gpytorch.utils.grid import ScaleToBounds

    return ScaleToBounds(-1.0, 1.0)


MIXING = {
    "InstanceNorm": lambda: InstanceNorm(3),
    "ScaleToBounds": scale_to_bounds,
    "spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(3, 3)),
    "standardize": Standardize,
    "functional dropout": FunctionalDropout,
}


@pytest.mark.parametrize("name", MIXING)
def test_feature_maps_that_mix_inputs_are_not_evaluated_by_tiles(name, large):
    network = network_of(DeepKernel(MIXING[name]())).double()
    again, x = copy.deepcopy(network), rough_inputs(300, 3)  # more than one tile
    results = []
    for path, one in (("plain", network), ("auto", again)):
        torch.manual_seed(0)
        with kernel_evaluation(path):
            results.append(one(x).to_dense())  # once: some of the maps change with every call
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("path", ["auto", "autograd"])
def test_tensors_that_are_no_parameters_get_gradients(path, large):
    """A feature map whose weights another network computes, say."""

    class Features(nn.Module):
        weights = torch.randn(3, 2).requires_grad_()

        def forward(self, x):
            return x @ self.weights

    network, x = network_of(DeepKernel(Features())).double(), rough_inputs(large, 3)
    with kernel_evaluation(path):
        network(x).to_dense().sum().backward()
    assert Features.weights.grad is not None


@pytest.mark.parametrize("path", ["auto", *FORMULAS])
@pytest.mark.parametrize("part", ["raw_lengthscale", "raw_weight"])
def test_parameters_that_are_computed_from_others_get_gradients(part, path):
    """Raw values that are plain tensors, as samplers and hypernetworks set them."""
    network, x = make_network("rbf"), rough_inputs(6, 3)
    owner = network.primitives[0] if part == "raw_lengthscale" else network.layers[0]
    value = owner._parameters.pop(part).detach()
    source = torch.ones_like(value, requires_grad=True)
    gradients = {}
    for name in ("plain", path):
        object.__setattr__(owner, part, source * value)
        with kernel_evaluation(name):
            (gradients[name],) = torch.autograd.grad(network(x).to_dense().sum(), source)
    assert gradients["plain"].abs().max() > 1e-3
    torch.testing.assert_close(gradients[path], gradients["plain"], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_parametrized_modules(path):
    class Double(nn.Module):
        def forward(self, raw):
            return 2 * raw

    network, x = make_network("rbf"), rough_inputs(6, 3)
    nn.utils.parametrize.register_parametrization(
        network.primitives[0], "raw_lengthscale", Double()
    )
    assert_same(evaluate(path, network, x), evaluate("plain", network, x))


class ShiftedRBFKernel(RBFKernel):
    """A kernel of another value with the parameters of one that is known."""

    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2, diag=diag, **params) + 1


class DoubledLinear(Linear):
    def forward(self, values):
        return 2 * super().forward(values)


@pytest.mark.parametrize("path", ["auto", *PATHS])
@pytest.mark.parametrize("what", ["kernel", "scaled kernel", "layer", "constraint"])
def test_subclasses_are_not_taken_for_what_they_extend(what, path):
    class Doubling(Positive):
        def transform(self, tensor):
            return 2 * super().transform(tensor)

    kernel = {
        "kernel": ShiftedRBFKernel(),
        "scaled kernel": ScaleKernel(ShiftedRBFKernel()),
        "layer": RBFKernel(),
        "constraint": RBFKernel(lengthscale_constraint=Doubling()),
    }[what]
    layer = DoubledLinear(1, 1) if what == "layer" else Linear(1, 1)
    network, x = NeuralKernelNetwork([kernel], [layer]), rough_inputs(6, 3)
    assert_same(evaluate(path, network, x), evaluate("plain", network, x))


@pytest.mark.parametrize("path", ["plain", "auto", *PATHS])
def test_a_network_of_another_dtype_is_named_in_the_error(path):
    network = make_network("regression").float()
    with kernel_evaluation(path), pytest.raises(ValueError, match=r"network is in torch.float32"):
        network(rough_inputs(5, 3)).to_dense()


@pytest.mark.parametrize("path", ["auto", *PATHS])
@pytest.mark.parametrize("name", ["regression", "linear", "periodic"])
def test_inputs_of_two_dtypes_are_as_in_plain_evaluation(name, path, ran):
    network, x1, x2 = make_network(name), rough_inputs(5, 3), rough_inputs(4, 3).float()
    outcomes = []
    for each in ("plain", path):
        with kernel_evaluation(each):
            try:
                outcomes.append(network(x1, x2).to_dense().tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
    assert outcomes[0] == outcomes[1] and ran == []


@pytest.mark.parametrize("path", ["plain", "auto", *PATHS])
@pytest.mark.parametrize("dims", [(0, 3), (0, -1)])
def test_active_dims_out_of_range_are_an_error(dims, path):
    network = network_of(RBFKernel(active_dims=dims))
    with kernel_evaluation(path), pytest.raises(RuntimeError, match="out of"):
        network(rough_inputs(5, 2)).to_dense()


@pytest.mark.parametrize("path", ["plain", "auto", *PATHS])
def test_a_wrong_number_of_columns_is_an_error(path):
    with kernel_evaluation(path), pytest.raises(ValueError, match=r"for 3 input .*\(5, 2\)"):
        make_network("regression")(rough_inputs(5, 2)).to_dense()
    own = network_of(RBFKernel(ard_num_dims=3))  # GPyTorch's kernels know it, too
    with kernel_evaluation(path), pytest.raises(RuntimeError, match=r"dimensionality .* Got 2"):
        own(rough_inputs(5, 2)).to_dense()


@needs_compiled
def test_is_compiled_says_what_runs_by_default():
    for path, expected in {
        "auto": True,
        "compiled": True,
        "plain": False,
        "closed_form": False,
    }.items():
        with kernel_evaluation(path):
            assert is_compiled() is expected


@needs_compiled
def test_the_evaluator_in_use_is_named():
    assert f"compiled code ({native.instruction_set()})" in native.evaluator_in_use()


@pytest.mark.parametrize("deliberate", [False, True])
def test_missing_compiled_code_is_noted_once(deliberate, monkeypatch, caplog):
    monkeypatch.setattr(native, "_library", lambda: None)
    monkeypatch.setenv("GPYTORCH_NKN_PURE", "1" if deliberate else "")
    native._notify.cache_clear()
    network, x = make_network("regression"), rough_inputs(5, 3)
    with kernel_evaluation("auto"):
        values = [network(x).to_dense() for _ in range(2)]
    torch.testing.assert_close(*values)
    assert len(caplog.records) == (not deliberate)
    if not deliberate:
        assert native.evaluator_in_use() in caplog.text
        assert "evaluated by PyTorch" in caplog.text and "pip install" in caplog.text
    native._notify.cache_clear()


@pytest.mark.parametrize("path", ["auto", "autograd", "closed_form", COMPILED])
def test_switching_gradients_off_saves_the_second_pass(path, ran):
    network = make_network("regression")
    with kernel_evaluation(path), torch.no_grad():
        values = network(rough_inputs(5, 3)).to_dense()
    assert len(ran) == 1 and not values.requires_grad
    with kernel_evaluation(path):
        values = network.requires_grad_(False)(rough_inputs(5, 3)).to_dense()
    assert len(ran) == 2 and not values.requires_grad
