"""Networks that are evaluated by every path, and how their values and gradients are compared."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

from gpytorch_nkn.kernels import (
    CategoricalKernel,
    CenteredLinearKernel,
    DampedTrendKernel,
    IntegratedWienerKernel,
    NeuralKernelNetwork,
    SpectralComponentKernel,
    StepKernel,
    WienerKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.kernels.evaluation import is_compiled
from gpytorch_nkn.layers import Activation, Linear, Product
from gpytorch_nkn.settings import kernel_evaluation
from tests.kernels.contract import perturb

NO_BATCH = torch.Size()

needs_compiled = pytest.mark.skipif(
    not is_compiled(), reason="the package was installed without a compiler"
)
COMPILED = pytest.param("compiled", marks=needs_compiled)
PATHS = ["tiles", COMPILED]
# Those that are there, for tests that compare all of them with one and the same result.
PATHS_HERE = ["tiles", "compiled"] if is_compiled() else ["tiles"]


@dataclass(frozen=True)
class Case:
    """A network.

    Attributes:
        make: ``make(batch_shape)`` constructs it.
        dims: Number of input columns.
        tolerance: Up to which plain evaluation itself is exact.
    """

    make: Callable
    dims: int = 3
    tolerance: float = 1e-10


def small_network(make_primitives, *, active_dims=None):
    """Primitives and constants in sums of products, as ``make(batch_shape)``."""

    def make(b):
        primitives = make_primitives(b)
        layers = [
            Linear(len(primitives), 4, batch_shape=b),
            Product(4, 2),
            Linear(2, 1, batch_shape=b, seed=1),
        ]
        return NeuralKernelNetwork(primitives, layers, active_dims=active_dims)

    return make


def twice(cls, dims=3, **options):
    """One primitive unchanged, and one inside a ScaleKernel."""

    def primitives(b):
        def one():
            ard = {} if dims is None else {"ard_num_dims": dims}
            return cls(batch_shape=b, **ard, **options)

        return [one(), ScaleKernel(one(), batch_shape=b)]

    return small_network(primitives)


def columns(b):
    return [
        RBFKernel(batch_shape=b, active_dims=(2, 0)),
        ScaleKernel(MaternKernel(batch_shape=b, active_dims=(1, 2)), batch_shape=b),
        ScaleKernel(LinearKernel(batch_shape=b), batch_shape=b, active_dims=(2,)),
        PeriodicKernel(batch_shape=b, active_dims=(1,), ard_num_dims=1),
        RQKernel(batch_shape=b, ard_num_dims=2, active_dims=(0, 2)),
        ZeroMeanPeriodicKernel(batch_shape=b, active_dims=(2,)),
    ]


def shared_columns(b):
    """Several primitives on the same columns, which may share what is computed of them."""
    return [
        RBFKernel(batch_shape=b),
        MaternKernel(nu=2.5, batch_shape=b),
        RQKernel(batch_shape=b),
        LinearKernel(batch_shape=b),
        CenteredLinearKernel(batch_shape=b),
        PeriodicKernel(batch_shape=b),
    ]


def categories(b):
    """Of inputs that all differ; tests/kernels/test_categorical_kernel.py has codes."""
    return [
        CategoricalKernel(batch_shape=b),
        ScaleKernel(CategoricalKernel(batch_shape=b, active_dims=(2, 0), ard_num_dims=2)),
        RBFKernel(batch_shape=b),
    ]


def factors(b):
    """Products of kernels, of the same and of other columns, within products, and scaled."""
    scaled = ScaleKernel(RBFKernel(batch_shape=b, ard_num_dims=3), batch_shape=b)
    inner = MaternKernel(nu=1.5, batch_shape=b) * CategoricalKernel(batch_shape=b)
    return [
        scaled * PeriodicKernel(batch_shape=b) * RQKernel(batch_shape=b, active_dims=(1,)),
        ScaleKernel(inner * LinearKernel(batch_shape=b, active_dims=(2, 0)), batch_shape=b),
        RBFKernel(batch_shape=b),
    ]


def spectral_and_others(b):
    """Spectral components beside primitives that use differences and squares as well."""
    return [
        SpectralComponentKernel(batch_shape=b, active_dims=(2, 0), ard_num_dims=2),
        SpectralComponentKernel(batch_shape=b, active_dims=(2, 0), ard_num_dims=2),
        ScaleKernel(SpectralComponentKernel(batch_shape=b, active_dims=(0, 1)), batch_shape=b),
        ZeroMeanPeriodicKernel(batch_shape=b, active_dims=(0,)),
        RBFKernel(batch_shape=b),
        LinearKernel(batch_shape=b),
    ]


def walks(b):
    """Processes from an origin on, beside kernels that use the same columns in other ways."""
    kernels = [
        WienerKernel(batch_shape=b, active_dims=(2,)),
        ScaleKernel(WienerKernel(batch_shape=b, active_dims=(0,)), batch_shape=b),
        IntegratedWienerKernel(batch_shape=b, active_dims=(2,)),
        ScaleKernel(IntegratedWienerKernel(batch_shape=b, active_dims=(1,)), batch_shape=b),
        ScaleKernel(DampedTrendKernel(batch_shape=b, active_dims=(1,)), batch_shape=b),
        CenteredLinearKernel(batch_shape=b),
        RBFKernel(batch_shape=b),
    ]
    return trained(*kernels)


def trained(*kernels):
    """The kernels, with all that is a setting trained."""
    for kernel in kernels:
        kernel.requires_grad_(True)
    return list(kernels)


def other_constraints(b):
    return [
        RBFKernel(batch_shape=b, lengthscale_constraint=Interval(0.2, 3.0)),
        RQKernel(batch_shape=b, alpha_constraint=GreaterThan(0.3)),
        PeriodicKernel(
            batch_shape=b,
            period_length_constraint=GreaterThan(0.1, transform=torch.exp, inv_transform=torch.log),
        ),
        LinearKernel(batch_shape=b, variance_constraint=GreaterThan(0.01)),
    ]


def products(b):
    """Groups of three, two and one, where linear kernels of inputs at zero are zero."""
    kernels = [LinearKernel(batch_shape=b), CenteredLinearKernel(batch_shape=b)]
    kernels += [LinearKernel(batch_shape=b, active_dims=(1,)), RBFKernel(batch_shape=b)]
    layers = [
        Linear(4, 12, batch_shape=b, bias=False),
        Product(12, 4),
        Product(4, 2),
        Product(2, 2),
        Linear(2, 1, batch_shape=b),
    ]
    layers[0].weight = torch.eye(4).repeat(3, 1) + 0.0  # a zero factor stays zero
    return NeuralKernelNetwork(kernels, layers)


def activations(b):
    layers = [
        Linear(6, 4, batch_shape=b),
        Activation(4, [0.1, 1.0, 0.2, 0.05]),
        Linear(4, 2, batch_shape=b, bias=False),
        Activation(2, "exp"),
        Linear(2, 2, batch_shape=b, bias=False, seed=1),
        Activation(2, [0.0, 1.0]),
        Linear(2, 1, batch_shape=b),
    ]
    layers[0].weight = 0.1 * layers[0].weight.detach()  # for the exponential's sake
    return NeuralKernelNetwork(shared_columns(b), layers)


def without_layers(b):
    return NeuralKernelNetwork([ScaleKernel(RQKernel(batch_shape=b), batch_shape=b)], [])


def scaled(b):
    inner = small_network(shared_columns)(b)
    return ScaleKernel(ScaleKernel(inner, batch_shape=b), batch_shape=b)


def last_layer_sees_primitives(*middle, last=None, simplex=False, scale=False):
    """A network with a skip connection behind layers ``middle(batch_shape)``.

    The last layer is a Linear one, or ``last(width)``.
    """

    def make(b):
        primitives = [
            ScaleKernel(RQKernel(batch_shape=b, ard_num_dims=3), batch_shape=b),
            RBFKernel(batch_shape=b, active_dims=(1,)),
            LinearKernel(batch_shape=b, active_dims=(0, 2)),
        ]
        layers = [make_layer(b) for make_layer in middle]
        width = layers[-1].out_features + len(primitives)
        weights = "simplex" if simplex else "softplus"
        if last is None:
            layers.append(Linear(width, 1, weights=weights, bias=not simplex, batch_shape=b))
        else:
            layers.append(last(width))
        network = NeuralKernelNetwork(primitives, layers, skip=True)
        return ScaleKernel(network, batch_shape=b) if scale else network

    return make


def linear_layer(*widths, **options):
    return lambda b: Linear(*widths, batch_shape=b, **options)


def groups_of_several_sizes(b):
    layers = [
        Product(6, 3, groups=(1, 3, 2)),
        Linear(3, 3, batch_shape=b),
        Product(3, 2, groups=(2, 1)),
        Linear(2, 1, batch_shape=b, seed=1),
    ]
    return NeuralKernelNetwork(shared_columns(b), layers)


def mixed_weights(b):
    """Simplex layers with and without biases, and other constraints than softplus."""
    layers = [
        Linear(4, 6, batch_shape=b, weights="simplex", bias=False),
        Product(6, 3),
        Linear(3, 2, batch_shape=b),
        Linear(2, 1, batch_shape=b, weights="simplex"),
    ]
    return NeuralKernelNetwork(other_constraints(b), layers)


def preset(name, *args, **options):
    def make(b):
        return getattr(NeuralKernelNetwork, name)(*args, batch_shape=b, **options)

    return make


CASES = {
    "time_series": Case(preset("time_series"), 1),
    "regression": Case(preset("regression", 3)),
    "tabular": Case(preset("tabular", 3, columns=True, spectral=2)),
    "rbf": Case(twice(RBFKernel, None)),
    "matern12": Case(twice(MaternKernel, None, nu=0.5)),
    "matern32": Case(twice(MaternKernel, None, nu=1.5)),
    "matern52": Case(twice(MaternKernel, None, nu=2.5)),
    "matern52-ard": Case(twice(MaternKernel, nu=2.5)),
    "rq": Case(twice(RQKernel, None)),
    "periodic": Case(twice(PeriodicKernel, None)),
    "periodic-ard": Case(twice(PeriodicKernel)),
    "categories": Case(small_network(categories)),
    "factors": Case(small_network(factors)),
    "centered-linear-ard": Case(twice(lambda **o: CenteredLinearKernel(**o).requires_grad_())),
    "spectral": Case(twice(SpectralComponentKernel, None)),
    "spectral-ard": Case(twice(SpectralComponentKernel)),
    "spectral-and-others": Case(small_network(spectral_and_others)),
    "wiener": Case(twice(WienerKernel, None, origin=-1.5), 1),
    "damped-trend": Case(twice(DampedTrendKernel, None, origin=-1.0), 1),
    "step": Case(twice(StepKernel, None, location=0.2, width=0.4), 1),
    "step-of-three-columns": Case(
        twice(StepKernel, None, side="before", active_dims=(1,), location=-0.5, width=0.7)
    ),
    "walks": Case(small_network(walks)),
    "shared-columns": Case(small_network(shared_columns)),
    "active-dims": Case(small_network(columns)),
    "products": Case(products),
    "activations": Case(activations),
    "without-layers": Case(without_layers),
    "scaled": Case(scaled),
    "pairs": Case(preset("pairs", 3)),
    "optimization-scaled": Case(lambda b: ScaleKernel(preset("optimization", 3)(b), batch_shape=b)),
    "skip": Case(
        last_layer_sees_primitives(
            linear_layer(3, 4), lambda b: Product(4, 2), linear_layer(2, 4), lambda b: Product(4, 2)
        )
    ),
    "skip-one-hidden": Case(last_layer_sees_primitives(linear_layer(3, 2), scale=True)),
    "skip-activation": Case(
        last_layer_sees_primitives(
            linear_layer(3, 2), lambda b: Activation(2, [0.1, 1.0, 0.2]), simplex=True, scale=True
        )
    ),
    "skip-product": Case(
        last_layer_sees_primitives(linear_layer(3, 2), last=lambda width: Product(width, 1))
    ),
    "mixed-weights": Case(mixed_weights),
    "groups-of-several-sizes": Case(groups_of_several_sizes),
}


def make_network(name, batch_shape=NO_BATCH):
    """A network of :data:`CASES` whose parameters all differ."""
    return perturb(CASES[name].make(torch.Size(batch_shape)).double())


def rough_inputs(*shape):
    """Inputs; the first is zero, and the last two are near each other."""
    x = torch.randn(*shape)
    x[..., 0, :] = 0
    if shape[-2] > 2:
        x[..., -1, :] = x[..., -2, :] + 0.1
    return x


def evaluate(path, kernel, x1, x2=None, weights=None):
    """Values by that path, and gradients of their weighted sum by the source's name."""
    sources = {name: p for name, p in kernel.named_parameters() if p.requires_grad}
    inputs = {"x1": x1} if x2 is None else {"x1": x1, "x2": x2}
    sources |= {name: x for name, x in inputs.items() if x.requires_grad}
    with kernel_evaluation(path):
        values = kernel(x1, x2).to_dense()
        exact = values.detach()
        if path == "plain":
            with torch.no_grad():  # where GPyTorch sets distances of points to themselves to zero
                exact = kernel(x1.detach(), None if x2 is None else x2.detach()).to_dense()
        if weights is None:
            weights = torch.arange(values.numel()).to(values).sin().view(values.shape)
        gradients = torch.autograd.grad(
            (values * weights).sum(), sources.values(), materialize_grads=True
        )
    return {"values": exact, **dict(zip(sources, gradients, strict=True))}


def assert_same(actual, expected, tolerance=1e-10, path=""):
    """Equal up to the tolerance, relative to the largest entry of each tensor."""
    assert actual.keys() == expected.keys()
    most = max(float(tensor.abs().max()) for tensor in expected.values())
    for name, tensor in expected.items():
        assert actual[name].shape == tensor.shape, name
        assert actual[name].dtype == tensor.dtype, name
        # a gradient may be a small difference of large numbers
        scale = max(float(tensor.abs().max()), 1e-3 * most)
        error = float((actual[name] - tensor).abs().max()) / scale
        assert error <= tolerance, f"{name} is off by {error} {path}"
