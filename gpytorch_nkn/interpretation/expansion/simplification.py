"""A kernel in few words, and what the words leave out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpytorch.kernels import Kernel
from gpytorch.models import ExactGP

from gpytorch_nkn.interpretation.expansion.expansion import Term
from gpytorch_nkn.interpretation.expansion.factors import columns_of, label_of, period_of
from gpytorch_nkn.interpretation.units import Units, three_digits
from gpytorch_nkn.kernels import role_of, row_of

__all__ = ["Simplification", "SimplificationStep", "words_of"]


@dataclass(frozen=True)
class SimplificationStep:
    """A kernel on the way.

    Attributes:
        action: What was done.
        expression: Families of kernels after it, such as ``LIN + PER*RBF``.
        criterion: Its value of the criterion in nats over all the data, higher is better.
        log_density: Its held-out log density in nats per point, see :class:`Simplification`.
    """

    action: str
    expression: str
    criterion: float
    log_density: float


@dataclass(frozen=True, eq=False)
class Simplification:
    """What :func:`gpytorch_nkn.interpretation.simplify` found.

    Attributes:
        kernel: A sum of products of GPyTorch's own classes, fitted, without priors; its inputs are
            in the units that the kernel of the model sees. It works and pickles without this
            package.
        model: A copy of the given model with this kernel, its mean and noise refitted, in eval
            mode.
        terms: Terms of the kernel by falling share, with labels in units of the data.
        parts: The same with the constant parts of periodic kernels apart, which may carry a trend
            where a smooth kernel is beside them; by these, and their shares in the variance of the
            posterior mean, ``str`` says what the kernel does.
        log_density: Mean log predictive density in nats per point (a density per unit of the
            targets), of the kind that ``compared`` says.
        network_log_density: That of the given model.
        compared: ``heldout``, ``blocked_cv`` or ``loo``.
        densities: By kind, the densities of the simple model and the given one.
        tolerance: Largest loss that was to be accepted, in nats per point.
        criterion: What terms were chosen by.
        history: Every kernel that was accepted, in order.
        interrupted: Ctrl-C ended the search.
        noise: Standard deviation of the noise in units of the targets.
        skipped: Labels of large terms that GPyTorch has no kernels for.
        units: Units of the labels.
    """

    kernel: Kernel
    model: ExactGP
    terms: tuple[Term, ...]
    parts: tuple[Term, ...]
    log_density: float
    network_log_density: float
    compared: str
    densities: dict[str, tuple[float, float]]
    tolerance: float
    criterion: str
    history: tuple[SimplificationStep, ...]
    interrupted: bool
    noise: float
    skipped: tuple[str, ...]
    units: Units

    @property
    def loss(self) -> float:
        """What was lost: density of the given model less that of the simple one, per point."""
        return self.network_log_density - self.log_density

    @property
    def met(self) -> bool:
        """Whether the loss is within the tolerance."""
        return self.loss <= self.tolerance

    @property
    def expression(self) -> str:
        """The kernel on one line, with hyperparameters in units of the data."""
        return " + ".join(term.label for term in self.terms)

    def __str__(self) -> str:
        lines = [f"{self.expression} + noise({three_digits(self.noise)})"]
        for term in sorted(self.parts, key=lambda term: -abs(term.posterior_share or 0.0)):
            if term.factors:
                share = f"{term.posterior_share or 0.0:.1%}"
                lines.append(f"{share:>8} of the fit  {words_of(term, self.units)}")
        mean = type(self.model.mean_module).__name__
        if mean != "ZeroMean":
            lines.append(f"The mean of the model, a {mean}, is not part of the kernel.")
        kinds = {
            "heldout": "Held-out data",
            "loo": "Leave-one-out",
            "blocked_cv": "Cross-validation in blocks",
        }
        change = f"lost {self.loss:.3f}" if self.loss >= 0 else f"gained {-self.loss:.3f}"
        verdict = "within" if self.met else "NOT within"
        lines.append(
            f"{kinds[self.compared]}: log predictive density {self.log_density:.3f} nats per "
            f"point, that of the given model {self.network_log_density:.3f}: {change}, {verdict} "
            f"the tolerance of {self.tolerance:g}."
        )
        if self.skipped:
            lines.append(f"GPyTorch has no kernel for: {', '.join(self.skipped)}.")
        if self.interrupted:
            lines.append("The search was interrupted; this is the best that it had found.")
        return "\n".join(lines)


def words_of(term: Term, units: Units) -> str:
    """A term in a phrase.

    Example:
        >>> from gpytorch.kernels import PeriodicKernel, ScaleKernel
        >>> from gpytorch_nkn.interpretation import expand
        >>> kernel = ScaleKernel(PeriodicKernel())
        >>> kernel.base_kernel.period_length = 12.0
        >>> words_of(expand(kernel, split=False).terms[0], Units.plain(1))
        'a cycle of 12.0'
    """
    smooth, cycles, linear, others = (
        [factor for factor in term.factors if role_of(factor) == role]
        for role in ("smooth", "periodic", "linear", None)
    )
    if others:
        phrases = [getattr(row_of(factor), "words", None) for factor in term.factors]
        return term.label if None in phrases else " times ".join(map(str, phrases))
    degree = {0: "", 1: "linear", 2: "quadratic", 3: "cubic"}.get(
        len(linear), f"degree-{len(linear)}"
    )
    where = _columns(linear, units)
    if cycles:
        periods = [(f, period_of(f)) for f in cycles]
        lengths = [units.length(p, (columns_of(f) or (0,))[0]) for f, p in periods if p is not None]
        text = f"a cycle of {' times one of '.join(lengths)}{_columns(cycles, units)}"
        if smooth:
            text += f", whose shape drifts {_scale(smooth, units)}"
        if linear:
            text += f"{' and' if smooth else ','} whose amplitude grows as a {degree} function"
            text += where
        return text
    if smooth:
        text = f"variation {_scale(smooth, units)}"
        return text + (f", times a {degree} function{where}" if linear else "")
    return f"a {degree} trend{where}" if linear else "a constant level"


def _scale(kernels: list[Any], units: Units) -> str:
    parts = []
    for kernel in kernels:
        label = label_of(kernel, units)
        lengths = label[label.rindex("(") + 1 : -1]
        row = row_of(kernel)
        how = "over" if row is None or row.words is None else row.words
        parts.append(f"{how} {lengths}{_columns([kernel], units)}")
    return " and ".join(parts)


def _columns(kernels: list[Any], units: Units) -> str:
    """Which columns are meant, where there are several."""
    if len(units.names) == 1 or not kernels:
        return ""
    seen = {c for k in kernels for c in columns_of(k) or range(len(units.names))}
    if len(seen) == len(units.names):
        return " in all columns"
    return f" in {', '.join(units.names[column] for column in sorted(seen))}"
