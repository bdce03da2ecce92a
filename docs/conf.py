"""Sphinx's configuration: `make docs`."""

import os
import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "gpytorch_nkn"
author = copyright = "gpytorch_nkn authors"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "measured",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "gpytorch_nkn"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
pygments_dark_style = "a11y-high-contrast-dark"  # as the light one, which is Furo's
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
copybutton_exclude = ".linenos, .gp, .go"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
# The notebooks' own outputs: `make tutorials` runs them.
nb_execution_mode = "off"
# Several names may share an entry (`y_offset_, y_scale_:`), which `:param:` and `:ivar:` take for a
# type and a name.
napoleon_use_param = False
napoleon_custom_sections = [("Attributes", "params_style")]

# Every name in a role is on the site, except names of other libraries (looking these up takes a
# network), and classes that are read from records and never imported.
nitpicky = True
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(botorch|collections|gpytorch|linear_operator|numpy|pandas|sklearn|torch)\..*",
    ),
    (r"py:(class|exc)", r"(NotPSDError|NumericalWarning|UnsupportedError)"),
    (r"py:class", r"gpytorch_nkn\.\w+\.(\w+\.)*[A-Z]\w+"),
]


def copy_notebooks(app):
    """Sphinx reads what is below docs: the notebooks stay in tutorials, where they are run."""
    folder = Path(app.srcdir, "tutorials")
    sources = {path.name: path.read_bytes() for path in (ROOT / "tutorials").glob("*.ipynb")}
    for copy in folder.glob("*.ipynb"):
        if copy.name not in sources:
            copy.unlink()
    for name, content in sources.items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != content:
            (folder / name).write_bytes(content)


def link_notebooks(app, name, source):
    """Links that lead to a notebook in the repository lead to its page on the site."""
    source[0] = re.sub(r"\]\((?:\.\./)+tutorials/(\w+\.ipynb)", r"](/tutorials/\1", source[0])


def skip_scikit_learn_requests(app, what, name, obj, skip, options):
    """Methods that scikit-learn makes for routing metadata are not ours to document."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def describe_constants(app, what, name, obj, options, lines):
    """The `#:` comment of a constant, which Sphinx does not look for where a face imports it."""
    if what == "data":
        room, constant = name.split(".")[1:]
        sources = [ROOT / "gpytorch_nkn" / f"{room}.py"]
        sources += (ROOT / "gpytorch_nkn" / room).rglob("*.py")
        text = "\n".join(path.read_text(encoding="utf-8") for path in sources if path.is_file())
        lines[:] = [re.search(rf"\n#: (.+)\n{constant}\b", text)[1], ""]


def setup(app):
    app.add_lexer("floors", TextLexer)  # a block of ARCHITECTURE.md
    app.connect("builder-inited", copy_notebooks)
    app.connect("source-read", link_notebooks)
    app.connect("autodoc-skip-member", skip_scikit_learn_requests)
    app.connect("autodoc-process-docstring", describe_constants)
