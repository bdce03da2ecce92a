import numpy as np
import pytest
import torch
from botorch.models import EnsembleMapSaasSingleTaskGP
from botorch.models.transforms import Normalize

from gpytorch_nkn.fit import evaluating
from gpytorch_nkn.interpretation import decompose, effects, report
from gpytorch_nkn.interpretation.averages import Averages
from gpytorch_nkn.interpretation.source import fitted_processes, raw_inputs
from gpytorch_nkn.models import StructureEnsembleGP
from gpytorch_nkn.models.averaging.member_warp import fit_warp

X = 10 * torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = -(X[:, :1] / 3).exp() * (10 + X[:, 1:]) - 100


def averaged(**options):
    model = StructureEnsembleGP(X, Y, input_transform=Normalize(2), **options)
    _, y, _ = model.common_data()
    model.warps[model.is_warped] = fit_warp(y)
    constants = torch.linspace(-1, 1, len(model.part_values))
    noises = torch.linspace(1e-4, 1e-2, len(model.part_values))
    model.part_values[:] = torch.stack([constants, noises], -1)
    model.set_weights(torch.arange(1, len(model.weights) + 1))
    return model.eval()


MODELS = {
    "averaged": averaged,
    "without warps": lambda: averaged(structures=("rbf", "matern")),
    "warped only": lambda: averaged(structures=("outcome-warped rbf",)),
    "noise known": lambda: StructureEnsembleGP(X / 10, Y, torch.full_like(Y, 25.0)),
    "BoTorch": lambda: EnsembleMapSaasSingleTaskGP(X, Y, input_transform=Normalize(2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_averages_match_the_posterior_that_botorch_has(name):
    model = MODELS[name]().eval()
    rng = np.random.default_rng(0)
    first, second = rng.uniform(0, 10, (3, 4, 2)), rng.uniform(0, 10, (5, 2))
    with evaluating(model), torch.no_grad():
        raw = raw_inputs(model).reshape(-1, 20, 2)[0]
        averages = Averages(fitted_processes(model), raw.numpy())
        mean, deviation = averages.contrast(first, second)
        points = torch.from_numpy(np.concatenate([first.reshape(-1, 2), second]))
        posterior = model.posterior(points)
        predicted = averages.mean(points.numpy())
    weights = torch.zeros(3, 17, dtype=torch.float64)
    for row in range(3):
        weights[row, 4 * row : 4 * row + 4], weights[row, 12:] = 1 / 4, -1 / 5
    means = posterior.mean[..., 0] @ weights.T  # members x 3
    own = (weights @ posterior.distribution.covariance_matrix @ weights.T).diagonal(dim1=1, dim2=2)
    expected = own.mean(0) + means.var(0, correction=0)
    torch.testing.assert_close(torch.from_numpy(mean), means.mean(0), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(torch.from_numpy(deviation) ** 2, expected, rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(averages.largest, abs(Y).max(), rtol=1e-6)
    np.testing.assert_allclose(predicted, posterior.mixture_mean[:, 0], rtol=1e-4)


def test_effects_of_an_ensemble_follow_the_function():
    model = averaged(structures=("rbf", "outcome-warped rbf"))
    found = effects(model, columns=["a", "b"], samples=256)
    assert [effect.label for effect in found.main] == ["a", "b"]
    (grid,), mean = found.main[0].grid, found.main[0].mean
    truth = -np.exp(grid / 3) * (10 + X[:, 1].mean().item())
    assert np.corrcoef(mean, truth)[0, 1] > 0.95
    assert (found.main[0].lower < mean).all()


def test_components_and_reports_of_an_ensemble_say_what_to_take():
    with pytest.raises(NotImplementedError, match=r"different outcome scales.*effects\(model\)"):
        decompose(averaged())
    with pytest.raises(NotImplementedError, match="use report_search or effects"):
        report(MODELS["without warps"]())
