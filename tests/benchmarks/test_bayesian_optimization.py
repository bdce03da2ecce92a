import itertools
import json
import math
from functools import partial
from itertools import permutations

import pytest
import torch
from botorch.test_functions import Hartmann, Levy
from gpytorch.kernels import RBFKernel, ScaleKernel

from benchmarks import bayesian_optimization, bo_surrogates
from benchmarks.bayesian_optimization import initial_points, main, record_path, run
from benchmarks.bo_calibration import scores
from benchmarks.bo_problems import PROBLEMS, make_problem
from benchmarks.bo_report import is_stuck, report
from benchmarks.bo_surrogates import (
    SURROGATES,
    AcquisitionSettings,
    Search,
    SumOverGroupsKernel,
    Surrogate,
    make_surrogate,
)

CHEAP = AcquisitionSettings(num_restarts=2, raw_samples=8, batch_limit=2, maxiter=4)
STRUCTURED = ("stybtang", "michalewicz", "transformed", "shifted")


def cheap_run(out, evaluations, surrogate="singletask", function="hartmann6"):
    return run(function, surrogate, 3, evaluations=evaluations, out=out, acquisition=CHEAP)


@pytest.fixture
def short_fits(monkeypatch):
    """Few iterations of those surrogates that BoTorch's optimiser trains."""
    short = partial(bo_surrogates.fit_gpytorch_mll, optimizer_kwargs={"options": {"maxiter": 30}})
    monkeypatch.setattr(bo_surrogates, "fit_gpytorch_mll", short)


def record(values, *, seed=0, surrogate="singletask", seconds=(0.5, 0.25), optimum=0.0):
    """A run with these values, the first two of them initial."""
    number = len(values) - 2
    return {
        "function": "f",
        "surrogate": surrogate,
        "seed": seed,
        "optimum": optimum,
        "y": list(values),
        "fit_seconds": [seconds[0]] * number,
        "acquisition_seconds": [seconds[1]] * number,
        "failures": [],
        "versions": {"torch": "2"},
    }


def rows(text, heading):
    """Cells of the rows of the table with that heading."""
    lines = iter(text.splitlines())
    for line in lines:
        if heading in line and line.startswith("|"):
            next(lines)
            body = itertools.takewhile(lambda line: line.startswith("|"), lines)
            return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]
    raise AssertionError(f"no table with {heading!r} in\n{text}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stybtang", lambda x: sum(x**4 - 16 * x**2 + 5 * x) / 2),
        (
            "michalewicz",
            lambda x: (
                -sum(
                    math.sin(v) * math.sin((i + 1) * v**2 / math.pi) ** 20 for i, v in enumerate(x)
                )
            ),
        ),
        (
            "ackley10",
            lambda x: (
                -20 * math.exp(-0.2 * math.sqrt(sum(x**2) / 10))
                - math.exp(sum(torch.cos(2 * math.pi * x)) / 10)
                + 20
                + math.e
            ),
        ),
    ],
)
def test_values_against_the_formula_written_out(name, expected):
    problem = make_problem(name, 0)
    bounds = {"stybtang": (-4, 4), "michalewicz": (0, math.pi), "ackley10": (-20, 32.8)}[name]
    for x in torch.rand(5, 10):
        value = float(expected(bounds[0] + (bounds[1] - bounds[0]) * x))
        assert problem(x).item() == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "minimiser"),
    [
        ("stybtang", torch.full((10,), -2.903534)),
        ("hartmann6", torch.tensor([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573])),
        ("ackley10", torch.zeros(10)),
        ("levy10", torch.ones(10)),
        ("rosenbrock8", torch.ones(8)),
        ("griewank8", torch.zeros(8)),
        ("rastrigin10", torch.zeros(10)),
        ("cosine8", torch.zeros(8)),
        ("dixonprice10", 2.0 ** -(1 - 2.0 ** -torch.arange(10))),
        ("stybtang20", torch.full((20,), -2.903534)),
        ("ackley20", torch.zeros(20)),
        ("borehole8", torch.tensor([0.05, 50000, 63070, 990, 63.1, 820, 1680, 9855])),
    ],
)
def test_optimum_is_the_value_at_the_known_minimiser(name, minimiser):
    problem = make_problem(name, 0)
    lower, upper = problem.bounds
    value = problem((minimiser - lower) / (upper - lower)).item()
    assert value == pytest.approx(problem.optimum, abs=1e-4)


def test_optimum_of_michalewicz_is_the_sum_of_the_minima_of_its_columns():
    problem = make_problem("michalewicz", 0)
    grid = torch.linspace(0, 1, 20_001)
    start = torch.zeros(10)  # each column adds nothing at zero
    total = 0.0
    for column in range(10):
        x = start.repeat(len(grid), 1)
        x[:, column] = grid
        total += problem(x).min().item()
    assert total == pytest.approx(problem.optimum, abs=1e-4)


@pytest.mark.parametrize(("name", "function"), [("hartmann6", Hartmann(6)), ("levy10", Levy(10))])
def test_boxes_are_those_of_botorch(name, function):
    torch.testing.assert_close(make_problem(name, 0).bounds, function.bounds)


@pytest.mark.parametrize("name", ["transformed", "shifted"])
@pytest.mark.parametrize("seed", [0, 7])
def test_optimum_of_a_rotated_function_lies_in_its_box(name, seed):
    problem = make_problem(name, seed)
    lower, upper = problem.bounds
    torch.testing.assert_close(upper - lower, torch.full((10,), 6.0))
    center = make_problem("transformed", seed).bounds.mean(0)  # the minimiser
    x = (center - lower) / (upper - lower)
    assert 0 <= x.min() and x.max() <= 1
    assert problem(x).item() == pytest.approx(problem.optimum, abs=1e-8)
    if name == "transformed":
        torch.testing.assert_close(x, torch.full((10,), 0.5))
    else:
        shift = problem.bounds.mean(0) - center
        assert 0.5 < shift.abs().max() <= 2


def test_rotated_functions_of_one_seed_are_one_function_and_of_two_seeds_are_not():
    first, second = (make_problem(name, 5) for name in ("transformed", "shifted"))
    lower, upper = first.bounds
    x = lower + (upper - lower) * torch.rand(4, 10)
    torch.testing.assert_close(first.function(x), second.function(x))
    assert first.groups == second.groups != make_problem("transformed", 6).groups


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("seed", [0, 100])
def test_mixed_differences_vanish_between_groups_and_only_there(name, seed):
    problem = make_problem(name, seed)
    assert sorted(itertools.chain(*problem.groups)) == list(range(10))
    x, steps = torch.rand(10), 0.1 * torch.eye(10)
    for i, j in itertools.combinations(range(10), 2):
        together = any({i, j} <= set(group) for group in problem.groups)
        corners = (x + steps[i] + steps[j], x + steps[i], x + steps[j], x)
        mixed = sum(
            sign * problem(corner) for sign, corner in zip((1, -1, -1, 1), corners, strict=True)
        )
        assert (mixed.abs().item() > 1e-8) == together, (i, j)


def test_other_numbers_of_columns_and_names_are_named_in_the_error():
    with pytest.raises(ValueError, match=r"10 input columns, got shape \(3, 6\)"):
        make_problem("levy10", 0)(torch.rand(3, 6))
    with pytest.raises(ValueError, match="got 'levy'"):
        make_problem("levy", 0)
    with pytest.raises(ValueError, match="got 'gp'"):
        make_surrogate("gp", make_problem("levy10", 0))
    with pytest.raises(ValueError, match="known groups, got levy10"):
        make_surrogate("oracle", make_problem("levy10", 0))


def test_kernel_of_the_oracle_is_a_sum_of_scaled_kernels():
    groups = ((3,), (0, 2), (1,))
    kernel = SumOverGroupsKernel(groups).double()
    assert kernel.outputscales.sum().item() == pytest.approx(1)
    kernel.initialize(
        raw_lengthscales=torch.tensor([0.3, 0.5, 0.7, 0.9]),
        raw_scales=torch.tensor([-1.0, 0.0, 1.0]),
    )
    parts = []
    for group, scale in zip(groups, kernel.outputscales, strict=True):
        part = ScaleKernel(RBFKernel(ard_num_dims=len(group), active_dims=group)).double()
        part.base_kernel.lengthscale = kernel.lengthscales[list(group)]
        part.outputscale = scale
        parts.append(part)
    x, y = torch.rand(2, 5, 4), torch.rand(2, 3, 4)
    expected = sum(part(x, y).to_dense() for part in parts)
    torch.testing.assert_close(kernel(x, y).to_dense(), expected)
    torch.testing.assert_close(kernel(x, diag=True), sum(part(x, diag=True) for part in parts))
    mode = [math.exp(math.sqrt(2) + math.log(size) / 2 - 3) for size in (2, 1, 2, 1)]
    fresh = SumOverGroupsKernel(groups).double()
    torch.testing.assert_close(fresh.lengthscales, torch.tensor(mode), rtol=1e-6, atol=0)
    with pytest.raises(ValueError, match="each of the columns once"):
        SumOverGroupsKernel([(0, 1), (1,)])


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", SURROGATES)
def test_each_surrogate_is_fitted_and_proposes_a_point(name):
    problem = make_problem("transformed", 0)
    x = torch.rand(12, 10)
    y = -problem(x).unsqueeze(-1)
    way = make_surrogate(name, problem, CHEAP)
    model = way.fit(x, y, None)
    assert not model.training
    with torch.no_grad():
        posterior = model.posterior(x)
    mean = getattr(posterior, "mixture_mean", posterior.mean)
    if name not in ("ax", "sobol", "random"):  # nobody asks their model
        assert torch.corrcoef(torch.cat([mean, y], -1).T)[0, 1] > 0.5
    acqf = bayesian_optimization.LogExpectedImprovement(model, best_f=y.max())
    bounds = torch.tensor([[0.0], [1.0]]).expand(2, 10)
    point = way.propose(Search(model, acqf, bounds, x, y.squeeze(-1)))
    assert point.shape == (1, 10)
    assert 0 <= point.min() and point.max() <= 1


def test_initial_points_are_those_of_the_seed_for_every_surrogate():
    first, second = make_problem("stybtang", 0), make_problem("michalewicz", 0)
    torch.testing.assert_close(initial_points(first, 0), initial_points(first, 0))
    for other in (initial_points(first, 1), initial_points(second, 0)):
        assert (initial_points(first, 0) - other).abs().max() > 0.1


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("surrogate", ["ours", "structures", "region", "turbo", "ax", "random"])
def test_interrupted_run_gives_the_points_of_another(tmp_path, surrogate):
    whole = cheap_run(tmp_path / "a", 12, surrogate)
    cheap_run(tmp_path / "b", 11, surrogate)
    torch.rand(5)
    resumed = cheap_run(tmp_path / "b", 12, surrogate)
    assert resumed["x"] == whole["x"] and resumed["y"] == whole["y"]
    assert len(whole["x"]) == 12 and len(set(whole["y"])) == 12
    assert len(resumed["fit_seconds"]) == len(resumed["acquisition_seconds"]) == 2
    assert resumed["failures"] == []


def test_run_leaves_the_random_state_as_it_was(tmp_path):
    state = torch.get_rng_state()
    cheap_run(tmp_path, 11)
    assert torch.equal(state, torch.get_rng_state())


class FromPrevious(Surrogate):
    """Keeps its predecessor's values: they show whether a resumed run has the right one."""

    uses_previous = True

    def fit(self, X, Y, previous):
        model = self.make(X, Y)
        if previous is None:
            model.covar_module.lengthscale = 0.3
        else:
            assert len(previous.train_targets) == len(Y) - 1
            model.covar_module.lengthscale = previous.covar_module.lengthscale * 1.1
        return model.eval()


def test_interrupted_run_starts_from_the_model_of_its_last_iteration(tmp_path, monkeypatch):
    monkeypatch.setitem(SURROGATES, "chain", (FromPrevious, SURROGATES["singletask"][1]))
    whole = cheap_run(tmp_path / "a", 14, "chain")
    cheap_run(tmp_path / "b", 12, "chain")
    resumed = cheap_run(tmp_path / "b", 14, "chain")
    assert resumed["x"] == whole["x"]
    assert whole["failures"] == []
    (lengthscale,) = {round(v, 12) for v in resumed["model"]["values"][_LENGTHSCALE][0]}
    assert lengthscale == pytest.approx(0.3 * 1.1**3)


_LENGTHSCALE = "covar_module.raw_lengthscale"  # without a transform


def test_checkpoint_is_a_whole_file_every_ten_evaluations(tmp_path, monkeypatch):
    class Interrupted(Surrogate):
        def fit(self, X, Y, previous):
            if len(Y) == 22:
                raise KeyboardInterrupt
            return self.make(X, Y).eval()

        def propose(self, search):
            return torch.rand(1, 6)

    monkeypatch.setitem(SURROGATES, "interrupted", (Interrupted, SURROGATES["singletask"][1]))
    with pytest.raises(KeyboardInterrupt):
        cheap_run(tmp_path, 40, "interrupted")
    (file,) = tmp_path.iterdir()
    assert file == record_path(tmp_path, "hartmann6", "interrupted", 3)
    assert len(json.loads(file.read_text())["y"]) == 20


def test_failures_are_recorded_and_counted_and_the_run_goes_on(tmp_path, monkeypatch):
    class Failing(Surrogate):
        def fit(self, X, Y, previous):
            if len(Y) == 11:
                raise RuntimeError("no fit today")
            return self.make(X, Y).eval()

        def propose(self, search):
            if len(search.model.train_targets) == 12:
                return torch.full((1, 6), math.nan)
            return super().propose(search)

    monkeypatch.setitem(SURROGATES, "failing", (Failing, SURROGATES["singletask"][1]))
    found = cheap_run(tmp_path, 14, "failing")
    stages = [(failure["n"], failure["stage"]) for failure in found["failures"]]
    assert stages == [(11, "fit"), (12, "acquisition")]
    assert found["failures"][0]["error"] == "RuntimeError: no fit today"
    assert len(found["y"]) == 14 and torch.tensor(found["x"]).isfinite().all()
    assert [row[-1] for row in rows(report([found], evaluations=14), "failed")] == ["2"]
    assert [row[-1] for row in rows(report([found], evaluations=12), "failed")] == ["1"]


def test_file_of_other_settings_is_refused(tmp_path):
    cheap_run(tmp_path, 11)
    with pytest.raises(ValueError, match="'num_restarts': 2.*expected.*'num_restarts': 8"):
        run("hartmann6", "singletask", 3, evaluations=12, out=tmp_path)


def test_best_points_come_first_and_the_target_is_maximised(tmp_path, monkeypatch):
    seen = []

    class Watched(Surrogate):
        def fit(self, X, Y, previous):
            return self.make(X, Y).eval()

        def propose(self, search):
            (x,) = search.model.train_inputs
            values = make_problem("hartmann6", 3)(x)
            assert torch.equal(search.best_points, x[values.argsort()[:5]])
            assert search.acqf.best_f.item() == pytest.approx(-values.min().item())
            with torch.no_grad():
                mean = search.model.posterior(x).mean.squeeze(-1)
            assert torch.corrcoef(torch.stack([mean, values]))[0, 1] < -0.5
            seen.append(len(x))
            return search.bounds.mean(0, keepdim=True)

    monkeypatch.setitem(SURROGATES, "watched", (Watched, SURROGATES["singletask"][1]))
    assert cheap_run(tmp_path, 12, "watched")["failures"] == []
    assert seen == [10, 11]


def test_numbers_of_the_report():
    base = [
        record([9.0, 8.0, 6.0, 5.0], seed=0),
        record([9.0, 8.0, 3.0, 1.0], seed=1),
    ]
    other = [record([9.0, 4.0, 4.0, 2.0], seed=1, surrogate="matern", seconds=(1.0, 0.5))]
    unfinished = record([9.0, 8.0, 7.0], seed=2)
    text = report([*base, *other, unfinished], evaluations=4)
    # of values 5 and 1 the standard error is 2; at two points both have 8
    assert rows(text, "stuck")[0][1:6] == ["singletask", "2", "8 ± 0", "3 ± 2", "3 (1.00)"]
    assert rows(text, "stuck")[1][1:6] == ["matern", "1", "4", "2", "2 (2.00)"]  # 2 to 1 of seed 1
    assert rows(text, "of singletask")[1][1:] == ["matern", "1.00 + 0.50", "1.00 + 0.50", "2.00"]
    assert "1 runs are unfinished" in text
    assert report([unfinished], evaluations=4).startswith("No results: 1 runs")


def test_time_of_the_last_iterations_is_told_apart():
    run_ = record([2.0] * 2 + [1.0] * 20)
    run_["fit_seconds"] = [0.0] * 10 + [3.0] + [1.0] * 9
    (row,) = rows(report([run_], evaluations=22), "of singletask")
    assert row[2:4] == ["0.60 + 0.25", "1.20 + 0.25"]


def test_stuck_means_far_from_the_optimum_and_no_progress():
    fall = [100.0] * 2 + [50.0] * 20
    assert is_stuck(record(fall + [50.0] * 40), 60)
    assert not is_stuck(record(fall + [50.0] * 39 + [49.0]), 62)  # 2 % better in the end
    assert is_stuck(record(fall + [50.0] * 39 + [49.0]), 61)
    near = [100.0] * 2 + [1.9] * 60
    assert not is_stuck(record(near), 60)
    assert is_stuck(record([v + 3 for v in near]), 60)


@pytest.mark.usefixtures("short_fits")
def test_command_runs_what_is_missing_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bo_surrogates, "AcquisitionSettings", lambda: CHEAP)
    monkeypatch.setattr(bayesian_optimization, "AcquisitionSettings", lambda: CHEAP)
    options = ["--functions", "hartmann6", "stybtang", "--surrogates", "oracle", "matern"]
    options += ["--seeds", "3", "--evaluations", "11", "--out", str(tmp_path)]
    assert main([*options, "--report"]) == 0
    assert "No results" in capsys.readouterr().out
    assert main(options) == 0
    output = capsys.readouterr()
    names = [row[:2] for row in rows(output.out, "stuck")]
    assert names == [["hartmann6", "matern"], ["stybtang", "oracle"], ["stybtang", "matern"]]
    assert "0 of 3 runs" in output.err
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert main(options) == 0
    assert "3 of 3 runs" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with pytest.raises(SystemExit):
        main(["--evaluations", "10"])
    assert "must exceed 10, got 10" in capsys.readouterr().err


def test_the_columns_that_count_are_drawn_by_the_seed():
    minimiser = torch.tensor([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573])
    for seed in (0, 1):
        problem = make_problem("hartmann6in20", seed)
        x = torch.rand(20)
        columns = [
            c for c in range(20) if problem(x.index_fill(0, torch.tensor(c), 0)) != problem(x)
        ]
        assert len(columns) == 6
        found = [
            problem(x.index_copy(0, torch.tensor(o), minimiser)) for o in permutations(columns)
        ]
        assert min(found).item() == pytest.approx(problem.optimum, abs=1e-4)


def test_scores_of_a_mixture():
    targets = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    density, coverage = scores(torch.zeros(1, 4000), torch.ones(1, 4000), targets)
    assert density == pytest.approx(-0.5 * math.log(2 * math.pi * math.e), abs=0.05)
    assert coverage == pytest.approx(0.9, abs=0.02)
    apart = torch.tensor([[-10.0], [10.0]]).expand(2, 4000)
    density, coverage = scores(apart, torch.ones(2, 4000), targets.abs().sign() * 10 + targets)
    expected = -0.5 * math.log(2 * math.pi * math.e) - math.log(2)  # half of the mixture
    assert density == pytest.approx(expected, abs=0.05)
    assert scores(torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([9.0])) == (-20.0, 0.0)


def test_the_command_prints_how_surrogates_predict(capsys):
    options = ["--functions", "cosine8", "--surrogates", "matern", "--seeds", "0"]
    assert main([*options, "--calibration"]) == 0
    (row,) = rows(capsys.readouterr().out, "20 points")
    assert row[0] == "matern"
    densities = [float(cell.split()[0]) for cell in row[1:]]
    assert densities[2] > densities[0] > -3


def test_the_trust_region_follows_the_values():
    length = make_surrogate("turbo", make_problem("hartmann6", 0), CHEAP)._length
    drawn = [0.0] * 10
    assert length(drawn, 6) == 0.8
    assert length([*drawn, 1.0, 2.0, 3.0], 6) == 1.6
    assert length([*drawn, *[1.0, 2.0, 3.0] * 1, *[0.0] * 6], 6) == 0.8
    assert length(drawn + [0.0] * 6, 6) == 0.4
    assert length(drawn + [0.0] * 6 * 7, 6) == 0.8  # it has vanished


def test_problems_have_their_own_names():
    assert all(make_problem(name, 0).name == name for name in PROBLEMS)
