"""Tables of benchmarks/RESULTS.md, for the pages and the figures of the site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["RESULTS", "Table", "number", "table"]

RESULTS = Path(__file__).parents[1] / "benchmarks" / "RESULTS.md"
_CELLS = re.compile(r"(?<!\\)\|")


class Table(NamedTuple):
    """A table of the record."""

    columns: list[str]
    rows: list[list[str]]

    def part(self, columns: list[str], rows: list[str]) -> Table:
        """The named columns and rows, in this order; all of them for none."""
        columns, by_name = columns or self.columns, {row[0]: row for row in self.rows}
        missing = [name for name in rows if name not in by_name]
        missing += [name for name in columns if name not in self.columns]
        if missing:
            raise ValueError(f"No column or row {missing} among {self.columns}, {list(by_name)}.")
        places = [self.columns.index(name) for name in columns]
        kept = [by_name[name] for name in rows] if rows else self.rows
        return Table(columns, [[row[place] for place in places] for row in kept])

    def column(self, name: str) -> list[str]:
        """The cells of a column."""
        return [row[self.columns.index(name)] for row in self.rows]


@cache
def _sections() -> dict[str, list[Table]]:
    """Tables by their headings, ``section`` or ``section / subsection``."""
    found: dict[str, list[Table]] = {}
    above, heading, block = "", "", list[str]()
    for line in [*RESULTS.read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
            continue
        if block:
            cells = [[c.strip() for c in _CELLS.split(row)[1:-1]] for row in block]
            found.setdefault(heading, []).append(Table(cells[0], cells[2:]))
            block = []
        if line.startswith("## "):
            above = heading = line[3:]
        elif line.startswith("### "):
            heading = f"{above} / {line[4:]}"
    return found


def table(heading: str, number: int = 0) -> Table:
    """A table of a section (``"Speed on grids"``) or its part, by how its heading begins.

    Raises:
        ValueError: There is none.
    """
    found = [tables for name, tables in _sections().items() if name == heading]
    found = found or [tables for name, tables in _sections().items() if name.startswith(heading)]
    if not found or len(found[0]) <= number:
        raise ValueError(f"benchmarks/RESULTS.md has no table {number} under {heading!r}.")
    return found[0][number]


def number(cell: str) -> float:
    """The first number of a cell; NaN if there is none."""
    found = re.search(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?", cell)
    return float(found[0].replace(",", "")) if found else float("nan")
