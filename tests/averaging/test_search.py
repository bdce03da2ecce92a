import joblib

from gpytorch_nkn.averaging import train_candidates
from gpytorch_nkn.fit import Session


def _seconds(shared, key, seconds):
    return seconds


def test_negative_numbers_of_jobs_count_back_from_the_cores():
    """One job trains two candidates in turn, each in half of the time."""
    with joblib.parallel_config("threading"):
        jobs = -joblib.cpu_count()
        trained = train_candidates(_seconds, ["a", "b"], Session(budget=100), n_jobs=jobs)
    assert all(45 < one.candidate <= 50 for one in trained)
