"""Every tutorial runs in smoke mode, and its notebook holds the same cells, with outputs."""

import re
from pathlib import Path

import jupytext
import matplotlib
import pytest
import torch

from tests.test_pages import make_quick, shortened

TUTORIALS = Path(__file__).parents[1] / "tutorials"
SCRIPTS = sorted(TUTORIALS.glob("*.py"))

# What another run would print otherwise, and what depends on the machine.
NOISE = (
    r"/(?:home|root|tmp|usr|work)/|<ipython-input|ipykernel_|\b0x[0-9a-f]{6,}"
    r"|\d(?:it/s|s/it)|\w+Warning:"
)

each_tutorial = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def cells(path):
    notebook = jupytext.read(path, fmt="py:percent" if path.suffix == ".py" else None)
    return [(cell.cell_type, cell.source.strip()) for cell in notebook.cells]


def test_every_tutorial_is_a_script_and_a_notebook():
    notebooks = sorted(TUTORIALS.glob("*.ipynb"))
    assert SCRIPTS, f"no tutorial in {TUTORIALS}"
    assert [path.stem for path in SCRIPTS] == [path.stem for path in notebooks]


# What makes a tutorial small, beside what makes pages small.
SMALL = {
    "01_time_series": {
        "past, later = co2[~series.test], co2[series.test]": "past = co2[~series.test][-100:]\n"
        "later = co2[series.test]",
        '"time_series",': '"time_series", quality="fast",',
        "windows=3, step=60": "windows=1",
        "normal(150)": "normal(50)",
    },
    "02_plug_into_your_model": {
        "RESTARTS = 6": "RESTARTS = 1",
        "8, 200), torch.full((200,)": "8, 5), torch.full((5,)",
        "test_x[:200]": "test_x[:5]",
        **{"120": "40", "200": "30", "400": "60", "100": "20", "61": "9"},
    },
    "03_bayesian_optimization": {"6, 10, 50, 3": "6, 4, 5, 1", "range(30)": "range(6)"},
    "04_reading_a_learned_kernel": {
        "dates, co2, past = series.x, series.y, ~series.test": "dates, co2, past = "
        "series.x[240::4], series.y[240::4], ~series.test[240::4]",
        "simplify(forecaster)": "simplify(forecaster, max_terms=1)",
    },
    "05_grids_with_holes": {
        "size = (120, 150)": "size = (40, 50)",
        "range(5000)": "range(100)",
        "[144:368, 144:368]": "[204:244, 219:269]",
        "cut[80:120, 90:140]": "cut[12:28, 14:32]",
        "stations, days = 40, 6": "stations, days = 12, 4",
    },
    "06_spectral_kernels": {"0, 3, 60": "0, 1, 15", "restarts=STARTS": "restarts=1"},
    "07_data_adaptive_kernels": {
        "SEED, FOLDS = 0, 5": "SEED, FOLDS = 0, 2",
        "clowns(200,": "clowns(20,",
        "rows = 200": "rows = 30",
        "setting, random_state=SEED)": "setting, relevance=None)",
    },
    "08_regression_on_a_table": {
        "SEED, ROWS = 0, 150": "SEED, ROWS = 0, 30",
        "NKNRegressor(random": 'NKNRegressor("tabular", y_transform="identity", random',
        "NKNRegressor(kernel": 'NKNRegressor(kernel, y_transform="identity", restarts=1',
        "n_iter=30": "n_iter=1",
        "0.05, 1, 0.05": "0.5, 1, 0.5",
        "size = 2500": "size = 100",
    },
}


@pytest.mark.usefixtures("few_iterations")
@each_tutorial
def test_tutorial_runs_in_smoke_mode(script, tmp_path, monkeypatch):
    """All cells but those that hold the claims of the page, which `make tutorials` runs."""
    monkeypatch.chdir(tmp_path)
    make_quick(monkeypatch)
    torch.set_default_dtype(torch.float32)  # as where a reader starts
    small = jupytext.read(script, fmt="py:percent").cells
    small = [c for c in small if "remove-cell" not in c.metadata.get("tags", ())]
    code = "\n".join(cell.source for cell in small if cell.cell_type == "code")
    with matplotlib.rc_context():
        code = compile(shortened(code, SMALL[script.stem]), script.name, "exec")
        exec(code, {"__name__": "__main__"})


@each_tutorial
def test_readers_see_no_checks(script):
    for cell in jupytext.read(script, fmt="py:percent").cells:
        if cell.cell_type == "code" and "remove-cell" not in cell.metadata.get("tags", ()):
            assert not re.search(r"^\s*assert |SMOKE", cell.source, re.MULTILINE), cell.source


@each_tutorial
def test_notebook_and_script_are_in_step(script):
    assert cells(script.with_suffix(".ipynb")) == cells(script), "run `make tutorials`"


@each_tutorial
def test_tutorial_is_read_in_ten_minutes_and_says_what_for(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 255
    kind, first = cells(script)[0]
    assert kind == "markdown" and first.startswith("# ") and len(first.split()) > 40


@each_tutorial
def test_notebook_has_described_figures_and_outputs_that_hold_nothing_of_the_machine(script):
    figures = 0
    for cell in jupytext.read(script.with_suffix(".ipynb")).cells:
        for out in cell.get("outputs", []):
            assert out.output_type != "error" and out.get("name") != "stderr", out
            data = out.get("data", {})
            assert set(data) <= {"image/png", "text/html", "text/plain"}
            assert not re.search(NOISE, out.get("text", "") + data.get("text/plain", ""))
            if "image/png" in data:
                figures += 1
                image = cell.metadata.get("mystnb", {}).get("image", {})
                assert len(image.get("alt", "")) > 20, f"see how others do it: {cell.source[:80]}"
    assert figures, "the notebook has no figure: run `make tutorials` and commit its outputs"
