"""All candidates for a series: trained within a budget, weighted, conditioned on all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from scipy.special import softmax

from gpytorch_nkn.averaging import (
    OrderedProbit,
    Trained,
    Transform,
    as_bounds,
    candidate_transforms,
    train_candidates,
)
from gpytorch_nkn.estimators.series.candidates import (
    Key,
    Options,
    candidate_keys,
    scout,
    train,
)
from gpytorch_nkn.estimators.series.member import CONDITIONED, Member
from gpytorch_nkn.estimators.series.outliers import FEWEST, outlying, too_many
from gpytorch_nkn.estimators.series.scoring import one_thread
from gpytorch_nkn.estimators.series.series import Series, view
from gpytorch_nkn.fit import Session, warn_user

__all__ = ["Found", "search"]

# A mean log density counts as that of one target for each window of the horizon, since the errors
# of a window are correlated, and of so many at least.
_POINTS = 3.0
# Counts have an ordered probit if their mean or median is below the first and all below the second.
_SMALL, _MOST = 10.0, 10_000.0
_LEAST = 1e-3  # weight of a member that forecasts a long series
_LEARNING = 0.6  # of the budget, where conditioning on a long series takes the rest
_SCOUTING, _ROUNDS = 0.4, 5  # fraction of the budget, and rounds, of the search for outliers


@dataclass(frozen=True)
class Found:
    """What came of a search.

    Attributes:
        trained: All candidates, failed ones too.
        members: Those that forecast, of the highest weight first.
        outliers: Mask ``N`` of the observations that were left out.
        interrupted: Whether Ctrl-C ended the training.
    """

    trained: list[Trained[Key, Member]]
    members: list[Member]
    outliers: np.ndarray
    interrupted: bool


def search(options: Options, series: Series) -> Found:
    """Train and weight the candidates; those that count are conditioned on a long series."""
    learning = options.budget and options.budget * (_LEARNING if series.is_long else 1.0)
    session = Session(budget=learning, seed=options.seed, progress=options.progress)
    with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
        outliers, ready = _find_outliers(options, series, session)
        series = series.select(~outliers)
        transforms = _transforms(options, series)
        keys = candidate_keys(options.structure, options.quality, series, transforms)
        # several candidates have one progress bar, a single one has its own
        own = replace(options, progress=options.progress and len(keys) == 1)
        trained = train_candidates(
            train, keys, session, shared=(own, series), ready=ready, n_jobs=options.n_jobs
        )
    members = [one.candidate for one in trained if one.candidate is not None]
    if members:
        count = max(_POINTS, series.num_windows)
        weights = softmax([count * m.log_density + m.log_prior for m in members])
        for member, weight in zip(members, weights.tolist(), strict=True):
            member.weight = weight
        if series.is_long:
            members = _condition(options, members, series)
    members.sort(key=lambda member: -member.weight)
    return Found(trained, members, outliers, session.interrupted)


def _condition(options: Options, members: list[Member], series: Series) -> list[Member]:
    """Condition the members whose weight counts on all of a long series.

    Ctrl-C and the end of the budget leave the others with the rows that they learned from.
    """
    members = sorted(members, key=lambda member: -member.weight)
    members = [member for member in members if member.weight > _LEAST]
    kept: list[Member] = []
    for number, member in enumerate(members):
        if options.seconds_left <= 0:
            return [*kept, *members[number:]]
        try:
            with one_thread(series):
                member.condition(series.rows, series.values)
                member.prepare()
            kept.append(member)
        except KeyboardInterrupt:
            warn_user("Interrupted: forecasts depend on the last rows of the series alone.")
            return [*kept, *members[number:]]
        except (RuntimeError, np.linalg.LinAlgError) as error:
            warn_user(f"{member.name} does not forecast: {type(error).__name__}: {error}")
    total = sum(member.weight for member in kept)
    for member in kept:
        member.weight /= total
    return kept


def _transforms(options: Options, series: Series) -> list[Transform]:
    """What may be modelled of the targets."""
    values = series.values
    found = candidate_transforms(options.transform, values, as_bounds(options.bounds))
    lower, upper = found[0].lower, found[0].upper
    is_small = min(values.mean(), np.median(values)) < lower + _SMALL
    if options.transform == "auto" and found[0].whole and is_small and values.max() < lower + _MOST:
        bent = [one for one in found if one.name in ("sqrt", "logit")]
        return [*bent, OrderedProbit.of(values, lower, upper)]
    return found


def _find_outliers(
    options: Options, series: Series, session: Session
) -> tuple[np.ndarray, list[Trained[Key, Member]]]:
    """Mask ``N`` of outliers, and the candidates that have seen that there are none.

    An outlier is one on each scale that is modelled. Outliers hide others: the search goes on
    without those found.
    """
    outliers = np.zeros(len(series.time), bool)
    if options.outliers == "keep" or len(outliers) < FEWEST:
        return outliers, []
    scales = _transforms(options, series)
    keys = [(scout(series), scale) for scale in dict.fromkeys((scales[0], scales[-1]))]
    scouting = replace(options, priors=True, recipe=None, progress=False)
    progress = options.progress and series.is_long
    own = Session(budget=session.part(_SCOUTING), progress=progress)
    for _ in range(_ROUNDS):
        rest = series.select(~outliers)
        trained = train_candidates(train, keys, own, shared=(scouting, rest))
        if any(one.status != "ok" for one in trained):
            session.interrupted = own.interrupted
            break
        members = [one.candidate for one in trained if one.candidate is not None]
        rows = reduce(np.intersect1d, [_outlying(member, rest) for member in members])
        count = int(outliers.sum()) + rows.size
        if not rows.size or too_many(count, len(outliers)):
            break
        if np.ptp(np.delete(rest.values, rows)) == 0:
            break
        outliers[np.flatnonzero(~outliers)[rows]] = True
    is_candidate = options.priors and options.recipe is None and not outliers.any()
    if session.interrupted and not is_candidate:
        raise KeyboardInterrupt  # nothing that could forecast has been trained
    return outliers, trained if is_candidate else []


def _outlying(member: Member, series: Series) -> np.ndarray:
    with one_thread(series):
        if series.is_long:
            member.condition(series.rows, series.values)
        errors = member.errors()
    return view(len(series.time), series.reach, CONDITIONED)[outlying(errors)]
