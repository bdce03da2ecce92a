import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

from gpytorch_nkn.interpretation import decompose, expand
from gpytorch_nkn.interpretation.expansion.expand import with_posterior_shares
from gpytorch_nkn.interpretation.source import fitted_gp
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.interpretation.small_models import GP


def additive_model(n=60):
    x = torch.rand(n, 5)
    y = torch.sin(6 * x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 2] * x[:, 4] + 0.01 * torch.randn(n)
    kernel = sum(
        (ScaleKernel(RBFKernel(active_dims=dims)) for dims in ((1, 2), (2, 4), (3,))),
        ScaleKernel(RBFKernel(active_dims=(0,))),
    )
    model = GP(x, y, kernel)
    for part, scale in zip(kernel.kernels, (1.0, 1.0, 1.0, 1e-6), strict=True):
        part.outputscale = scale
    return model


def test_enough_components_for_every_column():
    x = torch.rand(30, 12)
    kernel = NeuralKernelNetwork.optimization(12, wiring="Linear2-Product1-Linear1")
    split = decompose(GP(x, x.sum(-1), kernel))
    assert len(split.components) == 16
    assert {frozenset({c}) for c in range(12)} <= {part.columns for part in split.components}
    assert len(decompose(GP(x[:, :3], x.sum(-1), NeuralKernelNetwork.optimization(3))).shares) == 8


def test_names_of_columns_are_those_given():
    model = additive_model()
    names = [f"c{place}" for place in range(5)]
    split = decompose(model, columns=names)
    assert {"c0", "c1, c2", "c2, c4", "c3"} <= {part.name for part in split.components}
    assert any("[c1, c2]" in term.label for term in expand(model, columns=names).terms)
    assert expand(RBFKernel(active_dims=(1,)), columns=["a", "b"]).terms[0].label[:6] == "RBF[b]"


def test_curves_are_the_posterior_and_explain_the_data():
    x = torch.rand(30).sort()[0].unsqueeze(-1)
    y = 3 * x[:, 0] + torch.sin(40 * x[:, 0])
    split = decompose(GP(x, y, LinearKernel() + PeriodicKernel() + RBFKernel()))
    curves = split.curves(horizon=0.5)
    for curve, part in zip(curves, split.components, strict=True):
        assert curve.label == part.name and curve.x[-1] == pytest.approx(float(x.max()) + 0.5)
        assert curve.boundary == pytest.approx(float(x.max()))
    posterior = split.posterior(torch.as_tensor(curves[0].x), centered=True)
    for curve, mean, variance in zip(curves, posterior.mean, posterior.variance, strict=True):
        np.testing.assert_allclose(curve.mean, mean.numpy(), atol=1e-8)
        np.testing.assert_allclose(curve.upper - curve.mean, 1.959964 * variance.sqrt(), atol=1e-6)
    fitted = sum(curve.mean[np.searchsorted(curve.x, curve.data[0])] for curve in curves)
    for curve in curves:  # its own mean, and what the sum leaves
        own = curve.mean[np.searchsorted(curve.x, curve.data[0])]
        np.testing.assert_allclose(curve.data[1], own + y.numpy() - fitted, atol=1e-8)
    assert split.curves()[0].boundary is None
    with pytest.raises(ValueError, match="negative, got -1"):
        split.curves(-1.0)
    with pytest.raises(ValueError, match="one input column"):
        decompose(additive_model()).curves()


def test_centered_components_have_no_level_but_for_the_one_with_the_mean():
    x = torch.linspace(0, 1, 25).unsqueeze(-1)
    model = GP(x, 5 + torch.sin(30 * x[:, 0]), RBFKernel() + PeriodicKernel())
    split = decompose(model)
    plain, centered = split.posterior(x), split.posterior(x, centered=True)
    torch.testing.assert_close(centered.mean.sum(0), plain.mean.sum(0))
    parts = [sum(t.weight * t.kernel(x).to_dense() for t in c.terms) for c in split.components]
    noisy = sum(parts) + model.likelihood.noise * torch.eye(25)
    cross = torch.cat(parts)
    joint = torch.block_diag(*parts) - cross @ torch.linalg.solve(noisy, cross.mT)
    average, count = torch.full((25, 25), 1 / 25), len(parts)
    moves = torch.block_diag(*[torch.eye(25) - average] * count)
    for place, part in enumerate(split.components):
        if part.has_mean:
            rows = slice(25 * place, 25 * (place + 1))
            moves[rows] = average.repeat(1, count)
            moves[rows, rows] = torch.eye(25)
        else:
            assert abs(float(centered.mean[place].mean())) < 1e-8
    expected = (moves @ joint @ moves.mT).diagonal().detach().reshape(count, 25)
    torch.testing.assert_close(centered.variance, expected, rtol=1e-4, atol=1e-7)


def test_posterior_shares_of_terms_match_their_part_of_the_mean():
    x = torch.rand(30).sort()[0].unsqueeze(-1)
    y = 3 * x[:, 0] + torch.sin(40 * x[:, 0])
    model = GP(x, y, ScaleKernel(LinearKernel() * RBFKernel()) + PeriodicKernel() + RBFKernel())
    expansion = with_posterior_shares(expand(model), fitted_gp(model))
    shares = [term.posterior_share for term in expansion.terms]
    assert sum(shares) == pytest.approx(1.0)
    noisy = model.covar_module(x).to_dense() + model.likelihood.noise * torch.eye(30)
    alpha = torch.linalg.solve(noisy, y - model.mean_module(x)).detach()
    whole = (model.covar_module(x).to_dense() @ alpha).detach()
    for term in expansion.terms:
        part = (term.weight * term.kernel(x).to_dense() @ alpha).detach()
        expected = torch.cov(torch.stack([part, whole]))[0, 1] / whole.var()
        assert term.posterior_share == pytest.approx(float(expected), abs=1e-9)
    assert expand(model).terms[0].posterior_share is None
