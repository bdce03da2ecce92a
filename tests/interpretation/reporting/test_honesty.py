"""Reports must be correct if structure is absent, hidden or hard to detect."""

import math

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import ChainedInputTransform, Normalize, Round, Warp
from gpytorch.constraints import Interval
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from scipy import stats

from gpytorch_nkn.estimators import NKNForecaster, NKNRegressor
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import decompose, expand, report, simplify
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import parse_wiring
from tests.interpretation.small_models import GP


def periodic(period, lengthscale=1.0):
    kernel = PeriodicKernel()
    kernel.period_length, kernel.lengthscale = period, lengthscale
    return ScaleKernel(kernel)


def rbf(lengthscale, outputscale=1.0):
    kernel = ScaleKernel(RBFKernel())
    kernel.base_kernel.lengthscale, kernel.outputscale = lengthscale, outputscale
    return kernel


def with_noise(model, noise):
    model.likelihood.noise = noise
    return model


def test_a_cycle_has_the_period_that_carries_it():
    x = torch.arange(150.0).unsqueeze(-1)
    y = 2 * torch.sin(2 * math.pi * x[:, 0] / 30)
    kernel = periodic(30.0) + periodic(60.0)
    kernel.kernels[1].outputscale = 0.4
    names = {part.name for part in decompose(with_noise(GP(x, y, kernel), 0.01)).components}
    assert "cycle of 30.0" in names


def test_columns_that_hardly_vary_are_in_the_expansion():
    x = torch.rand(1000, 2)
    x[:, 1] = (torch.arange(1000) % 4 == 1).double()
    single = torch.rand(600, 2)
    single[:, 1] = 0.0
    single[5, 1] = 1.0
    kernel = NeuralKernelNetwork(
        [RBFKernel(active_dims=(0,)), LinearKernel(active_dims=(1,))],
        parse_wiring("Linear4-Product2-Linear1", 2),
    )
    for inputs in (x, single):
        found = expand(kernel, inputs)
        some = inputs[:20]
        torch.testing.assert_close(found.evaluate(some), kernel(some).to_dense().detach())
        assert found.dropped < 1e-9


def test_reports_in_single_precision_and_under_large_priors():
    x = torch.linspace(0, 10, 200).unsqueeze(-1)
    single = with_noise(GP(x, torch.sin(x[:, 0]), rbf(3.0)), 1e-4).float()
    assert report(single).ahead is not None
    years = 2000 + torch.arange(240.0).unsqueeze(-1) / 12
    kernel = ScaleKernel(LinearKernel() * LinearKernel()) + rbf(5.0)
    assert report(with_noise(GP(years, torch.randn(240), kernel), 0.01)).sections


@pytest.mark.usefixtures("few_iterations")
def test_noise_that_is_frozen_or_bounded_stays_so_in_a_simpler_model():
    x = torch.rand(40).sort()[0].unsqueeze(-1)
    y = torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(40)
    model = with_noise(GP(x, y, rbf(0.3)), 0.01)
    model.likelihood.raw_noise.requires_grad_(False)
    found = simplify(model, max_candidates=2)
    assert float(found.model.likelihood.noise) == pytest.approx(0.01)
    bounded = GaussianLikelihood(noise_constraint=Interval(1e-6, 2e-2))
    found = simplify(GP(x, y, rbf(0.3), bounded), max_candidates=2)
    assert 1e-6 <= float(found.model.likelihood.noise) <= 2e-2


def warped(top):
    x = torch.linspace(0, top, 40).unsqueeze(-1)
    transform = ChainedInputTransform(scale=Normalize(1), warp=Warp(d=1, indices=[0]))
    transform.warp.concentration0.data.fill_(2.0)
    model = SingleTaskGP(
        x, torch.sin(6 * x / top), covar_module=rbf(0.3).double(), input_transform=transform
    )
    return x, model.eval()


@pytest.mark.usefixtures("few_iterations")
def test_reports_have_the_raw_inputs_and_simplified_models_can_learn_their_transform():
    x = torch.rand(12, 2)
    warp = Warp(d=2, indices=[0, 1])
    warp.concentration0.data.fill_(2.0)
    model = SingleTaskGP(x, x.sum(-1, keepdim=True).sin(), input_transform=warp)
    np.testing.assert_allclose(report(model).x, x, atol=1e-6)
    learned = dict(simplify(model, max_candidates=1).model.named_parameters())
    assert learned["input_transform.concentration0"].requires_grad


@pytest.mark.parametrize("top", [1.0, 1e5, 1e7])
def test_transforms_that_are_not_affine_give_no_locations_and_no_lengths(top):
    x, model = warped(top)
    split = decompose(model)
    np.testing.assert_allclose(
        split.posterior(x).total_mean.numpy(), model.posterior(x).mean[:, 0].detach(), atol=1e-6
    )
    with pytest.raises(ValueError, match="must be affine"):
        split.curves()
    assert expand(model).terms[0].label == "RBF(0.300)"  # of the transformed input


def test_a_transform_that_flattens_a_column_gives_no_lengths():
    x = torch.cat([torch.linspace(0, 1, 20).unsqueeze(-1), 0.4 * torch.rand(20, 1)], -1)
    rounded = Round(integer_indices=[1], approximate=False)  # to zero
    model = SingleTaskGP(x, x[:, :1].sin(), covar_module=rbf(0.3), input_transform=rounded)
    assert expand(model.eval()).terms[0].label == "RBF[x0, x1](0.300)"


def test_units_of_single_precision_models_far_from_zero():
    x = (1e6 + 100 * torch.rand(30, 1)).float()
    y = torch.sin(x / 20)
    model = SingleTaskGP(x, y, covar_module=rbf(0.2).float(), input_transform=Normalize(1)).eval()
    label = expand(model).terms[0].label
    span = float(x.max() - x.min())
    assert float(label.split("(")[1][:-1]) == pytest.approx(0.2 * span, rel=0.01)


@pytest.mark.parametrize("likelihood", ["student_t", "poisson"])
def test_numbers_are_of_observations_and_not_of_working_targets(likelihood):
    rng = np.random.default_rng(0)
    x, of_counts = np.sort(rng.uniform(size=80)), likelihood == "poisson"
    y = 10 + 3 * np.sin(9 * x) + 0.3 * rng.standard_t(2.5, 80)
    y = rng.poisson(np.exp(np.sin(9 * x))) if of_counts else y
    recipe = Recipe(adam_steps=0, lbfgs_iterations=20)
    model = NKNRegressor("rbf", likelihood=likelihood, restarts=1, recipe=recipe, random_state=0)
    found = report(model.fit(x[:, None], y))

    def function(points):
        parts = model.predict_distribution(points[:, None])
        if of_counts:  # normal logarithms of the rate
            return parts.means[0], parts.stds[0]
        return model.predict(points[:, None], return_std=True, observation_noise=False)

    fit, weights, noise = function(x)[0], np.ones(80), 0.0
    if of_counts:  # iteratively reweighted least squares
        weights, y = np.exp(fit), fit + (y - np.exp(fit)) / np.exp(fit)
    else:
        own = model.model_.observations
        scale = own.noise.item() ** 0.5 * model.y_scale_
        noise = stats.t(own.deg_free.item(), scale=scale).std()
        assert f"has a standard deviation of {noise:.3g}" in str(found)
    left = y - fit - np.average(y - fit, weights=weights)
    total = np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
    share = 1 - np.average(left**2, weights=weights) / total
    assert found.decomposition.explained[-1] == pytest.approx(share, rel=1e-4)
    centre, std = function(found.forecast.x)
    half = 1.959964 * np.hypot(std, noise)
    ends = [np.exp(end) if of_counts else end for end in (centre - half, centre + half)]
    np.testing.assert_allclose([found.forecast.lower, found.forecast.upper], ends, rtol=1e-5)
    np.testing.assert_allclose(found.fit.data[1], np.exp(y) if of_counts else y, rtol=1e-6)


def test_independent_counts_show_no_misfit():
    y = np.random.default_rng(3).poisson(0.4, 120).astype(float)
    forecaster = NKNForecaster(quality="fast", progress=False, random_state=0)
    found = report(forecaster.fit(np.arange(120.0), y), progress=False)
    for scores in (found.ahead, found.held_out):
        assert scores.p_value > 0.05 and all(c.p_value > 0.01 for c in scores.coverage)
    assert "too" not in " ".join(found.checks)
    assert "between 0 and 0" not in str(found)


@pytest.mark.usefixtures("one_structure")
@pytest.mark.parametrize(
    "change, words",
    [(lambda t: 15 * (t > 0), "a level shift"), (lambda t: t.clip(0), "a change of slope")],
)
def test_a_level_shift_is_not_reported_as_a_rising_trend(change, words):
    t = np.arange(84.0)
    y = 50 + 5 * np.sin(2 * np.pi * t / 12) + change(t - 50)
    y += np.random.default_rng(3).normal(0, 0.5, 84)
    forecaster = NKNForecaster(quality="fast", seasons=[12], progress=False, random_state=0)
    found = str(report(forecaster.fit(t, y), progress=False))
    assert f"A trend with {words} (" in found and "rising" not in found


class Halved(RBFKernel):
    """An RBF kernel of half the lengthscale."""

    def forward(self, x1, x2, **params):
        return super().forward(2 * x1, 2 * x2, **params)


def test_the_length_of_a_variation_is_that_of_the_values_of_a_subclass():
    x = torch.linspace(0, 100, 60, dtype=torch.float64).unsqueeze(-1)
    model = GP(x, torch.sin(x[:, 0]), Halved().initialize(lengthscale=8.0)).double()
    (sentence,) = (s for s in report(model).text.splitlines() if "varies over" in s)
    assert 3.5 < float(sentence.split("about ")[1].split(";")[0]) < 4.5
