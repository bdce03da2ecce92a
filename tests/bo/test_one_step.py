"""One real step of each kind of Bayesian optimisation: data, fit, acquisition, next points."""

import warnings

import pytest
import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    PosteriorMean,
    qKnowledgeGradient,
    qLogExpectedImprovement,
    qUpperConfidenceBound,
)
from botorch.acquisition.analytic import LogConstrainedExpectedImprovement
from botorch.acquisition.cost_aware import InverseCostWeightedUtility
from botorch.acquisition.knowledge_gradient import qMultiFidelityKnowledgeGradient
from botorch.acquisition.multi_objective import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.acquisition.utils import project_to_target_fidelity
from botorch.fit import fit_gpytorch_mll
from botorch.generation import gen_candidates_torch
from botorch.models import ModelListGP
from botorch.models.cost import AffineFidelityCostModel
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf, optimize_acqf_mixed
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.bo import coordinate_sweep_initial_conditions, fit_bo_model
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP

UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
PEAK = torch.tensor([0.7, 0.35], dtype=torch.float64)
FEW = {"fresh_starts": 1, "max_iterations": 8}


def objective(x):
    """Highest at PEAK, a sum over columns."""
    return -4 * (x - PEAK).square().sum(-1, keepdim=True)


def second(x):
    """In conflict with the objective: highest at the origin."""
    return -x.square().sum(-1, keepdim=True)


@pytest.fixture
def inputs():
    return torch.rand(10, 2)


def sampler(seed=0):
    return SobolQMCNormalSampler(torch.Size([32]), seed=seed)


def step(acquisition, incumbent, q=1, **options):
    """Next points; better than random ones and within the bounds."""
    options = {
        "num_restarts": 2,
        "raw_samples": 32,
        "ic_generator": coordinate_sweep_initial_conditions,
        "incumbent": incumbent,
        **options,
    }
    points, value = optimize_acqf(acquisition, UNIT, q=q, options={"maxiter": 10}, **options)
    assert points.shape == (q, 2) and value.isfinite().all()
    assert (points >= 0).all() and (points <= 1).all()
    with torch.no_grad():
        others = acquisition(torch.rand(32, q, 2))
        torch.testing.assert_close(acquisition(points), value.reshape(1), rtol=1e-4, atol=1e-6)
    assert value >= others.max() - 1e-2
    return points


@pytest.mark.parametrize("in_list", [False, True])
def test_several_objectives(in_list, inputs):
    y = torch.cat([objective(inputs), second(inputs)], -1)
    if in_list:
        model = ModelListGP(*(NKNSingleTaskGP(inputs, y[:, [i]]) for i in range(2)))
    else:
        model = NKNSingleTaskGP(inputs, y)
    fit_bo_model(model, **FEW)
    acquisition = qLogNoisyExpectedHypervolumeImprovement(
        model,
        ref_point=[-3.0, -2.0],
        X_baseline=inputs,
        sampler=sampler(),
        prune_baseline=True,
    )
    (point,) = step(acquisition, inputs[:2])
    # between the two peaks, where no other value is better in both
    assert (point < PEAK + 0.15).all()


@pytest.mark.parametrize("make", ["analytic", "samples"])
def test_constraint_on_an_outcome(make, inputs):
    y = torch.cat([objective(inputs), inputs[:, :1] - 0.5], -1)  # feasible left of 0.5
    model = fit_bo_model(NKNSingleTaskGP(inputs, y), **FEW)
    feasible = y[:, 1] <= 0
    best = y[feasible, 0].max()
    if make == "analytic":
        acquisition = LogConstrainedExpectedImprovement(
            model, best_f=best, objective_index=0, constraints={1: (None, 0.0)}
        )
    else:
        acquisition = qLogExpectedImprovement(
            model,
            best_f=best,
            sampler=sampler(),
            objective=GenericMCObjective(lambda samples, X=None: samples[..., 0]),
            constraints=[lambda samples: samples[..., 1]],
        )
    (point,) = step(acquisition, inputs[feasible][y[feasible, 0].argmax()])
    assert point[0] < 0.6


def test_four_points_jointly(inputs):
    y = objective(inputs)
    model = NKNSingleTaskGP(inputs, y, input_transform=Normalize(2))
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model),
        optimizer_kwargs={"options": {"maxiter": 8}},
        warning_handler=lambda w: True,
    )
    acquisition = qLogExpectedImprovement(model, best_f=y.max(), sampler=sampler())
    points = step(acquisition, inputs[y.argmax()], q=4)
    assert torch.pdist(points).min() > 1e-3
    ahead = qLogExpectedImprovement(model, best_f=y.max(), sampler=sampler())
    ahead.set_X_pending(points[:3])
    assert torch.isfinite(ahead(points[3:])).all()


def test_points_one_after_another(inputs):
    y = objective(inputs)
    model = fit_bo_model(NKNSingleTaskGP(inputs, y), **FEW)
    acquisition = qLogExpectedImprovement(model, best_f=y.max(), sampler=sampler())
    points, values = optimize_acqf(
        acquisition,
        UNIT,
        q=2,
        num_restarts=2,
        raw_samples=16,
        sequential=True,
        options={"maxiter": 10},
        ic_generator=coordinate_sweep_initial_conditions,
        incumbent=inputs[y.argmax()],
    )
    assert points.shape == (2, 2) and values.shape == (2,) and acquisition.X_pending is None
    assert (points[0] - points[1]).norm() > 1e-3


def test_knowledge_gradient(inputs):
    y = objective(inputs)
    model = fit_bo_model(NKNSingleTaskGP(inputs, y), **FEW)
    acquisition = qKnowledgeGradient(model, num_fantasies=4)
    points, value = optimize_acqf(
        acquisition, UNIT, q=1, num_restarts=1, raw_samples=8, options={"maxiter": 4}
    )
    assert points.shape == (1, 2) and value.isfinite()
    assert (points >= 0).all() and (points <= 1).all()
    now = PosteriorMean(model)(torch.rand(64, 1, 2)).max()
    assert value > now - 0.2  # to know more does not lower the best mean that is expected


class CostPerMember(InverseCostWeightedUtility):
    """That of the page on BoTorch, for ensembles."""

    def forward(self, X, deltas, **kwargs):
        return super().forward(X.unsqueeze(-3), deltas, **kwargs)


@pytest.mark.parametrize("averaged", [False, True])
def test_gains_at_fidelities_go_by_their_costs(averaged, inputs):
    x, y = inputs, objective(inputs)
    model = (
        StructureEnsembleGP(x, y, structures=("rbf", "optimization"), num_members=3).eval()
        if averaged
        else NKNSingleTaskGP(x, y).eval()
    )
    utility = CostPerMember if averaged else InverseCostWeightedUtility
    acquisition = qMultiFidelityKnowledgeGradient(
        model,
        num_fantasies=2,
        current_value=torch.tensor(-10.0),  # below all means: gains are positive
        cost_aware_utility=utility(AffineFidelityCostModel({1: 1.0}, fixed_cost=0.2)),
        project=lambda X: project_to_target_fidelity(X, target_fidelities={1: 1.0}, d=2),
    )
    points = torch.rand(3, 3, 2)  # as many as members; one candidate, two for the fantasies
    together, alone = acquisition(points), [acquisition(point[None]) for point in points]
    torch.testing.assert_close(together, torch.cat(alone))
    acquisition.cost_aware_utility = None
    cost = 0.2 + points[:, 0, 1]
    torch.testing.assert_close(together, acquisition(points) / cost)


def test_a_context_stays_as_it_is(inputs):
    model = fit_bo_model(NKNSingleTaskGP(inputs, objective(inputs)), **FEW)
    acquisition = LogExpectedImprovement(model, best_f=objective(inputs).max())
    options = {"q": 1, "num_restarts": 2, "raw_samples": 8}
    point, _ = optimize_acqf(acquisition, UNIT, fixed_features={1: 0.125}, **options)
    assert point[0, 1] == 0.125


def total(samples, X=None):
    return samples.sum(-1)


def test_models_of_different_data_and_batches(inputs):
    """A batch of two models beside one model of fewer data: a next point for each of the batch."""
    moved = 1 - inputs
    batched = NKNSingleTaskGP(
        torch.stack([inputs, moved]), torch.stack([objective(inputs), objective(inputs)])
    )
    single = NKNSingleTaskGP(inputs[:7], second(inputs[:7]), structure="additive")
    model = fit_bo_model(ModelListGP(batched, single), **FEW)
    at = torch.rand(3, 2, 4, 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Component models .* different batch shapes")
        assert model.batch_shape == (2,)
        posterior = model.posterior(at)
        assert posterior.mean.shape == (3, 2, 4, 2)
        torch.testing.assert_close(posterior.mean[..., 1:], single.posterior(at).mean)
        torch.testing.assert_close(posterior.mean[..., :1], batched.posterior(at).mean)
        acquisition = qUpperConfidenceBound(
            model, beta=0.1, sampler=sampler(), objective=GenericMCObjective(total)
        )
        starts = torch.full((2, 1, 2), 0.5)
        # not the one by SciPy, which leaves single entries of the batch out when they are done
        points, values = gen_candidates_torch(
            starts,
            acquisition,
            lower_bounds=0.0,
            upper_bounds=1.0,
            options={"stopping_criterion_options": {"maxiter": 40}},
        )
        assert (values > acquisition(starts)).all()
    # the same function seen from the other corner: second() pulls both to the origin
    best = torch.stack([PEAK, 1 - PEAK])
    assert points.shape == (2, 1, 2) and (points.squeeze(1) < best + 0.1).all()
    assert (points[0] - points[1]).abs().max() > 0.05


def test_mixed_space():
    x = torch.rand(12, 2)
    x[:, 1] = (3 * x[:, 1]).floor() / 2  # 0, 0.5 or 1
    y = -4 * (x[:, :1] - 0.7).square() - (x[:, 1:] - 0.5).abs()
    model = fit_bo_model(NKNSingleTaskGP(x, y), **FEW)
    point, value = optimize_acqf_mixed(
        LogExpectedImprovement(model, best_f=y.max()),
        UNIT,
        q=1,
        num_restarts=2,
        raw_samples=16,
        fixed_features_list=[{1: 0.0}, {-1: 0.5}, {1: 1.0}],
        options={"maxiter": 10},
        ic_generator=coordinate_sweep_initial_conditions,
        ic_gen_kwargs={"incumbent": x[y.argmax()]},
    )
    assert point.shape == (1, 2) and value.isfinite()
    assert point[0, 1] in (0.0, 0.5, 1.0) and 0 <= point[0, 0] <= 1
