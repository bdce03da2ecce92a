import math

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import ConstantKernel, LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

from gpytorch_nkn.interpretation import decompose
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.interpretation.small_models import GP, forecaster, perturbed


def data(n=36, seed=0):
    """A trend, a cycle of 1.5 and noise, over [0, 10] with gaps."""
    generator = torch.Generator().manual_seed(seed)
    x = 10 * torch.rand(n, generator=generator, dtype=torch.float64).sort().values
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    return x.unsqueeze(-1), 0.4 * x + (2 * math.pi * x / 1.5).sin() + 0.2 * noise


def series_kernel():
    kernel = ScaleKernel(PeriodicKernel()) + LinearKernel() + ScaleKernel(RBFKernel())
    kernel.kernels[0].base_kernel.period_length = 1.5
    kernel.kernels[0].outputscale = 1.7
    kernel.kernels[1].variance = 0.3
    kernel.kernels[2].base_kernel.lengthscale = 0.4
    kernel.kernels[2].outputscale = 0.2
    return kernel.double()


def series_model(n=36, kernel=None):
    x, y = data(n)
    model = GP(x, y, series_kernel() if kernel is None else kernel).double()
    model.likelihood.noise = 0.05
    model.mean_module.constant.data.fill_(0.8)
    return model


def columns_data(outputs=1):
    generator = torch.Generator().manual_seed(2)
    x = 5 + 10 * torch.rand(26, 3, generator=generator, dtype=torch.float64)
    y = torch.stack(
        [200 + 30 * x[:, 0].sin() + x[:, 1] ** 2, x[:, 2].cos() * x[:, 1]][:outputs], -1
    )
    return x, y, 5 + 10 * torch.rand(9, 3, generator=generator, dtype=torch.float64)


def small_network(seed=0):
    """The paper's primitives with 45 monomials in place of 495."""
    return perturbed(NeuralKernelNetwork.time_series(wiring="Linear4-Product2-Linear1"), seed)


NEW = torch.linspace(-1, 13, 15, dtype=torch.float64).unsqueeze(-1)


def whole_posterior(model, x):
    """Mean ``... x M`` and covariance ``... x M x M`` by GPyTorch or BoTorch, without noise."""
    model.eval()
    with torch.no_grad():
        if not hasattr(model, "posterior"):
            posterior = model(x)
            return posterior.mean, posterior.covariance_matrix
        distribution = model.posterior(x).distribution
        mean, covariance = distribution.mean, distribution.covariance_matrix
        if model.num_outputs > 1:  # M x m, and blocks on the diagonal
            m, n = model.num_outputs, x.size(-2)
            order = torch.arange(m * n).view(m, n)
            covariance = torch.stack([covariance[o][:, o] for o in order])
            mean = mean.mT
        return mean, covariance


def check_sums(decomposition, mean, covariance, x, tolerance=1e-6):
    """Means add up to the mean, and all covariances to the covariance."""
    posterior = decomposition.posterior(x)
    scale = covariance.diagonal(dim1=-1, dim2=-2).max()
    count = len(decomposition.components)
    assert posterior.mean.shape == posterior.variance.shape == (count, *mean.shape)
    size = max(1.0, float(mean.abs().max()))
    torch.testing.assert_close(posterior.mean.sum(0), mean, rtol=0, atol=tolerance * size)
    torch.testing.assert_close(posterior.total_mean, mean, rtol=0, atol=tolerance * size)
    variance = covariance.diagonal(dim1=-1, dim2=-2)
    torch.testing.assert_close(
        posterior.total_variance / scale, variance / scale, rtol=0, atol=tolerance
    )
    assert decomposition.shares.sum() == pytest.approx(1.0)
    numbers = (decomposition.explained, decomposition.errors, decomposition.shares)
    assert all(value.shape == (count,) for value in numbers)
    assert decomposition.improves.shape == (count, 2)
    assert not posterior.mean.requires_grad


def check_model(model, x, **options):
    decomposition = decompose(model, **options)
    check_sums(decomposition, *whole_posterior(model, x), x)
    return decomposition


# --- the sum is the model ----------------------------------------------------------------------


@pytest.mark.parametrize("make", [series_kernel, small_network])
def test_components_of_a_series_add_up(make):
    check_model(series_model(kernel=make()), NEW)


def test_roles_of_a_series():
    decomposition = decompose(series_model())
    parts = {part.name: part for part in decomposition.components}
    assert set(parts) == {"trend", "cycle of 1.50", "variation"}
    assert parts["cycle of 1.50"].role.period == pytest.approx(1.5)
    assert parts["cycle of 1.50"].label == "PER(1.50)"
    assert [part.has_mean for part in parts.values()].count(True) == 1 and parts["trend"].has_mean
    assert sum(len(part.terms) for part in parts.values()) == 4  # the constant went to the trend


def test_known_noise():
    x, y, new = columns_data()
    noise = torch.linspace(0.1, 40.0, 26).unsqueeze(-1)
    kernel = perturbed(NeuralKernelNetwork.regression(3))
    model = SingleTaskGP(x, y, train_Yvar=noise, covar_module=kernel, input_transform=Normalize(3))
    check_model(model, new)
    x, y = data()
    likelihood = FixedNoiseGaussianLikelihood(torch.linspace(0.01, 0.3, 36))
    check_model(GP(x, y, series_kernel(), likelihood), NEW)


def test_several_outputs():
    x, y, new = columns_data(outputs=2)
    check_model(SingleTaskGP(x, y), new)
    kernel = perturbed(NeuralKernelNetwork.additive(3, batch_shape=torch.Size([2])))
    model = SingleTaskGP(x, y, covar_module=kernel, input_transform=Normalize(3))
    check_model(model, new)


def test_components_do_not_depend_on_the_units_of_an_output():
    x = columns_data()[0]
    found = []
    for unit in (1.0, 0.01):
        y = torch.stack([(2 * x[:, 0]).sin(), unit * x[:, 1]], -1)
        model = SingleTaskGP(x, y, covar_module=NeuralKernelNetwork.additive(3))
        found.append(decompose(model))
    first, second = found
    assert [part.name for part in first.components] == [part.name for part in second.components]
    assert (first.improves == second.improves).all() and first.improves[:2].any(-1).all()


def test_batches_of_processes():
    x, y = data(20)
    two = torch.Size([2])
    kernel = ScaleKernel(RBFKernel(batch_shape=two), batch_shape=two) + LinearKernel(
        batch_shape=two
    )
    kernel.kernels[0].base_kernel.lengthscale = torch.tensor([0.5, 2.0]).view(2, 1, 1)
    kernel.kernels[0].outputscale = torch.tensor([0.5, 2.0])
    model = GP(x, torch.stack([y, -2 * y]), kernel, batch_shape=two)
    decomposition = check_model(model, NEW)
    check_sums(decomposition, *whole_posterior(model, NEW[:2]), NEW[:2])


def test_a_decomposition_does_not_change_with_its_model():
    model = series_model()
    decomposition = decompose(model)
    before = whole_posterior(model, NEW)
    model.covar_module.load_state_dict(
        {n: v + 1 for n, v in model.covar_module.state_dict().items()}
    )
    model.mean_module.constant.data += 1
    check_sums(decomposition, *before, NEW)


@pytest.mark.parametrize("max_terms", [3, 30])
def test_what_is_pruned_is_a_component(max_terms):
    model = series_model(kernel=small_network())
    decomposition = check_model(model, NEW, max_terms=max_terms)
    rest = [part for part in decomposition.components if part.is_rest]
    assert len(rest) == 1 and rest[0].name == "pruned terms"


@pytest.mark.parametrize("max_components", [2, 3])
def test_smaller_components_become_one(max_components):
    model = SingleTaskGP(*columns_data()[:2], covar_module=NeuralKernelNetwork.additive(3))
    decomposition = decompose(model, max_components=max_components + 1)
    names = [part.name for part in decomposition.components]
    assert len(names) == max_components + 1 and "mean function" in names
    assert any(name.endswith("smaller components") for name in names)
    check_sums(decomposition, *whole_posterior(model, columns_data()[2]), columns_data()[2])


def test_components_without_variation():
    kernel = ConstantKernel() + ScaleKernel(ConstantKernel()) + series_kernel()
    check_model(series_model(kernel=kernel), NEW)
    x, y = data(8)
    flat = decompose(GP(x, torch.ones(8), series_kernel()))
    assert np.isfinite(flat.explained).all()


# --- forecasters and records -------------------------------------------------------------------


@pytest.fixture(scope="module")
def monthly():
    time = np.arange(60)
    return 300 + 0.5 * time + 8 * np.sin(2 * np.pi * time / 12) + np.cos(1.7 * time**2)


@pytest.mark.parametrize("kind", ["numbers", "dates", "log"])
def test_forecasters(kind, monthly):
    time = np.arange(60.0) + 1000
    new = np.array([990.5, 1003.0, 1062.0, 1070.0])
    if kind == "dates":
        time = pd.date_range("1999-01-01", periods=60, freq="MS")
        new = pd.DatetimeIndex(["1998-05-05", "2001-01-01", "2004-06-01"])
    transform = "log" if kind == "log" else "identity"
    estimator = forecaster(time, monthly, transform=transform)
    decomposition = decompose(estimator)
    inputs = torch.as_tensor(estimator.standardised_time(new)).unsqueeze(-1)
    mean, covariance = whole_posterior(estimator.model_, inputs)
    scale = estimator.y_scale_
    check_sums(decomposition, estimator.y_offset_ + scale * mean, scale**2 * covariance, new)
    if kind != "log":
        np.testing.assert_allclose(
            decomposition.posterior(new).total_mean, estimator.predict(new), rtol=1e-6
        )
    start = np.abs(np.log(monthly) if kind == "log" else monthly - monthly.mean()).mean()
    assert decomposition.errors[-1] < start  # in units of the targets, or of their logarithm
    torch.set_default_dtype(torch.float32)  # the fixture restores it
    torch.testing.assert_close(
        decompose(estimator).posterior(new).mean, decomposition.posterior(new).mean,
        rtol=1e-9, atol=1e-9,
    )  # fmt: skip


# --- the components themselves -----------------------------------------------------------------


def dense_parts(model, decomposition, x):
    """Prior matrices of every component over training and new inputs, from its own kernels."""
    both = torch.cat([model.train_inputs[0], x])
    matrices = []
    for part in decomposition.components:
        matrix = torch.zeros(len(both), len(both))
        for term in part.terms:
            matrix = matrix + term.weight * term.kernel(both).to_dense().detach()
        matrices.append(matrix)
    return torch.stack(matrices)


def test_components_against_dense_formulas():
    model = series_model()
    decomposition = decompose(model)
    matrices = dense_parts(model, decomposition, NEW)
    n = 36
    noisy = matrices.sum(0)[:n, :n] + 0.05 * torch.eye(n)
    inverse = torch.linalg.inv(noisy)
    residual = model.train_targets - 0.8
    posterior = decomposition.posterior(NEW)
    for i, part in enumerate(decomposition.components):
        cross = matrices[i][n:, :n]
        mean = cross @ inverse @ residual + (0.8 if part.has_mean else 0.0)
        torch.testing.assert_close(posterior.mean[i], mean)
        covariance = matrices[i][n:, n:] - cross @ inverse @ cross.mT
        torch.testing.assert_close(posterior.variance[i], covariance.diagonal())


# --- order, errors and shares ------------------------------------------------------------------


def blocks_of(x, folds=10):
    return np.array_split(np.argsort(x.numpy().reshape(-1), kind="stable"), folds)


def held_out_parts(model, decomposition):
    """Components at every point, ``J x N``, by refits without its block (and with all data)."""
    x, y = model.train_inputs[0], model.train_targets
    n = len(x)
    matrices = dense_parts(model, decomposition, x[:0])
    mean = model.mean_module.constant.item()
    noise = model.likelihood.noise.item()

    def predict(kept, where):
        noisy = matrices.sum(0)[kept][:, kept] + noise * torch.eye(len(kept))
        weights = torch.linalg.solve(noisy, y[kept] - mean)
        level = torch.tensor([mean if part.has_mean else 0.0 for part in decomposition.components])
        return (matrices[:, where][:, :, kept] @ weights) + level[:, None]

    everything = torch.arange(n)
    held_out = torch.zeros(len(decomposition.components), n)
    for block in blocks_of(x):
        kept = torch.tensor([i for i in range(n) if i not in set(block.tolist())])
        held_out[:, block] = predict(kept, torch.as_tensor(block))
    return held_out, predict(everything, everything)


def test_order_and_numbers_against_brute_force():
    model = series_model()
    decomposition = decompose(model)
    held_out, fitted = held_out_parts(model, decomposition)
    targets = model.train_targets - model.train_targets.mean()
    level = fitted.mean(-1, keepdim=True)
    leveled = model.train_targets - level.sum(0)
    count = len(decomposition.components)
    # components are in the order found: every choice was the best one that was left
    for step in range(count):
        errors = {
            choice: float(
                (leveled - (held_out - level)[[*range(step), choice]].sum(0)).abs().mean()
            )
            for choice in range(step, count)
        }
        assert decomposition.errors[step] == pytest.approx(errors[step], rel=1e-8)
        assert errors[step] <= min(errors.values()) + 1e-12
    centered = fitted - level
    for step in range(count):
        left = (targets - centered[: step + 1].sum(0)).square().mean()
        explained = 1 - float(left / targets.square().mean())
        assert decomposition.explained[step] == pytest.approx(explained, rel=1e-8)
    whole = centered.sum(0)
    shares = (centered * whole).mean(-1) / whole.square().mean()
    np.testing.assert_allclose(decomposition.shares, shares.numpy(), rtol=1e-8, atol=1e-10)
