"""Holes in textures, filled by networks of kernels and by what else there is.

The hole of Sun et al. (2018), 60 x 80, in images of 224 x 224 pixels, and on the metal plate three
other holes of its size. Their places follow from a rule alone: row, then column, of
``numpy.random.default_rng(0)``, uniform over all places, drawn again where the hole would overlap
the paper's or one before it. All Gaussian processes come from :func:`gpytorch_nkn.grids.inpaint`
with the same seeds and starts. GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import statistics
import sys
from functools import cache

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve
from scipy.stats import norm

from benchmarks.data import load_arrays, load_texture
from benchmarks.report import Table, grouped
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.grids import inpaint

__all__ = ["BENCHMARK", "harmonic_fill", "other_corners", "smse"]

_PLATE = "plate"
_SHAPE, _CORNER, _SIDES = (224, 224), (60, 80), (60, 80)  # of the image and of the paper's hole
_STRUCTURES = {
    "NKN": "texture",
    "spectral mixture 10": "spectral_mixture",
    "RBF": "rbf",
    "periodic": "periodic",
}


def other_corners() -> list[tuple[int, int]]:
    """First row and column of the other holes."""
    rng = np.random.default_rng(0)
    corners = [_CORNER]
    while len(corners) < 4:
        row, column = (
            int(rng.integers(n - side + 1)) for n, side in zip(_SHAPE, _SIDES, strict=True)
        )
        if all(abs(row - r) >= _SIDES[0] or abs(column - c) >= _SIDES[1] for r, c in corners):
            corners.append((row, column))
    return corners[1:]


_CASES = {_PLATE: None} | {f"{_PLATE} {corner}": corner for corner in other_corners()}
_CASES |= dict.fromkeys(("brick", "grass", "gravel"))


def run(case: str, method: str, seed: int, restarts: int) -> dict:
    """Scores of a fill in the hole."""
    torch.set_num_threads(1)
    name, corner = case.split(" ")[0], _CASES[case]
    ends = [(start, start + side) for start, side in zip(corner or (), _SIDES, strict=False)]
    texture = load_texture(name, **({"hole": tuple(ends)} if corner else {}))
    truth, mask = texture.image, texture.mask
    image = np.where(mask, np.nan, truth)
    _warm_up(method)
    (filled, std), seconds = timed(lambda: _fill(method, image, mask, seed, restarts))
    found = {"smse": smse(truth, filled, mask), "seconds": seconds}
    if std is not None:
        y, mean, width = truth[mask], filled[mask], std[mask]
        found["covered"] = float(np.mean(np.abs(y - mean) < 1.959964 * width))
        found["nlpd"] = float(-norm.logpdf(y, mean, width).mean())
    return found


@cache
def _warm_up(method: str) -> None:
    """Once in a process: imports and first calls are not what is measured."""
    image = np.sin(np.arange(24) / 2)[:, None] * np.cos(np.arange(20) / 3)
    image[8:13, 5:10] = np.nan
    if method != "published fill":
        _fill(method, image, np.isnan(image), 0, 1)


def _fill(method: str, image: np.ndarray, mask: np.ndarray, seed: int, restarts: int) -> tuple:
    """The filled image, and the standard deviation of each pixel, if there is one."""
    if method in _STRUCTURES:
        options = {"structure": _STRUCTURES[method], "fills": "kernel", "restarts": restarts}
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

    A pixel at the border of the image has fewer neighbours, which is a slope of zero across it.
    """
    height, width = mask.shape
    missing = np.flatnonzero(mask)
    number = np.full(mask.size, -1)
    number[missing] = np.arange(missing.size)
    rows, columns = np.divmod(missing, width)
    known = np.where(mask, 0.0, image).ravel()
    right_side, degree = np.zeros(missing.size), np.zeros(missing.size)
    entries = []
    for down, across in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        row, column = rows + down, columns + across
        inside = np.flatnonzero((row >= 0) & (row < height) & (column >= 0) & (column < width))
        neighbour = row[inside] * width + column[inside]
        degree[inside] += 1
        right_side[inside] += known[neighbour]
        unknown = number[neighbour] >= 0
        entries.append(np.stack([inside[unknown], number[neighbour[unknown]]]))
    off, diagonal = np.concatenate(entries, axis=1), np.arange(missing.size)
    indices = np.concatenate([off, np.stack([diagonal, diagonal])], axis=1)
    values = np.concatenate([-np.ones(off.shape[1]), degree])
    laplacian = coo_array((values, tuple(indices)), shape=(missing.size,) * 2).tocsc()
    filled = np.array(image, dtype=float)
    filled[mask] = spsolve(laplacian, right_side)
    return filled


def smse(truth: np.ndarray, filled: np.ndarray, mask: np.ndarray) -> float:
    """Mean squared error in the hole, in units of the variance of the truth there."""
    return float(np.square(filled - truth)[mask].mean() / truth[mask].var())


def tables(rows: list[dict]) -> dict[str, Table]:
    """Means over the seeds, and each seed."""
    lines = []
    for (case, method), runs in grouped(rows, "case", "method").items():
        lines.append(
            {
                "case": case,
                "method": method,
                "SMSE": _each([row["smse"] for row in runs], ".3f"),
                "95 % coverage": _each([r["covered"] for r in runs if "covered" in r], ".1%"),
                "-log density": _each([r["nlpd"] for r in runs if "nlpd" in r], ".3f"),
                "CPU s": _each([row["seconds"] for row in runs], ".1f"),
            }
        )
    return {"texture": Table.of(lines)}


def _each(values: list[float], form: str) -> str:
    if not values:
        return ""
    mean = format(statistics.fmean(values), form)
    return mean if len(values) == 1 else f"{mean} ({', '.join(format(v, form) for v in values)})"


def _possible(job: dict) -> bool:
    method = job["method"]
    if method == "published fill" and job["case"] != _PLATE:
        return False
    return job["seed"] == 0 or method in _STRUCTURES


_FILLS = [*_STRUCTURES, "harmonic", "mean", "published fill"]
BENCHMARK = Benchmark(
    "texture",
    __doc__,
    {"case": Axis(list(_CASES)), "method": Axis(_FILLS), "seed": Axis(range(3), (0, 1))},
    run,
    tables,
    settings={"restarts": 3},
    possible=_possible,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
