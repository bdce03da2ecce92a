import math

import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)

from gpytorch_nkn.interpretation import expand
from gpytorch_nkn.kernels import (
    CenteredLinearKernel,
    ComplexExponentialKernel,
    NeuralKernelNetwork,
    SpectralComponentKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Activation, Layer, Linear, Product
from tests.interpretation.small_models import perturbed

NEITHER, BOTH = ({"merge": value, "split": value} for value in (False, True))
ONE = [{"merge": value, "split": not value} for value in (False, True)]


def inputs(columns, n=24):
    generator = torch.Generator().manual_seed(1)
    return 1.5 * torch.randn(n, columns, generator=generator, dtype=torch.float64)


def check_sum(kernel, x, tolerance=1e-8, **options):
    """The sum over terms is the kernel: entry by entry, with each term's own kernel."""
    expansion = expand(kernel, x, **options)
    matrix = kernel(x).to_dense().detach()
    largest = matrix.abs().max()
    assert largest > 0
    assert float((expansion.evaluate(x) - matrix).abs().max() / largest) < tolerance
    shares = sum(term.mean_share() for term in expansion.terms)
    assert shares + expansion.dropped == pytest.approx(1.0, abs=max(1e-9, tolerance))
    assert all(bool((torch.as_tensor(term.weight) >= 0).all()) for term in expansion.terms)
    falling = [term.mean_share() for term in expansion.terms]
    assert falling == sorted(falling, reverse=True)
    return expansion


def preset(name, *args, **options):
    return lambda: getattr(NeuralKernelNetwork, name)(*args, **options)


def activations():
    return NeuralKernelNetwork(
        [RBFKernel(), PeriodicKernel(), RQKernel()],
        [Linear(3, 3), Activation(3, (0.1, 1.0, 0.0, 0.4)), Linear(3, 2), Product(2, 1)],
    )


def exponential():
    return NeuralKernelNetwork(
        [RBFKernel(), PeriodicKernel()],
        [Linear(2, 2), Activation(2, "exp"), Product(2, 1), Activation(1, (0.0, 0.5, 0.1))],
    )


def complex_network():
    """A network of two columns, whose complex primitive selects one of them."""
    wave = ComplexExponentialKernel(active_dims=(1,))
    return NeuralKernelNetwork(
        [wave, RBFKernel()], [Linear(2, 2), Product(2, 1)], active_dims=(2, 0)
    )


def skip_into_a_product():
    return NeuralKernelNetwork(
        [RBFKernel(), PeriodicKernel(), CosineKernel()],
        [Linear(3, 2, weights="simplex"), Activation(2, (0.1, 1.0, 0.4)), Product(5, 1)],
        skip=True,
    )


def skip_among_others():
    """Within a sum and a scale, with columns of its own."""
    network = NeuralKernelNetwork.optimization(2, active_dims=(2, 0))
    return ScaleKernel(network) * LinearKernel(active_dims=(1,)) + RBFKernel(ard_num_dims=3)


def deep_composite(active_dims=None):
    """Networks in sums in scales in products in networks, each picking columns of its own."""
    inner = NeuralKernelNetwork(
        [
            ScaleKernel(RBFKernel(active_dims=(1,))),
            ScaleKernel(CosineKernel(active_dims=(0,))),
            PeriodicKernel(active_dims=(1,)),
            ScaleKernel(ScaleKernel(LinearKernel(active_dims=(0,))) + RQKernel()),
        ],
        [Linear(4, 4), Product(4, 2), Linear(2, 1)],
        active_dims=(2, 0),
    )
    outer = NeuralKernelNetwork(
        [
            ScaleKernel(inner) * PeriodicKernel(active_dims=(1,)) + ConstantKernel(),
            ScaleKernel(MaternKernel(0.5, active_dims=(1,)) + ScaleKernel(inner)),
            RBFKernel(active_dims=(2, 1), ard_num_dims=2),
            LinearKernel(active_dims=(0, 1), ard_num_dims=2),
        ],
        [Linear(4, 2), Product(2, 1)],
        active_dims=active_dims,
    )
    return outer


def spectral_network():
    kernels = [
        SpectralComponentKernel(ard_num_dims=2, active_dims=(2, 0)),
        ScaleKernel(SpectralComponentKernel()),
        RBFKernel(active_dims=(1,)),
    ]
    return NeuralKernelNetwork(kernels, [Linear(3, 4), Product(4, 2), Linear(2, 1)])


def all_common_kernels():
    return (
        ScaleKernel(RBFKernel(ard_num_dims=3)) * PeriodicKernel(active_dims=(0,))
        + ScaleKernel(MaternKernel(1.5)) * LinearKernel()
        + MaternKernel(0.5) * MaternKernel(0.5) * RQKernel(active_dims=(1, 2))
        + MaternKernel(1.5, active_dims=(0,)) * MaternKernel(1.5, active_dims=(0,))
        + ConstantKernel() * CosineKernel(active_dims=(2,))
        + PolynomialKernel(2) * ZeroMeanPeriodicKernel(active_dims=(1,))
        + CenteredLinearKernel(ard_num_dims=3)
        + ScaleKernel(ScaleKernel(MaternKernel(2.5) + RBFKernel(active_dims=(1,))))
        * PiecewisePolynomialKernel()
        + ConstantKernel()
    )


SMALL = "Linear4-Product2-Linear1"  # 45 monomials of eight primitives, not 495
NETWORKS = {
    "time_series": (preset("time_series"), 1),
    "additive": (preset("additive", 4), 4),
    "optimization": (preset("optimization", 3), 3),
    "skip into a product": (skip_into_a_product, 1),
    "skip among others": (skip_among_others, 3),
    "activations": (activations, 1),
    "exponential": (exponential, 1),
    "complex among others": (lambda: ScaleKernel(complex_network()) * RBFKernel() + RQKernel(), 3),
    "spectral components": (spectral_network, 3),
    "deep composite": (deep_composite, 3),
    "common kernels": (all_common_kernels, 3),
}


# Networks in which merging alone or splitting alone meets kernels of every kind.
RICH = ["activations", "deep composite", "common kernels"]


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, BOTH) for name in NETWORKS] + list(zip(RICH, (NEITHER, *ONE), strict=True)),
    ids=str,
)
def test_the_sum_over_terms_is_the_kernel(name, options):
    make, columns = NETWORKS[name]
    seed, spread = (1, 1.5) if options["merge"] else (0, 0.5)
    check_sum(perturbed(make(), seed, spread), inputs(columns), **options)


def test_single_precision():
    make, columns = NETWORKS["deep composite"]
    kernel = perturbed(make(), spread=0.2).float()
    expansion = check_sum(kernel, inputs(columns).float(), 1e-4)
    assert expansion.evaluate(inputs(columns).float()).dtype == torch.float32


@pytest.mark.parametrize(("batch", "options"), [((2, 3), NEITHER), ((2,), BOTH)], ids=str)
def test_batches(batch, options):
    batch = torch.Size(batch)
    for kernel, columns in (
        (NeuralKernelNetwork.time_series(wiring=SMALL, batch_shape=batch), 1),
        (NeuralKernelNetwork.regression(2, wiring=SMALL, batch_shape=batch), 2),
        (NeuralKernelNetwork.optimization(2, wiring=SMALL, batch_shape=batch), 2),
        (ScaleKernel(NeuralKernelNetwork.optimization(2), batch_shape=batch), 2),
        (ScaleKernel(RBFKernel(), batch_shape=batch) + LinearKernel(batch_shape=batch), 2),
        (RBFKernel(batch_shape=batch) * ScaleKernel(PeriodicKernel(active_dims=(0,))), 2),
    ):
        kernel = perturbed(kernel)
        expansion = check_sum(kernel, inputs(columns), **options)
        assert expansion.batch_shape == batch
        term = expansion.terms[0]
        assert torch.as_tensor(term.weight).shape == torch.as_tensor(term.share).shape == batch
        few = inputs(columns, n=2)  # averages over each point twice are the same
        once, twice = (expand(kernel, x, **options).terms for x in (few, few.repeat(2, 1)))
        torch.testing.assert_close([t.share for t in once], [t.share for t in twice])


def test_495_monomials_of_the_paper():
    kernel = perturbed(NeuralKernelNetwork.time_series())
    expansion = check_sum(kernel, inputs(1), merge=False, split=False)
    assert len(expansion.terms) == math.comb(8 + 4, 4) == 495
    degrees = [len(term.factors) for term in expansion.terms]
    assert max(degrees) == 4 and degrees.count(0) == 1


def test_a_network_with_a_complex_primitive_is_one_factor():
    kernel = perturbed(ScaleKernel(complex_network()) + RQKernel(active_dims=(1,)))
    terms = expand(kernel, inputs(3)).terms
    assert {t.signature for t in terms} == {("RQ[1]",), ("NKN[2, 0]",)}


def test_weights_are_the_coefficients_written_out():
    """(a r + b p + c)(d r + e p + f) with a final weight and bias, by hand."""
    rbf, per = RBFKernel(active_dims=(0,)), RQKernel(active_dims=(0,))
    kernel = NeuralKernelNetwork([rbf, per], [Linear(2, 2), Product(2, 1), Linear(1, 1)])
    kernel.layers[0].weight = torch.tensor([[0.5, 2.0], [3.0, 0.25]])
    kernel.layers[0].bias = torch.tensor([0.1, 0.7])
    kernel.layers[2].weight, kernel.layers[2].bias = 2.0, 0.3
    terms = expand(kernel, inputs(1), merge=False, split=False).terms
    found = {term.signature: term.weight for term in terms}
    expected = {
        ("RBF[0]", "RBF[0]"): 2 * 0.5 * 3.0,
        ("RBF[0]", "RQ[0]"): 2 * (0.5 * 0.25 + 2.0 * 3.0),
        ("RQ[0]", "RQ[0]"): 2 * 2.0 * 0.25,
        ("RBF[0]",): 2 * (0.5 * 0.7 + 0.1 * 3.0),
        ("RQ[0]",): 2 * (2.0 * 0.7 + 0.1 * 0.25),
        (): 2 * 0.1 * 0.7 + 0.3,
    }
    assert set(found) == set(expected)
    for signature, weight in expected.items():
        assert found[signature] == pytest.approx(weight, rel=1e-12)
    # every primitive has a diagonal of one: shares are weights over their sum
    total = sum(expected.values())
    for term in terms:
        assert term.share == pytest.approx(expected[term.signature] / total, rel=1e-12)


def test_columns_of_terms():
    kernel = perturbed(NeuralKernelNetwork.additive(4))
    expansion = expand(kernel, inputs(4))
    for term in expansion.terms:
        active = {c for f in term.factors for c in f.active_dims.tolist()}
        assert term.columns == frozenset(active)
        assert len(term.factors) <= 1  # products of RBF kernels are RBF kernels
    assert len(expansion.terms) == math.comb(4 + 4, 4)
    unknown = expand(RBFKernel() + RBFKernel(active_dims=(1,)))
    assert {term.columns for term in unknown.terms} == {None, frozenset({1})}


# --- three modules, pruning --------------------------------------------------------------------


def check_bound(kernel, expansion, x):
    """The omitted part is a kernel: none of its entries exceeds its diagonal."""
    missing = kernel(x).to_dense().detach() - expansion.evaluate(x)
    diagonal = missing.diagonal()
    rounding = 1e-9 * kernel(x).to_dense().abs().max()
    assert float(diagonal.min()) > -rounding
    bound = (diagonal[:, None] * diagonal).clamp_min(0).sqrt()
    assert bool((missing.abs() <= bound + rounding).all())
    share = float(diagonal.mean() / kernel(x, diag=True).detach().mean())
    assert expansion.dropped == pytest.approx(share, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("max_terms", [1, 20])
def test_dropped_mass_bounds_the_entries(max_terms):
    for name in ("time_series", "deep composite", "activations"):
        make, columns = NETWORKS[name]
        kernel, x = perturbed(make()), inputs(columns)
        expansion = expand(kernel, x, max_terms=max_terms)
        assert len(expansion.terms) <= max_terms
        check_bound(kernel, expansion, x)


# --- terms -------------------------------------------------------------------------------------


def test_labels_that_would_read_alike_are_numbered():
    alike = [LinearKernel(ard_num_dims=2), LinearKernel(ard_num_dims=2)]
    alike[0].variance = torch.tensor([[4.0, 1.0]])
    smooth = RBFKernel()
    kernel = alike[0] * alike[0] * smooth + alike[1] * smooth + alike[0]
    labels = [term.label for term in expand(kernel, inputs(2), split=False).terms]
    (squared,) = [label for label in labels if "^2" in label]
    (alone,) = [label for label in labels if "RBF" not in label]
    (other,) = set(labels) - {squared, alone}
    assert squared.startswith(f"{alone}^2*RBF[x0, x1](")
    assert {alone, other.split("*")[0]} == {"LIN#1[x0, x1]", "LIN#2[x0, x1]"}


# --- bare kernels ------------------------------------------------------------------------------


def test_a_stationary_kernel_needs_no_inputs():
    kernel = perturbed(NeuralKernelNetwork.additive(3))
    assert len(expand(kernel).terms) == math.comb(3 + 4, 4)
    x = inputs(3)
    torch.testing.assert_close(expand(kernel).evaluate(x), kernel(x).to_dense().detach())
    for bare, columns in (
        (SpectralMixtureKernel(2), 1),
        (perturbed(RBFKernel(ard_num_dims=3)) * MaternKernel(), 3),
        (ConstantKernel(), 1),
        (complex_network(), 3),
    ):
        check = expand(bare)
        torch.testing.assert_close(
            check.evaluate(inputs(columns)), bare(inputs(columns)).to_dense().detach()
        )


# --- errors ------------------------------------------------------------------------------------


class _Doubling(Layer):
    def __init__(self):
        super().__init__(1, 1)

    def forward(self, values):
        return 2 * values


def test_errors():
    x = inputs(2)
    with pytest.raises(ValueError, match="diagonal of a LinearKernel depends.*pass x"):
        expand(LinearKernel() + RBFKernel())
    with pytest.raises(ValueError, match="NaN or infinite"):
        expand(RBFKernel(), torch.tensor([[0.0], [float("nan")]]))
    with pytest.raises(ValueError, match="does not accept inputs with 1 columns"):
        expand(RBFKernel(active_dims=(2,)), x[:, :1])
    with pytest.raises(ValueError, match="one output per input.*MultitaskKernel with 2"):
        expand(MultitaskKernel(RBFKernel(), num_tasks=2), x)
    with pytest.raises(NotImplementedError, match="_Doubling cannot be expanded"):
        expand(NeuralKernelNetwork([RBFKernel()], [_Doubling()]), x)
