import json
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import InducingPointKernel
from scipy.stats import norm

from benchmarks import uci, uci_methods
from benchmarks.data import RegressionTable
from benchmarks.uci import main, scores
from benchmarks.uci_methods import METHODS, Prediction, Settings, fit_method, settings_in_use
from benchmarks.uci_report import PUBLISHED, mean_and_error, report
from gpytorch_nkn.estimators import NKNRegressor

FEW = {"restarts": 1, "iterations": 20, "paper_steps": 3}


def draw(num_rows=50, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(num_rows, 2))
    return X, 100 + 10 * np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(num_rows)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Options of a call with the set ``toy`` in a temporary folder, and the file of results."""
    (tmp_path / "uci_regression").mkdir()
    X, y = draw()
    np.savez(
        tmp_path / "uci_regression" / "toy.npz",
        X=X,
        y=y,
        nkn_test_idx=np.arange(20).reshape(2, 10),
        nkn_pca_test_idx=np.array([0, 1, 48, 49]),
    )
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    uci._table.cache_clear()
    results = tmp_path / "out" / "uci.jsonl"
    return ["--sets", "toy", "--iterations", "20", "--results", str(results)], results


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def row(text, title, heading="| "):
    """Cells of the first row with that title below a heading."""
    lines = text[text.index(heading) :].splitlines()
    line = next(line for line in lines if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_runs_are_written_reported_and_not_repeated(toy, monkeypatch, capsys):
    options, results = toy
    options = [*options, "--methods", "nkn", "rbf", "--splits", "0", "--restarts", "1"]
    assert main(options) == 0
    first = capsys.readouterr()
    assert "0 of 2 runs" in first.err
    ours, rbf = read(results)
    assert (ours["method"], rbf["method"], rbf["split"], rbf["n"]) == ("nkn", "rbf", "0", 40)
    for record in (ours, rbf):
        assert record["rmse"] < 1 and record["log_density"] > -1.5  # y has a deviation of 7
        assert record["new"] == {key: record[key] for key in ("rmse", "log_density", "coverage")}
        assert record["fit_cpu"] > 0 and record["threads"] == 1 and "torch" in record["versions"]
    assert row(first.out, "RBF-ARD")[2] == f"{rbf['rmse']:.4g}"
    assert float(row(first.out, "toy")[3]) == pytest.approx(
        ours["log_density"] - rbf["log_density"], abs=1e-3
    )

    monkeypatch.setattr(uci, "run", lambda *args: pytest.fail("a run that is there"))
    assert main(options) == 0
    again = capsys.readouterr()
    assert "2 of 2 runs" in again.err and again.out == first.out

    monkeypatch.setattr(uci, "run", lambda *args: 1 / 0)  # another seed is another run
    assert main([*options, "--seed", "1", "--methods", "rbf"]) == 1
    failed = capsys.readouterr()
    assert "toy 0 rbf: failed: ZeroDivisionError" in failed.err and "No results" in failed.out
    assert len(read(results)) == 2


def test_a_half_written_line_does_not_count(toy, capsys):
    options, results = toy
    options = [*options, "--methods", "rbf", "--splits", "pca", "--restarts", "1"]
    assert main(options) == 0
    whole = results.read_text()
    results.write_text(whole[:-20])
    assert main(options) == 0
    assert "0 of 1 runs" in capsys.readouterr().err.split("\n", 2)[-1]
    record = json.loads(results.read_text().splitlines()[1])
    assert record["rmse"] == json.loads(whole)["rmse"] and record["num_test"] == 4


@pytest.mark.parametrize("method", METHODS)
def test_every_method_predicts_in_units_of_the_targets(method):
    X, y = draw()
    settings = Settings(**{**FEW, "paper_steps": 1500 if method == "paper" else 3})
    prediction = fit_method(method, X[:40], y[:40], settings=settings, seed=0)(X[40:])
    lower, upper = prediction.band()
    assert np.abs(prediction.mean - y[40:]).max() < 3
    assert (lower < prediction.mean).all() and (prediction.mean < upper).all()
    # near the mean of a Gaussian (or of a mixture of close ones)
    std = (upper - lower) / (2 * norm.ppf(0.975))
    expected = norm.logpdf(prediction.mean, prediction.mean, std)
    np.testing.assert_allclose(prediction.log_density(prediction.mean), expected, atol=0.2)


def test_defaults_are_those_of_the_estimator(monkeypatch):
    """Its `recipe` is spelt out: what it trains is compared for one kernel, whatever its number."""
    assert Settings().restarts == NKNRegressor().restarts
    made, fit = [], NKNRegressor.fit

    def one_kernel(self, X, y):
        made.append(self.get_params())
        return fit(self.set_params(structure="rbf"), X, y)

    monkeypatch.setattr(NKNRegressor, "fit", one_kernel)
    X, y = draw(25)
    ours = fit_method("nkn", X[:20], y[:20], settings=Settings(), seed=3)(X[20:])
    default = NKNRegressor(random_state=3).fit(X[:20], y[:20])
    np.testing.assert_allclose(ours.mean, default.predict(X[20:]))
    ours, default = ({k: v for k, v in one.items() if k != "recipe"} for one in made)
    assert ours == default


def test_tables_beyond_the_limit_take_other_ways(monkeypatch):
    many = uci_methods.EXACT_ROWS + 1
    assert settings_in_use("rbf", Settings(), many)["as"].startswith("NKNRegressor")
    assert settings_in_use("sm4", Settings(), many) is None
    assert settings_in_use("sm4", Settings(), many - 1) is not None
    assert settings_in_use("paper", Settings(inducing=9), many)["inducing points"] == 9
    monkeypatch.setattr(uci_methods, "EXACT_ROWS", 30)
    X, y = draw()
    with pytest.raises(ValueError, match="sm4 is left out beyond 30 rows"):
        fit_method("sm4", X, y, settings=Settings(), seed=0)
    for method in ("rbf_linear", "sm4"):
        settings = Settings(**FEW, inducing=30)
        prediction = fit_method(method, X[:40], y[:40], settings=settings, seed=0)(X[40:])
        assert np.abs(prediction.mean - y[40:]).max() < 3, method


def test_sparse_model_has_the_variational_bound_written_out():
    X, y = (torch.from_numpy(values) for values in draw(12))
    model = uci_methods._GP(X, y - y.mean(), uci_methods._KERNELS["rbf"](2)).double()
    made = []
    uci_methods._fit_sparse(
        model,
        "rbf",
        Settings(restarts=1, iterations=1, inducing=4),
        0,
        lambda start, seed, restart: made.append(start),
    )
    (start,) = made
    assert isinstance(start.covar_module, InducingPointKernel)
    start.train()
    output = start.likelihood(start.forward(X))
    terms = sum(term.loss() for term in start.added_loss_terms())
    value = output.log_prob(y - y.mean()) + terms
    kernel, points = start.covar_module.base_kernel, start.covar_module.inducing_points
    noise = start.likelihood.noise
    cross = kernel(X, points).to_dense()
    low_rank = cross @ torch.linalg.solve(kernel(points).to_dense(), cross.T)
    dense = torch.distributions.MultivariateNormal(
        start.mean_module(X), low_rank + noise * torch.eye(12)
    )
    trace = (kernel(X).to_dense() - low_rank).trace()
    bound = dense.log_prob(y - y.mean()) - trace / (2 * noise)
    torch.testing.assert_close(value.view(()), bound.view(()), rtol=1e-3, atol=1e-3)


def test_spectral_mixture_starts_like_an_rbf():
    X, y = (torch.from_numpy(values) for values in draw(30))
    model = uci_methods._GP(X, y, uci_methods._KERNELS["sm4"](2)).double()
    uci_methods._start_mixture(model, 0, 0)
    kernel = model.covar_module
    distance = 0.3
    value = kernel(torch.zeros(1, 2), torch.tensor([[distance, 0.0]])).to_dense().item()
    lengths = 1 / (2 * math.pi * kernel.mixture_scales[:, 0, 0])
    weights = kernel.mixture_weights
    expected = (weights * torch.exp(-(distance**2) / (2 * lengths**2))).sum().item()
    assert weights.sum().item() == pytest.approx(1, abs=0.01)
    assert 0.01 < value == pytest.approx(expected, rel=0.06)  # hardly any oscillation


def test_scores_are_those_written_out_and_copies_are_told_apart():
    X = np.array([[0.0, 1], [0, 1], [-0.0, 1], [1, 1], [2, 1], [3, 1]])
    y = np.array([0.0, 0.1, 0.2, 1.0, 2.0, 3.0])
    table = RegressionTable("copies", X, y, np.array([[2, 4]]), np.array([], dtype=int))
    record = uci.run(table, "0", "rbf", 0, FEW)
    assert (record["num_test"], record["new_rows"]) == (2, 1)
    prediction = fit_method(
        "rbf", X[[0, 1, 3, 5]], y[[0, 1, 3, 5]], settings=Settings(**FEW), seed=0
    )(X[[2, 4]])
    assert record["new"]["rmse"] == pytest.approx(abs(prediction.mean[1] - 2))
    errors = prediction.mean - y[[2, 4]]
    assert record["rmse"] == pytest.approx(math.sqrt((errors**2).mean()))

    mean, std = np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0, 0.5])
    made = Prediction(
        mean,
        lambda: (mean - 1.96 * std, mean + 1.96 * std),
        lambda values: norm.logpdf(values, mean, std),
    )
    found = scores(made, np.array([0.5, 1.0, 7.0]))
    assert found["coverage"] == pytest.approx(2 / 3)
    logs = [-0.5 * math.log(2 * math.pi) - math.log(s) - z**2 / 2 for s, z in
            ((1.0, 0.5), (2.0, 0.0), (0.5, 4.0))]  # fmt: skip
    assert found["log_density"] == pytest.approx(sum(logs) / 3)
    with pytest.raises(ArithmeticError, match="log_density"):
        scores(made, np.array([0.5, np.inf, 7.0]))


def made_records(method, densities, seconds, *, name="yacht", new=None, steps=None):
    return [
        {
            "set": name,
            "split": str(number) if number < 3 else "pca",
            "method": method,
            "seed": 0,
            "settings": {"Adam steps": steps} if steps else {"starts": 2},
            "n": 90,
            "d": 2,
            "num_test": 10,
            "rmse": 1.0,
            "log_density": density,
            "coverage": 0.9,
            "new_rows": 10 if new is None else 4,
            "new": new,
            "fit_cpu": seconds,
            "fit_wall": seconds,
            "predict_cpu": 0.5,
            "predict_wall": 0.5,
            "threads": 1,
            "versions": {"torch": "2"},
        }
        for number, density in enumerate(densities)
    ]


def test_report_compares_in_pairs_with_the_better_peer():
    records = [
        *made_records("nkn", [0.0, 0.2, 0.1, -1.0], 9.5),
        *made_records("rbf", [0.3, 0.3, 0.3, -1.5], 4.5),
        *made_records("matern", [0.2, 0.2, 0.2], 1.5),
        *made_records("paper", [-1.0], 3.5, steps=300),
    ]
    text = report(records, METHODS)
    gaps = np.array([-0.3, -0.1, -0.2])
    error = gaps.std(ddof=1) / math.sqrt(3)
    assert row(text, "yacht", "### Aims") == [
        "yacht",
        "RBF-ARD",
        "3",
        f"-0.200 ± {error:.3f}",
        f"{-0.2 / error:+.1f}",
        "+0.500 (RBF-ARD)",
        "2.00",
        "5.00",
        "density MISSED, time MISSED",
    ]
    ours, theirs = row(text, "NKNRegressor"), row(text, "RBF-ARD")
    assert ours[3] == "0.100 ± 0.058" and ours[-1] == "-0.116 ± 0.270"
    assert theirs[-3:] == ["2.00", "0.447 ± 0.083", "-0.714 ± 0.449"]
    assert row(text, "RBF-ARD", "| PCA split")[-2:] == ["1.190", "-2.896"]
    assert row(text, "the paper's NKN, 300 steps")[1] == "1"
    assert "not in training" not in text
    assert report([], METHODS) == "No results."


def test_report_tells_rows_that_are_copies():
    new = {"rmse": 2.0, "log_density": -3.0, "coverage": 0.5}
    text = report(made_records("rbf", [0.3, 0.3], 1.0, new=new), METHODS)
    cells = row(text, "RBF-ARD", "| only rows whose inputs are not in training")
    assert cells == ["RBF-ARD", "8 of 20", "2.000 ± 0.000", "-3.000 ± 0.000", "50.0%"]
    assert "Aims" not in text


def test_published_figures_cover_the_sets_and_means_keep_their_digits():
    for kind in ("random", "pca"):
        assert set(PUBLISHED[kind]) == set(uci._SETS)
    assert mean_and_error([0.0661, 0.0669]) == "0.0665 ± 0.0004"
    assert mean_and_error([0.0661]) == "0.0661"


def test_a_table_of_ones_own(tmp_path, capsys):
    X, y = draw(60)
    path = tmp_path / "mine.csv"
    rows = [f"{a};{b};{c}" for (a, b), c in zip(X, y, strict=True)]
    path.write_text("\n".join(["a;b;y", *rows, "1;;2"]))
    results = tmp_path / "results.jsonl"
    options = ["--csv", str(path), "--target", "y", "--results", str(results), "--iterations", "20"]
    assert main([*options, "--methods", "rbf", "--splits", "0", "9", "pca"]) == 0
    shown = capsys.readouterr()
    assert "1 rows with empty cells left out" in shown.err and "### mine" in shown.out
    records = read(results)
    assert [r["split"] for r in records] == ["0", "9"] and records[0]["n"] == 54
    assert records[0]["rmse"] < 1 and records[0]["rmse"] != records[1]["rmse"]
    for wrong, message in (
        ("z", "no column 'z'; the columns are 'a', 'b', 'y'"),
        (None, "go toge"),
    ):
        with pytest.raises(SystemExit):
            main(options[:2] if wrong is None else [*options, "--target", wrong])
        assert message in capsys.readouterr().err
