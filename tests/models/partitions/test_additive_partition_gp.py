import io
import math
import pickle
import warnings
from copy import deepcopy

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions import InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.models import AdditivePartitionGP, fit_additive_partition_gp
from gpytorch_nkn.models.partitions.partition_evidence import PartitionEvidence
from tests.models.partitions.every_partition import all_partitions

KERNELS = ("rbf", "matern", "nkn")
BOUNDS = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)


def function(x):
    return (torch.sin(5 * x[..., :1] * x[..., 2:]) + torch.cos(4 * x[..., 1:2])) * 3 + 7


def draw(n=20, seed=0):
    x = torch.rand(n, 3, generator=torch.Generator().manual_seed(seed))
    return x, function(x)


def fitted(kernel="rbf", *, num_samples=4, n=20, **options):
    x, y = draw(n)
    model = AdditivePartitionGP(x, y, kernel=kernel, num_samples=num_samples)
    options = {"num_steps": 8, "warmup": 0, "max_iter": 10, **options}
    return fit_additive_partition_gp(model, **options)


def rough():
    """Few points of a function without groups: many partitions are likely, and they disagree."""
    x, y = draw(10, seed=5)
    return x, y + torch.sin(9 * x[:, :1] + 7 * x[:, 1:2] * x[:, 2:])


@pytest.fixture(scope="module")
def shared():
    """A fitted model whose members differ; not to be changed."""
    x, y = rough()
    model = AdditivePartitionGP(x, y, num_samples=4)
    fit_additive_partition_gp(model, num_steps=8, warmup=0, max_iter=10, seed=1)
    assert len(set(model.covar_module.partitions)) > 2
    return model


def dense_posterior(model, member, x):
    """Mean and covariance of one member in the units of the data, by dense algebra."""
    train, targets = model.train_inputs[0][0], model.train_targets[0]
    kernel, noise = model.covar_module[member], model.likelihood.noise[member]
    mean = model.mean_module.constant[member]
    inverse = torch.linalg.inv(kernel(train).to_dense() + noise * torch.eye(len(train)))
    cross = kernel(x, train).to_dense()
    mu = mean + cross @ inverse @ (targets - mean)
    covariance = kernel(x).to_dense() - cross @ inverse @ cross.T
    if not hasattr(model, "outcome_transform"):
        return mu, covariance
    scale, shift = model.outcome_transform.stdvs.squeeze(), model.outcome_transform.means.squeeze()
    return shift + scale * mu, scale**2 * covariance


@pytest.mark.parametrize("kernel", KERNELS)
def test_members_equal_dense_computations(kernel):
    model, x = fitted(kernel), torch.rand(5, 3)
    posterior = model.posterior(x)
    assert isinstance(posterior, GaussianMixturePosterior)
    assert posterior.mean.shape == posterior.variance.shape == (4, 5, 1)
    noisy = model.posterior(x, observation_noise=True).variance
    for member in range(4):
        mean, covariance = dense_posterior(model, member, x)
        close = {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(posterior.mean[member, :, 0], mean, **close)
        actual = posterior.distribution.covariance_matrix[member]
        torch.testing.assert_close(actual, covariance, rtol=1e-4, atol=1e-5)
        added = (noisy - posterior.variance)[member]
        noise = model.likelihood.noise[member] * model.outcome_transform.stdvs.squeeze() ** 2
        torch.testing.assert_close(added, noise.expand(5, 1), rtol=1e-4, atol=1e-6)


def test_moments_of_the_mixture(shared):
    x = torch.rand(5, 3)
    posterior = shared.posterior(x)
    moments = [dense_posterior(shared, member, x) for member in range(4)]
    mean = torch.stack([m for m, _ in moments]).mean(0)
    second = torch.stack([c.diagonal() + m.square() for m, c in moments]).mean(0)
    torch.testing.assert_close(posterior.mixture_mean.squeeze(-1), mean, rtol=1e-6, atol=1e-6)
    variance = second - mean.square()
    torch.testing.assert_close(
        posterior.mixture_variance.squeeze(-1), variance, rtol=1e-4, atol=1e-5
    )
    within = posterior.variance.mean(0).squeeze(-1)
    assert (variance > 1.1 * within).any()  # members disagree somewhere


@pytest.mark.parametrize("kernel", KERNELS)
def test_before_the_fit_every_column_is_on_its_own(kernel):
    x, y = draw()
    model = AdditivePartitionGP(x, y, kernel=kernel, num_samples=2)
    assert model.partitions == {} and model.covar_module.partitions == [((0,), (1,), (2,))] * 2
    assert model.posterior(x).mean.shape == (2, 20, 1)
    with pytest.raises(RuntimeError, match="call fit_additive_partition_gp"):
        model.co_occurrence  # noqa: B018


@pytest.mark.parametrize("kernel", KERNELS)
def test_true_groups_are_found_from_singletons_and_from_one_group(kernel):
    x, y = draw(30)
    for start in (None, [(0, 1, 2)]):
        model = AdditivePartitionGP(x, y, kernel=kernel)
        fit_additive_partition_gp(model, num_steps=30, warmup=20, start=start, max_iter=20)
        assert next(iter(model.partitions)) == ((0, 2), (1,))
        assert sum(model.partitions.values()) == 30
        assert model.co_occurrence[0, 2] > 0.9 > 0.3 > model.co_occurrence[0, 1]


def test_predictions_are_better_than_those_of_one_kernel_on_all_columns():
    x, y = draw(30)
    model = AdditivePartitionGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    peer = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(peer.likelihood, peer))
    test_x = torch.rand(200, 3)
    errors = [
        (mean - function(test_x)).square().mean().sqrt()
        for mean in (model.posterior(test_x).mixture_mean, peer.posterior(test_x).mean)
    ]
    assert errors[0] < 0.8 * errors[1]


def test_members_are_states_of_the_chain_at_equal_distances(shared):
    states = shared.sample.states()
    assert len(states) == 8 and int(shared.sample.num_steps) == 8
    assert shared.covar_module.partitions == [states[i] for i in (7, 5, 3, 1)]
    counts = {partition: states.count(partition) for partition in states}
    assert shared.partitions == counts
    assert list(shared.partitions.values()) == sorted(counts.values(), reverse=True)
    share = sum(any({0, 2} <= set(g) for g in p) for p in states) / 8
    assert shared.co_occurrence[0, 2] == shared.co_occurrence[2, 0] == share
    assert torch.equal(shared.co_occurrence.diagonal(), torch.ones(3))


def only(partition):
    """Log prior under which no proposal is accepted."""
    return lambda p: 0.0 if p == partition else -math.inf


@pytest.mark.parametrize("kernel", KERNELS)
def test_members_have_the_hyperparameters_of_the_best_evidence(kernel):
    start = ((0, 2), (1,))
    model = fitted(kernel, start=start, log_prior=only(start), num_steps=1)
    evidence = PartitionEvidence(
        model.train_inputs[0][0], model.train_targets[0], kernel=kernel, max_iter=10
    )
    evidence.log_evidence(start)
    best = evidence.hyperparameters(start)
    for member in range(4):
        torch.testing.assert_close(model.covar_module.lengthscale[member, 0], best.lengthscale)
        torch.testing.assert_close(model.covar_module.outputscale[member, :2], best.outputscale)
        torch.testing.assert_close(model.covar_module.shape_parameters[member, :2], best.shape)
        assert model.likelihood.noise[member].item() == pytest.approx(best.noise)
        assert model.mean_module.constant[member].item() == pytest.approx(best.mean)


def test_every_member_has_the_hyperparameters_of_its_own_partition(monkeypatch):
    fits, original = {}, PartitionEvidence.hyperparameters

    def record(self, partition):
        return fits.setdefault(partition, original(self, partition))

    monkeypatch.setattr(PartitionEvidence, "hyperparameters", record)
    model = AdditivePartitionGP(*rough(), num_samples=4)
    fit_additive_partition_gp(model, num_steps=8, warmup=0, max_iter=10, seed=1)
    kernel = model.covar_module
    assert len(fits) > 2 and set(fits) == set(kernel.partitions)
    for member, partition in enumerate(kernel.partitions):
        torch.testing.assert_close(kernel.lengthscale[member, 0], fits[partition].lengthscale)
        scale = kernel.outputscale[member, : len(partition)]
        torch.testing.assert_close(scale, fits[partition].outputscale)
        assert model.likelihood.noise[member].item() == pytest.approx(fits[partition].noise)
        assert model.mean_module.constant[member].item() == pytest.approx(fits[partition].mean)


def test_a_fit_forgets_what_was_computed_before():
    model, x = AdditivePartitionGP(*draw(), num_samples=4), torch.rand(5, 3)
    before = model.posterior(x).mean
    fit_additive_partition_gp(model, num_steps=8, warmup=0, max_iter=10)
    torch.testing.assert_close(model.posterior(x).mean, fitted().posterior(x).mean)
    assert (model.posterior(x).mean - before).abs().max() > 0.01


def test_a_chain_goes_on_where_the_previous_one_ended(shared):
    x, y = draw(12)
    model = AdditivePartitionGP(x, y, num_samples=3)
    asked = []

    def log_prior(partition):
        asked.append(partition)
        return 0.0

    fit_additive_partition_gp(model, num_steps=5, previous=shared, log_prior=log_prior)
    assert asked[0] == shared.sample.states()[-1]
    assert int(model.sample.num_steps) == 13 and sum(model.partitions.values()) == 5
    again = AdditivePartitionGP(x, y, num_samples=3)
    fit_additive_partition_gp(again, num_steps=5, previous=shared)
    assert again.sample.states() == model.sample.states()
    fit_additive_partition_gp(again, num_steps=5, previous=again)  # in place
    assert int(again.sample.num_steps) == 18


def test_a_chain_that_goes_on_makes_other_proposals_with_the_same_seed():
    start, model, proposals = ((0, 2), (1,)), None, []
    for _ in range(2):
        asked = []

        def stay(partition, asked=asked):
            asked.append(partition)
            return only(start)(partition)

        options = {"num_steps": 20, "max_iter": 1, "log_prior": stay}
        new = AdditivePartitionGP(*draw(8))
        model = fit_additive_partition_gp(new, start=start, previous=model, warmup=0, **options)
        proposals.append(asked)
    assert model.partitions == {start: 20} and proposals[0] != proposals[1]


def test_continuing_starts_from_the_hyperparameters_of_the_members(shared, monkeypatch):
    starts = {}
    original = PartitionEvidence.add_start

    def record(self, partition, hyperparameters):
        starts[partition] = hyperparameters
        original(self, partition, hyperparameters)

    monkeypatch.setattr(PartitionEvidence, "add_start", record)
    fit_additive_partition_gp(AdditivePartitionGP(*draw()), num_steps=1, previous=shared)
    assert set(starts) == set(shared.covar_module.partitions)
    last = starts[shared.covar_module.partitions[0]]
    torch.testing.assert_close(last.lengthscale, shared.covar_module.lengthscale[0, 0].detach())
    assert len(last.outputscale) == len(shared.covar_module.partitions[0])
    assert last.noise == pytest.approx(shared.likelihood.noise[0].item())


def test_warm_up_steps_are_not_kept():
    model = fitted(num_steps=3, warmup=5)
    assert sum(model.partitions.values()) == 3 and int(model.sample.num_steps) == 8
    whole = fitted(num_steps=8, warmup=0)
    assert model.sample.states() == whole.sample.states()[5:]


def test_prior_of_partitions_and_start():
    def at_most_two_columns(partition):
        return 0.0 if max(map(len, partition)) <= 2 else -math.inf

    model = fitted(num_steps=40, log_prior=at_most_two_columns, start=[[2, 1], [0]])
    assert all(len(group) <= 2 for partition in model.partitions for group in partition)
    certain = fitted(num_steps=5, start=[[2, 1], [0]], log_prior=lambda p: -100.0 * (len(p) != 2))
    assert all(len(partition) == 2 for partition in certain.partitions)
    with pytest.raises(RuntimeError, match=r"\(\(0, 1, 2\),\) .*log_prior excludes it"):
        fitted(log_prior=at_most_two_columns, start=[[0, 1, 2]])


def interrupt_after(count):
    def log_prior(partition, calls=[]):  # noqa: B006
        calls.append(partition)
        if len(calls) > count:
            raise KeyboardInterrupt
        return 0.0

    return log_prior


def test_an_interruption_keeps_what_was_sampled():
    model = AdditivePartitionGP(*draw(), num_samples=4)
    with pytest.warns(UserWarning, match=r"Interrupted after \d+ of 1000 steps"):
        fit_additive_partition_gp(model, num_steps=1000, warmup=0, log_prior=interrupt_after(6))
    states = model.sample.states()
    assert 0 < len(states) < 1000 and int(model.sample.num_steps) == len(states)
    whole = AdditivePartitionGP(*draw(), num_samples=4)
    fit_additive_partition_gp(whole, num_steps=len(states), warmup=0)
    assert whole.sample.states() == states
    torch.testing.assert_close(whole.posterior(BOUNDS).mean, model.posterior(BOUNDS).mean)


def test_an_interruption_in_the_warm_up_keeps_the_last_state():
    model = AdditivePartitionGP(*draw(), num_samples=4)
    with pytest.warns(UserWarning, match="Interrupted"):
        fit_additive_partition_gp(model, num_steps=5, warmup=1000, log_prior=interrupt_after(6))
    assert sum(model.partitions.values()) == 1 and len(set(model.covar_module.partitions)) == 1


def test_an_interruption_before_the_first_evidence_changes_nothing():
    model = AdditivePartitionGP(*draw(), num_samples=4)
    before = deepcopy(model.state_dict())
    with pytest.raises(KeyboardInterrupt):
        fit_additive_partition_gp(model, log_prior=interrupt_after(0))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_transforms_and_units_do_not_matter():
    x, y = draw()
    plain = fitted()
    scaled = AdditivePartitionGP(
        10 * x - 4, 100 * y, num_samples=4, input_transform=Normalize(3, bounds=10 * BOUNDS - 4)
    )
    fit_additive_partition_gp(scaled, num_steps=8, warmup=0, max_iter=10)
    test_x = torch.rand(4, 3)
    assert scaled.covar_module.partitions == plain.covar_module.partitions
    expected = 100 * plain.posterior(test_x).mean
    torch.testing.assert_close(
        scaled.posterior(10 * test_x - 4).mean, expected, rtol=1e-3, atol=0.1
    )
    standardised = (y - y.mean()) / y.std()
    bare = AdditivePartitionGP(x, standardised, num_samples=4, outcome_transform=None)
    fit_additive_partition_gp(bare, num_steps=8, warmup=0, max_iter=10)
    mean = bare.posterior(test_x).mean * y.std() + y.mean()
    torch.testing.assert_close(mean, plain.posterior(test_x).mean, rtol=1e-3, atol=1e-3)
    with pytest.warns(InputDataWarning, match="unit cube"):
        AdditivePartitionGP(10 * x, y)


def test_given_noise():
    x, y = draw()
    noise = 0.5 + torch.rand(20, 1)
    model = AdditivePartitionGP(x, y, noise, num_samples=2)
    fit_additive_partition_gp(model, num_steps=4, warmup=0)
    expected = (noise / y.std() ** 2).squeeze(-1).expand(2, 20)
    torch.testing.assert_close(model.likelihood.noise, expected)
    test_x = torch.rand(5, 3)
    mean, covariance = dense_posterior(model, 1, test_x)
    posterior = model.posterior(test_x)
    torch.testing.assert_close(posterior.mean[1, :, 0], mean, rtol=1e-5, atol=1e-5)
    variance = covariance.diagonal()
    torch.testing.assert_close(posterior.variance[1, :, 0], variance, rtol=1e-4, atol=1e-5)
    other = AdditivePartitionGP(x, y)  # learns its noise
    fit_additive_partition_gp(other, num_steps=2, previous=model)


def test_conditioning_equals_dense_computations(shared):
    new_x, test_x = torch.rand(2, 3), torch.rand(4, 3)
    new_y = function(new_x)
    shared.posterior(test_x)
    conditioned = shared.condition_on_observations(new_x, new_y)
    assert conditioned.covar_module.partitions == shared.covar_module.partitions
    posterior = conditioned.posterior(test_x)
    standardised = (new_y - shared.outcome_transform.means) / shared.outcome_transform.stdvs
    longer = deepcopy(shared)
    longer.set_train_data(
        torch.cat([shared.train_inputs[0], new_x.expand(4, 2, 3)], -2),
        torch.cat([shared.train_targets, standardised.squeeze(-1).expand(4, 2)], -1),
        strict=False,
    )
    for member in range(4):
        mean, covariance = dense_posterior(longer, member, test_x)
        torch.testing.assert_close(posterior.mean[member, :, 0], mean, rtol=1e-4, atol=1e-4)
        variance = covariance.diagonal()
        torch.testing.assert_close(posterior.variance[member, :, 0], variance, rtol=1e-3, atol=1e-4)
    each = new_y + torch.arange(4.0).view(4, 1, 1)  # other values for every member
    apart = shared.condition_on_observations(new_x, each).posterior(test_x).mean
    torch.testing.assert_close(apart[0], posterior.mean[0], rtol=1e-4, atol=1e-4)
    assert (apart[3] - posterior.mean[3]).abs().max() > 0.1


def test_fantasies(shared):
    sampler = SobolQMCNormalSampler(torch.Size([5]), seed=0)
    fantasy = shared.fantasize(torch.rand(2, 3), sampler)
    assert fantasy.posterior(torch.rand(4, 3)).mean.shape == (5, 4, 4, 1)
    batch = shared.fantasize(torch.rand(6, 2, 3), sampler)
    assert batch.posterior(torch.rand(4, 3)).mean.shape == (5, 6, 4, 4, 1)
    x = torch.rand(1, 3)  # what was observed is known
    known = shared.fantasize(x, sampler).posterior(x).variance
    assert (known < shared.posterior(x).variance).all()


def test_expected_improvement_averages_over_the_members(shared):
    x, best = torch.rand(6, 1, 3), rough()[1].max()
    values = []
    for member in range(4):
        moments = [dense_posterior(shared, member, point) for point in x]
        mean = torch.stack([m[0] for m, _ in moments])
        std = torch.stack([c[0, 0] for _, c in moments]).sqrt()
        normal, z = torch.distributions.Normal(0.0, 1.0), (mean - best) / std
        values.append((mean - best) * normal.cdf(z) + std * normal.log_prob(z).exp())
    expected = torch.stack(values).mean(0)
    actual = LogExpectedImprovement(shared, best_f=best)(x).exp()
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("q", [1, 2])
def test_a_step_of_bayesian_optimisation(shared, q):
    best = rough()[1].max()
    if q == 1:
        acq_function = LogExpectedImprovement(shared, best_f=best)
    else:
        acq_function = qLogExpectedImprovement(shared, best_f=best)
    candidate, value = optimize_acqf(
        acq_function, BOUNDS, q=q, num_restarts=2, raw_samples=16, options={"maxiter": 10}
    )
    assert candidate.shape == (q, 3) and value.isfinite()
    assert value >= acq_function(torch.rand(8, q, 3)).max() - 0.5


def test_two_objectives():
    x, y = draw(12)
    models = [AdditivePartitionGP(x, t, num_samples=3) for t in (y, -y.square())]
    for model in models:
        fit_additive_partition_gp(model, num_steps=3, warmup=0, max_iter=5)
    both = ModelListGP(*models)
    assert both.posterior(torch.rand(5, 3)).mean.shape == (3, 5, 2)
    acq_function = qLogNoisyExpectedHypervolumeImprovement(both, [0.0, -200.0], X_baseline=x)
    candidate, value = optimize_acqf(
        acq_function, BOUNDS, q=1, num_restarts=2, raw_samples=8, options={"maxiter": 3}
    )
    assert candidate.shape == (1, 3) and value.isfinite()


def test_posterior_transform(shared):
    x = torch.rand(5, 3)
    twice = ScalarizedPosteriorTransform(torch.tensor([2.0]))
    posterior = shared.posterior(x, posterior_transform=twice)
    assert isinstance(posterior, GaussianMixturePosterior)
    torch.testing.assert_close(posterior.mean, 2 * shared.posterior(x).mean)


def test_state_copies_and_pickles():
    model, x = fitted(), torch.rand(5, 3)
    expected, partitions = model.posterior(x).mean, model.partitions
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    loaded = AdditivePartitionGP(*draw(), num_samples=4)
    loaded.posterior(x)  # caches that must not survive
    loaded.load_state_dict(torch.load(buffer, weights_only=True))
    assigned = AdditivePartitionGP(*draw(), num_samples=4)
    state = deepcopy(model.state_dict())
    assigned.load_state_dict(state, assign=True)
    for copy in (deepcopy(model), pickle.loads(pickle.dumps(model)), loaded, assigned):
        torch.testing.assert_close(copy.posterior(x).mean, expected)
        assert copy.partitions == partitions
        assert copy.covar_module.partitions == model.covar_module.partitions
        torch.testing.assert_close(copy.co_occurrence, model.co_occurrence)
        fit_additive_partition_gp(copy, num_steps=1, previous=copy, max_iter=1)
        assert int(copy.sample.num_steps) == 9
    assert int(model.sample.num_steps) == int(state["sample.num_steps"]) == 8


@pytest.mark.parametrize("kernel", KERNELS)
def test_single_precision(kernel):
    x, y = draw()
    with pytest.warns(InputDataWarning, match="float"):
        model = AdditivePartitionGP(x.float(), y.float(), kernel=kernel, num_samples=2)
    fit_additive_partition_gp(model, num_steps=4, warmup=0, start=[(0, 2), (1,)], max_iter=10)
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    posterior = model.posterior(torch.rand(5, 3).float())
    assert posterior.mean.dtype == model.co_occurrence.dtype == torch.float32
    exact = AdditivePartitionGP(x, y, kernel=kernel, num_samples=2)
    exact.load_state_dict(
        {k: v.double() if v.is_floating_point() else v for k, v in model.state_dict().items()}
    )
    test_x = torch.rand(5, 3)
    expected = exact.posterior(test_x).mean
    torch.testing.assert_close(
        model.posterior(test_x.float()).mean.double(), expected, rtol=1e-2, atol=5e-2
    )


def test_optimisers_of_botorch_are_refused():
    model = AdditivePartitionGP(*draw(), num_samples=4)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with pytest.raises(NotImplementedError, match="sampled and not optimised"):
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 3}})


def test_construct_inputs():
    x, y = draw()
    data = SupervisedDataset(x, y, feature_names=["a", "b", "c"], outcome_names=["y"])
    inputs = AdditivePartitionGP.construct_inputs(data, kernel="matern", num_samples=3)
    model = AdditivePartitionGP(**inputs)
    assert model.num_samples == 3 and model.covar_module.kernel == "matern"
    assert model.batch_shape == (3,) and model.num_outputs == 1


def test_columns_permuted_with_the_partition_give_equal_predictions():
    x, y = draw()
    order, test_x = [1, 2, 0], torch.rand(5, 3)
    models = [AdditivePartitionGP(data, y, num_samples=1) for data in (x, x[:, order])]
    for model, start in zip(models, (((0, 2), (1,)), ((0,), (1, 2))), strict=True):
        options = {"num_steps": 1, "warmup": 0, "max_iter": 100, "log_prior": only(start)}
        fit_additive_partition_gp(model, start=start, **options)
    means = models[0].posterior(test_x).mean, models[1].posterior(test_x[:, order]).mean
    torch.testing.assert_close(*means, rtol=1e-3, atol=1e-3)


def test_frequencies_are_those_of_the_evidence():
    x, y = draw(8)  # few points: several partitions are likely
    model = AdditivePartitionGP(x, y)
    fit_additive_partition_gp(model, num_steps=3000, warmup=100, max_iter=100)
    evidence = PartitionEvidence(model.train_inputs[0][0], model.train_targets[0], max_iter=100)
    partitions = all_partitions(3)
    logs = torch.tensor([evidence.log_evidence(partition) for partition in partitions])
    for partition, share in zip(partitions, logs.softmax(0).tolist(), strict=True):
        assert model.partitions.get(partition, 0) / 3000 == pytest.approx(share, abs=0.06)


def test_one_column():
    x = torch.rand(8, 1)
    model = AdditivePartitionGP(x, x.sin(), num_samples=2)
    fit_additive_partition_gp(model, num_steps=3)
    assert model.partitions == {((0,),): 3}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_samples": 0}, ValueError, "num_samples must be at least 1, got 0"),
        ({"kernel": "linear"}, ValueError, "must be one of .*'linear'"),
        ({"train_X": torch.rand(2, 8, 3)}, NotImplementedError, r"got the shape \(2, 8, 3\)"),
        ({"train_Y": torch.rand(8, 2)}, NotImplementedError, r"\(8, 2\).*ModelListGP"),
        ({"outcome_transform": Log()}, NotImplementedError, "must be linear, got Log"),
    ],
)
def test_errors_of_the_constructor(options, error, message):
    arguments = {"train_X": torch.rand(8, 3), "train_Y": torch.rand(8, 1), **options}
    with pytest.raises(error, match=message):
        AdditivePartitionGP(**arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_steps": 0}, ValueError, "num_steps must be at least 1, got 0"),
        ({"warmup": -1}, ValueError, "warmup must be at least 0, got -1"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1, got 0"),
        ({"start": [(0, 1)]}, ValueError, "columns 0 to 2 once"),
        ({"previous": "model"}, TypeError, "previous must be an AdditivePartitionGP, got str"),
    ],
)
def test_errors_of_the_fit(options, error, message):
    with pytest.raises(error, match=message):
        fit_additive_partition_gp(AdditivePartitionGP(*draw()), **options)


def test_what_does_not_fit_together_is_named(shared):
    x, y = draw()
    with pytest.raises(ValueError, match="3 columns and the kernel 'nkn', got 3 and 'rbf'"):
        fit_additive_partition_gp(AdditivePartitionGP(x, y, kernel="nkn"), previous=shared)
    with pytest.raises(ValueError, match="2 columns .* got 3"):
        fit_additive_partition_gp(AdditivePartitionGP(x[:, :2], y), previous=shared)
    fantasy = shared.fantasize(torch.rand(1, 3), SobolQMCNormalSampler(torch.Size([2]), seed=0))
    with pytest.raises(ValueError, match=r"one data set, got targets of shape \(2, 4, 11\)"):
        fit_additive_partition_gp(fantasy)
    with pytest.raises(TypeError, match="must be an AdditivePartitionGP, got SingleTaskGP"):
        fit_additive_partition_gp(SingleTaskGP(x, y))


def test_standardize_of_the_user_is_that_of_the_default():
    x, y = draw()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = AdditivePartitionGP(x, y, outcome_transform=Standardize(1), num_samples=2)
    default = AdditivePartitionGP(x, y, num_samples=2)
    torch.testing.assert_close(own.train_targets, default.train_targets)
    torch.testing.assert_close(own.posterior(x).mean, default.posterior(x).mean)


def test_a_budget_ends_the_sampling_and_keeps_what_was_sampled():
    model = fitted(num_steps=50, budget=1e-6)
    assert sum(model.partitions.values()) == 1 and not model.training
