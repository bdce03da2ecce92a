import joblib
import numpy as np
import pytest
import torch

from gpytorch_nkn.averaging import train_candidates
from gpytorch_nkn.estimators import NKNForecaster, NKNRegressor
from gpytorch_nkn.fit import Session
from gpytorch_nkn.models import StructureEnsembleGP, fit_structure_ensemble_gp


def _seconds(shared, key, seconds):
    return seconds


@pytest.mark.parametrize("jobs", [-joblib.cpu_count(), 2])
def test_the_last_round_of_candidates_has_all_of_the_time_that_is_left(jobs):
    """One job trains one candidate a round, two jobs two; negative numbers count from the cores."""
    with joblib.parallel_config("threading"):
        trained = train_candidates(_seconds, range(6), Session(budget=100), n_jobs=jobs)
    rounds = [6, 5, 4, 3, 2, 1] if jobs < 0 else [3, 3, 2, 2, 1, 1]
    left = [one.candidate * number for one, number in zip(trained, rounds, strict=True)]
    np.testing.assert_allclose(left, 100, atol=10)


def test_users_learn_which_structures_the_budget_left_untrained():
    x = torch.linspace(0, 1, 20).unsqueeze(-1)
    y = (6 * x).sin()
    with pytest.warns(UserWarning, match=r"ended before \['matern', 'rbf'\]"):
        NKNRegressor(["tabular", "matern", "rbf"], budget=1e-6).fit(x, y.squeeze())
    model = StructureEnsembleGP(x, y, structures=("matern", "rbf"))
    with pytest.warns(UserWarning, match=r"ended before \['rbf'\]"):
        fit_structure_ensemble_gp(model, budget=1e-6)
    forecaster = NKNForecaster(quality="fast", budget=1e-6).fit(np.arange(20), y.squeeze())
    scores = forecaster.scores_.set_index("status").weight
    assert scores["ok"] == 1 and len(scores["untrained"]) >= 2
