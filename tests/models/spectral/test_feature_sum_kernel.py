import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.kernels import NonStationarySpectralKernel
from gpytorch_nkn.models.inducing_points import InducingFeatureKernel
from gpytorch_nkn.models.spectral.feature_sum_kernel import FeatureSumKernel
from tests.kernels.contract import check_kernel


def rbf(*batch_shape):
    shape = torch.Size(batch_shape)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2, batch_shape=shape), batch_shape=shape)
    for number, parameter in enumerate(kernel.parameters()):
        draws = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
        parameter.data += 0.3 * draws
    return kernel


def points(count, *batch_shape, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch_shape, count, 2, generator=generator)


@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_features_match_nystrom_and_the_rest_is_the_residual(batch_shape):
    base = rbf(*batch_shape)
    kernel = InducingFeatureKernel(base, points(6))
    x, y = points(5, seed=1), points(4, seed=2)
    z = kernel.inducing_points
    inner = base(z).to_dense() + 1e-8 * base.outputscale[..., None, None] * torch.eye(6)

    def nystrom(x, y):
        return base(x, z).to_dense() @ torch.linalg.solve(inner, base(z, y).to_dense())

    assert kernel.feature_dim == kernel.features(x).size(-1) == 6
    torch.testing.assert_close(kernel(x, y).to_dense(), nystrom(x, y))
    torch.testing.assert_close(kernel.prior_values(x), base(x).to_dense())
    _, omitted = kernel.low_rank_map()(x)
    diagonal = (base(x).to_dense() - nystrom(x, x)).diagonal(dim1=-1, dim2=-2)
    torch.testing.assert_close(omitted, diagonal)
    assert diagonal.max() > 0.05
    _, near = kernel.low_rank_map()(z[..., :2, :])
    assert (near >= 0).all() and near.max() < 1e-6  # nothing is omitted at the points themselves


def make_sum(*batch_shape):
    return FeatureSumKernel(
        InducingFeatureKernel(rbf(*batch_shape), points(6)),
        NonStationarySpectralKernel(4, 2, batch_shape=torch.Size(batch_shape)),
    )


def test_the_contract_of_kernels():
    x1, x2 = points(9, seed=1), points(6, seed=2)
    check_kernel(make_sum(), x1, x2)
