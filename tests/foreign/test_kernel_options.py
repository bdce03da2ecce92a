"""Kernels whose shapes and options combine as hypothesis draws them, against dense sums."""

import pytest
import torch

from gpytorch_nkn.kernels import NeuralKernelNetwork

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

PRESETS = ("regression", "additive", "optimization")
BATCHES = st.lists(st.integers(1, 3), max_size=2).map(tuple)
quick = hypothesis.settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def drawn(preset, columns, batch_shape, active_dims, **options):
    """A preset in double precision, whose parameters differ over the batch."""
    kernel = getattr(NeuralKernelNetwork, preset)(
        columns, batch_shape=torch.Size(batch_shape), active_dims=active_dims, **options
    ).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in kernel.parameters():
        noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data += 0.4 * (noise - 0.5)
    return kernel


@quick
@hypothesis.given(
    preset=st.sampled_from(PRESETS),
    columns=st.integers(1, 4),
    batch_shape=BATCHES,
    inputs_batch=BATCHES,
    selected=st.booleans(),
    priors=st.booleans(),
    rows=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
def test_presets_of_any_shape(preset, columns, batch_shape, inputs_batch, selected, priors, rows):
    """Blocks, diagonals, batches and columns agree with the kernel of each entry alone."""
    dims = tuple(range(columns, 0, -1)) if selected else None
    kernel = drawn(preset, columns, batch_shape, dims, priors=priors)
    assert kernel.batch_shape == batch_shape
    width = columns + 2 if selected else columns
    generator = torch.Generator().manual_seed(1)
    inputs_batch = (*inputs_batch, *[1] * len(batch_shape))
    x1, x2 = (
        torch.randn(*inputs_batch, n, width, generator=generator, dtype=torch.float64) for n in rows
    )
    matrix = kernel(x1, x2).to_dense()
    shape = torch.broadcast_shapes(inputs_batch, batch_shape)
    assert matrix.shape == (*shape, *rows) and matrix.isfinite().all()
    whole = torch.cat([x1, x2], -2)
    joint = kernel(whole).to_dense()
    torch.testing.assert_close(joint[..., : rows[0], rows[0] :], matrix, rtol=1e-6, atol=1e-8)
    diagonal = kernel(whole, diag=True)
    expected = joint.diagonal(dim1=-1, dim2=-2)
    torch.testing.assert_close(diagonal, expected, rtol=1e-6, atol=1e-8)
    scale = expected.abs().amax().item()
    assert torch.linalg.eigvalsh(joint).min() > -1e-8 * scale * sum(rows)
    if batch_shape:
        index = tuple(size - 1 for size in batch_shape)
        alone = kernel[index]
        assert alone.batch_shape == ()
        place = (*[slice(None)] * (len(inputs_batch) - len(batch_shape)), *index)
        start = tuple(0 for _ in batch_shape)
        where = (*place[: len(inputs_batch) - len(batch_shape)], *start)
        torch.testing.assert_close(
            alone(x1[where], x2[where]).to_dense(), matrix[place], rtol=1e-6, atol=1e-8
        )
    elif selected:
        other = drawn(preset, columns, (), None, priors=priors)
        seen = [x[..., list(dims)] for x in (x1, x2)]
        torch.testing.assert_close(other(*seen).to_dense(), matrix, rtol=1e-6, atol=1e-8)
