import json

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks import dank_gp
from gpytorch_nkn.fit import Recipe


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A table whose waves are larger on one side, and the file of results."""
    folder = tmp_path / "uci_regression"
    folder.mkdir()
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(60, 2))
    y = 100 + 20 * np.exp(x[:, 0]) * np.sin(4 * x[:, 0]) + rng.normal(size=60)
    tests = np.stack([rng.permutation(60)[:10] for _ in range(20)])
    np.savez(folder / "yacht.npz", X=x, y=y[:, None], test_idx=tests)
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    fit, short = dank_gp._fit, Recipe(adam_steps=0, lbfgs_iterations=25)
    monkeypatch.setattr(dank_gp, "_fit", lambda models, recipe: fit(models, short))
    return tmp_path / "out" / "dank_gp.jsonl", x, y, tests


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_runs_are_written_reported_and_not_repeated(toy, monkeypatch, capsys):
    results, *_ = toy
    options = ["--sets", "yacht", "--splits", "0", "3", "--results", str(results)]
    assert dank_gp.main(options) == 0
    printed = capsys.readouterr().out
    records = read(results)
    runs = {(r["split"], r["method"]): r for r in records}
    assert set(runs) == {(s, m) for s in (0, 3) for m in ("rbf", "dank")} and len(records) == 4
    for split in (0, 3):
        rbf, dank = runs[split, "rbf"], runs[split, "dank"]
        assert rbf["rows"] == 50 and dank["mean_squared_factor"] > 0
        assert rbf["rmse"] < 10 and dank["rmse"] < 10  # in units of the targets
    gaps = [runs[s, "dank"]["nll"] - runs[s, "rbf"]["nll"] for s in (0, 3)]
    error = np.std(gaps, ddof=1) / np.sqrt(2)
    assert f"| {np.mean(gaps):+.3f} ± {error:.3f} |" in printed

    def fail(*_):
        raise AssertionError("a second time")

    monkeypatch.setattr(dank_gp, "run_pair", fail)
    with results.open("a") as file:
        file.write('{"set": "ya')  # what a killed run left
    assert dank_gp.main(options) == 0
    assert dank_gp.main([*options, "--report"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == printed.splitlines()[-1]


def test_scores_are_those_of_the_normal_density_in_units_of_the_targets(toy, monkeypatch):
    _, _, y, tests = toy

    class Constant:
        """Predicts the mean and the variance of the training targets."""

        def __init__(self, result):
            self.__dict__ |= vars(result)

        def predict(self, x):
            return 0 * x[:, 0], 0 * x[:, 0] + 1

    fit = dank_gp._fit
    monkeypatch.setattr(dank_gp, "_fit", lambda *args, **options: Constant(fit(*args, **options)))
    record = dank_gp.run_pair("yacht", 2)[0]
    train = np.setdiff1d(np.arange(60), tests[2])
    density = norm(y[train].mean(), y[train].std()).logpdf(y[tests[2]])
    assert record["nll"] == pytest.approx(-density.mean())
    errors = y[tests[2]] - y[train].mean()
    assert record["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert record["coverage"] == np.mean(np.abs(errors) < 1.96 * y[train].std())
