from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.evaluation.networks import (
    CASES,
    PATHS,
    assert_same,
    evaluate,
    make_network,
    needs_compiled,
    rough_inputs,
)


@pytest.fixture(autouse=True)
def _one_thread_afterwards():
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("name", "shape"),
    [("time_series", (400, 700)), ("shared-columns", (600, None)), ("shared-columns", (3, 700))],
)
def test_results_do_not_depend_on_the_number_of_threads(shape, name, path):
    network, dims = make_network(name), CASES[name].dims
    x1 = rough_inputs(shape[0], dims).requires_grad_(shape[1] is not None)
    x2 = None if shape[1] is None else (rough_inputs(shape[1], dims) - 0.3).requires_grad_()
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        results.append(evaluate(path, network, x1, x2))
        assert torch.get_num_threads() == threads
    assert_same(results[1], results[0], 1e-12)


BATCHES = {  # of the network, and shapes of the inputs
    "few matrices": ((3,), (150, 3), (3, 140, 3)),
    "symmetric": ((3,), (190, 3), None),
    "many matrices": ((), (90, 1, 3), (700, 3)),
    "many networks": ((80,), (80, 2, 3), (1, 400, 3)),
    "one of each": ((1,), (1, 250, 3), (250, 3)),
}


@needs_compiled
@pytest.mark.parametrize("name", BATCHES)
def test_compiled_batches_do_not_depend_on_the_number_of_threads(name):
    of_network, shape1, shape2 = BATCHES[name]
    network = make_network("skip", of_network)
    x1 = rough_inputs(*shape1).requires_grad_()
    x2 = None if shape2 is None else (rough_inputs(*shape2) - 0.3).requires_grad_()
    expected = evaluate("plain", network, x1, x2)
    for threads in (1, 3):
        torch.set_num_threads(threads)
        assert_same(evaluate("compiled", network, x1, x2), expected)


@pytest.mark.parametrize(
    ("path", "threads"),
    [
        ("plain", 1),
        ("tiles", 3),
        pytest.param("compiled", 1, marks=needs_compiled),
        pytest.param("compiled", 3, marks=needs_compiled),
    ],
)
def test_inference_mode(path, threads):
    network, x = make_network("regression"), rough_inputs(600, 3)
    with torch.no_grad(), kernel_evaluation("plain"):
        expected = network(x).to_dense()
    torch.set_num_threads(threads)
    with torch.inference_mode(), kernel_evaluation(path):
        values = network(x).to_dense()
        assert values.is_inference()
    torch.testing.assert_close(values.clone(), expected)


@pytest.mark.parametrize("path", PATHS)
def test_concurrent_calls_of_one_network(path):
    network, inputs = make_network("regression"), [rough_inputs(150, 3) for _ in range(4)]
    expected = [evaluate(path, network, x) for x in inputs]

    def work(x):
        values = network.forward(x, x)  # GPyTorch's call sets a global flag for a moment
        weights = torch.arange(values.numel()).to(values).sin().view(values.shape)
        named = dict(network.named_parameters())
        gradients = torch.autograd.grad((values * weights).sum(), named.values())
        return {"values": values.detach(), **dict(zip(named, gradients, strict=True))}

    torch.set_num_threads(2)
    with kernel_evaluation(path), ThreadPoolExecutor(2) as pool:
        results = list(pool.map(work, inputs))
    assert torch.get_num_threads() == 2
    for actual, other in zip(results, expected, strict=True):
        assert_same(actual, other, 1e-12)
