"""The README's code runs, in order and in one namespace, and its make targets exist."""

import re
import textwrap
from importlib.util import find_spec
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

# Trainings that take long, and what runs here in their place.
SHORTER = {
    "adaptive_gp))": "adaptive_gp), optimizer_kwargs={'options': {'maxiter': 20}})",
    "simplify(forecaster, max_terms=3)": "simplify(forecaster, max_terms=1, max_candidates=2)",
}


def fenced(text, language):
    """``(line, code)`` of every block of the language; line is that of the first code line."""
    pattern = rf"^([ \t]*)```{language}[ \t]*\n(.*?)^\1```[ \t]*$"
    return [
        (text[: match.start(2)].count("\n") + 1, textwrap.dedent(match[2]))
        for match in re.finditer(pattern, text, flags=re.DOTALL | re.MULTILINE)
    ]


def make_targets_called(code):
    calls = re.findall(r"(?:^|&&|;)[ \t]*make[ \t]+([^\n&;#]+)", code, flags=re.MULTILINE)
    words = [word for call in calls for word in call.split()]
    return {word for word in words if "=" not in word and not word.startswith("-")}


def make_targets_defined(makefile):
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", makefile, flags=re.MULTILINE))


def test_python_blocks_run(tmp_path, monkeypatch):
    text = README.read_text(encoding="utf-8")
    for long, short in SHORTER.items():
        assert text.count(long) == 1, long
        text = text.replace(long, short)
    blocks = fenced(text, "python")
    assert blocks, "README.md has no ```python block"
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)  # as where a reader starts
    namespace = {"__name__": "__main__"}
    if find_spec("sktime") is None:
        blocks = [block for block in blocks if "sktime" not in block[1]]
    for line, code in blocks:  # with its line number, so that a traceback points into the README
        exec(compile("\n" * (line - 1) + code, str(README), "exec"), namespace)


def test_make_targets_in_bash_blocks_exist():
    called = set()
    for _, code in fenced(README.read_text(encoding="utf-8"), "bash"):
        called |= make_targets_called(code)
    assert {"demo", "test"} <= called, f"the README shows only: make {sorted(called)}"
    assert called <= make_targets_defined((ROOT / "Makefile").read_text(encoding="utf-8"))


def test_blocks_are_found_with_their_lines():
    text = "a\n```python\nx = 1\n```\n- b\n\n  ```python\n  y = 2\n  ```\n```bash\nmake z\n```\n"
    assert fenced(text, "python") == [(3, "x = 1\n"), (8, "y = 2\n")]
    assert fenced(text, "bash") == [(11, "make z\n")]


def test_make_calls_are_found_among_other_commands():
    code = "git clone x && cd x\nmake demo VENV=env  # comment\ncd y && make -s lint test\n"
    assert make_targets_called(code) == {"demo", "lint", "test"}
    assert make_targets_defined("A := 1\nhelp: ## x\ntest: $(V)/.s ## y\n.PHONY: z\n") == {
        "help",
        "test",
    }
