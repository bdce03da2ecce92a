import numpy as np
import pytest

from gpytorch_nkn.grids import inpaint


@pytest.mark.parametrize("kind", [bool, np.uint8, float])
@pytest.mark.parametrize("per_channel", [False, True])
def test_what_the_mask_marks_is_missing_and_the_rest_stays(kind, per_channel):
    mask = np.zeros((6, 5), dtype=bool)
    mask[2:4, 1:3] = True
    image = np.full((6, 5, 3), 0.25)
    image[mask] = 9.0  # must not be seen
    over = np.repeat(mask[..., None], 3, 2)
    given = (over if per_channel else mask).astype(kind)
    result = inpaint(image, given, channel_axis=-1, progress=False)
    assert np.array_equal(np.broadcast_to(result.missing, over.shape), over)
    assert np.array_equal(result.filled, np.full_like(image, 0.25))
