"""Approximation of a kernel by a short sum of products of GPyTorch kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from tqdm import tqdm

from gpytorch_nkn.averaging import leave_blocks_out, leave_one_out
from gpytorch_nkn.fit import (
    FlatParameters,
    Session,
    check_counts,
    check_flags,
    copy_model,
    lbfgs,
    noisy_prior,
)
from gpytorch_nkn.interpretation.expansion.candidates import (
    Part,
    as_network,
    find_candidates,
    gpytorch_sum,
    product_key,
    shorter,
)
from gpytorch_nkn.interpretation.expansion.expand import expand_source, with_posterior_shares
from gpytorch_nkn.interpretation.expansion.factors import label_of, period_of
from gpytorch_nkn.interpretation.expansion.terms import Term
from gpytorch_nkn.interpretation.source import FittedGP, check_one_output, fitted_gp
from gpytorch_nkn.interpretation.units import Units, three_digits
from gpytorch_nkn.kernels import columns_of, role_of, spec_of
from gpytorch_nkn.linalg import gaussian_negative_log_likelihood

__all__ = ["Simplification", "simplify", "words_of"]

_BLOCKS = 8  # number of cross-validation blocks
_TRIAL_STEPS, _FINALIST_STEPS, _FINAL_STEPS = 12, 60, 300  # iterations of L-BFGS
_FINALISTS = 3  # number of short fits that are continued
_MIN_GAIN = 1e-3  # smallest improvement of BIC in nats


def simplify(
    model: Any,
    *,
    max_terms: int = 5,
    max_candidates: int = 20,
    zero_mean: bool = False,
    progress: bool = True,
) -> Simplification:
    r"""Replace the kernel of a fitted model by a sum of few products of GPyTorch kernels.

    Candidates are groups of terms in the expansion (:func:`expand`) with large variance over the
    data, and products of fewer factors. Start values are the hyperparameters of the leading terms.
    Each step adds the candidate that improves BIC most after a refit of all hyperparameters. The
    step then drops terms, factors, input columns and exponents while BIC improves. BIC is the log
    marginal likelihood minus :math:`\tfrac p2 \log n` for p free hyperparameters. The new kernel
    has no priors; mean and noise keep theirs.

    Args:
        model: A fitted ExactGP with a Gaussian likelihood (including SingleTaskGP), the result of a
            trainer, or an estimator of this package. It does not change.
        max_terms: Largest number of terms.
        max_candidates: Largest number of candidate products.
        zero_mean: Use :class:`gpytorch_nkn.kernels.ZeroMeanPeriodicKernel` for periodic terms.
            GPyTorch's periodic kernel times an RBF contains an RBF; zero-mean terms separate
            better, but the kernel then needs this package.
        progress: Show a progress bar if standard error is a terminal.

    Returns:
        Kernel, refitted model, terms and scores. Ctrl-C ends the search with the best kernel so
        far.

    Raises:
        TypeError: The model has another type, its likelihood is not Gaussian, or a number is not
            an integer.
        ValueError: As in :func:`decompose`, or GPyTorch's kernels cannot represent any term.
        NotImplementedError: The model is a batch or has several outputs.

    Reference: Duvenaud et al. (2013), Structure Discovery in Nonparametric Regression through
    Compositional Kernel Search, for the criterion.
    """
    check_counts(1, max_terms=max_terms, max_candidates=max_candidates)
    check_flags(zero_mean=zero_mean)
    gp = fitted_gp(model)
    check_one_output(gp, "simplify")
    candidates = find_candidates(gp, max_candidates, zero_mean)
    session = Session(seed=0, progress=progress)
    with session.bar(None, "simplify", "fit") as bar:
        search = _Search(gp, candidates, bar)
        with session.interruptible(lambda: search.best_fit):
            search.run(max_terms)
    return _finish(search.best or search.best_fit, gp, session.interrupted)


@dataclass(frozen=True, eq=False)
class Simplification:
    """Result of :func:`gpytorch_nkn.interpretation.simplify`.

    Attributes:
        kernel: Fitted sum of products of GPyTorch kernels without priors, over transformed inputs.
            It works and pickles without this package.
        model: Refitted copy of the original model with this kernel, in eval mode.
        terms: Terms by decreasing share, with labels in units of the data.
        parts: Terms with periodic kernels split, and posterior shares.
        bic: Log marginal likelihood minus ``p / 2 log n``.
        log_density: Held-out log density in nats per point with fixed hyperparameters, of 8 blocks
            for one input column, otherwise leave-one-out.
        network_log_density: The same for the original model.
        interrupted: Whether Ctrl-C ended the search.
        noise: Noise standard deviation in units of the targets.
        units: Units of the labels.
    """

    kernel: Kernel
    model: ExactGP
    terms: tuple[Term, ...]
    parts: tuple[Term, ...]
    bic: float
    log_density: float
    network_log_density: float
    interrupted: bool
    noise: float
    units: Units

    @property
    def loss(self) -> float:
        """Held-out log density of the original minus the simple model, in nats per point."""
        return self.network_log_density - self.log_density

    @property
    def expression(self) -> str:
        """Kernel on one line, with hyperparameters in units of the data."""
        return " + ".join(term.label for term in self.terms)

    def __str__(self) -> str:
        lines = [f"{self.expression} + noise({three_digits(self.noise)})"]
        for term in sorted(self.parts, key=lambda term: -abs(term.posterior_share or 0.0)):
            if term.factors:
                share = f"{term.posterior_share or 0.0:.1%}"
                lines.append(f"{share:>8} of the fit  {words_of(term, self.units)}")
        mean = type(self.model.mean_module).__name__
        if mean != "ZeroMean":
            lines.append(f"The model's mean function, a {mean}, is not part of the kernel.")
        kind = "Cross-validation in blocks" if len(self.units.names) == 1 else "Leave-one-out"
        lines.append(
            f"{kind}: mean log density {self.log_density:.3f}, "
            f"original model {self.network_log_density:.3f} (higher is better)."
        )
        if self.interrupted:
            lines.append("The search was interrupted; this is the best kernel so far.")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class _State:
    """Fitted parts, and the model with these parts as its kernel."""

    parts: tuple[Part, ...]
    model: ExactGP
    value: float = -math.inf  # BIC in nats, higher is better


class _Search:
    """Search by forward and backward steps."""

    def __init__(self, gp: FittedGP, candidates: Sequence[Part], bar: tqdm):
        self.candidates, self.bar = candidates, bar
        base = copy_model(gp.model).train()
        others = [p for name, p in base.named_parameters() if not name.startswith("covar_module.")]
        self.num_others = sum(p.numel() for p in others if p.requires_grad)
        if type(base.likelihood) is GaussianLikelihood:
            # the first kernels explain less than the network; with its small noise they overfit
            noise = base.likelihood.noise.detach()
            raw = base.likelihood.noise_covar.raw_noise
            if raw.requires_grad and gp.targets.numel() > 1:
                with suppress(RuntimeError):  # the noise constraint may not allow the value
                    base.likelihood.noise = noise.clamp_min(0.1 * float(gp.targets.var()))
        transform = getattr(base, "input_transform", None)
        if transform is not None:  # terms refer to the current transformed inputs
            transform.requires_grad_(False)
        self.start = _State((), base)
        self.best: _State | None = None
        self.best_fit: _State | None = None  # best of all fits, accepted or not

    def run(self, max_terms: int) -> None:
        """Add and drop terms, then refit until convergence."""
        for _ in range(2):  # the second round may replace dropped terms
            before = self.best
            while self._add_one(max_terms):
                pass
            self._drop()
            if self.best is before:
                break
        assert self.best is not None
        for fitted in self._fit_all([(self.best, self.best.parts)], _FINAL_STEPS):
            self._accept(fitted, 0.0)

    def _accept(self, state: _State | None, gain: float = _MIN_GAIN) -> bool:
        if state is None or (self.best is not None and state.value <= self.best.value + gain):
            return False
        self.best = state
        self.bar.set_postfix_str(" + ".join(part.name for part in state.parts))
        return True

    def _add_one(self, max_terms: int) -> bool:
        """Add the best candidate without superfluous factors; False if none improves BIC."""
        state = self.start if self.best is None else self.best
        if len(state.parts) >= max_terms:
            return False
        taken = {product_key(part.factors) for part in state.parts}
        trial = self._best_of(
            (state, (*state.parts, part))
            for part in self.candidates
            if part.num_parameters > 1 or product_key(part.factors) not in taken
        )
        if trial is None:
            if self.best is None:
                raise ValueError("None of the candidate kernels could be fitted to the data.")
            return False
        while True:
            *others, last = trial.parts
            less = self._best_of((trial, (*others, part)) for part in shorter(last))
            if less is None or less.value <= trial.value + _MIN_GAIN:
                return self._accept(trial)
            trial = less

    def _drop(self) -> None:
        """Drop terms, factors, columns and exponents while BIC improves."""
        better = True
        while better and self.best is not None:
            state, trials = self.best, []
            for i, part in enumerate(state.parts):
                rest = state.parts[:i] + state.parts[i + 1 :]
                trials += [(state, rest)] if rest else []
                trials += [(state, (*rest, other)) for other in shorter(part)]
            better = self._accept(self._best_of(trials))

    def _best_of(self, trials: Iterable[tuple[_State, Sequence[Part]]]) -> _State | None:
        """Return the best trial after short fits of all and long fits of the finalists."""
        short = sorted(self._fit_all(trials, _TRIAL_STEPS), key=lambda state: -state.value)
        finalists = [(state, state.parts) for state in short[:_FINALISTS]]
        return max(
            self._fit_all(finalists, _FINALIST_STEPS), key=lambda state: state.value, default=None
        )

    def _fit_all(
        self, trials: Iterable[tuple[_State, Sequence[Part]]], iterations: int
    ) -> list[_State]:
        fits = []
        for state, parts in trials:
            fitted = self._fit(state, parts, iterations)
            self.bar.update()
            if math.isfinite(fitted.value):
                fits.append(fitted)
                if self.best_fit is None or fitted.value > self.best_fit.value:
                    self.best_fit = fitted
        return fits

    def _fit(self, state: _State, parts: Sequence[Part], iterations: int) -> _State:
        """Refit all hyperparameters, starting at the parts and the state's mean and noise."""
        network, trained = as_network(parts, state.model.train_targets)
        model = copy_model(state.model, network).train()
        try:
            flat = FlatParameters(model)
            try:
                lbfgs(flat, iterations, lambda: None)
            finally:
                flat.release()
            learned = trained()
            with torch.no_grad():
                mean, covariance = noisy_prior(model)
                loss = gaussian_negative_log_likelihood(covariance, model.train_targets - mean)
        except (ArithmeticError, RuntimeError, ValueError):  # such as a failed factorisation
            return _State(tuple(parts), model)
        count = self.num_others + sum(part.num_parameters for part in learned)
        return _State(
            learned, model, -float(loss) - 0.5 * count * math.log(model.train_targets.numel())
        )


def _finish(state: _State | None, gp: FittedGP, interrupted: bool) -> Simplification:
    assert state is not None
    model = copy_model(state.model)
    model.covar_module = gpytorch_sum(state.parts, gp.targets)
    trained = dict(gp.model.named_parameters())
    for name, parameter in model.named_parameters():
        if name.startswith("input_transform."):
            parameter.requires_grad_(trained[name].requires_grad)
    refitted = replace(fitted_gp(model.eval()), units=gp.units)
    return Simplification(
        kernel=gpytorch_sum(state.parts, gp.targets),  # a copy, not shared with the model
        model=model,
        terms=expand_source(refitted, split=False).terms,
        parts=with_posterior_shares(expand_source(refitted), refitted).terms,
        bic=state.value,
        log_density=_log_density(model, gp),
        network_log_density=_log_density(gp.model, gp),
        interrupted=interrupted,
        noise=float(refitted.noise.mean().sqrt()) * float(gp.units.y_scale),
        units=gp.units,
    )


def _log_density(model: ExactGP, gp: FittedGP) -> float:
    """Return the cross-validated log density in nats per point, in units of the targets."""
    model = copy_model(model)
    one_column = gp.inputs.size(-1) == 1
    mean, variance = leave_blocks_out(model, _BLOCKS) if one_column else leave_one_out(model)
    densities = torch.distributions.Normal(mean, variance.sqrt()).log_prob(model.train_targets)
    value = densities.mean().item() - math.log(float(gp.units.y_scale))
    if gp.units.link is not None:
        targets = gp.units.y_offset + gp.units.y_scale * gp.targets.double().cpu().numpy()
        value += float(gp.units.link.log_slope(gp.units.original(targets)).mean())
    return value


def words_of(term: Term, units: Units) -> str:
    """Return a phrase for a term.

    Example:
        >>> from gpytorch.kernels import PeriodicKernel, ScaleKernel
        >>> from gpytorch_nkn.interpretation import expand
        >>> kernel = ScaleKernel(PeriodicKernel())
        >>> kernel.base_kernel.period_length = 12.0
        >>> words_of(expand(kernel, split=False).terms[0], Units.plain(1))
        'a cycle of 12.0'
    """

    smooth, cycles, linear, walks, steps, others = (
        [factor for factor in term.factors if role_of(factor) == role]
        for role in ("smooth", "periodic", "linear", "walk", "step", None)
    )
    if others or steps or (walks and not cycles):
        named = (*others, *steps, *walks)
        phrases = [getattr(spec_of(factor), "words", None) for factor in named]
        if rest := tuple(factor for factor in term.factors if factor not in named):
            phrases.append(words_of(replace(term, factors=rest), units))
        return term.label if None in phrases else " times ".join(map(str, phrases))
    degrees = {1: "linear", 2: "quadratic", 3: "cubic"}
    degree = degrees.get(len(linear), f"degree-{len(linear)}")
    where = _columns(linear, units)
    if cycles:
        periods = [(f, period_of(f)) for f in cycles]
        lengths = [units.length(p, (columns_of(f) or (0,))[0]) for f, p in periods if p is not None]
        text = f"a cycle of {' times one of '.join(lengths)}{_columns(cycles, units)}"
        text += f", whose shape drifts {_scale(smooth, units)}" if smooth else ""
        text += ", whose shape follows a random walk" if walks else ""
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
        spec = spec_of(kernel)
        how = "over" if spec is None or spec.words is None else spec.words
        parts.append(f"{how} {lengths}{_columns([kernel], units)}")
    return " and ".join(parts)


def _columns(kernels: list[Any], units: Units) -> str:
    """Return the names of the columns, if the data have several."""
    if len(units.names) == 1 or not kernels:
        return ""
    columns = {c for k in kernels for c in columns_of(k) or range(len(units.names))}
    if len(columns) == len(units.names):
        return " in all columns"
    return f" in {', '.join(units.names[column] for column in sorted(columns))}"
