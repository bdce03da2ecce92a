import csv
import json
import os
import runpy
import subprocess
import sys
import warnings
import zlib
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gpytorch_nkn import __version__
from gpytorch_nkn.cli import main
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.interpretation.reporting.page import Sketch

FAST = ["--quality", "fast", "--transform", "identity", "--jobs", "1", "--no-progress"]


def values(n):
    rng = np.random.default_rng(0)
    time = np.arange(n)
    return 10 + 0.05 * time + np.sin(2 * np.pi * time / 12) + 0.1 * rng.standard_normal(n)


@pytest.fixture
def monthly(tmp_path):
    """Forty months, one of them without a value."""
    months = np.arange("2001-01", "2004-05", dtype="datetime64[M]")
    lines = [f"{m},{v:.6f}" for m, v in zip(months, values(40), strict=True)]
    lines[7] = f"{months[7]},"
    path = tmp_path / "sales.csv"
    path.write_text("month,sales\n" + "\n".join(lines))
    return path


@pytest.fixture
def run(tmp_path, capsys, one_structure):
    """Call the command and return its exit code, what it printed, its files."""

    def call(*argv):
        out = tmp_path / "out"
        code = main([*map(str, argv), "--out", str(out)])
        printed = capsys.readouterr()
        rows = summary = None
        if (out / "forecast.csv").exists():
            with (out / "forecast.csv").open(newline="") as file:
                rows = list(csv.DictReader(file))
            summary = json.loads((out / "summary.json").read_text())
        return code, printed, rows, summary

    return call


@pytest.fixture
def undrawn(monkeypatch):
    """Reports whose pictures are checksums of their lines, which takes less time."""

    def source(self):
        axes = Figure().subplots(max(1, self.panels), squeeze=False).ravel()
        self.paint(axes if self.panels else axes[0])
        lines = [list(line.get_ydata()) for one in axes for line in one.lines]
        return f"data:image/png;base64,{zlib.crc32(repr(lines).encode()):08x}"

    monkeypatch.setattr(Sketch, "source", source)


@pytest.fixture
def forecast_only(monkeypatch):
    """Draw no figure."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def test_forecast_scores_the_held_out_tail_next_to_the_naive_rule(run, monthly, tmp_path, undrawn):
    """A report is written into a folder that is made."""
    page = tmp_path / "new" / "folder" / "found.html"
    options = ["--seed", "3", "--report", page]
    code, printed, rows, summary = run("forecast", monthly, *FAST, *options)
    assert code == 0
    assert [row["time"] for row in rows] == ["2004-01", "2004-02", "2004-03", "2004-04"]
    assert float(rows[0]["observed"]) == pytest.approx(values(40)[36], abs=1e-5)
    for row in rows:
        assert float(row["lo-95"]) < float(row["median"]) < float(row["hi-95"])
        assert float(row["std"]) > 0
    assert list(summary["results"]) == ["NKN", "seasonal naive"]
    errors = [float(row["median"]) - float(row["observed"]) for row in rows]
    assert summary["results"]["NKN"]["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    scores = {"rmse", "mae", "mean_log_density", "coverage", "seconds"}
    assert set(summary["results"]["seasonal naive"]) == scores
    assert summary["seed"] == summary["settings"]["seed"] == 3
    assert summary["rows"] == {"total": 39, "train": 35, "forecast": 4}
    assert {"gpytorch_nkn", "python", "torch", "gpytorch"} <= set(summary["versions"])
    assert "Note: Dropped rows without a value of 'sales': 1." in printed.out
    for word in ("RMSE", "MAE", "log density", "95 % cover", "seconds", "naive"):
        assert word in printed.out
    figure = tmp_path / "out" / "forecast.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert summary["settings"]["report"] == str(page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.rstrip().endswith("</html>")
    assert "<h1>Report on sales</h1>" in text and ">Continuation</a>" in text
    assert " per yr on average." in text or " yr; its standard deviation" in text
    lines = printed.out.splitlines()
    assert any(line.startswith("The model explains ") for line in lines)
    assert lines[-2:] == [f"The report is at {page}", f"The figure is at {figure}"]


def test_held_out_values_that_the_model_excludes_are_reported(run, tmp_path, forecast_only):
    """Training values are counts, and one held-out value is not an integer."""
    counts = np.random.default_rng(0).poisson(5.0, 40).astype(float)
    counts[-2] = 4.5
    path = tmp_path / "counts.csv"
    path.write_text("t,y\n" + "\n".join(f"{t},{y:g}" for t, y in enumerate(counts)))
    code, printed, rows, summary = run("forecast", path, *FAST, "--transform", "sqrt")
    assert code == 0 and len(rows) == 4
    assert "1 of 4 held-out values have probability 0" in printed.out and "-inf" in printed.out
    results = summary["results"]
    assert results["NKN"]["mean_log_density"] is None and results["NKN"]["rmse"] < 10
    assert results["seasonal naive"]["mean_log_density"] < 0


STEPS = {
    "12h": ["day", "week"],
    "1QS": ["year"],
    "1YS": [],
    "days": ["1", "7"],  # numbers: hours counted in days
}


def two_parts(step):
    """Times of a step that hold its seasons twice, with a long gap between two parts."""
    if step == "days":
        times = pd.Index(np.arange(15 * 24 + 6) / 24)
    else:
        periods = 36 if step == "12h" else 46
        times = pd.date_range("2019-03-01", periods=periods, freq=step)
    return times[:-6].delete(slice(9, -15)), times[-6:]


@pytest.mark.parametrize("step", STEPS)
def test_forecast_is_that_of_the_estimator(run, tmp_path, forecast_only, step):
    times, ahead = two_parts(step)
    series = pd.Series(1e9 + values(len(times)), times)
    path = tmp_path / "series.csv"
    series.to_csv(path, index_label="t", header=["y"])
    code, printed, rows, summary = run("forecast", path, *FAST, "--horizon", "6")
    assert code == 0, printed.err
    options = {"quality": "fast", "transform": "identity", "horizon": 6, "random_state": 0}
    forecaster = NKNForecaster(**options, progress=False).fit(series)
    kind = float if ahead.dtype.kind == "f" else pd.Timestamp
    np.testing.assert_allclose(
        pd.Index([kind(row["time"]) for row in rows]).astype(ahead.dtype).to_numpy().astype(float),
        ahead.to_numpy().astype(float),
    )
    found = [[float(row[name]) for name in ("lo-95", "median", "hi-95")] for row in rows]
    expected = forecaster.predict_quantiles(ahead, [0.025, 0.5, 0.975])
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert f" {expected[0, 1] // 1:.0f}." in printed.out
    assert summary["seasons"] == STEPS[step]
    assert f"Seasons: {', '.join(summary['seasons']) or 'none found; '}" in printed.out


def test_times_keep_their_zone_beside_covariates(run, tmp_path):
    times = pd.date_range("2024-03-01 10:00", periods=30, freq="h", tz="UTC+02:00")
    frame = pd.DataFrame({"y": values(30), "price": values(30)}, [t.isoformat() for t in times])
    frame.iloc[-4:, 0] = np.nan
    path = tmp_path / "zone.csv"
    frame.to_csv(path, index_label="t")
    options = ["--target", "y", "--covariates", "price"]
    code, printed, rows, summary = run("forecast", path, *FAST, *options)
    assert code == 0, printed.err
    assert rows[0]["time"] == "2024-03-02T12:00+02:00" and len(rows) == 4
    assert summary["time"]["first"] == "2024-03-01T10:00+02:00"
    assert "rows to 2024-03-02T11:00+02:00" in printed.out


@pytest.mark.parametrize(
    ("season", "found"),
    [
        (["7D", "24"], ["day", "week"]),
        (["12h", "1W", "120"], ["12 hours", "5 days", "week"]),
        (["1Y"], []),
    ],
)
def test_seasons_are_durations_or_numbers_of_steps(run, tmp_path, forecast_only, season, found):
    hours = pd.date_range("2024-03-01", periods=400, freq="h").delete(slice(20, -20))
    path = tmp_path / "hours.csv"
    pd.Series(values(len(hours)), hours, name="y").to_csv(path, index_label="t")
    _, printed, _, summary = run("forecast", path, *FAST, "--horizon", "2", "--season", *season)
    assert summary["seasons"] == found
    assert ("longer than half of the data" in printed.out) == (len(found) < len(season))


def test_shifts_of_the_level_are_named(run, tmp_path, forecast_only):
    level = values(72) + np.where(np.arange(72) < 36, 0.0, 5.0)
    months = np.arange("2015-01", "2021-01", dtype="datetime64[M]")
    path = tmp_path / "sales.csv"
    path.write_text(
        "month,sales\n" + "\n".join(f"{m},{v:.3f}" for m, v in zip(months, level, strict=True))
    )
    code, printed, _, summary = run("forecast", path, *FAST, "--horizon", 3)
    assert code == 0 and "Changes of level or slope: 2018-01." in printed.out
    assert summary["shifts"] == ["2018-01"]
    assert "pip install 'gpytorch_nkn[plot]'" in printed.out.splitlines()[-1]


def test_warnings_are_notes_of_one_line_with_options_of_the_command(run, tmp_path, forecast_only):
    path = tmp_path / "wild.csv"
    y = values(60)
    y[40] = 1e4
    times = pd.date_range("2024-01-01", periods=60, freq="D").strftime("%d/%m/%Y")
    pd.Series(y, times, name="y").to_csv(path, index_label="t")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, printed, _, summary = run("forecast", path, *FAST, "--horizon", "2")
    (note,) = [line for line in printed.out.splitlines() if "are outliers" in line]
    assert note.startswith("Note: 1 of 60") and "2024-02-10;" in note
    assert note.endswith("; --outliers keep uses them.") and not printed.err
    assert note.removeprefix("Note: ") in summary["notices"]
    advised = note.split("; ")[-1].split(" uses")[0].split()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, printed, _, _ = run("forecast", path, *FAST, "--horizon", "50", *advised)
    assert code == 0 and "are outliers" not in printed.out and not printed.err
    (note,) = [line for line in printed.out.splitlines() if "calibrated up" in line]
    assert note.startswith("Note: The forecast goes to 2024-04-19, but")
    assert "up to step 40 (2024-04-09), in 1 window of 40 steps: the series is too" in note


def test_options_of_the_file_reach_its_reader(run, tmp_path, forecast_only):
    path = tmp_path / "umsätze.csv"
    rows = [
        f"{name};{day:02}.01|2001;{1 + 0.5 * (day % 3):.2f};-99".replace(".", ",", 2)
        for name in "ab"
        for day in range(1, 13)
    ]
    rows[14] = "b;03,01|2001;x;-99"
    text = "exported\nLaden;Tag;Größe;Rest\n" + "\n".join(rows)
    path.write_bytes(text.encode("latin-1"))
    options = ["--where", "Laden=b", "--time", "Tag", "--target", "Größe", "--sep", ";"]
    options += ["--date-format", "%d,%m|%Y", "--decimal", ",", "--na-values", "x"]
    options += ["--encoding", "latin-1", "--skiprows", "1", "--header", "0"]
    code, printed, rows, summary = run("forecast", path, *FAST, "--horizon", "2", *options)
    assert code == 0, printed.err
    assert [row["time"] for row in rows] == ["2001-01-13", "2001-01-14"]
    assert summary["rows"]["total"] == 11 and summary["settings"]["where"] == [["Laden", "b"]]
    assert "Note: Dropped rows without a value of 'Größe': 1." in printed.out
    assert "median" in printed.out


@pytest.fixture
def with_price(tmp_path):
    """Forty months with a price that determines the sales, and six more with the price alone."""
    months = np.arange("2001-01", "2004-11", dtype="datetime64[M]")
    price = 5 + np.random.default_rng(1).standard_normal(46)
    sales = values(46) - 3 * price
    sales[40:] = np.nan
    rows = zip(months, sales, price, strict=True)
    lines = [f"{m},{'' if np.isnan(v) else f'{v:.4f}'},{p:.4f},{p:.4f}\n" for m, v, p in rows]
    path = tmp_path / "sales.csv"
    path.write_text("month,sales,price,copy\n" + "".join(lines))
    return path


def test_rows_without_a_target_are_forecast_by_covariates(
    run, with_price, tmp_path, monkeypatch, undrawn
):
    options = ["--target", "sales", "--covariates", "price"]
    page = tmp_path / "found.html"
    code, printed, rows, summary = run("forecast", with_price, *FAST, *options, "--report", page)
    assert code == 0, printed.err
    assert [rows[0]["time"], rows[-1]["time"]] == ["2004-05", "2004-10"] and len(rows) == 6
    assert summary["settings"]["covariates"] == ["price"]
    assert "forecasting 6 steps, 2004-05 to 2004-10" in printed.out
    text = page.read_text()
    assert ">Continuation</a>" in text and "As price goes from" in text
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    # the same by a second file, of fewer steps
    lines = with_price.read_text().splitlines(keepends=True)
    more = tmp_path / "more.csv"
    more.write_text(lines[0] + "".join(lines[41:]))
    with_price.write_text("".join(lines[:41]))
    two = run("forecast", with_price, *FAST, *options, "--future", more, "--horizon", "2")
    np.testing.assert_allclose(
        [float(row["median"]) for row in two[2]],
        [float(row["median"]) for row in rows[:2]],
        rtol=0.1,
    )
    # and what is held out is scored, where covariates are known
    code, printed, rows, summary = run("forecast", with_price, *FAST, *options)
    assert code == 0 and len(rows) == 4 and summary["results"]["NKN"]["coverage"] >= 0


def test_demo_ends_by_telling_where_the_figure_is(run, tmp_path):
    code, printed, rows, summary = run("demo", *FAST)
    assert code == 0 and len(rows) == 120
    assert (rows[0]["time"], rows[-1]["time"]) == ("1992-01-01", "2001-12-01")
    assert summary["rows"] == {"total": 521, "train": 401, "forecast": 120}
    assert printed.out.splitlines()[-1].endswith(str(tmp_path / "out" / "forecast.png"))


def no_training(*_, **__):
    raise AssertionError("errors of the report are raised before the training")


def test_a_report_that_cannot_be_written_ends_the_command_before_the_training(
    run, monthly, monkeypatch, tmp_path
):
    monkeypatch.setattr(NKNForecaster, "fit", no_training)
    for page, message in [
        (tmp_path, f"cannot write {tmp_path}: it is a folder"),
        (monthly / "found.html", f"cannot make the folder {monthly}: "),
    ]:
        code, printed, rows, _ = run("forecast", monthly, *FAST, "--report", page)
        assert code == 2 and rows is None
        assert printed.err.startswith(f"gpytorch-nkn: error: {message}")
        assert printed.err.count("\n") == 1


BAD_FILES = {
    "two rows": ("t,y\n1,2\n2,3\n3,\n", "at least 3 rows with a value, got 2"),
    "constant": ("t,y\n1,5\n2,5\n3,5\n4,5\n", "The targets are constant (5.0)"),
    "three rows": ("t,y\n1,5\n2,4\n3,5\n", "leaves 2 rows to learn from and 1 to test on"),
}


BAD_OPTIONS = {
    "missing file": (["nowhere.csv"], "cannot read nowhere.csv: No such file"),
    "fraction above 1": (["FILE", "--test-fraction", "1.5"], "between 0 and 1, got '1.5'"),
    "no horizon": (["FILE", "--horizon", "0"], "positive whole number, got '0'"),
    "two parts": (["FILE", "--horizon", "3", "--test-fraction", "0.1"], "not allowed with"),
    "no header": (["FILE", "--header", "x"], "a whole number from 0 to 2^32-1, got 'x'"),
    "no duration": (["FILE", "--season", "24x"], "such as '7D', '24h', '30min' and '1Y', got"),
    "a short season": (["FILE", "--season", "1"], "at least two steps (30.4369 days each), got"),
    "negative seed": (["FILE", "--seed", "-1"], "from 0 to 2^32-1, got '-1'"),
}


@pytest.mark.parametrize("name", [*BAD_FILES, *BAD_OPTIONS])
def test_bad_files_and_options_end_in_one_line_and_code_2(run, monthly, name):
    options, message = BAD_OPTIONS.get(name, (["FILE", *FAST], None))
    if message is None:
        text, message = BAD_FILES[name]
        monthly.write_text(text)
    options = [str(monthly) if option == "FILE" else option for option in options]
    code, printed, rows, _ = run("forecast", *options)
    assert code == 2 and rows is None
    assert message in printed.err and printed.err.startswith("gpytorch-nkn: error: ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    "error, code, text",
    [(RuntimeError("why"), 1, "training failed: why"), (KeyboardInterrupt, 130, "interrupted")],
)
def test_codes_of_training_that_ends_early(run, monthly, monkeypatch, error, code, text):
    monkeypatch.setattr(NKNForecaster, "fit", Mock(side_effect=error))
    found, printed, _, _ = run("forecast", monthly, *FAST)
    assert found == code and text in printed.err


def test_files_are_written_although_the_output_is_closed(run, monthly, monkeypatch):
    """As in ``gpytorch-nkn forecast FILE | head``."""
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, open(writer, "w") as closed:
        patch.setattr(sys, "stdout", closed)
        code, _, rows, _ = run("forecast", monthly, *FAST)
    assert code == 0 and len(rows)


def test_torch_is_loaded_within_the_command():
    """Ctrl-C in the first seconds, which load torch, has code 130, too."""
    code = "import sys, gpytorch_nkn.cli; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert result.stdout == "False\n"


def test_module_runs_as_the_command_and_knows_its_version_and_evaluator(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpytorch-nkn", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("gpytorch_nkn.cli", run_name="__main__")
    version, evaluator = capsys.readouterr().out.splitlines()
    assert version == f"gpytorch-nkn {__version__}"
    assert evaluator.startswith("Networks of kernels are evaluated by ")
