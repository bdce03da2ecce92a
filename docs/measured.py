"""A directive for tables of results.

A page that has ``{measured} grid_speed`` shows ``benchmarks/results/grid_speed.csv``. Options:
``columns`` and ``rows`` (by their first cells), separated by ``;``, for a part of it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from benchmarks.report import FOLDER, read_table

__all__ = ["setup"]


def _names(argument: str) -> list[str]:
    return [name.strip() for name in argument.split(";")]


class Measured(SphinxDirective):
    """A table of results, or a part of it."""

    required_arguments = 1
    option_spec: ClassVar = {"columns": _names, "rows": _names}

    def run(self) -> list[Any]:
        """Parse the rows as a table of the page's own language."""
        name = self.arguments[0]
        self.env.note_dependency(str(FOLDER / f"{name}.csv"))
        try:
            part = read_table(name).part(*(self.options.get(o, ()) for o in ("columns", "rows")))
        except (KeyError, ValueError) as error:
            raise self.error(str(error)) from None
        self.content = StringList(part.markdown().splitlines(), source=f"{name}.csv")
        return self.parse_content_to_nodes()


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
