import pytest
import torch
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_nkn.linalg import PartialGrid, PartialKronecker
from tests.linalg.grid.dense_grid import TIGHT, factor, factors_of, kron, random_grid


def system(shape, share, noise=0.3, batch=(), **options):
    grid = random_grid(shape, share, batch)
    return PartialKronecker(grid, factors_of(shape), torch.tensor(noise), **{**TIGHT, **options})


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_the_quadratic_form_has_an_error_of_the_second_order(share):
    own = system((7, 9), share, tolerance=1e-3)
    targets = own.grid.observed * torch.randn(7, 9)
    exact = system((7, 9), share).weights(targets)
    for start in (None, (1 + 3e-4) * exact.state):  # good enough to stay there
        rough = own.weights(targets, start)
        difference = (rough.coefficients - exact.coefficients).norm() / exact.coefficients.norm()
        assert 1e-6 < difference < 1e-2
        assert (rough.quadratic / exact.quadratic - 1).abs() < 10 * difference**2


@pytest.mark.filterwarnings("error::linear_operator.utils.warnings.NumericalWarning")
def test_holes_are_solved_in_few_iterations_whatever_the_noise():
    observed = torch.ones(30, 30, dtype=torch.bool)
    observed[8:20, 9:22] = False
    targets = torch.randn(30, 30) * observed
    for noise in (1.0, 0.1, 0.01):
        own = PartialKronecker(
            PartialGrid(observed, 2),
            factors_of((30, 30)),
            torch.tensor(noise),
            tolerance=1e-6,
            max_iterations=60,
        )
        own.weights(targets)


@pytest.mark.parametrize(
    "observed, num_dims, match",
    [
        (torch.ones(3, 4, dtype=torch.float32), 2, r"must be boolean, got torch\.float32"),
        (torch.zeros(3, 4, dtype=torch.bool), 2, "must have an observed cell"),
        (torch.tensor([[True, True], [False, False]]), 1, "must have an observed cell"),
    ],
)
def test_bad_masks_are_rejected(observed, num_dims, match):
    with pytest.raises(ValueError, match=match):
        PartialGrid(observed, num_dims)


def missing_block(own):
    """Return the block of the inverse covariance at the missing cells."""
    covariance = kron(own.factors) + own.noise.squeeze() * torch.eye(own.grid.shape.numel())
    gone = ~own.grid.observed.flatten()
    return torch.linalg.inv(covariance)[gone][:, gone]


def test_a_batch_is_solved_from_any_start():
    own = system((7, 6), 0.4)
    gone = own.grid.unknown
    target = torch.randn(3, *gone.shape) * gone
    target[0] = 0.0
    expected = torch.zeros_like(target)
    expected[:, gone] = torch.linalg.solve(missing_block(own), target[:, gone].mT).mT
    for start in (None, target.sign() * torch.rand_like(target)):
        torch.testing.assert_close(own.solve(target, start), expected, rtol=1e-8, atol=1e-8)


def test_a_solve_that_is_stopped_early_is_nearer_than_its_start():
    observed = torch.ones(20, 20, dtype=torch.bool)
    observed[:8, :8] = False
    factors = [factor(20, 0.5) - 0.1 * torch.eye(20)] * 2
    target, last = torch.randn(8, 8), torch.inf
    for count in (0, 1, 2, 4, 8):
        own = PartialKronecker(
            PartialGrid(observed, 2),
            factors,
            torch.tensor(1e-4),
            tolerance=1e-12,
            max_iterations=count,
        )
        with pytest.warns(NumericalWarning):
            value = own.solve(target)
        exact = torch.linalg.solve(missing_block(own), target.flatten())
        error = exact - value.flatten()
        energy = error @ missing_block(own) @ error
        assert energy < 0.999 * last
        last = energy


def test_the_best_solution_is_kept_and_a_large_residual_gives_a_warning():
    own = system((12, 12), 0.4, noise=1e-4, max_iterations=3, tolerance=1e-8)
    gone = own.grid.unknown
    target = torch.randn(gone.shape) * gone
    with pytest.warns(NumericalWarning, match="After 3 conjugate .* above 1e-07"):
        value = own.solve(target)
    left = target[gone] - missing_block(own) @ value[gone]
    assert 1e-7 < left.norm() / target.norm() < 1
    with pytest.warns(NumericalWarning, match="relative residual"):
        assert own.solve(target * torch.nan).isfinite().all()
