"""Prose avoids words that once made readers stumble: pages, docstrings, comments and messages."""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each with what to write in its place, as far as one phrase serves all cases.
BANNED = {
    "a slope that is forgotten": "a damped trend",
    "as it is": "unchanged",
    "as stock": "to GPyTorch",
    "bands": "prediction intervals",
    "bends?|bent(?! cigar)": "warps, is curved",
    "climbs?|risen": "maximises",
    "dealt|parcels?|traveller": "partitioned, shared payload, worker state",
    "derivatives? by": "derivatives with respect to",
    "evenness": "Dirichlet concentration",
    "how sure": "uncertainty",
    "judge[sd]?|judge?ments?": "backtests, scores",
    "makes no difference beyond": "has no effect larger than",
    "nats of a row": "nats per observation",
    "nobody": "no one; say who does what",
    "of which|that which|those of|there (is|are) none|what is what": "the noun itself",
    "places": "locations, indices",
    "pull(s|ed)? back": "vector-Jacobian product",
    "refus(e|es|ed|ing|al|als)": "rejects, raises",
    "row of the catalogue": "kernel spec",
    "short memory": "autocorrelated noise",
    "since then": "the date or version",
    "stand-ins? for missing values": "sentinel values",
    "tells|told": "infers, states, is given",
    "texts": "strings",
    "things?": "the noun itself",
    "wanders?|wandering": "random walk, local linear trend",
    "wild values?": "outliers",
    "left[ -]out|leaves out": "held out, omitted",
}
_PART = getattr(tokenize, "FSTRING_MIDDLE", None)  # from Python 3.12
PATTERN = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)

PACKAGE = {
    f"gpytorch_nkn/{path.name}"
    for path in (ROOT / "gpytorch_nkn").iterdir()
    if (path / "__init__.py").is_file() or path.suffix == ".py"
}
PAGES = {"benchmarks", "docs", "tests", "tutorials"} | {path.name for path in ROOT.glob("*.md")}


def files(*paths):
    for path in (ROOT / name for name in paths):
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.suffix in (".md", ".py", ".jinja"))


def lines(path):
    """``(number, prose)`` of a page's lines, or of a module's comments, strings, names of tests."""
    text = path.read_text(encoding="utf-8")
    if not PATTERN.search(text.replace("_", " ")):
        return
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING and token.string[1:-1].isidentifier():
            continue  # a name, such as an argument of getattr
        if token.type == tokenize.NAME and token.string.startswith("test_"):
            yield token.start[0], token.string.replace("_", " ")
        if token.type in (tokenize.COMMENT, tokenize.STRING, _PART):
            yield from enumerate(token.string.splitlines(), token.start[0])


def faults(path):
    """Every banned word outside of code, links' targets and comments of quoted tables."""
    code = re.compile(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->|\{[^{}]*\}")
    for number, line in lines(path):
        for match in PATTERN.finditer(code.sub("", line)):
            advice = next(new for old, new in BANNED.items() if re.fullmatch(old, match[1], re.I))
            yield f"{path.relative_to(ROOT)}:{number}: {match[1]!r} (write: {advice})"


@pytest.mark.parametrize("name", sorted(PAGES | PACKAGE))
def test_prose_uses_the_words_of_the_field(name):
    """But this file, which lists the words that others must not use."""
    own = Path(__file__).resolve()
    checked = [path for path in files(name) if path != own and "_build" not in path.parts]
    assert checked
    found = [fault for path in checked for fault in faults(path)]
    assert not found, "\n".join(found)


def test_banned_words_are_found_in_prose_only(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_prose.ROOT", tmp_path)
    page, module = tmp_path / "a.md", tmp_path / "a.py"
    page.write_text("Models judge.\nSee `judge` and [it](judge.md).\n")
    module.write_text('"""A thing."""\n\nthing = f"refused {thing}"  # nobody\n')
    assert [fault.partition(" (")[0] for fault in faults(page)] == ["a.md:1: 'judge'"]
    found = [fault.partition(" (")[0] for fault in faults(module)]
    assert found == ["a.py:1: 'thing'", "a.py:3: 'refused'", "a.py:3: 'nobody'"]
