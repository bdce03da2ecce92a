import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize

from gpytorch_nkn.fit import FlatParameters, Recipe, fit_best_of, fit_in_stages, in_stages
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.models import NKNSingleTaskGP
from tests.fit.models import network_model, rbf_model

SHORT = Recipe(adam_steps=0, lbfgs_iterations=9)


def rbf_over(n, dim=2):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(n, dim, generator=generator, dtype=torch.float64)
    y = torch.sin(5 * x[:, 0]) + x[:, -1] + 0.1 * torch.randn(n, generator=generator).double()
    model = rbf_model()
    model.set_train_data(x, y, strict=False)
    return model


def loss_at(model, inputs, targets):
    """Negative log posterior of the model at other data, by autograd's objective."""
    whole = model.train_inputs[0], model.train_targets
    model.train().set_train_data(inputs, targets, strict=False)
    try:
        return Objective(model)().item()
    finally:
        model.set_train_data(*whole, strict=False)
        model.eval()


def test_very_few_rows_are_fitted_at_once():
    first, second = rbf_over(14), rbf_over(14)
    assert not fit_in_stages(first, recipe=SHORT, restarts=2, seed=3).held_out
    fit_best_of(second, recipe=SHORT, restarts=2, seed=3)
    for name, value in second.state_dict().items():
        torch.testing.assert_close(first.state_dict()[name], value)


@pytest.mark.parametrize("cls", [SingleTaskGP, NKNSingleTaskGP])
def test_inputs_are_transformed_once_also_if_the_model_has_predicted(cls):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(30, 1, generator=generator)
    bounds, states = torch.tensor([[0.0], [3.0]]), []
    for predicts in (False, True):
        model = cls(x, torch.sin(9 * x), input_transform=Normalize(1, bounds=bounds))
        if predicts:
            model.eval().posterior(x)
        fit_in_stages(model, recipe=SHORT, restarts=1)
        torch.testing.assert_close(model.train_inputs[0].view(x.shape), x / 3)
        states.append(model.state_dict())
    torch.testing.assert_close(*states)


def test_parameters_of_the_first_stage_ignore_held_out_rows():
    model = rbf_over(60)
    inputs, targets = model.train_inputs[0], model.train_targets.clone()
    result = fit_in_stages(model, recipe=SHORT, restarts=2, seed=3)
    first, second = (result.held_out[number].rows for number in (0, 1))
    assert len(first) == len(second) == 20 and not set(first.tolist()) & set(second.tolist())
    assert result.model is model and not model.training and model.train_targets.numel() == 60
    losses = [record.loss for record in result.restarts]
    assert result.best == losses.index(min(losses)) and list(result.members) == [0, 1]
    own = loss_at(model, inputs, targets)
    assert min(losses) == pytest.approx(own, rel=1e-6)

    # other held-out targets lead to the same parameters
    other = rbf_over(60)
    changed = targets.clone()
    changed[first] += 100
    other.set_train_data(inputs, changed, strict=False)
    again = fit_in_stages(other, recipe=SHORT, restarts=1, seed=3)
    torch.testing.assert_close(again.held_out[0].parameters, result.held_out[0].parameters)
    start, mask = result.before_held_out(0)
    torch.testing.assert_close(dict(start.state_dict()), dict(again.held_out[0].parameters))
    assert start is not result.members[0] and set(mask.nonzero()[0]) == set(first.tolist())


@pytest.mark.parametrize("stage", ["first", "last"])
def test_ctrl_c_in_a_stage_is_recorded(stage, monkeypatch):
    evaluate = FlatParameters.evaluate

    def interrupted(self):
        is_last = self._module.train_targets.numel() == 30
        if is_last == (stage == "last") and (is_last or self.evaluations == 3):
            raise KeyboardInterrupt
        return evaluate(self)

    monkeypatch.setattr(FlatParameters, "evaluate", interrupted)
    result = fit_in_stages(rbf_over(30), restarts=1, recipe=SHORT)
    assert result.interrupted and result.restarts[0].status == "interrupted"


def test_many_rows_are_trained_as_independent_blocks():
    model = rbf_over(800)
    inputs, targets = model.train_inputs[0], model.train_targets
    before = torch.random.get_rng_state()
    result = fit_in_stages(model, block_size=300, recipe=SHORT, restarts=2, seed=5)
    assert torch.equal(before, torch.random.get_rng_state())
    assert model.train_targets is targets and len(result.members) == 1
    assert result.members[0].train_targets.numel() == 800
    rows = torch.randperm(800, generator=torch.Generator().manual_seed(5))[:600]
    apart = sum(loss_at(model, inputs[part], targets[part]) for part in rows.split(300))
    prior = sum(p.log_prob(get(m)).sum() for _, m, p, get, _ in model.named_priors())
    expected = apart + float(prior)  # which is in both blocks, and counts once
    assert result.restarts[0].loss == pytest.approx(expected, rel=1e-6)


def test_what_has_no_meaning_is_rejected():
    with pytest.raises(ValueError, match="block_size must be at least 2, got 1"):
        fit_in_stages(rbf_over(20), block_size=1)
    with pytest.raises(ValueError, match="max_blocks must be at least 1, got 0"):
        fit_in_stages(rbf_over(20), max_blocks=0)
    model = network_model()
    model.set_train_data(torch.rand(2, 30, 1), torch.rand(2, 30), strict=False)
    with pytest.raises(ValueError, match=r"N x D and targets N .*got shapes \[\(2, 30, 1\)\]"):
        fit_in_stages(model)


@pytest.mark.filterwarnings("error::gpytorch.utils.warnings.GPInputWarning")
@pytest.mark.parametrize("n, options", [(60, {}), (120, {"block_size": 40, "max_blocks": 2})])
def test_known_noise_goes_with_its_rows(n, options, monkeypatch):
    monkeypatch.setattr(in_stages, "_START_ROWS", 50)
    model = rbf_over(n)
    noise = torch.linspace(0.01, 1.0, n, dtype=torch.float64)
    known = SingleTaskGP(
        model.train_inputs[0], model.train_targets[:, None], noise[:, None], outcome_transform=None
    )
    fit_in_stages(known, recipe=SHORT, restarts=2, **options)
    torch.testing.assert_close(known.likelihood.noise, noise)
    # what is learned of all rows with their noise cannot be much better
    whole = Objective(known.train())().item()
    other = fit_best_of(known, recipe=SHORT, restarts=2).model
    assert whole < Objective(other.train())().item() + 0.1 * n
