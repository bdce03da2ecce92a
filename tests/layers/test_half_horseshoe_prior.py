import copy
import math
import pickle

import pytest
import torch
from gpytorch.priors import HorseshoePrior
from scipy.integrate import quad

from gpytorch_nkn.layers import HalfHorseshoePrior


@pytest.mark.parametrize("scale", [0.02, 1.0, torch.tensor([0.1, 3.0])])
def test_density_is_that_of_gpytorch_folded_at_zero(scale):
    values = torch.logspace(-6, 3, 10).unsqueeze(-1)
    expected = HorseshoePrior(scale).log_prob(values) + math.log(2)
    torch.testing.assert_close(HalfHorseshoePrior(scale).log_prob(values), expected)


def test_density_lies_between_the_bounds_of_the_folded_horseshoe():
    """The integral over the local scale, done by SciPy."""

    def integrand(local, w):
        normal = math.exp(-0.5 * (w / local) ** 2) / (math.sqrt(2 * math.pi) * local)
        return 2 * normal * 2 / (math.pi * (1 + local**2))

    prior = HalfHorseshoePrior(1.0)
    for w in (0.05, 0.3, 1.0, 4.0):
        exact = quad(integrand, 0, math.inf, args=(w,), limit=200)[0]
        k = 2 / math.sqrt(2 * math.pi**3)
        assert k / 2 * math.log(1 + 4 / w**2) < exact < k * math.log(1 + 2 / w**2)
        assert prior.log_prob(torch.tensor(w)).exp().item() == pytest.approx(exact, rel=0.2)


def test_density_is_finite_and_has_a_gradient_down_to_the_smallest_number():
    values = torch.tensor([torch.finfo(torch.float64).tiny, 1e-200, 1e100], requires_grad=True)
    density = HalfHorseshoePrior(0.1).log_prob(values)
    (gradient,) = torch.autograd.grad(density[1:].sum(), values)
    assert density.isfinite().all() and gradient.isfinite().all()
    assert (density.diff() < 0).all()


def test_samples_are_not_negative_and_each_has_a_scale_of_its_own():
    draws = HalfHorseshoePrior(0.5).sample(torch.Size([10_000]))
    assert draws.shape == (10_000,) and (draws >= 0).all()
    assert draws.pow(4).mean() / draws.square().mean() ** 2 > 100  # the variance is infinite


def test_shapes_copies_and_state():
    prior = HalfHorseshoePrior(torch.tensor([0.1, 2.0]))
    assert prior.batch_shape == (2,) and prior.sample(torch.Size([3])).shape == (3, 2)
    assert prior.expand([4, 2]).sample().shape == (4, 2)
    x = torch.tensor([0.3, 0.4])
    for other in (pickle.loads(pickle.dumps(prior)), copy.deepcopy(prior)):
        torch.testing.assert_close(other.log_prob(x), prior.log_prob(x))
    loaded = HalfHorseshoePrior(torch.ones(2))
    loaded.load_state_dict(prior.state_dict())
    torch.testing.assert_close(loaded.log_prob(x), prior.log_prob(x))
    assert prior.float().log_prob(x.float()).dtype == torch.float32


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf])
def test_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match=f"scale must be positive and finite, got {scale}"):
        HalfHorseshoePrior(scale)
