import multiprocessing
import os
import pickle
import signal
import threading
from concurrent.futures import BrokenExecutor

import joblib
import numpy as np
import pytest
import torch
from gpytorch import settings
from gpytorch.kernels import RBFKernel, ScaleKernel
from joblib.externals.loky.backend import context

from gpytorch_nkn.fit import Recipe, as_finished, best_of, fit_best_of, parallel
from tests.fit.models import SmallGP, seasonal_data

SHORT = Recipe(adam_steps=4, lbfgs_iterations=2)
IMPORTED = ["distributed", "gpytorch_nkn.fit", "tests.fit.models"]


class Travelling(SmallGP):
    """Marks that it is trained in another process, which has one thread and may be killed then."""

    home, mark, kills = 0, "", False

    def forward(self, x):
        if os.getpid() != self.home:
            if not os.path.exists(self.mark):
                open(self.mark, "w").close()
                if self.kills:
                    os.kill(os.getpid(), signal.SIGKILL)
            assert torch.get_num_threads() == 1 and torch.get_default_dtype() == torch.float64
        return super().forward(x)


def noisier(model, seed, restart):
    """Start values that take no time where there are thousands of columns."""
    model.likelihood.noise = 0.1 * (1 + restart)


@pytest.fixture(params=["loky", "dask", "ray"])
def backend(request, monkeypatch):
    """Two processes of joblib's own, or a real cluster of two workers.

    Each imports PyTorch, which takes seconds, but processes of joblib and Dask are forks of one
    that has it.
    """
    name = request.param
    if name == "ray":
        ray = pytest.importorskip("ray")
        from ray.util.joblib import register_ray

        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        register_ray()
        bases = joblib.pool.PicklingPool.__bases__  # which Ray replaces for good
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        try:
            with joblib.parallel_config(backend=name, n_jobs=2):
                yield name
        finally:
            ray.shutdown()
            joblib.pool.PicklingPool.__bases__ = bases
        return
    if name == "loky":  # a fork of a process that has imported PyTorch
        multiprocessing.set_forkserver_preload(IMPORTED)
        monkeypatch.setattr(context, "_DEFAULT_START_METHOD", "forkserver")
        with joblib.parallel_config(backend=name, n_jobs=2):
            yield name
        return
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        server = distributed.utils.get_mp_context()  # which sets modules of its own, once
        server.set_forkserver_preload(IMPORTED)
        with (
            distributed.LocalCluster(**options) as cluster,
            distributed.Client(cluster),
            joblib.parallel_config(backend=name, n_jobs=2),
        ):
            yield name


@pytest.mark.parametrize("name", ["sequential", "threading", "multiprocessing"])
def test_results_come_from_every_backend(name):
    """Multiprocessing, and Ray's after it, returns lists only."""
    with joblib.parallel_config(backend=name, n_jobs=2):
        found = list(as_finished(pow, ((n, 2) for n in range(11)), None))
    assert sorted(found) == [(n, n**2) for n in range(11)]


def _overlapping(is_second, barrier):
    """Set a flag as kernels of GPyTorch do; the second thread resets it last."""
    if is_second:
        barrier.wait(10)
    with settings.lazily_evaluate_kernels(False):
        barrier.wait(10)
        barrier.wait(10)
    if not is_second:
        barrier.wait(10)


def test_threads_leave_the_settings_of_gpytorch_as_they_were():
    barrier = threading.Barrier(2)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        list(as_finished(_overlapping, [(False, barrier), (True, barrier)], None))
    assert settings.lazily_evaluate_kernels.is_default()


def test_tasks_are_not_drawn_ahead():
    drawn = []
    results = as_finished(pow, (drawn.append(n) or (n, 2) for n in range(100)), 1)
    assert next(results) == (0, 0) and len(drawn) < 10
    results.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A worker was lost")
def test_processes_and_clusters(backend, tmp_path):
    """A killed worker loses nothing, workers have one thread, numbers are as in one process.

    Dask starts another by itself, joblib's own and Ray's are started anew by this package, by the
    same lines: once is enough, and Ray's errors are looked at alone.
    """
    x, y = seasonal_data()
    x = x.repeat(1, 4000)  # more than a megabyte, which joblib's processes map from a file
    options = {"restarts": 3, "initialize": noisier, "recipe": SHORT, "progress": False}
    results = []
    for jobs in (1, None):
        model = Travelling(x, y, ScaleKernel(RBFKernel()))
        model.home, model.mark = os.getpid(), str(tmp_path / "elsewhere")
        model.kills = backend == "loky"
        assert not os.path.exists(model.mark)
        results.append(fit_best_of(model, n_jobs=jobs, **options))
    one, two = results
    assert os.path.exists(model.mark) and one.best == two.best
    for ours, theirs in zip(one.restarts, two.restarts, strict=True):
        assert ours.status == theirs.status and ours.loss == pytest.approx(theirs.loss, rel=1e-6)
    for member in (two.model, *two.members.values()):
        assert torch.equal(member.train_targets, model.train_targets)
    if backend == "ray":
        errors = pytest.importorskip("ray.exceptions")
        lost = (errors.RayActorError(), errors.WorkerCrashedError(), errors.NodeDiedError(""))
        assert all(map(parallel.is_lost, lost)) and not parallel.is_lost(errors.RayError())


@pytest.mark.parametrize("fails", [2, 3])
def test_tasks_of_lost_workers_begin_anew_but_not_for_ever(fails, monkeypatch):
    real, looks = parallel._results, []

    def results(jobs, n_jobs):
        looks.append(None)
        found = real(jobs, n_jobs)
        if len(looks) == 1:
            yield next(found)
        if len(looks) <= 1 + fails:
            found.close()
            raise BrokenExecutor("killed")
        yield from found

    monkeypatch.setattr(parallel, "_results", results)
    found = []
    with pytest.warns(UserWarning, match="A worker was lost"):
        try:
            found += as_finished(pow, ((n, 2) for n in range(5)), 1)
        except BrokenExecutor:
            assert fails == 3 and len(looks) == 4  # with a result, and three times without
        else:
            assert fails == 2 and sorted(found) == [(n, n**2) for n in range(5)]


def test_finished_restarts_outlive_the_workers_of_any_backend(monkeypatch):
    lost = type("KilledWorker", (Exception,), {})  # Dask's error

    def dying(function, tasks, n_jobs):
        yield 0, function(*next(iter(tasks)))
        raise lost

    monkeypatch.setattr(best_of, "as_finished", dying)
    model = SmallGP(*seasonal_data(), ScaleKernel(RBFKernel()))
    options = {"restarts": 2, "recipe": SHORT, "seed": np.uint8(3), "progress": False}
    result = fit_best_of(model, n_jobs=2, initialize=noisier, **options)
    assert [record.status[:6] for record in result.restarts] == ["ok", "failed"]


def test_what_tasks_share_travels_once():
    shared = torch.zeros(100_000)
    payload = parallel._SharedPayload(shared)
    assert payload.open() is shared and payload.__sizeof__() > shared.nbytes  # which Dask asks for
    sent = pickle.dumps(payload)
    one = pickle.loads(sent)
    two = pickle.loads(pickle.dumps(one))  # as one worker of Dask passes it on to another
    assert torch.equal(one.open(), shared) and one.open() is two.open()
