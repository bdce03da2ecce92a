"""Holes in textures, filled by networks of kernels and by what else there is.

``python -m benchmarks.texture`` fills the hole of Sun et al. (2018) in images of 224 x 224 pixels,
and on the metal plate three other holes of its size. Their places follow from a rule alone: row,
then column, of ``numpy.random.default_rng(0)``, uniform over all places, drawn again where the hole
would overlap the paper's or one before it. All Gaussian processes come from
:func:`gpytorch_nkn.grids.inpaint` with the same seeds and the same number of starts. Each run adds
a line to a CSV file and a file of its fill, so that a second call goes on where the first one
ended. Afterwards, one at a time, trainings of the network on the plate end after 5, 10, ..., 80
steps on the marginal likelihood: from which on does the error stay at or below that of the
published fill? One thread per run. The environment variable GPYTORCH_NKN_DATA names the folder of
the data.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy and torch read them; the processes inherit them

import argparse  # noqa: E402
import csv  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import zlib  # noqa: E402
from collections.abc import Iterable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import cache  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from joblib import Parallel, delayed  # noqa: E402
from scipy.stats import norm  # noqa: E402

from benchmarks.data import load_texture  # noqa: E402
from benchmarks.texture_references import (  # noqa: E402
    harmonic_fill,
    mean_fill,
    published_fill,
    smse,
)
from benchmarks.texture_report import draw, report  # noqa: E402
from gpytorch_nkn.grids import inpaint  # noqa: E402
from gpytorch_nkn.kernels import NeuralKernelNetwork  # noqa: E402
from gpytorch_nkn.metrics import interval_coverage  # noqa: E402
from gpytorch_nkn.models import KroneckerGridGP, fit_grid_gp  # noqa: E402

__all__ = ["METHODS", "Case", "Fill", "cases", "fill", "main", "prefix_fill", "scores"]

METHODS = {
    "nkn": "NKN",
    "sm10": "spectral mixture 10",
    "rbf": "RBF",
    "periodic": "periodic",
    "harmonic": "harmonic",
    "mean": "mean",
    "published": "published fill",
}
_STRUCTURES = {"nkn": "texture", "sm10": "spectral_mixture", "rbf": "rbf", "periodic": "periodic"}
_IMAGES = ("plate", "brick", "grass", "gravel")
_CORNER, _SIDES = (60, 80), (60, 80)  # of the paper's hole
_OTHER_HOLES = 3
_PREFIXES = tuple(range(5, 85, 5))
_WHOLE = 0  # stands for all of a training from one start
_FIELDS = {
    "case": str,
    "method": str,
    "seed": int,
    "restarts": int,
    "checksum": int,
    "smse": float,
    "coverage": float,
    "nlpd": float,
    "training_s": float,
    "all_s": float,
    "cpu_s": float,
}
_KEY = tuple(_FIELDS)[:5]
_LIBRARIES = ("torch", "gpytorch", "botorch", "numpy", "scipy", "gpytorch_nkn")


@dataclass(frozen=True, eq=False)
class Case:
    """An image with a hole.

    Args:
        name: In files.
        title: In words.
        truth: Image ``H x W`` from 0 (black) to 1 (white).
        mask: Booleans ``H x W``, true in the hole.
        published: The image as a publication filled it.
    """

    name: str
    title: str
    truth: np.ndarray
    mask: np.ndarray
    published: np.ndarray | None = None

    @property
    def checksum(self) -> int:
        return zlib.crc32(self.truth.tobytes() + self.mask.tobytes())


@dataclass(frozen=True)
class Fill:
    """A filled image, the standard deviation of each pixel (if there is one), and seconds."""

    filled: np.ndarray
    std: np.ndarray | None = None
    training_s: float = np.nan


def other_corners(shape: Sequence[int]) -> list[tuple[int, int]]:
    """First row and column of the other holes: see the docstring of the module."""
    rng = np.random.default_rng(0)
    corners = [_CORNER]
    while len(corners) < 1 + _OTHER_HOLES:
        row, column = (
            int(rng.integers(n - side + 1)) for n, side in zip(shape, _SIDES, strict=True)
        )
        if all(abs(row - r) >= _SIDES[0] or abs(column - c) >= _SIDES[1] for r, c in corners):
            corners.append((row, column))
    return corners[1:]


def cases(images: Iterable[str]) -> list[Case]:
    """The holes of these images; a note on standard error where data are missing."""
    found = []
    for name in images:
        try:
            texture = load_texture(name)
        except (FileNotFoundError, ImportError) as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        published = None
        if name == "plate":
            try:
                published = published_fill()
            except FileNotFoundError as error:
                print(f"The published fill is left out: {error}", file=sys.stderr)
        found.append(Case(name, name, texture.image, texture.mask, published))
        for row, column in other_corners(texture.image.shape) if name == "plate" else ():
            hole = (row, row + _SIDES[0]), (column, column + _SIDES[1])
            other = load_texture(name, hole=hole)
            title = f"{name} ({row}, {column})"
            found.append(Case(f"{name}-{row}-{column}", title, other.image, other.mask))
    return found


def fill(case: Case, method: str, *, seed: int = 0, restarts: int = 3) -> Fill:
    """What a method makes of a case, without a look at the truth in its hole.

    Args:
        case: The case.
        method: Key of ``METHODS``.
        seed: Of the starts.
        restarts: Number of starts.
    """
    image = np.where(case.mask, np.nan, case.truth)
    if method in _STRUCTURES:
        structure = _STRUCTURES[method]
        result = inpaint(image, structure=structure, fills="kernel", restarts=restarts, seed=seed)
        assert result.fit is not None, "the image is constant"
        return Fill(result.filled, result.std, sum(r.seconds for r in result.fit.restarts))
    if method == "harmonic":
        return Fill(harmonic_fill(image, case.mask))
    if method == "mean":
        spread = np.nanstd(image)
        return Fill(mean_fill(image, case.mask), np.where(case.mask, spread, 0.0))
    if case.published is None:
        raise ValueError(f"There is no published fill of {case.name}.")
    return Fill(case.published)


def scores(truth: np.ndarray, result: Fill, mask: np.ndarray) -> dict[str, float]:
    """SMSE in the hole, coverage of 95 % bands and mean negative log density of its pixels."""
    found = {"smse": smse(truth, result.filled, mask), "coverage": np.nan, "nlpd": np.nan}
    if result.std is not None:
        y, mean, std = truth[mask], result.filled[mask], result.std[mask]
        lower, upper = norm.interval(0.95, mean, std)
        found["coverage"] = interval_coverage(y, lower, upper)
        found["nlpd"] = float(-norm.logpdf(y, mean, std).mean())
    return found


def prefix_fill(case: Case, steps: int, *, seed: int = 0) -> Fill:
    """The fill of a network whose training ends early, as that of :func:`inpaint` starts.

    Args:
        case: The case.
        steps: Steps on the marginal likelihood, without left-out blocks; 0 for all of a training
            with the defaults of :func:`fit_grid_gp`, which begins with the same steps.
        seed: Of the start.
    """
    image = np.where(case.mask, np.nan, case.truth)
    center, scale = np.nanmean(image), np.nanstd(image, ddof=1)
    step, dtype = 2 / (max(image.shape) - 1), torch.float32
    model = KroneckerGridGP(
        [(torch.arange(n, dtype=dtype) - (n - 1) / 2) * step for n in image.shape],
        torch.as_tensor((image - center) / scale, dtype=dtype),
        [NeuralKernelNetwork.texture(priors=False).to(dtype) for _ in image.shape],
        outcome_transform=None,
    )
    start = time.perf_counter()
    if steps == _WHOLE:
        fit_grid_gp(model, seed=seed)
    else:
        fit_grid_gp(
            model, likelihood_steps=steps, block_steps=0, blocks=0, calibrate=False, seed=seed
        )
    seconds = time.perf_counter() - start
    mean = center + scale * model.grid_mean().double().numpy()
    return Fill(np.where(case.mask, mean, case.truth), training_s=seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the file of results, draw the pictures and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.texture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", nargs="+", default=_IMAGES, metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="M")
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1), metavar="S")
    parser.add_argument("--restarts", type=int, default=3, metavar="K", help="of every kernel")
    parser.add_argument(
        "--reach-seeds", nargs="*", type=int, default=(0, 1, 2), metavar="S", help="of short runs"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes of one thread")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/.texture"), metavar="FOLDER")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="results.csv in that folder")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    path = args.csv or args.out / "results.csv"
    all_cases = cases(args.images)
    wanted = list(_wanted(all_cases, args))
    done = _read(path)
    missing = [j for j in wanted if j[1] not in done or not _fill_path(args.out, j[1]).is_file()]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {path}.", file=sys.stderr)
    for folder in (path.parent, args.out / "fills"):
        folder.mkdir(parents=True, exist_ok=True)
    failures = 0
    early = [job for job in missing if job[1][1].startswith("prefix")]  # alone, as they are timed
    pool = Parallel(n_jobs=args.jobs, return_as="generator_unordered")
    parallel = pool(delayed(_guarded)(*job) for job in missing if job not in early)
    for outcomes in (parallel, (_guarded(*job) for job in early)):
        for key, record, result, fault in outcomes:
            if record is None or result is None:
                failures += 1
                print(f"{key} failed: {fault}", file=sys.stderr)
                continue
            _write(path, record)
            std = np.empty(0) if result.std is None else result.std
            np.savez_compressed(_fill_path(args.out, key), filled=result.filled, std=std)
            done[key] = record
            print(f"{key[:3]}: {record['smse']:.3f}, {record['all_s']:.1f} s", file=sys.stderr)
    found = [done[key] for _, key in wanted if key in done]
    for case in all_cases:
        _draw(case, [record for record in found if record["case"] == case.name], args.out)
    print(report(found, {case.name: case.title for case in all_cases}, METHODS))
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES)
    print(f"\n{args.restarts} starts. One thread per run. {versions}.")
    return 1 if failures else 0


_Key = tuple[str, str, int, int, int]


def _wanted(all_cases: Sequence[Case], args: argparse.Namespace) -> Iterable[tuple[Case, _Key]]:
    for case in all_cases:
        for method in args.methods:
            if method == "published" and case.published is None:
                continue
            seeds = args.seeds if method in _STRUCTURES else (0,)
            restarts = args.restarts if method in _STRUCTURES else 0
            for seed in seeds:
                yield case, (case.name, method, seed, restarts, case.checksum)
        if case.name == "plate" and "nkn" in args.methods:
            for seed in args.reach_seeds:
                for steps in (*_PREFIXES, _WHOLE):
                    yield case, (case.name, f"prefix {steps}", seed, 1, case.checksum)


def _guarded(case: Case, key: _Key) -> tuple[_Key, dict | None, Fill | None, str]:
    torch.set_num_threads(1)
    _, method, seed, restarts, _ = key
    try:
        _warm_up()
        start = time.perf_counter(), time.process_time()
        if method.startswith("prefix"):
            result = prefix_fill(case, int(method.split()[1]), seed=seed)
        else:
            result = fill(case, method, seed=seed, restarts=restarts)
        wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
    except Exception as error:  # the other runs go on
        return key, None, None, f"{type(error).__name__}: {error}"
    record = dict(zip(_KEY, key, strict=True)) | scores(case.truth, result, case.mask)
    record |= {"training_s": result.training_s, "all_s": wall, "cpu_s": cpu}
    return key, record, result, ""


@cache
def _warm_up() -> None:
    """Once in a process: imports and first calls are not what is measured."""
    image = np.sin(np.arange(24) / 2)[:, None] * np.cos(np.arange(20) / 3)
    mask = np.zeros(image.shape, dtype=bool)
    mask[8:13, 5:10] = True
    small = Case("", "", image, mask)
    for method in _STRUCTURES:
        fill(small, method, restarts=1)
    for steps in (5, _WHOLE):
        prefix_fill(small, steps)


def _fill_path(out: Path, key: Sequence) -> Path:
    name, method, seed, restarts, _ = key
    return out / "fills" / f"{name}_{method.replace(' ', '-')}_{seed}_{restarts}.npz"


def _read(path: Path) -> dict[_Key, dict]:
    """The runs of a file by their keys; a line that is only half written does not count."""
    records = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                try:
                    record = {name: kind(row[name]) for name, kind in _FIELDS.items()}
                except (KeyError, TypeError, ValueError):
                    continue
                records[tuple(record[name] for name in _KEY)] = record
    return records


def _write(path: Path, record: dict) -> None:
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    with path.open("a", newline="", encoding="utf-8") as file:
        if old and not old.endswith("\n"):  # what a killed run left
            file.write("\n")
        writer = csv.DictWriter(file, list(_FIELDS), lineterminator="\n")
        if not old:
            writer.writeheader()
        writer.writerow(record)


def _draw(case: Case, records: Sequence[dict], out: Path) -> None:
    """The picture of a case: of each method the fill of the first seed."""
    fills, std, seeds = {}, None, []
    for method, title in METHODS.items():
        own = next((record for record in records if record["method"] == method), None)
        if own is None:
            continue
        with np.load(_fill_path(out, [own[name] for name in _KEY])) as file:
            fills[f"{title}\nSMSE {own['smse']:.3f}"] = file["filled"]
            std = file["std"] if method == "nkn" else std
        seeds += [own["seed"]] if method in _STRUCTURES else []
    image, (row, column) = case.name.split("-")[0], np.argwhere(case.mask)[0]
    heading = f"{image}: hole from row {row}, column {column}"
    heading += f"; seed {seeds[0]}" if seeds else ""
    if fills and not draw(out / f"{case.name}.png", heading, case.truth, case.mask, fills, std):
        print("No pictures without matplotlib.", file=sys.stderr)


if __name__ == "__main__":
    from benchmarks import texture  # the name by which the processes find it

    sys.exit(texture.main())
