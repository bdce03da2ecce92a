"""Invalid data, one fault at a time, and permitted outcomes."""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from botorch.exceptions import BotorchError
from sklearn.exceptions import NotFittedError
from torch import Tensor

import gpytorch_nkn

__all__ = ["FAULTS", "check_call", "faulty", "not_finite"]

# What torch says of arrays for NumPy that need gradients says what to do.
_DETACH = "Use tensor.detach().numpy() instead"
_OURS = os.path.dirname(gpytorch_nkn.__file__) + os.sep
# What BoTorch and scikit-learn say of data is said well; RuntimeError counts where we raise it.
_SENTENCES = (ValueError, TypeError, NotImplementedError, MemoryError, BotorchError, NotFittedError)


def _put(values: Any, at: int, value: Any) -> Any:
    """A copy with one entry replaced, in floating point if that needs it."""
    new = values.clone() if isinstance(values, Tensor) else np.array(values)
    if new.dtype in (torch.bool, bool):
        new = new.to(torch.float64) if isinstance(new, Tensor) else new.astype(float)
    if isinstance(new, np.ndarray) and new.dtype.kind == "U":
        new = new.astype(object)
    if new.shape and new.size if isinstance(new, np.ndarray) else new.numel():
        new.reshape(-1)[at] = value
    return new


def _ints(values: Any) -> Any:
    whole = values * 8
    return whole.long() if isinstance(values, Tensor) else whole.astype(int)


def _other_float(values: Any) -> Any:
    return values.float() if isinstance(values, Tensor) else values.astype(np.float32)


def _text(values: Any) -> Any:
    return np.asarray(values).astype(str).tolist()


def _complex(values: Any) -> Any:
    return values + 0.5j


def _grad(values: Any) -> Any:
    return torch.as_tensor(values).detach().clone().requires_grad_()


# What may be wrong with an array: its values, its shape, its type.
FAULTS: dict[str, Callable[[Any], Any]] = {
    "nan": lambda a: _put(a, 1, np.nan),
    "inf": lambda a: _put(a, 1, np.inf),
    "empty": lambda a: a[:0],
    "one row": lambda a: a[:1],
    "two rows": lambda a: a[:2],
    "a row less": lambda a: a[:-1],
    "constant": lambda a: a * 0 + 1,
    "duplicated": lambda a: a[[0] * (len(a) // 2) + list(range(len(a) - len(a) // 2))],
    "a dimension more": lambda a: a[None],
    "a dimension less": lambda a: a[0],
    "a column more": lambda a: a[..., [0, *range(a.shape[-1])]],
    "ints": _ints,
    "float32": _other_float,
    "complex": _complex,
    "text": _text,
    "a list": lambda a: a.tolist(),
    "none": lambda a: None,
    "a number": lambda a: 3.0,
    "needs gradients": _grad,
}


def faulty(arguments: tuple, place: int, fault: str) -> tuple:
    """Arguments with a fault in one of them; ``place`` -1 for all arrays at once."""
    change = FAULTS[fault]
    places = [place] if place >= 0 else range(len(arguments))
    return tuple(
        change(value) if at in places and isinstance(value, np.ndarray | Tensor) else value
        for at, value in enumerate(arguments)
    )


def check_call(call: Callable[[], Any], must_fail: bool = False) -> str:
    """Return "" if a call raises a clear error or may give finite numbers, otherwise the fault."""
    try:
        answer = call()
    except _SENTENCES as error:
        if isinstance(error, torch.linalg.LinAlgError | np.linalg.LinAlgError):
            return f"{type(error).__name__}: {error}"
        words = str(error)
        return "" if len(words.split()) >= 3 else f"no sentence: {error!r}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1].filename
        raised_here = type(error) in (RuntimeError, FloatingPointError) and last.startswith(_OURS)
        if raised_here or _DETACH in str(error):
            return ""
        return f"{type(error).__name__}: {str(error)[:200]}"
    if must_fail:
        return "accepted without an error"
    wrong = not_finite(answer)
    return f"not finite: {wrong}" if wrong else ""


def not_finite(answer: Any, name: str = "the answer", depth: int = 3) -> str:
    """The name of a part of an answer that is not finite, if there is one."""
    if isinstance(answer, Tensor):
        answer = answer.detach().cpu().numpy()
    if isinstance(answer, np.ndarray | float):
        values = np.asarray(answer)
        numbers = np.issubdtype(values.dtype, np.number)
        return name if numbers and not np.isfinite(values).all() else ""
    parts: Mapping[str, Any] = {}
    if isinstance(answer, list | tuple):
        parts = {f"[{k}]": part for k, part in enumerate(answer[:5])}
    elif isinstance(answer, Mapping):
        parts = {f"[{k!r}]": part for k, part in answer.items()}
    elif dataclasses.is_dataclass(answer):
        parts = {
            f".{f.name}": getattr(answer, f.name) for f in dataclasses.fields(answer) if f.repr
        }
    if depth:
        for key, part in parts.items():
            if wrong := not_finite(part, name + key, depth - 1):
                return wrong
    return ""
