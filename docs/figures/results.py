"""Figures of the results, from the tables of benchmarks/results.

``python docs/figures/results.py`` draws all figures, ``... NAME`` one of them. Each contains a
digest of its tables, by which a test detects outdated figures.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1]))

from benchmarks.report import Table, numbers, read_table  # noqa: E402

__all__ = ["FIGURES", "digest", "draw"]

# Okabe and Ito's colours, which colour-blind readers can distinguish; markers differ, too.
BLUE, ORANGE, GREEN, PINK, GRAY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#767676"
STYLES = [(BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PINK, "D"), (GRAY, "v"), ("#56b4e9", "P")]
SETTINGS = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.hashsalt": "gpytorch_nkn",
    "figure.constrained_layout.use": True,
}
TABLES = ("yacht", "boston", "energy", "concrete", "kin8nm")
BBOB = {
    2: "separable ellipsoid",
    4: "Büche-Rastrigin",
    6: "attractive sector",
    8: "Rosenbrock",
    10: "ellipsoid",
    12: "bent cigar",
    14: "different powers",
    16: "Weierstrass",
    18: "Schaffers",
    20: "Schwefel",
    22: "Gallagher, 21 peaks",
    24: "Lunacek",
}


def number(cell: str) -> float:
    """Return the first number of a cell; NaN without a number."""
    return next(iter(numbers(cell)), math.nan)


def errors(cells: Sequence[str]) -> list[float]:
    """Return the numbers after the plus-minus signs."""
    return [number(cell.partition("±")[2]) for cell in cells]


def rows_of(axes: Any, names: Sequence[str]) -> list[int]:
    """Draw a faint line for each name, and return the heights from the top down."""
    heights = list(range(len(names)))[::-1]
    axes.set_yticks(heights, names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", color="0.9")
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    return heights


def dots(
    axes: Any, names: Sequence[str], values: dict[str, list[float]], spreads: dict | None = None
) -> None:
    """Draw one line per name, with one marker per method."""
    lines = rows_of(axes, names)
    shift = 0.5 / max(len(values), 1)
    for count, (method, found) in enumerate(values.items()):
        color, marker = STYLES[count]
        heights = [line + shift * ((len(values) - 1) / 2 - count) for line in lines]
        axes.errorbar(
            found, heights, xerr=(spreads or {}).get(method), fmt=marker, color=color,
            markersize=6, elinewidth=1.2, label=method,
        )  # fmt: skip


def forecasts(figure: Any, panel: Table) -> None:
    """Errors, interval scores and coverage of the panel."""
    names = {
        "default": "NKNForecaster",
        '`quality="fast"`': "NKNForecaster, fast",
        "SeasonalNaive": "seasonal naive",
    }
    methods = [names.get(name, name) for name in panel.column("method")]
    errors_of = {
        "MASE / combination": [  # the standard error of a logarithm is relative
            0.0 if math.isnan(error) else error * number(cell)
            for error, cell in zip(
                errors(panel.column("log ratio to the combination")),
                panel.column("MASE / combination"),
                strict=True,
            )
        ]
    }
    columns = [
        ("MASE / combination", "error (MASE), with standard errors", 1.0),
        ("MSIS / combination", "interval score (MSIS)", 1.0),
        ("95 % coverage", "% covered by 95 % intervals", 95.0),
    ]
    grid = figure.subplots(3, 1)
    for axes, (column, title, line) in zip(grid, columns, strict=True):
        heights = rows_of(axes, methods)
        spreads = errors_of.get(column, [0.0] * len(methods))
        axes.axvline(line, color="0.5", linewidth=1, linestyle="--")
        for name, height, cell, spread in zip(
            methods, heights, panel.column(column), spreads, strict=True
        ):
            color, marker = STYLES[not name.startswith("NKN")]
            axes.errorbar(number(cell), height, xerr=spread, fmt=marker, color=color, markersize=6)
        axes.set_title(title)
    grid[0].set_xlabel("relative to the combination; left is better")
    grid[1].set_xlabel("relative to the combination; left is better")
    grid[2].set_xlabel("dashed: nominal coverage")


def regression(figure: Any, scores: Table, gain: Table) -> None:
    """Errors on tables, relative to an RBF kernel, and log densities."""
    left, right = figure.subplots(2, 1, height_ratios=[3, 2])
    methods = {"NKNRegressor": "NKNRegressor", "Matern-5/2-ARD": "Matern-5/2"}
    values: dict[str, list[float]] = {name: [] for name in [*methods.values(), "paper's network"]}
    spreads: dict[str, list[float]] = {name: [] for name in values}
    for one in TABLES:
        base = number(scores.cell(f"{one}, RBF-ARD", "RMSE"))
        for method, name in methods.items():
            cell = scores.cell(f"{one}, {method}", "RMSE")
            values[name].append(number(cell) / base)
            spreads[name].append(errors([cell])[0] / base)
        published, theirs = (
            number(scores.cell(f"{one}, {method}", "published RMSE"))
            for method in ("NKNRegressor", "RBF-ARD")
        )
        values["paper's network"].append(published / theirs)
        spreads["paper's network"].append(0.0)
    dots(left, TABLES, values, spreads)
    left.axvline(1.0, color="0.5", linewidth=1, linestyle="--")
    left.set_title("RMSE relative to an RBF kernel with a lengthscale per column")
    left.set_xlabel(
        "ten random splits, standard errors; left is better\n(paper: relative to its RBF kernel)"
    )
    left.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.4, -0.28), columnspacing=1.0)
    cells = gain.column("log density of ours less theirs")
    gains = {"": [number(cell) for cell in cells]}
    dots(right, gain.column("set"), gains, {"": errors(cells)})
    right.axvline(0.0, color="0.5", linewidth=1, linestyle="--")
    right.set_title("log density less that of the better of RBF and Matern")
    right.set_xlabel("nats per observation, with standard errors; right is better")


def support_vectors(figure: Any, gains: Table) -> None:
    """Gains of learned kernels over a tuned support vector machine."""
    axes = figure.subplots()
    kept = [row for row in gains.rows if not row[0].startswith("of ")]
    methods = {
        "DANK, defaults": "DANKClassifier",
        "DANK, relevance=None": "factor of the paper alone",
        "Laplacian SVM-CV": "Laplacian kernel",
    }
    cells = {
        name: [row[gains.columns.index(column)] for row in kept] for column, name in methods.items()
    }
    spreads = {
        name: [0.0 if math.isnan(e) else e for e in errors(column)]
        for name, column in cells.items()
    }
    values = {name: [number(cell) for cell in column] for name, column in cells.items()}
    dots(axes, [row[0].replace(", official split", "*") for row in kept], values, spreads)
    axes.axvline(0.0, color="0.5", linewidth=1, linestyle="--")
    axes.set_xlabel("points of accuracy above a tuned SVM, with standard errors\n* official split")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, 1.12), ncols=3, columnspacing=0.8,
                handletextpad=0.2)  # fmt: skip


def textures(figure: Any, cases: Table) -> None:
    """Errors in the holes of textures."""
    axes = figure.subplots()
    cases_ = list(dict.fromkeys(cases.column("case")))
    names = [name.replace("plate (", "metal plate, hole at (") for name in cases_]
    names[0] = "metal plate, hole of the paper"
    found = {(row[0], row[1]): number(row[2]) for row in cases.rows}
    methods = {
        "NKN": "KroneckerGridGP",
        "spectral mixture 10": "spectral mixture",
        "RBF": "RBF",
        "periodic": "periodic",
        "published fill": "published result",
    }
    values = {
        label: [found.get((case, method), math.nan) for case in cases_]
        for method, label in methods.items()
    }
    dots(axes, names, values)
    axes.axvline(1.0, color="0.5", linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_xticks([0.1, 0.2, 0.5, 1.0], ["0.1", "0.2", "0.5", "1"])
    axes.minorticks_off()
    axes.set_xlabel("squared error relative to the\nvariance in the hole; left is better")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.25, 1.2), columnspacing=0.8)


def photographs(figure: Any, seen: Table, unseen: Table) -> None:
    """Errors of inpainted photographs relative to the best of three others."""
    axes = figure.subplots()
    kinds = ["scratches", "text", "edge", "hole"]
    lines = rows_of(axes, ["scratches", "text", "hole at the edge", "hole inside"])
    for (color, marker), label, one, up in zip(
        STYLES,
        ["defaults chosen with these", "unseen"],
        [seen, unseen],
        [0.12, -0.12],
        strict=False,
    ):
        rows = [row for row in one.rows if row[1] in kinds]
        column = one.columns.index("to the best")
        heights = [lines[kinds.index(row[1])] + up for row in rows]
        axes.plot([number(row[column]) for row in rows], heights, marker, color=color, alpha=0.75,
                  label=label)  # fmt: skip
    axes.axvline(0.0, color="0.5", linewidth=1, linestyle="--")
    axes.set_xlabel("dB above the best of biharmonic, Telea\nand Navier-Stokes; right is better")
    axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.4, 1.14))


def optimisation(figure: Any, curves: Table) -> None:
    """Regret against evaluations, a panel for each function."""
    methods = {
        "structures": "StructureEnsembleGP",
        "singletask": "SingleTaskGP",
        "matern": "with Matern-5/2",
        "cma": "CMA-ES",
        "turbo": "TuRBO-1",
    }
    panels = figure.subplots(4, 3, sharex=True).ravel()
    counts = [int(column) for column in curves.columns[2:]]
    for axes, (function, name) in zip(panels, BBOB.items(), strict=True):
        for (method, label), (color, marker) in zip(methods.items(), STYLES, strict=False):
            (row,) = (r for r in curves.rows if r[0].startswith(f"{function},") and r[1] == method)
            values = [number(cell) for cell in row[2:]]
            axes.plot(counts, values, f"-{marker}", color=color, label=label, markersize=3)
        axes.set_yscale("log")
        axes.minorticks_off()
        ends = [end(line.get_ydata()) for end in (min, max) for line in axes.lines]
        ticks = [min(ends), max(ends)]
        axes.set_yticks(ticks, [f"{t:,.0f}" if t >= 10 else f"{t:.2g}" for t in ticks])
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=8)
    figure.supxlabel("evaluations", fontsize=10)
    figure.supylabel("regret (less is better)", fontsize=10)
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=2, loc="outside upper center")


def training_step(figure: Any, steps: Table) -> None:
    """Time of a step of the marginal likelihood, in steps of an RBF kernel."""
    axes = figure.subplots()
    sizes = [int(number(column.partition("=")[2])) for column in steps.columns[1:]]
    methods = {
        "network, plain": "plain PyTorch",
        "drop-in": "tiles, in PyTorch",
        "compiled drop-in": "compiled",
        "compiled, our likelihood": "and our likelihood",
        "compiled fused loss": "and fused loss",
    }
    by_way = {row[0]: [number(cell) for cell in row[1:]] for row in steps.rows}
    for (way, label), (color, marker) in zip(methods.items(), STYLES, strict=False):
        axes.plot(sizes, by_way[way], f"-{marker}", color=color, label=label)
    axes.axhline(1.0, color="0.5", linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["0.25", "0.5", "1", "2", "4", "8"])
    axes.minorticks_off()
    axes.set_xlabel("rows")
    axes.set_title("time of a training step, in steps of GPyTorch's RBF kernel")
    axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.45, -0.16), columnspacing=0.8)


def scaling(figure: Any, found: Table) -> None:
    """Seconds and memory by the number of rows."""
    names = list(dict.fromkeys(found.column("way")))
    panels = [("CPU s", "seconds of one core"), ("GB", "gigabytes")]
    for axes, (column, title) in zip(figure.subplots(2, 1), panels, strict=True):
        index = found.columns.index(column)
        for name, (color, marker) in zip(names, STYLES, strict=True):
            own = [row for row in found.rows if row[0] == name]
            rows = [number(row[1].replace(",", "")) for row in own]
            axes.plot(rows, [number(row[index]) for row in own], f"-{marker}", color=color,
                      label=name)  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(title)
        axes.grid(color="0.92")
    axes.set_xlabel("rows, points or pixels")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.22), columnspacing=0.8)


# Drawing function, height in inches, and tables of each figure.
FIGURES: dict[str, tuple[Callable[..., None], float, tuple[str, ...]]] = {
    "forecasts": (forecasts, 7.5, ("panel",)),
    "regression": (regression, 6.2, ("uci", "uci_gain")),
    "support_vectors": (support_vectors, 4.6, ("dank_classes_gain",)),
    "textures": (textures, 4.6, ("texture",)),
    "photographs": (photographs, 3.6, ("photographs_seen", "photographs_unseen")),
    "optimisation": (optimisation, 7.2, ("bbob_curves",)),
    "training_step": (training_step, 4.6, ("step_1d",)),
    "scaling": (scaling, 6.6, ("scaling",)),
}


def tables_of(name: str) -> list[Table]:
    """Return the tables of a figure."""
    return [read_table(table) for table in FIGURES[name][2]]


def digest(name: str) -> str:
    """Return the digest of a figure's tables."""
    return hashlib.sha256(json.dumps(tables_of(name)).encode()).hexdigest()[:16]


def draw(name: str) -> None:
    """Write a figure to the folder of this file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    paint, height, _ = FIGURES[name]
    with pyplot.rc_context(SETTINGS):
        figure = pyplot.figure(figsize=(5.6, height))
        paint(figure, *tables_of(name))
        about = {"Date": None, "Description": f"tables {digest(name)}"}
        figure.savefig(FOLDER / f"{name}.svg", metadata=about, facecolor="white")
        pyplot.close(figure)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or FIGURES:
        draw(chosen)
