import math
from dataclasses import replace

import pytest
import torch
from botorch.test_functions import VehicleSafety

from benchmarks import bo_real_loops
from benchmarks.bo_problems import make_problem
from benchmarks.bo_real_loops import REAL_PROBLEMS, RealProblem, main, make_real_problem, run
from benchmarks.bo_surrogates import AcquisitionSettings

CHEAP = AcquisitionSettings(num_restarts=1, raw_samples=4, batch_limit=2, maxiter=3)


def at(name, *values):
    """Value of a function at a point of its box."""
    problem = make_problem(name, 0)
    lower, upper = problem.bounds
    point = torch.tensor(values, dtype=torch.float64)
    return problem((point - lower) / (upper - lower)).item()


def test_piston_by_its_law_of_gases():
    mass, surface, volume, spring, pressure, ambient, filling = 45, 0.01, 0.005, 3e3, 1e5, 293, 350
    value = at("piston7", mass, surface, volume, spring, pressure, ambient, filling)
    moles = pressure * volume * ambient / filling
    force = pressure * surface + 19.62 * mass - spring * volume / surface
    # V solves (k / S) V^2 + force V = S moles
    a, b, c = spring / surface, force, -surface * moles
    now = (-b + math.sqrt(b * b - 4 * a * c)) / (2 * a)
    stiffness = spring + surface**2 * moles / now**2
    assert value == pytest.approx(2 * math.pi / math.sqrt(stiffness / mass), rel=1e-9)
    assert 0.1 < value < 1.0


def test_circuit_by_its_terms():
    b1, b2, f, c1, c2, gain = 100.0, 50.0, 1.0, 2.0, 1.0, 200.0
    base = 12 * b2 / (b1 + b2)
    scale = gain * (c2 + 9)
    expected = (base + 0.74) * scale / (scale + f) + 11.35 * f / (scale + f)
    expected += 0.74 * f * scale / ((scale + f) * c1)
    assert at("otl6", b1, b2, f, c1, c2, gain) == pytest.approx(expected, rel=1e-12)


def test_weight_of_a_wing_by_logarithms():
    value = at("wingweight10", 174, 252, 7.52, 6, 34, 0.672, 0.12, 3.8, 2000, 0.064)
    cosine = math.cos(math.radians(6))
    powers = {174: 0.758, 252: 0.0035, 7.52: 0.6, cosine: -0.9, 34: 0.006, 0.672: 0.04}
    powers |= {12.0: -0.3, 3.8 * 2000: 0.49}
    weight = 0.036 * math.exp(sum(power * math.log(base) for base, power in powers.items()))
    assert value == pytest.approx(weight + 174 * 0.064, rel=1e-9)


def test_arm_by_complex_numbers():
    angles, lengths = [0.5, 1.0, 2.5, 4.0], [0.2, 0.9, 0.4, 0.7]
    turns = [sum(angles[: k + 1]) for k in range(4)]
    end = sum(
        length * complex(math.cos(t), math.sin(t)) for t, length in zip(turns, lengths, strict=True)
    )
    assert at("robotarm8", *angles, *lengths) == pytest.approx(abs(end), rel=1e-12)


@pytest.mark.parametrize("name", ["piston7", "otl6", "wingweight10", "robotarm8", "hartmann6in100"])
def test_no_point_is_below_the_optimum(name):
    problem = make_problem(name, 0)
    x = torch.quasirandom.SobolEngine(problem.dim, scramble=True, seed=0).draw(4096).double()
    corners = x.round()
    values = problem(torch.cat([x, corners, (x + corners) / 2]))
    assert values.min() >= problem.optimum - 1e-12
    assert values.isfinite().all()


def test_the_optimum_of_the_pressure_vessel_keeps_its_constraints():
    """At the largest radius of thicknesses that are rounded down, as long as its volume needs."""
    radius = (0.75 + 0.03125 - 1e-9) / 0.0193
    length = (1_296_000 - 4 / 3 * math.pi * radius**3) / (math.pi * radius**2) + 1e-9
    problem = make_real_problem("pressurevessel")
    x = torch.tensor([[0.0193 * radius, 0.39, radius, length]], dtype=torch.float64)
    lower, upper = problem.bounds
    (score,) = problem.scores(problem((x - lower) / (upper - lower)))
    assert problem.optimum < score < problem.optimum + 1e-2


@pytest.mark.parametrize("name", REAL_PROBLEMS)
def test_outcomes_are_finite_and_scores_no_better_than_the_optimum(name):
    problem = make_real_problem(name)
    x = problem.initial_points(3)[: 1 if name == "tuneboosting" else 2]  # its points take a second
    outcomes = problem(x)
    assert outcomes.shape == (len(x), problem.objectives + problem.constraints)
    assert outcomes.isfinite().all()
    assert min(problem.scores(outcomes)) > problem.optimum
    for column, count in problem.levels.items():
        assert set(x[:, column].tolist()) <= set(range(count))


def test_hypervolume_of_two_boxes_and_the_penalty_of_a_broken_constraint():
    box = torch.tensor([[0.0], [1.0]])
    two = RealProblem("two", None, box, 0.0, objectives=2, reference=(3.0, 3.0))
    assert two.scores(torch.tensor([[1.0, 2.0], [2.0, 1.0]])) == [-2.0, -3.0]
    one = RealProblem("one", None, box, 0.0, constraints=1, penalty=9.0)
    assert one.scores(torch.tensor([[1.0, 0.0], [0.5, -0.1]])) == [1.0, 9.0]


def test_hypervolume_is_that_of_botorch():
    problem, theirs = make_real_problem("vehiclesafety"), VehicleSafety()
    assert problem.optimum == -theirs.max_hv
    assert problem.reference == pytest.approx(theirs._ref_point)


def small(**options):
    """Two columns, the second of them of three categories."""

    def function(x):
        first = (x[:, 0] - 0.3 * x[:, 1]).square()
        return torch.stack([first, 0.8 - x[:, 0]], -1)[:, : sum(outcomes)]

    outcomes = options.get("objectives", 1), options.get("constraints", 0)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    return RealProblem("small", function, bounds, -9.0, **options)


KINDS = {
    "noisy": {"noise": 0.1},
    "constrained": {"constraints": 1, "penalty": 5.0},
    "mixed": {"levels": {1: 3}},
    "two": {"objectives": 2, "reference": (2.0, 2.0)},
}


@pytest.mark.parametrize("kind", ["noisy"])
def test_an_interrupted_run_gives_the_points_of_another(kind, tmp_path, monkeypatch):
    monkeypatch.setitem(REAL_PROBLEMS, "small", lambda: small(**KINDS[kind]))
    options = {"acquisition": CHEAP, "out": tmp_path / "parts"}
    run("small", "singletask", 1, evaluations=11, **options)
    parts = run("small", "singletask", 1, evaluations=12, **options)
    whole = run("small", "singletask", 1, evaluations=12, acquisition=CHEAP, out=tmp_path / "whole")
    assert parts["x"] == whole["x"] and not whole["failures"]
    assert len(whole["y"]) == 12


@pytest.mark.parametrize(
    ("kind", "name", "q"),
    [("mixed", "ours", 2), ("two", "structures", 2), ("constrained", "singletask", 1)],
)
def test_models_take_part(kind, name, q, tmp_path, monkeypatch):
    monkeypatch.setitem(REAL_PROBLEMS, "small", lambda: small(**KINDS[kind]))
    given = replace(CHEAP, q=q)
    done = run("small", name, 1, evaluations=10 + q, acquisition=given, out=tmp_path)
    assert not done["failures"] and len(done["fit_seconds"]) == 1
    assert len(done["x"]) == len(done["y"]) == 10 + q
    if kind == "mixed":
        assert {row[1] for row in done["x"]} <= {0.0, 1.0, 2.0}


def test_who_cannot_take_part_is_left_out_and_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(REAL_PROBLEMS, "tunesvr", lambda: small(levels={1: 3}))
    monkeypatch.setattr(
        bo_real_loops, "run", lambda *a, **k: pytest.fail("a run of what cannot take part")
    )
    given = ["--functions", "tunesvr", "--surrogates", "saas", "--seeds", "1"]
    assert main([*given, "--out", str(tmp_path)]) == 0
    assert "saas has no kernel of categories" in capsys.readouterr().err
