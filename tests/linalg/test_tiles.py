import threading

import pytest
import torch

from gpytorch_nkn.linalg import in_threads, symmetric_strips


@pytest.fixture(autouse=True)
def _one_thread_afterwards():
    yield
    torch.set_num_threads(1)


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
