import math
import time

import gpytorch
import pytest
import torch

from gpytorch_nkn.fit import FlatParameters, adam
from gpytorch_nkn.fit.minimize import Recipe, minimize
from tests.fit.models import rbf_model


class Valley(gpytorch.Module):
    def __init__(self):
        super().__init__()
        self.place = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))

    def loss(self):
        return (torch.tensor([1.0, 10.0, 0.1]) * self.place**2).sum()


@pytest.mark.parametrize("decays", [(0.9, 0.999), (0.9, 0.99)])
def test_steps_of_adam_match_torch(decays):
    model, other = Valley(), Valley()
    reference = torch.optim.Adam(other.parameters(), lr=1.0, betas=decays)
    flat = FlatParameters(model, model.loss)
    for number, _ in enumerate(adam(flat, 30, lambda number: 0.1 / (1 + number), decays)):
        reference.zero_grad()
        other.loss().backward()
        reference.param_groups[0]["lr"] = 0.1 / (1 + number)
        reference.step()
        torch.testing.assert_close(model.place, other.place, rtol=1e-10, atol=1e-11)


def test_a_recipe_finds_the_minimum_and_leaves_the_model_there():
    model, steps = Valley(), []
    flat = FlatParameters(model, model.loss)
    minimize(flat, Recipe(5, lbfgs_iterations=20), lambda: steps.append(1))
    flat.release()
    assert flat.best_loss < 1e-10 and model.loss() < 1e-10 and len(steps) > 5
    assert model.place.grad is None and model.place.is_leaf
    assert len(flat.trace) == flat.evaluations and flat.trace == sorted(flat.trace, reverse=True)


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_a_loss_that_is_not_finite_at_the_start_is_an_error(error):
    model = Valley()

    def loss():
        if error is not None:
            raise error("on purpose")
        return model.loss() * math.inf

    with pytest.raises((ArithmeticError, RuntimeError), match="not finite|on purpose"):
        next(adam(FlatParameters(model, loss), 3, lambda _: 0.1))


def test_many_failures_in_a_row_end_the_steps_at_the_last_good_point():
    model, calls = Valley(), []

    def loss():
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("gone")
        return model.loss()

    assert len(list(adam(FlatParameters(model, loss), 100, lambda _: 0.1))) == 3
    assert 3 < len(calls) < 30


def test_the_first_evaluation_has_time_and_no_more():
    model = Valley()
    flat = FlatParameters(model, model.loss, end=time.monotonic() - 1)
    minimize(flat, Recipe(), lambda: None)
    assert flat.evaluations == 1


def test_a_frozen_model_is_an_error():
    model = rbf_model()
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable parameters"):
        FlatParameters(model)
