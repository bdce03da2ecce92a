"""What a report holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn.interpretation.amounts import percent
from gpytorch_nkn.interpretation.checks import LeaveOneOut, ResidualChecks
from gpytorch_nkn.interpretation.components import ComponentCurve, Decomposition
from gpytorch_nkn.interpretation.expansion import Expansion
from gpytorch_nkn.interpretation.reporting.words import describe_effects
from gpytorch_nkn.interpretation.units import Units

if TYPE_CHECKING:
    from gpytorch_nkn.interpretation.effects import Effects

__all__ = ["Forecast", "Report", "Section"]


@dataclass(frozen=True, eq=False)
class Section:
    """One component of a report.

    Attributes:
        name: Short name.
        title: What it is, in a few words.
        sentences: What it does.
        terms: Its leading terms.
        share: Share of the variance of the fit.
        explained: Share of the targets' variance explained by the components up to this one.
        error: Cross-validated mean absolute error with the components up to this one.
        negligible: It explains nothing.
        curve: Its posterior over time; None for several input columns.
    """

    name: str
    title: str
    sentences: tuple[str, ...]
    terms: str
    share: float
    explained: float
    error: float
    negligible: bool
    curve: ComponentCurve | None


@dataclass(frozen=True, eq=False)
class Forecast:
    """The series and its continuation, in units of the targets (logarithms undone).

    Attributes:
        x: Times ``M`` past the data.
        mean: Mean ``M`` (the median under ``log_targets``).
        lower: Lower end ``M`` of the 95 % band of new observations.
        upper: Upper end ``M``.
        samples: Draws ``S x M`` of the function without noise.
    """

    x: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    samples: np.ndarray


@dataclass(frozen=True, eq=False)
class Report:
    """What a model has found, see :func:`gpytorch_nkn.interpretation.report`.

    Attributes:
        title: Of the report.
        summary: Sentences.
        sections: One per component, in order of importance.
        expansion: The kernel as a sum of products.
        x: Training times ``N`` (inputs ``N x D``), sorted in time.
        y: Training targets ``N``.
        fit: The sum of all components over time; None for several input columns.
        forecast: None for several input columns.
        effects: Of the input columns; None for one.
        residual_checks: Model checking on residuals.
        left_out: Leave-one-out calibration.
        decomposition: The components.
    """

    title: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
    expansion: Expansion
    x: np.ndarray
    y: np.ndarray
    fit: ComponentCurve | None
    forecast: Forecast | None
    effects: Effects | None
    residual_checks: ResidualChecks
    left_out: LeaveOneOut
    decomposition: Decomposition

    @property
    def units(self) -> Units:
        """Units of the data."""
        return self.decomposition.gp.units

    @property
    def text(self) -> str:
        """The report as text."""
        lines = [self.title, "=" * len(self.title), "", *self.summary, ""]
        if self.effects is not None:
            lines += [
                "Effects of the columns",
                "-" * 22,
                *describe_effects(self.effects, self.units),
            ]
            lines += ["", str(self.effects), ""]
        for place, section in enumerate(self.sections, 1):
            head = f"{place}. {section.title}"
            lines += [head, "-" * len(head), *section.sentences]
            lines.append(f"Share of the fit: {percent(section.share)}. Terms: {section.terms}")
            lines.append("")
        lines += ["Model checking", "-" * 14]
        lines += [*self.residual_checks.sentences(), *self.left_out.sentences(), ""]
        lines += ["The kernel, by shares of its diagonal", "-" * 37, str(self.expansion)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything but curves and samples, as plain values for JSON.

        What is no finite number becomes None.
        """
        return _finite(
            {
                "title": self.title,
                "summary": list(self.summary),
                "components": [
                    {
                        "name": section.name,
                        "title": section.title,
                        "sentences": list(section.sentences),
                        "share": section.share,
                        "explained": section.explained,
                        "cross_validated_error": section.error,
                        "negligible": section.negligible,
                        "terms": [
                            {"weight": term.weight, "share": term.share, "label": term.label}
                            for term in component.terms
                        ],
                    }
                    for section, component in zip(
                        self.sections, self.decomposition.components, strict=True
                    )
                ],
                "dropped": self.expansion.dropped,
                "effects": None if self.effects is None else self.effects.to_dict(),
                "residual_checks": self.residual_checks.to_dict(),
                "leave_one_out": self.left_out.to_dict(),
            }
        )

    def to_html(self) -> str:
        """One self-contained page, figures included. Needs matplotlib."""
        from gpytorch_nkn.interpretation.reporting.page import render_page

        return render_page(self)

    def save(self, path: str | Path) -> Path:
        """Write the page of :meth:`to_html` to a file, and return its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.text


def _finite(value: Any) -> Any:
    """A tree of plain values, without what JSON does not know."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value
