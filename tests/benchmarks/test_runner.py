"""The runner resumes; tables are written, read, shown and quoted."""

import json

import pytest

from benchmarks import golden, report
from benchmarks.askl import first_maximum
from benchmarks.recovery import score
from benchmarks.report import Table, check_quotes, mean_and_error, paired, render, write_table
from benchmarks.runner import Axis, Benchmark
from benchmarks.tables import critical_difference


def run(method, seed, power):
    if method == "fails":
        raise ValueError("as it must")
    calls.append((method, seed))
    return {"value": seed**power}


def tables(rows):
    return {"dummy": Table.of([{"method": r["method"], "value": str(r["value"])} for r in rows])}


calls = []
AXES = {"method": Axis(["a", "b", "fails", "missing"], ["a", "b"]), "seed": Axis(range(3), (1, 2))}
BENCHMARK = Benchmark(
    AXES, run, tables, settings={"power": 2}, needs={"missing": "no_such_package"}
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    calls.clear()
    monkeypatch.setattr(report, "FOLDER", tmp_path / "results")
    return tmp_path


def test_a_second_call_goes_on_where_the_first_one_ended(folder, capsys):
    file = folder / "rows.jsonl"
    assert BENCHMARK.main(["--file", str(file), "--method", "a"]) == 0
    with file.open("a") as lines:
        lines.write('{"job": {"method": "b", "se')  # what a killed run leaves
    assert BENCHMARK.main(["--file", str(file), "--write"]) == 0
    assert calls == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert len([line for line in file.read_text().splitlines() if line.endswith("}")]) == 4
    assert report.read_table("dummy").rows == [["a", "1"], ["b", "1"], ["a", "4"], ["b", "4"]]
    assert BENCHMARK.main(["--file", str(file), "--power", "3", "--report"]) == 0
    assert len(calls) == 4  # other settings are other rows, and --report runs none


def test_failures_and_missing_packages_are_printed_and_the_others_go_on(folder, capsys):
    file = folder / "rows.jsonl"
    assert BENCHMARK.main(["--file", str(file), "--method", "fails", "missing", "a"]) == 1
    errors = capsys.readouterr().err
    assert "ValueError: as it must" in errors
    assert "missing is skipped: no_such_package is not installed" in errors
    assert [json.loads(line)["job"]["method"] for line in file.read_text().splitlines()] == [
        "a"
    ] * 2
    with pytest.raises(SystemExit):
        BENCHMARK.main(["--method", "c"])


def test_pages_show_parts_of_tables_and_their_numbers_are_checked():
    rows = [["x", "a", "1.25 ± 0.10"], ["x", "b", "-2"], ["y", "a", "3"]]
    write_table("one", Table(["set", "method", "score, %"], rows))
    marker = "<!-- table one | columns: score, %; set -> where | rows: x, b -> there -->\n"
    assert render(marker + "| old |\n\n") == marker + (
        "| score, % | where |\n| --- | --- |\n| -2 | there |\n\n"
    )
    marker = "<!-- table one | wide: method; score, % -->\n"
    assert "| y | 3 |  |\n" in render(marker)
    quotes = "**1.3** ± 0.1<!-- one; x, a; score, % -->, 0.10<!-- one; x, a; score, %; 2 -->"
    assert check_quotes(quotes) == ("**, ", [])
    for wrong in ("1.4<!-- one; x, a; score, % -->", "1.3 ± 0.2<!-- one; x, a; score, % -->"):
        assert len(check_quotes(wrong)[1]) == 1
    for lost in ("two; x; b", "one; x; score, %", "one; y, a; c", "one; y, a; score, %; 2"):
        assert len(check_quotes(f"3<!-- {lost} -->")[1]) == 1


def test_statistics_of_tables():
    assert mean_and_error([1.0, 2.0, 3.0], ".2f") == "2.00 ± 0.58"
    assert mean_and_error([1.0], ".2f", "+") == "+1.00"
    base = [{"s": 0, "v": 1.0}, {"s": 1, "v": 5.0}]
    assert paired([{"s": 1, "v": 4.0}, {"s": 2, "v": 0.0}], base, "v", "s") == [-1.0]
    assert critical_difference(5, 30) == pytest.approx(1.11, abs=0.01)  # Demsar (2006), table 5
    assert score([("SMOOTH", "PER"), (), ("LIN",)], [("LIN",), ("PER", "SMOOTH")]) == (True, 1)
    assert first_maximum(lambda v: -((v - 9) ** 2), 1.0, 2.0) == 8.0


def test_golden_compares_scores_both_ways_and_times_one_way():
    score = {"value": "2.0", "tolerance": "0.5", "kind": "score"}
    assert golden.compare(score, 2.4) and golden.compare(score, 1.6)
    assert not golden.compare(score, 2.6) and not golden.compare(score, 1.4)
    seconds = {"value": "2.0", "tolerance": "1.1", "kind": "time ratio"}
    assert golden.compare(seconds, 0.1) and golden.compare(seconds, 2.19)
    assert not golden.compare(seconds, 2.21)


def test_golden_goes_on_where_it_ended_and_says_what_differs(tmp_path, monkeypatch, capsys):
    values = iter([0.094, 0.2])

    def case():
        return {"SMSE": (next(values), 0.01), "coverage of 95 %": (0.99, 0.01)}

    monkeypatch.setitem(golden.CASES, "plate", case)
    rows = [["SMSE", "0.093", "0.008", "score"], ["coverage of 95 %", "0.99", "0.005", "score"]]
    rows = [["plate", *row] for row in (*rows, ["fit time", "800", "1.5", "time ratio"])]
    write_table("golden", Table(["case", "figure", "value", "tolerance", "kind"], rows))
    arguments = ["--case", "plate", "--file"]
    for _ in range(2):  # the second call has nothing to run
        assert golden.main([*arguments, str(tmp_path / "one.jsonl")]) == 0
    assert golden.main([*arguments, str(tmp_path / "other.jsonl")]) == 1
    assert "1 of 3 figures differ" in capsys.readouterr().out
