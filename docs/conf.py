"""Sphinx's configuration: `make docs`."""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "gpytorch_nkn"
author = copyright = "gpytorch_nkn authors"
extensions = [
    "myst_parser",
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
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
napoleon_use_ivar = True
# `floors`, a block of ARCHITECTURE.md; attributes of one name in several classes.
suppress_warnings = ["misc.highlighting_failure", "ref.python"]


def skip_scikit_learn_requests(app, what, name, obj, skip, options):
    """Methods that scikit-learn makes for routing metadata are not ours to document."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    app.connect("autodoc-skip-member", skip_scikit_learn_requests)
