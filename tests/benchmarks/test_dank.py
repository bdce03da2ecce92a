import json
import math

import numpy as np
import pytest
from scipy.stats import ttest_rel
from sklearn.metrics import r2_score

from benchmarks import dank, dank_large, dank_protocol
from benchmarks.dank import main
from benchmarks.dank_protocol import (
    HELD_OUT,
    LEARNED,
    METHODS,
    PAPER_SETS,
    SEEN,
    Split,
    fit,
    laplacian_gammas,
    load_split,
)
from benchmarks.dank_report import PUBLISHED, Paired, paired, report
from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Folder with small tables by names of the benchmark, a small grid, the file of results."""
    folder = tmp_path / "dank"
    folder.mkdir()
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 5, size=(60, 3))
    f = np.sin(X[:, 0]) + 0.3 * X[:, 1]
    np.savez(folder / "heart.npz", X=X, y=np.where(f > 0.3, 1, -1))
    np.savez(folder / "monks1.npz", X=X, y=(f > 0.3).astype(int), n_train=20)
    np.savez(folder / "mpg.npz", X=X, y=10 + 4 * f)
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    monkeypatch.setattr(dank_protocol, "_POWERS", (0.5, 2.0))
    for cls in (DANKClassifier, DANKRegressor):  # one way to relevances instead of three or four
        monkeypatch.setattr(cls, "_paths", cls._paths[1:2])
    return tmp_path / "out" / "dank.jsonl"


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def records(method, scores, classes=2, name="heart"):
    return [
        {
            "set": name,
            "split": "half",
            "repeat": repeat,
            "method": method,
            "score": score,
            "classes": classes,
            "n": 30,
            "d": 3,
            "fit_cpu": 0.5,
            "chosen": {},
            "versions": {"numpy": "2"},
        }
        for repeat, score in enumerate(scores)
    ]


def test_runs_are_written_reported_and_not_repeated(toy, capsys):
    methods = ["laplacian", "norm_reciprocal", "dank", "svm_untuned"]
    options = ["--sets", "heart:half", "mpg:half", "--repeats", "2", "--results", str(toy)]
    assert main([*options, "--methods", "svm", *methods]) == 0
    first = capsys.readouterr()
    lines = read(toy)
    assert len(lines) == 20
    for line in lines:
        assert (line["n"], line["num_test"], line["d"]) == (30, 30, 3)
        assert line["classes"] == (2 if line["set"] == "heart" else 0)
        assert line["fit_cpu"] > 0 and "scikit-learn" in line["versions"]
    learned = [line for line in lines if line["method"] == "dank"]
    assert all(line["chosen"]["lowest_eigenvalue"] > -1e-8 for line in learned)
    assert all(len(line["chosen"]["relevances"]) == 3 for line in learned)
    with toy.open("a") as file:
        file.write('{"set": "heart", "spl')  # a run that was killed
    before = toy.stat().st_size
    assert main([*options, "--methods", "svm", *methods]) == 0
    assert capsys.readouterr().out == first.out
    assert toy.stat().st_size == before
    ours = [line for line in lines if line["method"] == "svm" and line["set"] == "mpg"]
    scores = [line["score"] for line in ours]
    assert f"| {np.mean(scores):.2f} ± " in first.out


def test_a_failed_run_is_reported_and_the_others_go_on(toy, monkeypatch, capsys):
    def fails(method, split, tuned):
        if method == "laplacian":
            raise ArithmeticError("no")
        return (lambda X: np.full(len(X), split.y[0])), {"C": 1.0}

    monkeypatch.setattr(dank, "fit", fails)
    options = ["--sets", "heart:half", "--repeats", "1", "--results", str(toy)]
    assert main([*options, "--methods", "svm", "laplacian", "dank"]) == 1
    assert "heart half 0 laplacian: failed: ArithmeticError: no" in capsys.readouterr().err
    assert [line["method"] for line in read(toy)] == ["svm", "dank"]


def test_halves_and_scales_come_from_the_training_part(toy):
    half = load_split("mpg", "half", 3)
    with np.load(toy.parents[1] / "dank" / "mpg.npz") as file:
        X, y = file["X"], file["y"]
    train = np.sort(np.random.default_rng(103).permutation(60)[:30])
    np.testing.assert_allclose(half.X, (X[train] - X[train].min(0)) / np.ptp(X[train], axis=0))
    np.testing.assert_allclose(half.y, (y[train] - y[train].mean()) / y[train].std())
    test = np.setdiff1d(np.arange(60), train)
    np.testing.assert_allclose(half.test_y, (y[test] - y[train].mean()) / y[train].std())
    assert half.test_inputs.min() < 0 or half.test_inputs.max() > 1
    official = load_split("monks1", "official", 5)
    assert len(official.X) == 20 and len(official.test_inputs) == 40 and official.repeat == 5


def test_scores_are_accuracies_and_shares_of_the_variance():
    rng = np.random.default_rng(0)
    truth, guess = rng.normal(size=(2, 20))
    split = Split("t", "half", 0, truth[:, None], truth, truth[:, None], truth, 0)
    assert split.score(guess) == pytest.approx(100 * (1 - r2_score(truth, guess)))
    codes = np.array([0, 1, 1, 2])
    split = Split("t", "half", 0, codes[:, None], codes, codes[:, None], codes, 3)
    assert split.score(np.array([0, 1, 2, 2])) == 75.0


@pytest.mark.parametrize("name", [name for name, _ in (*SEEN, *HELD_OUT)])
def test_tables_without_a_file_are_the_same_each_time(name):
    if name in ("segment", "satimage", "letter_dobq"):
        pytest.skip("needs the data")
    one, other = load_split(name, "half", 0), load_split(name, "half", 1)
    assert abs(len(one.X) - len(one.test_inputs)) <= 1 and len(one.X) == len(other.X)
    dank_protocol._made.cache_clear()
    assert load_split(name, "half", 0).checksum == one.checksum != other.checksum
    assert np.isfinite(one.X).all() and np.isfinite(one.test_y).all()
    if not one.classes:  # a signal that a machine with little noise would find
        assert len(np.unique(one.y)) > 100 or name == "diabetes"


def test_laplacian_machine_has_the_kernel_written_out(toy):
    split = load_split("heart", "half", 0)
    gammas = laplacian_gammas(split.X)
    differences = np.abs(split.X[:, None] - split.X[None]).sum(-1)
    middle = np.median(differences[np.triu_indices(30, 1)])
    assert gammas == pytest.approx([2 / middle, 0.5 / middle])
    kernel = dank_protocol._Laplacian(0.7)
    np.testing.assert_allclose(kernel(split.X, split.X), np.exp(-0.7 * differences))
    predict, chosen = fit("laplacian", split, None)
    assert chosen["gamma"] in gammas and chosen["C"] in (0.5, 2.0)
    assert set(np.unique(predict(split.test_inputs))) <= {-1, 1}


def test_learned_kernels_take_the_settings_of_the_machine(toy, monkeypatch):
    split, seen = load_split("mpg", "half", 0), {}

    class Recorder(dank_protocol.DANKRegressor):
        def fit(self, X, y):
            seen.update(self.get_params())
            return super().fit(X, y)

    Recorder.__init__ = dank_protocol.DANKRegressor.__init__
    monkeypatch.setattr(dank_protocol, "DANKRegressor", Recorder)
    fit("norm_smooth", split, {"C": 3.0, "gamma": 0.7, "epsilon": 0.05})
    assert (seen["C"], seen["gamma"], seen["epsilon"]) == (3.0, 0.7, 0.05)
    assert (seen["eta"], seen["tau"], seen["relevance"]) == ("norm", 0.01, None)
    with pytest.raises(ValueError, match="norm_smooth needs the settings"):
        fit("norm_smooth", split, None)


@pytest.mark.parametrize("method", ["ard", "gp"])
def test_references_for_regression_find_the_columns_that_matter(method, monkeypatch):
    monkeypatch.setattr(dank_protocol, "_POWERS", dank_protocol._POWERS[::2])
    X = np.random.default_rng(0).uniform(size=(80, 3))
    y = np.sin(6 * X[:, 0])
    split = Split("t", "half", 0, X[:40], y[:40], X[40:], y[40:], 0)
    assert split.score(fit(method, split, None)[0](split.test_inputs)) < 2.0


def test_paired_gains_agree_with_scipy_and_have_the_sign_of_what_is_better():
    ours, theirs = np.array([80.0, 84, 83, 90]), np.array([79.0, 81, 81, 86])
    runs = records("dank", ours) + records("svm", theirs)
    found = paired(runs, "dank", "svm")
    expected = ttest_rel(ours, theirs)
    assert found.t == pytest.approx(expected.statistic)
    assert (found.verdict == "better") == (expected.pvalue < 0.05) and found.verdict
    errors = records("dank", ours, classes=0) + records("svm", theirs, classes=0)
    assert paired(errors, "dank", "svm").verdict == "worse"
    assert paired(runs, "dank", "gp") is None
    assert (
        Paired([0.0, 0.0]).verdict == ""
        and str(Paired([-1e-6, 0.0])) == "+0.00 ± 0.00"
        and str(Paired([-1.0])) == "-1.00"
    )
    assert Paired([1e-4, 1.1e-4, 1e-4]).verdict == ""  # two solutions of one machine
    assert Paired([1.0, -1.1, 0.9]).verdict == "" and math.isinf(Paired([1.0, 1.0]).t)


def test_report_shows_gains_beside_published_figures():
    text = report(records("dank", [80.0, 84, 83]) + records("svm", [79.0, 81, 81]))
    assert "+2.00 ± 0.58 (t +3.5)" in text
    assert "| heart | 81.9 ± 2.4 | 80.3 | 87.9 ± 2.9 | 82.3 |" in text
    assert report([]) == "No results."


def test_names_agree():
    assert set(LEARNED) <= set(METHODS)
    assert set(PUBLISHED) <= {name for name, _ in PAPER_SETS}


def test_outliers_of_eeg_are_moved_to_fences(monkeypatch, tmp_path):
    (tmp_path / "dank").mkdir()
    X = np.random.default_rng(0).normal(size=(200, 2))
    X[7] = 1e6
    np.savez(tmp_path / "dank" / "eeg.npz", X=X, y=np.arange(200) % 2)
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    split = dank_large.load_eeg(0)
    assert split.X.min() == 0 and split.X.max() == 1
    assert max(split.test_inputs.max(), 1 - split.test_inputs.min()) < 2
    assert 0.2 < np.median(split.X) < 0.8  # not squeezed into a corner


def test_made_table_has_a_rare_class_and_binary_columns():
    easy, noisy = dank_large.load_made(False), dank_large.load_made(True)
    assert easy.X.shape == (50_000, 22) and easy.test_inputs.shape == (20_000, 22)
    assert np.mean(easy.y == 1) == pytest.approx(0.1, abs=0.005)
    assert set(np.unique(easy.X[:, 3])) == {0.0, 0.25}
    assert np.mean(noisy.y == 1) == pytest.approx(0.14, abs=0.01)  # 5 % of the others, too


def test_large_runs_are_averaged_beside_the_same_seeds():
    def run(method, seed, score):
        return {
            **{"case": "eeg", "seed": seed, "method": method, "score": score},
            **{"fit_cpu": 2.0, "predict_cpu": 0.5, "before": 100.0, "peak": 1500.0},
        }

    runs = [run("SVC", 0, 96.0), run("SVC", 1, 97.0), run("DANK", 0, 96.5), run("DANK", 1, 97.6)]
    last = dank_large.summary(runs).splitlines()[-1]
    assert last == ("| eeg | DANK | 2 | 97.05 | +0.55 ± 0.05 (t +11.0) | 2 | 0.5 | 1,500 | 100 |")
