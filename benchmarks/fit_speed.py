"""Seconds per restart until a Neural Kernel Network explains the airline series well.

``python -m benchmarks.fit_speed`` starts the same restarts in several ways and stops each as soon
as its negative log marginal likelihood per point (of standardised data, without priors) is below
the target. With plain evaluation of the network: by the paper's recipe (Adam at 1e-3, 20,000
steps), by L-BFGS one after another, and by L-BFGS on all restarts in one batch. With the training
loss in closed form, in PyTorch and compiled: by Adam at 3e-2. The environment variable
GPYTORCH_NKN_DATA names the folder of the data.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy and torch read them

import argparse  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from contextlib import suppress  # noqa: E402
from dataclasses import asdict, dataclass  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gpytorch.constraints import GreaterThan  # noqa: E402
from gpytorch.distributions import MultivariateNormal  # noqa: E402
from gpytorch.likelihoods import GaussianLikelihood  # noqa: E402
from gpytorch.means import ConstantMean  # noqa: E402
from gpytorch.models import ExactGP  # noqa: E402
from linear_operator.utils.errors import NotPSDError  # noqa: E402
from scipy.optimize import minimize  # noqa: E402

from benchmarks.data import load_time_series  # noqa: E402
from gpytorch_nkn.fit.minimize import FlatParameters, Recipe, minimize as run_recipe  # noqa: E402
from gpytorch_nkn.fit.objective import Objective  # noqa: E402
from gpytorch_nkn.initialization import initialize_from_data  # noqa: E402
from gpytorch_nkn.kernels import NeuralKernelNetwork  # noqa: E402
from gpytorch_nkn.settings import kernel_evaluation  # noqa: E402

__all__ = ["main"]

_PAPER_STEPS, _PAPER_RATE = 20_000, 1e-3
_FAST_STEPS, _FAST_RATE = 1_500, 3e-2
_START_NOISE = 0.1
_HIGH = 1e6  # stands for a loss that is not finite
_MAX_ITERATIONS = 2_000


class _StopError(Exception):
    """The restart has reached the target, or its time is over."""


@dataclass
class _Result:
    method: str
    reached: int
    restarts: int
    seconds: float  # all restarts together
    evaluations: int
    losses: list[float]  # lowest of each restart, per point

    @property
    def seconds_per_restart(self) -> float:
        return self.seconds / self.restarts

    @property
    def seconds_per_success(self) -> float:
        return self.seconds / self.reached if self.reached else float("inf")


class _GP(ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor, restart: int, seed: int):
        super().__init__(x, y, GaussianLikelihood(noise_constraint=GreaterThan(1e-6)))
        self.mean_module = ConstantMean()
        kernel = NeuralKernelNetwork.time_series(priors=False).to(x)
        self.covar_module = initialize_from_data(kernel, x, y, seed=seed, restart=restart)
        self.likelihood.noise = _START_NOISE
        self.to(x)

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class _Losses:
    """Losses per point and gradients of stacked restarts at rows of raw parameters."""

    def __init__(self, models: Sequence[_GP], target: float):
        self.target = target
        self.lowest = np.full(len(models), np.inf)
        self.evaluations = 0
        self.models = models
        self.num_points = models[0].train_targets.numel()

    def start(self) -> np.ndarray:
        """Raw parameters ``R x P``."""
        rows = [torch.cat([p.data.flatten() for p in _trained(m)]) for m in self.models]
        return torch.stack(rows).numpy()

    def __call__(self, rows: np.ndarray, numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Losses ``B`` and gradients ``B x P``; zero gradients where the target is reached."""
        (number,) = numbers
        model = self.models[number].train()
        parameters = _trained(model)
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, part in zip(
            parameters, torch.from_numpy(rows).split(sizes, dim=-1), strict=True
        ):
            parameter.data = part.reshape(parameter.shape).clone()
            parameter.grad = None
        self.evaluations += len(rows)
        try:
            losses = Objective(model)().reshape(1) / self.num_points
            finite = losses.isfinite()
            losses.masked_fill(~finite, 0.0).sum().backward()
        except (ArithmeticError, NotPSDError):
            return np.full(len(rows), _HIGH), np.zeros_like(rows)
        gradients = torch.cat([p.grad.reshape(len(rows), -1) for p in parameters], dim=-1)
        finite &= gradients.isfinite().all(-1)
        values = torch.where(finite, losses.detach(), _HIGH).numpy()
        self.lowest[list(numbers)] = np.minimum(self.lowest[list(numbers)], values)
        keep = finite.numpy() & (values > self.target)
        return values, np.where(keep[:, None], gradients.numpy(), 0.0)


def _trained(model: ExactGP) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the methods and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_speed", description=__doc__)
    parser.add_argument("--series", default="airline", metavar="NAME")
    parser.add_argument("--restarts", type=int, default=8, metavar="R")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument(
        "--target",
        type=float,
        default=-0.85,
        metavar="T",
        help="negative log marginal likelihood per point (default: %(default)s)",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="longest time of one restart (default: %(default)s)",
    )
    parser.add_argument("--methods", nargs="+", choices=_METHODS, default=tuple(_METHODS))
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results as JSON")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    try:
        series = load_time_series(args.series)
    except FileNotFoundError as error:
        parser.error(str(error))
    x, y = (torch.from_numpy((v - v.mean()) / v.std()) for v in (series.time, series.y))
    for path, train in _METHODS.values():  # what is imported at first use
        with kernel_evaluation(path):
            train(_losses(x[:20], y[:20], 2, args.seed, -np.inf), 0.1)
    results = []
    for name in args.methods:
        losses = _losses(x, y, args.restarts, args.seed, args.target)
        path, train = _METHODS[name]
        start = time.process_time()
        with kernel_evaluation(path):
            train(losses, args.budget)
        seconds = time.process_time() - start
        reached = int((losses.lowest <= args.target).sum())
        lowest = [round(float(value), 4) for value in losses.lowest]
        results.append(_Result(name, reached, args.restarts, seconds, losses.evaluations, lowest))
        print(f"{name}: {reached} of {args.restarts}, {seconds:.1f} s, {lowest}", file=sys.stderr)
    print(_table(results, args))
    if args.out is not None:
        content = {
            "settings": {k: str(v) for k, v in vars(args).items()},
            "versions": _versions(),
            "results": [asdict(result) for result in results],
        }
        args.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def _losses(x: torch.Tensor, y: torch.Tensor, restarts: int, seed: int, target: float) -> _Losses:
    models = [_GP(x.unsqueeze(-1), y, restart, seed) for restart in range(restarts)]
    return _Losses(models, target)


def _adam_one_by_one(losses: _Losses, budget: float) -> None:
    for number, row in enumerate(losses.start()):
        deadline = time.perf_counter() + budget
        values = torch.from_numpy(row.copy())
        optimizer = torch.optim.Adam([values], lr=_PAPER_RATE)
        for _ in range(_PAPER_STEPS):
            _, gradients = losses(values.numpy()[None], [number])
            if losses.lowest[number] <= losses.target or time.perf_counter() > deadline:
                break
            # Adam does not see the scale of the loss, so that per point is as good as in all.
            values.grad = torch.from_numpy(gradients[0])
            optimizer.step()


def _lbfgs_one_by_one(losses: _Losses, budget: float) -> None:
    for number, row in enumerate(losses.start()):
        deadline = time.perf_counter() + budget

        def evaluate(
            point: np.ndarray, number: int = number, deadline: float = deadline
        ) -> tuple[float, np.ndarray]:
            values, gradients = losses(point[None], [number])
            if losses.lowest[number] <= losses.target or time.perf_counter() > deadline:
                raise _StopError
            return float(values[0]), gradients[0]

        try:
            minimize(evaluate, row, jac=True, method="L-BFGS-B", options=_lbfgs_options())
        except _StopError:
            pass


def _lbfgs_options() -> dict[str, float]:
    return {"maxiter": _MAX_ITERATIONS, "maxfun": 10**6, "maxcor": 20, "gtol": 1e-6, "ftol": 1e-9}


def _adam_in_closed_form(losses: _Losses, budget: float) -> None:
    for number, model in enumerate(losses.models):
        flat = FlatParameters(model.train(), end=time.monotonic() + budget)

        def after_step(number: int = number, flat: FlatParameters = flat) -> None:
            losses.lowest[number] = flat.best_loss / losses.num_points
            if losses.lowest[number] <= losses.target:
                raise _StopError

        with suppress(_StopError):
            run_recipe(flat, Recipe(_FAST_STEPS, _FAST_RATE, lbfgs_iterations=0), after_step)
        losses.evaluations += flat.evaluations


_METHODS: dict[str, tuple[str, Callable[[_Losses, float], None]]] = {
    "paper's recipe": ("plain", _adam_one_by_one),
    "L-BFGS": ("plain", _lbfgs_one_by_one),
    "Adam 3e-2, closed form": ("tiles", _adam_in_closed_form),
    "Adam 3e-2, compiled": ("compiled", _adam_in_closed_form),
}


def _table(results: Sequence[_Result], args: argparse.Namespace) -> str:
    base = results[0]
    lines = [
        f"{args.series}, {args.restarts} restarts, seed {args.seed}, target {args.target} nats per "
        f"point, at most {args.budget:g} s per restart:",
        "",
        "| method | reached the target | evaluations | CPU s per restart | CPU s per restart that "
        f"reached it | times as fast as {base.method} |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        both = result.reached and base.reached
        ratio = (
            f"{base.seconds_per_success / result.seconds_per_success:.1f}"
            if both
            else f"more than {base.seconds / result.seconds_per_success:.1f}"
            if result.reached
            else "-"
        )
        success = f"{result.seconds_per_success:.1f}" if result.reached else "-"
        lines.append(
            f"| {result.method} | {result.reached} of {result.restarts} | {result.evaluations} | "
            f"{result.seconds_per_restart:.1f} | {success} | {ratio} |"
        )
    versions = ", ".join(f"{k} {v}" for k, v in _versions().items())
    return "\n".join([*lines, "", f"{versions}. One thread of {platform.machine()}."])


def _versions() -> dict[str, str]:
    names = ("torch", "gpytorch", "botorch", "numpy", "scipy")
    return {"python": platform.python_version()} | {n: metadata.version(n) for n in names}


if __name__ == "__main__":
    sys.exit(main())
