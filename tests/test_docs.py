"""The reference leaves no public module and no public name out."""

import re

import gpytorch_nkn
from tests.test_structure import FLOORS, ROOT

ROOMS = sorted(set().union(*FLOORS) - {"__main__"})


def test_every_room_has_a_page_of_the_reference_that_documents_all_of_its_names():
    pages = ROOT.parent / "docs" / "reference"
    contents = (pages / "index.md").read_text(encoding="utf-8").splitlines()
    for room in ROOMS:
        text = (pages / f"{room}.md").read_text(encoding="utf-8")
        assert f"automodule:: {gpytorch_nkn.__name__}.{room}\n   :members:\n" in text
        assert room in contents


def test_public_constants_have_the_comment_without_which_sphinx_passes_over_them():
    public: set[str] = set()
    for room in ROOMS:
        face = ROOT / room / "__init__.py"
        text = (face if face.is_file() else ROOT / f"{room}.py").read_text(encoding="utf-8")
        names = text.partition("__all__ = [")[2].partition("]")[0]
        public |= set(re.findall(r'"([A-Z][A-Z_]+)"', names))
    source = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py"))
    assert public
    for name in public:
        assert re.search(rf"\n#: .+\n{name}\b.* = ", source), name
