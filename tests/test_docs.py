"""The reference has every public module and name."""

import ast
import re
from functools import reduce
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass, isroutine

import pytest

from tests.test_structure import LEVELS, ROOT, parse

ROLES = sorted(role for role in set().union(*LEVELS) if not role.startswith("_"))
DOCS = ROOT.parent / "docs"
PAGES = {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "_build" not in path.parts
}


def test_every_module_has_a_row_of_the_reference_with_its_common_names():
    """The site makes a page of each row, with a line and a page for every public name."""
    rows = re.findall(
        r"^\| `gpytorch_nkn\.(\w+)` \|.*\| (.*) \|$", PAGES["reference/index.md"], re.M
    )
    assert sorted(module for module, _ in rows) == ROLES
    for module, names in rows:
        common = re.findall(r"`(\w+)`", names)
        assert common
        assert set(common) <= set(import_module(f"gpytorch_nkn.{module}").__all__)


def test_no_line_of_a_docstring_becomes_a_numbered_list():
    """Such as the value of an attribute that is described as `1.`."""
    for module in ROLES:
        init = import_module(f"gpytorch_nkn.{module}")
        for name in init.__all__:
            text = getattr(init, name).__doc__ or ""
            assert not re.search(r"^\s+\w+: \d+\.$", text, re.MULTILINE), f"{module}.{name}"


def test_public_constants_are_documented_by_their_comments():
    """Sphinx passes over the comments of constants that a module imports (docs/conf.py)."""
    public = set()
    for role in ROLES:
        for name in (module := import_module(f"gpytorch_nkn.{role}")).__all__:
            if not (isclass(getattr(module, name)) or isroutine(getattr(module, name))):
                public.add(name)
    assert public
    source = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py"))
    for name in public:
        assert re.search(rf"\n#: .+\n{name}\b.* = ", source), name


def warned_messages():
    """``path: text`` of every warning in the package, without the parts that are filled in."""
    for path in sorted(ROOT.rglob("*.py")):
        for call in ast.walk(parse(path.read_text(encoding="utf-8"))):
            function = getattr(call, "func", None)
            if getattr(function, "id", getattr(function, "attr", "")) in ("warn", "warn_user"):
                parts = [n.value for n in ast.walk(call.args[0]) if isinstance(n, ast.Constant)]
                text = "".join(part for part in parts if isinstance(part, str))
                if text:  # else a function that is given its message
                    yield f"{path.relative_to(ROOT)}: {text}"


def test_every_warning_is_on_the_page_of_warnings():
    phrases = re.findall(r"^\| `([^`]+)`", PAGES["warnings.md"], re.MULTILINE)
    messages = list(warned_messages())
    assert len(messages) > 15
    missing = [text for text in messages if not any(phrase in text for phrase in phrases)]
    assert not missing, "\n".join(missing)
    stale = [phrase for phrase in phrases if not any(phrase in text for text in messages)]
    assert not stale


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_package_on_a_page_are_there(page):
    """Full names, which are links on the site, and names of private code as `name` of `path`."""
    text = re.sub(r"\s+", " ", PAGES[page])
    for module, *rest in (n.split(".") for n in re.findall(r"`gpytorch_nkn\.([\w.]+)`", text)):
        if module in ROLES:
            init = import_module(f"gpytorch_nkn.{module}")
            assert not rest or rest[0] in init.__all__, rest
            reduce(getattr, rest, init)
    for path in re.findall(r"`((?:gpytorch_nkn|tests|benchmarks|docs)/[\w/]+\.\w+)`", text):
        assert (ROOT.parent / path).is_file(), path
    for name, path in re.findall(r"(?<!\})`(\w+)` of `(gpytorch_nkn/[\w/]+\.py)`", text):
        source = (ROOT.parent / path).read_text(encoding="utf-8")
        assert re.search(rf"^(class|def) {name}\b", source, re.MULTILINE), f"{name} of {path}"


def test_figures_show_the_tables_as_they_are():
    path = DOCS / "figures" / "results.py"
    spec = spec_from_file_location("figures_of_results", path)
    figures = module_from_spec(spec)
    spec.loader.exec_module(figures)
    for name in figures.FIGURES:
        text = (path.parent / f"{name}.svg").read_text(encoding="utf-8")
        stale = f"run python docs/figures/results.py {name}"
        assert f"tables {figures.digest(name)}" in text, stale
