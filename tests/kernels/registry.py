"""Every public kernel, in several forms for the contract and GPyTorch's tests."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

from gpytorch_nkn.kernels import (
    BivariateComplexExponentialKernel,
    CategoricalKernel,
    CenteredLinearKernel,
    ChangePointKernel,
    ComplexExponentialKernel,
    DampedTrendKernel,
    DataAdaptiveHadamardKernel,
    IntegratedWienerKernel,
    NeuralKernelNetwork,
    NonStationarySpectralKernel,
    SpectralComponentKernel,
    StepKernel,
    WienerKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Activation, Linear, Product

NO_BATCH = torch.Size()


@dataclass(frozen=True)
class Entry:
    """A way to construct a kernel.

    Attributes:
        make: ``make(batch_shape=..., active_dims=...)``.
        dims: Number of input columns.
        ard: The kernel works for that number of columns only.
    """

    name: str
    cls: type[Kernel]
    make: Callable[..., Kernel]
    dims: int
    ard: bool = False


def simple(cls, dims=2, ard=False, **options):
    def make(batch_shape=NO_BATCH, active_dims=None):
        options_ = {**options, "ard_num_dims": dims} if ard else options
        return cls(batch_shape=batch_shape, active_dims=active_dims, **options_)

    name = cls.__name__ + ("-ard" if ard else "") + "".join(f"-{name}" for name in options)
    return Entry(name, cls, make, dims, ard)


def of_time(cls, **options):
    """A kernel of one column."""
    made = simple(cls, dims=1, **options)
    return Entry(made.name, cls, made.make, dims=1, ard=True)


def network(name, primitives, layers=None, *, skip=False, **options):
    """A network; ``primitives(batch_shape)`` and ``layers(batch_shape)`` make its parts."""

    def default_layers(width, b):
        return [Linear(width, 4, batch_shape=b), Product(4, 2), Linear(2, 1, batch_shape=b, seed=1)]

    def make(batch_shape=NO_BATCH, active_dims=None):
        kernels = primitives(batch_shape)
        parts = layers(batch_shape) if layers else default_layers(len(kernels), batch_shape)
        return NeuralKernelNetwork(kernels, parts, skip=skip, active_dims=active_dims)

    return Entry(f"network-{name}", NeuralKernelNetwork, make, options.pop("dims", 2), **options)


def preset(name, *args, dims, **options):
    ard = options.pop("ard", False)

    def make(batch_shape=NO_BATCH, active_dims=None):
        method = getattr(NeuralKernelNetwork, name)
        return method(*args, batch_shape=batch_shape, active_dims=active_dims, **options)

    label = f"network.{name}" + "".join(f"-{option}" for option in options)
    return Entry(label, NeuralKernelNetwork, make, dims, ard)


def feature_pairs(name, dims=2, num_features=8, **options):
    """A kernel of spectral features."""

    def make(batch_shape=NO_BATCH, active_dims=None):
        return NonStationarySpectralKernel(
            num_features, dims, batch_shape=batch_shape, active_dims=active_dims, **options
        )

    return Entry(f"feature-pairs-{name}", NonStationarySpectralKernel, make, dims, True)


def hadamard(name, base, dims=2, num_anchors=7, **options):
    """A kernel times a learned factor; functions of the batch shape make the kernels."""

    def make(batch_shape=NO_BATCH, active_dims=None):
        generator = torch.Generator().manual_seed(dims)
        anchors = 2 * torch.randn(num_anchors, dims, generator=generator)
        return DataAdaptiveHadamardKernel(
            base(batch_shape), anchors, batch_shape=batch_shape, active_dims=active_dims, **options
        )

    cls = DataAdaptiveHadamardKernel
    return Entry(f"hadamard-{name}", cls, make, dims, ard=True)


def real(b):
    return [
        RBFKernel(batch_shape=b),
        PeriodicKernel(batch_shape=b),
        LinearKernel(batch_shape=b),
        ScaleKernel(RQKernel(batch_shape=b), batch_shape=b),
    ]


def stationary(b):
    return [
        RBFKernel(batch_shape=b),
        ScaleKernel(MaternKernel(batch_shape=b), batch_shape=b),
        ZeroMeanPeriodicKernel(batch_shape=b),
        ComplexExponentialKernel(batch_shape=b),
    ]


def ard(b):
    return [
        RBFKernel(ard_num_dims=2, batch_shape=b),
        ScaleKernel(PeriodicKernel(ard_num_dims=2, batch_shape=b), batch_shape=b),
        LinearKernel(ard_num_dims=2, batch_shape=b),
        ComplexExponentialKernel(ard_num_dims=2, batch_shape=b),
        ZeroMeanPeriodicKernel(ard_num_dims=2, batch_shape=b),
    ]


def scaled_ard(b):
    return ScaleKernel(RBFKernel(ard_num_dims=3, batch_shape=b), batch_shape=b)


def learned(b):
    """Kernels of spectral features beside a learned factor."""
    features = NonStationarySpectralKernel(30, 1, features="phi", batch_shape=b, active_dims=(1,))
    anchors = torch.linspace(-2, 2, 10).view(5, 2)
    return [
        NonStationarySpectralKernel(5, 2, batch_shape=b),
        ScaleKernel(features, batch_shape=b),
        DataAdaptiveHadamardKernel(RBFKernel(ard_num_dims=2, batch_shape=b), anchors),
    ]


def nested(b):
    """Sums and products in one another, over columns of their own."""
    product = ProductKernel(
        PeriodicKernel(batch_shape=b, active_dims=(1,)),
        RBFKernel(batch_shape=b, active_dims=(0, 1)),
    )
    summed = AdditiveKernel(product, LinearKernel(batch_shape=b, active_dims=(0,)))
    return [
        summed,
        ScaleKernel(
            AdditiveKernel(RBFKernel(batch_shape=b, active_dims=(1,)), RQKernel(batch_shape=b)),
            batch_shape=b,
        ),
        ScaleKernel(RBFKernel(batch_shape=b, active_dims=(1,)), batch_shape=b),
        ComplexExponentialKernel(batch_shape=b, active_dims=(1,)),
    ]


def of_times(b):
    return [
        WienerKernel(batch_shape=b, origin=-1.0, active_dims=(1,)),
        ScaleKernel(IntegratedWienerKernel(batch_shape=b, active_dims=(0,)), batch_shape=b),
        StepKernel(location=0.3, width=0.4, batch_shape=b, active_dims=(1,)),
        ScaleKernel(StepKernel("before", location=-0.2, batch_shape=b, active_dims=(0,))),
        PeriodicKernel(batch_shape=b),
    ]


def change_points(name, kernels, dims=2, **options):
    def make(batch_shape=NO_BATCH, active_dims=None):
        shapes = {"batch_shape": batch_shape, "active_dims": active_dims}
        return ChangePointKernel(*kernels(batch_shape), **shapes, **options)

    label = f"{ChangePointKernel.__name__}-{name}"
    return Entry(label, ChangePointKernel, make, dims, ard=True)


def network_in_network(b):
    inner = NeuralKernelNetwork(
        [
            ComplexExponentialKernel(batch_shape=b),
            ScaleKernel(RBFKernel(batch_shape=b, active_dims=(0,)), batch_shape=b),
        ],
        [Linear(2, 2, batch_shape=b), Product(2, 1)],
        active_dims=(1, 0),
    )
    return [inner, PeriodicKernel(batch_shape=b), ScaleKernel(inner_sum(b), batch_shape=b)]


def inner_sum(b):
    return NeuralKernelNetwork(
        [RBFKernel(batch_shape=b), CenteredLinearKernel(batch_shape=b)],
        [Linear(2, 1, batch_shape=b, bias=False)],
    )


def activations(b):
    return [
        Linear(3, 4, batch_shape=b),
        Activation(4, [0.1, 1.0, 0.2]),
        Product(4, 2),
        Linear(2, 2, batch_shape=b),
        Activation(2, "exp"),
        Linear(2, 1, batch_shape=b, bias=False),
    ]


def skipped(b):
    """Layers for four primitives; the last layer receives the primitives as well."""
    options = {"batch_shape": b, "weights": "simplex"}
    return [Linear(4, 4, **options), Product(4, 2), Linear(6, 1, **options)]


def complex_units(b):
    return [
        ComplexExponentialKernel(batch_shape=b),
        BivariateComplexExponentialKernel(batch_shape=b),
        RBFKernel(batch_shape=b),
    ]


REGISTRY = [
    simple(ComplexExponentialKernel),
    simple(ComplexExponentialKernel, dims=3, ard=True),
    simple(BivariateComplexExponentialKernel),
    simple(BivariateComplexExponentialKernel, dims=3, ard=True),
    simple(CategoricalKernel),
    simple(CategoricalKernel, dims=3, ard=True),
    simple(CenteredLinearKernel),
    simple(CenteredLinearKernel, ard=True),
    simple(SpectralComponentKernel),
    simple(SpectralComponentKernel, dims=3, ard=True),
    simple(ZeroMeanPeriodicKernel),
    simple(ZeroMeanPeriodicKernel, dims=3, ard=True),
    of_time(WienerKernel),
    of_time(WienerKernel, origin=-0.7, unit=2.0),
    of_time(IntegratedWienerKernel),
    of_time(DampedTrendKernel),
    of_time(DampedTrendKernel, origin=-2.0, unit=1.4),
    of_time(IntegratedWienerKernel, origin=-1.3, unit=0.9),
    of_time(StepKernel, location=0.2, width=0.1),
    of_time(StepKernel, side="before", location=-0.3, width=0.5),
    change_points("two", lambda b: real(b)[:2], dims=1, location=0.1, width=0.2),
    change_points(
        "three", lambda b: ard(b)[:3], location=torch.tensor([0.5, -0.2]), width=0.4, switch_dim=1
    ),
    feature_pairs("psi"),
    feature_pairs("many", dims=1, num_features=100, correlation=0.0),
    feature_pairs("stationary", stationary=True),
    feature_pairs("phi", dims=3, features="phi", learn_frequencies=False),
    hadamard("rbf", lambda b: RBFKernel(batch_shape=b)),
    hadamard("ard", scaled_ard, dims=3),
    hadamard("linear", lambda b: LinearKernel(batch_shape=b), dims=1, rank=3, num_anchors=3),
    network("real", real),
    network("learned", learned, ard=True),
    network("ard", ard, ard=True),
    network("nested", nested),
    network("times", of_times),
    network("network", network_in_network),
    network("activations", complex_units, activations),
    network("skip-simplex", stationary, skipped, skip=True, dims=1),
    network("one-complex", lambda b: [ComplexExponentialKernel(batch_shape=b)], lambda b: []),
    preset("time_series", dims=1),
    preset("regression", 3, dims=3, ard=True),
    preset("tabular", 3, dims=3, ard=True, spectral=2),
    preset("additive", 2, dims=2),
    preset("texture", dims=1),
    preset("optimization", 3, dims=3, ard=True, priors=False),
    preset("pairs", 3, dims=3),
]
