"""Steps of Bayesian optimisation not in tests/test_real_loops.py: fidelities, batches."""

import warnings

import pytest
import torch
from botorch.acquisition.cost_aware import InverseCostWeightedUtility
from botorch.acquisition.knowledge_gradient import qMultiFidelityKnowledgeGradient
from botorch.acquisition.utils import project_to_target_fidelity
from botorch.models import ModelListGP
from botorch.models.cost import AffineFidelityCostModel

from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP

PEAK = torch.tensor([0.7, 0.35], dtype=torch.float64)


def objective(x):
    """Highest at PEAK, a sum over columns."""
    return -4 * (x - PEAK).square().sum(-1, keepdim=True)


@pytest.fixture
def inputs():
    return torch.rand(10, 2)


class CostPerMember(InverseCostWeightedUtility):
    """The utility of the page on BoTorch, for ensembles."""

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


def test_models_of_different_data_and_batches(inputs):
    """A batch of two models beside a single one."""
    moved = 1 - inputs
    batched = NKNSingleTaskGP(
        torch.stack([inputs, moved]), torch.stack([objective(inputs), objective(inputs)])
    )
    single = NKNSingleTaskGP(inputs[:7], objective(inputs[:7]), structure="additive")
    model = fit_bo_model(ModelListGP(batched, single), fresh_starts=1, max_iterations=4)
    at = torch.rand(3, 2, 4, 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Component models .* different batch shapes")
        assert model.batch_shape == (2,)
        mean = model.posterior(at).mean
    assert mean.shape == (3, 2, 4, 2)
    torch.testing.assert_close(mean[..., 1:], single.posterior(at).mean)
    torch.testing.assert_close(mean[..., :1], batched.posterior(at).mean)
    alone = NKNSingleTaskGP(moved, objective(inputs))
    with torch.no_grad():
        for name, parameter in alone.named_parameters():
            parameter.copy_(batched.get_parameter(name)[1])
    at = torch.rand(2, 4, 2)
    torch.testing.assert_close(alone.posterior(at[1]).mean, batched.posterior(at).mean[1])
