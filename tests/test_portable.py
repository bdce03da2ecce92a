import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tests import portable
from tests.perturbation import SIZE, changed

HERE = Path(__file__).parent


def test_rooms_and_settings_are_there():
    assert len(portable.SETTINGS) >= 4 and portable.QUICK_SETTING in portable.SETTINGS
    for room in (*portable.ROOMS, *portable.QUICK_ROOMS):
        assert list((HERE / room).rglob("test_*.py")), room


def test_what_enters_trainings_is_changed_a_little_and_always_in_the_same_way():
    for values in (np.arange(1.0, 9).reshape(2, 4) / 3, torch.arange(1.0, 9) / 3):
        near = changed(values)
        np.testing.assert_array_equal(near, changed(values))
        gaps = np.abs(np.asarray(near) / np.asarray(values) - 1)
        assert 0 < gaps.max() < 10 * SIZE
        frame = pd.DataFrame({"a": np.ravel(values)})
        np.testing.assert_array_equal(changed(frame)["a"], np.ravel(changed(np.array(frame))))
    third = np.array([1 / 3])
    np.testing.assert_array_equal(changed(third / 1024) * 1024, changed(third))
    exact = np.array([0.0, -2.5, 7.0, np.nan, np.inf])
    np.testing.assert_array_equal(changed(exact), exact)
    masked = np.ma.masked_greater([0.1, 0.3], 0.2)
    assert changed(masked) is masked
    assert changed(np.arange(3)).dtype == int and changed("y") == "y"


def test_a_failure_under_one_setting_fails_the_whole(monkeypatch, capsys):
    runs = []

    def run(command, **options):
        runs.append((command, options["env"]))
        failed = "--perturb" in command
        return subprocess.CompletedProcess(command, int(failed), stdout=f"{len(runs)} in all\n")

    monkeypatch.setattr(portable.subprocess, "run", run)
    assert portable.main(["-x"]) == 1 and portable.main(["avx2", "threads"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if " in all [" in line]
    assert len(runs) == len(lines) == len(portable.SETTINGS) + 2
    assert lines[0].startswith("perturbed (--perturb): 1 in all")
    assert all("-x" in command for command, _ in runs[:-2])
    assert runs[-1][1]["TEST_THREADS"] == "2" and runs[-1][0][0] == sys.executable
    portable.main(["threads", "-n", "4", "-x"])
    assert runs[-1][0][runs[-1][0].index("-n") :][:3] == ["-n", "2", "-x"]
    assert portable.main(["quick"]) == 1 and runs[-1][0][-1] == "tests/" + portable.QUICK_ROOMS[-1]
