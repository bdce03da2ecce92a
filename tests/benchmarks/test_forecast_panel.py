import json
import math

import numpy as np
import pandas as pd
import pytest

from benchmarks import forecast_panel
from benchmarks.data import PanelSeries, load_long_series, load_panel
from benchmarks.forecast_panel import main
from benchmarks.forecast_panel_report import LongTask, clustered_error, combine, panel_table, score

NAMES = ("mean", "lo-80", "lo-95", "hi-80", "hi-95")


def constant(value, width, size):
    offsets = (0, -width, -2 * width, width, 2 * width)
    return {name: [value + offset] * size for name, offset in zip(NAMES, offsets, strict=True)}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Data folder with two short series and a long one."""
    (tmp_path / "forecast_panel").mkdir()
    (tmp_path / "long_series").mkdir()
    rng = np.random.default_rng(0)
    time = np.arange(40) / 4
    y = 10 + np.sin(2 * np.pi * time) + 0.1 * rng.standard_normal(40)
    frames = [
        pd.DataFrame({"unique_id": name, "x": time[:n], "y": y[:n]})
        for name, n in (("quarters", 40), ("short", 20))
    ]
    pd.concat(frames).to_csv(tmp_path / "forecast_panel" / "panel.csv", index=False)
    facts = {name: {"season": 4, "horizon": 4} for name in ("quarters", "short")}
    (tmp_path / "forecast_panel" / "panel.json").write_text(json.dumps(facts))
    pd.DataFrame({"x": time, "y": y, "other": 0.0}).to_csv(
        tmp_path / "long_series" / "days.csv", index=False
    )
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def in_this_process(monkeypatch):
    """Runs here, with peers that repeat the last value; the calls are listed."""
    calls = []

    def peer(method, y, horizon, seasons):
        calls.append((method, y.size, horizon, tuple(seasons)))
        return constant(y[-1], 1.0, horizon)

    class Future:
        def __init__(self, value):
            self.result = lambda: value

    class Pool:
        def __init__(self, *args, **options):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *args):
            pass

        def submit(self, function, job):
            return Future(function(job))

    for cached in (forecast_panel._panel, forecast_panel._warm_up):
        cached.cache_clear()
    monkeypatch.setattr(forecast_panel, "_peer", peer)
    monkeypatch.setattr(forecast_panel, "_warm_up", lambda method: None)
    monkeypatch.setattr(forecast_panel, "_is_available", lambda method: True)
    monkeypatch.setattr(forecast_panel, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(forecast_panel, "as_completed", list)
    yield calls
    forecast_panel._panel.cache_clear()


def test_loads_series_in_the_order_of_the_panel(folder):
    panel = load_panel()
    assert list(panel) == ["quarters", "short"]
    assert panel["short"].y.shape == panel["short"].time.shape == (20,)
    assert (panel["short"].season, panel["short"].horizon) == (4, 4)
    time, y = load_long_series("days")
    assert time.shape == y.shape == (40,)
    assert y.max() > 10  # the second column


def test_missing_files_are_named(folder):
    (folder / "forecast_panel" / "panel.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"forecast_panel/panel\.json"):
        load_panel()
    with pytest.raises(FileNotFoundError, match=r"long_series/hours\.csv"):
        load_long_series("hours")


def test_scores_of_a_forecast_by_hand():
    result = score(constant(1.0, 1.0, 4), np.array([1.0, 2.5, 4.0, -1.0]), scale=2.0)
    assert result.mase == pytest.approx((0 + 1.5 + 3 + 2) / 4 / 2)
    # Width 4 and one miss, by 1, of which each costs 40 times its distance.
    assert result.msis == pytest.approx((4 + 40 * 1 / 4) / 2)
    assert result.coverage == (0.75, 0.25)


def test_combination_is_the_median_of_forecasts_and_ends():
    combined = combine([constant(value, 1.0, 2) for value in (1.0, 5.0, 2.0, 3.0)])
    assert combined["mean"].tolist() == [2.5, 2.5]
    assert combined["hi-95"].tolist() == [4.5, 4.5]


def test_error_of_a_mean_counts_series_rather_than_forecasts():
    values = np.random.default_rng(0).standard_normal(30)
    alone = clustered_error({i: [value] for i, value in enumerate(values)})
    assert alone == pytest.approx((values.mean(), values.std(ddof=1) / math.sqrt(30)))
    repeated = clustered_error({i: [value] * 3 for i, value in enumerate(values)})
    assert repeated == pytest.approx(alone)
    assert math.isnan(clustered_error({"one": [1.0, 2.0]})[1])


def test_table_compares_with_the_combination_and_the_naive_rule():
    panel = {name: PanelSeries(name, np.arange(12.0), np.arange(12.0), 1, 2) for name in "ab"}
    errors = {"AutoARIMA": 2.0, "AutoETS": 2.0, "SeasonalNaive": 1.0, "default": 1.0}
    records = [
        {
            "series": name,
            "origin": 0,
            "method": method,
            "forecast": {
                key: list(np.asarray(values) + [10, 11])
                for key, values in constant(error, 1.0, 2).items()
            },
            "cpu_seconds": 0.5,
            "versions": {"numpy": "2"},
        }
        for name in panel
        for method, error in errors.items()
    ]
    lines = panel_table(records, panel).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in lines}
    assert rows["default"][1:3] == ["2", "0.500"]
    assert rows["default"][6:8] == ["100%", "0%"]
    assert rows["default"][8] == rows["default"][9] == "-0.693 ± 0.000"
    assert rows["default"][10] == "0.50"
    assert rows["AutoARIMA"][2] == "1.000"
    assert rows["AutoARIMA"][7] == "100%"
    assert panel_table(records[-1:], panel).startswith("No forecasts of the combination")


def test_runs_what_is_missing_and_prints_a_table(folder, in_this_process, capsys):
    out = folder / "results.jsonl"
    call = ["--methods", "AutoARIMA", "AutoETS", "SeasonalNaive", "--out", str(out)]
    assert main([*call, "--series", "short"]) == 0
    # The third origin of the short series has too few points before it.
    sizes = [size for method, size, _, _ in in_this_process if method == "AutoETS"]
    assert sizes == [16, 12]
    assert main(call) == 0
    assert len(in_this_process) == 3 * (2 + 3)
    assert {call[2:] for call in in_this_process} == {(4, (4,))}
    assert len(out.read_text().splitlines()) == 15
    capsys.readouterr()
    assert main(["--summary", "--out", str(out)]) == 0
    assert "| combination | 5 | 1.000 |" in capsys.readouterr().out
    assert len(in_this_process) == 15


def test_ours_is_told_the_season_in_units_of_time(folder, in_this_process, monkeypatch):
    told = []

    def ours(x, y, new_x, options):
        told.append((x.size, options))
        return constant(y[-1], 1.0, new_x.size)

    monkeypatch.setattr(forecast_panel, "_ours", ours)
    call = ["--series", "quarters", "--origins", "1", "--out", str(folder / "ours.jsonl")]
    main([*call, "--methods", "default", "no-priors"])
    assert told == [(36, {"seasons": [1.0]}), (36, {"seasons": [1.0], "priors": False})]


def test_forecasts_of_ours_have_ordered_ends(folder):
    time = np.arange(36) / 4
    y = 10 + np.sin(2 * np.pi * time)
    options = {"quality": "fast", "transform": "identity", "seasons": [1.0]}
    forecast = forecast_panel._ours(time, y, np.arange(36, 40) / 4, options)
    assert set(forecast) == set(NAMES)
    ends = np.stack([forecast[name] for name in ("lo-95", "lo-80", "mean", "hi-80", "hi-95")])
    assert (np.diff(ends, axis=0) > 0).all()


def test_a_failure_is_told_and_loses_nothing(folder, in_this_process, monkeypatch, capsys):
    peer = forecast_panel._peer

    def sometimes(method, y, horizon, seasons):
        if method == "AutoCES":
            raise ValueError("too short")
        return peer(method, y, horizon, seasons)

    monkeypatch.setattr(forecast_panel, "_peer", sometimes)
    out = folder / "results.jsonl"
    call = ["--methods", "AutoCES", "AutoETS", "--series", "short", "--out", str(out)]
    assert main(call) == 1
    captured = capsys.readouterr()
    assert "too short" in captured.err
    assert "| AutoETS | 2 |" in captured.out
    assert {json.loads(line)["method"] for line in out.read_text().splitlines()} == {"AutoETS"}


def test_long_series_have_a_table_with_memory(folder, in_this_process, monkeypatch, capsys):
    monkeypatch.setattr(forecast_panel, "_LONG", {"days": LongTask(4, (4,), "D")})
    out = folder / "long.jsonl"
    assert main(["--long", "--methods", "SeasonalNaive", "--out", str(out)]) == 0
    row = capsys.readouterr().out.splitlines()[2].split(" | ")
    assert row[:4] == ["| days", "36", "4", "SeasonalNaive"]


def test_unknown_series_and_missing_data_end_the_call(folder, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        main(["--series", "nowhere"])
    assert "quarters, short" in capsys.readouterr().err
    monkeypatch.delenv("GPYTORCH_NKN_DATA")
    with pytest.raises(SystemExit):
        main([])
    assert "GPYTORCH_NKN_DATA" in capsys.readouterr().err
