"""Sphinx's configuration: `make docs`."""

import json
import os
import re
import sys
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT)]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy.typing  # noqa: E402
import sphinx.ext.autosummary  # noqa: E402

# Signatures show the name of a union of types.
numpy.typing.ArrayLike = type("ArrayLike", (), {"__module__": "numpy.typing"})

import gpytorch_nkn  # noqa: E402

# A summary ends at a full stop, not at the dots of a shape (`... x N`).
sphinx.ext.autosummary.periods_re = re.compile(r"(?<!\.)\.(?!\.)\s+")

metadata = ConfigParser()
metadata.read(ROOT / "setup.cfg")
URLS = dict(line.split(" = ") for line in metadata["metadata"]["project_urls"].strip().splitlines())

project = "gpytorch_nkn"
author = copyright = "gpytorch_nkn authors"
version = release = gpytorch_nkn.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
# Links into other libraries need their inventories from the network: `make docs ONLINE=1`.
if os.environ.get("ONLINE"):
    extensions.append("sphinx.ext.intersphinx")
intersphinx_mapping = {
    "botorch": ("https://botorch.readthedocs.io/en/stable", None),
    "gpytorch": ("https://docs.gpytorch.ai/en/stable", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "pandas": ("https://pandas.pydata.org/docs", None),
    "python": ("https://docs.python.org/3", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
    "torch": ("https://docs.pytorch.org/docs/stable", None),
}
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"gpytorch_nkn {version}"
html_baseurl = URLS["Documentation"]
html_favicon = "_static/favicon.svg"
html_theme_options = {
    "source_repository": URLS["Repository"],
    "source_branch": "main",
    "source_directory": "docs/",
}
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_search_scorer = str(DOCS / "scorer.js")
pygments_dark_style = "a11y-high-contrast-dark"  # as accessible as Furo's light style
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 80
autodoc_inherit_docstrings = False
copybutton_exclude = ".linenos, .gp, .go"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
myst_html_meta = {"description": metadata["metadata"]["description"]}
# The notebooks' own outputs: `make tutorials` runs them.
nb_execution_mode = "off"
# Several names may share an entry (`y_offset_, y_scale_:`), which `:param:` and `:ivar:` take for a
# type and a name.
napoleon_use_param = False
napoleon_custom_sections = [("Attributes", "params_style")]

# Every name of the package in a link is on the site, except private base classes.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!gpytorch_nkn\.).*"),
    (r"py:class", r"gpytorch_nkn\.\w+\.(\w+\.)*_?[A-Z]\w*"),
]

CONTENTS = {
    "Use": ["start/index", "choose", "kernels", "howto/index", "tutorials/index"],
    "Look up": [
        *("reference/index", "warnings", "theory/index", "results"),
        *("terms", "glossary", "upstream", "changelog", "architecture"),
    ],
}


def rewrite(folder, pattern, contents):
    """Replace the files of a folder that match a pattern; write changed files only."""
    folder.mkdir(exist_ok=True)
    for path in folder.glob(pattern):
        if path.name not in contents:
            path.unlink()
    for name, content in contents.items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != content:
            (folder / name).write_bytes(content)


def with_links(path):
    """Return a notebook with links to the file and to Colab below its title."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    repository = URLS["Repository"].removeprefix("https://github.com/")
    colab = f"https://colab.research.google.com/github/{repository}/blob/main/tutorials/{path.name}"
    links = f"{{download}}`Download the notebook <{path.name}>` · [open in Colab]({colab})"
    title, *rest = "".join(notebook["cells"][0]["source"]).split("\n", 1)
    notebook["cells"][0]["source"] = "\n".join([title, "", links, "", *rest])
    return json.dumps(notebook).replace("](../docs/", "](../").encode()


def module_page(module, common):
    """Return the page of a module: its docstring and a line per name, common names first."""
    names = import_module(f"gpytorch_nkn.{module}").__all__
    ordered = [*common, *(name for name in names if name not in common)]
    lines = [f".. automodule:: gpytorch_nkn.{module}", f".. currentmodule:: gpytorch_nkn.{module}"]
    table = [".. autosummary::\n   :toctree: .\n   :nosignatures:\n", *(f"   {n}" for n in ordered)]
    title = f"gpytorch_nkn.{module}"
    rest = "\n\n".join([*lines, "\n".join(table)])
    return f"{title}\n{'=' * len(title)}\n\n{rest}\n".encode()


# Sphinx reads the folder docs: notebooks are copied, and pages of modules made from rows.
rewrite(
    DOCS / "tutorials",
    "*.ipynb",
    {path.name: with_links(path) for path in (ROOT / "tutorials").glob("*.ipynb")},
)
ROWS = re.findall(
    r"^\| `gpytorch_nkn\.(\w+)` \|.*\| (.*) \|$",
    (DOCS / "reference" / "index.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
PAGES = {f"{module}.rst": module_page(module, re.findall(r"`(\w+)`", c)) for module, c in ROWS}
rewrite(DOCS / "reference" / "modules", "*.rst", PAGES)  # autosummary adds one for each name


# Terms of the field are main index entries of their pages, which the search lists first. Their
# words are keywords, so that the search finds them in any combination.
TERMS = {
    page: terms.split(", ")
    for terms, page in re.findall(
        r"^\| (.*) \| \[.*\]\((.*)\.md\) \|$",
        (DOCS / "terms.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}


def tree(documents, caption=""):
    options = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{options}\n" + "\n".join(documents) + "\n```\n"


def plain_markdown(app, name, source):
    """Convert a page from plain Markdown.

    Lists of pages become tables of contents, terms become index entries. Names of the package and
    files of the repository outside docs become links.
    """
    text = source[0]
    if name in TERMS:
        entries = ".. index::\n" + "".join(f"   ! single: {term}\n" for term in TERMS[name])
        entries += (
            "\n.. meta::\n   :keywords: " + ", ".join(re.findall(r"\w+", str(TERMS[name]))) + "\n"
        )
        text = re.sub(r"(?m)^(# .*)$", rf"\1\n\n```{{eval-rst}}\n{entries}```", text, count=1)
    if name.endswith("index") and not name.startswith("reference"):
        pages = re.findall(r"^- \*{0,2}\[[^\]]*\]\((\w+)\.(?:md|ipynb)\)", text, re.MULTILINE)
        text += tree(pages) if pages else ""
    if name == "index":
        text += "".join(tree(documents, caption) for caption, documents in CONTENTS.items())
    if name == "reference/index":
        text += tree(f"modules/{module}" for module, _ in ROWS)
    parts = re.split(r"(^[ \t]*```.*?^[ \t]*```)", text, flags=re.DOTALL | re.MULTILINE)
    for i, part in enumerate(parts[1::2]):  # sentences in outputs wrap, tables scroll
        wide = max(map(len, part.splitlines())) > 100
        if part.startswith("```text") and (wide or "  " not in part):
            parts[2 * i + 1] = f"```{{code-block}} text\n:class: sentences\n\n{part[8:]}"
    modules = "|".join(module for module, _ in ROWS)
    for i, part in enumerate(parts[::2]):
        part = re.sub(rf"(?<!`)`(gpytorch_nkn\.(?:{modules}))`(?!`)", r"{py:mod}`\1`", part)
        part = re.sub(
            rf"(?<!`)`(gpytorch_nkn\.(?:{modules})\.[\w.]+)`(?!`)", r"{py:obj}`~\1`", part
        )
        part = re.sub(r"\]\((?:\.\./)+tutorials/(\w+\.ipynb)", r"](/tutorials/\1", part)
        outside = rf"]({URLS['Repository']}/blob/main/\1"
        up = r"\.\./" * (1 + name.count("/"))
        parts[2 * i] = re.sub(rf"\]\({up}([\w./-]+)", outside, part)
    source[0] = "".join(parts)


def add_breaks(app, pagename, templatename, context, doctree):
    """Let names in code, titles and menus continue on a new line after a point, not in a word."""
    words = re.compile(r"[_.](?!$)|(?<=[a-z])(?=[A-Z])")

    def broken(match):
        points = re.sub(r"(\w[.=(,/\[]+)(?=[^\W\d])", r"\1<wbr>", match[2])
        return match[1] + re.sub(r"\w{16,}", lambda w: words.sub(r"\g<0><wbr>", w[0]), points)

    for key, tag in (("body", r'<span class="pre">|<h1>'), ("furo_navigation_tree", r"<a [^>]*>")):
        if context.get(key):
            context[key] = re.sub(rf"({tag})([^<>]{{16,}})(?=<)", broken, context[key])
    for neighbour in filter(None, (context.get("prev"), context.get("next"))):
        if re.fullmatch(r"[\w.]{16,}", neighbour["title"]):  # a name
            neighbour["title"] = words.sub(r"\g<0><wbr>", neighbour["title"])


def skip_scikit_learn_requests(app, what, name, obj, skip, options):
    """Skip methods that scikit-learn generates for metadata routing."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def describe_constants(app, what, name, obj, options, lines):
    """Add the `#:` comment of an imported constant, which Sphinx does not find."""
    if what == "data":
        module, constant = name.split(".")[1:]
        sources = [ROOT / "gpytorch_nkn" / f"{module}.py"]
        sources += (ROOT / "gpytorch_nkn" / module).rglob("*.py")
        text = "\n".join(path.read_text(encoding="utf-8") for path in sources if path.is_file())
        lines[:] = [re.search(rf"\n#: (.+)\n{constant}\b", text)[1], ""]


def name_default(app, what, name, value, options, signature, returned):
    """Write defaults in angle brackets as names, because Sphinx parses signatures as code."""
    names = {"<class 'botorch.utils.types.DEFAULT'>": "DEFAULT", "<factory>": "..."}
    for default, code in names.items():
        signature = signature and signature.replace(default, code)
    return signature, returned


def with_terms(app, env, added, changed, removed):
    """Return pages with index entries, which Sphinx would lose without reading the pages again."""
    return TERMS


def setup(app):
    app.add_lexer("levels", TextLexer)  # a block of ARCHITECTURE.md
    app.connect("env-get-outdated", with_terms)
    app.connect("source-read", plain_markdown)
    app.connect("html-page-context", add_breaks, priority=900)
    app.connect("autodoc-skip-member", skip_scikit_learn_requests)
    app.connect("autodoc-process-docstring", describe_constants)
    app.connect("autodoc-process-signature", name_default)
