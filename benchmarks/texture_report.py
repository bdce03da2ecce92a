"""Tables and pictures of the texture benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "held_from", "report"]

_OURS = "nkn"
_PUBLISHED = 0.217  # SMSE of the published fill of the plate
_AIM_PLATE, _AIM_OTHERS, _AIM_SECONDS = 0.12, 0.128, 3.0
_PANEL = 2.55  # inches
_MARGIN = 32  # pixels that are shown around a hole


def held_from(errors: Mapping[int, float], limit: float) -> int | None:
    """The least number of steps from which on all errors, the whole training's too, keep a limit.

    Args:
        errors: By number of steps; 0 for the whole training.
        limit: Highest error.
    """
    held = None
    for steps in sorted(errors, key=lambda k: (k == 0, k), reverse=True):
        if not errors[steps] <= limit:
            break
        held = steps or None
    return held


def report(records: Sequence[dict], cases: Mapping[str, str], methods: Mapping[str, str]) -> str:
    """Markdown: all runs, the mean of the plate's other holes, short trainings, aims.

    Args:
        records: Of the runs that are there.
        cases: Titles of the cases by their names, in the order of the rows.
        methods: Titles of the methods, likewise.
    """
    runs: dict[tuple[str, str], list[dict]] = {}
    for record in sorted(records, key=lambda record: record["seed"]):
        runs.setdefault((record["case"], record["method"]), []).append(record)
    runs = {(c, m): runs[c, m] for c in cases for m in methods if (c, m) in runs}
    early = [record for record in records if record["method"].startswith("prefix")]
    if not runs and not early:
        return "No results."
    lines = [
        "Mean over the seeds, and each seed. SMSE: mean squared error in units of the variance of "
        "the truth in the hole. Log densities are per pixel, of gray values from 0 to 1. Seconds: "
        "wall time of the steps of the training and of the whole call, and the processor's time of "
        "that. In brackets: row and column where another hole begins.",
        "",
    ]
    head = ["case", "method", "SMSE", "95 % coverage", "-log density"]
    head += ["training s", "in all s", "CPU s"]
    lines += [_row(*head), _row(*["---"] * len(head))]
    for (case, method), own in runs.items():
        lines.append(
            _row(
                cases[case],
                methods[method],
                _cell([r["smse"] for r in own], ".3f"),
                _cell([r["coverage"] for r in own], ".1%"),
                _cell([r["nlpd"] for r in own], ".3f"),
                _cell([r["training_s"] for r in own], ".1f"),
                _cell([r["all_s"] for r in own], ".1f"),
                _cell([r["cpu_s"] for r in own], ".1f"),
            )
        )
    others = _other_holes(runs, methods)
    if others:
        lines += ["", "Plate, mean of the other holes:", "", _row("method", *head[2:5])]
        lines.append(_row(*["---"] * 4))
        for method, columns in others.items():
            kinds = zip(columns, (".3f", ".1%", ".3f"), strict=True)
            lines.append(_row(methods[method], *(_cell(own, kind) for own, kind in kinds)))
    reach = _reach_table(early)
    return "\n".join([*lines, *reach, *_aims(runs, others, early)])


def _other_holes(runs: Mapping, methods: Mapping[str, str]) -> dict[str, list[list[float]]]:
    """By method: SMSE, coverage and density of each seed, mean over the other holes."""
    found = {}
    for method in methods:
        own = [r for (c, m), group in runs.items() if m == method and "plate-" in c for r in group]
        seeds = sorted({record["seed"] for record in own})
        if own:
            found[method] = [
                [statistics.fmean(r[name] for r in own if r["seed"] == seed) for seed in seeds]
                for name in ("smse", "coverage", "nlpd")
            ]
    return found


def _reached(early: Sequence[dict]) -> dict[int, tuple[dict | None, dict]]:
    """By seed: the shortest training whose error holds (if any), and the whole one."""
    found = {}
    for seed in sorted({record["seed"] for record in early}):
        own = {int(r["method"].split()[1]): r for r in early if r["seed"] == seed}
        if 0 in own:
            steps = held_from({k: record["smse"] for k, record in own.items()}, _PUBLISHED)
            found[seed] = own.get(steps) if steps else None, own[0]
    return found


def _reach_table(early: Sequence[dict]) -> list[str]:
    reached = _reached(early)
    if not reached:
        return []
    lines = [
        "",
        f"Plate, the paper's hole: steps on the likelihood after which the SMSE stays at or below "
        f"{_PUBLISHED} (all longer ones in fives to 80, and the whole training from one start); "
        "seconds from the image to the fill:",
        "",
        _row("seed", "steps", "SMSE", "wall s", "CPU s", "SMSE of the whole", "its wall s"),
        _row(*["---"] * 7),
    ]
    for seed, (short, whole) in reached.items():
        cells = ["never", "", "", ""]
        if short is not None:
            cells = [short["method"].split()[1], f"{short['smse']:.3f}"]
            cells += [f"{short[name]:.2f}" for name in ("all_s", "cpu_s")]
        lines.append(_row(seed, *cells, f"{whole['smse']:.3f}", f"{whole['all_s']:.1f}"))
    return lines


def _aims(runs: Mapping, others: Mapping, early: Sequence[dict]) -> list[str]:
    lines = []

    def add(what: str, value: float, aim: float) -> None:
        verdict = "met" if value <= aim else "MISSED"
        lines.append(f"- {what}: {value:.3f} (aim {aim:g}): {verdict}")

    means = {key: statistics.fmean(r["smse"] for r in own) for key, own in runs.items()}
    if ("plate", _OURS) in means:
        add("plate, the paper's hole, SMSE of the NKN", means["plate", _OURS], _AIM_PLATE)
    if _OURS in others:
        add("plate, mean of the other holes", statistics.fmean(others[_OURS][0]), _AIM_OTHERS)
    reached = [short for short, _ in _reached(early).values()]
    if reached:
        slowest = max(float("inf") if r is None else r["all_s"] for r in reached)
        add("plate, seconds to the published error, slowest seed", slowest, _AIM_SECONDS)
    for (case, method), value in means.items():
        rest = {m: v for (c, m), v in means.items() if c == case and m != _OURS}
        if method == _OURS and rest:
            best = min(rest, key=lambda m: rest[m])
            verdict = "met" if value <= rest[best] else "MISSED"
            lines.append(
                f"- {case}, no worse than any other: {value:.3f} to {rest[best]:.3f} ({best}): "
                f"{verdict}"
            )
    return ["", "Aims:", "", *lines] if lines else []


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _cell(values: Sequence[float], kind: str) -> str:
    """Mean, and each where there are several; nothing for NaN."""
    if np.isnan(values).any():
        return ""
    mean = format(statistics.fmean(values), kind)
    return mean if len(values) < 2 else f"{mean} ({', '.join(format(v, kind) for v in values)})"


def draw(
    path: Path,
    title: str,
    truth: np.ndarray,
    mask: np.ndarray,
    fills: Mapping[str, np.ndarray],
    std: np.ndarray | None = None,
) -> bool:
    """Draw truth, hole, fills and the standard deviation in it; False without matplotlib.

    Args:
        path: The picture.
        title: Above it.
        truth: Image ``H x W``.
        mask: Booleans ``H x W``, true in the hole.
        fills: Filled images by their titles.
        std: Standard deviations ``H x W`` of the first fill.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    count = 2 + len(fills) + (std is not None)
    columns = min((5, 4, 3), key=lambda n: (-count % n, -n))
    rows = -(-count // columns)
    figure = Figure(figsize=(_PANEL * columns, _PANEL * rows + 1.0), dpi=150)
    figure.set_layout_engine("constrained", h_pad=0.1, w_pad=0.08)
    FigureCanvasAgg(figure)
    axes = list(np.ravel(figure.subplots(rows, columns)))
    low, high = np.quantile(truth, [0.002, 0.998])
    given = np.ma.masked_array(truth, mask)
    whole = slice(0, truth.shape[0]), slice(0, truth.shape[1])
    near = _around(mask)
    for ax in axes[count:]:
        ax.set_visible(False)
    panels = {"what is given": given, "truth": truth, **fills}
    for ax, (name, image) in zip(axes, panels.items(), strict=False):
        ax.imshow(image, cmap="gray", vmin=low, vmax=high)
        _finish(ax, name, mask, whole if ax is axes[0] else near)
    if std is not None:
        own = axes[count - 1]
        own.imshow(given, cmap="gray", vmin=low, vmax=high)
        shown = own.imshow(np.ma.masked_array(std, ~mask), cmap="viridis", vmin=0.0)
        _finish(own, f"standard deviation\nof {next(iter(fills)).splitlines()[0]}", mask, near)
        bar = figure.colorbar(shown, ax=own, location="bottom", shrink=0.9)
        bar.outline.set_visible(False)
        bar.set_label("0 black, 1 white", fontsize=9)
        bar.ax.tick_params(labelsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.savefig(path)
    return True


def _around(mask: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns of the hole and its surroundings, as many at every place of a hole."""
    windows = []
    for axis in (0, 1):
        inside = np.flatnonzero(mask.any(1 - axis))
        length = min(mask.shape[axis], int(np.ptp(inside)) + 1 + 2 * _MARGIN)
        first = int(np.clip(inside[0] - _MARGIN, 0, mask.shape[axis] - length))
        windows.append(slice(first, first + length))
    return windows[0], windows[1]


def _finish(ax: Axes, name: str, mask: np.ndarray, window: tuple[slice, slice]) -> None:
    from gpytorch_nkn.plotting.style import ORANGE

    ax.set_facecolor("#d9e4f1")
    padded = np.pad(mask, 1).astype(float)  # closes the lines at the borders
    across, down = (np.arange(-1, size + 1) for size in reversed(mask.shape))
    ax.contour(across, down, padded, levels=[0.5], colors=ORANGE, linewidths=0.9)
    rows, columns = window
    ax.set_anchor("NW")
    ax.set(xlim=(columns.start - 1, columns.stop), ylim=(rows.stop, rows.start - 1))
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_title(name, loc="left", fontsize=9)
