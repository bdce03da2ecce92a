import math

import pytest
import torch

from gpytorch_nkn.fit import check_dense, fit_best_of, sizes
from gpytorch_nkn.interpretation import decompose
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.fit.models import SmallGP, rbf_model

MANY = 1_000_000


def test_what_does_not_fit_is_rejected_with_the_sizes_and_what_to_use(monkeypatch):
    monkeypatch.setattr(sizes, "free_bytes", lambda device: 2e9)
    check_dense("A", 9_000, torch.ones(1))  # three matrices of 324 MB
    with pytest.raises(MemoryError, match=r"A of 9,200 rows needs about 2.0 GB .* 2.0 GB .* use S"):
        check_dense("A", 9_200, torch.ones(1, dtype=torch.float64))


def test_a_limit_of_a_group_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("4000000\n")
    monkeypatch.setattr(sizes, "Path", lambda path: tmp_path if "cgroup" in path else tmp_path)
    assert sizes._free_in_group("memory.max", "memory.current") == 1e6
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500000\n")
    assert sizes._free_in_group("memory.max", "memory.current") == 1.5e6
    (tmp_path / "memory.max").write_text("max\n")
    assert sizes._free_in_group("memory.max", "memory.current") == math.inf


@pytest.mark.parametrize("network", [True, False])
def test_an_exact_gp_of_too_many_rows_is_rejected_before_any_work(network):
    model = rbf_model(4)
    if network:
        x, y = model.train_inputs[0], model.train_targets
        model = SmallGP(x, y, NeuralKernelNetwork.time_series())
    x = torch.rand(MANY, 1)
    model.set_train_data(x, x[:, 0], strict=False)
    with pytest.raises(MemoryError, match=r"1,000,000 rows needs .* use SparseNKNGP"):
        fit_best_of(model)
    if network:
        with pytest.raises(MemoryError, match=r"1,000,000 rows needs .* a sample of the rows"):
            decompose(model)
