"""Peak memory of a call."""

import resource
from pathlib import Path

_PROCESS = Path("/proc/self")


def peak_memory(function) -> float:
    """GiB beyond what the process had before; without Linux, beyond what it ever had.

    After other tests the highest use of a process means little, and a new process inherits it;
    Linux resets it on request.
    """
    try:
        (_PROCESS / "clear_refs").write_text("5")
        highest = _since_cleared
    except OSError:
        highest = _ever
    before = highest()
    function()
    return (highest() - before) / 2**20


def _since_cleared() -> int:
    lines = (_PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _ever() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
