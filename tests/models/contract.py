"""Contract of all models; ``registry.py`` lists the models."""

import contextlib
import copy
import io
import pickle
import warnings
from functools import partial
from inspect import signature
from unittest import mock

import gpytorch
import pytest
import torch
from botorch.acquisition.objective import GenericMCObjective, ScalarizedPosteriorTransform
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.cross_validation import loo_cv
from botorch.exceptions import UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelList, ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import AppendFeatures, FilterFeatures, InputPerturbation, Warp
from botorch.models.transforms.outcome import Log, StratifiedStandardize
from botorch.optim.fit import fit_gpytorch_mll_scipy, fit_gpytorch_mll_torch
from botorch.posteriors import Posterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths, get_matheron_path_model
from botorch.settings import propagate_grads
from botorch.utils.datasets import SupervisedDataset
from gpytorch.means import LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.settings import cholesky_jitter
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_nkn.models import (
    NKNMultiTaskGP,
    NKNSingleTaskGP,
    SparseNKNGP,
    SpectralGP,
    VariationalNKNGP,
    gradient_posterior,
)
from gpytorch_nkn.models.spectral.feature_sum_kernel import FeatureSumKernel
from tests.global_state import unchanged
from tests.models.peak_memory import peak_memory
from tests.models.registry import Case, N, case_of
from tests.models.small_models import moved

REFUSALS = (NotImplementedError, TypeError, ValueError)


def moments(model, points, **options):
    with torch.no_grad():
        posterior = model.posterior(points, **options)
        return posterior.mean, posterior.variance


def check_posterior(case: Case):
    """Shapes, members, samples, noise, and points one by one or in batches."""
    model, points = case.model(), case.points(3, 2)
    members = () if case.members is None else (case.members,)
    posterior = model.posterior(points)
    assert isinstance(posterior, Posterior)
    assert posterior.mean.shape == posterior.variance.shape == (3, *members, 2, 1)
    assert posterior.variance.min() > 0
    assert posterior.rsample(torch.Size([5])).shape == (5, 3, *members, 2, 1)
    assert model.num_outputs == 1
    _, noisy = moments(model, points, observation_noise=True)
    assert (noisy > posterior.variance).all()
    alone = [moments(model, one)[0] for one in points]
    torch.testing.assert_close(torch.stack(alone), posterior.mean.detach())


def check_gradients_of_points(case: Case):
    """The mean's and variance's gradients by the points, against finite differences."""
    model, points = case.model(), case.points(1)
    step = 1e-5

    def value(x):
        posterior = model.posterior(x)
        return posterior.mean.sum() + posterior.variance.sum()

    points.requires_grad_()
    (gradient,) = torch.autograd.grad(value(points), points)
    for column in range(case.columns):
        shift = torch.zeros_like(points)
        shift[..., column] = step
        with torch.no_grad():
            expected = (value(points + shift) - value(points - shift)) / (2 * step)
        torch.testing.assert_close(gradient[0, column], expected, rtol=1e-3, atol=1e-5)
    assert gradient.abs().max() > 1e-4
    if case.cls in (NKNSingleTaskGP, SparseNKNGP, VariationalNKNGP):
        # other parts and the variance branch on values in GPyTorch
        gradient = torch.func.grad(lambda x: model.posterior(x.unsqueeze(0)).mean.sum())
        points = case.points(3).requires_grad_()
        expected = torch.autograd.grad(model.posterior(points).mean.sum(), points)
        torch.testing.assert_close(torch.func.vmap(gradient)(points.detach()), *expected)


def check_gradients_of_joint_posteriors(case: Case):
    """Covariances, and draws with fixed base samples, also jointly with the training points."""
    inputs = case.data()[0]
    past = torch.cartesian_prod(*inputs) if case.on_grid else inputs
    sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)

    def draws(model, x):
        return sampler(model.posterior(x)).cos()

    def covariances(model, x):
        return model.posterior(x).distribution.covariance_matrix.cos()

    model, listed = case.model(), ModelListGP(case.model(), case.model())
    uses = [(model, draws, 3, past), (model, covariances, 1, past[:0]), (listed, draws, 1, past)]
    if not case.members:  # a list of ensembles has no covariance matrix
        uses.append((listed, covariances, 3, past))
    for model, value, q, before in uses:

        def total(x, model=model, value=value, before=before):
            return value(model, torch.cat([before, x])).sum()

        points = (past[:q] + 1e-6).requires_grad_()  # nearly determined by the training points
        (gradient,) = torch.autograd.grad(total(points), points)
        along = torch.linspace(1, 2, points.numel(), dtype=points.dtype).view_as(points)
        with torch.no_grad():
            up, down = (total(points + step * along) for step in (1e-6, -1e-6))
        expected, found = (up - down) / 2e-6, (gradient * along).sum()
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def check_gradients_of_parameters(case: Case):
    """With ``propagate_grads``, gradients of parameters and data, by finite differences."""
    model, points = case.model(), case.points(2)
    if case.on_grid:
        with propagate_grads(True), pytest.raises(NotImplementedError, match="X only"):
            model.posterior(points)
        return
    parameters = [p for p in model.parameters() if p.requires_grad]
    if case.exact:
        model.train_inputs = tuple(x.clone() for x in model.train_inputs)
        data = (*model.train_inputs, model.train_targets)
        parameters = [*(part.requires_grad_() for part in data), *parameters]
    directions = [torch.arange(1.0, p.numel() + 1).cos().view(p.shape) for p in parameters]
    if case.members:  # members share the data
        directions[:2] = [d[:1].expand_as(d) for d in directions[:2]]

    def value(step=0.0):
        model.train()
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.data.add_(step * direction)
        with propagate_grads(True):
            posterior = model.eval().posterior(points)
        return posterior.mean.sum() + posterior.variance.sum()

    found = torch.autograd.grad(value(), parameters, materialize_grads=True, allow_unused=True)
    along = sum((g * d).sum() for g, d in zip(found, directions, strict=True))
    up, down = value(1e-5), value(-2e-5)
    torch.testing.assert_close(along, (up - down).detach() / 2e-5, rtol=1e-3, atol=1e-5)


def check_second_derivatives_of_points(case: Case):
    """Hessians of mean and variance, and the covariance of gradients, at data and elsewhere."""
    model, inputs = case.model(), case.data()[0]
    row = torch.stack([x[1] for x in inputs]) if case.on_grid else inputs[3]

    def moment(name):
        return lambda x: getattr(model.posterior(x.unsqueeze(-2)), name)

    def covariance(both):
        posterior = model.posterior(both.unflatten(-1, (2, -1)))
        return posterior.distribution.covariance_matrix[..., 0, 1]

    for point in (row, case.points(1)[0]):
        values = (moment("mean"), moment("variance"), covariance)
        for value, x in zip(values, (point, point, point.repeat(2)), strict=True):
            found = torch.autograd.functional.hessian(lambda x: value(x).sum(), x)  # noqa: B023
            with torch.no_grad():
                expected = _second_differences(value, x)
            error, scale = (found - expected).abs().max(), expected.abs().max()
            assert scale > 1e-3 and error < 3e-3 * scale, (error, scale)


def _second_differences(value, x, step=2e-4):
    """Differences of a sum over members."""
    shifts = step * torch.eye(len(x), dtype=x.dtype)
    signs = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]], dtype=x.dtype)
    one, two = signs.T.reshape(2, -1, 1, 1, 1)
    points = x + one * shifts.unsqueeze(1) + two * shifts
    values = value(points.view(-1, len(x))).view(4, len(x), len(x), -1).sum(-1)
    return torch.einsum("s,sij->ij", signs.prod(-1), values) / (4 * step**2)


def check_gradient_posterior(case: Case):
    """Mean and joint covariance of gradients, against differences of the function's posterior."""
    model, points = case.model(), case.points(2)
    found = gradient_posterior(model, points)
    listed = gradient_posterior(ModelListGP(model), points)
    torch.testing.assert_close(listed.mean, found.mean)
    step = 3e-4
    shifts = step * torch.eye(case.columns, dtype=points.dtype)
    ends = torch.stack([points[:, None] + shifts, points[:, None] - shifts], -2)
    with torch.no_grad(), cholesky_jitter(double_value=1e-13):
        normal = model.posterior(ends.view(-1, case.columns)).distribution
        mean, covariance = normal.mean, normal.covariance_matrix
    differences = torch.kron(torch.eye(2 * case.columns), torch.tensor([1.0, -1.0])) / (2 * step)
    differences = differences.to(mean)
    means = (mean @ differences.T).view(-1, 2 * case.columns)
    away = means - means.mean(0)  # of members
    covariance = differences @ covariance @ differences.T
    covariance = covariance.view(-1, *covariance.shape[-2:]).mean(0) + away.T @ away / len(away)
    torch.testing.assert_close(found.mean.flatten(), means.mean(0), rtol=1e-3, atol=1e-4)
    scale = covariance.abs().max()
    torch.testing.assert_close(found.covariance_matrix, covariance, rtol=0, atol=5e-3 * scale)
    assert scale > 1e-3 and found.rsample().shape == found.mean.shape == points.shape
    batch = gradient_posterior(model, points.float().unsqueeze(-2))
    assert batch.mean.shape == (2, 1, case.columns)
    torch.testing.assert_close(batch.mean.squeeze(-2), found.mean, rtol=1e-4, atol=1e-4)


def check_samples(case: Case):
    """Samples have the moments of the posterior."""
    model, points = case.model(), case.points(3)
    posterior = model.posterior(points)
    deviation = posterior.variance.sqrt()
    samples = SobolQMCNormalSampler(torch.Size([512]), seed=0)(posterior)
    assert ((samples.mean(0) - posterior.mean).abs() < 0.1 * deviation).all()
    torch.testing.assert_close(samples.std(0), deviation, rtol=0.15, atol=0.0)


def check_paths(case: Case):
    """Pathwise draws have the moments of the posterior and are chosen among for BoTorch."""
    options = {} if case.on_grid else {"input_transform": Normalize(case.columns)}
    model, points = case.model(**options), case.points(4)
    if case.on_grid or case.name == "spectral at points":
        with pytest.raises(NotImplementedError, match="signature|has no random features"):
            draw_matheron_paths(model, torch.Size([2]))
        return
    torch.manual_seed(0)
    with torch.no_grad(), mock.patch("gpytorch_nkn.models.pathwise.paths._MAPS", 4):
        paths = draw_matheron_paths(model, torch.Size([1024]))
        draws = paths(points)
        mean, variance = (part.squeeze(-1) for part in moments(model, points))
        if not case.linear:  # draws are of warped outcomes, not of a Gaussian in their place
            inputs = model.transform_inputs(points).unsqueeze(-3)
            normal = model(inputs)
            level = torch.special.ndtri((torch.arange(4000, dtype=points.dtype) + 0.5) / 4000)
            values = normal.mean + level[:, None, None] * normal.stddev
            values = model.outcome_transform.untransform(values.unsqueeze(-1))[0].squeeze(-1)
            mean, variance = values.mean(0), values.var(0)
    assert draws.shape == (1024, *mean.shape)
    assert ((draws.mean(0) - mean).abs() < 0.16 * variance.sqrt()).all()
    torch.testing.assert_close(draws.var(0), variance, rtol=0.3, atol=0.0)
    torch.testing.assert_close(pickle.loads(pickle.dumps(paths))(points), draws)
    with pytest.raises(TypeError, match="Inputs must have the dtype torch.float64, got"):
        paths(points.float())
    assert draw_matheron_paths(model, torch.Size([]))(points).shape == mean.shape
    thompson = PathwiseThompsonSampling(model)
    batches = case.points(3, 2).requires_grad_()
    both = thompson(batches)
    alone = [thompson(one).item() for one in batches]
    assert both.tolist() == pytest.approx(alone)
    assert torch.autograd.grad(both.sum(), batches)[0].abs().max() > 0


def check_noise(case: Case):
    """Noise of observations adds to the variance, in the unit of the outcomes."""
    model, points = case.model(), case.points(4)
    (mean, variance), noisy = moments(model, points), moments(model, points, observation_noise=True)
    torch.testing.assert_close(noisy[0], mean)
    transform = getattr(model, "common_transform", model.outcome_transform)  # without warps
    unit = transform.stdvs.squeeze() ** 2
    if case.linear:  # else the learned noise is that of another scale
        level = model.likelihood.noise.reshape(*mean.shape[:-2], 1, 1) * unit
        added = noisy[1] - variance
        torch.testing.assert_close(added, level.expand_as(added), rtol=1e-4, atol=1e-6)
    for at in (points, case.points(case.members or 3, 4), case.points(2, 3, 4)):
        given = 0.1 + torch.rand(*at.shape[:-1], 1)
        if case.cls is VariationalNKNGP:
            with pytest.raises(NotImplementedError, match="True or False for a VariationalNKNGP"):
                model.posterior(at, observation_noise=given)
            continue
        before, after = moments(model, at)[1], moments(model, at, observation_noise=given)
        given = given if case.members is None else given.unsqueeze(-3)
        added = (given * unit).expand_as(before)
        torch.testing.assert_close(after[1] - before, added, rtol=1e-4, atol=1e-6)
    if case.known_noise and case.linear:
        inputs, y = case.data()
        known = 0.1 + torch.rand(y.shape)
        model = case.make(inputs, y, train_Yvar=known).eval()
        expected = known.squeeze(-1) / model.outcome_transform.stdvs.squeeze() ** 2
        noise = model.likelihood.noise
        torch.testing.assert_close(noise, expected.expand_as(noise))
        noisy = moments(model, points, observation_noise=True)[1]
        assert (noisy > moments(model, points)[1]).all()


def check_parameter_samples(case: Case):
    """Samples of the parameters with a prior, as from NUTS, are a batch of models."""
    if not case.exact or case.members or case.on_grid:
        return
    for outputs in (1, 2) if case.outputs else (1,):
        model, *entries = (case.model(outputs) for _ in range(4))
        samples = {}
        for name, owner, _, closure, _ in model.named_priors():
            value = closure(owner).detach()
            samples[name] = torch.stack([value, 1.1 * value, 1.2 * value])
        for index, entry in enumerate(entries):
            for name, owner, _, _, set_value in entry.train().named_priors():
                set_value(owner, samples[name][index])
        model.pyro_load_from_samples(samples)
        points = case.points(5)
        expected = [torch.cat(entry.eval().predict(points)) for entry in entries]
        found = torch.cat(model.eval().predict(points), -2)
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-4, atol=1e-6)


def take(single, batched, index):
    """Put the parameters of one entry of a batch into a model without that batch."""
    values = dict(batched.named_parameters())
    for name, parameter in single.named_parameters():
        value = values[name].data
        if value.shape != parameter.shape:  # else it belongs to every entry
            at = [i if n > 1 else 0 for i, n in zip(index, value.shape, strict=False)]
            value = value[tuple(at)]
        parameter.data.copy_(value.reshape(parameter.shape))
    return single.eval()


def check_outputs(case: Case):
    """Each of several outputs is a model of its own, and they can be weighed; or an error."""
    if case.on_grid:  # every grid has one
        assert case.model().num_outputs == 1
        return
    if not case.outputs:
        with pytest.raises(REFUSALS):
            case.model(outputs=2)
        return
    (inputs, y), model, points = case.data(outputs=3), case.model(outputs=3), case.points(4)
    mean, variance = moments(model, points)
    assert model.num_outputs == 3 and mean.shape == variance.shape == (4, 3)
    for k in range(3):
        found = moments(take(case.make(inputs, y[:, [k]]), model, (k,)), points)
        torch.testing.assert_close(found[0], mean[:, [k]], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[1], variance[:, [k]], rtol=1e-4, atol=1e-5)
    for chosen in ([2, 1, 0], [-1]):
        some = moments(model, points, output_indices=chosen)
        torch.testing.assert_close([*some], [mean[:, chosen], variance[:, chosen]])
    weights = torch.tensor([2.0, -0.5, 1.0])
    transform = ScalarizedPosteriorTransform(weights)
    one = moments(model, points, posterior_transform=transform)
    torch.testing.assert_close(one[0][:, 0], mean @ weights)
    torch.testing.assert_close(one[1][:, 0], variance @ weights.square())


def check_subsets(case: Case):
    """Some outputs equal columns of all of them; or an error."""
    model, points = case.model(outputs=3 if case.outputs else 1), case.points(4)
    before = copy.deepcopy(model.state_dict())
    mean, variance = moments(model, points, observation_noise=True)
    for chosen in ([2], [1, 1], [-1, -3]) if case.outputs else ([0], [-1]):
        some = model.subset_output(chosen)
        assert type(some) is type(model) and some.num_outputs == len(chosen)
        for subset in (some, some.train().eval()):  # back from the inputs as they were given
            found = moments(subset, points, observation_noise=True)
            torch.testing.assert_close(found[0], mean[..., chosen])
            torch.testing.assert_close(found[1], variance[..., chosen])
    for bad in ([3], [-4], []):
        with pytest.raises(ValueError, match="Index|none|single output"):
            model.subset_output(bad)
        with pytest.raises(ValueError, match="Index|single output"):
            model.posterior(points, bad or [3])
    assert all(torch.equal(before[name], v) for name, v in model.state_dict().items())
    if case.outputs and case.batches:
        model = case.model(2, (2,))
        found, (mean, _) = moments(model.subset_output([1]), points), moments(model, points)
        torch.testing.assert_close(found[0], mean[..., [1]])


def check_batches(case: Case):
    """A batch of data sets gives what each of them gives; or an error."""
    if not case.batches:
        with pytest.raises(REFUSALS):
            case.model(batch_shape=(2,))
        return
    several = (1, 2) if case.checks is None else (2,)
    for outputs in several if case.outputs else (1,):
        inputs, y = case.data(outputs, (2,))
        model, points = case.model(outputs, (2,)), case.points(4)
        mean, variance = moments(model, points.expand(3, 2, 4, -1))
        assert model.batch_shape == (2,) and mean.shape == (3, 2, 4, outputs)
        assert variance.min() > 0 and not torch.allclose(mean[:, 0], mean[:, 1])
        for count in () if case.on_grid else (2, 4):  # as many points as data sets, or more
            found = model.predict(points[:count])
            expected = mean[0, :, :count], variance[0, :, :count]
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
            many = torch.cat([points[:count], case.points(600)])  # have a lazy covariance
            found = moments(model, many)
            found = found[0][:, :count], found[1][:, :count]
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        for k in range(2):
            single = case.make(inputs if case.on_grid else inputs[k], y[k])
            found = moments(take(single, model, (k,)), points)
            expected = mean[1, k], variance[1, k]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def check_input_transforms(case: Case):
    """Every prediction applies the input transform."""
    if case.on_grid:
        return
    inputs, y = case.data()
    bounds = torch.tensor([[-3.0], [7.0]]).expand(2, case.columns)
    plain, points = case.model(), case.points(11)
    model = case.make(10 * inputs - 3, y, input_transform=Normalize(case.columns, bounds=bounds))
    take(model, plain, ())
    pairs = [(moments(model, 10 * points - 3), moments(plain, points))]
    if case.exact:
        pairs += [[m.train()(*m.train_inputs).covariance_matrix for m in (model, plain)]]
    for one, two in pairs:
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def check_outcome_transforms(case: Case):
    """A transform of the outcomes, also one that depends on the inputs, is part of predictions."""
    if case.on_grid:
        return
    (inputs, y), points = case.data(), case.points(4)
    inputs[..., 0], points[..., 0] = inputs[..., 0].round(), points[..., 0].round()
    y = y - y.min() + 1
    for transform in (Log(), StratifiedStandardize(0, torch.arange(2))):
        apart = copy.deepcopy(transform)
        plain = moved(case.make(inputs, apart(y, X=inputs)[0], outcome_transform=None))
        try:
            model = case.make(inputs, y, outcome_transform=transform)
        except NotImplementedError as error:  # of an ensemble, whose posterior is Gaussian
            assert case.members and "must be linear" in str(error)
            continue
        take(model, plain, ()).load_state_dict(plain.state_dict(), strict=False)
        posterior = apart.eval().untransform_posterior(plain.posterior(points), X=points)
        expected = posterior.mean.detach(), posterior.variance.detach()
        torch.testing.assert_close(moments(model, points), expected, rtol=1e-4, atol=1e-5)


def check_columns_of_transforms(case: Case):
    """A transform that changes the number of columns or of points is as transforming the data."""
    if case.on_grid:
        return
    (inputs, y), points = case.data(), case.points(2, 3)
    shifts = torch.tensor([0.0, 0.05, -0.03]).to(inputs)[:, None].expand(3, case.columns)
    squares = AppendFeatures(f=lambda x: x[..., :1].square().unsqueeze(-2), transform_on_train=True)
    for transform in (FilterFeatures(torch.tensor([1])), squares, InputPerturbation(shifts)):
        apart = copy.deepcopy(transform).eval()
        plain = moved(case.make(apart.transform(inputs) if apart.transform_on_train else inputs, y))
        model = take(case.make(inputs, y, input_transform=transform), plain, ())
        model.load_state_dict(plain.state_dict(), strict=False)
        each = apart.transform(points)
        expected = moments(plain, each)
        torch.testing.assert_close(moments(model, points), expected, rtol=1e-4, atol=1e-5)
        if not case.members:
            model.posterior(points).rsample()
        if isinstance(transform, InputPerturbation):
            torch.testing.assert_close(model.predict(points), plain.predict(each))
            found = gradient_posterior(model, points[0])
            expected = gradient_posterior(plain, each[0])
            for name in ("mean", "covariance_matrix"):
                torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def check_predict(case: Case):
    """Predictions in chunks are the posterior's moments, without gradients."""
    model = case.model(outputs=2 if case.outputs else 1)
    if case.on_grid or not hasattr(model, "predict"):
        return
    points = case.points(5)
    for noise, entries in ((False, 1), (True, 2 * model._chunk_width()), (True, 10**6)):
        expected = moments(model, points, observation_noise=noise)
        with mock.patch("gpytorch_nkn.models.base_gp._CHUNK_ENTRIES", entries):
            found = model.predict(points, observation_noise=noise)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        assert not any(one.requires_grad for one in found)
    if case.cls is not NKNMultiTaskGP:  # needs a point
        assert model.predict(points[:0])[0].shape == model.posterior(points[:0]).mean.shape
    batch = model.predict(points[:4].view(2, 2, -1))[0]
    torch.testing.assert_close(torch.cat([*batch], -2), model.predict(points[:4])[0])
    model.train().likelihood.training = False
    before = [part.training for part in model.modules()]
    for some in (points, points[: case.cls is NKNMultiTaskGP]):
        model.predict(some)
        assert [part.training for part in model.modules()] == before


def check_lists(case: Case):
    """In a list of models, a model has the same predictions and paths as alone."""
    first, points, x = case.model(), case.points(4), case.points(6)
    second = SingleTaskGP(x, x.sum(-1, keepdim=True))
    mean, _ = moments(ModelListGP(first, second), points)
    torch.testing.assert_close(mean[..., :1], moments(first, points)[0])
    other = moments(second, points)[0][:, 0]
    torch.testing.assert_close(mean[..., 1], other.expand(mean.shape[:-1]))
    if case.on_grid:
        with pytest.raises(NotImplementedError, match="signature|has no random features"):
            get_matheron_path_model(ModelList(first, second))
        return
    with torch.no_grad():
        torch.manual_seed(0)
        draws = get_matheron_path_model(ModelList(second, first), torch.Size([2]))(points)
        torch.manual_seed(0)
        shapes = [2, 1] if case.members else [2], [2]
        alone = map(draw_matheron_paths, (second, first), map(torch.Size, shapes))
        alone = torch.broadcast_tensors(*(paths(points) for paths in alone))
        torch.testing.assert_close(draws, torch.stack(alone, -1))
        thompson = PathwiseThompsonSampling(
            ModelListGP(first, second), GenericMCObjective(lambda y, X=None: y.sum(-1))
        )
        batches = case.points(3, 2)
        torch.testing.assert_close(thompson(batches), torch.cat([thompson(x) for x in batches]))


def check_many_points(case: Case):
    """Moments at many points, alone and in lists, need no matrix of the points; both agree."""
    if case.on_grid:
        with pytest.raises(ValueError, match="pass fewer at a time"):
            case.model().posterior(case.points(20_000))
        return
    points, few = case.points(3000), 5
    weights = torch.tensor([2.0, -0.5])
    transform, other = ScalarizedPosteriorTransform, case_of(NKNSingleTaskGP)
    one, other = case.model(), other.model() if case.columns == other.columns else case.model()
    uses = [
        (one, {"observation_noise": True}),
        (one, {"posterior_transform": transform(weights[:1])}),
        (ModelListGP(one, other), {"posterior_transform": transform(weights)}),
    ]
    if case.outputs:
        several = case.model(2)
        uses += [(several, {"posterior_transform": transform(weights)})]
        uses += [(ModelListGP(several, one), {"observation_noise": True})]
    for model, options in uses:
        found = []
        moments(model, points[:few], **options)  # what is kept of the training data
        used = peak_memory(lambda: found.extend(moments(model, points, **options)))  # noqa: B023
        assert used < 0.06, used  # GiB; one matrix of the points takes 0.067
        joint = moments(model, points[:few], **options)
        torch.testing.assert_close([v[..., :few, :] for v in found], [*joint], rtol=1e-5, atol=1e-7)
    if case.outputs:
        both = moments(ModelListGP(several, one), points[:4])[1]
        torch.testing.assert_close(both[..., :2], moments(several, points[:4])[1])


def check_covariances_of_many_points(case: Case):
    """Values and gradients equal the values and gradients at few points."""
    model, points, whole = case.model(), case.points(600), []
    for x in (points[:6].clone().requires_grad_(), points.clone().requires_grad_()):
        found = model.posterior(x).distribution
        covariance = found.covariance_matrix[..., :6, :6]
        values = found.mean[..., :6], found.variance[..., :6], covariance
        (gradient,) = torch.autograd.grad(sum(value.sum() for value in values), x)
        whole.append((*values, gradient[:6]))
    torch.testing.assert_close(whole[1], whole[0], rtol=1e-4, atol=1e-6)


def check_copies(case: Case):
    """Copies and pickles predict the same, before and after a use, and stand alone."""
    model, points = case.model(), case.points(3)
    for _ in range(2):  # the second time with what a prediction keeps
        copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
        before = moments(model, points)
        for other in copies:
            torch.testing.assert_close(moments(other, points), before)
        with propagate_grads(not case.on_grid):  # what is kept has gradients
            model.train().eval().posterior(points)
    for other in (*copies, unused := copy.deepcopy(model)):
        assert other.training == model.training
        priors = log_priors(other)
        for parameter in other.parameters():
            parameter.data += 0.3
        found = moments(other, points)
        other.train().eval()
        assert all(a != b for a, b in zip(log_priors(other), priors, strict=True))
    torch.testing.assert_close(found, moments(unused, points))
    assert all(map(torch.equal, moments(model, points), before))


def log_priors(model):
    """The log density of every prior, at the values that it is a prior of."""
    return [
        prior.log_prob(closure(module)).sum().item()
        for part in model.children()
        if isinstance(part, gpytorch.Module)
        for _, module, prior, closure, _ in part.named_priors()
    ]


def check_state(case: Case):
    """A state makes another model of the same data the same, also one that has predicted."""
    model, points = case.model(), case.points(3)
    sparse = any("inducing_points" in name for name in model.state_dict())
    other = case.make(*case.data(), **({"inducing_points": 4} if sparse else {})).eval()
    moments(other, points)
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    torch.testing.assert_close(moments(other, points), moments(model, points))
    wide = {name: torch.cat([v, v]) if v.dim() else v for name, v in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    for wrong in (wide, {name: v for name, v in wide.items() if name not in parameters}):
        with pytest.raises(RuntimeError, match="Construct the model with the options and data"):
            copy.deepcopy(model).load_state_dict(wrong)


def transforms_of(case: Case, other: bool):
    """Options of transforms, with other constants of those that have them."""
    yield {}
    ends = torch.tensor([[-1.0], [2.0]]) if other else torch.tensor([[0.0], [1.5]])
    bounds = ends.expand(2, case.columns)
    inputs = {} if case.on_grid else {"input_transform": Normalize(case.columns, bounds=bounds)}
    yield {"outcome_transform": None, **inputs}
    if not case.on_grid and case.cls is not VariationalNKNGP:  # which takes none that learn
        yield {"input_transform": Warp(case.columns, [*range(case.columns)], bounds=bounds)}


def check_changed_state(case: Case):
    """A prediction leaves nothing behind that another state, dtype or other data make wrong."""
    points, copied = case.points(3), copy.deepcopy

    def moved(options, dtype=torch.float64):
        return case._moved(1, (), dtype, 0, **copied(options)).train()

    def agree(one, two):
        found = [
            [moments(model.train(anew).eval(), points)]
            + [train_data(model.train(mode)) for mode in (False, True)]
            for model, anew in ((two, True), (one, False), (one, True))
        ]  # at first with what it keeps
        for one in found[1:]:
            torch.testing.assert_close(one, found[0])

    def nested(model, state):
        parent = torch.nn.ModuleList([model])
        parent.load_state_dict({f"0.{name}": value for name, value in state.items()})

    def loosely(model, state):
        model.load_state_dict({**state, "no": 0}, strict=False)

    def load(model, options, way):
        source, other = moved(options), copied(model)
        before = moments(other, points)[0]
        way(other, source.state_dict())
        assert not torch.allclose(before, moments(other, points)[0])
        agree(other, source)

    for own, others in zip(transforms_of(case, False), transforms_of(case, True), strict=True):
        model = case.make(*case.data(), **copied(own)).eval()
        strict = type(model).load_state_dict if own else nested
        load(model, others, loosely if "outcome_transform" in own else strict)
    # the last one has parameters or constants of transforms, too; of a nested model the outcome
    # transform stays: only load_state_dict applies it
    load(model, own, nested)
    single = moved(own, torch.float32)
    double = copied(single).double()
    moments(single.eval(), points.float())
    agree(single.double(), double)
    single = copied(double.train()).float()
    moments(double.eval(), points)
    found, expected = (moments(m.float().eval(), points.float()) for m in (double, single))
    torch.testing.assert_close(found, expected)
    if case.exact:  # others have their data for good
        x, y = case.data(seed=1)
        targets = case.make(x, y, **copied(own)).train_targets
        x = x.expand(model.train().train_inputs[0].shape)
        other = copied(model)
        moments(model.eval(), points)
        for one in (model, other):
            one.set_train_data(x, targets)
        agree(model, other)


def train_data(model):
    """Training inputs, transformed in eval mode, and targets."""
    owner = model.model if isinstance(model, VariationalNKNGP) else model
    return (*owner.train_inputs, owner.train_targets) if hasattr(owner, "train_inputs") else ()


def check_dtypes(case: Case):
    """It has the dtype of its data; made in float32 or converted to it, it comes close.

    Moving it to where it is, as BoTorch does for each acquisition value, keeps factorisations.
    """
    points = case.points(3)
    torch.set_default_dtype(torch.float32)  # as most scripts have it
    made = case.make(*case.data())
    torch.set_default_dtype(torch.float64)
    floating = [v for v in made.state_dict().values() if v.is_floating_point()]
    assert {value.dtype for value in floating} == {torch.float64}
    state = case.make(*case.data()).state_dict()
    close = {"rtol": 1e-5, "atol": 1e-5, "equal_nan": True}  # start values are rounded
    torch.testing.assert_close(made.state_dict(), state, **close)
    double = case.model()
    whole = torch.arange(2 * case.columns).view(2, -1)
    dtypes = torch.long, torch.float32, torch.float64
    integers, *numbers = (moments(copy.deepcopy(double), whole.to(dtype)) for dtype in dtypes)
    torch.testing.assert_close([integers, integers], numbers)
    exact = moments(copy.deepcopy(double), points)
    moments(double, points)
    kept = getattr(double, "prediction_strategy", None)
    assert getattr(double.to(points), "prediction_strategy", None) is kept
    single = case.make(*case.data(dtype=torch.float32)).eval()
    single.load_state_dict(double.state_dict())
    for model in (single, double.float().eval()):
        found = moments(model, points.float())
        for one, two in zip(found, exact, strict=True):
            assert one.dtype == torch.float32
            scale = two.abs().max()
            torch.testing.assert_close(one.double(), two, rtol=0.05, atol=0.02 * scale.item())


def check_device(case: Case, device):
    """Predictions on another device equal predictions on the CPU, in both dtypes."""
    points = case.points(3)
    for dtype, rtol, atol in ((torch.float64, 1e-6, 1e-8), (torch.float32, 0.02, 0.01)):
        here = case.model().to(device, dtype)
        exact = moments(copy.deepcopy(here).cpu().double(), points.cpu().double())
        for one, two in zip(moments(here, points.to(dtype)), exact, strict=True):
            assert one.device == device and one.dtype == dtype
            scale = two.abs().max().item()
            torch.testing.assert_close(one.cpu().double(), two, rtol=rtol, atol=atol * scale)


def check_units(case: Case):
    """Another unit and offset of the outcomes go through: they are standardised inside."""
    points = case.points(3)
    model = case.model()
    mean, variance = moments(model, points)
    inputs, y = case.data()
    other = case.make(inputs, 1000 * y + 50)
    other.load_state_dict({**model.state_dict(), **transforms(other)})
    other.eval()
    for one, two in zip(moments(other, points), (1000 * mean + 50, 1e6 * variance), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6 * two.abs().max().item())


@pytest.mark.filterwarnings("ignore:The outcomes have a standard deviation")
def check_tiny_outcomes(case: Case):
    """Outcomes of any size are standardised, those that differ by rounding alone are constant."""
    points = case.points(3)
    model = case.model()
    mean, _ = moments(model, points)
    inputs, y = case.data()
    for unit, offset in ((1e-30, 0.0), (1e-9, 2.0)):
        context = contextlib.nullcontext()
        if not case.on_grid:
            context = pytest.warns(UserWarning, match="standard deviation of .* larger unit")
        with context:
            other = case.make(inputs, unit * y + offset)
        other.load_state_dict({**model.state_dict(), **transforms(other)})
        found = (moments(other.eval(), points)[0] - offset) / unit
        tolerance = 1e-6 if offset == 0 else 1e-4  # of the digits that the offset leaves
        torch.testing.assert_close(found, mean, rtol=tolerance, atol=tolerance)
    if not (case.exact or case.on_grid):  # its distribution is not that of the data
        return
    constant = case.make(inputs, torch.where(y.isnan(), y, 0.1)).eval()
    found = moments(constant, points)
    torch.testing.assert_close(found[0], torch.full_like(found[0], 0.1))
    assert found[1].isfinite().all()


def transforms(model):
    """Return the entries of a state that belong to the data."""
    return {k: v for k, v in model.state_dict().items() if "transform" in k or "scale_of" in k}


def check_global_state(case: Case):
    """Construction and use of a model do not change the global state or its arguments."""
    inputs, y = case.data(n=200)  # their kernel matrix is singular to rounding
    kept = copy.deepcopy((inputs, y))
    with unchanged(), warnings.catch_warnings():
        warnings.simplefilter("error", NumericalWarning)  # of jitter
        model = case.make(inputs, y).eval()
        moments(model, case.points(3))
        moments(model, case.points(400))
    for one, two in zip([*_list(inputs), y], [*_list(kept[0]), kept[1]], strict=True):
        torch.testing.assert_close(one, two, equal_nan=True)


def check_settings(case: Case):
    """GPyTorch's settings of how posteriors are computed do not change them."""
    points, settings = case.points(3), gpytorch.settings
    expected = moments(case.model(), points)
    for setting in (
        settings.debug(False),
        settings.lazily_evaluate_kernels(False),
        settings.fast_pred_var(),
        settings.memory_efficient(),
        settings.detach_test_caches(False),
        settings.fast_computations(False, False, False),
        settings.trace_mode(),
    ):
        with setting:
            found = moments(case.model(), points)
        message = f"{type(setting).__name__} changes the posterior"
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, msg=message)
    model = case.model().train()
    if case.exact:
        mll, data = ExactMarginalLogLikelihood(model.likelihood, model), model.train_inputs
        density = mll(model(*data), model.train_targets)
        with settings.lazily_evaluate_kernels(False):  # as while another thread evaluates a kernel
            torch.testing.assert_close(mll(model(*data), model.train_targets), density)
        with settings.observation_nan_policy("mask"):
            if hasattr(model, "inducing_points") or isinstance(
                model.covar_module, FeatureSumKernel
            ):
                with pytest.raises(NotImplementedError, match="does not support observation_nan"):
                    model(*data)
            else:
                torch.testing.assert_close(mll(model(*data), model.train_targets), density)
    with mock.patch.object(settings.prior_mode, "__init__", side_effect=AssertionError):
        moments(model := case.model(), points)  # other threads would return the prior
        if case.takes_rows:
            moments(model.condition_on_observations(points, 0 * points[..., :1]), points)


def check_noise_of_new_rows(case: Case):
    """Moments given rows with known noise, by the joint posterior of points and new rows."""
    outputs = 2 if case.outputs else 1
    model, tasks = case.model(outputs, outcome_transform=None), case.cls is NKNMultiTaskGP
    feature_sum = isinstance(getattr(model, "covar_module", None), FeatureSumKernel)
    if not (case.takes_rows and case.linear) or feature_sum:
        return
    rows, y = case.points(7), torch.linspace(-1, 2, 2 * outputs).view(2, outputs)
    if tasks:
        rows = torch.cat([rows, torch.tensor([3.0, 7.0, 7.0, 3.0, 3.0, 7.0, 3.0])[:, None]], -1)
    models, noise, own = [model], 0.3 + y.square(), model.train_targets.shape[:-1]
    if case.name in ("nkn", "spectral alone"):  # their kernels do the same in BoTorch's models
        parts = {"covar_module": model.covar_module, "likelihood": model.likelihood}
        models += [SingleTaskGP(*case.data(outputs), **parts, outcome_transform=None).eval()]
    for model in models:
        at, x = rows.split([5, 2])
        moments(model, at)
        joint = model(rows.expand(*own, *rows.shape))
        (old, there), cov = joint.mean.split([5, 2], -1), joint.covariance_matrix
        seen = cov[..., 5:, 5:] + torch.diag_embed(noise.mT.squeeze(0).expand(*own, 2))
        gain = torch.linalg.solve(seen, cov[..., 5:, :5]).mT
        knowing = model.condition_on_observations(x, y, noise=noise)
        given = [knowing] if type(model) is SingleTaskGP else [knowing, copy.deepcopy(knowing)]
        sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
        if not tasks:
            given += [model.fantasize(x, sampler, observation_noise=noise)]
        else:
            with pytest.raises(NotImplementedError, match="not supported by MultiTaskGP"):
                model.fantasize(x, sampler, observation_noise=noise)
        for new in given:
            found, change = new(at.expand(*own, *at.shape)), new.train_targets[..., -2:] - there
            mean = old + (gain @ change.unsqueeze(-1)).squeeze(-1)
            exact = {"rtol": 1e-10, "atol": 1e-10}
            torch.testing.assert_close(found.mean, mean.expand_as(found.mean), **exact)
            rest = (cov[..., :5, :5] - gain @ cov[..., 5:, :5]).expand_as(found.covariance_matrix)
            torch.testing.assert_close(found.covariance_matrix, rest, **exact)
        learned, same = (
            moments(m, at, observation_noise=True)[1] - moments(m, at)[1] for m in (model, knowing)
        )
        torch.testing.assert_close(same, learned, rtol=1e-4, atol=1e-5)


def check_conditioning(case: Case):
    """Further observations draw the mean to them, and fantasies have their shapes; or an error."""
    model = case.model()
    points = case.points(1)
    moments(model, points)
    if not case.takes_rows:
        with pytest.raises(NotImplementedError, match=case.cls.__name__):
            model.condition_on_observations(points, torch.ones(1, 1).to(points))
        with pytest.raises(NotImplementedError, match=f"{case.cls.__name__}|look ahead"):
            model.fantasize(points, SobolQMCNormalSampler(torch.Size([2])))
        if hasattr(model, "get_fantasy_model"):  # of a ModelListGP's models
            with pytest.raises(NotImplementedError, match=case.cls.__name__):
                model.get_fantasy_model(points, torch.ones(1).to(points))
        return
    mean, _ = moments(model, points)
    high = mean.mean().expand(1, 1) + 20
    knowing = model.condition_on_observations(points, high)
    new, _ = moments(knowing, points)
    assert (new > mean + 1).all()
    still, _ = moments(model, points)
    torch.testing.assert_close(still, mean)
    unused = case.model().train()  # its outcome transform learns from outcomes
    unused.condition_on_observations(points, high, noise=0.1 * high)
    torch.testing.assert_close(moments(unused, points)[0], mean)
    outputs = 2 if case.outputs else 1
    model = case.model(outputs, outcome_transform=None)
    inputs, y = case.data(outputs)
    new_x, new_y = case.points(2), torch.linspace(-1, 2, 2 * outputs).view(2, outputs)
    at = case.points(5)
    moments(model, at)
    found = moments(model.condition_on_observations(new_x.float(), new_y.float()), at)
    data = torch.cat([inputs, new_x]), torch.cat([y, new_y])
    whole = case.make(*data, outcome_transform=None)
    whole.load_state_dict(model.state_dict())
    torch.testing.assert_close(found, moments(whole.eval(), at), rtol=1e-4, atol=1e-5)
    assert (found[0] - moments(model, at)[0]).abs().max() > 1e-3
    with pytest.raises(ValueError, match="noise must be non-negative variances of shape"):
        model.condition_on_observations(new_x, new_y, noise=-new_y.abs())
    batch = model.fantasize(case.points(4, 2), SobolQMCNormalSampler(torch.Size([3]), seed=0))
    mean, variance = moments(batch, at)
    members = () if case.members is None else (case.members,)
    assert mean.shape == variance.shape == (3, 4, *members, 5, outputs)
    if case.linear:
        torch.testing.assert_close(variance[0], variance[1])  # they differ in what is observed
    assert (mean[0] - mean[1]).abs().max() > 1e-3
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
    alone, batch = (model.fantasize(x, sampler) for x in (new_x, new_x.unsqueeze(0)))
    single = [v.unsqueeze(1) for v in moments(alone, at)]  # a batch of one
    torch.testing.assert_close([*moments(batch, at)], single)


def check_leave_one_out(case: Case):
    """BoTorch's leave-one-out predictions equal models without the row; or an error."""
    model = case.model(outcome_transform=None)
    refusals = (UnsupportedError, NotImplementedError)
    if case.on_grid or case.cls is VariationalNKNGP or hasattr(model, "inducing_points"):
        with pytest.raises(refusals, match="loo_cv|LOO"):
            loo_cv(model)
        return
    if isinstance(model, SpectralGP) and isinstance(model.covar_module, FeatureSumKernel):
        with pytest.raises(NotImplementedError, match="SpectralGP with inducing points.*loo_cv"):
            loo_cv(model)
        moments(model, case.points(2))
        with pytest.raises(NotImplementedError, match="loo_cv"):
            loo_cv(model)
        return
    if not case.linear:
        with pytest.raises(UnsupportedError, match="different train_Y"):
            loo_cv(model)
        return
    found = loo_cv(model).posterior
    (x, y), suffix = case.data(), "mixture_" if case.members else ""
    for row in (0, 5):
        kept = torch.arange(N) != row
        other = case.make(x[kept], y[kept], outcome_transform=None)
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            expected = other.eval().posterior(x[[row]], observation_noise=True)
        for name in ("mean", "variance"):
            one, two = (getattr(p, suffix + name) for p in (found, expected))
            torch.testing.assert_close(one[row].flatten(), two.flatten())


def check_bad_data(case: Case):
    """Values that are no numbers and shapes that do not fit raise an error that names them."""
    inputs, y = case.data()
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(TypeError, match=f"float32 or float64 numbers, got {dtype}"):
            case.make(*case.data(dtype=dtype))
    on_meta = [x.to("meta") for x in inputs] if case.on_grid else inputs.to("meta")
    with pytest.raises(NotImplementedError, match="got the meta device"):
        case.make(on_meta, y.to("meta"))
    # GPyTorch's own kernels of a case cannot be made there
    with torch.device("meta"), pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        case.make(inputs, y)
    if not case.members:
        with pytest.raises(ValueError, match="mean_module does not fit inputs of shape"):
            case.make(inputs, y, mean_module=LinearMean(9))
    if case.on_grid:  # further in tests/models/grid
        return
    for bad in (torch.nan, torch.inf):
        x, z = inputs.clone(), y.clone()
        x[2, 1 % case.columns], z[3, 0] = bad, bad
        with pytest.raises(Exception, match="(?i)nan|inf|finite"):
            case.make(x, y)
        with pytest.raises(Exception, match="(?i)nan|inf|finite"):
            case.make(inputs, z)
    for x, z in ((inputs, y[:-1]), (inputs[:-1], y), (inputs, y[:, 0]), (inputs[:, 0], y)):
        with pytest.raises(Exception, match=r"\d"):  # the message shows the shapes
            case.make(x, z)


def check_data_set_later(case: Case):
    """Data that are set later make the model that they make at the start, row by row."""
    model, points = case.model(), case.points(3)
    if case.on_grid or not hasattr(model, "set_train_data"):
        assert case.on_grid or case.cls is VariationalNKNGP
        return
    x, y = case.data(n=N + 3, seed=1)
    fresh = case.make(x, y, outcome_transform=None)
    model = case.model(outcome_transform=None)
    fresh.load_state_dict(model.state_dict())
    inputs, targets = fresh.train().train_inputs[0], fresh.train_targets
    for rows in (N - 1, 1, N + 9):
        wrong = targets[..., :1].expand(*targets.shape[:-1], rows)
        with pytest.raises(ValueError, match=rf"{N + 3}.*{rows}"):
            model.set_train_data(inputs, wrong, strict=False)
        with pytest.raises(ValueError, match="rows"):
            model.set_train_data(targets=wrong, strict=False)
    model.set_train_data(inputs, targets, strict=False)
    torch.testing.assert_close(moments(model, points), moments(fresh.eval(), points))


def check_likelihood(case: Case):
    """GPyTorch's marginal likelihood of a model in training mode is a number with gradients."""
    model = case.make(*case.data()).train()
    if case.on_grid or case.members:
        options = {"closure": print}, {"optimizer_kwargs": {"options": {"maxiter": 2}}}
        by_options = [partial(fit_gpytorch_mll, **some) for some in options]
        for fit in (fit_gpytorch_mll_scipy, fit_gpytorch_mll_torch, *by_options):
            with pytest.raises(NotImplementedError, match="must be trained by fit_"):
                fit(ExactMarginalLogLikelihood(model.likelihood, model))
    if not case.exact:
        return
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    value = mll(model(*model.train_inputs), model.train_targets).sum()
    value.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert torch.isfinite(value) and gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)


def check_data_sets(case: Case):
    """A data set of BoTorch's gives the arguments of the constructor; or an error."""
    x, y = case.points(N), case.points(N).sin().sum(-1, keepdim=True)
    for known in (None, 0.1 + y.square()):
        data = SupervisedDataset(x, y, Yvar=known, feature_names=["a", "b"], outcome_names=["y"])
        if case.on_grid:
            with pytest.raises(NotImplementedError, match="KroneckerGridGP does not support data"):
                case.cls.construct_inputs(data)
            continue
        given = case.cls.construct_inputs(data, categorical_features=[])
        made = [case.cls(**given), case.cls(x, y, known)]
        assert torch.equal(*(moments(model.eval(), x)[0] for model in made))
        if "cat_dims" in signature(case.cls).parameters:
            assert case.cls.construct_inputs(data, categorical_features=[1])["cat_dims"] == [1]
        else:
            with pytest.raises(NotImplementedError, match=r"categorical_features, got \[1\]"):
                case.cls.construct_inputs(data, categorical_features=[1])


def _list(value):
    return value if isinstance(value, list) else [value]


CHECKS = [
    check_posterior,
    check_parameter_samples,
    check_gradients_of_points,
    check_gradients_of_joint_posteriors,
    check_gradients_of_parameters,
    check_second_derivatives_of_points,
    check_gradient_posterior,
    check_samples,
    check_paths,
    check_noise,
    check_outputs,
    check_subsets,
    check_batches,
    check_input_transforms,
    check_outcome_transforms,
    check_columns_of_transforms,
    check_predict,
    check_lists,
    check_many_points,
    check_covariances_of_many_points,
    check_copies,
    check_state,
    check_changed_state,
    check_dtypes,
    check_units,
    check_tiny_outcomes,
    check_global_state,
    check_settings,
    check_conditioning,
    check_noise_of_new_rows,
    check_leave_one_out,
    check_bad_data,
    check_data_set_later,
    check_likelihood,
    check_data_sets,
]
