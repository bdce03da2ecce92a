"""The reference leaves no public module out; what a page lists is the module's ``__all__``."""

import gpytorch_nkn
from tests.test_structure import FLOORS, ROOT


def test_every_room_has_a_page_of_the_reference_that_documents_all_of_its_names():
    pages = ROOT.parent / "docs" / "reference"
    contents = (pages / "index.md").read_text(encoding="utf-8").splitlines()
    for room in set().union(*FLOORS) - {"__main__"}:
        text = (pages / f"{room}.md").read_text(encoding="utf-8")
        assert f"automodule:: {gpytorch_nkn.__name__}.{room}\n   :members:\n" in text
        assert room in contents
