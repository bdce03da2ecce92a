"""The few terms of a kernel that matter, refitted as a kernel of GPyTorch's own classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from tqdm import tqdm

from gpytorch_nkn._devices import normal
from gpytorch_nkn.fit import (
    FlatParameters,
    Objective,
    Session,
    check_counts,
    copy_model,
    evaluate_criterion,
    noisy_prior,
    run_lbfgs,
    with_kernel,
)
from gpytorch_nkn.interpretation.expansion.candidates import Candidate, find_candidates, product_key
from gpytorch_nkn.interpretation.expansion.densities import Densities
from gpytorch_nkn.interpretation.expansion.expand import expand_source, with_posterior_shares
from gpytorch_nkn.interpretation.expansion.factors import (
    columns_of,
    label_of,
    period_of,
    window_of,
    window_text,
)
from gpytorch_nkn.interpretation.expansion.stock_kernels import (
    Part,
    as_network,
    fitted_parts,
    other_periods,
    shorter,
    split,
    stock_sum,
)
from gpytorch_nkn.interpretation.expansion.terms import Term
from gpytorch_nkn.interpretation.source import FittedGP, Source, fitted_gp
from gpytorch_nkn.interpretation.units import Units, three_digits
from gpytorch_nkn.kernels import NeuralKernelNetwork, role_of, row_of
from gpytorch_nkn.linalg import gaussian_negative_log_likelihood

__all__ = ["Simplification", "SimplificationStep", "simplify", "words_of"]

_Criterion = Literal["bic", "loo", "blocked_cv"]
_CRITERIA: tuple[_Criterion, ...] = get_args(_Criterion)
_BLOCKS = 8
_SHORT, _LONG, _LAST = 12, 60, 300  # iterations of L-BFGS
_FINALISTS = 3  # of the short fits that get a long one
_GAIN = 1e-3  # nats below which nothing has improved
_JITTER = 0.3  # of raw parameters in restarts


def simplify(
    model: Any,
    *,
    max_terms: int = 5,
    tolerance: float = 0.05,
    criterion: _Criterion = "bic",
    heldout: tuple[Any, Any] | None = None,
    max_candidates: int = 20,
    restarts: int = 2,
    zero_mean: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> Simplification:
    r"""Replace the kernel of a fitted model by a sum of few products of GPyTorch's kernels.

    Candidates are the groups of terms of the expansion (:func:`expand`) that vary most over the
    data, with the hyperparameters of their leading terms, and products of fewer of their factors.
    They are added one by one, each time the one that improves the criterion most after all
    hyperparameters, the mean and the noise have been refitted, as long as it improves. Then, as
    long as that improves it further, terms, factors, input columns and exponents are dropped,
    products become sums, and periods give way to others of the model. If the result predicts
    worse than the model by more than the tolerance, terms go on being added; where that does not
    suffice, the kernel with the best criterion is returned, and its loss.

    The new kernel has no priors: with a handful of hyperparameters the criterion guards against
    those that the data do not ask for, and a prior would not be known where the kernel is used
    next. Priors on the model's mean and noise stay.

    Args:
        model: A fitted ExactGP with a Gaussian likelihood (SingleTaskGP too, whose transforms
            and likelihood are kept), the record of a fit, or an estimator of this package, whose
            best restart is taken. It stays as it is.
        max_terms: Largest number of terms.
        tolerance: Accepted loss of log predictive density, in nats per point.
        criterion: ``"bic"``, the log marginal likelihood less :math:`\tfrac p2 \log n` for p free
            hyperparameters; or the log density of held-out data with fixed hyperparameters,
            ``"loo"`` (one point) or ``"blocked_cv"`` (one of 8 blocks along the first column),
            under which more terms are taken.
        heldout: Inputs ``M x D`` and targets ``M`` in the units that the model or estimator
            takes, by which the loss is measured. Terms are never chosen by them, but they can
            call for more terms. Without them the loss is that of ``blocked_cv`` for one input
            column and of ``loo`` for several, or of the criterion if it is one of these.
        max_candidates: Largest number of products that are tried.
        restarts: Refits of the result from shaken hyperparameters, of which the best counts.
        zero_mean: Keep periodic kernels without their constant part
            (:class:`gpytorch_nkn.kernels.ZeroMeanPeriodicKernel`). Terms are told apart better, as
            GPyTorch's PER times RBF holds an RBF too, but the kernel then needs this package.
        seed: Of the restarts; the global random state is left alone.
        progress: Show a progress bar, if standard error is a terminal.

    The mean of the model is not part of the kernel: a model of your own needs the same one (an
    estimator's is a straight line over its standardised inputs and targets).

    Returns:
        The kernel, the refitted model, terms and losses. Ctrl-C ends the search with the best
        kernel so far.

    Raises:
        TypeError: The model is none of these, or its likelihood is not Gaussian; or a number is
            not an integer.
        ValueError: An option has no meaning, the held-out data do not fit, no term has a
            counterpart in GPyTorch, or as for :func:`decompose`.
        NotImplementedError: The model is a batch or has several outputs.

    Reference: Duvenaud et al. (2013), Structure Discovery in Nonparametric Regression through
    Compositional Kernel Search, for the criterion.
    """
    _check_options(max_terms, tolerance, criterion, max_candidates, restarts)
    gp = fitted_gp(model)
    if gp.targets.dim() > 1 or gp.inputs.dim() > 2 or gp.kernel.batch_shape:
        raise NotImplementedError(
            "simplify takes one output without a batch, got targets of shape "
            f"{tuple(gp.targets.shape)} and a kernel of batch shape {tuple(gp.kernel.batch_shape)}."
        )
    densities = Densities(gp, heldout, criterion)
    candidates, skipped = find_candidates(gp, max_candidates, zero_mean)
    session = Session(seed=seed, progress=progress)
    with session.bar(None, "simplify", "fit") as bar:
        search = _Search(gp, criterion, densities, candidates, bar)
        with session.interruptible(lambda: search.first):
            search.run(max_terms, tolerance)
            search.shake(restarts, session.generator())
        if search.best is None:
            assert search.first is not None
            search.accept("interrupted", search.first)
    return _finish(search, gp, densities, tolerance, skipped, session.interrupted)


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
        """What was lost, density of the given model less that of the simple one, per point."""
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


@dataclass(frozen=True, eq=False)
class _State:
    """A fitted kernel on the way: the parts, and the model whose kernel is their network."""

    parts: tuple[Part, ...]
    model: ExactGP
    value: float = -math.inf

    @property
    def expression(self) -> str:
        return " + ".join(part.name for part in self.parts)


Trial = tuple[str, _State, Sequence[Part]]  # what is done, to what, and the parts to start from


class _Search:
    """Forward and backward steps, each kept in the history."""

    def __init__(
        self,
        gp: FittedGP,
        criterion: _Criterion,
        densities: Densities,
        candidates: Sequence[Candidate],
        bar: tqdm,
    ):
        self.criterion, self.densities = criterion, densities
        self.candidates, self.bar = candidates, bar
        base = copy_model(gp.model).train()
        others = [p for name, p in base.named_parameters() if not name.startswith("covar_module.")]
        self.num_others = sum(p.numel() for p in others if p.requires_grad)
        if type(base.likelihood) is GaussianLikelihood:
            # The first kernels explain less than the network did: with its noise they would
            # start by bending to every point.
            noise = base.likelihood.noise.detach()
            raw = base.likelihood.noise_covar.raw_noise
            if raw.requires_grad and gp.targets.numel() > 1:
                with suppress(RuntimeError):  # bounds may forbid it
                    base.likelihood.noise = noise.clamp_min(0.1 * float(gp.targets.var()))
        transform = getattr(base, "input_transform", None)
        if transform is not None:  # terms are those over the inputs as they are transformed now
            transform.requires_grad_(False)
        self.start = _State((), base)
        self.best: _State | None = None
        self.first: _State | None = None  # the best before any was accepted
        # What was found last: from which kernel, and by which addition to it. Fits from the same
        # start are the same.
        self.addition: tuple[_State, tuple[str, _State] | None] | None = None
        self.improved: _State | None = None  # what nothing simpler is better than
        self.density = -math.inf  # of the best
        self.wanted = -math.inf
        self.periodic = [f for c in candidates for f in c.part.factors if role_of(f) == "periodic"]
        self.history: list[SimplificationStep] = []

    def run(self, max_terms: int, tolerance: float) -> None:
        """The whole search but for the last refit."""
        for _ in range(2):  # what was dropped may make room for something else
            before = self.best
            while self._add_one(max_terms, must_improve=self.best is not None):
                pass
            self._improve(max_terms, lambda density: True)
            if self.best is before:
                break
        self.wanted = self.densities.network - tolerance
        for _ in range(2):
            before = self.best
            self._approach(max_terms)
            if self.best is before:
                break

    def _approach(self, max_terms: int) -> None:
        """Add terms until the density is the wanted one, or else go back to the best criterion."""
        assert self.best is not None
        visited = [self.best]
        while self.density < self.wanted and self._add_one(max_terms, must_improve=False):
            visited.append(self.best)
        if len(visited) == 1:
            return
        best = max(visited, key=lambda state: state.value)
        if self.density < self.wanted and best is not self.best:
            self.accept("go back: more terms do not suffice", best)
        self._improve(max_terms, lambda density: density >= self._least())

    def shake(self, restarts: int, generator: torch.Generator) -> None:
        """Refit to the end, from where it is and from shaken hyperparameters."""
        assert self.best is not None
        trials: list[Trial] = [("refit", self.best, self.best.parts)]
        fits = self._fit_all(trials, _LAST)
        for number in range(restarts):
            state = replace(self.best, model=copy_model(self.best.model))
            network = state.model.covar_module
            assert isinstance(network, NeuralKernelNetwork)
            for parameter in network.parameters():
                if parameter.requires_grad:
                    noise = normal(parameter.shape, generator)
                    parameter.data += _JITTER * noise.to(parameter)
            shaken = fitted_parts(network, state.parts)
            fits += self._fit_all([(f"refit, start {number + 1} shaken", state, shaken)], _LAST)
        for action, fitted in fits:
            better = fitted.value > self.best.value
            if better and self.densities.of(fitted.model) >= self._least():
                self.accept(action, fitted)

    def _least(self) -> float:
        """The density that no later step may fall below: the one that is wanted, once reached."""
        return self.wanted if self.density >= self.wanted else -math.inf

    def _add_one(self, max_terms: int, must_improve: bool) -> bool:
        """Add the best candidate; False if there is none."""
        state = self.start if self.best is None else self.best
        if len(state.parts) >= max_terms:
            return False
        if self.addition is None or self.addition[0] is not state:
            self.addition = state, self._addition_to(state)
        found = self.addition[1]
        if found is None:
            if self.best is None:
                raise ValueError("No kernel of the candidates could be fitted to the data.")
            return False
        if must_improve and found[1].value <= state.value + _GAIN:
            return False
        self.accept(*found)
        return True

    def _addition_to(self, state: _State) -> tuple[str, _State] | None:
        """The best kernel with one more term, with no more factors than it needs."""
        taken = {product_key(part.factors) for part in state.parts}
        trials = [
            (f"add {candidate.part.name}", state, (*state.parts, candidate.part))
            for candidate in self.candidates
            if candidate.part.num_parameters > 1 or product_key(candidate.part.factors) not in taken
        ]
        found = self._best_of(trials)
        if found is None:
            return None
        action, new = found
        while True:  # the new term may do with fewer factors
            shorter_ones = [
                (f"{action}, {done}", new, (*new.parts[:-1], part))
                for done, part in shorter(new.parts[-1])
            ]
            found = self._best_of(shorter_ones)
            if found is None or found[1].value <= new.value + _GAIN:
                return action, new
            action, new = found

    def _improve(self, max_terms: int, accepts: Callable[[float], bool]) -> None:
        """Drop terms and factors, split products and swap periods while that is better."""
        while self.best is not None and self.best is not self.improved:
            state = self.best
            trials: list[Trial] = []
            for place, part in enumerate(state.parts):
                rest = state.parts[:place] + state.parts[place + 1 :]
                if rest:
                    trials.append((f"drop {part.name}", state, rest))
                for done, other in (*shorter(part), *other_periods(part, self.periodic)):
                    trials.append((done, state, (*rest, other)))
                for done, pair in split(part) if len(state.parts) < max_terms else ():
                    trials.append((done, state, (*rest, *pair)))
            found = self._best_of(trials)
            if found is None or found[1].value <= state.value + _GAIN:
                self.improved = state
                return
            if not accepts(self.densities.of(found[1].model)):
                return
            self.accept(*found)

    def _best_of(self, trials: Iterable[Trial]) -> tuple[str, _State] | None:
        """The best after a short fit of all and a long one of the best of them."""
        short = self._fit_all(trials, _SHORT)
        short.sort(key=lambda fit: -fit[1].value)
        finalists = [(done, state, state.parts) for done, state in short[:_FINALISTS]]
        return max(self._fit_all(finalists, _LONG), key=lambda fit: fit[1].value, default=None)

    def _fit_all(self, trials: Iterable[Trial], iterations: int) -> list[tuple[str, _State]]:
        fits = []
        for action, state, parts in trials:
            fitted = self._fit(state, parts, iterations)
            self.bar.update()
            if math.isfinite(fitted.value):
                fits.append((action, fitted))
                if self.first is None or fitted.value > self.first.value:
                    self.first = fitted
        return fits

    def _fit(self, state: _State, parts: Sequence[Part], iterations: int) -> _State:
        """Refit all hyperparameters from those of the parts, and mean and noise of the state."""
        network = as_network(parts, state.model.train_targets)
        model = with_kernel(state.model, network).train()
        try:
            flat = FlatParameters(Objective(model))
            try:
                nothing: Callable[[], None] = lambda: None  # noqa: E731
                run_lbfgs(flat, iterations=iterations, deadline=math.inf, on_step=nothing)
            finally:
                flat.release()
            learned = fitted_parts(network, parts)
            return _State(learned, model, self._evaluate(model, learned))
        except (ArithmeticError, RuntimeError, ValueError):  # a matrix that has no factor, say
            return _State(tuple(parts), model)

    def _evaluate(self, model: ExactGP, parts: Sequence[Part]) -> float:
        """The criterion in nats over all the data."""
        n = model.train_targets.numel()
        if self.criterion != "bic":
            return n * evaluate_criterion(model, self.criterion, math.nan, _BLOCKS)
        with torch.no_grad():
            mean, covariance = noisy_prior(model)
            loss = gaussian_negative_log_likelihood(covariance, model.train_targets - mean)
        count = self.num_others + sum(part.num_parameters for part in parts)
        return -float(loss) - 0.5 * count * math.log(n)

    def accept(self, action: str, state: _State) -> None:
        self.best, self.density = state, self.densities.of(state.model)
        step = SimplificationStep(action, state.expression, state.value, self.density)
        self.history.append(step)
        self.bar.set_postfix_str(state.expression)


def _finish(
    search: _Search,
    gp: FittedGP,
    densities: Densities,
    tolerance: float,
    skipped: tuple[str, ...],
    interrupted: bool,
) -> Simplification:
    assert search.best is not None
    kernel = stock_sum(search.best.parts, gp.targets)
    model = copy_model(search.best.model)
    model.covar_module = kernel
    model.eval()
    compared = densities.all_of(model)
    source = Source(kernel, gp.inputs, gp.units)
    terms = expand_source(source, split=False).terms
    refitted = fitted_gp(model)
    parts = with_posterior_shares(expand_source(source), refitted).terms
    simple, given = compared[densities.kind]
    noise = float(refitted.noise.mean().sqrt()) * float(np.asarray(gp.units.y_scale))
    return Simplification(
        kernel=stock_sum(search.best.parts, gp.targets),  # one of its own, apart from the model's
        model=model,
        terms=terms,
        parts=parts,
        log_density=simple,
        network_log_density=given,
        compared=densities.kind,
        densities=compared,
        tolerance=tolerance,
        criterion=search.criterion,
        history=tuple(search.history),
        interrupted=interrupted,
        noise=noise,
        skipped=skipped,
        units=gp.units,
    )


def _check_options(
    max_terms: int, tolerance: float, criterion: _Criterion, max_candidates: int, restarts: int
) -> None:
    if criterion not in _CRITERIA:
        raise ValueError(
            f"criterion must be one of {', '.join(map(repr, _CRITERIA))}, got {criterion!r}."
        )
    check_counts(1, max_terms=max_terms, max_candidates=max_candidates)
    check_counts(0, restarts=restarts)
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance must be a number of nats of at least 0, got {tolerance}.")


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
    steps = [factor for factor in term.factors if role_of(factor) == "step"]
    if steps:
        rest = tuple(factor for factor in term.factors if factor not in steps)
        what = words_of(replace(term, factors=rest), units) + "," if rest else "a shift of level"
        column = (columns_of(steps[0]) or (0,))[0]
        return f"{what} {window_text(*window_of(steps), units, column)}"
    smooth, cycles, linear, walks, others = (
        [factor for factor in term.factors if role_of(factor) == role]
        for role in ("smooth", "periodic", "linear", "walk", None)
    )
    if others or (walks and not cycles):
        named = [*others, *walks]
        phrases = [getattr(row_of(factor), "words", None) for factor in named]
        rest = tuple(factor for factor in term.factors if factor not in named)
        if rest:
            phrases.append(words_of(replace(term, factors=rest), units))
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
        if walks:
            text += ", whose shape wanders"
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
