from types import SimpleNamespace

import numpy as np
import pytest

from gpytorch_nkn.plotting import plot_components


def component(label="part", *, dates=False, points=20, **changes):
    x = np.arange(points, dtype=float)
    if dates:
        x = np.arange("2001-01", "2009-01", dtype="datetime64[M]")[:points].astype("datetime64[s]")
    mean = np.sin(np.arange(points))
    fields = {
        "label": label,
        "x": x,
        "mean": mean,
        "lower": mean - 1,
        "upper": mean + 2,
        "data": (x[: points // 2], mean[: points // 2] + 0.3),
        "boundary": x[points // 2],
    }
    return SimpleNamespace(**(fields | changes))


@pytest.mark.parametrize("dates", [False, True])
def test_every_component_gets_its_curve_points_and_boundary(make_axes, line_data, dates):
    axes = make_axes(2, 1)
    parts = [component("first", dates=dates), component("second", dates=dates, mean=np.ones(20))]
    assert plot_components(axes, parts, x_label="year", y_label="ppm") is axes
    for ax, part in zip(axes, parts, strict=True):
        x, mean = line_data(ax, "mean")
        np.testing.assert_array_equal(x, part.x)
        np.testing.assert_array_equal(mean, part.mean)
        np.testing.assert_array_equal(line_data(ax, "partial residuals")[1], part.data[1])
        assert ax.get_title(loc="left") == part.label and ax.get_ylabel() == "ppm"
        (band,) = ax.collections
        low, high = band.get_datalim(ax.transData).intervaly
        assert (low, high) == pytest.approx((part.lower.min(), part.upper.max()))
        assert ax.get_lines()[-1].get_xdata()[0] == part.boundary
    assert [ax.get_xlabel() for ax in axes] == ["", "year"]
    texts = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert texts == ["partial residuals", "mean", "95 % interval"]
    assert axes[1].get_legend() is None
