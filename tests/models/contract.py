"""What holds for every model; ``registry.py`` says which there are."""

import copy
import io
import pickle

import gpytorch
import pytest
import torch
from botorch.posteriors import Posterior
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from tests.global_state import unchanged
from tests.models.registry import Case

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


def check_outputs(case: Case):
    """Several outputs, some of them; or a refusal."""
    if case.on_grid:  # every grid has one
        assert case.model().num_outputs == 1
        return
    if not case.outputs:
        with pytest.raises(REFUSALS):
            case.model(outputs=2)
        return
    model, points = case.model(outputs=3), case.points(2)
    mean, variance = moments(model, points)
    assert model.num_outputs == 3 and mean.shape == variance.shape == (2, 3)
    if case.subsets:
        some = model.subset_output([2, 0])
        assert some.num_outputs == 2
        torch.testing.assert_close(moments(some, points)[0], mean[:, [2, 0]])
        torch.testing.assert_close(moments(some, points)[1], variance[:, [2, 0]])
    else:
        with pytest.raises(REFUSALS):
            model.subset_output([0])


def check_batches(case: Case):
    """A batch of data sets gives what each of them gives; or a refusal."""
    if not case.batches:
        with pytest.raises(REFUSALS):
            case.model(batch_shape=(2,))
        return
    model, points = case.model(batch_shape=(2,)), case.points(2)
    mean, variance = moments(model, points.expand(2, 2, -1))
    assert model.batch_shape == (2,) and mean.shape == (2, 2, 1)
    assert variance.min() > 0 and not torch.allclose(mean[0], mean[1])


def check_copies(case: Case):
    """Copies and pickles predict the same, before and after a use, and stand alone."""
    model, points = case.model(), case.points(3)
    for _ in range(2):  # the second time with what a prediction keeps
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        before = moments(model, points)
        for other in copies:
            for one, two in zip(moments(other, points), before, strict=True):
                torch.testing.assert_close(one, two)
    for other in copies:
        assert other.training == model.training
        priors = log_priors(other)
        other.train()
        for parameter in other.parameters():
            parameter.data += 0.3
        other.eval()
        assert all(a != b for a, b in zip(log_priors(other), priors, strict=True))
    after = moments(model, points)
    for one, two in zip(after, before, strict=True):
        assert torch.equal(one, two)


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
    other = case.make(*case.data()).eval()
    moments(other, points)
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    for one, two in zip(moments(other, points), moments(model, points), strict=True):
        torch.testing.assert_close(one, two)


def check_dtypes(case: Case):
    """It has the dtype of its data; made in float32 or converted to it, it comes close."""
    points = case.points(3)
    torch.set_default_dtype(torch.float32)  # as most scripts have it
    made = case.make(*case.data())
    torch.set_default_dtype(torch.float64)
    floating = [v for v in made.state_dict().values() if v.is_floating_point()]
    assert {value.dtype for value in floating} == {torch.float64}
    exact = moments(case.model(), points)
    single = case.make(*case.data(dtype=torch.float32)).eval()
    single.load_state_dict(case.model().state_dict())
    for model in (single, case.model().float().eval()):
        found = moments(model, points.float())
        for one, two in zip(found, exact, strict=True):
            assert one.dtype == torch.float32
            scale = two.abs().max()
            torch.testing.assert_close(one.double(), two, rtol=0.05, atol=0.02 * scale.item())


def check_device(case: Case, device):
    """On another device it predicts the same."""
    points = case.points(3)
    exact = moments(case.model(), points)
    found = moments(case.model().to(device), points.to(device))
    for one, two in zip(found, exact, strict=True):
        assert one.device.type == torch.device(device).type
        torch.testing.assert_close(one.cpu(), two, rtol=1e-6, atol=1e-8)


def check_units(case: Case):
    """Another unit and offset of the outcomes go through: they are standardised inside."""
    points = case.points(3)
    mean, variance = moments(case.model(), points)
    inputs, y = case.data()
    other = case.make(inputs, 1000 * y + 50)
    other.load_state_dict({**case.model().state_dict(), **transforms(other)})
    other.eval()
    for one, two in zip(moments(other, points), (1000 * mean + 50, 1e6 * variance), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6 * two.abs().max().item())


def transforms(model):
    """What of a state belongs to the data."""
    return {k: v for k, v in model.state_dict().items() if "transform" in k or "scale_of" in k}


def check_global_state(case: Case):
    """Making and using a model leaves the global state, and its arguments, as they were."""
    inputs, y = case.data()
    kept = copy.deepcopy((inputs, y))
    with unchanged():
        model = case.make(inputs, y).eval()
        moments(model, case.points(3))
    for one, two in zip([*_list(inputs), y], [*_list(kept[0]), kept[1]], strict=True):
        torch.testing.assert_close(one, two, equal_nan=True)


def check_conditioning(case: Case):
    """Further observations draw the mean to them, and fantasies have their shapes; or a refusal."""
    model = case.model()
    points = case.points(1)
    moments(model, points)
    if not case.takes_rows:
        with pytest.raises(NotImplementedError, match=case.cls.__name__):
            model.condition_on_observations(points, torch.ones(1, 1).to(points))
        with pytest.raises(NotImplementedError, match=case.cls.__name__):
            model.fantasize(points, SobolQMCNormalSampler(torch.Size([2])))
        return
    fantasies = model.fantasize(points, SobolQMCNormalSampler(torch.Size([2]), seed=0))
    assert moments(fantasies, points)[0].shape[0] == 2
    mean, _ = moments(model, points)
    high = mean.mean().expand(1, 1) + 20
    knowing = model.condition_on_observations(points, high)
    new, _ = moments(knowing, points)
    assert (new > mean + 1).all()
    still, _ = moments(model, points)
    torch.testing.assert_close(still, mean)


def check_bad_data(case: Case):
    """Values that are no numbers and shapes that do not fit are refused, and named."""
    inputs, y = case.data()
    if case.on_grid:
        with pytest.raises(REFUSALS):
            case.make(inputs[:1], y)
        with pytest.raises(REFUSALS):
            case.make([inputs[0][:-1], inputs[1]], y)
        broken = [inputs[0].clone(), inputs[1]]
        broken[0][1] = torch.nan
        with pytest.raises(REFUSALS):
            case.make(broken, y)
        infinite = y.clone()
        infinite[0, 0] = torch.inf
        with pytest.raises(REFUSALS):
            case.make(inputs, infinite)
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


def check_likelihood(case: Case):
    """GPyTorch's marginal likelihood of a model in training mode is a number with gradients."""
    if not case.exact:
        return
    model = case.make(*case.data()).train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    value = mll(model(*model.train_inputs), model.train_targets).sum()
    value.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert torch.isfinite(value) and gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)


def _list(value):
    return value if isinstance(value, list) else [value]


CHECKS = [
    check_posterior,
    check_gradients_of_points,
    check_outputs,
    check_batches,
    check_copies,
    check_state,
    check_dtypes,
    check_units,
    check_global_state,
    check_conditioning,
    check_bad_data,
    check_likelihood,
]
