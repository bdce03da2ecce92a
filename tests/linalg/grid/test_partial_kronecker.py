import pytest
import torch

from gpytorch_nkn.linalg import PartialGrid, PartialKronecker
from tests.linalg.grid.dense_grid import TIGHT, factors_of, kron, random_grid

GRIDS = [
    ((7, 9), 0.2),
    ((7, 9), 0.7),
    ((7, 9), 0.0),
    ((12,), 0.3),
    ((4, 5, 6), 0.3),
    ((6, 1, 4), 0.6),
]


def system(shape, share, noise=0.3, batch=(), **options):
    grid = random_grid(shape, share, batch)
    return PartialKronecker(grid, factors_of(shape), torch.tensor(noise), **{**TIGHT, **options})


def parts(system):
    """Dense covariance and the masks of the observed and missing cells."""
    covariance = kron(system.factors)
    seen = system.grid.observed.flatten()
    noisy = covariance[seen][:, seen] + system.noise.squeeze() * torch.eye(int(seen.sum()))
    return covariance, noisy, seen


@pytest.mark.parametrize("shape, share", GRIDS)
def test_weights_equal_a_dense_solve(shape, share):
    own = system(shape, share)
    assert own.in_holes == (share < 0.5)
    _, noisy, seen = parts(own)
    targets = own.grid.only_observed(torch.randn(shape))
    weights = own.weights(targets)
    y = targets.flatten()[seen]
    expected = torch.zeros(seen.numel())
    expected[seen] = torch.linalg.solve(noisy, y)
    alpha = own.eigen.from_basis(weights.coefficients).flatten()
    torch.testing.assert_close(alpha, expected, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(weights.quadratic, y @ expected[seen])


@pytest.mark.parametrize("shape, share", [g for g in GRIDS if g[1]])
def test_an_array_at_missing_cells_is_continued_as_the_formula_says(shape, share):
    own = system(shape, share)
    covariance, noisy, seen = parts(own)
    array = torch.randn(shape) * ~own.grid.observed
    coefficients, state = own.continued(array)
    expected = array.flatten().clone()
    expected[seen] = -torch.linalg.solve(noisy, covariance[seen][:, ~seen] @ expected[~seen])
    got = own.eigen.from_basis(coefficients).flatten()
    torch.testing.assert_close(got, expected, rtol=1e-7, atol=1e-9)
    again, _ = own.continued(array, state)
    torch.testing.assert_close(again, coefficients, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_the_quadratic_form_has_an_error_of_the_second_order(share):
    own = system((7, 9), share, tolerance=1e-3)
    targets = own.grid.only_observed(torch.randn(7, 9))
    exact = system((7, 9), share).weights(targets)
    for start in (None, (1 + 3e-4) * exact.state):  # good enough to stay there
        rough = own.weights(targets, start)
        difference = (rough.coefficients - exact.coefficients).norm() / exact.coefficients.norm()
        assert 1e-6 < difference < 1e-2
        assert (rough.quadratic / exact.quadratic - 1).abs() < 10 * difference**2


def test_holes_are_solved_in_few_iterations_whatever_the_noise():
    observed = torch.ones(30, 30, dtype=torch.bool)
    observed[8:20, 9:22] = False
    targets = torch.randn(30, 30) * observed
    for noise in (1.0, 0.1, 0.01):
        own = PartialKronecker(
            PartialGrid(observed, 2),
            factors_of((30, 30)),
            torch.tensor(noise),
            tolerance=1e-4,
            max_iterations=60,
        )
        own.weights(targets)  # a warning would fail the test
        assert 0 < own.iterations <= 60


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 2)])
def test_derivatives_by_the_factors_equal_those_of_autograd(shape):
    own = system(shape, 0.0)
    sources = [f.detach().requires_grad_() for f in own.factors]
    left, right, weights = torch.randn(3, *shape)
    for a, b in ((left, right), (left, left)):
        form = a.flatten() @ kron(sources) @ b.flatten()
        expected = torch.autograd.grad(form, sources)
        got = own.factor_gradients(own.eigen.to_basis(a), own.eigen.to_basis(b))
        for part, vectors, gradient in zip(got, own.eigen.vectors, expected, strict=True):
            gradient = 0.5 * (gradient + gradient.mT)
            torch.testing.assert_close(vectors @ part @ vectors.mT, gradient)
    values = [v.clone().requires_grad_() for v in own.eigen.values]
    total = weights
    for dim, v in enumerate(values):
        total = total * v.view([-1 if d == dim else 1 for d in range(len(shape))])
    expected = torch.autograd.grad(total.sum(), values)
    for got, gradient in zip(own.spectral_gradients(weights), expected, strict=True):
        torch.testing.assert_close(got, gradient)


@pytest.mark.parametrize(
    "observed, num_dims, match",
    [
        (
            torch.ones(3, 4, dtype=torch.float32),
            2,
            r"boolean with at least 2 dimensions, got torch.float32 of shape .3, 4.",
        ),
        (torch.ones(3, dtype=torch.bool), 2, r"at least 2 dimensions, got torch\.bool of .*\(3,\)"),
        (torch.tensor(True), 0, "at least 1 dimensions"),
        (torch.zeros(3, 4, dtype=torch.bool), 2, "no observed cell"),
        (torch.tensor([[True, True], [False, False]]), 1, "entry of its batch"),
    ],
)
def test_bad_masks_are_refused(observed, num_dims, match):
    with pytest.raises(ValueError, match=match):
        PartialGrid(observed, num_dims)
