"""BoTorch's checks of SingleTaskGP (its test/models/test_gp_regression.py) on ours."""

from itertools import product

import pytest
import torch
from botorch.models.transforms import Normalize, Standardize

from gpytorch_nkn.models import NKNSingleTaskGP
from tests.models.small_models import moved

BOUNDS = torch.tensor([[-1.0, -1.0], [1.5, 1.5]])
KINDS = list(product([(), (2,)], [1, 2], [False, True], [False, True]))
every_kind = pytest.mark.parametrize("batch_shape, m, fixed_noise, transforms", KINDS)
pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


def random_data(batch_shape=(), m=1, n=8, d=2):
    """Inputs in the unit cube and outputs of mean zero that differ in their shape."""
    x = torch.rand(*batch_shape, n, d)
    y = torch.stack([torch.sin(5 * x[..., 0] + k) + k * x[..., -1] for k in range(m)], -1)
    return x, (y - y.mean(-2, keepdim=True)) / y.std(-2, keepdim=True)


def options_of(batch_shape, m, fixed_noise, transforms, y):
    outcome = Standardize(m, batch_shape=batch_shape) if transforms else None
    return {
        "train_Yvar": torch.full_like(y, 0.01) if fixed_noise else None,
        "outcome_transform": outcome,
        "input_transform": Normalize(2, bounds=BOUNDS) if transforms else None,
    }


def known_noise(model, m):
    """Known noise as the data have it, ``... x n x m``."""
    noise = model.likelihood.noise
    return noise.transpose(-1, -2) if m > 1 else noise.unsqueeze(-1)


@every_kind
def test_noise_comes_on_top(batch_shape, m, fixed_noise, transforms):
    x, y = random_data(batch_shape, m)
    model = moved(NKNSingleTaskGP(x, y, **options_of(batch_shape, m, fixed_noise, transforms, y)))
    at = torch.rand(3, *batch_shape, 4, 2)
    posterior, noisy = model.posterior(at), model.posterior(at, observation_noise=True)
    noise = model.likelihood.noise.mean(-1)  # BoTorch takes known noise at its mean
    noise = noise.unsqueeze(-1) if m == 1 else noise
    given = 0.1 + torch.rand(posterior.mean.shape)
    with_given = model.posterior(at, observation_noise=given)
    if transforms:
        scale = model.outcome_transform.stdvs.square()
        noise, given = noise * scale.squeeze(-2), given * scale
    expected = posterior.variance + noise.unsqueeze(-2)
    torch.testing.assert_close(noisy.variance, expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(noisy.mean, posterior.mean)
    expected = posterior.variance + given
    torch.testing.assert_close(with_given.variance, expected, rtol=1e-3, atol=1e-5)


@every_kind
def test_condition_on_observations(batch_shape, m, fixed_noise, transforms):
    x, y = random_data(batch_shape, m)
    options = options_of(batch_shape, m, fixed_noise, transforms, y)
    model = moved(NKNSingleTaskGP(x, y, **options))
    new_x, new_y = random_data((3, *batch_shape), m, n=2)
    new_y = new_y + 0.3
    noise, at = torch.full_like(new_y, 0.02), torch.rand(*batch_shape, 4, 2)
    model.posterior(at)
    for points in (new_x, new_x[0]):  # points of their own for every batch, and the same
        of_points = {"noise": noise.new_full((*points.shape[:-1], m), 0.02)}
        conditioned = model.condition_on_observations(
            points, new_y, **(of_points if fixed_noise else {})
        )
        actual = conditioned.posterior(at)
        assert actual.mean.shape == (3, *batch_shape, 4, m)
        transform = options["outcome_transform"]
        targets = model.train_targets
        old = targets.transpose(-1, -2) if m > 1 else targets.unsqueeze(-1)
        new = new_y if transform is None else transform(new_y)[0]
        known = None
        if fixed_noise:
            known = torch.cat([known_noise(model, m).expand(3, *old.shape), noise], -2)
        joined = NKNSingleTaskGP(
            torch.cat([x.expand(3, *x.shape), points.expand_as(new_x)], -2),
            torch.cat([old.expand(3, *old.shape), new], -2),
            known,
            input_transform=options["input_transform"],
            outcome_transform=None,
        )
        expected = moved(joined, batch_shape=(3,)).posterior(at)
        mean, variance = expected.mean, expected.variance
        if transform is not None:
            mean, variance = transform.untransform(mean, variance)
        torch.testing.assert_close(actual.mean, mean, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(actual.variance, variance, rtol=1e-5, atol=1e-7)
