"""Outputs on pages that show them, and pictures of docs/start, from the code of each page.

The printed output follows each block of code that prints.

Run ``python docs/figures/start.py [PAGE ...]`` in the root of the repository.
"""

import os
import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp

import gpytorch
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.plotting import plot_effects, plot_inpainting

FIGURES = Path(__file__).parent
sys.path.insert(0, str(FIGURES.parents[1]))

from tests.test_pages import SHOWING, fenced  # noqa: E402

BLUE, ORANGE, GRAY = "#1f5fa8", "#d1580b", "#808080"


def forecast(page):
    figure, ax = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    page["forecaster"].plot(held_out=page["later"], history=132, ax=ax)
    ax.set(xlabel="", ylabel="CO2 at Mauna Loa (ppm)")
    return figure


def model(page):
    x, y, ahead = page["x"], page["y"], page["ahead"]
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    rbf = page["YourModel"](x, y, likelihood, ScaleKernel(RBFKernel())).double()
    fit_best_of(rbf, restarts=4, seed=0)
    with torch.no_grad():
        stock = likelihood(rbf(ahead))
    figure, axes = plt.subplots(1, 2, figsize=(6.6, 2.9), sharey=True, layout="constrained")
    for ax, title, color, prediction in (
        (axes[0], "ScaleKernel(RBFKernel())", ORANGE, stock),
        (axes[1], "a network, time_series()", BLUE, page["prediction"]),
    ):
        lower, upper = (end.detach() for end in prediction.confidence_region())
        ax.fill_between(ahead, lower, upper, color=color, alpha=0.2, lw=0)
        ax.plot(ahead, prediction.mean.detach(), color=color)
        ax.plot(x, y, ".", color="black", ms=3)
        ax.axvline(x[-1], color=GRAY, lw=0.8, ls=":")
        ax.set(title=title, xlabel="x")
    return figure


def botorch(page):
    u = torch.linspace(0, 1, 200, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(u, u, indexing="xy"), -1)
    figure, ax = plt.subplots(figsize=(5, 4.2), layout="constrained")
    levels = np.linspace(-100, 80, 19)
    contours = ax.contourf(
        u, u, page["function"](grid)[..., 0], levels=levels, cmap="cividis", extend="min"
    )
    figure.colorbar(contours, label="value")
    first, searched = page["train_X"].split([6, 8])
    ax.plot(*first.T, "o", mfc="none", mec="white", ms=7)
    for number, (a, b) in enumerate(searched.tolist(), 1):
        ax.plot(a, b, "o", mfc="white", mec="black", ms=13, clip_on=False)
        ax.text(a, b - 0.003, str(number), color="black", ha="center", va="center", fontsize=9)
    ax.set(xlabel="$u_1$", ylabel="$u_2$", xlim=(0, 1), ylim=(0, 1))
    return figure


def grid(page):
    figure, axes = plt.subplots(2, 2, figsize=(6, 4.9), layout="constrained")
    plot_inpainting(axes, page["result"], truth=page["image"])
    return figure


def table(page):
    shown = page["influence"].main[:4]
    figure, axes = plt.subplots(2, 2, figsize=(6.2, 5), layout="constrained")
    plot_effects(axes, shown, y_label="effect on y")
    return figure


if __name__ == "__main__":
    os.chdir(mkdtemp())  # for the files that pages write
    pictures = {draw.__name__: draw for draw in (forecast, model, botorch, grid, table)}
    for path in SHOWING:
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        text = path.read_text(encoding="utf-8")
        namespace = {"__name__": "__main__"}
        torch.set_default_dtype(torch.float32)  # which a page may have changed
        for _, code in fenced(text, "python"):
            with redirect_stdout(StringIO()) as printed:
                exec(code, namespace)
            block, old = f"```python\n{code}```\n", r"(?:\n```text\n.*?```\n)?"
            lines = [line.rstrip() for line in printed.getvalue().splitlines()]
            new = "\n```text\n" + "\n".join(lines) + "\n```\n" if lines else ""
            text = re.sub(
                re.escape(block) + old,
                lambda _, shown=block + new: shown,
                text,
                count=1,
                flags=re.DOTALL,
            )
        path.write_text(text, encoding="utf-8")
        if path.stem in pictures:
            figure = pictures[path.stem](namespace)
            for ax in figure.axes:
                ax.spines[["top", "right"]].set_visible(False)
            figure.savefig(FIGURES / f"start_{path.stem}.png", dpi=140, facecolor="white")
