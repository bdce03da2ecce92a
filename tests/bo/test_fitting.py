import warnings
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from botorch.cross_validation import loo_cv
from botorch.models import HigherOrderGP, ModelListGP, SingleTaskGP, SingleTaskMultiFidelityGP
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.transforms import Normalize, Warp
from gpytorch.kernels import MaternKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.priors import GammaPrior

from gpytorch_nkn.bo import fit_bo_model, fitting
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP
from tests.models.small_models import structure_of

FEW = {"max_iterations": 4}


def data(m=1, n=10, d=2):
    x = torch.rand(n, d)
    y = torch.stack([torch.sin(6 * x[:, 0] + 2 * k) + (k + 1) * x[:, -1] for k in range(m)], -1)
    return x, y + 0.05 * torch.randn(n, m)


def log_posterior(model):
    """Log density of data and parameters, summed over outputs."""
    copy = deepcopy(model).train()
    with torch.no_grad():
        density = copy.likelihood(copy(*copy.train_inputs)).log_prob(copy.train_targets).sum()
        priors = (p.log_prob(get(m)).sum() for _, m, p, get, _ in copy.named_priors())
        return density + sum(priors)


def parameters_of(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def differ(first, second):
    return {name for name in first if not torch.equal(first[name], second[name])}


@pytest.fixture
def fits(monkeypatch):
    """Models, start values (by number of the start) and results of every call of fit_best_of."""
    calls = []
    original = fitting.fit_best_of

    def spy(model, *, initialize, **options):
        starts = {}

        def recorded(candidate, seed, number):
            initialize(candidate, seed, number)
            starts[number] = parameters_of(candidate)

        call = SimpleNamespace(model=model, options=options, starts=starts, result=None)
        calls.append(call)
        call.result = original(model, initialize=recorded, **options)
        return call.result

    monkeypatch.setattr(fitting, "fit_best_of", spy)
    return calls


# a preset, one without priors, and a network of one's own
@pytest.mark.parametrize("structure", ["optimization", "paper", "network"])
def test_best_of_several_starts(structure, fits):
    x, y = data()
    model = NKNSingleTaskGP(x, y, structure=structure_of(structure, x.size(-1)))
    before = log_posterior(model)
    if structure == "optimization":
        one = fit_bo_model(deepcopy(model), fresh_starts=0, **FEW)
    assert fit_bo_model(model, fresh_starts=1, **FEW) is model
    assert not model.training
    result = fits[-1].result
    assert [record.status for record in result.restarts] == ["ok"] * 2
    losses = [record.loss for record in result.restarts]
    assert losses[0] < -before - 0.1
    assert len({round(loss, 6) for loss in losses}) > 1
    torch.testing.assert_close(-log_posterior(model), torch.tensor(min(losses)))
    if structure == "optimization":
        assert losses[0] == pytest.approx(fits[0].result.restarts[0].loss, rel=1e-9)
        assert log_posterior(model) >= log_posterior(one) - 1e-9


def test_first_start_is_that_of_the_last_model(fits):
    x, y = data(m=2, n=12)
    last = fit_bo_model(NKNSingleTaskGP(x[:9], y[:9]), fresh_starts=0, **FEW)
    learned = parameters_of(last)
    fits.clear()
    model, started = NKNSingleTaskGP(x, y), NKNSingleTaskGP(x, y)
    for new in (model, started):
        new.load_state_dict(last.state_dict())
    fit_bo_model(model, fresh_starts=1, **FEW)
    assert len(fits) == 2
    for output, call in enumerate(fits):
        for name, start in call.starts[0].items():
            assert torch.equal(start, learned[name][output]), name
        assert differ(call.starts[1], call.starts[0])
    assert differ(parameters_of(last), learned) == set()
    assert log_posterior(model) >= log_posterior(started) - 1e-9


@pytest.mark.parametrize("make", [SingleTaskGP, NKNSingleTaskGP])
def test_each_output_is_trained_as_a_model_of_its_own(make):
    x, y = data(m=2)
    x = 4 * x - 1
    model = make(x, y, input_transform=Normalize(2))
    model.posterior(x)  # its inputs are now the transformed ones
    options = FEW | {"fresh_starts": 1}
    fit_bo_model(model, **options)
    single = fit_bo_model(make(x, y[:, [1]], input_transform=Normalize(2)), **options)
    for name, parameter in single.named_parameters():
        torch.testing.assert_close(model.get_parameter(name)[1], parameter)
    at = torch.rand(4, 2)
    torch.testing.assert_close(model.posterior(at).mean[:, [1]], single.posterior(at).mean)


TWO_PRIORS = GammaPrior(torch.tensor([3.0, 30.0]).view(2, 1, 1), torch.full((2, 1, 1), 6.0))
JOINT = {
    "learned transform": lambda x, y: NKNSingleTaskGP(
        x, y, input_transform=Warp(d=2, indices=[0, 1])
    ),
    "noise and mean in common": lambda x, y: NKNSingleTaskGP(
        x, y, likelihood=GaussianLikelihood(), mean_module=ConstantMean()
    ),
    "linear mean in BoTorch": lambda x, y: SingleTaskGP(
        x, y, mean_module=LinearMean(2, batch_shape=torch.Size([2]))
    ),
    "kernel that BoTorch does not know": lambda x, y: SingleTaskGP(
        x, y, covar_module=MaternKernel(batch_shape=torch.Size([2]))
    ),
    "priors by output": lambda x, y: NKNSingleTaskGP(
        x, y, structure=MaternKernel(batch_shape=torch.Size([2]), lengthscale_prior=TWO_PRIORS)
    ),
    "batch of data": lambda x, y: NKNSingleTaskGP(x.expand(2, 10, 2), torch.stack([y, y.flip(-1)])),
}


@pytest.mark.parametrize("kind", JOINT)
def test_outputs_that_share_parameters_are_trained_together(kind, fits):
    model = JOINT[kind](*data(m=2))
    before, start = parameters_of(model), log_posterior(model)
    fit_bo_model(model, fresh_starts=1, **FEW)
    (call,) = fits
    assert call.model is model
    assert [record.status for record in call.result.restarts] == ["ok", "ok"]
    assert differ(parameters_of(model), before) == set(before)
    assert log_posterior(model) > start + 0.1
    assert model.posterior(torch.rand(3, 2)).mean.isfinite().all()


def make_list(x, y):
    return ModelListGP(
        NKNSingleTaskGP(x, y[:, :2]),
        SingleTaskGP(x[:6], y[:6, 2:], covar_module=MaternKernel(nu=2.5)),
    )


def test_list_of_models(fits):
    x, y = data(m=3)
    last = fit_bo_model(make_list(x, y), fresh_starts=0, **FEW)
    fits.clear()
    model = make_list(x, y)
    model.load_state_dict(last.state_dict())
    fit_bo_model(model, fresh_starts=1, **FEW)
    assert len(fits) == 3 and not any(part.training for part in model.models)
    learned = parameters_of(last)
    for number, call in enumerate(fits):
        prefix = "models.0." if number < 2 else "models.1."
        for name, start in call.starts[0].items():
            old = learned[prefix + name]
            assert torch.equal(start, old[number] if number < 2 else old)
    alone = make_list(x, y).models[1]
    alone.load_state_dict(last.models[1].state_dict())
    fit_bo_model(alone, fresh_starts=1, **FEW)
    assert differ(parameters_of(alone), parameters_of(model.models[1])) == set()
    assert model.posterior(x).mean.shape == (10, 3)
    for parameter in model.models[0].parameters():
        parameter.requires_grad_(False)
    learned, start = parameters_of(model), log_posterior(model.models[1])
    fit_bo_model(model, fresh_starts=0, **FEW)
    assert not any(name.startswith("models.0") for name in differ(parameters_of(model), learned))
    assert log_posterior(model.models[1]) > start


def test_known_noise():
    x, y = data(m=2)
    noise = torch.full_like(y, 0.01)
    model = NKNSingleTaskGP(x, y, noise)
    before = log_posterior(model)
    known = model.likelihood.noise.clone()
    fit_bo_model(model, fresh_starts=1, **FEW)
    assert log_posterior(model) > before + 0.1
    assert torch.equal(model.likelihood.noise, known)


ODD = {
    "one point": lambda x, y: NKNSingleTaskGP(x[:1], y[:1]),
    "constant targets": lambda x, y: NKNSingleTaskGP(x, torch.full_like(y, 3.0)),
    "constant targets in BoTorch": lambda x, y: SingleTaskGP(x, torch.full_like(y, 3.0)),
    "constant inputs": lambda x, y: NKNSingleTaskGP(torch.full_like(x, 0.5), y),
    "twice the same inputs": lambda x, y: NKNSingleTaskGP(x[:3].repeat(2, 1), y),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_data(kind, fits):
    x, y = data(n=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inputs that are not scaled
        model = fit_bo_model(ODD[kind](x, y), fresh_starts=1, **FEW)
    assert [record.status for record in fits[0].result.restarts] == ["ok"] * 2
    posterior = model.posterior(torch.rand(5, 2))
    assert posterior.mean.isfinite().all() and (posterior.variance > 0).all()
    low, high = min(y.min(), 3) - 1, max(y.max(), 3) + 1
    assert (posterior.mean > low).all() and (posterior.mean < high).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fresh_starts": -1}, "fresh_starts must be at least 0, got -1"),
        ({"max_iterations": 0}, "max_iterations must be at least 1, got 0"),
    ],
)
def test_options_without_meaning(options, message):
    with pytest.raises(ValueError, match=message):
        fit_bo_model(NKNSingleTaskGP(*data()), **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (StructureEnsembleGP, "must not be an ensemble, got StructureEnsembleGP"),
        (EnsembleMapSaasSingleTaskGP, "got EnsembleMapSaasSingleTaskGP: fit_gpytorch_mll"),
        (HigherOrderGP, "have a covar_module, got HigherOrderGP"),
    ],
)
def test_other_models_are_sent_elsewhere(make, message):
    with pytest.raises(TypeError, match=message):
        fit_bo_model(make(*data()))


def test_multi_fidelity_models_are_trained():
    x, y = data()
    model = SingleTaskMultiFidelityGP(x, y, data_fidelities=[x.size(-1) - 1])
    before = log_posterior(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # of a start that failed
        fit_bo_model(model, max_iterations=5)
    assert log_posterior(model) > before


def test_a_model_that_loo_cv_takes_for_an_ensemble_is_trained_as_a_batch():
    x = torch.rand(8, 2).double().repeat(2, 1, 1)
    model = NKNSingleTaskGP(x, x.sin().sum(-1, keepdim=True), structure="additive")
    model._is_ensemble = True
    fit_bo_model(model, fresh_starts=0, max_iterations=2)
    assert loo_cv(model).posterior.mean.isfinite().all()
