"""Tables of the runs of the benchmark of data-adaptive support vector machines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy.stats import t as student

from benchmarks.dank_protocol import METHODS

__all__ = ["PUBLISHED", "Paired", "paired", "report"]

# Liu et al. (2020), tables 1 and 6: mean and standard deviation over 10 runs of SVM-CV, then of
# DANK; accuracy in percent, or relative squared error (a fraction there), in percent.
PUBLISHED = {
    "heart": ((81.9, 2.4), (87.9, 2.9)),
    "monks1": ((81.4, 0.0), (83.6, 1.5)),
    "monks2": ((85.8, 1.4), (86.7, 0.9)),
    "sonar": ((85.3, 3.1), (87.0, 2.7)),
    "glass": ((69.8, 2.0), (74.5, 1.3)),
    "mpg": ((19.3, 0.6), (17.3, 0.8)),
    "housing": ((26.7, 2.3), (21.8, 1.3)),
    "mg": ((40.7, 11.8), (30.3, 5.8)),
}
_LEVEL = 0.05  # of two-sided paired t-tests
_SAME = 0.01  # below which a mean gain is none: two solutions of one machine differ by 1e-4
_LEARNED = ("norm_reciprocal", "norm_smooth", "nonparametric", "dank")
_PEERS = ("laplacian", "ard", "gp")


class Paired:
    """Differences of scores on the same splits, better if positive.

    Args:
        gains: One for each split.
    """

    def __init__(self, gains: Sequence[float]):
        self.count = len(gains)
        self.mean = statistics.mean(gains)
        self.error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0

    @property
    def t(self) -> float:
        """Mean over its standard error; 0 where there is no difference at all."""
        if self.error:
            return self.mean / self.error
        return math.copysign(math.inf, self.mean) if self.mean else 0.0

    @property
    def verdict(self) -> str:
        """``"better"``, ``"worse"`` or nothing, by a two-sided t-test at 5 %."""
        if self.count < 2 or abs(self.mean) < _SAME:
            return ""
        if abs(self.t) < student.ppf(1.0 - _LEVEL / 2.0, self.count - 1):
            return ""
        return "better" if self.mean > 0 else "worse"

    def __str__(self) -> str:
        mark = {"better": " **better**", "worse": " **WORSE**", "": ""}[self.verdict]
        shown = self.count > 1 and self.error and abs(self.mean) >= _SAME
        t = f" (t {self.t:+.1f})" if shown else ""
        mean = f"{round(self.mean, 2) + 0.0:+.2f}"  # no negative zero
        return mean if self.count < 2 else f"{mean} ± {self.error:.2f}{t}{mark}"


def paired(records: Sequence[dict], method: str, reference: str) -> Paired | None:
    """How much better one method is than another on the splits that both have.

    Args:
        records: Of one table.
        method: Key of ``METHODS``.
        reference: The other one.
    """
    theirs = {run["repeat"]: run["score"] for run in records if run["method"] == reference}
    gains = [
        (run["score"] - theirs[run["repeat"]]) * (1 if run["classes"] else -1)
        for run in records
        if run["method"] == method and run["repeat"] in theirs
    ]
    return Paired(gains) if gains else None


def report(records: Sequence[dict]) -> str:
    """Markdown: scores, paired differences, times, and how definite the kernels are.

    Args:
        records: Of the runs that are there.
    """
    if not records:
        return "No results."
    tables: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        tables.setdefault((record["set"], record["split"]), []).append(record)
    lines = []
    for title, classes in (
        ("Classification: accuracy, %", True),
        ("Regression: squared error over the variance of the test targets, %", False),
    ):
        chosen = {
            _name(key): runs for key, runs in tables.items() if bool(runs[0]["classes"]) == classes
        }
        if chosen:
            lines += ["", f"### {title}", "", *_scores(chosen), "", *_gains(chosen)]
            lines += ["", *_published(chosen)]
    return "\n".join([*lines, "", *_costs(tables), "", *_versions(records)])


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]}, official split" if key[1] == "official" else key[0]


def _scores(tables: dict[str, list[dict]]) -> list[str]:
    methods = _present(tables, METHODS)
    lines = _head("set", "rows, columns", "runs", *(METHODS[m] for m in methods))
    for name, runs in tables.items():
        cells = []
        for method in methods:
            scores = [run["score"] for run in runs if run["method"] == method]
            spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            cells.append(f"{statistics.mean(scores):.2f}{spread}" if scores else "")
        size = f"{runs[0]['n']} x {runs[0]['d']}"
        count = len({run["repeat"] for run in runs})
        lines.append(_row(name, size, str(count), *cells))
    return ["Mean ± standard deviation:", "", *lines]


def _gains(tables: dict[str, list[dict]]) -> list[str]:
    """Over the SVM; and of the defaults over the peers, and without any tuning."""
    over_svm = [(m, "svm") for m in _present(tables, (*_LEARNED, *_PEERS))]
    of_defaults = [("dank", peer) for peer in _present(tables, _PEERS)]
    of_defaults += [("dank_untuned", "svm_untuned")] * bool(_present(tables, ("dank_untuned",)))
    note = (
        "mean ± standard error (positive is better; marked where a two-sided paired t-test at 5 % "
        "says so):"
    )
    lines = [f"Gains over SVM-CV on the same splits, {note}", ""]
    lines += _pairs(tables, over_svm, [METHODS[a] for a, _ in over_svm])
    if not of_defaults:
        return lines
    lines += ["", f"Gains of the defaults of DANK, {note}", ""]
    titles = [
        f"over {METHODS[b]}" if a == "dank" else f"untuned, over {METHODS[b]}"
        for a, b in of_defaults
    ]
    return [*lines, *_pairs(tables, of_defaults, titles)]


def _pairs(
    tables: dict[str, list[dict]], pairs: Sequence[tuple[str, str]], titles: Sequence[str]
) -> list[str]:
    """A row for each table, and one that counts."""
    lines = _head("set", *titles)
    counts = [{"better": 0, "worse": 0, "": 0} for _ in pairs]
    for name, runs in tables.items():
        found = [paired(runs, a, b) for a, b in pairs]
        for count, gain in zip(counts, found, strict=True):
            if gain is not None:
                count[gain.verdict] += 1
        lines.append(_row(name, *("" if gain is None else str(gain) for gain in found)))
    cells = [f"{count['better']} better, {count['worse']} worse" for count in counts]
    return [*lines, _row(f"of {len(tables)}", *cells)]


def _published(tables: dict[str, list[dict]]) -> list[str]:
    lines = _head("set", "SVM-CV, published", "ours", "DANK, published", "DANK, defaults")
    size = len(lines)
    for name, runs in tables.items():
        own = "official" if runs[0]["set"].startswith("monks") else "half"
        if runs[0]["set"] not in PUBLISHED or runs[0]["split"] != own:
            continue
        svm, dank = PUBLISHED[runs[0]["set"]]
        ours = [
            [run["score"] for run in runs if run["method"] == method] for method in ("svm", "dank")
        ]
        cells = [f"{statistics.mean(scores):.1f}" if scores else "" for scores in ours]
        lines.append(
            _row(name, "{:.1f} ± {:.1f}".format(*svm), cells[0],
                 "{:.1f} ± {:.1f}".format(*dank), cells[1])
        )  # fmt: skip
    return lines if len(lines) > size else []


def _costs(tables: dict[tuple[str, str], list[dict]]) -> list[str]:
    named = {_name(key): runs for key, runs in tables.items()}
    methods = _present(named, METHODS)
    lines = _head("set", *(METHODS[m] for m in methods))
    for name, runs in named.items():
        cells = []
        for method in methods:
            seconds = [run["fit_cpu"] for run in runs if run["method"] == method]
            cells.append(f"{statistics.mean(seconds):.3g}" if seconds else "")
        lines.append(_row(name, *cells))
    found = [run["chosen"] for runs in named.values() for run in runs]
    found = [chosen for chosen in found if "lowest_eigenvalue" in chosen]
    text = []
    if found:
        lowest = min(chosen["lowest_eigenvalue"] for chosen in found)
        ratio = min(chosen["lowest_eigenvalue"] / chosen["highest_eigenvalue"] for chosen in found)
        text = [
            "",
            f"{len(found)} learned kernels between all rows of training and test: least eigenvalue "
            f"{lowest:.1e}, relative to the greatest one {ratio:.1e}.",
        ]
    return [
        "CPU seconds of a fit, with its searches, on one thread (those of learned kernels come on "
        "top of the SVM's, which they start from):",
        "",
        *lines,
        *text,
    ]


def _versions(records: Sequence[dict]) -> list[str]:
    versions = ", ".join(f"{key} {value}" for key, value in records[-1]["versions"].items())
    return [f"One thread. {versions}."]


def _present(tables: dict[str, list[dict]], methods: Sequence[str] | dict) -> list[str]:
    there = {run["method"] for runs in tables.values() for run in runs}
    return [method for method in methods if method in there]


def _head(*cells: str) -> list[str]:
    return [_row(*cells), _row(*["---"] * len(cells))]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
