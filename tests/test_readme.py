"""The README's code runs, in order and in one namespace, and its make targets exist."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

# Line numbers are kept, so that a traceback points into the README.
RUNNER = """
import json, sys, warnings
warnings.filterwarnings("error", module=r"gpytorch_nkn(\\..*)?$")
namespace = {"__name__": "__main__"}
path, blocks = json.load(sys.stdin)
for line, code in blocks:
    exec(compile("\\n" * (line - 1) + code, path, "exec"), namespace)
"""


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


def test_python_blocks_run(tmp_path):
    blocks = fenced(README.read_text(encoding="utf-8"), "python")
    assert blocks, "README.md has no ```python block"
    run = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps([str(README), blocks]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=900,
    )
    assert run.returncode == 0, run.stderr


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
