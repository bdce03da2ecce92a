"""Report on the predicted probability of a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from gpytorch_nkn import plotting
from gpytorch_nkn.interpretation.effects import effects
from gpytorch_nkn.interpretation.reporting.page import (
    Block,
    Findings,
    Sketch,
    literal,
    render,
    render_all,
)
from gpytorch_nkn.interpretation.reporting.words import describe_effects
from gpytorch_nkn.interpretation.units import Units, percent

__all__ = ["ClassReport", "report_on_class"]

_BINS, _BIN_ROWS = 10, 10  # largest number of calibration points, least number of rows of each


@dataclass(frozen=True, eq=False)
class HeldOutClass:
    """Held-out predictions of a class."""

    probabilities: np.ndarray  #: predicted probabilities N
    observed: np.ndarray  #: mask N of the rows of the class
    log_loss: float  #: mean log loss of all classes
    frequency_loss: float  #: the same if every prediction is the class frequencies
    accuracy: float  #: fraction of rows whose most probable class is the right one
    z_score: float  #: of calibration; positive if the probabilities are too extreme

    @property
    def p_value(self) -> float:
        """P-value of the two-sided test of calibration."""
        return float(2 * stats.norm.sf(abs(self.z_score)))

    @classmethod
    def of(cls, labels: np.ndarray, probabilities: np.ndarray, code: int) -> HeldOutClass:
        r"""Score probabilities ``N x K`` of codes ``N``.

        The z-score of Spiegelhalter (1986), Probabilistic prediction in patient management and
        clinical trials, compares the Brier score with its expectation for calibrated :math:`p`:

        .. math:: z = \frac{\sum (y - p) (1 - 2 p)}{\sqrt{\sum (1 - 2 p)^2 p (1 - p)}}
        """
        p, y = probabilities[:, code], labels == code
        variance = ((1 - 2 * p) ** 2 * p * (1 - p)).sum()
        shares = np.bincount(labels) / len(labels)
        return cls(
            probabilities=p,
            observed=y,
            log_loss=float(-np.log(probabilities[np.arange(len(p)), labels]).mean()),
            frequency_loss=float(stats.entropy(shares)),
            accuracy=float((probabilities.argmax(1) == labels).mean()),
            z_score=float(((y - p) * (1 - 2 * p)).sum() / np.sqrt(variance)) if variance else 0.0,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClassReport(Findings):
    """Findings of a classifier, see :func:`gpytorch_nkn.interpretation.report`."""

    label: Any  #: the class whose probability is described
    held_out: HeldOutClass

    def blocks(self) -> list[Block]:
        """Return the parts of the report in their order."""
        effects = self.effect_blocks(f"the probability of class {self.label}")
        return [Block("Summary", self.summary), *effects, self.checking()]

    def checking(self, **_: Any) -> Block:
        """Return the calibration of held-out probabilities."""
        order = np.argsort(self.held_out.probabilities, kind="stable")
        bins = np.array_split(order, np.clip(len(order) // _BIN_ROWS, 1, _BINS))
        curve = (
            [values[rows].mean() for rows in bins]
            for values in (self.held_out.probabilities, self.held_out.observed)
        )
        levels, fractions = curve
        labels = literal(f"probability of class {self.label}"), "fraction of this class"
        text = "Frequency of the class among held-out rows of similar probability"
        figure = Sketch(
            text,
            lambda ax: plotting.plot_calibration(
                ax, levels, fractions, num_points=len(order) // len(bins), labels=labels
            ),
            caption=text,
        )
        note = render("note_calibration")
        return Block("Model checking", self.checks, note, figures=(figure,), layout="beside")


def report_on_class(
    model: Any, units: Units, code: int, title: str, max_effects: int
) -> ClassReport:
    """Describe the probability of a class with names in ``units``."""
    label = model.classes_[code]
    influence = effects(model, max_effects=max_effects, columns=units.names, label=label)
    labels, probabilities = model.held_out_
    scores = HeldOutClass.of(labels, probabilities, code)
    is_own = (model.model_.train_targets[code] > 0).double()
    facts = {"scores": scores, "label": str(label)}
    summary = render_all(
        "of_class",
        **facts,
        number=len(is_own),
        share=percent(float(is_own.mean())),
        effects=describe_effects(influence, units),
    )
    x = units.x_offset + units.x_scale * model.model_.train_inputs[0].double().cpu().numpy()
    return ClassReport(
        title=title,
        summary=tuple(summary),
        checks=tuple(render_all("calibration", **facts, number=len(labels), p=scores.p_value)),
        x=x,
        effects=influence,
        ahead=None,
        held_out=scores,
        label=label,
    )
