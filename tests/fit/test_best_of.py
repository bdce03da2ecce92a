import math
import pickle
import time
from copy import deepcopy

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize, Warp
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.fit.minimize import FlatParameters
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.initialization import initialize_model
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.fit.models import SmallGP, network_model, rbf_model, seasonal_data

SHORT = Recipe(adam_steps=6, lbfgs_iterations=3)


def test_the_best_restart_is_left_in_the_model_and_the_result_pickles_after_predictions():
    model = network_model()
    result = fit_best_of(model, restarts=3, recipe=SHORT)
    assert result.model is model and not model.training
    losses = [record.loss for record in result.restarts]
    assert result.best == losses.index(min(losses))
    assert Objective(model.train())().item() == pytest.approx(min(losses))
    assert f"{result.best}*" in str(result) and str(result).count("ok") == 3
    x = torch.linspace(-2, 3, 7).unsqueeze(-1)
    expected = model.eval()(x).mean
    torch.testing.assert_close(pickle.loads(pickle.dumps(result)).model(x).mean, expected)


def test_a_function_makes_a_model_per_restart_from_the_seed():
    x, y = seasonal_data()

    def make_model():
        kernel = RBFKernel().initialize(lengthscale=10 ** (-2 * torch.rand(1).item()))
        return SmallGP(x, y, ScaleKernel(kernel))

    before = torch.get_rng_state()
    first = fit_best_of(make_model, restarts=3, initialize=None, recipe=SHORT)
    assert torch.equal(torch.get_rng_state(), before)
    second = fit_best_of(make_model, restarts=3, initialize=None, recipe=SHORT)
    losses = [record.loss for record in first.restarts]
    assert losses == [record.loss for record in second.restarts] and len(set(losses)) == 3
    assert {record.origin for record in first.restarts} == {"make_model"}
    assert not first.model.training


def test_keeping_the_given_values():
    model = rbf_model()
    model.covar_module.base_kernel.lengthscale = 0.123
    result = fit_best_of(
        model, restarts=1, initialize=None, recipe=Recipe(adam_steps=0, lbfgs_iterations=0)
    )
    assert model.covar_module.base_kernel.lengthscale.item() == pytest.approx(0.123)
    assert result.restarts[0].origin == "given" and math.isfinite(result.restarts[0].loss)
    for one in (rbf_model(), rbf_model):
        with pytest.raises(ValueError, match="3 restarts would have equal start values"):
            fit_best_of(one, restarts=3, initialize=None)


class Fragile(SmallGP):
    """Fails in restarts whose noise starts above a bar."""

    failure = RuntimeError

    def forward(self, x):
        if self.training and self.likelihood.noise.item() > 0.5:
            raise self.failure("on purpose")
        return super().forward(x)


def high_noise_in(*restarts):
    def start(model, seed, restart):
        model.likelihood.noise = 0.6 if restart in restarts else 0.1

    return start


def test_a_failing_restart_is_recorded_and_the_others_go_on():
    model = Fragile(*seasonal_data(), ScaleKernel(RBFKernel()))
    result = fit_best_of(
        model, restarts=3, initialize=high_noise_in(1), recipe=Recipe(0, lbfgs_iterations=5)
    )
    assert [record.status[:6] for record in result.restarts] == ["ok", "failed", "ok"]
    assert "on purpose" in result.restarts[1].status
    assert result.best != 1 and 1 not in result.members


def test_failure_of_every_restart_raises_with_the_reasons():
    model = Fragile(*seasonal_data(), ScaleKernel(RBFKernel()))
    before = deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match=r"Every restart failed \(0: .*on purpose"):
        fit_best_of(model, restarts=2, initialize=high_noise_in(0, 1), recipe=SHORT)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("call", [8, 60])
def test_an_interruption_keeps_the_best_so_far(monkeypatch, call):
    """In the first restart, and in a later one."""
    count = 0
    original = FlatParameters.evaluate

    def interrupted(self):
        nonlocal count
        count += 1
        if count == call:
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(FlatParameters, "evaluate", interrupted)
    model = network_model()
    result = fit_best_of(model, restarts=4, recipe=Recipe(adam_steps=40, lbfgs_iterations=0))
    kept = [record for record in result.restarts if not record.status.startswith("failed")]
    assert 1 <= len(kept) < 4 and not model.training
    assert any(record.status == "interrupted" for record in kept)
    if call == 8:
        untrained = network_model().train()
        untrained.set_train_data(model.train_inputs, model.train_targets, strict=False)
        initialize_model(untrained)
        assert result.restarts[0].loss < Objective(untrained)().item()


class SlowKernel(RBFKernel):
    """An RBF kernel that takes a tenth of a second, on every machine, and counts."""

    calls = 0

    def forward(self, x1, x2, diag=False, **params):
        SlowKernel.calls += 1
        time.sleep(0.1)
        return super().forward(x1, x2, diag=diag, **params)


def test_a_step_that_would_not_end_within_the_budget_is_not_begun():
    SlowKernel.calls = 0
    model = SmallGP(*seasonal_data(300), SlowKernel())  # too many points for a batch of restarts
    result = fit_best_of(model, restarts=4, budget=0.75)
    assert result.restarts[0].evaluations >= 1
    assert [record.failed for record in result.restarts[2:]] == [True, True]
    assert SlowKernel.calls <= 8  # further restarts would have taken one more each


def test_botorch_model_with_transforms_keeps_its_units():
    x, y = seasonal_data()
    x, y = 1000 + 100 * x, 50 * y.unsqueeze(-1) + 7
    model = SingleTaskGP(
        x,
        y,
        covar_module=NeuralKernelNetwork.time_series(),
        input_transform=Normalize(1),
        outcome_transform=Standardize(1),
    )
    result = fit_best_of(model, restarts=2, recipe=Recipe(adam_steps=60, lbfgs_iterations=20))
    mean = result.model.posterior(x).mean
    assert mean.shape == y.shape
    assert (mean - y).square().mean() < 0.2 * y.var()


@pytest.mark.parametrize(
    ("options", "match"), [({"restarts": 0}, "got 0"), ({"initialize": 0}, "got 0")]
)
def test_bad_options_are_named(options, match):
    with pytest.raises(ValueError, match=match):
        fit_best_of(rbf_model(), **options)


def test_a_learned_input_transform_acts_on_the_inputs_of_the_fitted_model():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(12, 1, generator=generator, dtype=torch.float64)
    y = (8 * x.square()).sin()
    warp = Warp(d=1, indices=[0])
    model = SingleTaskGP(x, y, input_transform=warp).eval()  # as a model in use is
    fit_best_of(model, restarts=1, initialize=None, recipe=SHORT, progress=False)
    assert (warp.concentration0 - 1).abs() > 1e-2  # something was learned
    with torch.no_grad():
        torch.testing.assert_close(model.train_inputs[0], warp(x))
