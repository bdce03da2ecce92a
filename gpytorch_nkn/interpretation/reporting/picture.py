"""Pages with pictures, and the plain values of what is on them."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from gpytorch_nkn import __version__
from gpytorch_nkn.interpretation.units import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SIZE", "Picture", "draw", "draw_figure", "finite", "literal", "render", "with_unit"]

SIZE = (5.2, 2.8)  # inches; with ten-point letters, to be read on a phone too
_DPI = 160
_HIGH = 30  # characters of a label along the axes


@dataclass(frozen=True)
class Picture:
    """A figure in the page, with a text for those who cannot see it."""

    source: str
    text: str


def finite(value: Any) -> Any:
    """A tree of plain values, without what JSON does not know."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def draw(text: str, paint: Callable[[Axes], object], size: tuple[float, float] = SIZE) -> Picture:
    """What ``paint`` draws on one Axes, of a size in inches."""
    return draw_figure(text, lambda figure: paint(figure.add_subplot()), size)


def draw_figure(text: str, paint: Callable[[Figure], object], size: tuple[float, float]) -> Picture:
    """What ``paint`` draws on a figure, of a size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    paint(figure)
    layout = figure.get_layout_engine()
    assert layout is not None
    layout.execute(figure)
    figure.set_layout_engine(None)  # else savefig draws all of it once more, for the layout
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Picture(f"data:image/png;base64,{encoded}", text)


def with_unit(label: str, unit: str) -> str:
    """A label with its unit in brackets, unless it has it."""
    return label if not unit or f"({unit})" in label else f"{label} ({unit})"


def literal(text: str, characters: int = _HIGH) -> str:
    """A text that is no formula, in at most two lines."""
    text = textwrap.fill(text, characters, max_lines=2, placeholder=" ...")
    return text.replace("$", r"\$")


def render(name: str, **values: Any) -> str:
    """A page from one of the templates of this folder."""
    folder = files("gpytorch_nkn.interpretation.reporting")
    environment = Environment(
        loader=FunctionLoader(lambda template: folder.joinpath(template).read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    return environment.get_template(name).render(version=__version__, **values)
