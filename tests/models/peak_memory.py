"""The most memory that a call takes."""

import resource
from pathlib import Path

_PROCESS = Path("/proc/self")


def peak_memory(function) -> float:
    """GiB beyond what the process had before; without Linux, beyond what it ever had.

    What a process ever had tells little after other tests, and a process that is started inherits
    it; Linux forgets it on request.
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
