"""Tables of the runs of the benchmark of spectral kernel learning, beside the published figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from benchmarks.askl_references import REFERENCES
from benchmarks.uci_report import mean_and_error

__all__ = ["AIMS", "METHODS", "PUBLISHED", "differences", "report"]

METHODS = {
    "SK": "SK: stationary, assigned",
    "NSK": "NSK: non-stationary, assigned",
    "SKL": "SKL: stationary, learned",
    "NSKL": "NSKL: non-stationary, learned",
    "ASKL": "ASKL: NSKL, trace and feature norms",
    **REFERENCES,
}
# Li, Liu and Wang (2020), table 2: mean and standard deviation over 30 splits, of the accuracy in
# percent, or of the RMSE on [0, 100] in the second half. Two rows cannot be right: the mean of the
# targets alone has an error of 6.3 on space_ga and of 23.8 on cadata.
_COLUMNS = ("SK", "NSK", "SKL", "NSKL", "ASKL")
PUBLISHED: dict[str, tuple[tuple[float, float], ...]] = {
    "segment": ((89.93, 2.12), (90.15, 2.08), (94.58, 1.86), (94.37, 0.81), (95.02, 1.54)),
    "satimage": ((74.54, 1.35), (75.15, 1.38), (83.61, 1.08), (83.74, 1.34), (85.32, 1.45)),
    "usps": ((93.19, 2.84), (93.81, 2.13), (95.13, 0.91), (95.27, 1.65), (97.76, 1.14)),
    "pendigits": ((96.93, 1.53), (97.39, 1.41), (98.19, 2.30), (98.28, 1.68), (99.06, 1.26)),
    "letter": ((76.50, 1.21), (78.21, 1.56), (93.60, 1.14), (94.66, 2.21), (95.70, 1.74)),
    "poker": ((49.80, 2.11), (51.85, 0.97), (54.27, 2.72), (54.69, 1.68), (54.85, 1.28)),
    "shuttle": ((98.17, 2.81), (98.21, 1.46), (98.87, 1.42), (98.74, 1.07), (98.98, 0.94)),
    "mnist": ((96.03, 2.21), (96.45, 2.16), (96.67, 1.61), (98.03, 1.16), (98.26, 1.78)),
    "abalone": ((10.09, 0.42), (9.71, 0.28), (8.35, 0.28), (7.85, 0.42), (7.88, 0.16)),
    "space_ga": ((11.86, 0.26), (11.58, 0.42), (11.40, 0.18), (11.39, 0.46), (11.34, 0.27)),
    "cpusmall": ((2.77, 0.71), (2.84, 0.38), (2.56, 0.72), (2.57, 0.63), (2.42, 0.48)),
    "cadata": ((50.31, 0.92), (51.47, 0.32), (47.67, 0.33), (47.71, 0.30), (46.34, 0.23)),
}
_OF = {"mnist_10k_10k": "mnist"}  # which has 60,000 rows for training there
AIMS = {
    "segment": 97.3,
    "satimage": 92.0,
    "letter": 97.8,
    "mnist_10k_10k": 97.0,
    "abalone": 7.5,
    "cpusmall": 2.8,
}
_OURS, _PEER = "ASKL", "rff_ridge"
_POINTS = 0.5  # by which the accuracy may fall below that of tuned random features


def report(records: Sequence[dict]) -> str:
    """Markdown: a table for each set, then the aims, the choices and the versions.

    Args:
        records: Of the runs that are there.
    """
    if not records:
        return "No results."
    lines = [
        "Mean ± standard error over the splits; differences in pairs, on the same splits. `fit CPU "
        "s`: process time on one thread, of the choice of settings, too, where there is one. "
        "Published: Li, Liu and Wang (2020), table 2, mean ± standard deviation over 30 splits.",
        "",
    ]
    for name in dict.fromkeys(record["set"] for record in records):
        lines += _table(name, [record for record in records if record["set"] == name])
    return "\n".join([*lines, *_aims(records), *_choices(records), *_versions(records)])


def differences(ours: Sequence[dict], theirs: Sequence[dict]) -> list[float]:
    """Our scores less theirs on the splits and seeds that both have."""
    scores = {(run["split"], run["seed"]): run["score"] for run in theirs}
    return [
        run["score"] - scores[run["split"], run["seed"]]
        for run in ours
        if (run["split"], run["seed"]) in scores
    ]


def _table(name: str, records: Sequence[dict]) -> list[str]:
    first = records[0]
    measure = "accuracy, %" if first["classes"] else "RMSE on [0, 100]"
    sort = f", {first['classes']} classes" if first["classes"] else ""
    lines = [f"### {name} ({first['n']:,} training rows, {first['d']} columns{sort})", ""]
    head = ["method", "runs", measure, f"less {_OURS}", "fit CPU s", "predict CPU s", "published"]
    lines += [_row(*head), _row(*["---"] * len(head))]
    published = PUBLISHED.get(_OF.get(name, name))
    ours = _of(records, _OURS)
    for method, title in METHODS.items():
        runs = _of(records, method)
        if not runs:
            continue
        figure = ""
        if published and method in _COLUMNS:
            figure = "{:.2f} ± {:.2f}".format(*published[_COLUMNS.index(method)])
        gaps = differences(runs, ours) if method != _OURS else []
        lines.append(
            _row(
                title,
                str(len(runs)),
                mean_and_error([run["score"] for run in runs]),
                _difference(gaps),
                *(
                    f"{statistics.mean(run[k] for run in runs):.3g}"
                    for k in ("fit_cpu", "predict_cpu")
                ),
                figure,
            )
        )
    return [*lines, ""]


def _aims(records: Sequence[dict]) -> list[str]:
    head = ["set", _OURS, "aim", "", f"less {METHODS[_PEER]}", "in standard errors", ""]
    lines = [_row(*head), _row(*["---"] * len(head))]
    for name in dict.fromkeys(record["set"] for record in records):
        here = [record for record in records if record["set"] == name]
        ours, theirs = _of(here, _OURS), _of(here, _PEER)
        if not ours:
            continue
        sign = 1 if ours[0]["classes"] else -1  # of what is better
        mean = statistics.mean(run["score"] for run in ours)
        aim = AIMS.get(name)
        verdict = "" if aim is None else "met" if sign * (mean - aim) >= 0 else "MISSED"
        gaps = differences(ours, theirs)
        beside = ""
        if gaps:
            floor = -_POINTS if sign > 0 else 0.0
            beside = "met" if sign * statistics.mean(gaps) >= floor else "MISSED"
        lines.append(
            _row(
                name,
                f"{mean:.2f}",
                "" if aim is None else f"{'at least' if sign > 0 else 'at most'} {aim:g}",
                verdict,
                _difference(gaps),
                _in_errors(gaps),
                beside,
            )
        )
    if len(lines) == 2:
        return []
    title = (
        f"Not below tuned random features + ridge by more than {_POINTS:g} points of accuracy, nor "
        "above their error."
    )
    return ["### Aims", "", title, "", *lines, ""]


def _choices(records: Sequence[dict]) -> list[str]:
    """The range of what was chosen, or found, in training."""
    lines = ["### Settings that were chosen or found", ""]
    for name in dict.fromkeys(record["set"] for record in records):
        for method, title in METHODS.items():
            runs = _of([record for record in records if record["set"] == name], method)
            if runs:
                given = [f"{key} {value}" for key, value in runs[0]["settings"].items()]
                found = [
                    f"{key} {_range([run['chosen'][key] for run in runs])}"
                    for key in runs[0]["chosen"]
                ]
                lines.append(f"- {name}, {title.split(':')[0]}: {', '.join([*given, *found])}")
    return [*lines, ""]


def _versions(records: Sequence[dict]) -> list[str]:
    versions = ", ".join(f"{key} {value}" for key, value in records[-1]["versions"].items())
    seeds = ", ".join(map(str, sorted({record["seed"] for record in records})))
    return [f"Seeds {seeds}; one thread. {versions}."]


def _of(records: Sequence[dict], method: str) -> list[dict]:
    return [record for record in records if record["method"] == method]


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _difference(gaps: Sequence[float]) -> str:
    if not gaps:
        return ""
    text = f"{statistics.mean(gaps):+.3f}"
    return (
        text if len(gaps) < 2 else f"{text} ± {statistics.stdev(gaps) / math.sqrt(len(gaps)):.3f}"
    )


def _in_errors(gaps: Sequence[float]) -> str:
    if len(gaps) < 2 or statistics.stdev(gaps) == 0:
        return ""
    return f"{statistics.mean(gaps) * math.sqrt(len(gaps)) / statistics.stdev(gaps):+.1f}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
