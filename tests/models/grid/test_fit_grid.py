import copy
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.linalg import GridLikelihood
from gpytorch_nkn.models import KroneckerGridGP, fit_grid_gp
from gpytorch_nkn.models.grid.grid_blocks import hole_blocks
from tests.models.grid.small_grids import all_points, dense

SHORT = {"likelihood_steps": 6, "block_steps": 4, "blocks": 3}


def texture(size=32, noise=0.1, seed=0):
    """A quasi-periodic image with a square missing in the middle; and the whole image."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.arange(float(size))
    rows = torch.sin(2 * math.pi * x / 7.3) + 0.4 * torch.sin(4 * math.pi * x / 7.3 + 1)
    columns = torch.cos(2 * math.pi * x / 5.1) * (1 + 0.01 * x)
    clean = 40 * torch.outer(rows, columns) + 100
    image = clean + 40 * noise * torch.randn(size, size, generator=generator)
    low, high = 3 * size // 8, 5 * size // 8
    image[low:high, low:high] = math.nan
    return image, clean


def small(size=12, kernels=None, **options):
    image, _ = texture(size)
    x = torch.arange(float(size))
    kernels = kernels or [ScaleKernel(PeriodicKernel()), RBFKernel()]
    return KroneckerGridGP([x, x], image, kernels, **options)


def smse(model, clean):
    hole = model.missing
    error = (model.grid_mean() - clean)[hole].square().mean()
    return (error / clean[hole].var()).item()


def block_error(model, image, blocks):
    seen = ~model.missing
    scaled = (image - image[seen].mean()) / image[seen].std()
    pairs = zip(blocks, model.block_means(blocks), strict=True)
    errors = [(mean - scaled)[block & seen].square().mean() for block, mean in pairs]
    return torch.stack(errors).mean().item()


def test_a_texture_is_continued_where_an_rbf_kernel_fails():
    image, clean = texture()
    x = torch.arange(32.0) / 10  # any unit will do
    errors = {}
    for name in ("network", "rbf"):
        if name == "network":
            kernels = [NeuralKernelNetwork.texture() for _ in range(2)]
        else:
            kernels = [ScaleKernel(RBFKernel()), RBFKernel()]
        model = KroneckerGridGP([x, x], image, kernels)
        fit = fit_grid_gp(model, likelihood_steps=20, block_steps=5, blocks=3)
        assert fit.model is model and not model.training
        errors[name] = smse(model, clean)
        mean, variance = model.predict(observation_noise=True)
        deviation = (mean - clean[model.missing]) / variance.sqrt()
        assert deviation.abs().mean() < 3  # the uncertainty knows of the errors
    assert errors["network"] < 0.2 and errors["network"] < 0.4 * errors["rbf"]
    assert errors["rbf"] < 1.5


def test_training_lowers_the_block_error_and_keeps_the_best():
    model, image = small(16), texture(16)[0]
    blocks = torch.from_numpy(hole_blocks(model.missing.numpy(), 5))
    before = block_error(model, image, blocks)
    fit = fit_grid_gp(model, blocks=3, likelihood_steps=20, block_steps=12)
    after = block_error(model, image, blocks)
    assert after < 0.5 * before
    assert fit.restarts[0].block_error == pytest.approx(after, rel=0.05)


def test_the_start_with_the_smallest_block_error_wins():
    model = small()
    fit = fit_grid_gp(model, restarts=3, likelihood_steps=8, block_steps=0)
    errors = [record.block_error for record in fit.restarts]
    assert len(set(errors)) > 1 and fit.best == errors.index(min(errors))
    alone = small()
    only = fit_grid_gp(alone, likelihood_steps=8, block_steps=0)
    assert only.restarts[0].block_error == errors[0]
    assert str(fit).splitlines()[1 + fit.best].split()[0] == f"{fit.best}*"
    assert [record.status for record in fit.restarts] == ["ok"] * 3


def test_without_blocks_the_likelihood_decides_and_is_what_is_reported():
    def make():
        return small(likelihood=GaussianLikelihood())

    model = make()
    expected = model.log_marginal_likelihood().item() / model.grid.num_observed.item()
    fit = fit_grid_gp(model, start=None, likelihood_steps=1, block_steps=0, blocks=0)
    assert fit.restarts[0].likelihood == pytest.approx(expected, rel=1e-2)
    assert math.isnan(fit.restarts[0].block_error)
    fit = fit_grid_gp(make(), restarts=3, likelihood_steps=5, blocks=0)
    values = [record.likelihood for record in fit.restarts]
    assert len(set(values)) > 1 and fit.best == values.index(max(values))


# --- what goes wrong ---


def raise_at(monkeypatch, cls, call, error):
    """Let a loss raise an error at one of its calls."""
    count, original = [0], cls.__call__

    def wrapped(self, *args, **kwargs):
        count[0] += 1
        if count[0] == call or (call is None):
            raise error
        return original(self, *args, **kwargs)

    monkeypatch.setattr(cls, "__call__", wrapped)


def test_a_warning_of_failed_solves_is_always_the_same():
    kernels = [RBFKernel(), RBFKernel()]
    for kernel in kernels:
        kernel.lengthscale = 6.0
    model = small(16, kernels=kernels, max_iterations=1)
    model.likelihood.noise = 1e-5
    with pytest.warns(NumericalWarning) as caught:
        fit_grid_gp(model, start=None, likelihood_steps=4, block_steps=0, blocks=0)
    messages = [str(w.message) for w in caught if w.category is NumericalWarning]
    assert len(set(messages)) == 1 and "the relative residual of a solve is above" in messages[0]


def test_a_start_may_fail_but_not_every_one(monkeypatch):
    model = small()
    raise_at(monkeypatch, GridLikelihood, 1, RuntimeError("no luck"))
    fit = fit_grid_gp(model, restarts=2, **SHORT)
    assert [r.status for r in fit.restarts] == ["failed: no luck", "ok"] and fit.best == 1
    raise_at(monkeypatch, GridLikelihood, None, RuntimeError("no luck"))
    with pytest.raises(RuntimeError, match="Every start failed: failed: no luck"):
        fit_grid_gp(model.train(), restarts=2, **SHORT)
    assert not model.training


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"start": "random"}, ValueError, "start must be 'spectrum' or None, got 'random'"),
        ({"restarts": 0}, ValueError, "restarts must be at least 1, got 0"),
        ({"likelihood_steps": -1}, ValueError, "likelihood_steps must be at least 0, got -1"),
        ({"block_steps": -2}, ValueError, "block_steps must be at least 0, got -2"),
        ({"blocks": -1}, ValueError, "blocks must be at least 0, got -1"),
    ],
)
def test_bad_options_are_rejected(options, error, match):
    model = small()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=match):
        fit_grid_gp(model, **options)
    torch.testing.assert_close(model.state_dict(), before, equal_nan=True)


# --- variances ---


def block_ratio(model, image, blocks):
    """Squared errors of held-out blocks over predicted variances, by dense matrices."""
    missing, points = model.missing, all_points(model.coordinates)
    errors = variances = 0.0
    for block in blocks:
        mean, covariance = dense(model, image, missing | block, points)
        cells = (block & ~missing).flatten()
        noise = model.likelihood.noise * model.outcome_transform.stdvs.squeeze() ** 2
        errors += (mean - image.flatten())[cells].square().sum().item()
        variances += (covariance.diagonal() + noise)[cells].sum().item()
    return errors / variances


@pytest.mark.parametrize(
    ("factor", "twice"), [(1.0, False), (25.0, True)], ids=["two kernels", "one kernel twice"]
)
def test_calibration_scales_all_variances_to_the_errors_of_blocks(factor, twice):
    shared = ScaleKernel(RBFKernel())
    kernels = [shared, shared] if twice else [ScaleKernel(RBFKernel()), RBFKernel()]
    for kernel in kernels:
        getattr(kernel, "base_kernel", kernel).lengthscale = 1.5
    model = small(kernels=kernels)
    kernels[0].outputscale = factor ** (0.5 if twice else 1.0)
    model.likelihood.noise = 0.1 * factor
    mean, variance = model.eval().predict(observation_noise=True)
    blocks = torch.from_numpy(hole_blocks(model.missing.numpy(), 5))
    image = texture(12)[0].nan_to_num()
    before = block_ratio(copy.deepcopy(model), image, blocks)
    fit = fit_grid_gp(model, start=None, likelihood_steps=0, block_steps=0, blocks=3)
    found, scaled = model.predict(observation_noise=True)
    torch.testing.assert_close(found, mean, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(scaled, fit.scale * variance, rtol=1e-4, atol=1e-4)
    assert fit.scale == pytest.approx(before, rel=0.35)  # two random vectors per block
    assert block_ratio(model, image, blocks) == pytest.approx(1.0, rel=0.35)


def test_calibration_of_a_batch_with_kernels_of_its_own():
    image, _ = texture(12)
    images = torch.stack([image, image.mT.contiguous() * 2])
    x, batch = torch.arange(12.0), torch.Size([2])
    kernels = [
        ScaleKernel(RBFKernel(batch_shape=batch), batch_shape=batch),
        RBFKernel(batch_shape=batch),
    ]
    for kernel in (kernels[0].base_kernel, kernels[1]):
        kernel.lengthscale = 1.5
    model = KroneckerGridGP([x, x], images, kernels)
    kernels[0].outputscale = torch.tensor([1.0, 30.0])
    model.likelihood.noise = torch.tensor([[0.1], [3.0]])
    _, before = model.eval().predict(observation_noise=True)
    fit = fit_grid_gp(model, start=None, likelihood_steps=0, block_steps=0, blocks=4)
    _, after = model.predict(observation_noise=True)
    ratio = after / before
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-4, atol=1e-6)
    assert ratio[0, 0] / ratio[1, 0] == pytest.approx(30.0, rel=0.6)
    assert fit.scale == pytest.approx(ratio[:, 0].mean().item(), rel=1e-3)


# --- other grids ---


@pytest.mark.parametrize(
    "own, same_holes", [(True, False), (False, True)], ids=["own kernels", "shared kernels"]
)
def test_a_batch_of_grids(own, same_holes):
    image, clean = texture(16)
    images, cleans = torch.stack([image, 3 * image]), torch.stack([clean, 3 * clean])
    if not same_holes:
        images[1] = 3 * clean
        images[1, 2:6, 7:11] = math.nan
    batch = torch.Size([2] if own else [])
    kernels = [
        ScaleKernel(PeriodicKernel(batch_shape=batch), batch_shape=batch),
        PeriodicKernel(batch_shape=batch),
    ]
    x = torch.arange(16.0)
    model = KroneckerGridGP([x, x], images, kernels)
    fit = fit_grid_gp(model, likelihood_steps=15, block_steps=2, blocks=2)
    assert fit.restarts[0].status == "ok"
    for number in range(2):
        hole = model.missing[number]
        error = (model.grid_mean() - cleans)[number][hole].square().mean()
        assert error / cleans[number][hole].var() < 0.3


def test_scattered_cells_and_a_forecast():
    image, clean = texture(16)
    x = torch.arange(16.0)
    scattered = torch.rand(16, 16, generator=torch.Generator().manual_seed(9)) < 0.3
    future = torch.zeros(16, 16, dtype=torch.bool)
    future[12:] = True
    for missing in (scattered, future):
        kernels = [ScaleKernel(PeriodicKernel()), MaternKernel(nu=2.5)]
        model = KroneckerGridGP([x, x], clean.masked_fill(missing, math.nan), kernels)
        fit = fit_grid_gp(model, likelihood_steps=24, block_steps=3, blocks=3)
        assert math.isfinite(fit.restarts[0].block_error)
        assert smse(model, clean) < 0.5
