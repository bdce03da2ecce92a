"""Data: bundled with libraries, or from a CSV file or an image."""

from gpytorch_nkn.datasets.csv_series import read_time_series
from gpytorch_nkn.datasets.image_files import (
    ImageFile as ImageFile,
    read_image as read_image,
    read_mask as read_mask,
)
from gpytorch_nkn.datasets.textures import (
    BUNDLED_TEXTURES as BUNDLED_TEXTURES,
    Hole as Hole,
    Texture,
    load_texture,
    texture_with_hole as texture_with_hole,
)
from gpytorch_nkn.datasets.time_series import (
    TimeSeries,
    load_co2,
)

__all__ = [
    "Texture",
    "TimeSeries",
    "load_co2",
    "load_texture",
    "read_time_series",
]
