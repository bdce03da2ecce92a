import warnings
from copy import deepcopy

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.models import SpectralGP, fit_spectral_gp
from gpytorch_nkn.models.spectral import fit_spectral
from tests.models.registry import spectral

QUICK = {"restarts": 1, "max_iterations": 10}
BRIEF = QUICK | {"max_iterations": 4}  # with the fixture that makes all else short
OFF = 1e-6


def uniform(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def normal(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def waves(x):
    """A wave across the columns, for which an RBF kernel has no lengthscales."""
    return (4 * x.sum(-1)).sin()


def drawn(x, seed=0):
    """A function drawn from an RBF kernel."""
    kernel = ScaleKernel(RBFKernel())
    kernel.base_kernel.lengthscale = 0.6
    covariance = kernel(x).to_dense().detach() + 1e-8 * torch.eye(len(x))
    return torch.linalg.cholesky(covariance) @ normal(len(x), seed=seed)


def gp(rbf, m=1, n=28, **options):
    """A model of outcomes with noise."""
    x = uniform(n, 2)
    y = torch.stack([(5 * x[:, 0] + k).sin() + k * x[:, 1] for k in range(m)], -1)
    return spectral(x, y + 0.2 * normal(n, m), rbf=rbf, **{"inducing_points": 15} | options)


@pytest.fixture
def shorter(monkeypatch):
    """Iterations enough to get to the bounds of parameters."""
    monkeypatch.setattr(fit_spectral, "_FIRST", 40)
    for name in ("_INDUCING", "_REFIT"):
        monkeypatch.setattr(fit_spectral, name, 15)


@pytest.fixture(scope="module")
def two_outputs():
    """A wave, and a draw of an RBF kernel; with pairs, and with the RBF kernel alone."""
    x = uniform(170, 4)
    y = torch.stack([waves(x), drawn(x)], -1)
    noisy = y[:70] + 0.1 * normal(70, 2, seed=5)
    model, plain = (SpectralGP(x[:70], noisy, num_features=4) for _ in range(2))
    fit_spectral_gp(model, restarts=1, max_iterations=12)
    fit_spectral_gp(plain, restarts=1, max_iterations=0)
    return model, plain, x[70:], y[70:]


def test_pairs_earn_their_place_across_columns(two_outputs):
    model, plain, x, y = two_outputs
    errors = [(m.predict(x)[0] - y)[:, 0].square().mean().sqrt() for m in (model, plain)]
    assert errors[0] < 0.75 * errors[1]
    assert model.spectral_kernel.outputscale[0] > 1e-2


def test_pairs_are_off_where_the_rbf_kernel_is_right(two_outputs):
    model, plain, x, _ = two_outputs
    assert model.spectral_kernel.outputscale[1] < OFF
    means = [one.predict(x)[0] for one in (model, plain)]
    apart = (means[0] - means[1]).square().mean(0).sqrt()
    assert apart[1] < 0.05 * means[1][:, 1].std() and apart[0] > 0.1


def test_without_steps_it_is_an_rbf_kernel_of_highest_likelihood(two_outputs):
    """Its value is that of a SingleTaskGP with the same kernel that BoTorch has trained."""
    _, plain, _, _ = two_outputs
    assert (plain.spectral_kernel.outputscale < OFF).all()
    x, y = plain.train_inputs[0][0], plain.train_targets[1]
    kernel = ScaleKernel(RBFKernel(ard_num_dims=4))
    stock = SingleTaskGP(x, y.unsqueeze(-1), covar_module=kernel, outcome_transform=None)
    mll = ExactMarginalLogLikelihood(stock.likelihood, stock)
    fit_gpytorch_mll(mll)
    stock.train()
    best = mll(stock(*stock.train_inputs), stock.train_targets).item()
    kernel.base_kernel.lengthscale = plain.rbf_kernel.base_kernel.lengthscale[1]
    kernel.outputscale = plain.rbf_kernel.outputscale[1]
    stock.likelihood.noise = plain.likelihood.noise[1]
    stock.mean_module.constant.data = plain.mean_module.constant[1].detach()
    assert mll(stock(*stock.train_inputs), stock.train_targets).item() > best - 1e-3


def test_a_long_step_does_not_end_the_training_by_botorch():
    draw = torch.Generator().manual_seed(0)
    x, noise = torch.rand(12, 2, generator=draw), torch.randn(12, 2, generator=draw)
    y = 3 * ((5 * x[:, :1]).sin() + x.prod(-1, keepdim=True)) + 0.1 * noise[:, :1]
    model = SpectralGP(x, y, num_features=4)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    start = -mll(model(*model.train_inputs), model.train_targets).item()
    assert fit_gpytorch_mll_scipy(mll, options={"maxiter": 10}).fval < start


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rbf", [True, False])
def test_two_rows_cannot_show_a_gain(rbf):
    x = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    model = SpectralGP(x, x[:, :1] - x[:, :1].mean(), rbf=rbf, num_features=4)
    assert fit_spectral_gp(model, **BRIEF).predict(x)[0].isfinite().all()


@pytest.mark.usefixtures("shorter")
@pytest.mark.parametrize(
    ("case", "rbf"),
    [
        *((case, True) for case in ("constant", "outlier", "column", "noise", "scale")),
        ("repeated", False),
    ],
)
@pytest.mark.filterwarnings("ignore:.*scaled|.*standardized", "ignore:Very small noise")
def test_odd_data(rbf, case):
    x, y, noise = uniform(18, 2), normal(18, 1), None
    if case == "constant":
        y = torch.full_like(y, 3.0)
    elif case == "repeated":
        x = x[:1].repeat(18, 1)
    elif case == "outlier":
        y[0] = 1e6
    elif case == "column":
        x[:, 1] = 0.5
    elif case == "noise":
        x, noise = x[:6].repeat(3, 1), torch.full_like(y, 1e-9)
    else:
        x, y = 1e8 * x, 1e-8 * y
    model = SpectralGP(x, y, noise, rbf=rbf, num_features=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_spectral_gp(model, **BRIEF)
        mean, variance = model.predict(x)
    assert mean.isfinite().all() and (variance >= 0).all()
    if case == "repeated":
        assert (model.predict(x + 3.0)[1] > 0.1 * y.var()).all()


@pytest.mark.usefixtures("shorter")
@pytest.mark.parametrize(("rbf", "m"), [(True, 2), ("points", 1)])
def test_training_makes_better_predictions_than_the_start(rbf, m):
    model = gp(rbf, m, 45, num_features=4 if rbf is True else 12)
    test = uniform(200, 2, seed=8)
    truth = torch.stack([(5 * test[:, 0] + k).sin() + k * test[:, 1] for k in range(m)], -1)
    fit_spectral_gp(model, **QUICK)
    mean, variance = model.predict(test)
    assert ((mean - truth).square().mean(0) < 0.2 * truth.var(0)).all()
    noise = model.likelihood.noise.view(-1) * model.outcome_transform.stdvs.view(-1).square()
    if rbf is True:
        expected = torch.full((m,), 0.2)
        torch.testing.assert_close(noise.sqrt().detach(), expected, rtol=0.35, atol=0.0)
    assert (variance > 0).all() and not model.training


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"restarts": 0}, ValueError, "restarts must be at least 1, got 0"),
        ({"max_iterations": -1}, ValueError, "max_iterations must be at least 0, got -1"),
        ({"max_iterations": 2.5}, TypeError, r"must be an integer, got 2\.5"),
    ],
)
def test_options_are_checked(options, error, message):
    model = gp(True, n=5)
    before = deepcopy(model.state_dict())
    with pytest.raises(error, match=message):
        fit_spectral_gp(model, **options)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert model.training


def test_what_it_cannot_train_is_said():
    with pytest.raises(TypeError, match="SpectralGP, got SingleTaskGP"):
        fit_spectral_gp(SingleTaskGP(uniform(5, 2), normal(5, 1)))
    for name in ("inputs", "targets"):
        model = gp(True)
        (model.train_inputs[0] if name == "inputs" else model.train_targets)[..., -1] = torch.nan
        with pytest.raises(ValueError, match="Training data must be finite"):
            fit_spectral_gp(model)
