from dataclasses import replace

import torch
from botorch.models import SingleTaskGP
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.models import ExactGP

from gpytorch_nkn.interpretation import decompose
from gpytorch_nkn.interpretation.components.decomposition import Component
from gpytorch_nkn.kernels import NeuralKernelNetwork


class GP(ExactGP):
    def __init__(self, x, y, kernel):
        batch_shape = torch.Size(y.shape[:-1])
        super().__init__(x, y, GaussianLikelihood(batch_shape=batch_shape))
        self.likelihood.noise = 1e-4
        self.mean_module, self.covar_module = ZeroMean(), kernel

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def joint_model(n=60):
    """A sum of a function of column 0 and one of columns 1 and 2, of four; nothing is trained.

    The kernel over all columns is nearly constant along columns 0 and 3.
    """
    x = torch.rand(n, 4)
    y = torch.sin(6 * x[:, 0]) + 12 * (x[:, 1] - 0.5) * (x[:, 2] - 0.5)
    network = NeuralKernelNetwork.optimization(4)
    network.primitives[-1].lengthscale = torch.tensor([[300.0, 0.7, 0.7, 300.0]])
    network.layers[-1].weight = torch.tensor([[5e-4, 5e-4, 0.3, 5e-4, 5e-4, 5e-4, 0.65]])
    kernel = ScaleKernel(network)
    kernel.outputscale = 4.0
    return GP(x, y, kernel)


def test_a_kernel_over_all_columns_links_those_that_it_uses_together():
    assert decompose(joint_model()).column_groups() == [(1, 2), (0,)]


def test_a_kernel_over_all_columns_links_none_where_it_adds_up():
    x = torch.rand(60, 4)
    y = torch.sin(12 * x[:, 0]) + torch.cos(12 * x[:, 1]) + 3 * x[:, 2]
    kernel = ScaleKernel(MaternKernel(2.5, ard_num_dims=4))
    kernel.base_kernel.lengthscale = 20.0
    kernel.outputscale = 20.0
    for column in (0, 1):
        single = ScaleKernel(RBFKernel(active_dims=(column,)))
        single.base_kernel.lengthscale = 0.15
        kernel = kernel + single
    split = decompose(GP(x, y, kernel))
    shares = {part.name: share for part, share in zip(split.components, split.shares, strict=True)}
    assert shares["x0, x1, x2, x3"] > 0.1  # it counts, by the straight line along column 2
    assert sorted(split.column_groups()) == [(0,), (1,)]


def test_enough_components_for_every_column():
    x = torch.rand(30, 12)
    kernel = NeuralKernelNetwork.optimization(12, wiring="Linear2-Product1-Linear1")
    split = decompose(GP(x, x.sum(-1), kernel))
    assert len(split.components) == 16
    assert {frozenset({c}) for c in range(12)} <= {part.columns for part in split.components}
    assert len(decompose(GP(x[:, :3], x.sum(-1), NeuralKernelNetwork.optimization(3))).shares) == 8


def test_what_was_pruned_belongs_to_no_group():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(25, 3, generator=generator, dtype=torch.float64)
    y = (6 * x[:, :1]).sin() + 2 * x[:, 1:2] * x[:, 2:]
    model = SingleTaskGP(x, y, covar_module=NeuralKernelNetwork.additive(3)).eval()
    split = decompose(model, by="columns")
    rest = Component("what was pruned", (), is_rest=True)
    groups = split.column_groups()
    with_rest = replace(split, _unmerged=(*split._unmerged, (rest, 0.1)))
    assert with_rest.column_groups() == groups != []
