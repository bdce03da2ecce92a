import copy
import pickle

import gpytorch
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log, Normalize
from gpytorch.kernels import (
    ConstantKernel,
    GridInterpolationKernel,
    InducingPointKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PiecewisePolynomialKernel,
    RBFKernel,
    RBFKernelGrad,
    RFFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_nkn.kernels import (
    GradientKernel,
    IntegratedWienerKernel,
    NeuralKernelNetwork,
    NonStationarySpectralKernel,
    WienerKernel,
)
from gpytorch_nkn.layers import Linear
from gpytorch_nkn.models import NKNSingleTaskGP, gradient_posterior
from tests.fit.models import SmallGP
from tests.kernels.contract import perturb
from tests.multitask_models import Wide


def network(primitive):
    return NeuralKernelNetwork([primitive], [Linear(1, 1)])


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("wrap", [network, ScaleKernel])
def test_values_and_order_match_the_closed_form(wrap, shape):
    shape = torch.Size(shape)
    closed = RBFKernelGrad(ard_num_dims=3, batch_shape=shape)
    closed.lengthscale = torch.tensor([0.5, 1.0, 2.0])
    inner = RBFKernel(ard_num_dims=3, batch_shape=shape)
    inner.lengthscale = closed.lengthscale.detach()
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    base = wrap(inner)
    if wrap is network:
        base.layers[0].weight, base.layers[0].bias = 1.0, 0.0
    else:
        base.outputscale = 1.0
    kernel = GradientKernel(base)
    for pair in ((x, x), (x, y)):
        torch.testing.assert_close(
            kernel(*pair).to_dense(),
            closed(*(part.expand(*shape, *part.shape) for part in pair)).to_dense(),
            rtol=1e-7,
            atol=1e-7,
        )
    torch.testing.assert_close(
        kernel(x, diag=True), closed(x.expand(*shape, 5, 3), diag=True), rtol=1e-7, atol=1e-7
    )
    assert kernel(x).shape == (*shape, 20, 20)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NeuralKernelNetwork.regression(2),
        lambda: NeuralKernelNetwork.optimization(2),
        lambda: ScaleKernel(MaternKernel(nu=1.5, active_dims=(1,))) + LinearKernel(),
        lambda: MaternKernel(nu=2.5) * ConstantKernel(),
        ConstantKernel,
    ],
)
def test_any_kernel_has_the_covariances_of_differences(make):
    base = perturb(make().double())
    x, step = torch.randn(3, 2), 1e-4
    ends = torch.cat(
        [x[:, None], x[:, None] + step * torch.eye(2), x[:, None] - step * torch.eye(2)], 1
    )
    rows = torch.tensor([[1.0, 0, 0, 0, 0], [0, 1, 0, -1, 0], [0, 0, 1, 0, -1]])
    rows[1:] /= 2 * step
    weights = torch.block_diag(rows, rows, rows)
    kernel = GradientKernel(base)
    with torch.no_grad():
        expected = weights @ base(ends.flatten(0, 1)).to_dense() @ weights.T
        found = kernel(x).to_dense()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3 * expected.abs().max().item())
    torch.testing.assert_close(kernel(x, diag=True), found.diagonal())
    assert torch.linalg.eigvalsh(found).min() > -1e-8
    for copied in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        torch.testing.assert_close(copied(x).to_dense(), found)


@pytest.mark.parametrize("kernel", ["matern", "wiener"])
def test_kernels_whose_functions_have_no_derivative_say_so(kernel):
    kernel = MaternKernel(nu=0.5) if kernel == "matern" else network(WienerKernel())
    x = torch.rand(4, 1)
    with pytest.raises(ValueError, match="derivatives .* infinite values for .*WienerKernel"):
        GradientKernel(kernel)(x).to_dense()
    with pytest.raises(ValueError, match="Use a smoother kernel, such as"):
        gradient_posterior(SingleTaskGP(x, x.sin(), covar_module=kernel), x[:2])
    for smoother in (MaternKernel(nu=2.5), IntegratedWienerKernel()):
        assert GradientKernel(smoother)(x).to_dense().isfinite().all()


def waves(x):
    return torch.sin(5 * x[:, 0]) + torch.cos(7 * x[:, 1]) / 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScaleKernel(MaternKernel(nu=2.5)),
        lambda: ScaleKernel(RFFKernel(40, num_dims=2)),
        lambda: RFFKernel(40, num_dims=2) + MaternKernel(nu=2.5),
        lambda: ScaleKernel(LinearKernel()),
        lambda: NonStationarySpectralKernel(4, 2),
        ConstantKernel,
        lambda: InducingPointKernel(MaternKernel(nu=2.5), torch.rand(5, 2), GaussianLikelihood()),
        lambda: GridInterpolationKernel(RBFKernel(), 12, 2, [(-0.1, 1.1)] * 2),
    ],
)
def test_gradients_of_ones_own_gp(make):
    """Kernels with low rank or interpolation have GPyTorch's own predictions."""
    x, step = torch.rand(12, 2), 1e-4
    model = SmallGP(x, waves(x), make()).eval()
    kernel, signs = model.covar_module, step * torch.tensor([1.0, -1.0])
    with gpytorch.settings.sgpr_diagonal_correction(False):
        found = gradient_posterior(model, x[:3])
        with torch.no_grad():
            ends = model(
                (x[:3, None, None] + torch.eye(2)[:, None] * signs[:, None]).flatten(0, -2)
            )
            mean = ends.mean.view(6, 2) @ signs.reciprocal() / 2
            covariance = ends.covariance_matrix.view(6, 2, 6, 2)
            expected = torch.einsum("asbt,s,t->ab", covariance, *[signs.reciprocal() / 2] * 2)
    torch.testing.assert_close(found.mean.flatten(), mean, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.covariance_matrix, expected, rtol=1e-2, atol=1e-3)
    assert model.covar_module is kernel and all(p.grad is None for p in model.parameters())


def test_gradients_have_the_units_of_inputs_and_outcomes_and_batch_shapes():
    x = torch.rand(2, 9, 2)
    y = torch.stack([waves(one) for one in x]).unsqueeze(-1)
    plain = NKNSingleTaskGP(x, y, structure="optimization")
    scaled = NKNSingleTaskGP(
        100 * x,
        1000 * y,
        structure="optimization",
        input_transform=Normalize(
            2, bounds=torch.tensor([[0.0, 0.0], [100.0, 100.0]]), batch_shape=torch.Size([2])
        ),
    )
    one, two = gradient_posterior(plain, x[0, :3]), gradient_posterior(scaled, 100 * x[0, :3])
    assert one.mean.shape == (2, 3, 2)
    kernel = ScaleKernel(RBFKernel(), batch_shape=torch.Size([2]))
    own = (SmallGP(x[0], y[..., 0], kernel), SmallGP(x[0], y[1, :, 0], ScaleKernel(RBFKernel())))
    batch, alone = (gradient_posterior(model.eval(), x[0, :3]) for model in own)
    torch.testing.assert_close(batch.mean[1], alone.mean)
    torch.testing.assert_close(batch.covariance_matrix[1], alone.covariance_matrix)
    torch.testing.assert_close(two.mean, 10 * one.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(two.variance, 100 * one.variance, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda x: (SingleTaskGP(x, x), x), NotImplementedError, "one output, got 2: use model"),
        (lambda x: (Wide(MultitaskKernel(RBFKernel(), 2)), x), NotImplementedError, "tion of 2"),
        (lambda x: (SingleTaskGP(x, x[:, :1]), x[0]), ValueError, r"q x d, got shape \(2,\)"),
        (lambda x: (SingleTaskGP(x, x[:, :1]), x * torch.nan), ValueError, "infinite values: 12"),
        (lambda x: (SingleTaskGP(x, x[:, :1]), x.int()), TypeError, "X must be"),
        (
            lambda x: (SingleTaskGP(x, x[:, :1], covar_module=PiecewisePolynomialKernel()), x),
            ValueError,
            "PyTorch cannot differentiate PiecewisePolynomialKernel twice",
        ),
        (
            lambda x: (SingleTaskGP(x, x[:, :1], outcome_transform=Log()), x),
            NotImplementedError,
            "SingleTaskGP must be Gaussian, got a nonlinear outcome transform",
        ),
    ],
)
def test_what_has_no_gaussian_gradient_is_named(make, error, match):
    with pytest.raises(error, match=match):
        gradient_posterior(*make(torch.rand(6, 2) + 0.1))


@pytest.mark.parametrize("diag", [False, True])
@pytest.mark.parametrize("make", [PiecewisePolynomialKernel, type("Own", (MaternKernel,), {})])
def test_kernels_of_distances_without_a_formula_are_named(make, diag):
    """PyTorch's derivatives of a distance are zero at equal points, without a word."""
    x = torch.rand(1, 2)
    for kernel in (make(), NeuralKernelNetwork([make()], [])):
        with pytest.raises(ValueError, match="cannot differentiate .* twice: a distance has no"):
            GradientKernel(kernel).forward(x, x, diag=diag)


def test_first_derivatives_of_a_kernel_of_distances_in_torch_func():
    kernel = NeuralKernelNetwork([PiecewisePolynomialKernel()], [])
    gradient = torch.func.grad(lambda x: kernel(x, x + 0.1).to_dense().sum())
    x = torch.rand(3, 5, 2)
    expected = torch.stack([gradient(points) for points in x])
    torch.testing.assert_close(torch.func.vmap(gradient)(x), expected)
