"""Joint posteriors at training points, with targets of large scales."""

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.models import ModelListGP
from botorch.sampling import SobolQMCNormalSampler

from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP


def constrained_improvement(cls, x):
    targets = -(x - 0.4).square().sum(-1), 1e9 * (x.sin().sum(-1) - 0.5)
    return qLogNoisyExpectedImprovement(
        ModelListGP(*(cls(x, y[:, None]) for y in targets)),
        x,
        sampler=SobolQMCNormalSampler(torch.Size([16]), seed=0),
        objective=GenericMCObjective(lambda values, X=None: values[..., 0]),
        constraints=[lambda values: -values[..., 1]],
    )


@pytest.mark.parametrize("cls", [NKNSingleTaskGP, StructureEnsembleGP])
def test_a_training_point_in_a_batch_does_not_change_the_values_of_the_others(cls):
    torch.manual_seed(0)
    x = torch.rand(12, 3).double()
    best = x[(x - 0.4).square().sum(-1).argmin()]
    others = torch.rand(3, 1, 3).double()
    batch = torch.cat([best.expand(1, 1, 3), others]).requires_grad_()
    acquisition = constrained_improvement(cls, x)
    found = acquisition(batch)
    torch.testing.assert_close(found[1:], acquisition(others))
    (gradient,) = torch.autograd.grad(found.sum(), batch)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("cls, number", [(NKNSingleTaskGP, 600), (StructureEnsembleGP, 4)])
def test_joint_variances_match_single_points_and_the_jitter(cls, number):
    torch.manual_seed(0)
    x, points = torch.rand(8, 3).double(), torch.rand(number, 3).double()
    model = cls(x, 1e3 * x.sin().sum(-1, keepdim=True))
    together = model.posterior(points).distribution
    alone = model.posterior(points.unsqueeze(-2)).distribution.variance.squeeze(-1)
    alone = alone if alone.dim() == 1 else alone.mT
    jitter = 1e-8 * 1e6 * x.sin().sum(-1).var()
    torch.testing.assert_close(together.variance - alone, jitter.expand_as(alone))
    torch.testing.assert_close(
        together.covariance_matrix.diagonal(dim1=-2, dim2=-1), together.variance
    )
