"""Tables of results: CSV files, their form in Markdown, and the pages that show them.

``python -m benchmarks.report`` brings every page in step with ``benchmarks/results/*.csv``. A page
shows a table below a comment that names it,

    <!-- table panel | columns: method; MASE / combination -> error | rows: default -> ours -->

with, if need be, some of its columns and rows, new names for them after ``->``, or (``wide: method;
RMSE``) a column for each method that holds the RMSE. A number in a sentence is tied to its cell by
``0.886<!-- panel; default; MASE / combination -->``: table, row (its first cells, joined by
commas), column, and which number of the cell if it is not the first.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import rankdata

__all__ = [
    "RESULTS",
    "Table",
    "check_quotes",
    "grouped",
    "mean",
    "mean_and_error",
    "mean_ranks",
    "numbers",
    "paired",
    "read_table",
    "render",
    "summary",
    "write_table",
]

FOLDER = Path(__file__).parent / "results"
RESULTS = Path(__file__).parent / "RESULTS.md"
ROOT = Path(__file__).parents[1]
_SHOWN = re.compile(r"(<!-- table (\w+)((?: \| \w+: .*?)*) -->\n)(?:\|.*\n)*")
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_QUOTE = re.compile(
    rf"({_NUMBER})(?:\*\*)?(?: ± (\d[\d,]*(?:\.\d+)?))?(?:\*\*| ?%|\))*<!-- ([^>]*; [^>]*) -->"
)


class Table(NamedTuple):
    """Columns by name, and rows of printed cells."""

    columns: list[str]
    rows: list[list[str]]

    @classmethod
    def of(cls, records: Sequence[Mapping[str, object]]) -> Table:
        """Create a table with a row for each mapping, whose keys are the columns."""
        columns = list(dict.fromkeys(name for record in records for name in record))
        return cls(columns, [[str(record.get(name, "")) for name in columns] for record in records])

    def row(self, key: str) -> list[str]:
        """Return the only row whose first cells, joined by commas, are the key."""
        places = range(1, len(self.columns) + 1)
        found = [row for row in self.rows if any(", ".join(row[:n]) == key for n in places)]
        if len(found) != 1:
            raise ValueError(f"{len(found)} rows begin with {key!r}; the columns: {self.columns}.")
        return found[0]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        if name not in self.columns:
            raise ValueError(f"There is no column {name!r} among {self.columns}.")
        return [row[self.columns.index(name)] for row in self.rows]

    def cell(self, key: str, column: str) -> str:
        """Return the cell of a row and a column."""
        self.column(column)
        return self.row(key)[self.columns.index(column)]

    def part(self, columns: Sequence[str] = (), rows: Sequence[str] = ()) -> Table:
        """Return some columns and rows, all by default; ``old -> new`` renames."""
        kept = [_renamed(name) for name in columns] or [(name, name) for name in self.columns]
        lines = [(self.row(old), "" if new == old else new) for old, new in map(_renamed, rows)]
        named = next(old for old in (self.columns[0], kept[0][0]) if old in dict(kept))
        cells = []
        for row, label in lines or [(row, "") for row in self.rows]:
            values = dict(zip(self.columns, row, strict=True)) | ({named: label} if label else {})
            cells.append([values[old] for old, _ in kept])
        return Table([new for _, new in kept], cells)

    def wide(self, across: str, value: str) -> Table:
        """Pivot the table: rows by the first column, columns of ``value`` by ``across``."""
        methods = list(dict.fromkeys(self.column(across)))
        by_row: dict[str, dict[str, str]] = {}
        for row, method, cell in zip(
            self.rows, self.column(across), self.column(value), strict=True
        ):
            by_row.setdefault(row[0], {})[method] = cell
        rows = [[name, *(cells.get(m, "") for m in methods)] for name, cells in by_row.items()]
        return Table([self.columns[0], *methods], rows)

    def markdown(self) -> str:
        """Return the table in Markdown, with a final line break."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _renamed(name: str) -> tuple[str, str]:
    old, _, new = name.partition(" -> ")
    return old, new or old


def read_table(name: str) -> Table:
    """Read a committed table."""
    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        raise ValueError(f"There is no table {name!r} in {FOLDER.name}.")
    with path.open(newline="", encoding="utf-8") as file:
        columns, *rows = csv.reader(file)
    if len(set(columns)) < len(columns):
        raise ValueError(f"Columns of {name} have the same name: {columns}.")
    return Table(columns, rows)


def write_table(name: str, table: Table) -> None:
    """Replace a committed table."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([table.columns, *table.rows])


def render(text: str) -> str:
    """Return a page with its committed tables."""

    def shown(match: re.Match[str]) -> str:
        options = dict(part.split(": ", 1) for part in match[3].split(" | ")[1:])
        lists = {name: [v.strip() for v in value.split(";")] for name, value in options.items()}
        table = read_table(match[2])
        if "wide" in lists:
            across, value = lists["wide"]
            table = table.wide(across, value)
        return match[1] + table.part(lists.get("columns", ()), lists.get("rows", ())).markdown()

    return _SHOWN.sub(shown, text)


def numbers(cell: str) -> list[float]:
    """Return the numbers of a cell or a sentence."""
    return [float(number.replace(",", "")) for number in re.findall(_NUMBER, cell)]


def check_quotes(text: str) -> tuple[str, list[str]]:
    """Return a page without the numbers that are tied to cells, and those that differ."""
    wrong = []

    def check(match: re.Match[str]) -> str:
        name, key, column, *place = (part.strip() for part in match[3].split(";"))
        try:
            cell = read_table(name).cell(key, column)
            expected = numbers(cell)[int(place[0]) - 1 if place else 0]
        except (ValueError, IndexError) as error:
            wrong.append(f"{match[0]}: {error}")
            return ""
        pairs = [(match[1], expected)]
        if match[2]:
            pairs.append((match[2], numbers(cell.partition("±")[2])[0]))
        for quoted, value in pairs:
            half = 0.5 * 10.0 ** -len(quoted.partition(".")[2]) + 1e-9
            if abs(float(quoted.replace(",", "")) - value) > half:
                wrong.append(f"{match[0]}: the cell is {cell}")
        return ""

    return _QUOTE.sub(check, text), wrong


def grouped(rows: Iterable[dict], *keys: str) -> dict[Any, list[dict]]:
    """Group rows by the value of a key or of several keys, in order of appearance."""
    groups: dict[Any, list[dict]] = {}
    for row in rows:
        groups.setdefault(itemgetter(*keys)(row), []).append(row)
    return groups


Cell = Callable[[list[dict]], object]


def summary(
    rows: Iterable[dict], keys: Mapping[str, str] | Sequence[str], cells: Mapping[str, Cell]
) -> Table:
    """Return a row for each group of rows with the same ``keys`` (by title, if titles differ).

    ``cells`` maps the title of a column to a function of the rows of a group.
    """
    keys = keys if isinstance(keys, Mapping) else dict(zip(keys, keys, strict=True))
    lines = []
    for runs in grouped(rows, *keys.values()).values():
        line: dict[str, object] = {title: runs[0][key] for title, key in keys.items()}
        lines.append(line | {title: cell(runs) for title, cell in cells.items()})
    return Table.of(lines)


def mean(name: str, form: str) -> Cell:
    """Format the mean of a value over rows."""
    return lambda runs: format(statistics.fmean(row[name] for row in runs), form)


def paired(runs: Iterable[dict], base: Iterable[dict], value: str, *keys: str) -> list[float]:
    """Return differences of a value, runs minus base, over common keys."""
    case = itemgetter(*keys)
    by_case = {case(row): row[value] for row in base}
    return [row[value] - by_case[case(row)] for row in runs if case(row) in by_case]


def mean_ranks(cases: Iterable[Mapping[str, float]], methods: Sequence[str]) -> dict[str, float]:
    """Return mean ranks over the common cases of all methods: 1 for the smallest; ties share."""
    complete = [[case[m] for m in methods] for case in cases if set(methods) <= set(case)]
    means = rankdata(complete, axis=1).mean(0) if complete else ()
    return dict(zip(methods, means, strict=bool(complete)))


def mean_and_error(values: Sequence[float], form: str = ".3f", sign: str = "") -> str:
    """Write mean and standard error (of several values)."""
    if not values:
        return ""
    mean = format(statistics.fmean(values), sign + form)
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / math.sqrt(len(values)):{form}}"


def pages() -> list[Path]:
    """Return the pages with tables: RESULTS.md, the README and pages of the site."""
    docs = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    return [RESULTS, ROOT / "README.md", *sorted(docs)]


def main(argv: Sequence[str] | None = None) -> int:
    """Update the pages from the tables."""
    argparse.ArgumentParser("python -m benchmarks.report", description=__doc__).parse_args(argv)
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := render(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
