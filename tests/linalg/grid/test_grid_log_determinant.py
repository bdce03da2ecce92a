import pytest
import torch
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_nkn.linalg import LogDeterminant, PartialGrid, PartialKronecker
from tests.linalg.grid.dense_grid import TIGHT, factors_of, kron, random_grid, symmetric

EXACT = {"num_probes": 10**4, "lanczos_steps": 300, "tolerance": 1e-12}
DRAWS = 24  # whose mean is compared with what they estimate
GRIDS = [((7, 9), 0.2), ((7, 9), 0.7), ((12,), 0.3), ((3, 4, 5), 0.2), ((6, 1, 4), 0.6)]


def system(grid, factors, noise=0.3):
    return PartialKronecker(grid, factors, torch.as_tensor(noise), **TIGHT)


def dense(grid, factors, noise=0.3):
    seen = grid.observed.flatten()
    own = kron(factors)[seen][:, seen] + noise * torch.eye(int(seen.sum()))
    return torch.logdet(own)


def in_space_of_cells(matrices, own):
    bases = zip(matrices, own.eigen.vectors, strict=True)
    return [vectors @ matrix @ vectors.mT for matrix, vectors in bases]


@pytest.mark.parametrize("shape, share", GRIDS)
def test_unit_vectors_give_the_exact_value_and_derivatives(shape, share):
    grid, factors = random_grid(shape, share), factors_of(shape)
    noise = torch.tensor(0.3, requires_grad=True)
    expected = dense(grid, factors, noise)
    of_noise, *of_factors = torch.autograd.grad(expected, [noise, *factors])
    own = system(grid, factors)
    determinant = LogDeterminant("unbiased", **EXACT)
    torch.testing.assert_close(determinant.value(own), expected.detach())
    value, matrices, slope = determinant.evaluate(own)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(slope, of_noise)
    torch.testing.assert_close(in_space_of_cells(matrices, own), symmetric(of_factors))


@pytest.mark.parametrize("kind", ["scaled", "unbiased"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_both_kinds_are_exact_on_a_complete_grid(kind, batch):
    shape = (4, 5)
    grid = PartialGrid(torch.ones(*batch, *shape, dtype=torch.bool), 2)
    factors = factors_of(shape)
    noise = torch.tensor(0.2, requires_grad=True)
    expected = dense(PartialGrid(torch.ones(shape, dtype=torch.bool), 2), factors, noise)
    of_noise, *of_factors = torch.autograd.grad(expected, [noise, *factors])
    own = system(grid, factors, 0.2)
    value, matrices, slope = LogDeterminant(kind).evaluate(own, with_value=False)
    torch.testing.assert_close(value.expand(batch), expected.detach().expand(batch))
    torch.testing.assert_close(slope.expand(batch), of_noise.expand(batch))
    matrices = [m.expand(*batch, *m.shape[-2:]) for m in in_space_of_cells(matrices, own)]
    for got, gradient in zip(matrices, symmetric(of_factors), strict=True):
        torch.testing.assert_close(got, gradient.expand(got.shape))


@pytest.mark.parametrize("share", [0.25, 0.7])
def test_few_random_vectors_are_unbiased(share):
    shape = (4, 5)
    grid, factors = random_grid(shape, share), factors_of(shape)
    noise = torch.tensor(0.3, requires_grad=True)
    expected = dense(grid, factors, noise)
    of_noise, *of_factors = torch.autograd.grad(expected, [noise, *factors])
    own = system(grid, factors)
    options = {"num_probes": 2, "lanczos_steps": 100, "tolerance": 1e-10}
    draws = []
    for seed in range(DRAWS):
        value, matrices, slope = LogDeterminant("unbiased", seed=seed, **options).evaluate(own)
        matrices = in_space_of_cells(matrices, own)
        draws.append(torch.cat([value[None], slope[None], *[m.flatten() for m in matrices]]))
    draws = torch.stack(draws)
    target = torch.cat(
        [expected[None], of_noise[None], *[m.flatten() for m in symmetric(of_factors)]]
    )
    error = draws.std(0) / DRAWS**0.5
    assert (error[:2] > 1e-4).all()  # they are random
    assert ((draws.mean(0) - target).abs() < 4.5 * error + 1e-8).all()


def test_random_vectors_are_drawn_once_and_from_the_seed():
    grid, factors = random_grid((6, 5), 0.3), factors_of((6, 5))
    one, two, three = (LogDeterminant("unbiased", num_probes=2, seed=s) for s in (0, 0, 1))
    state = torch.get_rng_state()
    values = [d.value(system(grid, factors)) for d in (one, one, two, three)]
    assert torch.equal(torch.get_rng_state(), state)
    assert values[0] == values[1] == values[2] != values[3]


def test_one_object_serves_grids_with_holes_of_one_extent_but_different_cells():
    determinant = LogDeterminant("unbiased", **EXACT)
    first = torch.ones(5, 6, dtype=torch.bool)
    first[1:3, 2:5] = False
    second = torch.ones(5, 6, dtype=torch.bool)
    second[1, 2] = second[2, 3] = second[2, 4] = False
    third = torch.zeros(5, 6, dtype=torch.bool)
    third[0], third[:, 0] = True, True  # mostly missing: another space
    for observed in (first, second, third, first):
        grid, factors = PartialGrid(observed, 2), factors_of((5, 6))
        expected = dense(grid, factors).detach()
        torch.testing.assert_close(determinant.value(system(grid, factors)), expected)
        torch.testing.assert_close(determinant.evaluate(system(grid, factors))[0], expected)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_entries_of_a_batch_differ_and_one_may_be_complete(share):
    grid = random_grid((4, 5), share, (3,))
    observed = grid.observed.clone()
    observed[1] = True
    grid, factors = PartialGrid(observed, 2), factors_of((4, 5), [(3,), ()])
    noise = torch.tensor([0.2, 0.3, 0.4])
    draws, slopes = [], []
    for seed in range(DRAWS):
        determinant = LogDeterminant("unbiased", seed=seed, num_probes=4, tolerance=1e-8)
        value, _, slope = determinant.evaluate(system(grid, factors, noise))
        draws.append(value)
        slopes.append(slope)
    scaled = LogDeterminant("scaled").value(system(grid, factors, noise))
    for number in range(3):
        part = PartialGrid(observed[number], 2)
        own_noise = noise[number].clone().requires_grad_()
        expected = dense(part, [factors[0][number], factors[1]], own_noise)
        (slope,) = torch.autograd.grad(expected, own_noise)
        for target, found in ((expected, draws), (slope, slopes)):
            found = torch.stack(found)[:, number]
            assert (found.mean() - target).abs() < 4 * found.std() / DRAWS**0.5 + 1e-6
        one = system(part, [factors[0][number], factors[1]], noise[number])
        torch.testing.assert_close(scaled[number], LogDeterminant("scaled").value(one))
        if number == 1:
            torch.testing.assert_close(scaled[1], expected.detach())


def test_another_dtype_after_a_call():
    grid, factors = random_grid((6, 5), 0.3), factors_of((6, 5))
    determinant = LogDeterminant("unbiased")
    expected = determinant.evaluate(system(grid, factors))[2]
    floats = [f.float() for f in factors]
    own = PartialKronecker(
        grid, floats, torch.tensor(0.3).float(), tolerance=1e-5, max_iterations=100
    )
    value, _, slope = determinant.evaluate(own)
    assert value.dtype == slope.dtype == torch.float32
    torch.testing.assert_close(slope.double(), expected, rtol=1e-2, atol=0)


def test_the_value_may_be_left_out_and_a_bad_solve_is_told():
    grid, factors = random_grid((15, 16), 0.3), factors_of((15, 16))
    own = PartialKronecker(grid, factors, torch.tensor(1e-3), tolerance=1e-3, max_iterations=2)
    with pytest.warns(NumericalWarning, match="probes of the log-determinant: after 2 "):
        value, _, _ = LogDeterminant("unbiased").evaluate(own, with_value=False)
    assert value is None


@pytest.mark.parametrize("shape, share", GRIDS)
def test_scaled_eigenvalues_are_those_of_equation_39(shape, share):
    grid, factors = random_grid(shape, share), factors_of(shape)
    noise = torch.tensor(0.3, requires_grad=True)
    count, cells = int(grid.num_observed), grid.num_cells
    values = torch.linalg.eigvalsh(kron(factors))[-count:]
    expected = (count / cells * values + noise).log().sum()
    of_noise, *of_factors = torch.autograd.grad(expected, [noise, *factors])
    own = system(grid, factors)
    value, matrices, slope = LogDeterminant("scaled").evaluate(own)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(LogDeterminant("scaled").value(own), expected.detach())
    torch.testing.assert_close(slope, of_noise)
    torch.testing.assert_close(in_space_of_cells(matrices, own), symmetric(of_factors))
    assert (value - dense(grid, factors)).abs() > 0.1  # it is biased


def test_equal_eigenvalues_share_the_last_places():
    grid = random_grid((4, 5), 0.3)
    factors = [torch.eye(4), torch.eye(5)]
    value, matrices, slope = LogDeterminant("scaled").evaluate(system(grid, factors))
    count = int(grid.num_observed)
    shifted = torch.tensor(count / 20 + 0.3)
    torch.testing.assert_close(value, count * shifted.log())
    torch.testing.assert_close(slope, count / shifted)
    expected = torch.eye(4) * count / 4 * (count / 20) / shifted
    torch.testing.assert_close(matrices[0], expected)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match=r"one of \('scaled', 'unbiased'\), got 'exact'"):
        LogDeterminant("exact")
    with pytest.raises(ValueError, match="num_probes must be at least 1, got 0"):
        LogDeterminant(num_probes=0)
