import threading

import pytest
import torch

from gpytorch_nkn.linalg import in_threads, symmetric_strips
from gpytorch_nkn.linalg.tiles import mirror
from tests.linalg.test_entrywise import CauchyEvaluator, cauchy


@pytest.fixture(autouse=True)
def _one_thread_afterwards():
    yield
    torch.set_num_threads(1)


def evaluator_of(num_rows, num_columns=None):
    x1 = torch.randn(num_rows, 1)
    x2 = x1 if num_columns is None else torch.randn(num_columns, 1)
    scale = torch.ones(1)
    return CauchyEvaluator(x1, x2, scale), x1, x2, scale


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 40_000), (40_000, 1), (200, 300), (129, 127), (3, 700), (700, 3)]
)
def test_every_entry_is_written_once(shape, threads):
    torch.set_num_threads(threads)
    evaluator, x1, x2, scale = evaluator_of(*shape)
    out = torch.full(shape, torch.nan)
    evaluator.fill(out)
    torch.testing.assert_close(out, cauchy(x1, x2, scale))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 128, 129, 300])
def test_lower_triangle(size, threads):
    torch.set_num_threads(threads)
    evaluator, x, _, scale = evaluator_of(size)
    out = torch.full((size, size), torch.nan)
    evaluator.fill(out)
    expected = cauchy(x, x, scale)
    torch.testing.assert_close(out.tril(), expected.tril())
    mirror(out)
    torch.testing.assert_close(out, expected)
    assert torch.equal(out, out.mT)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(5, 4), (200, 300), (5, None), (300, None)])
def test_vjp_of_weights(shape, threads):
    torch.set_num_threads(threads)
    evaluator, x1, x2, scale = evaluator_of(*shape)
    weights = torch.randn(x1.size(0), x2.size(0))
    before = weights.clone()
    found = evaluator.vjp(weights)
    assert torch.equal(weights, before)
    sources = [x1] if x1 is x2 else [x1, x2]
    sources = [tensor.requires_grad_() for tensor in (*sources, scale)]
    expected = torch.autograd.grad((cauchy(x1, x2, scale) * weights).sum(), sources)
    torch.testing.assert_close(found, list(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [1, 5, 300])
def test_vjp_of_a_likelihood(size):
    """Weights are half of a symmetric matrix, its lower triangle given, less ``a a^T``."""
    evaluator, x, _, scale = evaluator_of(size)
    inverse, solution = torch.randn(size, size), torch.randn(size)
    inverse = inverse + inverse.mT
    weights = 0.5 * (inverse - torch.outer(solution, solution))
    inverse[torch.ones(size, size).triu(1).bool()] = torch.nan
    found = evaluator.vjp(inverse, solution)
    sources = [x.requires_grad_(), scale.requires_grad_()]
    expected = torch.autograd.grad((cauchy(x, x, scale) * weights).sum(), sources)
    torch.testing.assert_close(found, list(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000])
def test_strips_cover_all_rows_and_share_the_work(size, parts):
    strips = symmetric_strips(size, parts)
    assert [row for a, b in strips for row in range(a, b)] == list(range(size))
    assert len(strips) <= parts
    if size == 1000:
        work = [b * (b + 1) / 2 - a * (a + 1) / 2 for a, b in strips]
        assert max(work) < 1.05 * min(work)


@pytest.mark.parametrize("shares", [[1], [1, 2, 3]])
@pytest.mark.parametrize("enabled", [True, False])
def test_work_in_threads_keeps_order_grad_mode_and_number_of_threads(shares, enabled):
    torch.set_num_threads(3)
    threads = set()

    def work(share):
        threads.add(threading.get_ident())
        return 10 * share, torch.is_grad_enabled()

    with torch.set_grad_enabled(enabled):
        assert in_threads(work, shares) == [(10 * share, enabled) for share in shares]
        assert torch.is_grad_enabled() is enabled
    assert torch.get_num_threads() == 3
    assert (threads == {threading.get_ident()}) == (len(shares) == 1)


def test_an_error_in_a_thread_is_raised_and_the_number_of_threads_restored():
    def work(share):
        if share == 1:
            raise ArithmeticError("of one share")

    torch.set_num_threads(3)
    with pytest.raises(ArithmeticError, match="of one share"):
        in_threads(work, [0, 1, 2])
    assert torch.get_num_threads() == 3
