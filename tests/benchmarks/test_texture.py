import csv
import re
import sys

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from benchmarks import texture
from benchmarks.texture import (
    METHODS,
    Case,
    Fill,
    cases,
    fill,
    main,
    other_corners,
    prefix_fill,
    scores as score,
)
from benchmarks.texture_report import draw, held_from, report
from gpytorch_nkn.grids import InpaintResult, inpaint
from gpytorch_nkn.models import GridFit, GridRestart, fit_grid_gp


@pytest.fixture
def waves():
    """Waves of 24 x 26 pixels with a hole."""
    rows, columns = np.arange(24.0)[:, None], np.arange(26.0)
    truth = 0.5 + 0.2 * np.sin(rows) * np.cos(0.8 * columns)
    truth += 0.01 * np.random.default_rng(0).standard_normal(truth.shape)
    mask = np.zeros(truth.shape, dtype=bool)
    mask[9:15, 11:20] = True
    return Case("plate", "plate", truth, mask, np.where(mask, 0.5, truth))


@pytest.fixture
def short_trainings(monkeypatch):
    """A quarter of the steps that a training takes where nothing else is asked for."""

    def short(model, block_steps=None, **options):
        block_steps = 10 if block_steps is None else block_steps
        return fit_grid_gp(model, **{"likelihood_steps": 20} | options, block_steps=block_steps)

    for module in (texture, sys.modules["gpytorch_nkn.grids.inpaint_grid"]):
        monkeypatch.setattr(module, "fit_grid_gp", short)


def hidden(case):
    """The case with other values in its hole."""
    return Case(case.name, case.title, np.where(case.mask, 1e6, case.truth), case.mask)


def test_other_holes_follow_from_the_rule_and_are_apart():
    corners = other_corners((224, 224))
    assert corners == [(140, 92), (110, 0), (0, 18)]
    covered = np.zeros((224, 224), dtype=int)
    for row, column in [(60, 80), *corners]:
        covered[row : row + 60, column : column + 80] += 1
    assert covered.max() == 1 and covered.sum() == 4 * 60 * 80


def test_missing_data_are_noted_and_left_out(monkeypatch, capsys):
    monkeypatch.delenv("GPYTORCH_NKN_DATA", raising=False)
    assert cases(["plate"]) == []
    assert "plate is left out" in capsys.readouterr().err


def test_the_plate_has_four_holes(monkeypatch, tmp_path, capsys):
    (tmp_path / "textures").mkdir()
    gray = np.random.default_rng(0).random((224, 224))
    np.savez(tmp_path / "textures" / "plate.npz", gray=gray)
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    found = cases(["plate"])
    assert [case.name for case in found] == ["plate", "plate-140-92", "plate-110-0", "plate-0-18"]
    assert found[2].mask[110:170, :80].all() and found[2].mask.sum() == 4800
    assert found[0].published is None and "published fill is left out" in capsys.readouterr().err
    np.savez(tmp_path / "textures" / "plate_nkn_reference.npz", pred_hole=np.full((60, 80), 0.3))
    published = fill(cases(["plate"])[0], "published").filled
    assert (published[60:120, 80:160] == 0.3).all() and published[0, 0] == gray[0, 0]


@pytest.mark.usefixtures("short_trainings")
@pytest.mark.parametrize("method", ["rbf", "harmonic", "mean"])
def test_fills_do_not_see_the_truth_in_the_hole(waves, method):
    given, blind = (fill(case, method, restarts=1) for case in (waves, hidden(waves)))
    mask = waves.mask
    np.testing.assert_array_equal(given.filled[~mask], waves.truth[~mask])
    np.testing.assert_array_equal(given.filled[mask], blind.filled[mask])
    if method != "rbf":
        assert score(waves.truth, given, mask)["smse"] > 0.4
    if method == "harmonic":
        assert given.std is None
    else:
        assert (given.std[mask] > 0).all()
    assert np.isnan(given.training_s) == (method != "rbf")


def test_all_kernels_get_the_same_starts(waves, monkeypatch):
    calls = []

    def recorded(image, **options):
        calls.append((np.isnan(image).sum(), options["restarts"], options["seed"]))
        kinds.append(options["structure"])
        fit = GridFit(None, [GridRestart(0, seconds=1.5), GridRestart(1, seconds=2.0)])
        return InpaintResult(waves.truth, waves.truth, waves.truth, waves.mask, None, fit)

    kinds = []
    monkeypatch.setattr(texture, "inpaint", recorded)
    for method in ("nkn", "sm10", "rbf", "periodic"):
        assert fill(waves, method, seed=4, restarts=2).training_s == 3.5
    assert calls == [(waves.mask.sum(), 2, 4)] * 4
    assert kinds == ["texture", "spectral_mixture", "rbf", "periodic"]


@pytest.mark.usefixtures("short_trainings")
def test_trainings_that_end_early_are_those_of_inpaint(waves):
    ours = prefix_fill(waves, 0, seed=3).filled
    image = np.where(waves.mask, np.nan, waves.truth)
    theirs = inpaint(image, fills="kernel", restarts=1, seed=3).filled
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    short = prefix_fill(waves, 5, seed=3)
    assert np.abs(short.filled - theirs).max() > 0.01


def test_scores_are_those_of_the_formulas():
    truth, mask = np.array([[0.0, 1.0], [2.0, 9.0]]), np.array([[True, True], [True, False]])
    mean, std = np.array([[0.1, 1.5, 3.0], [0.1, 0.3, 0.4]])
    whole = np.array([[0.1, 1.5], [3.0, 9.0]]), np.array([[0.1, 0.3], [0.4, 0.0]])
    found = score(truth, Fill(*whole), mask)
    assert found["smse"] == pytest.approx((0.1**2 + 0.5**2 + 1) / 3 / (2 / 3))
    assert found["coverage"] == pytest.approx(2 / 3)  # 1 is beyond 1.96 * 0.4
    joint = multivariate_normal(mean, np.diag(std**2)).logpdf([0.0, 1.0, 2.0])
    assert found["nlpd"] == pytest.approx(-joint / 3)
    bare = score(truth, Fill(whole[0]), mask)
    assert bare["smse"] == found["smse"] and np.isnan(bare["nlpd"]) and np.isnan(bare["coverage"])


@pytest.mark.parametrize(
    ("errors", "steps"),
    [
        ({5: 0.9, 10: 0.2, 15: 0.1, 0: 0.1}, 10),
        ({5: 0.1, 10: 0.3, 15: 0.217, 0: 0.1}, 15),
        ({5: 0.1, 10: 0.1, 15: 0.1, 0: 0.3}, None),
        ({5: 0.1, 10: 0.1, 15: 0.3, 0: 0.1}, None),
        ({5: 0.9, 10: float("nan"), 15: 0.1, 0: 0.1}, 15),
    ],
)
def test_an_error_is_held_from_the_last_time_it_is_reached(errors, steps):
    assert held_from(errors, 0.217) == steps


def record(case, method, seed, value, seconds=1.0):
    names = ("coverage", "nlpd", "training_s")
    rest = dict.fromkeys(names, value) | {"all_s": seconds, "cpu_s": seconds}
    return {"case": case, "method": method, "seed": seed, "smse": value, **rest}


def test_the_report_has_means_and_verdicts():
    titles = {"plate": "plate", "plate-1-2": "another", "plate-3-4": "a third"}
    records = [record(case, "nkn", seed, 0.1 * (seed + 1)) for case in titles for seed in (1, 0)]
    records += [record("plate-3-4", "nkn", 2, 0.3), record("plate", "rbf", 0, 0.14)]
    records += [record("plate", "prefix 5", 0, 0.3, 2.0), record("plate", "prefix 10", 0, 0.2, 3.5)]
    records += [record("plate", "prefix 0", 0, 0.1, 9.0)]
    text = report(records, titles, METHODS)
    assert "| plate | NKN | 0.150 (0.100, 0.200) | 15.0% (10.0%, 20.0%) |" in text
    assert "\n| NKN | 0.200 (0.100, 0.200, 0.300) |" in text
    assert "\n| 0 | 10 | 0.200 | 3.50 | 3.50 | 0.100 | 9.0 |" in text
    aims = text[text.index("Aims:") :]
    assert len(re.findall("MISSED", aims)) == 4 and "0.150 to 0.140 (rbf): MISSED" in aims
    good = report([record("plate", "nkn", 0, 0.1), record("plate", "rbf", 0, 0.2)], titles, METHODS)
    assert good.count(": met") == 2 and "MISSED" not in good
    assert report([], titles, METHODS) == "No results."


@pytest.mark.usefixtures("short_trainings")
def test_runs_are_written_drawn_and_not_repeated(waves, monkeypatch, tmp_path, capsys):
    plate = pytest.importorskip("matplotlib.image")
    monkeypatch.setattr(texture, "cases", lambda images: [waves])
    monkeypatch.setattr(texture, "_warm_up", lambda: None)
    monkeypatch.setattr(texture, "_PREFIXES", (5,))
    options = ["--methods", "nkn", "harmonic", "published", "--restarts", "1", "--reach-seeds", "0"]
    options += ["--out", str(tmp_path), "--csv", str(tmp_path / "own.csv")]
    threads = torch.get_num_threads()
    try:
        assert main([*options, "--seeds", "0"]) == 0
        first = capsys.readouterr()
        assert "0 of 5 runs" in first.err
        picture = plate.imread(tmp_path / "plate.png")
        assert min(picture.shape[:2]) > 300 and picture.std() > 0.05
        path = tmp_path / "own.csv"
        before = path.read_text()
        with path.open("a") as file:
            file.write("plate,nkn,1")  # what a killed run leaves
        assert main([*options, "--seeds", "0", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    second = capsys.readouterr()
    assert "5 of 6 runs" in second.err
    assert path.read_text().startswith(before)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 7 and rows[-1]["seed"] == "1" and float(rows[-1]["smse"]) < 0.1
    assert f"({float(rows[0]['smse']):.3f}, {float(rows[-1]['smse']):.3f})" in second.out


def test_failures_are_told(waves, monkeypatch, tmp_path, capsys):
    def broken(case, method, **options):
        raise ArithmeticError("no fill")

    monkeypatch.setattr(texture, "cases", lambda images: [waves])
    monkeypatch.setattr(texture, "_warm_up", lambda: None)
    monkeypatch.setattr(texture, "fill", broken)
    threads = torch.get_num_threads()
    try:
        assert main(["--methods", "rbf", "--seeds", "0", "--out", str(tmp_path)]) == 1
    finally:
        torch.set_num_threads(threads)
    captured = capsys.readouterr()
    assert "ArithmeticError: no fill" in captured.err and "No results." in captured.out


def test_pictures_hold_any_number_of_fills(waves, tmp_path):
    image = pytest.importorskip("matplotlib.image")
    std = np.where(waves.mask, 0.1, 0.0)
    for count in (1, 7):
        fills = {f"fill {k}\nSMSE 0.1": waves.truth for k in range(count)}
        path = tmp_path / f"{count}.png"
        assert draw(path, "title", waves.truth, waves.mask, fills, std)
        assert image.imread(path).std() > 0.05
