import pytest
import torch
from botorch.models import ModelListGP
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.settings import cholesky_jitter
from torch.distributions import Normal

from gpytorch_nkn.averaging import stacking_weights
from gpytorch_nkn.models import StructureEnsembleGP, fit_structure_ensemble_gp
from gpytorch_nkn.models.averaging.member_warp import (
    IDENTITY,
    fit_warp,
    unwarped,
    warp_slope,
    warped,
)
from gpytorch_nkn.models.averaging.structure_kernel import StructureKernel

PLAIN = ("optimization", "matern", "rbf")
QUICK = {"max_iterations": 10}
TWO = {"structures": ["outcome-warped rbf", "rbf"], "num_members": 2}


def function(x):
    return (5 * x).sin().sum(-1, keepdim=True) * 3 + 7


def draw(n=12, d=3, seed=0):
    x = torch.rand(n, d, generator=torch.Generator().manual_seed(seed))
    return x, function(x)


def fitted(n=12, **options):
    return fit_structure_ensemble_gp(StructureEnsembleGP(*draw(n), **options), **QUICK)


def kernels():
    return [RBFKernel(), ScaleKernel(MaternKernel(ard_num_dims=3)), PeriodicKernel()]


@pytest.mark.parametrize("diag", [False, True])
def test_each_entry_of_the_batch_has_the_kernel_that_it_says(diag):
    parts, members = kernels(), torch.tensor([2, 0, 2, 1])
    kernel = StructureKernel(parts, members)
    x1, x2 = torch.rand(4, 5, 3), torch.rand(4, 5, 3)

    def dense(values):
        return values if isinstance(values, torch.Tensor) else values.to_dense()

    def expected(x1, x2):
        found = [dense(parts[m](x1[i], x2[i], diag=diag)) for i, m in enumerate(members)]
        return torch.stack(found)

    assert kernel.batch_shape == (4,)
    torch.testing.assert_close(dense(kernel(x1, x2, diag=diag)), expected(x1, x2))
    shared = dense(kernel(x1[0], x2[0], diag=diag))
    torch.testing.assert_close(shared, expected(x1[:1].expand(4, -1, -1), x2[:1].expand(4, -1, -1)))
    torch.testing.assert_close(dense(kernel(x1[:1], x2[:1], diag=diag)), shared)
    wide = dense(kernel.expand_batch(2, 4)(x1.expand(2, 4, 5, 3), x2, diag=diag))
    torch.testing.assert_close(wide, expected(x1, x2).expand(2, *shared.shape))
    torch.testing.assert_close(dense(kernel[1:](x1[1:], x2[1:], diag=diag)), expected(x1, x2)[1:])
    torch.testing.assert_close(dense(kernel[3](x1[3], x2[3], diag=diag)), expected(x1, x2)[3])


def test_posterior_draws_of_an_ensemble_with_a_structure_without_members():
    model = StructureEnsembleGP(*draw(), structures=PLAIN).eval()
    model.set_weights([0.0, 0.5, 0.5])
    values = draw_matheron_paths(model, torch.Size([2]))(torch.rand(5, 3))
    assert values.shape == (2, 8, 5) and values.isfinite().all()


def test_members_equal_dense_computations():
    model, x = fitted(structures=PLAIN), torch.rand(5, 3)
    model.set_weights([0.5, 0.25, 0.25])
    posterior = model.posterior(x)
    train, targets = model.train_inputs[0][0], model.train_targets[0]
    scale, shift = model.outcome_transform.stdvs.item(), model.outcome_transform.means.item()
    assert model.covar_module.members.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    jitter = cholesky_jitter.value(x.dtype)
    for place, number in enumerate(model.covar_module.members.tolist()):
        kernel = model.covar_module.kernels[number]
        prior, likelihood = model.member_parts(model.part_values[number])
        constant, noise = prior.constant, likelihood.noise
        inverse = torch.linalg.inv(kernel(train).to_dense() + noise * torch.eye(len(train)))
        cross = kernel(x, train).to_dense()
        mean = constant + cross @ inverse @ (targets - constant)
        covariance = kernel(x).to_dense() - cross @ inverse @ cross.T + jitter * torch.eye(5)
        found = posterior.distribution[place]
        torch.testing.assert_close(found.mean, shift + scale * mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            found.covariance_matrix, scale**2 * covariance, rtol=1e-4, atol=1e-5
        )
    single = model.posterior(x.unsqueeze(-2))  # many batches of one point
    torch.testing.assert_close(single.mean[..., 0, 0].mT, posterior.mean[..., 0])
    variance = posterior.variance[..., 0] - jitter * scale**2
    torch.testing.assert_close(single.variance[..., 0, 0].mT, variance, rtol=1e-5, atol=1e-6)


def test_members_that_were_set_apart_are_predicted_by_themselves():
    model, x = fitted(structures=("rbf",)), torch.rand(2, 3)
    model.posterior(x)
    model.train()
    model.likelihood.noise = torch.linspace(0.01, 0.5, 8).unsqueeze(-1)
    means = model.posterior(x).mean
    assert means.std(0).min() > 1e-4
    targets = torch.randn(8, 2, 1)  # of each member
    again = fitted(structures=("rbf",))
    again.posterior(x)
    told = again.condition_on_observations(x, targets)
    assert told.posterior(x).mean.std(-3).min() > 1e-4


class Broken(RBFKernel):
    def forward(self, x1, x2, diag=False, **params):
        if diag or len(x1) != len(x2) or len(x1) < 3:
            return super().forward(x1, x2, diag=diag, **params)
        return -super().forward(x1, x2, diag=diag, **params)  # not positive definite


@pytest.mark.filterwarnings("ignore::linear_operator.utils.warnings.NumericalWarning")
def test_a_structure_whose_training_fails_has_no_weight():
    model = StructureEnsembleGP(*draw(), structures=["rbf", Broken()])
    with pytest.warns(RuntimeWarning, match="'Broken' has no weight"):
        fit_structure_ensemble_gp(model, **QUICK)
    assert model.structure_weights == {"rbf": 1.0, "Broken": 0.0}
    assert model.posterior(torch.rand(2, 3)).mean.isfinite().all()
    alone = StructureEnsembleGP(*draw(), structures=[Broken()])
    with pytest.raises(RuntimeError, match="every structure failed.*Broken"):
        fit_structure_ensemble_gp(alone, **QUICK)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structures": "rbf"}, ValueError, r"a sequence such as \('matern',\), got 'rbf'"),
        ({"structures": []}, ValueError, r"a sequence such as .*, got \[\]"),
        ({"structures": ["rfb"]}, ValueError, "structure must be one of .*'rbf'.*got 'rfb'"),
        ({"structures": [3]}, TypeError, "structure must be a name.*got int"),
        ({"structures": ["time_series"]}, ValueError, "one input column, got 3"),
        ({"structures": [RBFKernel(ard_num_dims=2)]}, ValueError, "does not fit 3 input columns"),
        ({"num_members": 2}, ValueError, "at least the number of structures, 4, got 2"),
        ({"num_members": 2.5}, TypeError, "num_members must be an integer"),
    ],
)
def test_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        StructureEnsembleGP(*draw(), **options)


def test_models_and_weights_that_do_not_fit():
    x, y = draw()
    model = StructureEnsembleGP(x, y)
    with pytest.raises(ValueError, match="must be 4 numbers, not negative"):
        model.set_weights([1.0, -1.0, 0.5])
    with pytest.raises(TypeError, match="got ModelListGP; train each of its models"):
        fit_structure_ensemble_gp(ModelListGP(model, model), **QUICK)
    model.eval().posterior(x)
    fantasy = model.fantasize(x[:1], SobolQMCNormalSampler(torch.Size([2])))
    with pytest.raises(ValueError, match="fantasies cannot be trained"):
        fit_structure_ensemble_gp(fantasy, **QUICK)


def skewed(n=30, d=3):
    x, y = draw(n, d)
    return x, -(y - 7).exp()


@pytest.mark.parametrize("direction", [1, -1])
def test_the_warp_of_a_log_normal_sample_makes_it_normal(direction):
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(400, generator=generator)
    y = 3.0 - direction * (2 * normal).exp()
    warp = fit_warp(y)
    assert warp[0] == direction
    z = warped(y, warp)
    torch.testing.assert_close(torch.stack([z.mean(), z.std()]), torch.tensor([0.0, 1.0]))
    skewness = [one.sub(one.mean()).div(one.std()).pow(3).mean().abs() for one in (y, z)]
    assert skewness[0] > 4 and skewness[1] < 1
    assert torch.equal(z.argsort(), y.argsort())


def test_warps_have_inverses_and_slopes_and_go_on_linearly():
    y = torch.linspace(-4, 4, 41)
    for warp in (fit_warp(-y.exp()), fit_warp(y.exp()), torch.tensor(IDENTITY)):
        wide = torch.cat([1e3 * y, y])
        torch.testing.assert_close(unwarped(warped(wide, warp), warp), wide, rtol=1e-9, atol=1e-9)
        inside = (y + 0.013).requires_grad_()
        (slope,) = torch.autograd.grad(warped(inside, warp).sum(), inside)
        torch.testing.assert_close(warp_slope(inside.detach(), warp), slope)
        assert (slope > 0).all()
        far = warped(torch.tensor([-1e6, -1e6 - 1, -1e6 - 2, 1e6, 1e6 + 1, 1e6 + 2]), warp)
        first, second = far.view(2, 3).diff().abs().unbind(-1)
        torch.testing.assert_close(first, second)
    assert torch.equal(fit_warp(torch.full((4,), 0.1)), torch.tensor(IDENTITY))


@pytest.mark.parametrize(("sign", "late"), [(1, True), (-1, False)])
def test_a_warped_posterior_has_median_and_probability_of_improvement_of_the_scale(sign, late):
    x, y = skewed()
    y = sign * y  # the better ones are close together
    maximize = sign > 0
    model = StructureEnsembleGP(
        x, y, structures=["outcome-warped rbf"], num_members=1, maximize=maximize != late
    )
    fit_structure_ensemble_gp(model, **QUICK)
    model.maximize = maximize
    assert model.warps[0, 0] == sign
    points = torch.rand(50, 1, 3)
    with torch.no_grad():
        inner = model(points.unsqueeze(-3))
        posterior = model.posterior(points)
        torch.testing.assert_close(model(points[0]).mean, inner.mean[0])  # without a batch
    standardize = model.common_transform
    scale, shift = standardize.stdvs.item(), standardize.means.item()

    def back(z):
        return unwarped(z, model.warps[0]) * scale + shift

    center, deviation = inner.mean.flatten(), inner.variance.sqrt().flatten()
    torch.testing.assert_close(posterior.mean.flatten(), back(center))
    least = sign * (sign * y).max()
    best = warped((least - shift) / scale, model.warps[0])
    apart = (best - center).abs() > 0.01  # elsewhere a derivative
    scores = (least - posterior.mean.flatten()) / posterior.variance.sqrt().flatten()
    expected = (best - center) / deviation
    torch.testing.assert_close(scores[apart], expected[apart], rtol=1e-3, atol=1e-6)
    assert apart.sum() > 40 and (sign * expected[apart]).max() > 1
    at_data = model.posterior(x.unsqueeze(-2)).mean.flatten()
    assert ((at_data - y.flatten()) / y.flatten()).abs().median() < 0.1


@pytest.mark.filterwarnings("ignore:Data .outcome observations. is not standardized")
@pytest.mark.parametrize("known", [False, True])
@torch.no_grad()
def test_weights_match_what_members_predict_without_each_point(known):
    x, y = skewed(16)
    y = (y - y.mean()) / y.std()
    noise = 0.01 + 0.02 * torch.rand_like(y) if known else None
    options = {"structures": ["matern", "outcome-warped rbf"], "outcome_transform": None}
    model = StructureEnsembleGP(x, y, noise, **options)
    fit_structure_ensemble_gp(model, **QUICK)
    densities = torch.empty(2, len(y))
    for i in range(len(y)):
        rest = torch.arange(len(y)) != i
        left = noise[rest] if known else None
        without = StructureEnsembleGP(x[rest], y[rest], left, **options)
        state = model.state_dict()
        for name, value in without.state_dict().items():
            if name.startswith("covar_module.kernels") or value.shape[:1] == (2,):
                value.copy_(state[name])
        for structure in range(2):
            without.set_weights(torch.eye(2)[structure])
            posterior = without.eval().posterior(x[[i]], observation_noise=not known)
            variance = posterior.variance[0].squeeze() + (noise[i, 0] if known else 0)
            predicted = Normal(posterior.mean[0].squeeze(), variance.sqrt())
            densities[structure, i] = predicted.log_prob(y[i, 0])
    expected = stacking_weights(densities.numpy(), concentration=4 / len(y))
    assert 0.01 < expected.min() < 0.49
    torch.testing.assert_close(
        model.weights, torch.from_numpy(expected).to(model.weights), atol=1e-3, rtol=0
    )


def test_known_noise_is_warped_with_the_outcomes():
    x, y = skewed()
    noise = 0.01 * y.square()
    model = StructureEnsembleGP(x, y, noise, **TWO)
    model.warps[0] = fit_warp(model.common_data()[1])
    model.set_weights([0.5, 0.5])
    _, common, variance = model.common_data()
    torch.testing.assert_close(common, model.train_targets[1])
    torch.testing.assert_close(variance, model.likelihood.noise[1])
    slope = warp_slope(common, model.warps[0])
    torch.testing.assert_close(model.likelihood.noise[0], variance * slope.square())
    fit_structure_ensemble_gp(model, **QUICK)
    assert model.posterior(x).variance.min() > 0


def test_a_loaded_state_has_the_outcomes_under_its_warps():
    (x, y), points = skewed(), torch.rand(4, 3)
    for noise in (None, 0.01 * y.square()):
        first, *others = (StructureEnsembleGP(x, y, noise, **TWO) for _ in range(3))
        fit_structure_ensemble_gp(first, **QUICK).set_weights([0.5, 0.5])
        source, parent = (ExactMarginalLogLikelihood(m.likelihood, m) for m in (first, others[0]))
        parent.load_state_dict(source.state_dict())
        others[1].load_state_dict(first.state_dict(), keep_transforms=False)
        for model in others:
            found, expected = (m.eval().posterior(points) for m in (model, first))
            torch.testing.assert_close(found.mean, expected.mean)
            torch.testing.assert_close(found.variance, expected.variance)


@pytest.mark.parametrize(("shape", "learned"), [((12,), True), ((2, 12), False)])
def test_known_noise_that_is_assigned_is_that_of_the_constructor(shape, learned):
    (x, y), noise = draw(), 0.01 + 0.1 * torch.rand(12)
    model = StructureEnsembleGP(x, y, **TWO)
    variance = noise.unsqueeze(-1) * y.var()
    model.likelihood = FixedNoiseGaussianLikelihood(
        noise.expand(shape), learn_additional_noise=learned, batch_shape=torch.Size([2])
    )
    models = model, StructureEnsembleGP(x, y, variance, **TWO)
    means = [fit_structure_ensemble_gp(one, **QUICK).posterior(x).mean for one in models]
    assert torch.allclose(*means, rtol=1e-4) != learned


@torch.no_grad()
def test_predicted_observations_and_fantasies_have_the_known_noise_in_its_unit():
    x, y = skewed()
    noise = torch.full_like(y, 0.04 * y.var())
    model = StructureEnsembleGP(x, y, noise, **TWO)
    fit_structure_ensemble_gp(model, **QUICK)
    model.set_weights([0.5, 0.5])
    test_x = torch.rand(5, 3)
    variance = model.posterior(test_x).variance
    observed = model.posterior(test_x, observation_noise=True).variance
    torch.testing.assert_close(
        observed - variance, noise[0, 0].expand_as(variance), rtol=1e-2, atol=0
    )
    fantasy = model.fantasize(test_x, SobolQMCNormalSampler(torch.Size([512]), seed=0))
    drawn = torch.stack([fantasy.train_targets[:, k, -5:] for k in range(2)], 1)
    drawn[:, 0] = unwarped(drawn[:, 0], model.warps[0])
    drawn = drawn * model.common_transform.stdvs.squeeze()
    torch.testing.assert_close(drawn.std(0), observed.sqrt().squeeze(-1), rtol=0.05, atol=0)
    again = fantasy.fantasize(test_x[:1], SobolQMCNormalSampler(torch.Size([2]), seed=0))
    step = fantasy.posterior(test_x)
    noisy = fantasy.posterior(test_x, observation_noise=True).variance - step.variance
    typical = noise[0, 0].expand_as(noisy).mean()
    assert 0.5 * typical < noisy.min() and noisy.max() < 2 * typical  # drawn points have theirs
    assert again.train_targets.shape == (2, 512, 2, len(y) + 6)
    nothing = model.fantasize(test_x[:0], SobolQMCNormalSampler(torch.Size([3])))
    assert nothing.posterior(test_x).mean.isfinite().all()


@torch.no_grad()
def test_further_observations_have_their_noise():
    x, y = skewed()
    noise = (0.02 + 0.02 * torch.rand_like(y)) * y.var()
    model = StructureEnsembleGP(x, y, noise, **TWO)
    fit_structure_ensemble_gp(model, **QUICK)
    model.set_weights([0.5, 0.5])
    model.eval().posterior(x)
    new_x, new_y = torch.rand(3, 3), y[:3] * 1.1
    new_noise = torch.tensor([[0.1], [0.2], [0.3]])
    longer = model.condition_on_observations(new_x, new_y, noise=new_noise)
    standardize = model.common_transform
    unit = standardize.stdvs.squeeze() ** 2
    dense = StructureEnsembleGP(
        torch.cat([x, new_x]), standardize(torch.cat([y, new_y]))[0],
        torch.cat([noise / unit, new_noise]), outcome_transform=None, **TWO,
    )  # fmt: skip
    state = model.state_dict()
    for name, value in dense.state_dict().items():
        if name.startswith("covar_module.kernels") or name in {"part_values", "warps"}:
            value.copy_(state[name])
    dense.set_weights([0.5, 0.5])
    test_x = torch.rand(4, 3)
    expected = dense.eval().posterior(test_x)
    got = longer.posterior(test_x)
    torch.testing.assert_close(standardize(got.mean)[0], expected.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(got.variance / unit, expected.variance, rtol=1e-2, atol=1e-4)
