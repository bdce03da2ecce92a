"""All candidates for a series: trained within a budget, weighed, conditioned on the whole of it."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.special import softmax

from gpytorch_nkn.averaging import Transform, as_bounds, candidate_transforms
from gpytorch_nkn.estimators.series.member import Member
from gpytorch_nkn.estimators.series.outliers import CANDIDATE, wild_rows
from gpytorch_nkn.estimators.series.training import (
    LEARNING,
    NO_COVARIATES,
    NO_SEASON,
    QUALITIES,
    Series,
    Settings,
    candidates,
    train,
)
from gpytorch_nkn.fit import WORKER_LOST, Recipe, Session, as_finished, warn_user
from gpytorch_nkn.kernels import NeuralKernelNetwork

__all__ = ["Search", "Tried"]

# Mean log densities of rolling forecasts count as those of so many independent targets, or of one
# for so many windows of the horizon: few, as all candidates forecast much alike and the errors of a
# window go together.
_POINTS, _WINDOWS = 4.0, 2.0
_LEAST = 1e-3  # weight of a process that forecasts a long series
_MANY = 250  # points
_FEW = 600  # points, up to which one thread is the fastest
_SHORT, _PART = Recipe(adam_steps=0, lbfgs_iterations=25), 0.1  # of the training that finds them


@dataclass(frozen=True)
class Tried:
    """What came of a search.

    Attributes:
        candidates: All that were trained, failed ones too, with their weights.
        members: Those that forecast.
        wild: Mask ``N`` of the observations that they did without.
        interrupted: Whether Ctrl-C ended the training.
    """

    candidates: list[Member]
    members: list[Member]
    wild: np.ndarray
    interrupted: bool


@dataclass(frozen=True)
class Search:
    """How candidates are found: options of :class:`NKNForecaster`, which has checked them.

    Attributes:
        structure, transform, bounds, quality, outliers, priors, restarts, recipe, budget, n_jobs,
            device, progress: Of the forecaster.
        seed: Of all that is drawn.
        begin: When the call began, by the monotonic clock.
    """

    structure: str | NeuralKernelNetwork
    transform: str
    bounds: Sequence[float | None] | None
    quality: str
    outliers: str
    priors: bool
    restarts: int | None
    recipe: Recipe | None
    budget: float | None
    n_jobs: int
    device: str | None
    progress: bool
    seed: int
    begin: float = field(default_factory=clock.monotonic)

    def run(self, series: Series) -> Tried:
        """Train and weigh the candidates; a long series conditions those whose weight counts."""
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
            tried, wild, interrupted = self._train_all(series)
        members = [member for member in tried if not member.status.startswith("failed")]
        count = max(_POINTS, series.num_windows / _WINDOWS)
        scores = [count * m.log_density + m.log_prior for m in members]
        weights = softmax(scores) if scores else np.empty(0)
        for member, weight in zip(members, weights, strict=True):
            member.weight = float(weight)
        if series.num_trained < len(series.time):
            members = self._condition(members, series.select(~wild))
        members.sort(key=lambda member: -member.weight)
        return Tried(tried, members, wild, interrupted)

    def _condition(self, members: list[Member], series: Series) -> list[Member]:
        """Members whose weight counts, after all of a long series and not its last rows alone.

        Ctrl-C leaves the rest of them with these last rows.
        """
        members = [member for member in members if member.weight > _LEAST]
        for number, member in enumerate(members):
            left = None if self.budget is None else self.budget - (clock.monotonic() - self.begin)
            seconds = None if left is None else max(left, 0.0) / (len(members) - number)
            try:
                with _threads(series):
                    member.condition(series.rows, series.values, self.device, seconds=seconds)
                    member.prepare()
            except KeyboardInterrupt:
                warn_user("Interrupted: forecasts depend on the last rows of the series alone.")
                break
            except (RuntimeError, np.linalg.LinAlgError) as error:
                member.status = f"failed: {type(error).__name__}: {error}"
        kept = [member for member in members if not member.status.startswith("failed")]
        total = sum(member.weight for member in kept)
        for member in kept:
            member.weight /= total
        return kept

    def _transforms(self, series: Series) -> list[Transform]:
        """What may be modelled of the targets."""
        return candidate_transforms(self.transform, series.values, as_bounds(self.bounds))

    def _train_all(self, series: Series) -> tuple[list[Member], np.ndarray, bool]:
        """All candidates, the mask ``N`` of wild values left out, and whether Ctrl-C came."""
        network = self.structure if isinstance(self.structure, NeuralKernelNetwork) else None
        names: tuple[str, ...] = ("network",) if network is not None else (str(self.structure),)
        names = QUALITIES[self.quality] if self.structure == "auto" else names
        restarts = self.restarts
        if restarts is None:
            restarts = 20 if len(series.time) <= _MANY else 6
            restarts = restarts if len(names) == 1 else max(restarts // 4, 1)
        if not series.seasons:
            names = tuple(name for name in names if name != NO_SEASON)
        if series.covariates is None:
            names = tuple(name for name in names if name != NO_COVARIATES)
        is_long = series.num_trained < len(series.time)
        learning = self.budget and self.budget * (LEARNING if is_long else 1.0)
        session = Session(budget=learning, seed=self.seed, progress=self.progress)
        settings = Settings(
            self.priors, restarts, self.recipe, self.device, self.seed, progress=False
        )
        tried: list[Member] = []
        wild = np.zeros(len(series.time), bool)
        ready: dict[tuple[str, Transform], Member] = {}
        if self.outliers == "auto":
            # With the settings of the candidates, one of them is trained already.
            same = self.priors and self.recipe is None
            short = settings if same else replace(settings, priors=True, recipe=_SHORT)
            with _threads(series):
                wild, trained = wild_rows(
                    series, self._transforms(series), short, session.part(_PART)
                )
            if same and not wild.any():
                ready = {(CANDIDATE, member.scales.transform): member for member in trained}
        if wild.any():
            series = series.select(~wild)
        transforms = self._transforms(series)
        tasks = candidates(names, transforms)
        # with several candidates the bar is over these
        settings = replace(settings, progress=self.progress and len(tasks) == 1)

        def reached() -> bool:
            return any(not member.status.startswith("failed") for member in tried)

        with session.bar(len(tasks), "candidates", "fit") as bar, session.interruptible(reached):
            if self.n_jobs == 1 or len(tasks) == 1:
                for number, (name, transform) in enumerate(tasks):
                    if session.is_over and reached():
                        break
                    part = session.part(1 / (len(tasks) - number))
                    member = ready.get((name, transform))
                    if member is None:
                        with _threads(series):
                            member = train(name, network, transform, series, settings, part)
                    tried.append(member)
                    if member.result is not None and member.result.interrupted:
                        session.interrupted = True  # Ctrl-C, after which it was kept as it was
                    bar.update()
            else:
                tried += [member for task, member in ready.items() if task in tasks]
                bar.update(len(tried))
                todo = [task for task in tasks if task not in ready]
                rounds = np.ceil(len(todo) / max(min(abs(self.n_jobs), len(todo)), 1))
                part = session.part(1 / max(rounds, 1))
                tasks_of = ((name, transform, settings, part) for name, transform in todo)
                try:
                    for _, member in as_finished(
                        _in_worker, tasks_of, self.n_jobs, shared=(network, series)
                    ):
                        tried.append(member)
                        bar.update()
                except WORKER_LOST as error:
                    if not reached():
                        raise
                    warn_user(
                        f"Workers were lost ({type(error).__name__}): candidates are missing."
                    )
                tried.sort(key=lambda member: tasks.index((member.name, member.scales.transform)))
        return tried, wild, session.interrupted  # by Ctrl-C, not by the end of the budget


def _threads(series: Series) -> AbstractContextManager[None]:
    return _one_thread() if series.num_trained <= _FEW else nullcontext()


@contextmanager
def _one_thread() -> Iterator[None]:
    """On matrices of a few hundred rows, threads mostly wait for each other."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)


def _in_worker(
    shared: tuple[NeuralKernelNetwork | None, Series],
    name: str,
    transform: Transform,
    settings: Settings,
    budget: float | None,
) -> Member:
    network, series = shared
    return train(name, network, transform, series, settings, budget)
