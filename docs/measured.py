"""A directive for tables of the record.

A page that has ``{measured} Speed on grids`` shows that section's first table of
benchmarks/RESULTS.md, so that the site never differs from it. Options: ``number`` of the table
within its section, from 0; ``columns`` and ``rows`` (by their first cells), separated by ``;``, for
a part of it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from results_tables import RESULTS, table
from sphinx.util.docutils import SphinxDirective

__all__ = ["setup"]


def _names(argument: str) -> list[str]:
    return [name.strip() for name in argument.split(";")]


class Measured(SphinxDirective):
    """A table of the record, or a part of it."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {
        "number": directives.nonnegative_int,
        "columns": _names,
        "rows": _names,
    }

    def run(self) -> list[Any]:
        """Parse the rows as a table of the page's own language."""
        self.env.note_dependency(str(RESULTS))
        try:
            found = table(self.arguments[0], self.options.get("number", 0))
            part = found.part(self.options.get("columns", []), self.options.get("rows", []))
        except ValueError as error:
            raise self.error(str(error)) from None
        lines = [part.columns, ["---"] * len(part.columns), *part.rows]
        text = [f"| {' | '.join(row)} |" for row in lines]
        self.content = StringList(text, source=str(RESULTS))
        return self.parse_content_to_nodes()


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
