"""Tests that train or compare numbers, with other arithmetic: ``make test-portable``.

``python -m tests.portable [SETTING ...] [OPTION OF PYTEST ...]`` runs all settings or some. Each is
one run of pytest and ends with one line, below its failures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

__all__ = ["QUICK", "ROOMS", "SETTINGS", "main"]

# Variables, which hold from the start of a process on, and options of pytest (tests/conftest.py).
SETTINGS: dict[str, tuple[dict[str, str], list[str]]] = {
    "perturbed": ({}, ["--perturb"]),
    "scalar": ({"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}, ["--uncompiled"]),
    "avx2": (
        {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "OPENBLAS_CORETYPE": "Haswell"},
        [],
    ),
    "threads": (
        {"TEST_THREADS": "2", "OPENBLAS_CORETYPE": "Zen", "OMP_WAIT_POLICY": "PASSIVE"},
        [],
    ),
    "plain": ({"OPENBLAS_CORETYPE": "SkylakeX"}, ["--evaluation", "plain"]),
}
ROOMS = ("bo", "estimators", "fit", "initialization", "interpretation", "linalg", "mlls", "models")
# What .ci/run runs beside all tests as they are.
QUICK = "quick"
QUICK_SETTING = "perturbed"
QUICK_ROOMS = (
    "bo",
    "estimators/askl",
    "estimators/nkn",
    "fit",
    "initialization",
    "interpretation/expansion",
    "mlls",
)


def main(arguments: list[str]) -> int:
    """Run the settings that are named, or all; 1 if a test failed in one of them."""
    names = [name for name in arguments if name in (*SETTINGS, QUICK)]
    options = [option for option in arguments if option not in names]
    failed = [name for name in names or SETTINGS if not _passes(name, options)]
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return bool(failed)


def _passes(name: str, options: list[str]) -> bool:
    variables, switches = SETTINGS[QUICK_SETTING if name == QUICK else name]
    rooms = QUICK_ROOMS if name == QUICK else ROOMS
    command = [sys.executable, "-m", "pytest", "-q", "--disable-warnings", "--tb=short"]
    command += [*switches, *_fewer(options, int(variables.get("TEST_THREADS", "1")))]
    command += [f"tests/{room}" for room in rooms]
    begin = time.monotonic()
    run = subprocess.run(
        command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    if run.returncode:
        print(run.stdout)
    what = " ".join([*(f"{key}={value}" for key, value in variables.items()), *switches])
    summary = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else "no output"
    print(f"{name} ({what}): {summary} [{time.monotonic() - begin:.0f} s]", flush=True)
    return run.returncode == 0


def _fewer(options: list[str], threads: int) -> list[str]:
    """Options with ``-n WORKERS`` divided: workers x threads stay as many as the cores."""
    at = options.index("-n") + 1 if "-n" in options else len(options)
    workers = [str(max(int(number) // threads, 1)) for number in options[at : at + 1]]
    return [*options[:at], *workers, *options[at + 1 :]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
