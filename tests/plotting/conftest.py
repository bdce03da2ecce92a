"""Axes without a screen, and a check that labels do not cover each other."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


@pytest.fixture
def make_axes():
    """Function of rows, columns and the size in inches that gives an Axes or an array of them."""

    def make(rows=1, columns=1, size=(7, 4)):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        return figure.subplots(rows, columns)

    return make


@pytest.fixture
def ax(make_axes):
    return make_axes()


@pytest.fixture
def no_overlap(monkeypatch):
    """Function of a figure: no text drawn covers another, and none leaves the figure."""

    def check(figure):
        drawn, original = [], Text.draw

        def draw(self, *args, **kwargs):
            drawn.extend([self] if self.get_visible() else [])
            return original(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(Text, "draw", draw)
            figure.draw_without_rendering()
        texts = [text for text in dict.fromkeys(drawn) if text.get_text().strip()]
        boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts]
        assert len(boxes) > 3
        for text, box in boxes:
            assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, f"{text!r} leaves the figure"
            assert box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1, f"{text!r} leaves the figure"
        for (one, first), (other, second) in itertools.combinations(boxes, 2):
            width = min(first.x1, second.x1) - max(first.x0, second.x0)
            height = min(first.y1, second.y1) - max(first.y0, second.y0)
            assert width < 1 or height < 1, f"{one!r} covers {other!r}"

    return check


@pytest.fixture
def line_data():
    """Function of Axes and a label that gives the line's points."""

    def points(ax, label):
        (line,) = [line for line in ax.get_lines() if line.get_label() == label]
        return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())

    return points
