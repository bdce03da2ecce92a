"""A file of results that are finished, from which an interrupted run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import torch
from joblib.hashing import NumpyHasher
from torch import nn

from gpytorch_nkn.fit import warn_user

__all__ = ["Checkpoint", "content_hash"]

_HEADER = json.dumps({"file": "gpytorch_nkn checkpoint", "version": 1}).encode() + b"\n"


class Checkpoint:
    """Results by key, each a line of JSON that is appended as soon as the result is there.

    A line that was not written to its end, because the process died, is dropped. One run at a
    time may write a file.

    Args:
        path: The file; ``None`` keeps nothing.

    Raises:
        OSError: The file cannot be read or written.
        ValueError: It is something else.
    """

    def __init__(self, path: str | os.PathLike | None):
        self._path = None if path is None else Path(path)
        self._file: BinaryIO | None = None
        self._results: dict[str, Any] = {}

    def __enter__(self) -> Checkpoint:
        if self._path is None:
            return self
        text = self._path.read_bytes() if self._path.exists() else b""
        if not (text.startswith(_HEADER) or _HEADER.startswith(text)):
            raise ValueError(f"{self._path} is no checkpoint of forecasts; name another file.")
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.splitlines()[1:]:
            try:
                record = json.loads(line)
                self._results[record["key"]] = record["result"]
            except (ValueError, TypeError, KeyError):
                continue  # spoilt: it is computed anew
        self._file = self._path.open("ab")
        self._file.truncate(len(whole))
        if not whole:
            self._append(_HEADER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def get(self, key: str) -> Any:
        """The result of a key; None if there is none."""
        return self._results.get(key)

    def put(self, key: str, label: str, result: Any) -> None:
        """Keep a result, with a label for who reads the file.

        A disk that is full ends the keeping, with a warning, and not the work.
        """
        if self._file is None:
            return
        record = {"key": key, "label": label, "result": result}
        try:
            self._append(json.dumps(record).encode() + b"\n")
        except OSError as error:
            warn_user(f"No more results are kept in {self._path}: {error}.")
            self._file = None

    def _append(self, line: bytes) -> None:
        assert self._file is not None
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())


def content_hash(content: Any) -> str:
    """Hash of plain data, arrays, tensors and modules, the same in every process."""
    return _Hasher("md5").hash(content)


class _Hasher(NumpyHasher):
    """That of joblib, to which tensors are their values.

    Modules are their attributes, without hooks, which are counted through a process.
    """

    def __init__(self, hash_name: str):
        super().__init__(hash_name)
        self._numbers: dict[int, int] = {}

    def save(self, obj: Any) -> None:
        if isinstance(obj, torch.Tensor):
            obj = type(obj).__name__, obj.detach().cpu().numpy()
        elif isinstance(obj, nn.Module):
            first = id(obj) not in self._numbers
            number = self._numbers.setdefault(id(obj), len(self._numbers))
            own = {k: v for k, v in vars(obj).items() if "_hooks" not in k} if first else {}
            obj = type(obj), number, own
        super().save(obj)
