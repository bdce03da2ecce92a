import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from gpytorch_nkn.plotting import plot_forecast


def draw(ax, x, **options):
    train_x, new_x = x[:30], x[30:]
    mean = np.sin(np.arange(30.0, 40.0))
    train = (train_x, np.sin(np.arange(30.0)))
    return plot_forecast(ax, new_x, mean, mean - 1, mean + 1, train=train, **options)


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_returns_the_axes_with_every_part_and_labels(ax):
    x = np.arange(40.0)
    drawn = draw(
        ax, x, test=(x[30:], np.ones(10)), x_label="year", y_label="CO2 (ppm)", title="CO2"
    )
    assert drawn is ax
    assert texts(ax) == ["training data", "held-out data", "forecast", "95 % interval"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("year", "CO2 (ppm)")
    assert ax.get_title(loc="left") == "CO2"
    lines = {line.get_label(): line for line in ax.get_lines()}
    np.testing.assert_array_equal(lines["training data"].get_xdata(), x[:30])
    np.testing.assert_array_equal(lines["held-out data"].get_ydata(), np.ones(10))
    np.testing.assert_array_equal(lines["forecast"].get_xdata(), x[30:])
    (band,) = ax.collections
    assert band.get_datalim(ax.transData).y1 == pytest.approx(1 + np.sin(np.arange(30, 40)).max())


DAYS = pd.date_range("2020-03-01", periods=40)


@pytest.mark.parametrize(
    "x",
    [np.arange(40.0), DAYS.tz_localize("Asia/Tokyo"), DAYS.to_period("D"), [*DAYS], [*DAYS.date]],
    ids=["numbers", "zone", "periods", "timestamps", "dates"],
)
def test_boundary_stands_between_training_and_held_out_data(ax, x):
    draw(ax, x, test=(x[30:], torch.ones(10, requires_grad=True)))
    expected = 29.5 if isinstance(x, np.ndarray) else date2num(np.datetime64("2020-03-30T12"))
    assert ax.get_lines()[-1].get_xdata(orig=False) == pytest.approx([expected, expected])


@pytest.mark.parametrize("dates", [False, True])
def test_a_forecast_of_one_step_can_be_seen(dates):
    x = np.arange("2020-01", "2020-07", dtype="datetime64[M]") if dates else np.arange(6.0)
    x = x.astype("datetime64[D]") if dates else x
    ax = Figure().add_subplot()
    ends = np.array([1.0]), np.array([3.0])
    plot_forecast(ax, x[-1:], np.array([2.0]), *ends, train=(x[:-1], np.arange(5.0)))
    (line,) = [line for line in ax.get_lines() if line.get_label() == "forecast"]
    assert np.ptp(line.get_xdata().astype(float)) > 0 and (line.get_ydata() == 2).all()
