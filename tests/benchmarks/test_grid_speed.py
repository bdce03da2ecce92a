import json
import re

import pytest
import torch

from benchmarks import grid_speed
from benchmarks.grid_speed import _WAYS, _make_step, _OurGrid, _waves, main, our_iteration
from benchmarks.paper_grid import PaperGrid, start_kernels

CPU = torch.device("cpu")


@pytest.fixture
def small():
    """Waves of 18 x 14 cells with a hole, and kernels."""
    grid = _waves("18x14", CPU, torch.float64)
    return grid, start_kernels(*grid)


def test_our_loss_is_that_of_the_paper_solved_to_the_end(small):
    grid, kernels = small
    ours = _OurGrid(grid, kernels, 0.1)
    paper = PaperGrid(*grid, kernels, noise=0.1, max_iterations=5000, tolerance=1e-9)
    ours.loss.tolerance = 1e-6
    assert ours().item() == pytest.approx(paper().item(), rel=1e-5)
    gradients = []
    for loss in (ours, paper):
        for kernel in kernels:
            kernel.zero_grad(set_to_none=True)
        loss().backward()
        gradients.append([p.grad for k in kernels for p in k.parameters() if p.requires_grad])
    torch.testing.assert_close(*gradients, rtol=5e-3, atol=1e-4)


def test_iterations_of_ours_train(small):
    grid, kernels = small
    step = our_iteration(grid, kernels, noise=0.1)
    model = step()
    before = _OurGrid(grid, kernels, model.model.noise_variance().item())().item()
    for _ in range(15):
        step()
    after = _OurGrid(grid, kernels, model.model.noise_variance().item())().item()
    assert after < before


def test_ways_start_from_copies_of_the_same_kernels(small):
    grid, kernels = small
    before = [p.detach().clone() for kernel in kernels for p in kernel.parameters()]
    for name, way in _WAYS.items():
        step = _make_step(way, grid, kernels, 0.1)
        for _ in range(2):
            step()
        after = [p.detach() for kernel in kernels for p in kernel.parameters()]
        torch.testing.assert_close(after, before, rtol=0, atol=0, msg=name)


def test_holes_have_the_share_of_the_paper():
    for size, missing in (("224x224", 60 * 80), ("28x56x14", 8 * 20 * 5)):
        coordinates, targets, mask = _waves(size, CPU, torch.float32)
        assert "x".join(str(x.size(0)) for x in coordinates) == size
        assert targets.dtype == torch.float32 and int(mask.sum()) == missing


def test_the_table_has_medians_and_ratios(small, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(grid_speed, "_plate", lambda device: small[0])
    out = tmp_path / "speed.json"
    options = ["--turns", "3", "--slow-turns", "1", "--train", "2", "--noises", "1", "0.1"]
    threads = torch.get_num_threads()
    try:
        assert main([*options, "--threads", "1", "--out", str(out)]) == 0
    finally:
        torch.set_num_threads(threads)
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split(" | ")[0][2:]: line for line in lines if line.startswith("| ")}
    assert set(rows) == {"way", "---", *_WAYS}
    results = json.loads(out.read_text())["results"]
    assert set(results) == {"1", "0.1"}
    own = sorted(results["0.1"]["paper, float32"])
    base = sorted(results["0.1"]["ours, float32"])
    assert len(own) == 3 and len(results["1"]["LatentKroneckerGP, float64"]) == 1
    cell = rows["paper, float32"].split(" | ")[2]
    assert float(cell.split()[0]) == pytest.approx(1e3 * own[1], rel=5e-3)
    ratio = float(re.search(r", (\S+)x", cell)[1])
    assert ratio == pytest.approx(own[1] / base[1], abs=0.0051)
