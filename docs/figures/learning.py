"""A network learns the structure of a series: ``python docs/figures/learning.py``.

The data are eight years of monthly CO2 at Mauna Loa, and Adam trains the model for a few CPU
seconds. The script draws learning.png (four steps) and learning.webp (an animation).
"""

import io
from pathlib import Path

import gpytorch
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from PIL import Image

from gpytorch_nkn.datasets import load_co2
from gpytorch_nkn.initialization import initialize_model
from gpytorch_nkn.kernels import NeuralKernelNetwork

FIGURES = Path(__file__).parent
BLUE, ORANGE, GRAY = "#0072b2", "#d55e00", "#767676"
PAST, AHEAD = 96, 60  # months
SHOWN = (0, 20, 60, 300)  # steps of learning.png
FRAMES = (*range(0, 40, 2), *range(40, 100, 6), *range(100, 301, 20))


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = NeuralKernelNetwork.time_series()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def snapshots():
    """Return years, values, and a mapping from steps to mean, standard deviation and kernel."""
    co2 = load_co2()
    y = torch.as_tensor(co2.y[-PAST - AHEAD :])
    years = torch.as_tensor(co2.time[-PAST - AHEAD :])
    center, scale = y[:PAST].mean(), y[:PAST].std()
    x = (years - years[0]) / (years[PAST] - years[0]) * 2 - 1
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Model(x[:PAST], (y[:PAST] - center) / scale, likelihood).double()
    initialize_model(model, seed=1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    found = {}
    for step in range(max(SHOWN) + 1):
        if step in {*SHOWN, *FRAMES}:
            model.eval()
            likelihood.eval()
            with torch.no_grad():
                posterior = likelihood(model(x))
                kernel = model.covar_module(x[PAST - 1 : PAST], x).to_dense()[0]
            found[step] = posterior.mean * scale + center, posterior.stddev * scale, kernel
            model.train()
            likelihood.train()
        optimizer.zero_grad()
        loss = -mll(model(x[:PAST]), model.train_targets)
        loss.backward()
        optimizer.step()
    return years, y, found


def draw(panels, step, years, y, mean, std, kernel):
    """Draw the forecast above the kernel."""
    above, below = panels
    ahead = years >= years[PAST]
    above.fill_between(years, mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.2, lw=0)
    above.plot(years, mean, color=BLUE, lw=1.2)
    above.plot(years[~ahead], y[~ahead], ".", color="black", ms=2.5)
    above.plot(years[ahead], y[ahead], ".", color=ORANGE, ms=2.5)
    above.axvline(years[PAST], color=GRAY, lw=0.8, ls=":")
    above.set(title=f"step {step}", ylim=(y.min() - 8, y.max() + 8), xticks=[])
    below.plot(years, kernel / kernel[PAST - 1], color=BLUE, lw=1.2)
    below.axvline(years[PAST], color=GRAY, lw=0.8, ls=":")
    below.set(ylim=(-0.1, 1.5), xlabel="year")
    below.set_xticks([1988, 1992, 1996, 2000], ["1988", "1992", "1996", "2000"])


def make(steps, size, series):
    """Make a figure of some steps side by side."""
    years, y, found = series
    figure, panels = plt.subplots(
        2, len(steps), figsize=size, sharey="row", height_ratios=[2, 1], layout="constrained"
    )
    for column, step in zip(panels.reshape(2, -1).T, steps, strict=True):
        draw(column, step, years, y, *found[step])
    panels.flat[0].set_ylabel("CO2 (ppm)")
    panels.flat[len(steps)].set_ylabel("kernel")
    for ax in panels.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    series = snapshots()
    make(SHOWN, (11, 4.2), series).savefig(FIGURES / "learning.png", dpi=100)
    frames = []
    for step in FRAMES:
        figure, page = make([step], (5.6, 4.2), series), io.BytesIO()
        figure.savefig(page, dpi=90)
        plt.close(figure)
        frames.append(Image.open(page).convert("RGB"))
    frames[0].save(
        FIGURES / "learning.webp",
        save_all=True,
        append_images=frames[1:],
        duration=[150] * (len(frames) - 1) + [2500],
        loop=3,
        quality=80,
        method=6,
    )
