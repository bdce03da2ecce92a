import json

import pytest
import torch

from benchmarks import gpu


def test_without_a_device_it_says_so_and_ends_well(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 0
    assert "no CUDA device" in capsys.readouterr().out


def test_small_sizes_on_the_cpu(capsys, tmp_path):
    out = tmp_path / "gpu.json"
    parts = ["steps", "restarts"]
    options = ["--device", "cpu", "--turns", "1", "--sizes", "40", "--out", str(out)]
    assert gpu.main([*options, "--parts", *parts]) == 0
    rows = json.loads(out.read_text())["results"]
    assert len(rows) == 10 and all(len(row["seconds"]) == 1 for row in rows)
    assert "| 1.00 (1.00 to 1.00) | - | - |" in capsys.readouterr().out


def test_what_does_not_fit_is_said_and_the_others_go_on(capsys):
    def too_large():
        raise torch.cuda.OutOfMemoryError

    args = type("Args", (), {"device": torch.device("cpu"), "turns": 2})
    rows = gpu._compare("step", {"one": lambda: lambda: None, "two": lambda: too_large}, args)
    assert len(rows[0]["seconds"]) == 2 and rows[1]["seconds"] is None
    assert "| step | two | out of memory |" in capsys.readouterr().out


def test_every_part_is_there():
    for part in gpu.PARTS:
        assert callable(getattr(gpu, f"_{part}"))
    with pytest.raises(SystemExit):
        gpu.main(["--parts", "coffee"])
