import re

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import InputPerturbation
from gpytorch.models import ExactGP
from scipy.stats import norm

from gpytorch_nkn.fit import evaluating
from gpytorch_nkn.interpretation import report_search
from gpytorch_nkn.interpretation.checks import held_out
from gpytorch_nkn.interpretation.source import fitted_processes
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP
from gpytorch_nkn.models.averaging.member_warp import fit_warp
from tests.global_state import unchanged

X = 10 * torch.rand(14, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = -(X[:, :1] / 3).exp() * (10 + X[:, 1:2]) - 100


def averaged():
    structures = ("rbf", "outcome-warped rbf")
    model = StructureEnsembleGP(X, Y, input_transform=Normalize(3), structures=structures)
    _, y, _ = model.common_data()
    model.warps[model.is_warped] = fit_warp(y)
    model.part_values[:, 1] = torch.linspace(1e-3, 1e-2, len(model.part_values))  # noise
    model.set_weights(torch.arange(1, len(model.weights) + 1))
    return model.eval()


MODELS = {"averaged": averaged, "single": lambda: SingleTaskGP(X, Y, torch.full_like(Y, 25.0))}


def test_an_evaluation_is_predicted_as_by_the_model_without_the_later_ones():
    model = averaged()
    with evaluating(model), torch.no_grad():
        processes = fitted_processes(model)
        values, ahead, loo = held_out(processes)
        np.testing.assert_allclose(values, Y[:, 0], rtol=1e-6)
        place = 9
        means, stds, alone = [], [], []
        for _, gp in processes:
            noisy = gp.covariance + torch.diag_embed(gp.noise)
            for rows, found in (
                (torch.arange(place), (means, stds)),
                (torch.arange(14)[torch.arange(14) != place], (alone, [])),
            ):
                gain = torch.linalg.solve(noisy[rows][:, rows], noisy[rows, place])
                mean = gp.mean[place] + gain @ (gp.targets - gp.mean)[rows]
                std = (noisy[place, place] - gain @ noisy[rows, place]).sqrt()
                mean, factor = gp.on_common_scale(mean)
                found[0].append(gp.units.y_offset + gp.units.y_scale * float(mean))
                found[1].append(gp.units.y_scale * float(factor * std))
        weights = np.array([weight for weight, _ in processes])
    assert ahead.mean[place] == pytest.approx(weights @ means, rel=1e-4)
    assert loo.mean[place] == pytest.approx(weights @ alone, rel=1e-4)
    below = weights @ norm.cdf(Y[place, 0], means, stds)
    assert norm.cdf(ahead.z_scores[place]) == pytest.approx(below, rel=1e-3, abs=1e-9)
    second = weights @ (np.square(stds) + np.square(means)) - (weights @ means) ** 2
    assert ahead.std[place] == pytest.approx(np.sqrt(second), rel=1e-3)


@pytest.mark.parametrize("flag", [True, False])
def test_perturbed_inputs_keep_their_flag(flag):
    perturb = InputPerturbation(torch.zeros(2, 1, dtype=torch.float64), transform_on_eval=flag)
    x = torch.linspace(0, 1, 8, dtype=torch.float64).unsqueeze(-1)
    model = SingleTaskGP(x, x.sin(), input_transform=perturb)
    report_search(model)
    assert model.input_transform.transform_on_eval is flag


@pytest.mark.parametrize("name", MODELS)
def test_it_says_what_was_reached_and_where_it_goes_on(name, tmp_path):
    model = MODELS[name]().train()
    acquisition = LogExpectedImprovement(model, best_f=Y.max())
    candidates = torch.tensor([[0.0, 5, 5]], dtype=torch.float64)
    options = {"bounds": torch.tensor([[0.0, 0, 0], [10, 10, 10]]), "num_initial": 5}
    options |= {"acquisition": acquisition, "candidates": candidates}
    with unchanged():
        found = report_search(model, columns=["heat", "flow", "noise"], **options)
    assert model.training
    best = int(Y.argmax())
    assert found.best == best and found.maximize
    assert f"Evaluation {best + 1} of 14 has the highest value" in found.summary[0]
    assert any(line.startswith("Next: heat = 0") for line in found.summary)
    assert set(found.structures) == set(getattr(model, "structure_weights", {}))
    assert found.effects.main[0].names == ("heat",)
    heat = next(one for one in found.slices if one.name == "heat")
    assert heat.grid[0] == 0 and heat.grid[-1] == 10
    points = candidates.repeat(101, 1)
    points[:, 0] = torch.from_numpy(heat.grid)
    with evaluating(model), torch.no_grad():
        posterior = model.posterior(points)
        mean = getattr(posterior, "mixture_mean", posterior.mean)[..., 0]
        np.testing.assert_allclose(heat.mean, mean, rtol=1e-5)
        logarithm = acquisition(points.unsqueeze(-2)).numpy()
    assert max(one.acquisition.max() for one in found.slices) == pytest.approx(1)
    share = np.exp(logarithm - logarithm.max())  # drawn are values, not their logarithms
    np.testing.assert_allclose(heat.acquisition / heat.acquisition.max(), share, rtol=1e-4)
    assert heat.best == pytest.approx(X[best, 0].item())
    assert heat.candidates.tolist() == [0.0]
    with evaluating(model), torch.no_grad():
        posterior = model.posterior(torch.cat([X[[best]], candidates]).unsqueeze(-2))
        mean = getattr(posterior, "mixture_mean", posterior.mean).flatten()
    # a line of them lies off the curve, which goes through the candidate
    np.testing.assert_allclose([heat.best_mean, *heat.candidate_means], mean, rtol=1e-5)
    assert "95 % interval" in found.checks[0] and "Model checking" in found.text
    if name == "averaged":
        page = found.save(tmp_path / "pages" / "search.html").read_text(encoding="utf-8")
        assert page.count("<img ") == 5 and "Next points" in page


@pytest.mark.parametrize("cat_dims", [[-1], None])
def test_categories_are_named_in_words_and_figures(cat_dims):
    """Those that were never evaluated, too."""
    x = X / 10
    x[:, 2] = torch.arange(14) % 3 + 1
    y = torch.where(x[:, 2:] == 2, 5.0, 0.0) + x[:, :1]
    found = report_search(
        NKNSingleTaskGP(x, y, cat_dims=cat_dims),
        candidates=torch.tensor([[0.5, 0.5, 3.0]]),
        columns=["heat", "flow", "kernel"],
        categories={"kernel": ["none", "linear", "Matern $5/2$", "rational quadratic", "cosine"]},
    )
    kernel = next(one for one in found.slices if one.name == "kernel")
    assert kernel.grid.tolist() == [0, 1, 2, 3, 4] and kernel.candidates.tolist() == [3]
    assert kernel.levels[2:4] == ("Matern $5/2$", "rational quadratic")
    assert "kernel = Matern $5/2$" in found.summary[0]
    (ahead,) = [line for line in found.summary if line.startswith("Next")]
    assert "kernel = rational quadratic" in ahead
    assert any("Among the 3 categories of kernel" in line for line in found.summary)


BATCH = X.expand(2, -1, -1), Y.expand(2, -1, -1)


class Plain(ExactGP):
    def __init__(self):
        super().__init__(None, None, SingleTaskGP(X, Y).likelihood)


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (Plain, {}, TypeError, "BoTorch model"),
        (lambda: SingleTaskGP(*BATCH), {}, NotImplementedError, "got targets of shape"),
        (lambda: SingleTaskGP(X[:2], Y[:2]), {}, ValueError, "at least 3"),
        (MODELS["single"], {"num_initial": 15}, ValueError, "num_initial must be from 0 to 14"),
        (MODELS["single"], {"candidates": X[0]}, ValueError, "candidates must be finite points"),
        (MODELS["single"], {"bounds": torch.eye(2, 3) * -1}, ValueError, "lower and upper bounds"),
        (MODELS["single"], {"acquisition": lambda x: x.sum()}, ValueError, "one value for each"),
        (MODELS["single"], {"acquisition": "ei"}, TypeError, "function of points A x 1 x D"),
        (MODELS["single"], {"y_scale": 0.0}, ValueError, "y_scale must be positive, got 0.0"),
        (MODELS["single"], {"categories": {"x2": ["a"]}}, ValueError, "1 names and the code"),
    ],
)
def test_what_does_not_fit_is_rejected(model, options, error, message):
    with pytest.raises(error, match=message):
        report_search(model(), **options)


def test_values_have_the_units_that_they_had_before_the_model():
    """The model has standardised values with the other sign."""
    mean, std = Y.mean().item(), Y.std().item()
    model = SingleTaskGP(X, (mean - Y) / std, torch.full_like(Y, 0.01), outcome_transform=None)
    options = {"y_offset": mean, "y_scale": -std, "candidates": X[:1]}
    found = report_search(model, **options)
    np.testing.assert_allclose(found.values, Y[:, 0])
    assert found.best == int(Y.argmax())
    points = X[:1].repeat(len(found.slices[0].grid), 1)
    points[:, found.slices[0].column] = torch.from_numpy(found.slices[0].grid)
    posterior = model.posterior(points)
    expected = mean - std * posterior.mean[:, 0].detach()
    width = 1.959964 * std * posterior.variance[:, 0].detach().sqrt()
    np.testing.assert_allclose(found.slices[0].mean, expected)
    np.testing.assert_allclose(found.slices[0].lower, expected - width)
    np.testing.assert_allclose(found.slices[0].upper, expected + width)
    plain = report_search(model, candidates=X[:1], maximize=False)
    np.testing.assert_allclose(found.ahead.z_scores, -plain.ahead.z_scores)
    np.testing.assert_allclose(found.held_out.std, std * plain.held_out.std)
    for one, other in zip(found.effects.main, plain.effects.main, strict=True):
        np.testing.assert_allclose(one.mean, -std * other.mean)
        np.testing.assert_allclose(one.lower, -std * other.upper)
        np.testing.assert_allclose(one.data[1], -std * other.data[1])
        assert one.share == pytest.approx(other.share)
    (said,) = [line for line in found.summary if line.startswith("Next")]
    assert float(re.search("expects ([^ ]*) ", said)[1]) == pytest.approx(
        Y[0].item(), abs=0.2 * std
    )


def test_the_best_is_one_that_keeps_the_constraints():
    def one_column():  # without effects
        return SingleTaskGP(X[:, :1], Y, torch.full_like(Y, 25.0))

    order = Y[:, 0].argsort(descending=True)
    feasible = torch.ones(14, dtype=bool)
    feasible[order[:2]] = False
    found = report_search(one_column(), feasible=feasible, num_initial=3)
    assert found.best == order[2] and found.feasible.tolist() == feasible.tolist()
    first = f"Evaluation {order[2] + 1} of 14 has the highest value of the 12 feasible ones, "
    assert first in found.summary[0]
    assert found.slices[0].best == pytest.approx(X[order[2], found.slices[0].column].item())
    np.testing.assert_allclose(found.values, Y[:, 0], rtol=1e-6)
    none = report_search(one_column(), feasible=[False] * 14, num_initial=3)
    assert none.best == order[0] and "None of the 14 evaluations is feasible" in none.summary[0]
    assert not any("brought" in line for line in none.summary)
    none.to_html()
    late = torch.arange(14) >= 3
    found = report_search(one_column(), feasible=late, num_initial=3)
    assert found.summary[1] == (
        "The first 3 evaluations were not chosen by the model; none is feasible."
    )
    for wrong in ([True] * 13, torch.ones(14)):
        with pytest.raises(ValueError, match="feasible must be 14 booleans, got"):
            report_search(one_column(), feasible=wrong)
