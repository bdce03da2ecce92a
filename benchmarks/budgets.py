"""How well ``budget=`` is kept: wall time and processor time of whole calls, and of what follows.

``python -m benchmarks.budgets`` gives 5 seconds, on one thread, to :func:`fit_best_of` with 50
restarts, a forecaster, tables of 1,000 and 20,000 rows, and grids of 256 x 256 and 400 x 400 cells.
A budget is wall time: what is planned are times measured just before, so that other work on the
same cores may delay the end.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them

import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from gpytorch_nkn.estimators import NKNForecaster, NKNRegressor  # noqa: E402
from gpytorch_nkn.fit import fit_best_of  # noqa: E402
from gpytorch_nkn.grids import inpaint  # noqa: E402
from gpytorch_nkn.models import NKNSingleTaskGP  # noqa: E402

__all__ = ["main"]

_BUDGET = 5.0


def main() -> int:
    """Print a row for each call."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    inpaint(np.eye(20), np.eye(20) > 0, restarts=1)  # imports are not what is measured
    print("| call | wall s | CPU s |\n| --- | --- | --- |")
    for n in (500, 1500):
        x = torch.as_tensor(rng.random((n, 4)))
        y = torch.sin(6 * x).sum(-1, keepdim=True)
        make = lambda x=x, y=y: NKNSingleTaskGP(x, y)  # noqa: E731
        _timed(
            f"fit_best_of, {n} rows, 50 restarts",
            lambda make=make: fit_best_of(make, restarts=50, budget=_BUDGET),
        )
    times = np.arange(600.0)
    series = np.sin(times / 3) + 0.1 * rng.normal(size=600).cumsum()
    forecaster = NKNForecaster(budget=_BUDGET, random_state=0)
    _timed("NKNForecaster, 600 points", lambda: forecaster.fit(times, series))
    for n in (1000, 20_000):
        table = rng.normal(size=(n, 5))
        target = np.sin(table).sum(1) + 0.1 * rng.normal(size=n)
        model = NKNRegressor(budget=_BUDGET, random_state=0)
        _timed(f"NKNRegressor, {n} rows", lambda m=model, x=table, y=target: m.fit(x, y))
        _timed("its first predict, 10 rows", lambda m=model, x=table: m.predict(x[:10]))
    for side in (256, 400):
        steps = np.arange(side)
        image = np.outer(np.sin(steps / 5), np.cos(steps / 7))
        image += 0.1 * rng.normal(size=image.shape)
        image[side // 3 : side // 2, side // 3 : side // 2] = np.nan
        _timed(f"inpaint, {side} x {side}", lambda a=image: inpaint(a, budget=_BUDGET))
    return 0


def _timed(name: str, call: Callable[[], Any]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"| {name} | {wall:.2f} | {cpu:.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
