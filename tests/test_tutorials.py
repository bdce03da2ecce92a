"""Every tutorial runs in smoke mode, and its notebook holds the same cells, with outputs."""

import re
import runpy
from pathlib import Path

import jupytext
import matplotlib
import pytest
import torch

TUTORIALS = Path(__file__).parents[1] / "tutorials"
SCRIPTS = sorted(TUTORIALS.glob("*.py"))

# What another run would print otherwise, and what tells of the machine.
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


@pytest.mark.slow
@each_tutorial
def test_tutorial_runs_in_smoke_mode(script, tmp_path, monkeypatch):
    monkeypatch.setenv("GPYTORCH_NKN_SMOKE", "1")
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)  # as where a reader starts
    with matplotlib.rc_context():
        runpy.run_path(str(script), run_name="__main__")


@each_tutorial
def test_notebook_and_script_are_in_step(script):
    assert cells(script.with_suffix(".ipynb")) == cells(script), "run `make tutorials`"


@each_tutorial
def test_notebook_is_committed_with_its_figures(script):
    notebook = jupytext.read(script.with_suffix(".ipynb"))
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.output_type == "error"]
    figures = [out for out in outputs if "image/png" in out.get("data", {})]
    assert figures, "the notebook has no figure: run `make tutorials` and commit its outputs"


@each_tutorial
def test_tutorial_is_read_in_ten_minutes_and_says_what_for(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 255
    kind, first = cells(script)[0]
    assert kind == "markdown" and first.startswith("# ") and len(first.split()) > 40


@each_tutorial
def test_outputs_hold_nothing_of_the_machine(script):
    notebook = jupytext.read(script.with_suffix(".ipynb"))
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    for out in outputs:
        assert out.get("name") != "stderr", out.text
        data = out.get("data", {})
        assert set(data) <= {"image/png", "text/html", "text/plain"}
        assert not re.search(NOISE, out.get("text", "") + data.get("text/plain", ""))


@each_tutorial
def test_figures_have_texts_for_those_who_do_not_see_them(script):
    notebook = jupytext.read(script.with_suffix(".ipynb"))
    for cell in notebook.cells:
        if any("image/png" in out.get("data", {}) for out in cell.get("outputs", [])):
            image = cell.metadata.get("mystnb", {}).get("image", {})
            assert len(image.get("alt", "")) > 20, f"see how others do it: {cell.source[:80]}"


def test_cells_of_a_script_and_its_notebook_compare(tmp_path):
    script, notebook = tmp_path / "a.py", tmp_path / "a.ipynb"
    script.write_text("# %% [markdown]\n# # Title\n\n# %%\nx = 1\n")
    jupytext.write(jupytext.read(script), notebook, fmt="ipynb")
    assert cells(script) == cells(notebook) == [("markdown", "# Title"), ("code", "x = 1")]
    script.write_text(script.read_text().replace("x = 1", "x = 2"))
    assert cells(script) != cells(notebook)
