"""Data: bundled with libraries, from a folder of benchmark data, or from a CSV file."""

from gpytorch_nkn.datasets.classification import ClassificationTable, load_askl_table
from gpytorch_nkn.datasets.csv_series import read_time_series
from gpytorch_nkn.datasets.dank_tables import load_dank_table
from gpytorch_nkn.datasets.image_files import (
    ImageFile as ImageFile,
    read_image as read_image,
    read_mask as read_mask,
)
from gpytorch_nkn.datasets.regression import RegressionTable, load_regression
from gpytorch_nkn.datasets.textures import Texture, load_texture
from gpytorch_nkn.datasets.time_series import (
    TimeSeries,
    decimal_years,
    future_times,
    load_co2,
    load_time_series,
)

__all__ = [
    "ClassificationTable",
    "RegressionTable",
    "Texture",
    "TimeSeries",
    "decimal_years",
    "future_times",
    "load_askl_table",
    "load_co2",
    "load_dank_table",
    "load_regression",
    "load_texture",
    "load_time_series",
    "read_time_series",
]
