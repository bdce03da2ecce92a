"""Tables of the comparison of regressors: mean ranks, and every set."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata, studentized_range

__all__ = ["critical_difference", "mean_ranks", "report"]

_SCORES = {"rmse": "RMSE", "crps": "CRPS", "log_density": "log density"}
_SECONDS = ("fit_seconds", "predict_seconds")
_LEVEL = 0.05
_OURS = "nkn"


def critical_difference(methods: int, sets: int, level: float = _LEVEL) -> float:
    r"""Least difference of mean ranks that Nemenyi's test calls one.

    .. math:: q_\alpha \sqrt{k (k + 1) / (6 n)}

    with :math:`q_\alpha` of the studentised range over :math:`\sqrt 2`, for :math:`k` methods on
    :math:`n` sets.

    Reference: Demsar (2006), Statistical comparisons of classifiers over multiple data sets.
    """
    quantile = studentized_range.ppf(1 - level, methods, np.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(methods * (methods + 1) / (6 * sets)))


def mean_ranks(
    means: dict[str, dict[str, float]], *, descending: bool = False
) -> tuple[dict[str, float], int]:
    """Mean ranks of the methods over those sets that all of them have, and the number of sets.

    Args:
        means: Score of a method, by set and method.
        descending: The highest score is the best.
    """
    methods = list(dict.fromkeys(method for row in means.values() for method in row))
    complete = [row for row in means.values() if len(row) == len(methods)]
    if not complete:
        return {}, 0
    sign = -1 if descending else 1
    ranks = [rankdata([sign * row[method] for method in methods]) for row in complete]
    return dict(zip(methods, np.mean(ranks, 0).tolist(), strict=True)), len(complete)


def report(records: Sequence[dict], titles: dict[str, str]) -> str:
    """Markdown: mean ranks with critical differences, our RMSE beside the best, and every set.

    Args:
        records: Of the runs; for a set, those splits count that all of its methods have.
        titles: Of the methods, in the order of the rows.
    """
    if not records:
        return "No results."
    groups: dict[str, dict[str, dict[int, dict]]] = {}
    for record in records:
        own = groups.setdefault(record["set"], {}).setdefault(record["method"], {})
        own[record["split"]] = record
    sets: dict[str, dict[str, list[dict]]] = {}
    for name, methods in groups.items():
        shared = set.intersection(*(set(own) for own in methods.values()))
        if shared:
            sets[name] = {
                method: [methods[method][split] for split in sorted(shared)]
                for method in titles
                if method in methods
            }
    return "\n".join([*_ranks(sets, titles), *_ratios(sets, titles), *_by_set(sets, titles)])


def _mean(records: Sequence[dict], key: str) -> float:
    return float(np.mean([math.nan if one[key] is None else one[key] for one in records]))


def _ranks(sets: dict[str, dict[str, list[dict]]], titles: dict[str, str]) -> list[str]:
    columns, notes = {}, []
    for key, title in _SCORES.items():
        means = {
            name: {
                method: value
                for method, own in methods.items()
                if math.isfinite(value := _mean(own, key))
            }
            for name, methods in sets.items()
        }
        everywhere = {
            method
            for method in titles
            if sum(method in row for row in means.values()) > len(means) / 2
        }
        means = {
            name: {method: value for method, value in row.items() if method in everywhere}
            for name, row in means.items()
        }
        columns[key], count = mean_ranks(means, descending=key == "log_density")
        if count:
            difference = critical_difference(len(columns[key]), count)
            notes.append(f"{title}: {len(columns[key])} methods on {count} sets, {difference:.2f}")
    head = ["method", *(f"rank by {title}" for title in _SCORES.values())]
    head += ["fit CPU s, median", "predict CPU s, median", "90 % coverage"]
    lines = [
        f"Mean ranks over the sets that all methods of a column have. Two that differ by less than "
        f"the critical difference (Nemenyi, {_LEVEL:.0%}) are not told apart: {'; '.join(notes)}.",
        "",
        _row(*head),
        _row(*["---"] * len(head)),
    ]
    order = sorted(titles, key=lambda method: columns["crps"].get(method, math.inf))
    for method in order:
        runs = [one for methods in sets.values() for one in methods.get(method, ())]
        if runs:
            ranks = [f"{columns[k][method]:.2f}" if method in columns[k] else "" for k in _SCORES]
            seconds = [
                np.median([one[f"{what}_seconds"] for one in runs]) for what in ("fit", "predict")
            ]
            lines.append(
                _row(
                    titles[method],
                    *ranks,
                    *(f"{value:.3g}" for value in seconds),
                    f"{_mean(runs, 'coverage'):.1%}",
                )
            )
    return [*lines, ""]


def _ratios(sets: dict[str, dict[str, list[dict]]], titles: dict[str, str]) -> list[str]:
    """Where we stand beside the best of the others, set by set."""
    head = ["set", "best other by RMSE", "our RMSE / its", "best other by CRPS", "our CRPS / its"]
    lines = [_row(*head), _row(*["---"] * len(head))]
    for name, methods in sets.items():
        if _OURS not in methods or len(methods) < 2:
            continue
        cells = []
        for key in ("rmse", "crps"):
            means = {m: _mean(own, key) for m, own in methods.items() if m != _OURS}
            best = min(means, key=means.__getitem__)
            cells += [titles[best], f"{_mean(methods[_OURS], key) / means[best]:.3f}"]
        lines.append(_row(name, *cells))
    return [*lines, ""] if len(lines) > 2 else []


def _by_set(sets: dict[str, dict[str, list[dict]]], titles: dict[str, str]) -> list[str]:
    lines = ["Means over the splits (standard errors).", ""]
    for name, methods in sets.items():
        first = next(iter(methods.values()))
        unit = ", log density per interval" * (first[0]["resolution"] is not None)
        size = f"{first[0]['n']} training rows, {first[0]['d']} columns, {len(first)} splits{unit}"
        head = [f"{name}: {size}", *_SCORES.values(), "90 % coverage", "fit CPU s"]
        lines += [_row(*head), _row(*["---"] * len(head))]
        for method, own in methods.items():
            cells = [_mean_and_error([one[key] for one in own]) for key in _SCORES]
            cells += [f"{_mean(own, 'coverage'):.1%}", f"{_mean(own, 'fit_seconds'):.3g}"]
            lines.append(_row(titles[method], *cells))
        lines.append("")
    return lines


def _mean_and_error(values: Sequence[float | None]) -> str:
    if None in values:
        return ""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan  # type: ignore[arg-type]
    mean = f"{np.mean(values):.4g}"  # type: ignore[arg-type]
    return mean if math.isnan(error) else f"{mean} ({error:.2g})"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
