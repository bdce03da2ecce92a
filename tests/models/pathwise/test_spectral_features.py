from functools import partial

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from botorch.sampling.pathwise.features import KernelFeatureMap, gen_kernel_features
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

from gpytorch_nkn.kernels import (
    BivariateComplexExponentialKernel,
    CenteredLinearKernel,
    ComplexExponentialKernel,
    NeuralKernelNetwork,
    NonStationarySpectralKernel,
    SpectralComponentKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from gpytorch_nkn.models import NKNSingleTaskGP, SpectralFeatureMap, spectral_features


def spread(kernel):
    """The kernel with parameters that differ, and constants that matter."""
    for number, (name, parameter) in enumerate(kernel.named_parameters()):
        generator = torch.Generator().manual_seed(number)
        if parameter.dim() == 0 or name.split(".")[-1] not in ("frequency", "center"):
            shift = 1.0 if name.endswith("raw_bias") else 0.0
            parameter.data += shift + 0.4 * torch.randn(parameter.shape, generator=generator)
        else:
            parameter.data = 1.5 * torch.randn(parameter.shape, generator=generator)
    return kernel


def two_layers(*primitives, weights="softplus"):
    layers = [
        Linear(len(primitives), 4, weights=weights),
        Product(4, 2),
        Linear(2, 1, weights=weights, seed=1),
    ]
    return NeuralKernelNetwork(primitives, layers)


def waves(kernel):
    """With frequencies that change the sign of values within the inputs."""
    kernel.frequency.data += torch.tensor([1.0, -0.5, 2.0])[: kernel.frequency.size(-1)]
    return kernel


def nested():
    inner = NeuralKernelNetwork(
        [RBFKernel(active_dims=(1,)), MaternKernel(nu=0.5)],
        [Linear(2, 2), Product(2, 1)],
        active_dims=(2, 0),
    )
    return two_layers(inner, ScaleKernel(inner.__class__([RBFKernel()], [Linear(1, 1)])))


def skip_after_product():
    return NeuralKernelNetwork(
        [RBFKernel(active_dims=(0,)), PeriodicKernel(active_dims=(1,))],
        [Linear(2, 4), Product(4, 2, groups=(1, 3)), Product(4, 1)],
        skip=True,
    )


STATIONARY = {
    "optimization": lambda: NeuralKernelNetwork.optimization(3),
    "RQ, periodic and RBF": lambda: two_layers(
        RQKernel(ard_num_dims=3), PeriodicKernel(active_dims=(1,)), RBFKernel()
    ),
    "zero-mean periodic": lambda: two_layers(
        ZeroMeanPeriodicKernel(ard_num_dims=2, active_dims=(0, 2)), ZeroMeanPeriodicKernel()
    ),
    "Matern": lambda: two_layers(MaternKernel(nu=0.5, ard_num_dims=3), MaternKernel(nu=2.5)),
    "spectral components": lambda: two_layers(
        waves(SpectralComponentKernel(ard_num_dims=3)),
        ScaleKernel(waves(SpectralComponentKernel(active_dims=(2, 0)))),
    ),
    "nested": nested,
    "skip after a product": skip_after_product,
    "scale outside and inside": lambda: ScaleKernel(
        two_layers(ScaleKernel(RBFKernel(active_dims=(1,))), ScaleKernel(ScaleKernel(RQKernel())))
    ),
    "sums and products inside": lambda: two_layers(
        RBFKernel(active_dims=(0,)) * RQKernel(active_dims=(2,)) + ConstantKernel(),
        ScaleKernel(MaternKernel(active_dims=(1,)) + RBFKernel()) * RBFKernel(),
    ),
    "active dimensions": lambda: ScaleKernel(
        NeuralKernelNetwork(
            [RBFKernel(ard_num_dims=2), MaternKernel(active_dims=(1,))],
            [Linear(2, 2), Product(2, 1)],
            active_dims=(2, 0),
        )
    ),
    "complex in real": lambda: two_layers(
        two_layers(ComplexExponentialKernel(), RBFKernel()),
        ScaleKernel(ComplexExponentialKernel(ard_num_dims=3)),
    ),
    "polynomial": lambda: NeuralKernelNetwork(
        [RBFKernel(), ComplexExponentialKernel()],
        [Linear(2, 2), Activation(2, (0.5, 0.0, 0.5, 0.3)), Linear(2, 1)],
    ),
    "exponential": lambda: NeuralKernelNetwork(
        [MaternKernel(), RBFKernel(active_dims=(0,))],
        [Linear(2, 2), Activation(2, "exp"), Product(2, 1)],
    ),
}
LINEAR = {
    "regression": lambda: NeuralKernelNetwork.regression(3),
    "centred linear": lambda: two_layers(
        CenteredLinearKernel(ard_num_dims=3), LinearKernel(active_dims=(1,)), RBFKernel()
    ),
    "square of a linear kernel": lambda: NeuralKernelNetwork(
        [LinearKernel(ard_num_dims=3), RQKernel()],
        [Linear(2, 2), Activation(2, (0, 1, 1)), Linear(2, 1)],
    ),
}


def gram(feature_map, x):
    features = feature_map(x)
    return features @ features.mT


@pytest.mark.parametrize("case", [*STATIONARY, *LINEAR])
def test_inner_products_are_the_kernel(case):
    kernel = spread((STATIONARY | LINEAR)[case]())
    x = 1.5 * torch.rand(8, 3)
    expected = kernel(x).to_dense().detach()
    assert expected.std() > 0.05 * expected.max()  # a constant would agree with anything
    feature_map = gen_kernel_features(kernel, num_inputs=3, num_outputs=30_000)
    assert feature_map.num_outputs == feature_map(x).size(-1) == 30_000
    largest = expected.max().item()
    torch.testing.assert_close(gram(feature_map, x), expected, rtol=0, atol=0.03 * largest)


def squared_mixture():
    """A square, whose factors choose between a kernel and a constant with equal chances."""
    linear = Linear(1, 1, weights="simplex")
    linear.weight = 0.5
    return NeuralKernelNetwork([RBFKernel()], [linear, Activation(1, (0.0, 0.0, 1.0))])


@pytest.mark.parametrize(
    "make",
    [
        lambda: spread(two_layers(RBFKernel(), PeriodicKernel(), weights="simplex")),
        lambda: NeuralKernelNetwork([MaternKernel(), MaternKernel(nu=1.5)], [Product(2, 1)]),
        squared_mixture,
    ],
    ids=["products", "Matern", "square"],
)
def test_few_features_have_no_bias(make):
    # with two frequencies each, dependence within one of them would show in the mean of many
    kernel = make().expand_batch(torch.Size([20_000]))
    x = torch.linspace(0, 3, 6).unsqueeze(-1)
    expected = kernel[0](x).to_dense().detach()
    values = gram(spectral_features(kernel, num_inputs=1, num_outputs=4), x).mean(0)
    torch.testing.assert_close(values, expected, rtol=0, atol=0.015 * expected.max().item())


@pytest.mark.parametrize("lengthscale", [1e-6, 1e-3, 1e4, 1e9])
@pytest.mark.parametrize("make", [PeriodicKernel, ZeroMeanPeriodicKernel])
def test_extreme_lengthscales_of_periodic_kernels(make, lengthscale):
    kernel = NeuralKernelNetwork([make()], [Linear(1, 1)])
    kernel.primitives[0].lengthscale = lengthscale
    x = torch.tensor([[0.0], [0.1], [0.25], [0.7]])
    values = gram(spectral_features(kernel, num_inputs=1, num_outputs=20_000), x)
    torch.testing.assert_close(values, kernel(x).to_dense().detach(), rtol=0, atol=0.02)


def test_draws_are_better_than_independent_ones():
    kernel = NeuralKernelNetwork.optimization(3)
    for part in kernel.primitives:  # the covariance varies in the unit cube
        part.lengthscale = 0.4 * part.lengthscale
    x = torch.rand(10, 3)
    expected = kernel(x).to_dense().detach()
    # variance of cos(w d): (1 + k(2 d)) / 2 - k(d)^2, and 256 frequencies
    independent = ((1 + kernel(2 * x).to_dense().detach()) / 2 - expected**2) / 256
    maps = [spectral_features(kernel, num_inputs=3, num_outputs=512) for _ in range(20)]
    mean_square = torch.stack([(gram(m, x) - expected).square() for m in maps]).mean(0)
    assert mean_square.mean() < 0.4 * independent.mean()


@pytest.mark.parametrize(
    ("make", "noise", "tolerance"),
    [
        (NeuralKernelNetwork.optimization, 1e-3, 0.25),
        (NeuralKernelNetwork.regression, 1e-3, 0.35),
        (lambda dim: two_layers(MaternKernel()), 1e-6, 0.5),  # independent frequencies: 25
    ],
    ids=["optimization", "regression", "Matern without noise"],
)
def test_one_map_has_nearly_the_posterior_variance(make, noise, tolerance):
    ratios = []
    for seed in range(6):
        torch.manual_seed(seed)
        kernel = make(2)
        X, x = torch.rand(40, 2), torch.rand(50, 2)
        with torch.no_grad():
            across, K = kernel(x, X).to_dense(), kernel(X).to_dense()
            gain = torch.linalg.solve(K + noise * torch.eye(40), across.mT).mT
            exact = kernel(x, diag=True) - (gain * across).sum(-1)
            feature_map = gen_kernel_features(kernel, num_inputs=2, num_outputs=1024)
            residual = feature_map(x) - gain @ feature_map(X)  # of Matheron's rule
            variance = residual.square().sum(-1) + noise * gain.square().sum(-1)
        ratios.append((variance / exact).mean())
    assert (torch.stack(ratios) - 1).square().mean().sqrt() < tolerance


@pytest.mark.parametrize("case", ["network", "scale of a batch", "scale of one network", "linear"])
def test_elements_of_a_batch_have_frequencies_of_their_own(case):
    shape = torch.Size([2, 3])
    if case == "linear":
        kernel = NeuralKernelNetwork.regression(2, batch_shape=shape)
    else:
        inner = shape if case != "scale of one network" else torch.Size([])
        kernel = NeuralKernelNetwork.optimization(2, batch_shape=inner)
        if case != "network":
            kernel = ScaleKernel(kernel, batch_shape=torch.Size([3]) if inner else shape)
    kernel, x = spread(kernel), torch.rand(7, 2)
    feature_map = gen_kernel_features(kernel, num_inputs=2, num_outputs=20_000)
    assert feature_map.batch_shape == kernel.batch_shape == shape
    frequency = feature_map.frequency.flatten(0, 1)
    assert frequency.shape == (6, 10_000, 2)
    assert (frequency[0] != frequency[1:]).double().mean() > 0.4
    expected = kernel(x).to_dense().detach()
    tolerance = 0.02 * expected.max().item()
    torch.testing.assert_close(gram(feature_map, x), expected, rtol=0, atol=tolerance)
    own_inputs = torch.rand(2, 3, 7, 2)
    expected = kernel(own_inputs).to_dense().detach()
    torch.testing.assert_close(gram(feature_map, own_inputs), expected, rtol=0, atol=tolerance)


def test_columns_are_selected_once_where_the_buffers_are_copies():
    # as they are on a device other than the CPU
    network = NeuralKernelNetwork([RBFKernel(ard_num_dims=2)], [Linear(1, 1)], active_dims=(1, 0))
    network.primitives[0].lengthscale = torch.tensor([[0.2, 2.0]])
    kernel = ScaleKernel(network)
    kernel.active_dims = kernel.active_dims.clone()
    x = torch.tensor([[0.0, 0.1], [0.3, 0.2], [0.5, 0.9]])
    values = gram(gen_kernel_features(kernel, num_inputs=2, num_outputs=20_000), x)
    expected = kernel(x).to_dense().detach()
    assert (kernel(x.flip(-1)).to_dense() - expected).abs().max() > 0.05
    torch.testing.assert_close(values, expected, rtol=0, atol=0.01)


def test_single_precision_and_another_default():
    kernel = spread(NeuralKernelNetwork.regression(3)).float()
    torch.manual_seed(3)
    single = spectral_features(kernel, num_inputs=3, num_outputs=100)
    assert {b.dtype for b in single.buffers()} == {torch.float32}
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(3)
    double = spectral_features(kernel.double(), num_inputs=3, num_outputs=100)
    assert double.frequency.dtype == torch.float64
    torch.testing.assert_close(single.frequency.double(), double.frequency, rtol=1e-5, atol=1e-5)
    assert single(torch.rand(4, 3)).dtype == double.float()(torch.rand(4, 3)).dtype == torch.float32


def test_features_keep_the_parameters_of_the_draw():
    kernel = ScaleKernel(NeuralKernelNetwork.optimization(2))
    x = torch.rand(5, 2, requires_grad=True)
    feature_map = gen_kernel_features(kernel, num_inputs=2, num_outputs=20_000)
    before = gram(feature_map, x)
    kernel.outputscale = 3.0
    kernel.base_kernel.primitives[0].lengthscale = 0.05
    assert torch.equal(gram(feature_map, x), before)
    after = gram(gen_kernel_features(kernel, num_inputs=2, num_outputs=20_000), x)
    torch.testing.assert_close(after, kernel(x).to_dense(), rtol=0, atol=0.03)
    (gradient,) = torch.autograd.grad(before[0, 1], x)
    assert gradient.abs().max() > 0
    assert all(p.grad is None for p in kernel.parameters())


class _MyRBF(RBFKernel):
    def forward(self, x1, x2, **params):
        return super().forward(x1, x2, **params) ** 2


class _MyLayer(Layer):
    def forward(self, values):
        return values.square()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: two_layers(PolynomialKernel(2)), "PolynomialKernel.*posterior.*MaxPosterior"),
        (lambda: two_layers(RBFKernel() + CosineKernel()), "CosineKernel"),
        (lambda: two_layers(_MyRBF()), "_MyRBF"),
        (lambda: two_layers(BivariateComplexExponentialKernel()), "BivariateComplex"),
        (lambda: ScaleKernel(BivariateComplexExponentialKernel()), "BivariateComplex"),
        (lambda: NeuralKernelNetwork([RBFKernel()], [_MyLayer(1, 1)]), "_MyLayer"),
        (
            lambda: NeuralKernelNetwork([LinearKernel()], [Activation(1, "exp")]),
            "exponential of a non-stationary kernel",
        ),
    ],
)
def test_kernels_without_known_features_are_named(make, match):
    with pytest.raises(NotImplementedError, match=match):
        gen_kernel_features(make(), num_inputs=1, num_outputs=8)


def test_wrong_sizes_are_named():
    with pytest.raises(UnsupportedError, match="even and positive, got 7"):
        spectral_features(two_layers(RBFKernel()), num_inputs=1, num_outputs=7)
    with pytest.raises(UnsupportedError, match="even and positive, got 0"):
        spectral_features(two_layers(RBFKernel()), num_inputs=1, num_outputs=0)
    with pytest.raises(ValueError, match="RBFKernel has a lengthscale for 3 columns, got 2"):
        spectral_features(two_layers(RBFKernel(ard_num_dims=3)), num_inputs=2, num_outputs=8)


def test_kernels_that_botorch_knows_are_left_to_it():
    for kernel in (RBFKernel(), ScaleKernel(MaternKernel()), ScaleKernel(ScaleKernel(RBFKernel()))):
        assert type(gen_kernel_features(kernel, num_inputs=2, num_outputs=8)) is KernelFeatureMap
    for kernel in (two_layers(RBFKernel()), ScaleKernel(ZeroMeanPeriodicKernel())):
        assert type(gen_kernel_features(kernel, num_inputs=1, num_outputs=8)) is SpectralFeatureMap


@pytest.mark.parametrize("kind", ["with noise learned beside known noise", "of BoTorch"])
def test_paths_of_a_model_have_the_moments_of_its_posterior(kind):
    generator = torch.Generator().manual_seed(1)
    X, x = (torch.rand(n, 3, generator=generator) for n in (8, 4))
    Y = torch.sin(5 * X[:, :1]) + X[:, 1:2] + 0.1 * torch.randn(8, 1, generator=generator)
    prior = partial(draw_kernel_feature_paths, num_features=1024)
    likelihood = FixedNoiseGaussianLikelihood(torch.full((8,), 1e-3), learn_additional_noise=True)
    likelihood.second_noise = 0.3
    model = NKNSingleTaskGP(X, Y, likelihood=likelihood).eval()
    if kind == "of BoTorch":
        kernel = ScaleKernel(NeuralKernelNetwork.optimization(3))
        model = SingleTaskGP(X, Y, covar_module=kernel, input_transform=Normalize(3)).eval()
    with torch.no_grad():
        samples = draw_matheron_paths(model, torch.Size([1024]), prior_sampler=prior)(x)
        posterior = model.posterior(x)
    assert (samples.mean(0) - posterior.mean.squeeze(-1)).abs().max() < 0.1
    torch.testing.assert_close(samples.var(0), posterior.variance.squeeze(-1), rtol=0.15, atol=0.01)


def pairs(name, **options):
    batch_shape = options.pop("batch_shape", torch.Size())
    kernel = NonStationarySpectralKernel(
        6, 2, correlation=0.3, active_dims=(2, 0), batch_shape=batch_shape, **options
    )
    kernel = spread(kernel)
    return {"alone": kernel, "scaled": ScaleKernel(kernel, batch_shape=batch_shape)}[name]


@pytest.mark.parametrize("name", ["alone", "scaled"])
@pytest.mark.parametrize("features", ["psi", "phi"])
@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_features_of_frequency_pairs_are_all_taken_and_exact(name, features, batch_shape):
    kernel = pairs(name, features=features, batch_shape=torch.Size(batch_shape))
    feature_map = gen_kernel_features(kernel, num_inputs=3, num_outputs=10)
    x = torch.randn(5, 3)
    values = feature_map(x)
    assert values.shape == (*batch_shape, 5, 12)
    torch.testing.assert_close(values @ values.mT, kernel(x).to_dense())


def test_frequency_pairs_in_sums_and_products_are_right_in_expectation():
    kernel = (RBFKernel(active_dims=(1,)) + pairs("alone", features="phi")) * pairs("scaled")
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    draws = [spectral_features(kernel, num_inputs=3, num_outputs=8192)(x) for _ in range(12)]
    mean = torch.stack([phi @ phi.mT for phi in draws]).mean(0)
    expected = kernel(x).to_dense()
    assert expected.diagonal().std() > 0.05
    torch.testing.assert_close(mean, expected, rtol=0.0, atol=0.015)
