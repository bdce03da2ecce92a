"""Count lines: ``python -m benchmarks.size`` prints them by package, with tests and benchmarks.

Code excludes blank lines, comments and docstrings.
"""

import argparse
import ast
from collections.abc import Sequence
from pathlib import Path

__all__ = ["count", "main"]


def count(path: Path) -> tuple[int, int, int]:
    """Return the lines of a Python file: all, of code, of docstrings."""
    text = path.read_text()
    lines = text.splitlines()
    doc: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            doc.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code = [
        line
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in doc
    ]
    return len(lines), len(code), len(doc)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table for the current directory."""
    argparse.ArgumentParser("python -m benchmarks.size", description=__doc__).parse_args(argv)
    totals: dict[str, list[int]] = {}
    for top in ("gpytorch_nkn", "tests", "benchmarks"):
        for path in sorted(Path(top).rglob("*.py")):
            counts = count(path)
            package = path.parts[1] if len(path.parts) > 2 else "(root)"
            for name in {top} | ({f"  {package}"} if top == "gpytorch_nkn" else set()):
                totals[name] = [
                    a + b for a, b in zip(totals.get(name, [0, 0, 0]), counts, strict=True)
                ]
    print(f"{'':24}{'lines':>8}{'code':>8}{'docstrings':>12}")
    for name in sorted(totals, key=lambda name: (not name.startswith(" "), name)):
        lines, code, doc = totals[name]
        print(f"{name:24}{lines:8,}{code:8,}{doc:12,}")


if __name__ == "__main__":
    main()
