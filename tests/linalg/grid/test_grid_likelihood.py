import pytest
import torch

from gpytorch_nkn.linalg import GridLikelihood, HeldOutBlocks, PartialGrid, PartialKronecker
from gpytorch_nkn.linalg.grid import grid_likelihood
from tests.linalg.grid.dense_grid import (
    TIGHT,
    compressed_density,
    density,
    factors_of,
    held_out,
    random_grid,
    symmetric,
)

GRIDS = [
    ((5, 7), 0.2),
    ((5, 7), 0.7),
    ((5, 7), 0.0),
    ((33, 2), 0.3),  # one factor is split into even and odd
    ((12,), 0.3),
    ((3, 4, 3), 0.6),
    ((6, 1, 4), 0.3),
    ((3, 2, 2, 3), 0.3),
]
CLOSE = {"rtol": 1e-7, "atol": 1e-8}


def sources(shape, batches=(), batch=()):
    residual = torch.randn(*batch, *shape).requires_grad_()
    noise = torch.tensor(0.3, requires_grad=True)
    return residual, noise, factors_of(shape, batches)


def compare(value, expected, residual, noise, factors):
    torch.testing.assert_close(value, expected, **CLOSE)
    tensors = [residual, noise, *factors]
    weights = torch.rand(value.shape)
    got = torch.autograd.grad((weights * value).sum(), tensors)
    wanted = torch.autograd.grad((weights * expected).sum(), tensors, retain_graph=True)
    assert all(g.abs().max() > 1e-4 for g in wanted)
    torch.testing.assert_close(got[:2], wanted[:2], **CLOSE)
    torch.testing.assert_close(list(got[2:]), symmetric(wanted[2:]), **CLOSE)


@pytest.mark.parametrize("shape, share", GRIDS)
def test_value_and_every_gradient_equal_the_dense_ones(shape, share):
    residual, noise, factors = sources(shape)
    grid = random_grid(shape, share)
    loss = GridLikelihood(grid, **TIGHT)
    dense = compressed_density if share else density
    expected = dense(residual, grid.observed, noise, factors)
    compare(loss(residual, noise, factors), expected, residual, noise, factors)
    with torch.no_grad():
        torch.testing.assert_close(loss(residual, noise, factors), expected.detach(), **CLOSE)


@pytest.mark.parametrize("share", [0.3, 0.7, 0.97])
@pytest.mark.parametrize("lengthscale", [1e-3, 0.1, 0.4])
def test_the_determinant_of_random_cells_is_close_to_the_dense_one(share, lengthscale):
    shape, noise = (20, 22), torch.tensor(0.1, requires_grad=True)
    grid = random_grid(shape, share)
    positions = [torch.linspace(-1, 1, n) for n in shape]
    factors = [(-0.5 * ((x[:, None] - x) / lengthscale) ** 2).exp() for x in positions]
    zero = torch.zeros(shape)
    value = GridLikelihood(grid, **TIGHT)(zero, noise, factors) / grid.num_observed
    expected = density(zero, grid.observed, noise, factors) / grid.num_observed
    bound = 1e-6 if lengthscale == 1e-3 else 0.05  # white noise is exact
    torch.testing.assert_close(value, expected, atol=bound, rtol=0)
    slopes = [torch.autograd.grad(one, noise)[0] for one in (value, expected)]
    torch.testing.assert_close(*slopes, atol=0, rtol=1e-6 if lengthscale == 1e-3 else 0.25)


BATCHES = [
    ((2,), [(2,), (2,)], (2,), ()),  # kernels of their own, one noise
    ((2,), [(), ()], (2,), (2,)),  # shared factors
    ((2,), [(2,), ()], (), (2,)),  # one array
    ((), [(2,), ()], (2,), ()),  # one mask
    ((2, 3), [(3,), (2, 1)], (2, 3), (3,)),
    ((3,), [(1,), ()], (2, 3), (2, 1)),
    ((2, 3), [(1, 3), (1, 1)], (2, 3), (1, 3)),
]


@pytest.mark.parametrize("batches_of", BATCHES)
@pytest.mark.parametrize("share", [0.7, 0.0])
def test_a_batch_is_its_entries_and_shared_parts_get_the_sum_of_gradients(batches_of, share):
    mask_batch, batches, batch, noise_batch = batches_of
    shape = (4, 5)
    grid = random_grid(shape, share, mask_batch)
    residual, _, factors = sources(shape, batches, batch)
    noise = (0.2 + torch.rand(noise_batch)).requires_grad_()
    full = torch.broadcast_shapes(mask_batch, batch, noise_batch, *batches)
    masks = grid.observed.expand(*full, *shape).reshape(-1, *shape)
    arrays = residual.expand(*full, *shape).reshape(-1, *shape)
    noises = noise.expand(full).reshape(-1)
    parts = [f.expand(*full, *f.shape[-2:]).reshape(-1, *f.shape[-2:]) for f in factors]
    entries = list(zip(arrays, masks, noises, zip(*parts, strict=True), strict=True))
    dense = compressed_density if share else density
    expected = torch.stack([dense(*entry) for entry in entries]).view(full)
    value = GridLikelihood(grid, **TIGHT)(residual, noise, factors)
    compare(value, expected, residual, noise, factors)
    blocks = torch.zeros(2, *shape, dtype=torch.bool)
    blocks[0, 0] = blocks[1, -1, 2:] = True
    errors = [held_out(y, m, b, *rest)[0].mean() for b in blocks for y, m, *rest in entries]
    value = HeldOutBlocks(grid, blocks, **TIGHT)(residual, noise, factors)
    compare(value, torch.stack(errors).view(2, *full), residual, noise, factors)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_warm_start_changes_no_result_and_saves_iterations(share, monkeypatch):
    residual, noise, factors = sources((15, 16))
    grid = random_grid((15, 16), share)
    products, multiply = [], PartialKronecker.multiply
    monkeypatch.setattr(PartialKronecker, "multiply", lambda *a: products.append(0) or multiply(*a))
    warm, cold = (GridLikelihood(grid, tolerance=1e-9) for _ in range(2))
    for shift in (1.3, 1.0):
        value = warm(residual, shift * noise, factors)
    products.clear()
    other = cold(residual, noise, factors)
    count = len(products)
    torch.testing.assert_close(value, other)
    slopes = [torch.autograd.grad(one, factors) for one in (value, other)]
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-5)
    cold(residual, noise, factors)
    assert 0 < len(products) - count < count / 2


def test_a_second_derivative_is_rejected():
    residual, noise, factors = sources((7, 9))
    grid = random_grid((7, 9), 0.3)
    blocks = grid.observed.clone()[None]
    blocks[0, 2:] = False
    for loss in (GridLikelihood(grid, **TIGHT), HeldOutBlocks(grid, blocks, **TIGHT)):
        value = loss(residual, noise, factors).sum()
        with pytest.raises(NotImplementedError, match="has no second derivatives"):
            torch.autograd.grad(value, noise, create_graph=True)


# --- blocks ---


def some_blocks(grid, number=3, batch=()):
    """Boxes and scattered cells, with some missing."""
    blocks = torch.zeros(number, *batch, *grid.shape, dtype=torch.bool)
    cells = grid.shape.numel()
    flat = blocks.view(number, *batch, cells)
    for i in range(number):
        flat[i, ..., i :: number + 1] = True
        flat[i, ..., : cells // 4] = i == 0
        flat[i, ..., -1] = i > 0  # observed, as is the first cell
    return blocks


@pytest.mark.parametrize("shape, share", GRIDS)
def test_block_errors_and_every_gradient_equal_the_dense_ones(shape, share):
    residual, noise, factors = sources(shape)
    grid = random_grid(shape, share)
    blocks = some_blocks(grid)
    loss = HeldOutBlocks(grid, blocks, **TIGHT)
    expected = torch.stack(
        [held_out(residual, grid.observed, b, noise, factors)[0].mean() for b in blocks]
    )
    compare(loss(residual, noise, factors), expected, residual, noise, factors)
    compare(loss(residual, noise, factors), expected, residual, noise, factors)  # warm
    chosen = loss(residual, noise, factors, [2, 0])
    compare(chosen, expected[[2, 0]], residual, noise, factors)


@pytest.mark.parametrize(("share", "batch"), [(0.2, ()), (0.7, (2,))])
def test_scale_is_the_mean_ratio_of_squared_errors_and_variances(share, batch, monkeypatch):
    shape = (6, 7)
    grid = random_grid(shape, share, batch)
    residual, noise, factors = sources(shape, [batch, ()], batch)
    blocks = some_blocks(grid)
    loss = HeldOutBlocks(grid, blocks, **TIGHT)
    state = torch.get_rng_state()
    monkeypatch.setattr(grid_likelihood, "_PROBES", 1500)
    scale = loss.scale(residual, noise, factors)
    assert torch.equal(torch.get_rng_state(), state)
    masks, arrays = grid.observed.view(-1, *shape), residual.view(-1, *shape)
    expected = []
    for number, (mask, array) in enumerate(zip(masks, arrays, strict=True)):
        own = [factors[0][number] if batch else factors[0], factors[1]]
        parts = [held_out(array, mask, block, noise, own) for block in blocks]
        ratios = [errors.sum() / variances.sum() for errors, variances in parts]
        expected.append(torch.stack(ratios).mean().detach())
    torch.testing.assert_close(scale, torch.stack(expected).view(batch), rtol=0.04, atol=0)
    monkeypatch.setattr(grid_likelihood, "_PROBES", 20)
    once, again = (loss.scale(residual, noise, factors) for _ in range(2))
    assert torch.equal(once, again)
    double = loss.scale(residual, 2 * noise, [2 * factors[0], factors[1]])
    torch.testing.assert_close(double, once / 2)  # predictions stay, variances double


def test_blocks_without_an_observed_cell_or_without_others_are_rejected():
    observed = torch.ones(3, 4, dtype=torch.bool)
    observed[0] = False
    grid = PartialGrid(observed, 2)
    with pytest.raises(ValueError, match="must have an observed cell"):
        HeldOutBlocks(grid, ~observed[None])
    with pytest.raises(ValueError, match="Every grid of a batch must have an observed cell"):
        HeldOutBlocks(grid, observed[None])
