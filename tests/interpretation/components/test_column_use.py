from dataclasses import replace

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.models import ExactGP

from gpytorch_nkn.interpretation import ColumnUse, decompose, report
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


def posterior_mean(model, x):
    with torch.no_grad():
        return model.eval()(torch.as_tensor(x)).mean.numpy()


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


def test_fractions_are_those_of_averages_written_out():
    x = torch.rand(25, 3)  # few enough that all of them are averaged over
    y = torch.sin(4 * x[:, 0]) * x[:, 1] + x[:, 1]
    model = GP(x, y, RBFKernel(ard_num_dims=2, active_dims=(0, 1)))
    split = decompose(model)
    (number,) = (n for n, part in enumerate(split.components) if part.columns == {0, 1})
    use = split.column_use(number)
    mean = posterior_mean(model, x)
    left, expected = mean - mean.mean(), {}
    for column in (0, 1):
        values = np.empty((25, 25))
        for a in range(25):
            points = x.clone()
            points[:, column] = x[a, column]
            values[a] = posterior_mean(model, points)
        first = values.mean(1)
        left = left - (first - first.mean())
        total = values.var(0).mean() / mean.var()
        expected[column] = total, total - first.var() / mean.var()
    assert use.joint == pytest.approx((left**2).mean() / mean.var(), rel=1e-6)
    assert 0.05 < use.joint < 0.95
    for column, (total, interaction) in expected.items():
        assert use.totals[column] == pytest.approx(total, rel=1e-6)
        assert use.interactions[column] == pytest.approx(interaction, rel=1e-6)
    assert set(use.totals) == {0, 1}  # nothing is said of a column that the kernel does not see


def test_a_sum_of_single_columns_has_nothing_in_common():
    """Along every column the kernel of both is nearly a straight line."""
    x = torch.rand(40, 2)
    kernel = RBFKernel(ard_num_dims=2)
    kernel.lengthscale = 50.0
    split = decompose(GP(x, x[:, 0] - 2 * x[:, 1], ScaleKernel(kernel)))
    number = next(n for n, part in enumerate(split.components) if part.terms)
    use = split.column_use(number)
    assert use.joint < 1e-4 and max(use.interactions.values()) < 1e-4
    assert min(use.totals.values()) > 0.1
    single = decompose(GP(x, x[:, 0], RBFKernel(active_dims=(1,))))
    number = next(n for n, part in enumerate(single.components) if part.terms)
    assert single.column_use(number) == ColumnUse(0.0, {1: 1.0}, {1: 0.0})


def test_a_kernel_over_all_columns_links_those_that_it_uses_together():
    split = decompose(joint_model())
    assert split.column_groups() == [(1, 2), (0,)]
    (number,) = (n for n, part in enumerate(split.components) if part.name == "x0, x1, x2, x3")
    use = split.column_use(number)
    assert use.joint > 0.9 and max(use.totals[0], use.totals[3]) < 0.01
    assert min(use.interactions[1], use.interactions[2]) > 0.9


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


def test_the_report_says_what_a_kernel_over_all_columns_does():
    found = report(joint_model(24), columns=["dose", "age", "salt", "rain"])
    titles = {part.title for part in found.sections}
    assert "What depends on age and salt together, and hardly on dose and rain" in titles
    assert "What depends on dose alone" in titles
    assert found.sections[0].title.startswith("What depends on age and salt")


def test_the_report_tells_sums_and_interactions_apart():
    x = torch.rand(50, 2)
    for y, sentence in (
        (x[:, 0] - 2 * x[:, 1], "It is nearly a sum of what its columns do one by one."),
        (x[:, 0] * x[:, 1], "% of its variance is what its columns do together, the rest what"),
    ):
        kernel = RBFKernel(ard_num_dims=2)
        kernel.lengthscale = 2.0
        assert sentence in report(GP(x, y, ScaleKernel(kernel))).text


def test_several_outputs():
    x = torch.rand(20, 2)
    y = torch.stack([x[:, 0] + x[:, 1], x[:, 0] * x[:, 1]])
    batch = torch.Size([2])
    uses = []
    for targets, shape in ((y, batch), (y[0], None), (y[1], None)):
        kernel = RBFKernel(ard_num_dims=2, batch_shape=shape)
        split = decompose(GP(x, targets, kernel))
        number = next(n for n, part in enumerate(split.components) if part.terms)
        uses.append(split.column_use(number))
    assert uses[0].joint == pytest.approx((uses[1].joint + uses[2].joint) / 2)


def test_faults_are_named():
    split = decompose(joint_model(20), max_components=3)
    with pytest.raises(ValueError, match="There are 3 components, got the number 3"):
        split.column_use(3)
    (merged,) = (n for n, part in enumerate(split.components) if part.columns is None)
    with pytest.raises(ValueError, match="smaller components' are not known"):
        split.column_use(merged)


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
