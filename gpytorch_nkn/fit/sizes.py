"""Checks of data size and free memory before long computations."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from gpytorch_nkn.fit.session import warn_user

__all__ = ["SizeWarning", "check_dense", "free_bytes", "warn_of_size"]

_CGROUPS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
# Peak number of N x N matrices in a training step of an exact GP.
_MATRICES = 3


class SizeWarning(UserWarning):
    """The data have more rows than a method is intended for."""


def free_bytes(device: torch.device | str | None = None) -> float:
    """Return free memory in bytes on the machine (or its control group) or a CUDA device.

    Return infinity if free memory is unknown.
    """
    if device is not None and torch.device(device).type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if device is not None and torch.device(device).type != "cpu":
        return math.inf
    return min(_free_on_the_machine(), *(_free_in_group(*names) for names in _CGROUPS))


def check_dense(
    name: str,
    num_rows: int,
    like: Tensor,
    advice: str = "use SparseNKNGP, VariationalNKNGP (by mini-batches) or NKNRegressor",
) -> None:
    """Check that covariance matrices with the dtype and device of ``like`` fit into memory.

    Raises:
        MemoryError: The matrices do not fit.
    """
    needed = _MATRICES * float(num_rows) ** 2 * like.element_size()
    free = free_bytes(like.device)
    if needed > free:
        raise MemoryError(
            f"{name} of {num_rows:,} rows needs about {needed / 1e9:,.1f} GB of memory, but "
            f"{free / 1e9:,.1f} GB are free. For so many rows {advice}."
        )


def warn_of_size(name: str, count: int, most: int, advice: str, unit: str = "rows") -> None:
    """Warn (:class:`SizeWarning`) about more than ``most`` rows, or another ``unit``.

    ``advice`` states the consequence and an alternative.
    """
    if count > most:
        warn_user(f"{name} is for up to {most:,} {unit}, got {count:,}: {advice}", SizeWarning)


def _free_on_the_machine() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return 1024.0 * float(sizes["MemAvailable"].split()[0])
    except (KeyError, OSError, ValueError):  # not Linux
        return math.inf


def _free_in_group(limit: str, used: str) -> float:
    folder = Path("/sys/fs/cgroup")
    try:
        free = float((folder / limit).read_text()) - float((folder / used).read_text())
        file = (folder / used).with_name("memory.stat")
        stat = dict(line.split() for line in file.read_text().splitlines()) if file.exists() else {}
        cached = stat.get("total_inactive_file", stat.get("inactive_file", 0))  # freed on demand
        return free + float(cached)
    except (OSError, ValueError):  # no group, or no limit ("max")
        return math.inf
