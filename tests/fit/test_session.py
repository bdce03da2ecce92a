import math
import sys
import time
import warnings

import numpy as np
import pytest
import torch

from gpytorch_nkn.fit import Best, Session, check_counts, warn_user


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock as a list of one value."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_budget_and_its_parts(clock):
    session = Session(budget=10.0)
    assert session.end == 110.0 and session.part(0.3) == pytest.approx(3.0)
    clock[0] = 108.0
    assert session.seconds_left == pytest.approx(2.0)
    assert session.part(0.5) == pytest.approx(1.0)
    assert not session.is_over
    clock[0] = 110.0
    assert session.is_over
    clock[0] = 115.0
    assert session.part() == 1e-3  # a budget is positive


def test_seed():
    state = torch.get_rng_state()
    draws = [torch.rand(3, generator=Session(seed=seed).generator()) for seed in (5, 5, 6)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match=r"seed must be below 2 \*\* 43, got 9223372036854775808"):
        Session(seed=2**63)


def test_ctrl_c_ends_a_block_once_there_is_something_to_keep():
    session, reached = Session(), []
    with pytest.raises(KeyboardInterrupt), session.interruptible(lambda: reached, "kept"):
        raise KeyboardInterrupt
    assert session.interrupted and session.is_over
    reached.append(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Session().interruptible(lambda: reached):
            raise KeyboardInterrupt
    with (
        pytest.warns(UserWarning, match="^1 kept$"),
        session.interruptible(lambda: reached, lambda: f"{len(reached)} kept"),
    ):
        raise KeyboardInterrupt


def test_a_warning_names_the_line_of_the_caller():
    with pytest.warns(UserWarning) as caught:
        warn_user("here")
        with Session().interruptible(message="there"):
            raise KeyboardInterrupt
    assert [warning.filename for warning in caught] == [__file__] * 2


def test_a_process_may_have_no_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Session(progress=True).bar(None, "steps") as bar:
        bar.update()


def test_best_keeps_the_highest_value_and_makes_no_other_state():
    best, made = Best(), []

    def state():
        made.append(len(made))
        return made[-1]

    assert best.update(-math.inf, state)  # the first counts whatever its value
    assert not best.update(math.nan, state)
    assert best.update(1.0, state) and not best.update(1.0, state)
    assert (best.value, best.state, made) == (1.0, 1, [0, 1])


def test_counts():
    check_counts(1, restarts=np.int64(2), steps=1)
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        check_counts(1, restarts=2, steps=0)
    for value in (2.0, "2", None, True):
        with pytest.raises(TypeError, match=f"restarts must be an integer, got {value!r}"):
            check_counts(1, restarts=value)
