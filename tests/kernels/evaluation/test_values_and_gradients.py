import pytest
import torch

from tests.kernels.evaluation.networks import (
    CASES,
    PATHS,
    PATHS_HERE,
    assert_same,
    evaluate,
    make_network,
    rough_inputs,
)

BATCHES = {  # batch shapes of the network, of x1 and of x2
    "network": ((2,), (), ()),
    "inputs": ((), (2,), (2,)),
    "rows": ((), (2,), ()),
    "columns": ((), (), (3,)),
    "both": ((2,), (2,), (2,)),
    "one": ((1,), (), ()),
    "crossed": ((3, 1), (2,), (1, 2)),
    "wider": ((2,), (3, 1), (2,)),
}


@pytest.mark.parametrize(
    ("name", "inputs"),
    [(name, "two") for name in CASES]
    + [(name, "one") for name in list(CASES)[::2]]
    + [(name, "equal") for name in list(CASES)[1::4]],
)
def test_equal_to_plain_autograd(name, inputs):
    case, network = CASES[name], make_network(name)
    x1 = rough_inputs(7, case.dims).requires_grad_()
    x2 = {"one": None, "two": rough_inputs(5, case.dims) - 0.3, "equal": x1.detach().clone()}[
        inputs
    ]
    if x2 is not None:
        x2.requires_grad_()
    expected = evaluate("plain", network, x1, x2)
    assert expected["values"].std() > 1e-3 or name == "constant-activation"
    for path in PATHS_HERE:
        actual = evaluate(path, network, x1, x2)
        assert_same(actual, expected, case.tolerance if inputs != "two" else 1e-10, path)


@pytest.mark.parametrize(
    ("name", "batches"),
    [("regression", batches) for batches in BATCHES]
    + [
        (name, batches)
        for name in ("active-dims", "activations", "optimization-scaled", "scaled", "skip")
        for batches in ("crossed",)
    ],
)
def test_batches(name, batches):
    of_network, of_x1, of_x2 = BATCHES[batches]
    network = make_network(name, of_network)
    x1 = rough_inputs(*of_x1, 5, 3).requires_grad_()
    x2 = (rough_inputs(*of_x2, 4, 3) - 0.3).requires_grad_()
    of_two, of_one = evaluate("plain", network, x1, x2), evaluate("plain", network, x1.detach())
    for path in PATHS_HERE:
        assert_same(evaluate(path, network, x1, x2), of_two, path=path)
        assert_same(evaluate(path, network, x1.detach()), of_one, path=path)


@pytest.mark.parametrize("kind", ["transposed", "strided", "expanded", "reversed"])
def test_inputs_and_weights_in_any_memory_layout(kind):
    network = make_network("shared-columns")
    x1, x2 = {
        "transposed": (torch.randn(3, 6).mT, torch.randn(3, 5).mT),
        "strided": (torch.randn(12, 6)[::2, ::2], torch.randn(5, 9)[:, 1::3]),
        "expanded": (torch.randn(1, 3).expand(6, 3), torch.randn(5, 1).expand(5, 3)),
        "reversed": (torch.randn(3, 6).t()[:, [2, 0, 1]], torch.randn(5, 3).flip(0)),
    }[kind]
    for weights in (
        None,
        torch.ones(()).expand(6, 5),
        torch.randn(5, 6).mT,
        torch.randn(6, 9)[:, ::2],
    ):
        both = [x1.detach().requires_grad_(), x2.detach().requires_grad_()]
        expected = evaluate("plain", network, *both, weights=weights)
        for path in PATHS_HERE:
            assert_same(evaluate(path, network, *both, weights=weights), expected, path=path)


@pytest.mark.parametrize("shape", [(1, None), (2, None), (1, 1), (1, 2), (2, 1), (1, 70), (130, 1)])
def test_few_points(shape):
    network, (rows, columns) = make_network("shared-columns"), shape
    x1 = torch.randn(rows, 3)
    x2 = None if columns is None else torch.randn(columns, 3).requires_grad_()
    x1.requires_grad_(x2 is not None)
    expected = evaluate("plain", network, x1, x2)
    for path in ("auto", *PATHS_HERE):
        assert_same(evaluate(path, network, x1, x2), expected, path=path)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("shared-columns", shape) for shape in ((300, None), (3, 700), (700, 3), (290, 301))]
    + [
        ("time_series", (290, 301)),
        ("skip-activation", (300, None)),
        ("skip-activation", (3, 700)),
        ("spectral-and-others", (290, 301)),
    ],
)
def test_several_tiles(shape, name):
    network, (rows, columns), dims = make_network(name), shape, CASES[name].dims
    x1 = rough_inputs(rows, dims).requires_grad_(columns is not None)
    x2 = None if columns is None else (rough_inputs(columns, dims) - 0.3).requires_grad_()
    expected = evaluate("plain", network, x1, x2)
    for path in PATHS_HERE:
        assert_same(evaluate(path, network, x1, x2), expected, path=path)


WELL_CONDITIONED = "regression time_series activations active-dims skip optimization-scaled".split()


@pytest.mark.parametrize("name", [*WELL_CONDITIONED, "spectral-and-others"])
def test_float32_is_right_to_four_digits(name):
    network, dims = make_network(name), CASES[name].dims
    x1, x2 = torch.randn(9, dims), torch.randn(8, dims)
    expected = evaluate("plain", network, x1.requires_grad_(), x2.requires_grad_())
    single = [x.detach().float().requires_grad_() for x in (x1, x2)]
    network.float()
    for path in ("auto", *PATHS_HERE):
        actual = evaluate(path, network, *single)
        assert all(tensor.dtype == torch.float32 for tensor in actual.values())
        actual = {name: tensor.double() for name, tensor in actual.items()}
        assert_same(actual, expected, 1e-4, path)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["shared-columns", "spectral-ard"])
def test_points_far_from_the_origin(name, path):
    network = make_network(name)
    for part in network.modules():  # values that do not depend on where the origin is
        if hasattr(part, "raw_variance"):
            part.variance = 1e-12
    x1, x2 = rough_inputs(7, 3), rough_inputs(5, 3) - 0.3
    near = evaluate(path, network, x1, x2)["values"]
    far = evaluate(path, network, x1 + 1000, x2 + 1000)["values"]
    torch.testing.assert_close(far, near, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("path", ["auto", *PATHS])
def test_shared_parameters_get_the_sum_of_their_gradients_and_stay_as_they_are(path):
    network = make_network("shared-columns")
    network.primitives[2].raw_lengthscale = network.primitives[0].raw_lengthscale
    parameters, x = list(network.parameters()), rough_inputs(6, 3)
    actual = evaluate(path, network, x)
    assert all(a is b for a, b in zip(network.parameters(), parameters, strict=True))
    assert_same(actual, evaluate("plain", network, x))
