"""Faults of other libraries that docs/upstream.md lists are there; else a work-around can go."""

import re
import warnings
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parents[1] / "docs" / "upstream.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^### (.+)\n((?:(?!^##).*\n?)*)", PAGE, re.MULTILINE))
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code_of(name):
    (block,) = CODE.findall(SECTIONS[name])
    return block


RUN = [name for name in SECTIONS if not code_of(name).startswith("# not run")]


@pytest.fixture(autouse=True)
def stock_settings():
    """Reproducers are run as a reader would: in float32, with warnings."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_default_dtype(dtype)


def test_every_entry_says_what_is_done_instead():
    assert [name for name, text in SECTIONS.items() if "\nWorkaround: " not in text] == []


@pytest.mark.parametrize("name", RUN)
def test_the_fault_is_there(name):
    block = code_of(name)
    assert re.search(r"^assert .*fault", block, re.MULTILINE)
    if block.startswith("from ax."):
        pytest.importorskip("ax", reason="needs ax-platform")
    *_, instead = SECTIONS[name].rpartition("\nWorkaround: ")
    try:
        exec(compile(block, name, "exec"), {"__name__": "reproducer"})
    except AssertionError as error:
        place = error.__traceback__.tb_next.tb_lineno
        line = block.splitlines()[place - 1]
        if "fault" not in line:
            raise
        pytest.fail(f"Fixed upstream ({line}): remove the workaround {' '.join(instead.split())}")


def test_every_entry_is_in_the_table():
    slugs = [re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in SECTIONS]
    assert slugs == re.findall(r"\]\(#([\w-]+)\)", PAGE)
