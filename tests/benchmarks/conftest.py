import json

import numpy as np
import pytest


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of small data sets with the names of the benchmark data."""
    rng = np.random.default_rng(0)
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    X = rng.uniform(size=(60, 3))
    y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(60)
    tests = np.stack([rng.permutation(60)[:6] for _ in range(10)])
    splits = {"nkn_test_idx": tests, "nkn_pca_test_idx": np.argsort(X[:, 0])[:8], "test_idx": tests}
    _write(tmp_path / "uci_regression" / "yacht.npz", X=X, y=y, **splits)
    _write(tmp_path / "askl" / "segment.npz", X=X, y=(y > y.mean()).astype(int))
    _write(tmp_path / "dank" / "heart.npz", X=X, y=(y > y.mean()).astype(int))
    _write(tmp_path / "dank" / "mpg.npz", X=X, y=y)
    _write(tmp_path / "textures" / "plate.npz", gray=rng.uniform(size=(224, 224)))
    t = np.arange(60) / 12 + 1950
    series = 100 + 10 * np.sin(2 * np.pi * t) + t
    lines = "\n".join(f"{a},{b}" for a, b in zip(t, series, strict=True))
    (tmp_path / "timeseries").mkdir()
    (tmp_path / "timeseries" / "airline.csv").write_text(f"x,y\n{lines}\n")
    _write(tmp_path / "timeseries" / "splits.npz", airline_extrap_test=np.arange(54, 60))
    panel = tmp_path / "forecast_panel"
    panel.mkdir()
    rows = "".join(f"a,{a},{b}\n" for a, b in zip(t, series, strict=True))
    (panel / "panel.csv").write_text(f"unique_id,x,y\n{rows}")
    (panel / "panel.json").write_text(json.dumps({"a": {"season": 12, "horizon": 6}}))
    known = "".join(f"{i},{v},{v / 2},1,0\n" for i, v in enumerate(np.tile(series, 4)[:200]))
    folder = tmp_path / "covariate_series"
    folder.mkdir()
    (folder / "road_casualties.csv").write_text(f"x,drivers,kms,petrol_price,law\n{known}")
    (tmp_path / "long_series").mkdir()
    rows = "".join(f"{i},{v}\n" for i, v in enumerate(np.tile(series, 4)))
    (tmp_path / "long_series" / "monthly_sunspots.csv").write_text(f"x,y\n{rows}")
    sold = rng.poisson(0.4, (30, 60))
    sold[:2] = 1
    rows = "".join(f"carparts,{part},{y}\n" for part in range(60) for y in sold[:, part])
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "counts.csv").write_text(f"group,series,y\n{rows}")
    return tmp_path


def _write(path, **arrays):
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)
