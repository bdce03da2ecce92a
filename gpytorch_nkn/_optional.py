"""Errors about optional libraries that name the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs"]

_EXTRAS = {  # name of a library and its extra by module
    "PIL": ("pillow", "plot"),
    "ax": ("ax-platform", "ax"),
    "matplotlib": ("matplotlib", "plot"),
    "pandas": ("pandas", "estimators"),
    "sktime": ("sktime", "sktime"),
    "statsmodels": ("statsmodels", "demo"),
}


@contextmanager
def needs(purpose: str) -> Iterator[None]:
    """Import optional libraries in a block; an ImportError names the extra to install.

    Errors about libraries that every installation has pass unchanged.
    """
    try:
        yield
    except ImportError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRAS:
            raise
        name, extra = _EXTRAS[module]
        raise ImportError(
            f"{purpose} needs {name}: pip install 'gpytorch_nkn[{extra}]' ({error}).", name=module
        ) from error
