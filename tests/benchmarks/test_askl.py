import json
import statistics

import numpy as np
import pytest

from benchmarks import askl, askl_cost, askl_gp
from benchmarks.askl import main
from benchmarks.askl_report import AIMS, METHODS, PUBLISHED, differences, report


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Folder with the tables ``classes`` and ``numbers``, and the file of results."""
    folder = tmp_path / "askl"
    folder.mkdir()
    X = np.random.default_rng(0).uniform(-1, 1, size=(150, 2))
    f = np.sin(4 * X[:, 0]) + X[:, 1]
    np.savez(folder / "classes.npz", X=X, y=(f > 0) + 1, n_train=100)
    np.savez(folder / "numbers.npz", X=X, y=f)
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    askl._table.cache_clear()
    yield tmp_path / "out" / "askl.jsonl"
    askl._table.cache_clear()


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def row(text, title, heading):
    """Cells of the first row with that title below a heading."""
    lines = text[text.index(heading) :].splitlines()
    line = next(line for line in lines if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_runs_are_written_reported_and_not_repeated(toy, monkeypatch, capsys):
    options = ["--sets", "classes", "numbers", "--methods", "SK", "ASKL"]
    options += ["--seeds", "0", "1", "--components", "30", "--epochs", "12", "--results", str(toy)]
    assert main(options) == 0
    first = capsys.readouterr()
    assert "0 of 8 runs" in first.err
    records = read(toy)
    ours = [r for r in records if r["set"] == "classes" and r["method"] == "ASKL"]
    assert [r["seed"] for r in ours] == [r["split"] for r in ours] == [0, 1]
    for record in records:
        classes = record["set"] == "classes"
        assert (record["n"], record["num_test"], record["d"]) == (120, 30, 2)
        assert record["classes"] == (2 if classes else 0)
        assert 70 < record["score"] <= 100 if classes else 0 < record["score"] < 20
        assert record["fit_cpu"] > 0 and "torch" in record["versions"]
    assert ours[0]["settings"] == {"components": 30, "epochs": 12}
    assert ours[0]["chosen"]["epochs trained"] > 0 and ours[0]["chosen"]["gamma"] > 0
    mean = statistics.mean(r["score"] for r in ours)
    assert row(first.out, METHODS["ASKL"], "### classes")[2].startswith(f"{mean:.3f} ± ")
    assert row(first.out, "numbers", "### Aims")[1] == "{:.2f}".format(
        statistics.mean(
            r["score"] for r in records if r["set"] == "numbers" and r["method"] == "ASKL"
        )
    )

    lines = toy.read_text().splitlines()
    monkeypatch.setattr(askl, "run", lambda *args: pytest.fail("a run that is there"))
    assert main(options) == 0
    again = capsys.readouterr()
    assert "8 of 8 runs" in again.err and again.out == first.out

    toy.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:30])  # killed while it wrote
    monkeypatch.setattr(askl, "run", lambda *args: records[-1])
    assert main(options) == 0
    assert "7 of 8 runs" in capsys.readouterr().err
    assert toy.read_text().splitlines()[-1] == lines[-1]

    monkeypatch.setattr(askl, "run", lambda *args: 1 / 0)  # other settings are other runs
    assert main([*options, "--components", "31", "--sets", "classes", "--methods", "SK"]) == 1
    failed = capsys.readouterr()
    assert "SK: failed: ZeroDivisionError" in failed.err and "No results" in failed.out


def test_targets_of_regression_are_mapped_and_splits_are_the_tables(toy, monkeypatch):
    seen = {}

    class Mean:
        def predict(self, X):
            return np.full(len(X), seen["y"].mean())

    def fit(method, X, y, classes, seed, settings):
        seen.update(X=X, y=y, classes=classes)
        return Mean(), {}

    monkeypatch.setattr(askl, "_fit", fit)
    table = askl._table("numbers")
    record = askl.run(table, 3, 7, "boosting", {})
    test = table.test_mask(3)
    y = 100 * (table.y - table.y.min()) / (table.y.max() - table.y.min())
    np.testing.assert_array_equal(seen["X"], table.X[~test])
    np.testing.assert_allclose(seen["y"], y[~test])
    assert not seen["classes"] and (record["split"], record["seed"]) == (3, 7)
    expected = np.sqrt(np.mean((y[test] - y[~test].mean()) ** 2))
    assert record["score"] == pytest.approx(expected)


def test_a_set_with_its_own_split_has_seeds_alone(toy, monkeypatch, capsys):
    monkeypatch.setattr(askl, "_OWN_SPLIT", ("classes",))
    options = ["--sets", "classes", "--methods", "boosting", "--results", str(toy)]
    assert main([*options, "--seeds", "0", "1"]) == 0
    assert [(r["split"], r["seed"], r["n"]) for r in read(toy)] == [
        ("official", 0, 100),
        ("official", 1, 100),
    ]


def record(method, seed, score, *, name="letter", classes=26):
    return {
        "set": name,
        "split": seed,
        "seed": seed,
        "method": method,
        "settings": {},
        "classes": classes,
        "n": 16_000,
        "d": 16,
        "score": score,
        "chosen": {"gamma": 0.1 * (seed + 1)},
        "fit_cpu": 2.0 + seed,
        "predict_cpu": 0.5,
        "versions": {"torch": "2"},
    }


def test_differences_are_in_pairs():
    ours = [record("ASKL", 0, 97.0), record("ASKL", 1, 99.0), record("ASKL", 2, 50.0)]
    theirs = [record("rff_ridge", 1, 96.0), record("rff_ridge", 0, 96.5)]
    assert differences(ours, theirs) == [0.5, 3.0]
    text = report([*ours[:2], *theirs])
    assert row(text, METHODS["ASKL"], "### letter")[1:] == [
        "2",
        "98.000 ± 1.000",
        "",
        "2.5",
        "0.5",
        "95.70 ± 1.74",
    ]
    assert row(text, METHODS["rff_ridge"], "### letter")[3] == "-1.750 ± 1.250"
    aims = row(text, "letter", "### Aims")
    assert aims == ["letter", "98.00", "at least 97.8", "met", "+1.750 ± 1.250", "+1.4", "met"]
    assert "- letter, ASKL: gamma 0.1 to 0.2" in text


@pytest.mark.parametrize(
    ("name", "classes", "ours", "theirs", "verdicts"),
    [
        ("letter", 26, 97.0, 97.4, ["MISSED", "met"]),
        ("letter", 26, 97.9, 98.5, ["met", "MISSED"]),
        ("abalone", 0, 7.6, 7.7, ["MISSED", "met"]),
        ("abalone", 0, 7.4, 7.3, ["met", "MISSED"]),
        ("other", 3, 90.0, 91.0, ["", "MISSED"]),
    ],
)
def test_aims(name, classes, ours, theirs, verdicts):
    records = [
        record(method, 0, score, name=name, classes=classes)
        for method, score in (("ASKL", ours), ("rff_ridge", theirs))
    ]
    cells = row(report(records), name, "### Aims")
    assert [cells[3], cells[6]] == verdicts


def test_published_figures_are_those_of_table_2():
    assert PUBLISHED["segment"][0] == (89.93, 2.12) and PUBLISHED["letter"][4] == (95.70, 1.74)
    assert PUBLISHED["abalone"][3] == (7.85, 0.42) and PUBLISHED["cpusmall"][4] == (2.42, 0.48)
    assert len(PUBLISHED) == 12 and set(AIMS) - {"mnist_10k_10k"} <= set(PUBLISHED)


def test_wrong_options_are_refused(toy, capsys):
    for options, message in [
        (["--cost", "--gp"], "two calls"),
        (["--rows", "5"], "belong to --cost or --gp"),
        (["--sets", "nothing"], "files that are there: classes, numbers"),
    ]:
        with pytest.raises(SystemExit):
            main([*options, "--results", str(toy)])
        assert message in capsys.readouterr().err


def test_cost_compares_with_a_plain_network(capsys):
    assert main("--cost --rows 100 --rounds 1 --components 20 --classes 3".split()) == 0
    text = capsys.readouterr().out
    assert "100 rows, 22 columns, 3 classes, 20 features" in text and "batches of 256" in text
    for title in ("Linear, ReLU, Linear; Adam (float32)", "SK", "ASKL"):
        assert len(row(text, title, "| |")) == 3
    assert row(text, "Linear, ReLU, Linear; Adam (float32)", "| |")[2] == "1.00 (1.00 to 1.00)"


def test_the_plain_network_learns():
    X = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    network = askl_cost._plain_network(X, (X[:, 0] > 0).astype(int), 50, 2, 32, 30)
    found = network(askl_cost.torch.from_numpy(X)).argmax(1).numpy()
    assert np.mean(found == (X[:, 0] > 0)) > 0.95


def test_gaussian_processes_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(askl_gp, "_FEATURES", 20)
    found = askl_gp._measure(300, 2)
    assert found["training"] > 0 and found["memory"] >= 0 and found["feature_dim"] == 40
    values = {300: 1.0, 3000: 100.0}
    monkeypatch.setattr(
        askl_gp,
        "_in_process",
        lambda rows, rounds: found | dict.fromkeys(askl_gp._COLUMNS_OF_TABLE, values[rows]),
    )
    assert main("--gp --rows 300 3000 --rounds 2".split()) == 0
    text = capsys.readouterr().out
    assert row(text, "exponent of growth", "| rows")[1:5] == ["2.00"] * 4
    assert row(text, "3,000", "| rows")[1] == "100"
