"""Holes in textures, filled by networks of kernels and by other methods.

The hole of Sun et al. (2018) has 60 x 80 of 224 x 224 pixels; on the metal plate there are three
other holes of this size. Their rows and columns are drawn by ``numpy.random.default_rng(0)``,
uniformly over all positions, and drawn again if a hole overlaps the paper's or an earlier one. All
Gaussian processes come from :func:`gpytorch_nkn.grids.inpaint` with the same seeds and starts.
GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import statistics

import numpy as np
from scipy.sparse.csgraph import laplacian
from scipy.sparse.linalg import spsolve
from scipy.stats import norm
from sklearn.feature_extraction.image import grid_to_graph

from benchmarks.data import load_arrays, load_texture
from benchmarks.report import Cell, Table, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.grids import inpaint

__all__ = ["BENCHMARK", "harmonic_fill", "other_corners", "smse"]

_PLATE = "plate"
_SHAPE, _CORNER, _SIDES = (224, 224), (60, 80), (60, 80)  # of the image and of the paper's hole
_STRUCTURES = {"NKN": "texture", "spectral mixture 10": "spectral_mixture"}
_STRUCTURES |= {"RBF": "rbf", "periodic": "periodic"}


def other_corners() -> list[tuple[int, int]]:
    """Return the first row and column of the other holes."""
    rng = np.random.default_rng(0)
    corners = [_CORNER]
    while len(corners) < 4:
        row, column = (int(rng.integers(n - s + 1)) for n, s in zip(_SHAPE, _SIDES, strict=True))
        if all(abs(row - r) >= _SIDES[0] or abs(column - c) >= _SIDES[1] for r, c in corners):
            corners.append((row, column))
    return corners[1:]


_CASES = {_PLATE: None} | {f"{_PLATE} {corner}": corner for corner in other_corners()}
_CASES |= dict.fromkeys(("brick", "grass", "gravel"))


def run(case: str, method: str, seed: int) -> dict:
    """Return scores in the hole."""
    name, corner = case.split(" ")[0], _CASES[case]
    ends = [(start, start + side) for start, side in zip(corner or (), _SIDES, strict=False)]
    truth, mask = load_texture(name, ends) if corner else load_texture(name)
    image = np.where(mask, np.nan, truth)
    (filled, std), seconds = timed(lambda: _fill(method, image, mask, seed))
    scores = {"smse": smse(truth, filled, mask), "seconds": seconds}
    if std is not None:
        y, mean, width = truth[mask], filled[mask], std[mask]
        scores["covered"] = float(np.mean(np.abs(y - mean) < 1.959964 * width))
        scores["nlpd"] = float(-norm.logpdf(y, mean, width).mean())
    return scores


def _warm_up(method: str) -> None:
    image = np.sin(np.arange(24) / 2)[:, None] * np.cos(np.arange(20) / 3)
    image[8:13, 5:10] = np.nan
    if method != "published fill":
        _fill(method, image, np.isnan(image), 0)


def _fill(method: str, image: np.ndarray, mask: np.ndarray, seed: int) -> tuple:
    """Return the filled image, and the standard deviation of each pixel, if any."""
    if method in _STRUCTURES:
        options = {"structure": _STRUCTURES[method], "interpolants": "kernel"}
        result = inpaint(image, seed=seed, progress=False, **options)
        return result.filled, result.std
    if method == "harmonic":
        return harmonic_fill(image, mask), None
    if method == "mean":
        spread = np.where(mask, np.nanstd(image), 0.0)
        return np.where(mask, np.nanmean(image), image), spread
    filled = image.copy()
    filled[mask] = load_arrays("textures/plate_nkn_reference.npz")["pred_hole"].ravel()
    return filled, None


def harmonic_fill(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Fill the missing pixels so that each is the mean of its neighbours (Laplace's equation).

    Pixels at the border of the image have fewer neighbours (Neumann boundary conditions).
    """
    missing = mask.ravel()
    rows = laplacian(grid_to_graph(*mask.shape, dtype=float)).tocsr()[missing]
    right_side = -rows[:, ~missing] @ image.ravel()[~missing]
    filled = np.array(image, dtype=float)
    filled[mask] = spsolve(rows[:, missing].tocsc(), right_side)
    return filled


def smse(truth: np.ndarray, filled: np.ndarray, mask: np.ndarray) -> float:
    """Return the mean squared error in the hole, relative to the variance there."""
    return float(np.square(filled - truth)[mask].mean() / truth[mask].var())


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return means over the seeds, and each seed."""
    cells = {
        "SMSE": _each("smse", ".3f"),
        "95 % coverage": _each("covered", ".1%"),
        "-log density": _each("nlpd", ".3f"),
        "CPU s": _each("seconds", ".1f"),
    }
    return {"texture": summary(rows, ("case", "method"), cells)}


def _each(name: str, form: str) -> Cell:
    """Write the mean of a value, and single values if there are several."""

    def cell(runs: list[dict]) -> str:
        values = [row[name] for row in runs if name in row]
        shown = [format(value, form) for value in values]
        if len(values) < 2:
            return "".join(shown)
        return f"{statistics.fmean(values):{form}} ({', '.join(shown)})"

    return cell


_FILLS = [*_STRUCTURES, "harmonic", "mean", "published fill"]
BENCHMARK = Benchmark(
    {"case": Axis(list(_CASES)), "method": Axis(_FILLS), "seed": Axis(range(3), (0, 1))},
    run,
    tables,
    possible=lambda job: (
        (job["seed"] == 0 or job["method"] in _STRUCTURES)
        and (job["case"] == _PLATE or job["method"] != "published fill")
    ),
    warm_up=_warm_up,
)

if __name__ == "__main__":
    BENCHMARK.command()
