"""Everything public under a default device, in its own process; see default_device.py."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PINNED = f"torch=={torch.__version__.partition('+')[0]}\n" in (ROOT / "constraints.txt").read_text()


@pytest.mark.skipif(not PINNED, reason="the stand-in is written for one release of PyTorch")
@pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in for a GPU is compiled")
def test_everything_public_under_a_default_device():
    tests = Path(__file__).with_name("default_device.py")
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-n0"]
    run = subprocess.run(
        [*command, "--device", "second", str(tests)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
