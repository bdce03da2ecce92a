"""Checks a built site without a network: ``python docs/built_links.py docs/_build/html``.

Every relative link and picture must lead to a file of the site, and every anchor to an element.
Every picture must have an alternative text. With Node.js, the search must find the pages of the
queries in docs/search.js.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["faults"]

# Pages that Sphinx generates for the theme.
_GENERATED = {"genindex.html", "py-modindex.html", "search.html"}


class _Page(HTMLParser):
    """Targets, anchors and pictures without text of one page."""

    def __init__(self, text: str):
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.without_text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.targets += [found[name] for name in ("href", "src") if name in found]
        if tag == "img" and found.get("alt", "").strip() in ("", found.get("src", "")):
            self.without_text.append(found.get("src", ""))  # docutils uses the path by default


@cache
def _parsed(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def faults(folder: Path) -> list[str]:
    """Return faults of a site's pages, one line each."""
    found = []
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        page = _parsed(path)
        found += [f"{name}: no alt text for {picture}" for picture in page.without_text]
        for target in page.targets:
            link = urlsplit(target)
            if link.scheme or link.netloc or name in _GENERATED or name.startswith("_modules/"):
                continue
            to = (path.parent / unquote(link.path)).resolve() if link.path else path
            if to.is_dir():
                to = to / "index.html"
            if not to.is_file():
                found.append(f"{name}: no file for {target}")
            elif link.fragment and to.suffix == ".html":
                if unquote(link.fragment) not in _parsed(to).anchors:
                    found.append(f"{name}: no anchor for {target}")
    return found + lost_queries(folder)


def lost_queries(folder: Path) -> list[str]:
    """Return queries that do not find their page, one line each; none without Node.js."""
    if (node := shutil.which("node")) is None:
        return []
    command = [node, Path(__file__).with_name("search.js"), folder]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    lines = faults(Path(sys.argv[1]).resolve())
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))
