"""Greedy search over sums of products of base kernels, on GPyTorch's kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.models import ExactGP
from torch import Tensor

from benchmarks.kernel_expressions import (
    Expression,
    Factor,
    Kinds,
    State,
    Term,
    column,
    make_model,
    normal_form,
    read,
    term_kernels,
    write,
)
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.fit.objective import Objective
from gpytorch_nkn.initialization import candidate_periods

__all__ = ["SearchResult", "search"]

_SPANS = (0.3, 0.1, 0.8, 0.2)  # start lengthscales of a smooth kernel, in spans of the input
_COLUMN_SPANS = (0.4, 1.2, 0.7, 0.25)  # the same for a column among several
_MANY = 40  # children that are screened; of more, those that lead after a glance
_POOL = 12  # starts of a child of one input, of which the most likely ones are trained
_SHAPES = (1.0, 0.4)  # start lengthscales of a periodic kernel
_GLANCE = Recipe(adam_steps=0, lbfgs_iterations=4)
_SCREENING = Recipe(adam_steps=0, lbfgs_iterations=12)
_FITTING = Recipe(adam_steps=0, lbfgs_iterations=100)


@dataclass(frozen=True)
class SearchResult:
    """What a search ended with.

    Attributes:
        model: The fitted exact GP on standardised data, in eval mode. Its ``covar_module`` is an
            AdditiveKernel of one ScaleKernel per term and a constant.
        terms: The expression, a product of base kernels for each term: ``[("LIN", "PER"),
            ("RBF",)]``.
        term_kernels: The kernels of the terms, in the same order.
        bic: Bayesian information criterion of the model, lower is better.
        path: The expression after every round, with its criterion.
        expressions: How many different expressions were fitted.
        fits: Starts that were trained.
        evaluations: Evaluations of the likelihood and its gradient.
        seconds: CPU time of the process.
    """

    model: ExactGP
    terms: list[Kinds]
    term_kernels: list[Kernel]
    bic: float
    path: list[tuple[Expression, float]]
    expressions: int
    fits: int
    evaluations: int
    seconds: float


@dataclass
class _Fitted:
    """An expression with the best parameters found so far."""

    state: State
    bic: float
    model: ExactGP


@dataclass
class _Effort:
    """What a search has cost so far."""

    fits: int = 0
    evaluations: int = 0
    seen: set[Expression] = field(default_factory=set)


def search(
    x: Tensor,
    y: Tensor,
    *,
    max_depth: int = 4,
    restarts: int = 4,
    seed: int = 0,
    dims: int | None = None,
    keep: int = 4,
    patience: int = 1,
    removals: bool = True,
    zero_mean: bool = True,
) -> SearchResult:
    """Search for a composition of base kernels that explains the data, by BIC.

    The search begins with every base kernel alone, and each round expands the best expression so
    far: a base kernel is added, multiplies a term (or the whole sum), or replaces another. When no
    expansion has a lower BIC, the next best expression is tried, and then the search ends.
    Expressions are sums of products, with products distributed over sums and redundant factors
    merged, so that equal kernels are recognised and none is fitted twice. Every term has an output
    scale, and its factors have variance one.

    For one input the base kernels are LIN (around a trained location), PER, RBF and RQ; for
    several an RBF of each column, ``RBF_1`` to ``RBF_D``.

    Models are trained without priors, because BIC (``-2 log p(y) + p log N``) is defined at the
    maximum of the likelihood. Only the level is averaged over, with variance one: a level that was
    maximised over would be free, and LIN * RBF would win over RBF by leaving its own to it. LIN
    has a location, as in the paper, which counts as a hyperparameter.

    A child starts from its parent's parameters, with start values from the data for what is new
    (periods from the periodogram), and every fourth time from the data altogether. Of a dozen
    starts the most likely ones are trained for a dozen iterations (of more than forty children
    only those that lead after four), and then the most promising children to the end.

    Args:
        x: Inputs ``N x D`` (or ``N``); standardised by the search, as are the targets.
        y: Targets ``N``.
        max_depth: Largest number of rounds, that of the single base kernels included.
        restarts: Starts per child.
        seed: Determines every random draw.
        dims: Number of input columns, to be checked against ``x``; ``None`` takes that of ``x``.
        keep: How many children of a round are trained to the end.
        patience: After how many expressions without a better child the search still goes on, with
            the best one that was not expanded yet; 0 is the greedy search of the paper.
        removals: Also try expressions without one of the terms or factors (Lloyd et al. 2014).
        zero_mean: PER without its constant part (Lloyd et al. 2014); otherwise GPyTorch's.

    Returns:
        The best expression, its model and the cost of the search.

    Raises:
        ValueError: Shapes do not match, the data are not finite or constant, or a number is
            below 1.

    Reference: Duvenaud, Lloyd, Grosse, Tenenbaum and Ghahramani (2013), Structure Discovery in
    Nonparametric Regression through Compositional Kernel Search.
    """
    x = x.unsqueeze(-1) if x.dim() == 1 else x
    if x.dim() != 2 or y.shape != x.shape[:1] or dims not in (None, x.size(-1)):
        raise ValueError(
            f"x must be N x D with D = {'any' if dims is None else dims} and y of length N, got "
            f"shapes {tuple(x.shape)} and {tuple(y.shape)}."
        )
    if min(max_depth, restarts, keep, patience + 1) < 1:
        raise ValueError(
            "max_depth, restarts and keep must be at least 1 and patience 0, got "
            f"{max_depth}, {restarts}, {keep} and {patience}."
        )
    varied = y.std() > 0 and bool((x.std(0) > 0).all())
    if not (x.isfinite().all() and y.isfinite().all() and varied):
        raise ValueError("x and y must be finite and not constant.")
    start = time.process_time()
    grammar = _Grammar(_standardised(x), _standardised(y), restarts, seed, keep, zero_mean)
    best: _Fitted | None = None
    path: list[tuple[Expression, float]] = []
    waiting: list[_Fitted] = []  # trained to the end, not expanded, best first
    expanded: _Fitted | None = None
    failures = 0
    for _ in range(max_depth):
        children = grammar.children(None if expanded is None else expanded.state, removals)
        waiting = sorted([*waiting, *grammar.leading(children)], key=lambda child: child.bic)
        if waiting and (best is None or waiting[0].bic < best.bic):
            best, failures = waiting[0], 0
            path.append((best.state.expression, best.bic))
        else:
            failures += 1
        if failures > patience or not waiting:
            break
        expanded = waiting.pop(0)
    if best is None:
        raise RuntimeError("No base kernel could be fitted.")
    return SearchResult(
        model=best.model,
        terms=list(best.state.expression),
        term_kernels=term_kernels(best.model),
        bic=best.bic,
        path=path,
        expressions=len(grammar.effort.seen),
        fits=grammar.effort.fits,
        evaluations=grammar.effort.evaluations,
        seconds=time.process_time() - start,
    )


class _Grammar:
    """Expressions over the columns of a data set, their start values and their fits."""

    def __init__(self, x: Tensor, y: Tensor, restarts: int, seed: int, keep: int, zero_mean: bool):
        self.x, self.y = x, y
        self.restarts, self.seed, self.keep, self.zero_mean = restarts, seed, keep, zero_mean
        self.spans = (x.amax(0) - x.amin(0)).tolist()
        self.rng = np.random.default_rng(seed)
        self.effort = _Effort()
        single = x.size(-1) == 1
        columns = range(1, x.size(-1) + 1)
        self.bases = ["LIN", "PER", "RBF", "RQ"] if single else [f"RBF_{d}" for d in columns]
        self.pool = max(_POOL, restarts) if single else restarts
        self.periods = self._find_periods() if single else []

    def _find_periods(self) -> list[float]:
        """Peaks of both periodograms in turn, then what these may be harmonics or sidebands of."""
        x, y = self.x.squeeze(-1).numpy(), self.y.numpy()
        lists = [candidate_periods(x, y, trend=trend).tolist() for trend in ("smooth", "cubic")]
        places = range(max(map(len, lists)))
        peaks = [periods[i] for i in places for periods in lists if i < len(periods)]
        peaks = peaks or [self.spans[0] / cycles for cycles in (4, 8, 16)]
        leading = _different(peaks)[:4]
        # An amplitude that changes sign splits a line in two, half way between which it is missing.
        between = [2 / (1 / a + 1 / b) for a, b in combinations(leading, 2) if 0.75 < a / b < 1.33]
        twice = [2 * period for period in leading if period < self.spans[0] / 4]
        return _different([*leading, *between, *twice, *peaks])[:_POOL]

    def children(self, parent: State | None, removals: bool) -> list[list[State]]:
        """Start values of every expression that one step leads to and that was never fitted."""
        children: dict[Expression, list[State]] = {}
        for number in range(self.pool):
            if parent is None:
                states: Iterable[State] = (
                    State((Term(1.0, (self._base(base, number),)),), 0.1) for base in self.bases
                )
            else:
                states = self._expansions(parent, number, removals)
            here = set()  # two ways to an expression are two starts of it, in one round
            for state in states:
                state = normal_form(state)
                expression = state.expression
                if expression in self.effort.seen or (expression, number) in here:
                    continue
                here.add((expression, number))
                if parent is not None and number % 4 == 3:
                    state = self._afresh(state, number)
                children.setdefault(expression, []).append(state)
        self.effort.seen.update(children)
        return [self._most_likely(starts) for starts in children.values()]

    def _most_likely(self, starts: list[State]) -> list[State]:
        """As many starts as are to be trained, those of the highest likelihood."""
        if len(starts) <= self.restarts:
            return starts
        model = make_model(self.x, self.y, starts[0].terms, zero_mean=self.zero_mean)
        objective = Objective(model.train())
        losses = []
        with torch.no_grad():
            for start in starts:
                write(model, start)
                losses.append(objective().item())
        self.effort.evaluations += len(starts)
        order = np.argsort(losses).tolist()
        fresh = next(i for i in order if i % 4 == 3)  # one that owes nothing to the parent
        order = [fresh, *(i for i in order if i != fresh)]
        return [starts[i] for i in order[: self.restarts]]

    def _expansions(self, parent: State, number: int, removals: bool) -> Iterator[State]:
        terms = parent.terms
        # The new term takes over what the parent held for noise, or shares what it explains.
        scale = max(parent.noise, 0.1) if number % 2 == 0 else 0.5
        noise = max(0.5 * parent.noise, 1e-3)
        for base in self.bases:
            added = Term(scale, (self._base(base, number),))
            yield State((*terms, added), noise)
            products = [
                replace(term, factors=(*term.factors, self._base(base, number))) for term in terms
            ]
            for i in range(len(terms)):
                yield replace(parent, terms=(*terms[:i], products[i], *terms[i + 1 :]))
            yield replace(parent, terms=tuple(products))
        for i, term in enumerate(terms):
            for j, (kind, _) in enumerate(term.factors):
                rest = (*term.factors[:j], *term.factors[j + 1 :])
                others = [base for base in self.bases if base != kind]
                replaced = [replace(term, factors=(*rest, self._base(b, number))) for b in others]
                if removals and rest:
                    replaced.append(replace(term, factors=rest))
                for new in replaced:
                    yield replace(parent, terms=(*terms[:i], new, *terms[i + 1 :]))
            if removals and len(terms) > 1:
                yield replace(parent, terms=(*terms[:i], *terms[i + 1 :]))

    def _base(self, kind: str, number: int) -> Factor:
        """A base kernel with the start values of a restart."""
        jitter = math.exp(0.1 * self.rng.standard_normal())
        if kind == "LIN":
            return kind, {"center": 0.2 * self.rng.standard_normal() if number else 0.0}
        if kind == "PER":
            period = self.periods[number % len(self.periods)]
            return kind, {"period_length": period, "lengthscale": _SHAPES[number % 2] * jitter}
        if kind in ("RBF", "RQ"):
            lengthscale = _SPANS[number % len(_SPANS)] * self.spans[0] * jitter
            return kind, {"lengthscale": lengthscale} | ({"alpha": 1.0} if kind == "RQ" else {})
        span = self.spans[column(kind)]
        return kind, {"lengthscale": _COLUMN_SPANS[number % len(_COLUMN_SPANS)] * span * jitter}

    def _afresh(self, state: State, number: int) -> State:
        """The same expression with all start values from the data."""
        terms, periodic = [], 0
        for position, term in enumerate(state.terms):
            factors = []
            for kind, _ in term.factors:
                # equal kinds in different terms get different lengthscales and periods
                place = number // 4 + periodic if kind == "PER" else number + position
                periodic += kind == "PER"
                factors.append(self._base(kind, place))
            terms.append(Term(1.0 / len(state.terms), tuple(factors)))
        return State(tuple(terms), 0.05)

    def leading(self, children: list[list[State]]) -> list[_Fitted]:
        """The children that lead after a few iterations, trained to the end."""
        if len(children) > _MANY:
            glanced = self._best([self._fit(starts, _GLANCE) for starts in children], _MANY)
            children = [[child.state] for child in glanced]
        screened = self._best([self._fit(starts, _SCREENING) for starts in children], self.keep)
        return self._best([self._fit([child.state], _FITTING) for child in screened], self.keep)

    @staticmethod
    def _best(found: Iterable[_Fitted | None], number: int) -> list[_Fitted]:
        return sorted(filter(None, found), key=lambda child: child.bic)[:number]

    def _fit(self, starts: Sequence[State], recipe: Recipe) -> _Fitted | None:
        model = make_model(self.x, self.y, starts[0].terms, zero_mean=self.zero_mean)

        def initialize(candidate: ExactGP, seed: int, number: int) -> None:
            write(candidate, starts[number])

        try:
            result = fit_best_of(
                model,
                restarts=len(starts),
                initialize=initialize,
                recipe=recipe,
                seed=self.seed,
                progress=False,
            )
        except RuntimeError:  # no start of this expression has a finite likelihood
            return None
        self.effort.fits += len(starts)
        self.effort.evaluations += sum(record.evaluations for record in result.restarts)
        size = sum(p.numel() for p in model.parameters() if p.requires_grad)
        loss = result.restarts[result.best].loss
        bic = 2 * loss + size * math.log(len(self.y))
        return _Fitted(read(model, starts[0]), bic, model)


def _different(periods: Sequence[float]) -> list[float]:
    """The periods that are no closer than two per cent to one before them."""
    found: list[float] = []
    for period in periods:
        if all(abs(math.log(period / other)) > 0.02 for other in found):
            found.append(period)
    return found


def _standardised(values: Tensor) -> Tensor:
    return ((values - values.mean(0)) / values.std(0)).detach()
