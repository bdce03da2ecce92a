"""Which path evaluates a network, and that plain evaluation takes over where no other applies."""

import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import CosineKernel, MultitaskKernel, RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import is_compiled, native
from gpytorch_nkn.layers import Linear, Product
from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.evaluation.networks import (
    PATHS,
    assert_same,
    evaluate,
    make_network,
    rough_inputs,
)


def network_of(*primitives, **options):
    layers = [Linear(len(primitives), 2), Product(2, 1)]
    return NeuralKernelNetwork(list(primitives), layers, **options)


# The path that is forced, dtype, batch shape, points and the evaluators that are made.
TILES, CODE = ["tiles"], ["compiled"] if is_compiled() else ["tiles"]
CHOICES = [
    ("plain", torch.float64, (), 5, []),
    ("tiles", torch.float64, (), 5, TILES),
    ("tiles", torch.float64, (3,), 5, 3 * TILES),
    ("compiled", torch.float64, (), 5, CODE if is_compiled() else []),
    ("compiled", torch.float64, (3,), 5, CODE if is_compiled() else []),
    ("compiled", torch.float32, (), 5, []),
    ("auto", torch.float64, (), 3, CODE),
    ("auto", torch.float64, (), 300, CODE),
    ("auto", torch.float64, (3,), 70, CODE if is_compiled() else 3 * TILES),
    ("auto", torch.float32, (), 50, TILES),
    ("auto", torch.float32, (3,), 5, []),
    ("auto", torch.float32, (3,), 70, 3 * TILES),
]


@pytest.mark.parametrize(("path", "dtype", "batch_shape", "size", "expected"), CHOICES)
@pytest.mark.parametrize("name", ["regression", "skip-product"])
def test_evaluators_that_run(name, path, dtype, batch_shape, size, expected, ran):
    network, x = make_network(name, batch_shape).to(dtype), rough_inputs(size, 3).to(dtype)
    with kernel_evaluation(path):
        network(x).to_dense()
    assert ran == expected
    with kernel_evaluation(path):
        assert is_compiled() is (bool(native._library()) and path in ("auto", "compiled"))


@pytest.mark.parametrize("path", PATHS)
def test_an_inner_network_is_evaluated_by_its_own_path(path, ran):
    network = network_of(make_network("regression"), CosineKernel()).double()
    x = rough_inputs(6, 3)
    actual = evaluate(path, network, x)
    assert set(ran) == {path}
    assert_same(actual, evaluate("plain", network, x))


@pytest.mark.parametrize("path", ["auto", *PATHS])
@pytest.mark.parametrize(
    ("batch_shape", "size", "other"),
    [((), 6, True), ((), 110, False), ((3,), 6, False), ((3,), 60, True)],
)
def test_diagonals_with_first_and_second_derivatives(other, batch_shape, size, path, ran):
    network = NeuralKernelNetwork.tabular(3, batch_shape=torch.Size(batch_shape)).double()
    x1 = rough_inputs(size, 3).requires_grad_()
    x2 = x1.detach().flip(0).requires_grad_() if other else x1
    sources = [x1, x2, *(p for p in network.parameters() if p.requires_grad)]

    def evaluate_diagonal(way):
        with kernel_evaluation(way):
            values = network.forward(x1, x2, diag=True)
            total = values.exp().sum()
            first = torch.autograd.grad(total, sources, retain_graph=True, materialize_grads=True)
            (slope,) = torch.autograd.grad(total, x1, create_graph=True)
            second = torch.autograd.grad(slope.sin().sum(), sources, materialize_grads=True)
        return values, first, second

    expected = evaluate_diagonal("plain")
    assert not ran and expected[0].shape == (*batch_shape, size)
    torch.testing.assert_close(evaluate_diagonal(path), expected)
    by_code = _fastest(path) == "compiled" and size != 60  # too many entries
    assert set(ran) == ({"compiled"} if by_code else set())


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_several_outputs_per_input_are_evaluated_plainly(path, ran):
    network = network_of(MultitaskKernel(RBFKernel(), num_tasks=2)).double()
    x = rough_inputs(150, 3)
    actual = evaluate(path, network, x)
    assert ran == [] and actual["values"].shape == (300, 300)
    assert_same(actual, evaluate("plain", network, x))


@pytest.mark.parametrize("path", PATHS)
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


def _fastest(path):
    if path != "auto":
        return path
    with kernel_evaluation("auto"):
        return "compiled" if is_compiled() else "tiles"


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
    assert set(ran) <= {"tiles"}


@pytest.mark.parametrize("path", ["auto", *PATHS])
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
