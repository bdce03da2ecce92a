"""Every model with BoTorch's acquisition functions and transforms, as its users combine them.

An acquisition function is a number at every t-batch, alike for a batch and its elements; its
gradient is that of finite differences; its optimum lies within the bounds. What BoTorch or the
model does not do raises an error. A usual run takes every function with one model, and every
model with one function at least.
"""

from __future__ import annotations

import copy

import botorch.acquisition as bo
import pytest
import torch
from botorch.acquisition import analytic, max_value_entropy_search as mes, objective
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.multi_objective import logei
from botorch.acquisition.multi_objective.multi_fidelity import MOMF
from botorch.acquisition.predictive_entropy_search import qPredictiveEntropySearch
from botorch.exceptions import BotorchError
from botorch.models import ModelListGP, SingleTaskGP, transforms as tf
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.multi_objective import box_decompositions as boxes

from gpytorch_nkn.models import NKNMultiTaskGP
from tests.models.registry import CASES

REFUSALS = (NotImplementedError, TypeError, ValueError, BotorchError)


def sampler(size=8):
    return SobolQMCNormalSampler(torch.Size([size]), seed=0)


# Acquisition functions of a model, the best value so far and its case, with the points of a
# t-batch; one for one output, then those for two.
OF_ONE = {
    "EI": (1, lambda m, best, case: bo.ExpectedImprovement(m, best)),
    "log EI": (1, lambda m, best, case: bo.LogExpectedImprovement(m, best)),
    "PI": (1, lambda m, best, case: bo.ProbabilityOfImprovement(m, best)),
    "UCB": (1, lambda m, best, case: bo.UpperConfidenceBound(m, 0.5)),
    "mean": (1, lambda m, best, case: bo.PosteriorMean(m)),
    "deviation": (1, lambda m, best, case: bo.PosteriorStandardDeviation(m)),
    "log NEI": (1, lambda m, best, case: bo.LogNoisyExpectedImprovement(m, case.points(5), 4)),
    "qEI": (2, lambda m, best, case: bo.qExpectedImprovement(m, best, sampler())),
    "qlog EI": (2, lambda m, best, case: bo.qLogExpectedImprovement(m, best, sampler())),
    "qPI": (2, lambda m, best, case: bo.qProbabilityOfImprovement(m, best, sampler())),
    "qUCB": (2, lambda m, best, case: bo.qUpperConfidenceBound(m, 0.5, sampler())),
    "qregret": (2, lambda m, best, case: bo.qSimpleRegret(m, sampler())),
    "qNEI": (2, lambda m, best, case: bo.qNoisyExpectedImprovement(m, case.points(5), sampler())),
    "qlog NEI": (
        2,
        lambda m, best, case: bo.qLogNoisyExpectedImprovement(m, case.points(5), sampler()),
    ),
    "MES": (1, lambda m, best, case: mes.qMaxValueEntropy(m, case.points(20), num_mv_samples=3)),
    "GIBBON": (
        1,
        lambda m, best, case: mes.qLowerBoundMaxValueEntropy(m, case.points(20), num_mv_samples=3),
    ),
    "KG": (4, lambda m, best, case: bo.qKnowledgeGradient(m, 3, sampler(3))),
    "NIPV": (2, lambda m, best, case: bo.qNegIntegratedPosteriorVariance(m, case.points(4))),
}
ZERO = torch.zeros(2, dtype=torch.float64)
OF_TWO = {
    "scalarised log EI": (
        1,
        lambda m, best, case: bo.LogExpectedImprovement(
            m, best, posterior_transform=objective.ScalarizedPosteriorTransform(ZERO + 0.5)
        ),
    ),
    "log EHVI": (
        2,
        lambda m, best, case: logei.qLogExpectedHypervolumeImprovement(
            m,
            ZERO,
            boxes.FastNondominatedPartitioning(ZERO, ZERO + torch.eye(2).to(ZERO)),
            sampler(),
        ),
    ),
    "log NEHVI": (
        2,
        lambda m, best, case: logei.qLogNoisyExpectedHypervolumeImprovement(
            m, ZERO, case.points(5), sampler()
        ),
    ),
}
# Combinations that BoTorch does not have, whatever the model: noiseless fantasies are of its
# SingleTaskGP with learned noise, MES is not of ensembles, and what looks ahead needs fantasies.
# Some end in BoTorch's own shapes: the deviation averages no ensembles.
KNOWN = {("deviation", "members")}
FLAT = ("EI", "PI", "qEI", "qNEI", "qPI")  # far from the best value
# Their gradients differ from finite differences for BoTorch's SingleTaskGP, too.
GRADIENTS_OF_BOTORCH = ("qNEI", "NIPV")
JITTER = 3e-4  # in draws, of 1e-8 on the diagonal where covariances are singular to rounding
COMBINATIONS = [
    (case, name)
    for case in CASES
    for name in (*OF_ONE, *(OF_TWO if case.outputs and not case.on_grid else ()))
    if not (case.members and (name, "members") in KNOWN)
    # fantasies and maxima of tasks need points that name the task
    and not (case.cls is NKNMultiTaskGP and name in ("KG", "NIPV", "MES", "GIBBON"))
]


def usual():
    """Combinations of a usual run: functions in turn with one of the models that have them."""
    for number, name in enumerate([*OF_ONE, *OF_TWO]):
        cases = [case for case, other in COMBINATIONS if other == name]
        yield cases[number % len(cases)], name


def made(case, name):
    outputs = 2 if name in OF_TWO else 1
    torch.manual_seed(0)
    model = case.model(outputs)
    best = case.data(outputs)[1].nan_to_num(0.0).max() - 0.5
    q, make = (OF_TWO | OF_ONE)[name]
    return q, make(model, best, case)


def check(case, name):
    """Values of t-batches, gradients, and an optimum."""
    q, acquisition = made(case, name)
    points = case.points(2, 3, q)
    with torch.no_grad():
        whole = acquisition(points.flatten(0, 1))
        alone = torch.cat([acquisition(one.unsqueeze(0)).view(1) for one in points[0]])
    assert whole.shape == (6,) and whole.isfinite().all()
    if name in ("qlog NEI", "log NEHVI"):  # of draws that are joint with others, see JITTER
        whole, alone = whole.exp(), alone.exp()
    room = JITTER if name in ("qNEI", "qlog NEI", "log NEHVI") else 1e-7
    if not (case.on_grid and name in ("qNEI", "qlog NEI")):  # one jitter for all of a batch
        torch.testing.assert_close(whole[:3], alone, rtol=1e-5, atol=room)
    x = points[0, :2].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(acquisition(x).sum(), x)
    along = torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype)
    step = 1e-8 if name in ("qlog NEI", "log NEHVI") else 1e-5  # they curve within 1e-6
    with torch.no_grad():
        up, down = (acquisition(x + s * step * along).sum() for s in (1, -1))
    expected, found = (up - down) / (2 * step), (gradient * along).sum()
    right = abs(found - expected) < 1e-5 + 1e-3 * abs(expected)
    assert right or name in GRADIENTS_OF_BOTORCH, f"{found} is not {expected}"
    assert gradient.abs().max() > 0 or name in FLAT
    bounds = torch.tensor([[0.2], [0.7]], dtype=x.dtype).expand(2, case.columns)
    number = q if not isinstance(acquisition, bo.qKnowledgeGradient) else 1
    best, value = optimize_acqf(
        acquisition, bounds, number, num_restarts=2, raw_samples=4, options={"maxiter": 2}
    )
    assert best.shape == (number, case.columns) and value.isfinite()
    assert (best >= bounds[0] - 1e-9).all() and (best <= bounds[1] + 1e-9).all()


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        chosen = COMBINATIONS if metafunc.config.getoption("--all-foreign") else list(usual())
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
    model.train_targets = model.train_targets[..., entry : entry + 1, :].expand_as(
        model.train_targets
    )
    return model.eval()


ENSEMBLES = [case for case in CASES if case.members]
# Analytic functions beside those above, of a list where there are constraints.
FURTHER = {
    "log PI": lambda m, best, case: analytic.LogProbabilityOfImprovement(m, best),
    "analytic qPI": lambda m, best, case: bo.qAnalyticProbabilityOfImprovement(m, best),
    "scalarised mean": lambda m, best, case: analytic.ScalarizedPosteriorMean(m, ZERO[:1] + 0.5),
    "constrained EI": lambda m, best, case: bo.ConstrainedExpectedImprovement(
        ModelListGP(m, m), best, 0, {1: (1.0, 3.0)}
    ),
    "log constrained EI": lambda m, best, case: analytic.LogConstrainedExpectedImprovement(
        ModelListGP(m, m), best, 0, {1: (1.0, 3.0)}
    ),
    "feasibility": lambda m, best, case: analytic.LogProbabilityOfFeasibility(
        ModelListGP(m, m), {1: (1.0, 3.0)}
    ),
    "active learning": lambda m, best, case: bo.qBayesianActiveLearningByDisagreement(m, sampler()),
    "JES": lambda m, best, case: qJointEntropySearch(  # an optimum of each member
        m, case.points(2, 1).expand(2, case.members, -1), best.expand(2, case.members, 1)
    ),
    "PES": lambda m, best, case: qPredictiveEntropySearch(m, case.points(2, 1)),
    "fidelity KG": lambda m, best, case: bo.qMultiFidelityKnowledgeGradient(m, 3, sampler(3)),
    # functions of the points need a dimension of members
    "objective of X": lambda m, best, case: bo.qExpectedImprovement(
        m,
        best - 1,
        sampler(),
        objective.GenericMCObjective(lambda y, X: y[..., 0] - X.unsqueeze(-3)[..., 0].square()),
    ),
    "learned objective": lambda m, best, case: bo.qSimpleRegret(
        m,
        sampler(),
        objective.LearnedObjective(SingleTaskGP(*(2 * [case.points(6)[:, :1]])), seed=0),
    ),
    "MOMF": lambda m, best, case: MOMF(
        ModelListGP(m, m),
        ZERO,
        boxes.NondominatedPartitioning(ZERO, torch.eye(2).to(ZERO)),
        sampler(),
        cost_call=lambda X: 1 + X.unsqueeze(-3)[..., -1:],
    ),
}
NO_AVERAGE = {"active learning"}  # it is about the differences between members


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ENSEMBLES, ids=lambda case: case.name)
@pytest.mark.parametrize("function", [*OF_ONE, *FURTHER])
def test_acquisition_functions_of_an_ensemble_average_over_the_members(case, function):
    """As many points, fantasies and members do not hide one behind another."""
    q, make = OF_ONE.get(function, (1, FURTHER.get(function)))
    q = 4 if function == "fidelity KG" else q
    model, members = case.model(), case.members
    best = case.data()[1].max() - 0.5
    points = case.points(members, q)
    values = []
    for one in (model, *(uniform(model, k, members) for k in range(members))):
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                values.append(make(one, best, case)(points))
        except (*REFUSALS, RuntimeError, AttributeError, IndexError) as error:
            assert not values, error
            assert str(error)
            return
    found, *apart = values
    assert found.shape == (members,)
    if function in NO_AVERAGE:
        return
    apart = torch.stack(apart)
    logs = function.startswith(("log", "qlog", "feasib"))
    mean = apart.exp().mean(0).log() if logs else apart.mean(0)
    assert not torch.allclose(apart[0], apart[-1])
    if function in ("qNEI", "qlog NEI"):  # see JITTER
        found, mean = (values.exp() if logs else values for values in (found, mean))
        torch.testing.assert_close(found, mean, rtol=1e-4, atol=1e-3)
    else:
        torch.testing.assert_close(found, mean, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [c for c in CASES if c.known_noise], ids=lambda case: case.name)
@pytest.mark.parametrize("options", [{}, {"outcome_transform": None}])
def test_noiseless_fantasies_leave_the_variance_given_the_function_at_the_data(case, options):
    inputs, y = case.data()
    model = case.make(inputs, y, train_Yvar=torch.full_like(y, 0.05), **options).eval()
    points = case.points(case.members or 6)
    data = points if case.members else inputs  # equal counts do not hide one behind another
    try:
        fantasies = bo.NoisyExpectedImprovement(copy.deepcopy(model), data, len(points)).model
        found = fantasies.posterior(points).variance[0, :, 0]
    except (NotImplementedError, BotorchError) as error:
        assert "qLogNoisyExpectedImprovement" in str(error) or "`SingleTaskGP`" in str(error)
        return
    joint = model.posterior(torch.cat([points, data])).distribution.covariance_matrix
    expected = joint[:6, :6] - joint[:6, 6:] @ torch.linalg.solve(joint[6:, 6:], joint[6:, :6])
    torch.testing.assert_close(found, expected.diagonal(), rtol=0, atol=1e-3)


def input_transforms(columns):
    bounds = torch.tensor([[-0.5], [1.5]], dtype=torch.float64).expand(2, columns)
    normalize = tf.Normalize(columns, bounds=bounds)
    warp = tf.Warp(columns, [0], bounds=torch.tensor([[0.0], [1.0]]).expand(2, columns).double())
    return {
        "normalize": normalize,
        "warp": warp,
        "chained": tf.ChainedInputTransform(first=normalize, second=warp),
    }


def outcome_transforms(outputs):
    return {
        "standardize": tf.Standardize(outputs),
        "log": tf.Log(),
        "chained": tf.ChainedOutcomeTransform(log=tf.Log(), standardize=tf.Standardize(outputs)),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_transforms(case, request):
    """Predictions at t-batches have gradients, and one transform more changes no shapes.

    In a usual run models take turns with the transforms that are part of the chained ones.
    """
    if case.on_grid:  # its outcome transforms have tests of their own
        return
    inputs, y = case.data()
    every = [
        *({"input_transform": t} for t in input_transforms(case.columns).values()),
        *({"outcome_transform": t} for t in outcome_transforms(1).values()),
    ]
    if not request.config.getoption("--all-foreign"):
        every = [every[2], every[5], every[(0, 1, 3, 4)[CASES.index(case) % 4]]]
    for options in every:
        try:
            model = case.make(inputs, y.abs() + 1, **options).eval()
        except REFUSALS as error:
            assert len(str(error).split()) > 4
            continue
        points = case.points(2, 3, 4).requires_grad_()
        posterior = model.posterior(points)
        mean = posterior.mean
        members = () if case.members is None else (case.members,)
        assert mean.shape == (2, 3, *members, 4, 1) and mean.isfinite().all()
        (gradient,) = torch.autograd.grad(mean.sum(), points)
        assert gradient.isfinite().all() and gradient.abs().max() > 0
        value = bo.qSimpleRegret(model, sampler(4))(points.detach())
        assert value.shape == (2, 3) and value.isfinite().all()
