import math

import pytest
import torch
from botorch.models.transforms import Log, Standardize
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

import gpytorch_nkn.models.grid.grid_posterior as grid_posterior
from gpytorch_nkn.linalg import HeldOutBlocks
from gpytorch_nkn.models import KroneckerGridGP
from tests.models.grid.small_grids import (
    all_points,
    dense,
    grid_data,
    holed,
    make,
    move,
    some_kernels,
)

GRIDS = [
    ((8, 9), 0.2, ()),
    ((8, 9), 0.75, ()),
    ((6, 7), 0.0, ()),
    ((5, 4, 6), 0.3, ()),
    ((5, 6), 0.7, (2,)),
    ((4, 3, 4), 0.3, (2, 2)),
]
CLOSE = {"rtol": 1e-6, "atol": 1e-7}


def diagonal(matrix):
    return matrix.diagonal(dim1=-2, dim2=-1)


@pytest.fixture(params=["dense", "iterative"])
def solver(request, monkeypatch):
    if request.param == "iterative":
        monkeypatch.setattr(grid_posterior, "_DENSE_CELLS", 0)


def everywhere(model, **options):
    whole = torch.ones([len(x) for x in model.coordinates], dtype=torch.bool)
    return model.predict(whole, **options)


@pytest.mark.parametrize(
    "shape, share, batch, own", [*((*grid, True) for grid in GRIDS), (*GRIDS[-1], False)]
)
@pytest.mark.usefixtures("solver")
def test_mean_and_variance_at_cells_equal_the_dense_ones(shape, share, batch, own):
    model, values, missing = make(
        shape, share, batch, some_kernels(len(shape), batch if own else ())
    )
    mean, covariance = dense(model, values, missing, all_points(model.coordinates))
    torch.testing.assert_close(model.grid_mean(), mean.view(values.shape), **CLOSE)
    found, variance = everywhere(model)
    torch.testing.assert_close(found, mean, **CLOSE)
    torch.testing.assert_close(variance, diagonal(covariance), **CLOSE)
    cells = missing.reshape(-1, *shape).any(0)
    torch.testing.assert_close(model.missing, missing)
    found, variance = model.predict()
    torch.testing.assert_close(found, mean[..., cells.flatten()], **CLOSE)
    torch.testing.assert_close(variance, diagonal(covariance)[..., cells.flatten()], **CLOSE)
    noise = model.likelihood.noise.expand(*batch, 1)
    scale = model.outcome_transform.stdvs.squeeze(-1) ** 2
    found, noisy = model.predict(observation_noise=True)
    torch.testing.assert_close(noisy, variance + noise * scale, **CLOSE)


@pytest.mark.parametrize(
    "shape, share, batch, noisy", [(*GRIDS[0], 0.2), (*GRIDS[2], 1.0), (*GRIDS[-1], 0.9)]
)
@pytest.mark.usefixtures("solver")
def test_known_noise_of_cells(shape, share, batch, noisy):
    values = grid_data(shape, share, batch)[1]
    known = 9 * torch.rand(values.shape) * (torch.rand(shape) < noisy)
    model, values, missing = make(shape, share, batch, train_Yvar=known.where(known > 0, 0.0))
    cells = all_points(model.coordinates)
    mean, covariance = dense(model, values, missing, cells, known=known)
    found, variance = everywhere(model)
    torch.testing.assert_close(found, mean, **CLOSE)
    torch.testing.assert_close(variance, diagonal(covariance), **CLOSE)
    scale = model.outcome_transform.stdvs.squeeze(-1) ** 2
    usual = (known / scale[(..., *[None] * (len(shape) - 1))])[~missing].mean()
    noise = (model.likelihood.noise.expand(*batch, 1) + usual) * scale
    noisy_variance = everywhere(model, observation_noise=True)[1]
    torch.testing.assert_close(noisy_variance, variance + noise, rtol=1e-5, atol=1e-5)
    few = cells[:3].expand(*batch, 3, cells.size(-1))
    plain, added = (model.posterior(few, observation_noise=on).variance for on in (False, True))
    torch.testing.assert_close((added - plain)[..., 0], noise.expand(*batch, 3))
    if not batch:
        block = torch.rand(1, *shape) < 0.2
        (found,) = model.block_means(block)
        own = float(model.outcome_transform.means), float(scale.sqrt())
        mean = dense(model, values, missing | block[0], cells, own, known)[0]
        torch.testing.assert_close(own[0] + own[1] * found.flatten(), mean, **CLOSE)
    same = make(shape, share, batch, train_Yvar=0.0)[0]
    same.load_state_dict(model.state_dict())
    plain = dense(model, values, missing, cells)[0]
    torch.testing.assert_close(everywhere(same)[0], plain, **CLOSE)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_gradients_with_known_noise_of_cells(share):
    model, values, _ = make((6, 7), share, train_Yvar=9 * torch.rand(6, 7))
    parameters = [model.likelihood.noise_covar.raw_noise, model.kernels[1].raw_lengthscale]
    cells = torch.zeros(1, 6, 7, dtype=torch.bool)
    cells[0, 2:4, 3:5] = True
    blocks = HeldOutBlocks(model.grid, cells, tolerance=1e-10, max_iterations=500)
    for loss in (model.log_marginal_likelihood, lambda: blocks(*model.loss_inputs()).sum()):
        for own, got in zip(parameters, torch.autograd.grad(loss(), parameters), strict=True):
            with torch.no_grad():
                ends = []
                for step in (1e-4, -2e-4, 1e-4):
                    own += step
                    ends.append(float(loss()))
            assert got.sum().item() == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4)
    for wrong in (-torch.ones(6, 7), True):
        with pytest.raises((ValueError, TypeError), match="train_Yvar must be"):
            make((6, 7), share, train_Yvar=wrong)


@pytest.mark.parametrize("other", ["complete", "rows gone", "mostly gone"])
@pytest.mark.usefixtures("solver")
def test_grids_of_a_batch_that_lack_very_different_cells(other):
    coordinates, values, _ = grid_data((6, 7), 0.0, (3,))
    missing = torch.zeros(3, 6, 7, dtype=torch.bool)
    missing[0, 1, 2] = missing[0, 4, 5] = missing[2, 0, 0] = True
    if other == "rows gone":
        missing[1, 3:] = True
    elif other == "mostly gone":
        missing[1, :, 1:] = missing[1, :4] = True
    model = KroneckerGridGP(
        coordinates, holed(values, missing), some_kernels(2, (3,)), tolerance=1e-11
    )
    move(model)
    mean, covariance = dense(model.eval(), values, missing, all_points(coordinates))
    found, variance = everywhere(model)
    torch.testing.assert_close(found, mean, **CLOSE)
    torch.testing.assert_close(variance, diagonal(covariance), **CLOSE)
    cells = missing.any(0)
    found, variance = model.predict()
    torch.testing.assert_close(variance, diagonal(covariance)[:, cells.flatten()], **CLOSE)
    points = torch.rand(3, 2)
    posterior = model.posterior(points).distribution
    mean, covariance = dense(model, values, missing, points)
    torch.testing.assert_close(posterior.covariance_matrix, covariance, **CLOSE)
    samples = model.sample(2)
    assert samples.shape == (2, 3, 6, 7) and samples.isfinite().all()
    assert model.log_marginal_likelihood().shape == (3,)


@pytest.mark.parametrize("shape, share, batch", GRIDS)
@pytest.mark.usefixtures("solver")
def test_posterior_off_the_grid_and_its_gradient_equal_the_dense_ones(shape, share, batch):
    model, values, missing = make(shape, share, batch)
    points = torch.rand(4, len(shape), requires_grad=True)
    posterior = model.posterior(points)
    mean, covariance = dense(model, values, missing, points)
    torch.testing.assert_close(posterior.mean, mean.unsqueeze(-1), **CLOSE)
    torch.testing.assert_close(posterior.variance[..., 0], diagonal(covariance), **CLOSE)
    torch.testing.assert_close(posterior.distribution.covariance_matrix, covariance, **CLOSE)
    weights = torch.randn(covariance.shape)
    ours = (posterior.distribution.covariance_matrix * weights).sum() + posterior.mean.sum()
    theirs = (covariance * weights).sum() + mean.sum()
    gradients = [torch.autograd.grad(loss, points)[0] for loss in (ours, theirs)]
    assert gradients[1].abs().max() > 0.1
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
    noisy = model.posterior(points, observation_noise=True).variance[..., 0]
    extra = model.likelihood.noise * model.outcome_transform.stdvs.squeeze(-1) ** 2
    torch.testing.assert_close(noisy, posterior.variance[..., 0] + extra, **CLOSE)


@pytest.mark.parametrize(
    "shape, share, batch", [((5, 6), 0.75, ()), ((5, 6), 0.0, ()), ((3, 4), 0.25, (2,))]
)
def test_samples_have_the_mean_and_covariance_of_the_posterior(shape, share, batch):
    model, values, missing = make(shape, share, batch)
    model.tolerance = 1e-4
    size = 80
    model.train().eval()
    samples = model.sample(size, seed=1)
    assert samples.shape == (size, *batch, *shape)
    flat = samples.flatten(-len(shape))  # S x ... x N
    mean, covariance = dense(model, values, missing, all_points(model.coordinates))
    scale = (model.likelihood.noise.sqrt() * model.outcome_transform.stdvs.squeeze(-1)).flatten()
    noise = model.sample(size, observation_noise=True, seed=1) - samples
    noise = noise / scale.view(*batch, *[1] * len(shape))
    assert noise.std().item() == pytest.approx(1, rel=0.1)
    error = (diagonal(covariance) / size).sqrt()
    assert ((flat.mean(0) - mean).abs() < 5 * error + 1e-3).all()
    deviation = flat - mean
    found = torch.einsum("s...i,s...j->...ij", deviation, deviation) / size
    variance = diagonal(covariance)
    spread = (variance.unsqueeze(-1) * variance.unsqueeze(-2) + covariance**2) / size
    assert ((found - covariance).abs() < 6 * spread.sqrt() + 1e-3).all()


def test_factors_of_several_columns():
    stations = torch.rand(7, 2)
    time = torch.rand(6).sort().values
    values, missing = torch.randn(7, 6), torch.rand(7, 6) < 0.3
    kernels = [RBFKernel(ard_num_dims=2), MaternKernel(nu=2.5)]
    kernels[0].lengthscale = torch.tensor([[0.3, 0.8]])
    model = KroneckerGridGP([stations, time], holed(values, missing), kernels, tolerance=1e-11)
    move(model)
    model.eval()
    points = torch.rand(5, 3)
    mean, covariance = dense(model, values, missing, points)
    posterior = model.posterior(points)
    torch.testing.assert_close(posterior.mean[:, 0], mean, **CLOSE)
    torch.testing.assert_close(posterior.distribution.covariance_matrix, covariance, **CLOSE)


@pytest.mark.parametrize("steps", ["regular", "irregular", "descending", "repeated", "integers"])
def test_steps_of_the_coordinates(steps):
    x = torch.arange(8.0) / 3
    if steps == "irregular":
        x = x**2
    elif steps == "descending":
        x = x.flip(0)
    elif steps == "repeated":
        x[3] = x[4]
    elif steps == "integers":
        x = torch.arange(8)
    _, values, missing = grid_data((8, 8), 0.3)
    kernels = [PeriodicKernel() * RBFKernel(), LinearKernel() + MaternKernel()]
    model = KroneckerGridGP([x, x], holed(values, missing), kernels, tolerance=1e-11)
    move(model)
    mean, covariance = dense(model, values, missing, all_points([x, x]).double())
    found, variance = everywhere(model.eval())
    torch.testing.assert_close(found, mean, **CLOSE)
    torch.testing.assert_close(variance, diagonal(covariance), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("transform", "batch"), [("none", ()), ("log", (2,)), ("standardize", (2,))]
)
def test_outcome_transforms(transform, batch):
    coordinates, values, missing = grid_data((6, 7), 0.3, batch, shared_mask=True)
    values = (values / 4).exp()
    chosen = {
        "none": None,
        "log": Log(),
        "standardize": Standardize(m=1, batch_shape=torch.Size(batch)),
    }[transform]
    model = KroneckerGridGP(
        coordinates,
        holed(values, missing),
        some_kernels(2),
        outcome_transform=chosen,
        tolerance=1e-11,
    )
    move(model)
    model.eval()
    inner = values.log() if transform == "log" else values
    plain = transform != "standardize"
    mean, covariance = dense(model, inner, missing, all_points(coordinates), not plain)
    variance = diagonal(covariance)
    middle = mean
    if transform == "log":  # moments of a log-normal variable
        mean, variance = (mean + variance / 2).exp(), variance.expm1() * (2 * mean + variance).exp()
        middle = middle.exp()
    found, spread = everywhere(model)
    torch.testing.assert_close(found, mean, **CLOSE)
    torch.testing.assert_close(spread, variance, **CLOSE)
    torch.testing.assert_close(model.grid_mean().flatten(-2), middle, **CLOSE)
    posterior = model.posterior(all_points(coordinates)[:5])
    torch.testing.assert_close(posterior.mean[..., 0], mean[..., :5], **CLOSE)
    torch.testing.assert_close(posterior.variance[..., 0], variance[..., :5], **CLOSE)
    model.tolerance = 1e-4
    samples = model.sample(40).flatten(-2)
    assert (samples > 0).all() or transform != "log"
    error = (variance / 40).sqrt()
    assert ((samples.mean(0) - mean).abs() < 6 * error).all()


@pytest.mark.filterwarnings("error::linear_operator.utils.warnings.NumericalWarning")
@pytest.mark.parametrize("unit", [0.1, 1e-7])
def test_predictions_of_cells_have_the_unit_of_the_targets(unit):
    coordinates, values, missing = grid_data((6, 7), 0.3)
    plain, other = (
        KroneckerGridGP(coordinates, holed(scale * values, missing), some_kernels(2)).eval()
        for scale in (1.0, unit)
    )
    pairs = zip(everywhere(other), everywhere(plain), (unit, unit**2), strict=True)
    for found, expected, scale in pairs:
        torch.testing.assert_close(found / scale, expected)
    torch.testing.assert_close(other.grid_mean() / unit, plain.grid_mean())


def test_slices_without_an_observed_cell_are_predicted():
    coordinates, values, _ = grid_data((7, 6), 0.0)
    missing = torch.rand(7, 6) < 0.2
    missing[5:] = missing[2] = missing[:, 3] = True
    model = KroneckerGridGP(coordinates, holed(values, missing), some_kernels(2), tolerance=1e-11)
    move(model)
    model.eval()
    assert [len(x) for x in model.train_coordinates] == [4, 5]
    torch.testing.assert_close(model.missing, missing)
    mean, covariance = dense(model, values, missing, all_points(coordinates))
    found, variance = model.predict()
    torch.testing.assert_close(found, mean[missing.flatten()], **CLOSE)
    torch.testing.assert_close(variance, diagonal(covariance)[missing.flatten()], **CLOSE)
    found, variance = everywhere(model)
    torch.testing.assert_close(variance, diagonal(covariance), **CLOSE)
    torch.testing.assert_close(model.grid_mean().flatten(), mean, **CLOSE)
    model.tolerance = 1e-4
    samples = model.sample(150).flatten(1)
    variance = samples[:, missing.flatten()].var(0)
    expected = diagonal(covariance)[missing.flatten()]
    assert ((variance / expected - 1).abs() < 6 * math.sqrt(2 / 150)).all()


@pytest.mark.parametrize("used", [False, True])
def test_the_state_of_a_model_of_other_values_brings_its_scale_along(used):
    source, values, missing = make((6, 7), 0.3, seed=1)
    shift, scale = values[~missing].mean(), values[~missing].std()
    model, values, missing = make((6, 7), 0.2, seed=2)
    values = 10 * values - 4
    model = KroneckerGridGP(
        model.coordinates, holed(values, missing), some_kernels(2), tolerance=1e-11
    )
    if used:
        move(model)
        everywhere(model.eval())
    model.load_state_dict(source.state_dict())
    model.eval()
    points = all_points(model.coordinates)
    mean, covariance = dense(model, values, missing, points, standardize=(shift, scale))
    found, variance = everywhere(model)
    torch.testing.assert_close(found, mean, **CLOSE)
    torch.testing.assert_close(variance, diagonal(covariance), **CLOSE)


CHANGES = {
    "setter": lambda m: setattr(m.kernels[1], "lengthscale", 0.05),
    "data": lambda m: m.kernels[1].raw_lengthscale.data.fill_(-2.0),
    "in place": lambda m: m.mean_module.raw_constant.detach().fill_(1.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_parameter_changes_predictions_in_eval_mode(change):
    model, values, missing = make((6, 7), 0.3)
    before = everywhere(model)
    CHANGES[change](model)
    assert not model.training
    mean, covariance = dense(model, values, missing, all_points(model.coordinates))
    assert not torch.allclose(mean, before[0], rtol=1e-3)
    found, variance = everywhere(model)
    torch.testing.assert_close(found, mean, **CLOSE)
    torch.testing.assert_close(variance, diagonal(covariance), **CLOSE)


@pytest.mark.parametrize(("batch", "own"), [((), False), ((2,), True), ((2,), False)])
def test_the_marginal_likelihood_and_its_gradients_equal_the_dense_prior(batch, own):
    """In training the model is its prior, whose density GPyTorch knows."""
    model, values, missing = make(
        (5, 4), 0.0, batch, some_kernels(2, batch if own else ()), outcome_transform=None
    )
    model.train()
    model.zero_grad()
    value = model.log_marginal_likelihood()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    prior = mll.likelihood(model(all_points(model.coordinates)))
    expected = prior.log_prob(values.flatten(-2))
    torch.testing.assert_close(value, expected)
    parameters = list(model.parameters())
    found = torch.autograd.grad(value.sum(), parameters)
    torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), parameters), **CLOSE)
