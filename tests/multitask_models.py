"""Small models of correlated tasks, one for each class of GPyTorch and BoTorch."""

import gpytorch
import torch
from botorch.models import KroneckerMultiTaskGP, MultiTaskGP
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize, StratifiedStandardize
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import IndexKernel, LCMKernel, MultitaskKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean

from gpytorch_nkn.kernels import NeuralKernelNetwork

_X = torch.rand(18, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
_WAVE = torch.sin(5 * _X[:, :1]) + _X[:, 1:]
_Y = torch.cat([_WAVE, 40 + 10 * _WAVE + torch.cos(4 * _X[:, 1:])], -1)
#: Long form: task 0 at all points, task 1 at some.
LONG_X = torch.cat(
    [torch.cat([_X[:n], torch.full((n, 1), code)], -1) for n, code in ((18, 0.0), (11, 1.0))]
)
LONG_Y = torch.cat([_Y[:, 0], _Y[:11, 1]])


class Wide(gpytorch.models.ExactGP):
    def __init__(self, kernel, rank=0):
        likelihood = MultitaskGaussianLikelihood(2, rank=rank)
        super().__init__(_X, _Y / torch.tensor([1.0, 10.0]), likelihood)
        self.mean_module = MultitaskMean(ConstantMean(), 2)
        self.covar_module = kernel

    def forward(self, x):
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


class Indexed(gpytorch.models.ExactGP):
    def __init__(self):
        tasks = (LONG_X[:, 2:] == 1).long()
        super().__init__((LONG_X[:, :2], tasks), LONG_Y / 10, GaussianLikelihood())
        self.mean_module, self.covar_module = ConstantMean(), _network()
        self.task_covar_module = IndexKernel(2, rank=1)

    def forward(self, x, tasks):
        matrix = self.covar_module(x).mul(self.task_covar_module(tasks))
        return MultivariateNormal(self.mean_module(x), matrix)


def _network():
    return NeuralKernelNetwork.additive(2)


def _by_column():
    return MultiTaskGP(
        LONG_X[:, [0, 2, 1]],
        LONG_Y.unsqueeze(-1),
        task_feature=1,
        covar_module=_network(),
        input_transform=Normalize(3, indices=[0, 2]),
        outcome_transform=StratifiedStandardize(1, torch.tensor([0, 1])),
    )


_MAKERS = {
    "MultitaskKernel": lambda: Wide(MultitaskKernel(_network(), num_tasks=2, rank=1)),
    "LCMKernel": lambda: Wide(LCMKernel([_network(), RBFKernel()], num_tasks=2, rank=1)),
    "index": Indexed,
    "MultiTaskGP": _by_column,
    "KroneckerMultiTaskGP": lambda: KroneckerMultiTaskGP(
        _X,
        _Y,
        data_covar_module=_network(),
        input_transform=Normalize(2),
        outcome_transform=Standardize(2),
    ),
}
KINDS = tuple(_MAKERS)


def make_multitask(kind):
    """A model in double precision and eval mode, whose tasks correlate."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return _MAKERS[kind]().double().eval()


@torch.no_grad()
def predict_task(model, x, task):
    """Posterior mean of a task (0 or 1) at inputs ``M x 2``, before the outcome transform."""
    model.eval()
    index = torch.full((len(x), 1), task)
    if isinstance(model, MultiTaskGP):
        x = torch.cat([x[:, :1], index.to(x), x[:, 1:]], -1)
        return model.posterior(x).mean.squeeze(-1)
    if isinstance(model, Indexed):
        return model(x, index).mean
    if isinstance(model, KroneckerMultiTaskGP):
        return model.posterior(x).mean[:, task]
    return model(x).mean[:, task]
