import joblib
import pytest

from gpytorch_nkn.fit import as_finished


@pytest.mark.parametrize("backend", ["sequential", "threading", "multiprocessing"])
def test_results_come_from_every_backend(backend):
    """Multiprocessing, and Ray's after it, returns lists only."""
    with joblib.parallel_config(backend=backend, n_jobs=2):
        found = list(as_finished((joblib.delayed(pow)(n, 2) for n in range(11)), None))
    assert sorted(found) == [n**2 for n in range(11)]


def test_jobs_are_not_drawn_ahead():
    drawn = []
    jobs = (drawn.append(n) or joblib.delayed(pow)(n, 2) for n in range(100))
    results = as_finished(jobs, 1)
    assert next(results) == 0 and len(drawn) < 10
    results.close()
