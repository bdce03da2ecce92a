"""The reference leaves no public module and no public name out."""

import re
from functools import reduce
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location

import pytest

import gpytorch_nkn
from tests.test_structure import FLOORS, ROOT

ROOMS = sorted(room for room in set().union(*FLOORS) if not room.startswith("_"))
DOCS = ROOT.parent / "docs"
PAGES = {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "_build" not in path.parts
}


def test_every_room_has_a_page_of_the_reference_that_documents_all_of_its_names():
    pages = DOCS / "reference"
    contents = (pages / "index.md").read_text(encoding="utf-8").splitlines()
    for room in ROOMS:
        text = (pages / f"{room}.md").read_text(encoding="utf-8")
        assert f"automodule:: {gpytorch_nkn.__name__}.{room}\n   :members:\n" in text
        assert room in contents


def test_public_constants_are_documented_by_their_comments():
    """Sphinx passes over constants that a face imports, so that their pages name them."""
    public = set()
    for room in ROOMS:
        face = ROOT / room / "__init__.py"
        text = (face if face.is_file() else ROOT / f"{room}.py").read_text(encoding="utf-8")
        names = text.partition("__all__ = [")[2].partition("]")[0]
        public |= {(room, name) for name in re.findall(r'"([A-Z][A-Z_]+)"', names)}
    assert public
    for room, name in public:
        page = (DOCS / "reference" / f"{room}.md").read_text(encoding="utf-8")
        assert f".. autodata:: gpytorch_nkn.{room}.{name}\n" in page
        source = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py"))
        assert re.search(rf"\n#: .+\n{name}\b.* = ", source), name


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_package_on_a_page_are_there(page):
    """Roles, and names of private code as `name` of `path`."""
    text = re.sub(r"\s+", " ", PAGES[page])
    roles = re.findall(r"\{py:(\w+)\}`(?:[^`<]*<)?~?(gpytorch_nkn[\w.]*)>?`", text)
    for role, name in roles:
        _, room, *rest = name.split(".")
        face = import_module(f"gpytorch_nkn.{room}")
        if rest:
            assert rest[0] in face.__all__, name
            reduce(getattr, rest, face)
        assert (role == "mod") == (not rest), name
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
