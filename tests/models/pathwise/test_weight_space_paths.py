import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NotPSDError

from gpytorch_nkn.kernels import NonStationarySpectralKernel
from gpytorch_nkn.models import draw_weight_space_paths

DRAWS = 20_000


def data(outputs=1, rows=40):
    x = 5 * torch.rand(rows, 2, generator=torch.Generator().manual_seed(0)) + 1
    y = torch.stack([x.sum(-1).sin(), 30 * x[:, 0]], -1)[:, :outputs]
    return x, y + 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))


def gp(outputs=1, *, scaled=False, fixed_noise=False, **options):
    x, y = data(outputs)
    noise = 0.01 + 0.1 * x[:, :1] if fixed_noise else None
    batch_shape = torch.Size([outputs] if outputs > 1 else [])
    kernel = NonStationarySpectralKernel(9, 2, correlation=0.4, batch_shape=batch_shape, **options)
    for number, parameter in enumerate(kernel.parameters()):
        generator = torch.Generator().manual_seed(number)
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    kernel = ScaleKernel(kernel, batch_shape=batch_shape) if scaled else kernel
    return SingleTaskGP(x, y, noise, covar_module=kernel, input_transform=Normalize(2))


@pytest.mark.parametrize(
    ("outputs", "options"),
    [
        (1, {}),
        (2, {}),
        (1, {"scaled": True}),
        (1, {"features": "phi"}),
        (2, {"scaled": True, "features": "phi"}),
        (1, {"fixed_noise": True}),
    ],
    ids=["one", "outputs", "scaled", "phi", "scaled outputs of phi", "fixed noise"],
)
def test_draws_have_the_moments_of_the_posterior(outputs, options):
    model = gp(outputs, **options)
    model.train()
    test = 5 * torch.rand(6, 2) + 1
    draws = draw_weight_space_paths(model, torch.Size([DRAWS]), seed=0)(test).detach()
    assert model.training
    assert draws.shape == (DRAWS, outputs, 6) if outputs > 1 else (DRAWS, 6)
    draws = draws.reshape(DRAWS, outputs, 6)
    posterior = model.eval().posterior(test)
    mean, variance = (t.detach().mT for t in (posterior.mean, posterior.variance))
    error = variance.sqrt() / DRAWS**0.5
    assert ((draws.mean(0) - mean).abs() < 5 * error).all()
    torch.testing.assert_close(draws.var(0), variance, rtol=0.06, atol=0.0)
    distribution = model(model.transform_inputs(test.expand(*model._aug_batch_shape, 6, 2)))
    correlation = torch.corrcoef(draws[:, 0].T)
    covariance = distribution.covariance_matrix.reshape(outputs, 6, 6)[0].detach()
    scale = covariance.diagonal().sqrt()
    torch.testing.assert_close(
        correlation, covariance / scale / scale.unsqueeze(-1), rtol=0.0, atol=0.04
    )


def test_shapes_seeds_and_random_state():
    model = gp(2)
    x = torch.rand(4, 3, 2)
    before = torch.get_rng_state()
    path, same = (draw_weight_space_paths(model, torch.Size([5, 1]), seed=7) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert path(x.unsqueeze(-3)).shape == (5, 4, 2, 3)
    # the order of the features is random, what they add up to is not
    other = draw_weight_space_paths(model, torch.Size([5, 1]), seed=8)
    assert path(x[0]).shape == same(x[0]).shape == (5, 1, 2, 3)
    assert not torch.allclose(path(x[0]), other(x[0]))
    torch.manual_seed(0)
    unseeded = draw_weight_space_paths(model, torch.Size([1]))
    torch.manual_seed(0)
    torch.testing.assert_close(
        draw_weight_space_paths(model, torch.Size([1]))(x[0]), unseeded(x[0])
    )


def test_a_path_keeps_the_parameters_that_it_was_drawn_with():
    model = gp()
    x = torch.rand(5, 2)
    path = draw_weight_space_paths(model, torch.Size([3]), seed=0)
    before = path(x)
    model.covar_module.mean_frequencies.data += 1.0
    torch.testing.assert_close(path(x), before)


def test_many_rows():
    x = torch.rand(30_000, 1)
    model = SingleTaskGP(x, (6 * x).sin(), covar_module=NonStationarySpectralKernel(20, 1))
    path = draw_weight_space_paths(model, torch.Size([4]), seed=0)
    assert (path(x[:50]) - (6 * x[:50, 0]).sin()).abs().max() < 0.15


def test_errors():
    x, y = data()
    with pytest.raises(TypeError, match="finitely many features.*got RBFKernel"):
        draw_weight_space_paths(SingleTaskGP(x, y, covar_module=RBFKernel()), torch.Size([1]))
    with pytest.raises(TypeError, match="exact GP of BoTorch"):
        draw_weight_space_paths(ExactGP(x, y, gp().likelihood), torch.Size([1]))
    model = gp()
    model.covar_module.mean_frequencies.data[:] = torch.nan
    with pytest.raises(NotPSDError, match="not finite"):
        draw_weight_space_paths(model, torch.Size([1]))
