"""Data sets that are bundled with libraries, and readers of CSV files and images."""

from gpytorch_nkn.datasets.csv_series import read_time_series
from gpytorch_nkn.datasets.image_files import (
    ImageFile as ImageFile,
    read_image as read_image,
    read_mask as read_mask,
)
from gpytorch_nkn.datasets.time_series import TimeSeries, load_co2

__all__ = ["TimeSeries", "load_co2", "read_time_series"]
