"""Every model with BoTorch's acquisition functions and transforms, as its users combine them.

An acquisition function is a number at every t-batch, alike for a batch and its elements; its
gradient is that of finite differences; its optimum lies within the bounds. What BoTorch or the
model does not do raises an error. A usual run takes every function with one model at least, and
ensembles with every function of BoTorch.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import botorch.acquisition as bo
import pytest
import torch
from botorch.acquisition import objective
from botorch.acquisition.penalized import L2Penalty
from botorch.exceptions import BotorchError
from botorch.models import ModelListGP, SingleTaskGP, transforms as tf
from botorch.optim import optimize_acqf
from botorch.sampling import ListSampler, SobolQMCNormalSampler
from botorch.utils.multi_objective import box_decompositions as boxes

from gpytorch_nkn.models import NKNMultiTaskGP
from tests.models.registry import CASES, case_of

REFUSALS = (NotImplementedError, TypeError, ValueError, BotorchError)


def functions_of_botorch(cls=bo.AcquisitionFunction):
    """Name and class of every acquisition function that can be constructed."""
    for module in pkgutil.walk_packages(bo.__path__, "botorch.acquisition."):
        importlib.import_module(module.name)
    for found in cls.__subclasses__():
        if found.__module__.startswith("botorch.") and not inspect.isabstract(found):
            yield found.__name__, found
        yield from functions_of_botorch(found)


of = SimpleNamespace(**dict(functions_of_botorch()))


def sampler(size=8):
    return SobolQMCNormalSampler(torch.Size([size]), seed=0)


def pair(model):
    return ModelListGP(model, model)


def optima(case):
    """Points of two optima, one for each member."""
    members = () if case.members is None else (case.members,)
    return case.points(2, *(1 for _ in members)).expand(2, *members, -1)


def of_members(values, case):
    """Costs, or other functions of points, with a dimension of members."""
    return values if case.members is None else values.unsqueeze(-3)


SAMPLERS = ListSampler(sampler(2), sampler(2))
ZERO = torch.zeros(2, dtype=torch.float64)
BOXES = boxes.FastNondominatedPartitioning(ZERO, ZERO + torch.eye(2).to(ZERO))
CELLS = torch.stack([torch.stack([ZERO - 9, ZERO]), torch.stack([ZERO, ZERO + 1])], 1)
CELLS = CELLS.expand(2, 2, 2, 2)  # of two Pareto sets: lower and upper bounds of two boxes
FIRST = objective.GenericMCObjective(lambda y, X=None: y[..., 0])
HALVES = objective.ScalarizedPosteriorTransform(ZERO + 0.5)
FEW = {"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 2, "num_inner_restarts": 1}}
# Acquisition functions of a model m, the best value y so far and its case c; of one output, then
# of two, and last those that a usual run takes with ensembles only.
OF_ONE = {
    "EI": lambda m, y, c: of.ExpectedImprovement(m, y),
    "log EI": lambda m, y, c: of.LogExpectedImprovement(m, y),
    "PI": lambda m, y, c: of.ProbabilityOfImprovement(m, y),
    "UCB": lambda m, y, c: of.UpperConfidenceBound(m, 0.5),
    "mean": lambda m, y, c: of.PosteriorMean(m),
    "deviation": lambda m, y, c: of.PosteriorStandardDeviation(m),
    "log NEI": lambda m, y, c: of.LogNoisyExpectedImprovement(m, c.points(5), 4),
    "qEI": lambda m, y, c: of.qExpectedImprovement(m, y, sampler()),
    "qlog EI": lambda m, y, c: of.qLogExpectedImprovement(m, y, sampler()),
    "qPI": lambda m, y, c: of.qProbabilityOfImprovement(m, y, sampler()),
    "qUCB": lambda m, y, c: of.qUpperConfidenceBound(m, 0.5, sampler()),
    "qregret": lambda m, y, c: of.qSimpleRegret(m, sampler()),
    "qNEI": lambda m, y, c: of.qNoisyExpectedImprovement(m, c.points(5), sampler()),
    "qlog NEI": lambda m, y, c: of.qLogNoisyExpectedImprovement(m, c.points(5), sampler()),
    "MES": lambda m, y, c: of.qMaxValueEntropy(m, c.points(20), 2, 3),
    "GIBBON": lambda m, y, c: of.qLowerBoundMaxValueEntropy(m, c.points(20), 2, 3),
    "KG": lambda m, y, c: of.qKnowledgeGradient(m, 3, sampler(3)),
    "qNIPV": lambda m, y, c: of.qNegIntegratedPosteriorVariance(m, c.points(4)),
}
OF_TWO = {
    "scalarised log EI": lambda m, y, c: of.LogExpectedImprovement(m, y, HALVES),
    "qlog EHVI": lambda m, y, c: of.qLogExpectedHypervolumeImprovement(m, ZERO, BOXES, sampler()),
    "qlog NEHVI": lambda m, y, c: of.qLogNoisyExpectedHypervolumeImprovement(
        m, ZERO, c.points(5), sampler()
    ),
}
FURTHER = {
    "log PI": lambda m, y, c: of.LogProbabilityOfImprovement(m, y),
    "analytic qPI": lambda m, y, c: of.qAnalyticProbabilityOfImprovement(m, y),
    "scalarised mean": lambda m, y, c: of.ScalarizedPosteriorMean(m, ZERO[:1] + 0.5),
    "constrained EI": lambda m, y, c: of.ConstrainedExpectedImprovement(pair(m), y, 0, LIMITS),
    "log cEI": lambda m, y, c: of.LogConstrainedExpectedImprovement(pair(m), y, 0, LIMITS),
    "log feasibility": lambda m, y, c: of.LogProbabilityOfFeasibility(pair(m), LIMITS),
    "qlog feasibility": lambda m, y, c: of.qLogProbabilityOfFeasibility(
        m, [lambda y: y[..., 0] - 1], sampler()
    ),
    "qLCB": lambda m, y, c: of.qLowerConfidenceBound(m, 0.5, sampler()),
    "qdeviation": lambda m, y, c: of.qPosteriorStandardDeviation(m, sampler()),
    "qBALD": lambda m, y, c: of.qBayesianActiveLearningByDisagreement(m, sampler()),
    "qdifferences": lambda m, y, c: of.PairwiseMCPosteriorVariance(m, FIRST, sampler()),
    "JES": lambda m, y, c: of.qJointEntropySearch(m, optima(c), y.expand(*optima(c).shape[:-1], 1)),
    "PES": lambda m, y, c: of.qPredictiveEntropySearch(m, c.points(2)),
    "list JES": lambda m, y, c: of.qLowerBoundMultiObjectiveJointEntropySearch(
        pair(m), c.points(2, 3), ZERO.expand(2, 3, 2), CELLS
    ),
    "list MES": lambda m, y, c: of.qLowerBoundMultiObjectiveMaxValueEntropySearch(pair(m), CELLS),
    "list PES": lambda m, y, c: of.qMultiObjectivePredictiveEntropySearch(pair(m), c.points(2, 3)),
    "fidelity MES": lambda m, y, c: of.qMultiFidelityMaxValueEntropy(m, c.points(20), 2, 3),
    "fidelity GIBBON": lambda m, y, c: of.qMultiFidelityLowerBoundMaxValueEntropy(
        m, c.points(20), 2, 3
    ),
    "fidelity KG": lambda m, y, c: of.qMultiFidelityKnowledgeGradient(m, 3, sampler(3)),
    "evaluated KG": lambda m, y, c: partial(
        of.qKnowledgeGradient(m, 3, sampler(3)).evaluate, bounds=bounds(c), **FEW
    ),
    "volume KG": lambda m, y, c: of.qHypervolumeKnowledgeGradient(pair(m), ZERO, 2, 2, SAMPLERS),
    "fidelity volume KG": lambda m, y, c: of.qMultiFidelityHypervolumeKnowledgeGradient(
        pair(m), ZERO, {-1: 1.0}, 2, 2, SAMPLERS
    ),
    "look-ahead": lambda m, y, c: of.qMultiStepLookahead(m, [1], samplers=[sampler(2)]),
    "objective of X": lambda m, y, c: of.qSimpleRegret(
        m,
        sampler(),
        objective.GenericMCObjective(lambda y, X: (y - of_members(X[..., :1], c).square())[..., 0]),
    ),
    "learned objective": lambda m, y, c: of.qSimpleRegret(
        m, sampler(), objective.LearnedObjective(SingleTaskGP(*(2 * [c.points(6)[:, :1]])), seed=0)
    ),
    "learned from members": lambda m, y, c: of.qSimpleRegret(
        SingleTaskGP(c.points(6), c.points(6)), sampler(), objective.LearnedObjective(m, seed=0)
    ),
    "qutility": lambda m, y, c: of.qExpectedUtilityOfBestOption(m, sampler=sampler()),
    "MOMF": lambda m, y, c: of.MOMF(
        pair(m), ZERO, BOXES, sampler(), cost_call=lambda X: 1 + of_members(X[..., -1:], c)
    ),
    "EHVI": lambda m, y, c: of.ExpectedHypervolumeImprovement(pair(m), [0.0, 0.0], BOXES),
    "qEHVI": lambda m, y, c: of.qExpectedHypervolumeImprovement(pair(m), ZERO, BOXES, sampler()),
    "qNEHVI": lambda m, y, c: of.qNoisyExpectedHypervolumeImprovement(
        pair(m), ZERO, c.points(5), sampler()
    ),
    "qlog ParEGO": lambda m, y, c: of.qLogNParEGO(
        pair(m), c.points(5), ZERO + 0.5, sampler=sampler()
    ),
    "means": lambda m, y, c: of.MultiOutputPosteriorMean(pair(m)),
    "one of one": lambda m, y, c: (
        lambda X: of.MultiOutputAcquisitionFunctionWrapper([of.PosteriorMean(m)])(X)[..., 0]
    ),
    "penalised": lambda m, y, c: of.PenalizedAcquisitionFunction(
        of.PosteriorMean(m), L2Penalty(c.points(1)[0]), 0.1
    ),
    "prior": lambda m, y, c: of.PriorGuidedAcquisitionFunction(
        of.PosteriorMean(m), lambda X: X.sum(-1)
    ),
    "proximal": lambda m, y, c: of.ProximalAcquisitionFunction(of.PosteriorMean(m), ZERO + 1),
    "fixed": lambda m, y, c: (
        lambda X: of.FixedFeatureAcquisitionFunction(of.PosteriorMean(m), c.columns, [0], [0.4])(
            X[..., 1:]
        )
    ),
    "projected": lambda m, y, c: of.ProjectedAcquisitionFunction(of.PosteriorMean(m), torch.square),
}
LIMITS = {1: (1.0, 3.0)}  # of the second output
# Points of a t-batch; others have two if the name starts with a q, else one.
POINTS = {"KG": 4, "fidelity KG": 4, "volume KG": 5, "fidelity volume KG": 5, "look-ahead": 3}
POINTS |= {"evaluated KG": 2, "list JES": 2, "list MES": 2, "list PES": 2}
# In tests/models/contract.py, and two that take BoTorch's PairwiseGP only.
ELSEWHERE = {"PathwiseThompsonSampling", "AnalyticExpectedUtilityOfBestOption"}
ELSEWHERE |= {"PairwiseBayesianActiveLearningByDisagreement"}


def bounds(case):
    return torch.tensor([[0.2], [0.7]], dtype=torch.float64).expand(2, case.columns)


def test_every_function_of_botorch_is_among_those_above():
    source = Path(__file__).read_text("utf-8")
    expected = {f"of.{name}(" for name in vars(of).keys() - ELSEWHERE}
    expected |= {".evaluate" for cls in vars(of).values() if hasattr(cls, "evaluate")}
    assert [name for name in expected if name not in source] == []


# Noiseless fantasies are of BoTorch's SingleTaskGP with learned noise, MES is not of ensembles, and
# what looks ahead needs fantasies.
FLAT = ("EI", "PI", "qEI", "qNEI", "qPI")  # far from the best value
# Their gradients differ from finite differences for BoTorch's SingleTaskGP, too.
GRADIENTS_OF_BOTORCH = ("qNEI", "qNIPV")
JITTER = 3e-4  # in draws, of 1e-8 on the diagonal where covariances are singular to rounding
COMBINATIONS = [
    (case, name)
    for case in CASES
    for name in (*OF_ONE, *(OF_TWO if case.outputs and not case.on_grid else ()))
    # fantasies and maxima of tasks need points that name the task
    if not (case.cls is NKNMultiTaskGP and name in ("KG", "qNIPV", "MES", "GIBBON"))
]


def usual():
    """Functions in turn with one of the models that have them; two with all, or all classes."""
    for number, name in enumerate([*OF_ONE, *OF_TWO]):
        cases = [case for case, other in COMBINATIONS if other == name]
        if name == "KG":
            cases = [case for case in cases if case is case_of(case.cls)]
        elif name != "qlog EI":
            cases = [cases[number % len(cases)]]
        yield from ((case, name) for case in cases)


def check(case, name):
    """Values of t-batches, gradients, and an optimum."""
    outputs, q = 2 if name in OF_TWO else 1, POINTS.get(name, 1 + name.startswith("q"))
    best, points = case.data(outputs)[1].nan_to_num(0.0).max() - 0.5, case.points(2, 3, q)
    torch.manual_seed(0)
    acquisition = (OF_TWO | OF_ONE)[name](case.model(outputs), best, case)
    with torch.no_grad():
        whole = acquisition(points.flatten(0, 1))
        alone = torch.cat([acquisition(one.unsqueeze(0)).view(1) for one in points[0]])
    assert whole.shape == (6,) and whole.isfinite().all()
    if name in ("qlog NEI", "qlog NEHVI"):  # of draws that are joint with others, see JITTER
        whole, alone = whole.exp(), alone.exp()
    room = JITTER if name in ("qNEI", "qlog NEI", "qlog NEHVI") else 1e-7
    if not (case.on_grid and name in ("qNEI", "qlog NEI")):  # one jitter for all of a batch
        torch.testing.assert_close(whole[:3], alone, rtol=1e-5, atol=room)
    x = points[0, :2].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(acquisition(x).sum(), x)
    along = torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype)
    step = 1e-8 if name in ("qlog NEI", "qlog NEHVI") else 1e-5  # they curve within 1e-6
    with torch.no_grad():
        up, down = (acquisition(x + s * step * along).sum() for s in (1, -1))
    expected, found = (up - down) / (2 * step), (gradient * along).sum()
    right = abs(found - expected) < 1e-5 + 1e-3 * abs(expected)
    assert right or name in GRADIENTS_OF_BOTORCH, f"{found} is not {expected}"
    assert gradient.abs().max() > 0 or name in FLAT
    number, within = 1 if name == "KG" else q, bounds(case)
    best, value = optimize_acqf(acquisition, within, number, 2, 4, options={"maxiter": 2})
    assert best.shape == (number, case.columns) and value.isfinite()
    assert (best >= within[0] - 1e-9).all() and (best <= within[1] + 1e-9).all()


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        of_members = "members" in metafunc.function.__name__
        chosen = OF_MEMBERS if of_members else COMBINATIONS
        if not metafunc.config.getoption("--all-foreign"):
            chosen = OF_MEMBERS[::4] + OF_MEMBERS[3::4] if of_members else list(usual())
        metafunc.parametrize(("case", "name"), chosen, ids=[f"{c.name}-{n}" for c, n in chosen])


@pytest.mark.filterwarnings("ignore")
def test_acquisition_functions(case, name):
    try:
        check(case, name)
    except REFUSALS as error:
        assert len(str(error).split()) > 4, f"no sentence: {error!r}"
        assert not isinstance(error, torch.linalg.LinAlgError)


def uniform(model, entry, members):
    """The ensemble with one member in the place of all."""
    model = copy.deepcopy(model)
    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        one_of_members = ".kernels." not in name and values.shape[:1] == (members,)
        if one_of_members and (name.count(".") or name == "weights"):
            values.data.copy_(values.data[entry].clone().expand_as(values))
    targets = model.train_targets
    model.train_targets = targets[..., entry : entry + 1, :].expand_as(targets)
    return model.eval()


@cache
def ensemble_and_members(case):
    model = case.model()
    return model, *(uniform(model, k, case.members) for k in range(case.members))


# In a usual run two ensembles take turns.
OF_MEMBERS = [(case, name) for name in (*OF_ONE, *FURTHER) for case in CASES if case.members]


@pytest.mark.filterwarnings("ignore")
def test_acquisition_functions_of_an_ensemble_average_over_the_members(case, name):
    """As many points, fantasies and members do not hide one behind another."""
    members, best = case.members, case.data()[1].max() - 0.5
    points = case.points(members, POINTS.get(name, 1 + name.startswith("q")))
    values = []
    for one in ensemble_and_members(case):
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                values.append((OF_ONE | FURTHER)[name](one, best, case)(points))
        except (*REFUSALS, RuntimeError) as error:
            assert not values, error
            assert len(str(error).split()) > 4, f"no sentence: {error!r}"
            assert type(error) is not RuntimeError or "functions require" in str(error), error
            return
    found, *apart = values
    assert found.shape == (members,)
    if name == "qlog ParEGO":  # it scales outputs by the means of all members
        return
    apart, logs = torch.stack(apart), name.startswith(("log", "qlog"))
    mean = apart.exp().mean(0).log() if logs else apart.mean(0)
    assert not torch.allclose(apart[0], apart[-1])
    found, mean = (found.exp(), mean.exp()) if name == "qlog NEI" else (found, mean)
    room = 1e-3 if name in ("qNEI", "qlog NEI") else 1e-6  # see JITTER
    torch.testing.assert_close(found, mean, rtol=1e-4, atol=room)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [c for c in CASES if c.known_noise], ids=lambda case: case.name)
@pytest.mark.parametrize("options", [{}, {"outcome_transform": None}])
def test_noiseless_fantasies_leave_the_variance_given_the_function_at_the_data(case, options):
    inputs, y = case.data()
    model = case.make(inputs, y, train_Yvar=torch.full_like(y, 0.05), **options).eval()
    points = case.points(case.members or 6)
    data = points if case.members else inputs  # equal counts do not hide one behind another
    try:
        fantasies = of.NoisyExpectedImprovement(copy.deepcopy(model), data, len(points)).model
        found = fantasies.posterior(points).variance[0, :, 0]
    except (NotImplementedError, BotorchError) as error:
        assert "qLogNoisyExpectedImprovement" in str(error) or "`SingleTaskGP`" in str(error)
        return
    joint = model.posterior(torch.cat([points, data])).distribution.covariance_matrix
    expected = joint[:6, :6] - joint[:6, 6:] @ torch.linalg.solve(joint[6:, 6:], joint[6:, :6])
    torch.testing.assert_close(found, expected.diagonal(), rtol=0, atol=1e-3)


def transforms(columns):
    """Options of a model; the third and the last transform are chained ones of the others."""
    inside = torch.tensor([[-0.5, 0.0], [1.5, 1.0]]).double().unsqueeze(-1).expand(2, 2, columns)
    first, second = (
        tf.Normalize(columns, bounds=inside[:, 0]),
        tf.Warp(columns, [0], bounds=inside[:, 1]),
    )
    inputs = first, second, tf.ChainedInputTransform(first=first, second=second)
    chained = tf.ChainedOutcomeTransform(log=tf.Log(), standardize=tf.Standardize(1))
    outcomes = tf.Standardize(1), tf.Log(), chained
    return [{"input_transform": t} for t in inputs] + [{"outcome_transform": t} for t in outcomes]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_transforms(case, request):
    """Predictions at t-batches have gradients, and one transform more changes no shapes.

    In a usual run models take turns with the transforms that are part of the chained ones.
    """
    if case.on_grid:  # its outcome transforms have tests of their own
        return
    inputs, y = case.data()
    every = transforms(case.columns)
    if not request.config.getoption("--all-foreign"):
        every = [every[2], every[5], every[(0, 1, 3, 4)[CASES.index(case) % 4]]]
    for options in every:
        try:
            model = case.make(inputs, y.abs() + 1, **options).eval()
        except REFUSALS as error:
            assert len(str(error).split()) > 4
            continue
        points = case.points(2, 3, 4).requires_grad_()
        mean = model.posterior(points).mean
        members = () if case.members is None else (case.members,)
        assert mean.shape == (2, 3, *members, 4, 1) and mean.isfinite().all()
        (gradient,) = torch.autograd.grad(mean.sum(), points)
        assert gradient.isfinite().all() and gradient.abs().max() > 0
        assert bo.qSimpleRegret(model, sampler(4))(points.detach()).isfinite().all()
