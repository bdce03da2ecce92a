"""Search over the candidates of a series: training, weights, conditioning on all observations."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.utils import check_random_state

from gpytorch_nkn.averaging import (
    OrderedProbit,
    Trained,
    Transform,
    as_bounds,
    candidate_transforms,
    train_candidates,
)
from gpytorch_nkn.estimators.series.candidates import SHIFTED, Key, candidate_keys, screen, train
from gpytorch_nkn.estimators.series.member import CONDITIONED, Member
from gpytorch_nkn.estimators.series.scoring import one_thread
from gpytorch_nkn.estimators.series.series import Series, view
from gpytorch_nkn.fit import Session, warn_user

__all__ = ["SearchResult", "search"]

# Smallest number of windows in the weights of the candidates. A window of the horizon counts as one
# observation, because errors within a window are correlated.
_WINDOWS = 6.0
# The ordered probit is a candidate for counts with a mean or median below the first number, all
# counts below the second, and a median of the last horizon below this quantile of earlier counts.
_MAX_SMALL_MEAN, _MAX_COUNT, _NOT_GROWING = 10.0, 10_000.0, 0.975
_MIN_WEIGHT = 1e-3  # weight up to which a member is dropped from the forecast of a long series
_TRAINING_TIME = 0.6  # fraction of the budget for training on a long series, before conditioning
_SCREENING_TIME, _ROUNDS = 0.4, 5  # fraction of the budget, and rounds, of the search for outliers
_MIN_TARGETS, _MAX_OUTLIERS = 20, 0.02  # smallest number of targets, largest fraction of outliers
_OUTLIER_RATIO, _OUTLIER_ERROR = 12.0, 3.0  # least error, in RMS of smaller errors, and absolute
_PEAK_RATIO = 0.8  # smallest error of an outlier, relative to the rows before and after
_EVIDENCE = 15.0  # smallest likelihood-ratio statistic of a change of level or slope
_MAX_SHIFT_ROWS = 1000  # number of last rows that are searched
_MAX_SHIFTS = 4  # largest number of changes
_MIN_TIMES = 3  # smallest number of times before the first change and after the last
_MIN_UNEXPLAINED = 1e-6  # least fraction of a step's variance that the changes found do not explain


class SearchResult(NamedTuple):
    """Result of a search."""

    trained: list[Trained[Key, Member]]  # all candidates, including failed ones
    members: list[Member]  # of the mixture, largest weight first
    outliers: np.ndarray  # mask N of the observations
    shifts: tuple[float, ...]  # times at which the level or the slope changes, if probable
    interrupted: bool  # whether Ctrl-C ended the training


def search(forecaster: Any, series: Series) -> SearchResult:
    """Train and weight the candidates of an :class:`NKNForecaster`."""
    seed = int(check_random_state(forecaster.random_state).randint(2**31 - 1))
    options = clone(forecaster).set_params(random_state=seed)
    session = Session(budget=options.budget)
    budget = session.part(_TRAINING_TIME if series.is_long else 1.0)
    training = Session(budget=budget, seed=seed, progress=options.progress)
    outliers, series, ready = _screen_series(options, series, training)
    transforms = _transforms(options, series)
    keys = candidate_keys(options.structure, options.quality, series, transforms)
    # Several candidates share one progress bar; a single candidate has its own.
    options.set_params(progress=options.progress and len(keys) == 1)
    trained = train_candidates(
        train, keys, training, shared=(options, series), ready=ready, n_jobs=options.n_jobs
    )
    members = [trial.candidate for trial in trained if trial.candidate is not None]
    if members:
        count = max(_WINDOWS, series.num_windows)
        weights = softmax([count * m.log_density + m.log_prior for m in members])
        for member, weight in zip(members, weights.tolist(), strict=True):
            member.weight = weight
        members.sort(key=lambda member: -member.weight)
        if series.is_long:
            members = _condition(members, series, session)
    is_shifted = sum(m.weight for m in members if m.name == SHIFTED) > 0.5
    changes = series.shifts + series.kinks if is_shifted else ()
    return SearchResult(trained, members, outliers, changes, training.interrupted)


def _condition(members: list[Member], series: Series, session: Session) -> list[Member]:
    """Condition members whose weight is not negligible on the whole range of a long series.

    After Ctrl-C or the end of the budget, the remaining members stay conditioned on their training
    rows.
    """
    kept = [member for member in members if member.weight > _MIN_WEIGHT]
    try:
        for member in list(kept):
            if session.is_over:
                break
            try:
                with one_thread(series):
                    member.condition(series.rows, series.values, series.noise)
                    member.process().posterior()
            except (RuntimeError, np.linalg.LinAlgError) as error:
                warn_user(f"{member.name} cannot forecast: {type(error).__name__}: {error}")
                kept.remove(member)
    except KeyboardInterrupt:
        warn_user("Interrupted: some forecasts use only the training rows of the series.")
    total = sum(member.weight for member in kept)
    for member in kept:
        member.weight /= total
    return kept


def _transforms(options: Any, series: Series) -> list[Transform]:
    """Return candidate transforms of the targets."""
    values = series.values
    transforms = candidate_transforms(options.transform, values, as_bounds(options.bounds))
    lower, upper = transforms[0].lower, transforms[0].upper
    is_small = min(values.mean(), np.median(values)) < lower + _MAX_SMALL_MEAN
    recent = values[-series.horizon :]
    if (
        options.transform == "auto"
        and transforms[0].whole
        and is_small
        and values.max() < lower + _MAX_COUNT
        and np.median(recent) <= np.quantile(values[: -series.horizon], _NOT_GROWING)
    ):
        roots = [transform for transform in transforms if transform.name in ("sqrt", "logit")]
        return [*roots, OrderedProbit.of(values, lower, upper)]
    return transforms


def _screen_series(
    options: Any, series: Series, session: Session
) -> tuple[np.ndarray, Series, list[Trained[Key, Member]]]:
    """Find outliers and changes by one structure, with the first and the last transform.

    Return the mask ``N`` of outliers; the series without outliers, with its changes; and
    trained candidates that need no further training.
    """
    screening = clone(options).set_params(recipe=None, progress=False)
    progress = options.progress and series.is_long
    screen_session = Session(budget=session.part(_SCREENING_TIME), progress=progress)
    outliers, trained = _find_outliers(screening, series, screen_session)
    is_candidate = options.recipe is None and not outliers.any()
    shifts: tuple[float, ...] = ()
    kinks: tuple[float, ...] = ()
    members = [trial.candidate for trial in trained if trial.candidate is not None]
    if members and options.structure == "auto" and not screen_session.is_over:
        best = max(members, key=lambda member: member.log_density)
        shifts, kinks = _changes(best)
        for row in np.searchsorted(series.time, shifts):
            if outliers[row - 1 : row + 1].all():  # the two rows beside an exact shift
                outliers[row - 1 : row + 1] = False
    inliers = replace(series.select(~outliers), shifts=shifts, kinks=kinks)
    session.interrupted = screen_session.interrupted
    if session.interrupted and not is_candidate:
        raise KeyboardInterrupt  # no candidate of the forecast has been trained
    return outliers, inliers, trained if is_candidate else []


def _find_outliers(
    options: Any, series: Series, session: Session
) -> tuple[np.ndarray, list[Trained[Key, Member]]]:
    """Return a mask ``N`` of outliers, and the candidates trained on the other rows.

    An outlier has a large error with each transform. Outliers can hide other outliers, so the
    search is repeated without the outliers found.
    """
    outliers = np.zeros(len(series.time), bool)
    if options.outliers == "keep" or len(outliers) < _MIN_TARGETS:
        return outliers, []
    scales = _transforms(options, series)
    keys = [(screen(series), scale) for scale in dict.fromkeys((scales[0], scales[-1]))]
    for _ in range(_ROUNDS):
        inliers = series.select(~outliers)
        trained = train_candidates(train, keys, session, shared=(options, inliers))
        if any(trial.status != "ok" for trial in trained):
            break
        members = [trial.candidate for trial in trained if trial.candidate is not None]
        rows = reduce(np.intersect1d, [_outlier_rows(member, inliers) for member in members])
        count = int(outliers.sum()) + rows.size
        is_constant = np.ptp(np.delete(inliers.values, rows)) == 0
        if not rows.size or count > 1 + _MAX_OUTLIERS * len(outliers) or is_constant:
            break
        outliers[np.flatnonzero(~outliers)[rows]] = True
    return outliers, trained


def _outlier_rows(member: Member, series: Series) -> np.ndarray:
    with one_thread(series):
        if series.is_long:
            member.condition(series.rows, series.values, series.noise)
        errors = member.errors()
    return view(len(series.time), series.reach, CONDITIONED)[_large_errors(errors)]


def _large_errors(errors: np.ndarray) -> np.ndarray:
    """Return rows whose error is a local maximum above 12 times the RMS of all smaller errors.

    Errors are absolute standardised leave-one-out errors. The RMS excludes larger errors, which
    other outliers may cause. Only local maxima count, because an outlier also increases its
    neighbours' errors.
    """
    order = np.argsort(errors)
    smaller = np.sqrt(np.cumsum(errors[order] ** 2) / np.arange(1, errors.size + 1))
    upper = np.arange(errors.size // 2, errors.size)
    gaps = upper[
        errors[order[upper]] > np.maximum(_OUTLIER_RATIO * smaller[upper - 1], _OUTLIER_ERROR)
    ]
    if not gaps.size:
        return gaps
    padded = np.concatenate([[0.0], errors, [0.0]])
    largest = errors >= _PEAK_RATIO * np.maximum(padded[:-2], padded[2:])
    return np.flatnonzero(largest & (errors >= errors[order[gaps[0]]]))


@torch.no_grad()
def _changes(member: Member) -> list[tuple[float, ...]]:
    """Return the times at which the level, and the slope, changes more than the member expects.

    A likelihood-ratio test selects the best step or ramp, given a line and the covariance of the
    process up to a refitted scale. Steps are between two times, and ramps begin at one. The search
    is repeated with the steps and ramps found. If the largest number does not suffice, the series
    is a curve, and its slope has no changes.

    Reference: Chen and Liu (1993), Joint Estimation of Model Parameters and Outlier Effects in Time
    Series.
    """
    process, scales = member.process().at(slice(-_MAX_SHIFT_ROWS, None)), member.scales
    time = process.inputs[:, 0]
    times = time.unique()
    inner, posterior = times[_MIN_TIMES - 1 : -_MIN_TIMES], process.posterior()
    between = (inner + times[_MIN_TIMES : 1 - _MIN_TIMES]) / 2
    jumps, ramps = ((time - at.unsqueeze(-1)).clamp_min(0) for at in (between, inner))
    columns = [(time - time[0]).unsqueeze(0), (jumps > 0).to(time), ramps]
    steps = posterior.whiten(torch.cat(columns))
    residual = posterior.whiten(posterior.residual.unsqueeze(0))[:, 0]
    least = _MIN_UNEXPLAINED * steps.square().sum(0)
    best, found = 0, list[int]()  # first the line
    while len(found) <= min(_MAX_SHIFTS, len(between)):
        found.append(best)
        step = steps[:, best] / steps[:, best].norm()
        residual = residual - step * (step @ residual)
        steps = steps - torch.outer(step, step @ steps)
        squares = steps.square().sum(0)
        gains = torch.where(squares > least, (steps.mT @ residual).square() / squares, 0.0)
        best = int(gains.argmax())
        left = float(1 - gains[best] / residual.square().sum())
        if left > math.exp(-_EVIDENCE / len(residual)):
            break
    else:
        found = [number for number in found if number <= len(between)]
    places = scales.x_offset + scales.x_scale * torch.stack([between, inner]).cpu().numpy()
    is_found = np.isin(np.arange(1, steps.size(1)), found).reshape(2, -1)
    return [tuple(at[rows].tolist()) for at, rows in zip(places, is_found, strict=True)]
