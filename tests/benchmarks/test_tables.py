import json

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks import tables, tables_methods
from benchmarks.tables import main, record_path, run, scores
from benchmarks.tables_methods import METHODS, Method, _normal
from benchmarks.tables_report import critical_difference, mean_ranks
from benchmarks.tables_sets import load_split, resolution


def test_scores_of_a_normal_prediction_are_the_closed_forms():
    rng = np.random.default_rng(0)
    mean, std = rng.standard_normal(300), rng.uniform(0.5, 2, 300)
    y = mean + std * rng.standard_normal(300)
    found = scores(mean, _normal(mean, std), y, None)
    z = (y - mean) / std  # Gneiting and Raftery (2007), equation 21
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert found["crps"] == pytest.approx(crps.mean(), rel=0.01)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((mean - y) ** 2)))
    assert found["log_density"] == pytest.approx(norm.logpdf(y, mean, std).mean())
    assert found["coverage"] == np.mean(np.abs(z) < norm.ppf(0.95))
    interval = np.log((norm.cdf(y + 0.2, mean, std) - norm.cdf(y - 0.2, mean, std)) / 0.4)
    assert scores(mean, _normal(mean, std), y, 0.4)["log_density"] == pytest.approx(interval.mean())


def test_ranks_and_critical_differences_are_those_of_the_reference():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.01)  # Demsar (2006), 3.2.2
    means = {"a": {"x": 1.0, "y": 2.0}, "b": {"x": 3.0, "y": 3.0}, "c": {"x": 0.0}}
    assert mean_ranks(means) == ({"x": 1.25, "y": 1.75}, 2)
    assert mean_ranks(means, descending=True) == ({"x": 1.75, "y": 1.25}, 2)


def test_targets_with_a_resolution():
    rng = np.random.default_rng(0)
    assert resolution(rng.standard_normal(100)) is None
    assert resolution(rng.integers(3, 9, 100).astype(float)) == 1.0
    assert resolution(rng.integers(3, 9, 100) / 10) == pytest.approx(0.1)


def test_splits_are_reproduced_and_rows_limited():
    first, again = load_split("friedman1", 1, 50), load_split("friedman1", 1, 50)
    np.testing.assert_array_equal(first.X, again.X)
    assert first.X.shape == (50, 10)
    assert len(first.y_test) == 1000
    for name in ("piston", "borehole"):
        assert load_split(name, 0).y.std() > 0
    with pytest.raises(ValueError, match="splits 0 to 9, got 10"):
        load_split("piston", 10)


def test_runs_are_written_and_not_repeated(tmp_path, monkeypatch, capsys):
    options = ["--sets", "diabetes", "--splits", "0", "--out", str(tmp_path)]
    monkeypatch.setitem(METHODS, "absent", Method("Absent", None, ("no_such_module",)))
    assert main([*options, "--methods", "ridge", "absent"]) == 0
    said = capsys.readouterr()
    assert "no_such_module not installed" in said.err
    assert "| ridge |" in said.out
    path = record_path(tmp_path, "diabetes", 0, "ridge")
    record = json.loads(path.read_text())
    assert 40 < record["rmse"] < 70  # of targets with a deviation of 77
    path.write_text(json.dumps(record | {"rmse": 1.0}))
    assert run("diabetes", 0, "ridge", out=tmp_path)["rmse"] == 1.0
    with pytest.raises(ValueError, match="take another folder"):
        run("diabetes", 0, "ridge", out=tmp_path, rows=30)
    with pytest.raises(ValueError, match="Run nkn first"):
        run("diabetes", 0, "svr_tuned", out=tmp_path)


def test_tuning_keeps_to_its_seconds_and_to_what_folds_say(tmp_path, monkeypatch):
    path = record_path(tmp_path, "diabetes", 0, "nkn")
    path.write_text(json.dumps({"fit_seconds": 0.03}))
    tried = []
    own = tables_methods._out_of_fold
    monkeypatch.setattr(
        tables_methods, "_out_of_fold", lambda *args: tried.append(own(*args)) or tried[-1]
    )
    tables._warm_up("svr_tuned")
    tried.clear()
    record = run("diabetes", 0, "svr_tuned", out=tmp_path)
    assert len(tried) >= 2
    assert record["fit_seconds"] < 3
    assert record["options"] == {"rows": 0, "tuning_seconds": np.inf}
