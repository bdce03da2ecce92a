"""The code of README and of the site's pages runs, and their commands exist."""

import re
import shlex
import sys
import textwrap
from configparser import ConfigParser
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import pytest
import torch

from benchmarks.report import RESULTS, check_quotes, render
from gpytorch_nkn import bo, interpretation
from gpytorch_nkn.cli import command
from gpytorch_nkn.interpretation.reporting.page import Sketch
from gpytorch_nkn.models import TRAINERS, NKNSingleTaskGP
from gpytorch_nkn.models.pathwise import paths
from gpytorch_nkn.models.sparse import fit_variational

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# All but the site's build and the page of faults, which tests/test_upstream.py runs.
PAGES = [ROOT / "README.md", *sorted(set(DOCS.rglob("*.md")) - {DOCS / "upstream.md"})]
PAGES = [path for path in PAGES if "_build" not in path.relative_to(ROOT).parts]


def fenced(text, language):
    """``(line, code)`` of every block of the language; line is that of the first code line."""
    pattern = rf"^([ \t]*)```{language}[ \t]*\n(.*?)^\1```[ \t]*$"
    return [
        (text[: match.start(2)].count("\n") + 1, textwrap.dedent(match[2]))
        for match in re.finditer(pattern, text, flags=re.DOTALL | re.MULTILINE)
    ]


def pages_with(language):
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    return pytest.mark.parametrize(
        ("path", "blocks"),
        [
            pytest.param(path, blocks, id=str(path.relative_to(ROOT)))
            for path, text in texts.items()
            if (blocks := fenced(text, language))
        ],
    )


def calls(code, command):
    """Arguments of every call of a command, continued lines joined and comments omitted."""
    lines = code.replace("\\\n", " ").splitlines()
    parts = [part for line in lines for part in re.split(r"&&|;", line.partition(" #")[0])]
    return [shlex.split(part)[1:] for part in parts if part.split()[:1] == [command]]


def make_quick(monkeypatch):
    """Searches of one start, few points of effects, draws of few features, empty figures."""
    for module, name, options in (
        (bo, "fit_bo_model", {"fresh_starts": 1}),
        (interpretation, "simplify", {"max_candidates": 1}),
    ):
        monkeypatch.setattr(module, name, partial(getattr(module, name), **options))
    trainer = partial(TRAINERS[NKNSingleTaskGP], fresh_starts=0)
    monkeypatch.setitem(TRAINERS, NKNSingleTaskGP, trainer)
    monkeypatch.setattr(fit_variational, "_STEPS", 10)
    monkeypatch.setattr(paths, "_MAPS", 2)
    for name in ("_ROWS", "_PAIR_ROWS", "_POINTS", "_PAIR_POINTS", "_SHARE_POINTS"):
        monkeypatch.setattr(sys.modules["gpytorch_nkn.interpretation.effects"], name, 6)
    monkeypatch.setattr(Sketch, "source", lambda sketch: "")


# What makes code of pages and tutorials small; readers see none of it.
USUAL = {
    r"restarts=\d": "restarts=1",
    r"raw_samples=\d+": "raw_samples=4",
    r"NKNForecaster\((?=horizon|random)": 'NKNForecaster(quality="fast", ',
    r"NKNRegressor\((?=restarts|random|num)": 'NKNRegressor("tabular", ',
    r"StructureEnsembleGP\((\w+(\[:\w+\])?, \w+(\[:\w+\])?)(?=[,)])": r"StructureEnsembleGP(\1, "
    'num_members=2, structures=("matern", "outcome-warped matern")',
}
SMALL = {
    "ax": {"range(10)": "range(6)", "(seed=0)": "(seed=0, optimizer_options=BRIEF)"},
    "bo_batches": {"range(2)": "range(1)"},
    "bo_columns": {'"maxiter": 5': '"maxiter": 1'},
    "bo_objectives": {"range(2)": "range(1)", "q=2, sequential=True": "q=1"},
    "botorch": {"range(8)": "range(1)"},
    "forecast": {"windows=4": "windows=1"},
    "classes": {"size=(100, 5)": "size=(40, 3)", "90)": "30)", "fier(ran": 'fier("tabular", ran'},
    "networks": {"(60": "(9", "=100": "=2", "(100": "(2", "depth=4": "depth=1"},
    "many_rows": {"(1000": "(200", "=20, budget=1": "=8, restarts=1, budget=0.3", "(500": "(100"},
    "several_outputs": {"(30, 1": "(9, 1", "max_terms=2": "max_terms=1, max_candidates=1"},
    "model": {"0, 6, 90": "0, 6, 50", "randn(90)": "randn(50)"},
}
BRIEF = {"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 2}}


def shortened(text, small):
    for full, short in small.items():
        assert full in text, full
        text = text.replace(full, short)
    for pattern, short in USUAL.items():
        text = re.sub(pattern, short, text)
    return text


@pages_with("python")
@pytest.mark.usefixtures("few_iterations")
def test_python_blocks_run_in_order_in_one_namespace(path, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_quick(monkeypatch)
    torch.set_default_dtype(torch.float32)  # as where a reader starts
    text = shortened(path.read_text(encoding="utf-8"), SMALL.get(path.stem, {}))
    namespace = {"__name__": "__main__", "BRIEF": BRIEF}
    with matplotlib.rc_context():
        for line, code in fenced(text, "python"):  # a traceback points into the page
            wanted = re.findall(r"^from (?:gpytorch_nkn\.)?(ax|pyro|sktime)\b", code, re.MULTILINE)
            if all(find_spec(name) for name in wanted):
                exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)


# Pages that show what their code prints; `python docs/figures/start.py` writes it below each block.
SHOWING = [path for path in PAGES if path.parent.name in ("start", "howto")]
SHOWING = [ROOT / "README.md", *SHOWING]


@pytest.mark.parametrize("path", SHOWING, ids=lambda path: path.name)
def test_pages_show_what_their_code_prints(path):
    blocks = re.split(
        r"^```(\w*)\n(.*?)^```\n", path.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    kinds = [*zip(blocks[1::3], blocks[2::3], strict=True), ("", "")]
    for (kind, code), (next_kind, output) in zip(kinds, kinds[1:], strict=False):
        if kind == "python" and re.search(r"^ {0,4}print\(", code, re.MULTILINE):
            assert next_kind == "text" and output and "..." not in output.splitlines(), code


@pages_with("bash")
def test_commands_in_bash_blocks_exist(path, blocks):
    targets = re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    config = (ROOT / "setup.cfg").read_text()
    for _, code in blocks:
        for arguments in calls(code, "make"):
            called = {word for word in arguments if "=" not in word and word[0] != "-"}
            assert called <= set(targets)
        for arguments in calls(code, "gpytorch-nkn"):
            command._make_parser().parse_args(arguments)  # a UserError where an option is wrong
        for extra in re.findall(r"\[(\w+)\]", code):
            assert f"\n{extra} =\n" in config


def test_the_readme_shows_the_two_commands():
    blocks = fenced((ROOT / "README.md").read_text(encoding="utf-8"), "bash")
    called = {word for _, code in blocks for arguments in calls(code, "make") for word in arguments}
    assert {"demo", "test"} <= called


def test_links_of_the_readme_lead_to_files():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("https://") or (ROOT / target).exists(), target


EACH = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
FOUND = "\n## Results"
# After a number that was measured, and that must be tied to a table.
UNIT = r"(?:CPU )?(?:s|ms|GB|seconds?|minutes?)\b|times (?:as|too)"
# All their decimals are tied to tables; in pages of theory, only the section above.
QUOTING = [ROOT / "README.md", DOCS / "choose.md", DOCS / "results.md", DOCS / "howto" / "speed.md"]


@EACH
def test_figures_match_the_tables(path):
    text = path.read_text(encoding="utf-8")
    assert render(text) == text, "run python -m benchmarks.report"
    rest, wrong = check_quotes(text)
    assert not wrong
    code = r"```.*?```|\$\$.*?\$\$|`[^`]*`|!\[[^]]*\]|Python 3\.11"
    code += r"|<!-- table [^>]*(?:->[^>]*)*-->\n(?:\|.*?\n)*"
    rest = re.sub(code, "", rest, flags=re.DOTALL)
    assert not re.findall(rf"\d (?:{UNIT}).*", rest)
    if path in QUOTING or FOUND in rest:
        prose = rest if path in QUOTING else rest.partition(FOUND)[2].partition("\n## ")[0]
        assert not re.findall(r"(?<![\w.])\d[\d,]*\.\d+", prose)


def test_results_are_in_step_with_their_tables():
    text = RESULTS.read_text(encoding="utf-8")
    assert render(text) == text, "run python -m benchmarks.report"
    assert len(text.encode()) <= 50_000
    assert 0 < len(text.partition("## Negative results\n")[2]) <= 6_000


@pytest.mark.parametrize("path", [*QUOTING, DOCS / "theory" / "grids.md"], ids=lambda p: p.name)
def test_a_changed_digit_of_a_quoted_figure_fails(path):
    text = path.read_text(encoding="utf-8")
    quotes = list(re.finditer(r"(\d)(?:\*\*)?(?: ± [\d.,]+)?(?:\*\*| ?%|\))*<!-- [^>]*; ", text))
    assert quotes
    for quote in quotes:
        digit = str((int(quote[1]) + 1) % 10)
        changed = text[: quote.start()] + digit + text[quote.start() + 1 :]
        assert len(check_quotes(changed)[1]) == 1, quote[0]


def test_a_changed_digit_of_a_shown_table_fails():
    text = RESULTS.read_text(encoding="utf-8")
    for cell in re.findall(r"^\| [^|]* \| -?\d[^|]* \|", text, flags=re.MULTILINE)[::9]:
        changed = text.replace(cell, cell[:-3] + str((ord(cell[-3]) + 1) % 10) + " |", 1)
        assert render(changed) == text != changed


@EACH
def test_pages_are_plain_markdown_that_hosts_of_repositories_show(path):
    """No directives, roles or labels of MyST; the two included files are linked themselves."""
    if path.name not in ("architecture.md", "changelog.md"):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(
            r"^ *(?:```|:::)\{.*|\{[a-z:]+\}`[^`]*`|^\([\w-]+\)=$", text, re.MULTILINE
        )


def test_one_address_of_repository_and_site():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["metadata"]["project_urls"].strip().splitlines()
    urls = dict(line.split(" = ") for line in lines)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    defined = dict(re.findall(r"^\[(\w+)\]: (\S+)$", readme, re.MULTILINE))
    assert defined == {"repository": urls["Repository"], "site": urls["Documentation"]}
    assert all(url.startswith(tuple(defined.values())) for url in urls.values())
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nrepository-code: {urls['Repository']}\n" in citation
    assert f"\nurl: {urls['Documentation']}\n" in citation


@EACH
def test_pictures_are_there_and_say_in_words_what_they_show(path):
    text = path.read_text(encoding="utf-8")
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)
    for alt, target in pictures:
        assert (path.parent / target).is_file(), target
        assert len(alt.split()) >= 5, f"{target}: {alt!r}"
