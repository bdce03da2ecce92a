"""What acquisition functions are told of ensembles."""

import pytest
import torch
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from botorch.acquisition import LogExpectedImprovement, qKnowledgeGradient
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models import ModelListGP, SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler

from gpytorch_nkn.ax import EnsembleAcquisition
from gpytorch_nkn.models import StructureEnsembleGP
from tests.ax.clients import BRIEF, generator, make_client, run_trials


@pytest.mark.parametrize(
    "acqf_class, options, draws",
    [
        (qLogNoisyExpectedImprovement, {}, 512 // 8),
        (qLogNoisyExpectedHypervolumeImprovement, {}, 128 // 8),
        (qLogNoisyExpectedHypervolumeImprovement, {"mc_samples": 4}, None),
        (qLogNoisyExpectedImprovement, {"sampler": SobolQMCNormalSampler(torch.Size([5]))}, 5),
        (qKnowledgeGradient, {"num_fantasies": 2}, None),
        (LogExpectedImprovement, {}, None),
    ],
)
def test_an_ensemble_gets_as_many_draws_as_one_model(acqf_class, options, draws, monkeypatch):
    """What our class adds to the options, which Ax's own then takes."""
    monkeypatch.setattr(
        Acquisition, "_construct_botorch_acquisition", lambda self, kind, options, model: options
    )
    x = torch.rand(6, 2, dtype=torch.float64)
    ensemble = StructureEnsembleGP(x, x[:, :1])
    acquisition = EnsembleAcquisition.__new__(EnsembleAcquisition)
    acquisition._objective_weights, acquisition._outcome_constraints = torch.ones(1, 2), None
    for model in (ensemble, ModelListGP(ensemble, ensemble)):
        found = dict(acquisition._construct_botorch_acquisition(acqf_class, options, model))
        sampler = found.pop("sampler", None)
        assert (None if sampler is None else sampler.sample_shape.numel()) == draws
        assert found == {k: v for k, v in options.items() if k != "sampler"}
    single = ModelListGP(ensemble, SingleTaskGP(x, x[:, :1]))
    assert acquisition._construct_botorch_acquisition(acqf_class, options, single) is options


@pytest.mark.parametrize("objective, is_maximized", [("-loss", False), ("loss", True)])
def test_averaged_structures_know_what_is_minimised(few_steps, objective, is_maximized):
    client = make_client(
        objective, initialization_trials=4, structure="averaged", optimizer_options=BRIEF
    )
    run_trials(client, 5)
    model = generator(client)._acquisition.acqf.model
    y = model.common_data()[1]
    assert model.maximize is is_maximized and model.is_warped.any()
    best = y.max() if is_maximized else y.min()
    torch.testing.assert_close(model.warps[model.is_warped, -1], best.expand(2).to(model.warps))
