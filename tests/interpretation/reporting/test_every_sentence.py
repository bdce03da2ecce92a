"""Every sentence of a report agrees with numbers that are computed here from data and model.

A sentence that matches no row of the tables fails: whoever adds one adds its check.
"""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from scipy import stats
from sklearn.metrics import brier_score_loss, log_loss
from statsmodels.stats.diagnostic import acorr_ljungbox

from gpytorch_nkn.estimators import NKNClassifier
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import report, report_search
from gpytorch_nkn.interpretation.reporting.words import describe_effects
from gpytorch_nkn.kernels import StepKernel
from tests.interpretation.small_models import GP

# What stands for a number, a share, a percentage, a p-value, a column and a point in the tables.
TOKENS = {
    "<n>": r"(-?\d+(?:\.\d*)?(?:e-?\d+)?(?: [mb]illion)?)",
    "<share>": r"(less than 0\.1 %|more than 99\.9 %|-?\d+\.\d %)",
    "<c>": r"(\d+(?:\.\d)?) %",
    "<p>": r"\(p (?:= (\S+)|< 0\.001)\)",
    "<x>": r"(x\d)",
    "<at>": r"x\d = \S+ and x\d = \S+",
}
LARGE = {"million": 1e6, "billion": 1e9}


def value_of(text):
    number, _, large = text.partition(" ")
    return float(number) * LARGE.get(large, 1.0)


def same(text, value, slack=0.0):
    """Whether a number is the value to the digits that are written."""
    number, _, large = text.partition(" ")
    mantissa, _, exponent = number.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) * LARGE.get(large, 1.0)
    return abs(value_of(text) - value) <= 0.51 * unit + slack + 1e-6 * abs(value)


def is_share(text, value, slack=0.0):
    if text.startswith("less"):
        return abs(value) < 0.0005 + slack
    return (
        value > 0.9995 - slack
        if text.startswith("more")
        else same(text[:-2], 100 * value, 100 * slack)
    )


def is_p(text, value):
    return value < 0.001 if text is None else same(text, value)


def moves(values, word, span=0.0):
    """Whether values end higher or lower, and never go back by a twentieth of their range."""
    sign = 1 if word == "rises" else -1
    back = (np.maximum.accumulate(sign * values) - sign * values).max()
    return sign * (values[-1] - values[0]) > 0 and back <= 0.051 * max(np.ptp(values), span)


def straight(c, goes, start, end, rate):
    slope = abs(c.mean[-1] - c.mean[0]) / np.ptp(c.x)
    r = np.corrcoef(c.x, c.mean)[0, 1]
    return same(start, c.mean[0]) and same(end, c.mean[-1]) and same(rate, slope) and r**2 > 0.99


COMPONENT = [
    ("The level stays at about <n>.",
     lambda c, a: same(a, c.mean.mean()) and np.ptp(c.mean) <= 0.021 * c.y.std()),
    ("It (rises|falls) from <n> to <n>, on average by <n> per unit of time.", straight),
    ("It (rises|falls) from <n> to <n>.",
     lambda c, goes, a, b: moves(c.mean, goes) and same(a, c.mean[0]) and same(b, c.mean[-1])),
    ("It varies between <n> and <n>; it starts at <n> and ends at <n>.",
     lambda c, *t: all(map(same, t, (c.mean.min(), c.mean.max(), c.mean[0], c.mean[-1])))),
    ("It includes a level shift; a forecast continues from the last value.",
     lambda c: c.kind == "step"),
    ("It repeats every <n>; its standard deviation is <n>.",
     lambda c, p, s: same(p, c.period, 0.02) and same(s, c.mean.std())),
    ("Its shape changes (slowly|from one cycle to the next): cycles <n> apart resemble each "
     "other only partly.",
     lambda c, how, a: same(a, c.fade, 0.02 * np.ptp(c.x))
     and (how == "slowly") == (c.fade > 2 * c.period)),
    ("It varies over about <n>; its standard deviation is <n>.",
     lambda c, a, s: same(a, c.length, 0.06 * c.length + np.ptp(c.x) / 400)
     and same(s, c.mean.std())),
    ("In a forecast it decays over a few multiples of this length.",
     lambda c: abs(c.past(5 * c.length)) < 0.1 * abs(c.mean).max()),
    ("Neighbouring points are almost uncorrelated; its standard deviation is <n>.",
     lambda c, s: same(s, c.mean.std())
     and abs(c.past(c.x[1] - c.x[0])) < 0.15 * abs(c.mean).max()),
    ("It adds almost nothing to a forecast.",
     lambda c: abs(c.past(c.x[1] - c.x[0])) < 0.15 * abs(c.mean).max()),
    ("Held-out data are predicted equally well without (?:it|them): it may be noise.",
     lambda c: c.helps == "noise"),
    ("It clearly improves predictions of single held-out points, but not of held-out blocks.",
     lambda c: c.helps == "points"),
]  # fmt: skip


def split(c, share, n, k, said, noise):
    """The numbers of the first sentences; ``k`` is None for one component, or for a table."""
    none_alone = not c.is_table and not {"blocks", "points"} & set(c.improves)
    doubt = "it does not" if not c.over_mean else "the components" if none_alone else ""
    true = (said or "").startswith(doubt) and bool(said) == bool(doubt)
    return (
        true and int(n) == len(c.y) and is_share(share, c.explained) and same(noise, c.noise)
        and (k is None or int(k) == c.count)
    )  # fmt: skip


SUMMARY = [
    (r"The model explains <share> of the variance of the targets in (\d+) observations(?:, as "
     r"(?:a sum of (\d+) components|one component))?.(?: In cross-validation (it does not "
     r"predict held-out data better than the mean: this may all be noise|the components together "
     r"clearly improve predictions of held-out data, but no single component does).)? "
     r"The remaining noise has a standard deviation of <n>.",
     split),
    (r"(\d+). (?:.*) \(<share> of the variance(?:; it (may be noise|improves predictions of single "
     r"points only))?\).",
     lambda c, k, s, doubt: is_share(s, c.steps[int(k) - 1])
     and (doubt or "").partition(" ")[0]
     == {"noise": "may", "points": "improves"}.get(c.improves[int(k) - 1], "")),
]  # fmt: skip


def coverage(c, level, fraction, low, high, p, wrong, sure):
    """A sentence on intervals that are wrong."""
    level = float(level) / 100
    expected = [end / c.z.size for end in stats.binom.interval(0.95, c.z.size, level)]
    inside = (abs(c.z) <= stats.norm.ppf((1 + level) / 2)).mean()
    exact = min(1.0, 5 * stats.binomtest(round(inside * c.z.size), c.z.size, level).pvalue)
    return (
        same(fraction, 100 * inside, 0.01) and is_p(p, exact) and (exact < 0.01) == (sure == "are")
        and same(low, 100 * expected[0]) and same(high, 100 * expected[1])
        and (wrong == "narrow") == (inside < level) and exact < 0.05
    )  # fmt: skip


def follows(c, p, low, high):
    exact = stats.kstest(c.z, "norm").pvalue
    return is_p(p, exact) and low <= exact < high


def correlated(c, lag, p):
    errors = c.innovations - c.innovations.mean()
    values = np.array([errors[k:] @ errors[:-k] for k in range(1, 1 + min(20, len(errors) // 4))])
    exact = acorr_ljungbox(c.innovations, lags=[len(values)])["lb_pvalue"].iloc[0]
    return is_p(p, exact) and (exact >= 0.05 if lag is None else lag == abs(values).argmax() + 1)


CHECKS = [
    ("The predictive intervals show no significant miscalibration: the 95 % intervals contain <c> "
     "of the held-out observations <p>.",
     lambda c, a, p: same(a, 100 * (abs(c.z) <= 1.959964).mean(), 0.01)),
    ("The predictive intervals (are|may be) too (narrow|wide): the <c> intervals contain <c> of "
     "the held-out observations, where <c> to <c> are expected <p>.",
     lambda c, sure, wrong, level, a, low, high, p:
     coverage(c, level, a, low, high, p, wrong, sure)),
    ("The held-out observations do not differ significantly from their predictive distributions "
     "<p>.",
     lambda c, p: follows(c, p, 0.05, 1.1)),
    ("There are signs that the predictive distributions of held-out observations are wrong <p>.",
     lambda c, p: follows(c, p, 0.01, 0.05)),
    ("The held-out observations do not follow their predictive distributions <p>.",
     lambda c, p: follows(c, p, 0.0, 0.01)),
    ("The one-step-ahead errors show no significant autocorrelation <p>.",
     lambda c, p: correlated(c, None, p)),
    (r"(?:There are signs that t|T)he one-step-ahead errors are autocorrelated, most at lag (\d+) "
     "<p>(?:.|: the model misses structure.)", lambda c, lag, p: correlated(c, int(lag), p)),
    ("Leave-one-out predictions explain <share> of the variance.",
     lambda c, s: is_share(s, c.skill) and c.skill >= 0.1),
    ("Leave-one-out predictions are (hardly better|worse) than the mean.",
     lambda c, how: c.skill < 0.1 and (how == "worse") == (c.skill < 0)),
    (r"(\d+) of (\d+) evaluations? lay inside the 95 % interval predicted from the earlier ones"
     "(?:; on average they were (higher|lower) than predicted, by <n> standard deviations)?.",
     lambda c, k, n, way, by: int(n) == c.steps.size and int(k) == (abs(c.steps) <= 1.959964).sum()
     and bool(way) == (abs(c.steps.mean()) > 1.959964 / math.sqrt(c.steps.size))
     and (way is None or same(by, abs(c.steps.mean()))
     and (way == "higher") == (c.steps.mean() > 0))),
    ("The model has chosen no evaluation yet.", lambda c: c.steps.size == 0),
]  # fmt: skip


def pattern(text):
    return re.sub(r"<(?:n|share|c|p|x|at)>", lambda found: TOKENS[found[0]], text)


def check(sentences, table, context):
    for sentence in sentences:
        rows = [(m, holds) for row, holds in table if (m := re.fullmatch(pattern(row), sentence))]
        assert len(rows) == 1, f"{len(rows)} rows of the table match: {sentence}"
        assert rows[0][1](context, *rows[0][0].groups()), sentence


def partial(c, name, value):
    """Mean prediction at all rows with one column set."""
    rows = c.x.clone()
    rows[:, c.names.index(name)] = float(value)
    return float(c.predict(rows).mean())


def goes(c, name, low, high, way, by):
    change = partial(c, name, high) - partial(c, name, low)
    return (change > 0) == (way == "rises") and same(by, abs(change), 0.03 * c.range[name])


def waves(c, name, low, high, by, most, least):
    change = partial(c, name, most) - partial(c, name, least)
    return same(by, change, 0.05 * change) and change > 0.9 * c.range[name]


EFFECTS = [
    ("As <x> goes from <n> to <n>, the prediction (rises|falls) by <n>.", goes),
    ("As <x> goes from <n> to <n>, the prediction rises and falls within a range of "
     "<n>; it is highest at <n> and lowest at <n>.", waves),
    ("The interaction of <x> and <x> explains <share> of the variance of the prediction.",
     lambda c, a, b, s: is_share(s, c.joint, 0.05)),
    ("<x> has shown almost no effect so far, but <share> of the variance of the function is "
     "uncertain.", lambda c, name, s: c.total[name] < 0.02),
    ("<x> has almost no effect.", lambda c, name: c.total[name] < 0.02),
]  # fmt: skip

CLASSES = [
    (row.replace("the prediction r", "the probability of class yes r").replace(
        "the prediction (", "the probability of class yes ("), holds)
    for row, holds in EFFECTS
] + [
    ("The prediction does not change with any column.", lambda c: max(c.range.values()) < 1e-9),
    (r"<share> of (\d+) observations are of class yes. (?:The mean log loss of held-out "
     "predictions is <n>; for the class frequencies it is <n>|Held-out predictions are no better "
     "than the class frequencies: the effects may be chance).",
     lambda c, s, n, own, other: is_share(s, c.y.mean()) and int(n) == len(c.y)
     and (own is None) == (c.loss >= c.constant_loss)
     and (own is None or same(own, c.loss) and same(other, c.constant_loss))),
    (r"The most probable class is right for <share> of (\d+) held-out observations.",
     lambda c, s, n: is_share(s, c.right.mean()) and int(n) == len(c.right)),
    ("The held-out probabilities of class yes (?:(show no significant miscalibration)|"
     "(are|may be) too (extreme|moderate)) <p>.",
     lambda c, fine, sure, wrong, p: is_p(p, 2 * stats.norm.sf(abs(c.z)))
     and bool(fine) == (abs(c.z) < 1.959964)
     and (sure == "are") == (abs(c.z) > 2.575829)
     and (wrong == "extreme") == (not fine and c.z > 0)),
]  # fmt: skip

SEARCH = [
    ("The model chose none of the evaluations.", lambda c: c.first == len(c.y)),
    (r"The first (\d+) evaluations? w(?:as|ere) not chosen by the model"
     "(?:; the best of them has <n>)?.",
     lambda c, n, v: int(n) == c.first < len(c.y) and (v is None) == (
         (c.sign * c.y[c.kept]).argmax() < c.kept[: int(n)].sum())
     and (v is None or same(v, c.sign * (c.sign * c.y[: int(n)])[c.kept[: int(n)]].max()))),
    (r"Evaluation (\d+) of (\d+) has the (highest|lowest) value(?: of the (\d+) feasible ones)?, "
     "<n>, at <at>.",
     lambda c, k, n, how, kept, v: int(n) == len(c.y)
     and int(kept or n) == c.kept.sum() and c.kept[int(k) - 1] and same(v, c.y[int(k) - 1])
     and c.sign * c.y[int(k) - 1] == c.top and (how == "highest") == (c.sign > 0)),
    (r"The last (?:evaluation|(\d+) evaluations) brought no improvement.",
     lambda c, n: (c.sign * c.y)[-int(n or 1) :][
         c.kept[-int(n or 1) :]].max(initial=-np.inf) <= c.top),
    (r"Next: <at>, where the model expects (\S+) ± (\S+).",
     lambda c, m, s: same(m, c.next[0]) and same(s, c.next[1])),
    (r"At the best point so far, the model expects (\S+) ± \S+.",
     lambda c, m: same(m, c.means[np.where(c.kept, c.sign * c.y, -np.inf).argmax()])),
    ("In leave-one-out cross-validation the model is (hardly better|worse) than the mean, so the "
     "following effects may be chance.",
     lambda c, how: c.skill < 0.1 and (how == "worse") == (c.skill < 0)),
]  # fmt: skip


def scaled(kernel, size=1.0, **values):
    for name, value in values.items():
        setattr(kernel, name, value)
    outer = ScaleKernel(kernel)
    outer.outputscale = size
    return outer


def dense(c, model, x, y, noise):
    """Numbers of held-out observations and residuals from the matrix itself."""
    with torch.no_grad():
        kernel = model.covar_module(x).to_dense().numpy()
    c.noisy = kernel + noise * np.eye(len(y))
    inverse = np.linalg.inv(c.noisy)
    c.r, c.left = y, noise * inverse @ y
    c.z = inverse @ y / np.sqrt(np.diag(inverse))
    c.skill = (
        1
        - np.square(inverse @ y / np.diag(inverse)).sum()
        / np.square(len(y) / (len(y) - 1) * (y - y.mean())).sum()
    )
    factor = np.linalg.cholesky(c.noisy)
    c.innovations = np.linalg.solve(factor, y)


def improvements(found, x, y, noise):
    """Held-out data that each component predicts better, and whether all together do.

    Each covariance is the sum of terms of the kernel; errors are of ten blocks and of points.
    """
    x = torch.as_tensor(x).reshape(len(y), -1)
    parts = found.decomposition.components
    with torch.no_grad():
        parts = [
            sum(
                (t.weight * t.kernel(x).to_dense().numpy() for t in p.terms),
                np.zeros((len(y),) * 2),
            )
            for p in parts
        ]
    noisy = sum(parts) + noise * np.eye(len(y))
    levels = [(part @ np.linalg.solve(noisy, y)).mean() for part in parts]
    rows = np.arange(len(y))
    blocks = np.array_split(rows, 10) if x.shape[1] == 1 else [rows[k::10] for k in range(10)]
    drops = []
    for folds in (blocks, np.array_split(rows, len(rows))):
        predicted = np.empty((len(parts), len(y)))
        for out in folds:
            kept = np.setdiff1d(rows, out)
            weights = np.linalg.solve(noisy[np.ix_(kept, kept)], y[kept])
            for one, part, level in zip(predicted, parts, levels, strict=True):
                one[out] = part[np.ix_(out, kept)] @ weights - level
        centered = y - sum(levels)
        whole = abs(centered - predicted.sum(0))
        without = [abs(centered - predicted.sum(0) + one) for one in (*predicted, predicted.sum(0))]
        drops.append([error - whole for error in without])
    spread = np.std(drops, axis=-1, ddof=1) / len(y) ** 0.5
    *each, over_mean = (np.mean(drops, axis=-1) > 3 * spread).T
    kinds = ["blocks" if block else "points" if point else "noise" for block, point in each]
    return kinds, over_mean.any()


PERIODS = (12.0, 7.1, 4.3)
KINDS = ("trend", "cycle", "fading", "variation", "points", "step", "noise", "constant")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_sentences_on_series(kind, seed):
    rng = np.random.default_rng(seed)
    n, step = int(rng.integers(50, 90)), 10 ** rng.uniform(-1, 1)
    x = step * np.arange(n)
    span, c = x[-1], SimpleNamespace(kind=kind, x=x)
    c.period, c.fade, c.length = rng.integers(8, 15) * step, rng.uniform(0.2, 0.6) * span, 4 * step
    phase = 2 * np.pi * x / c.period
    wave = (np.sin(phase), np.exp(3 * np.sin(phase)))[seed]
    tight = {"cycle": (3.0, 0.5)[seed]}.get(kind, 1.0)
    cycle = scaled(PeriodicKernel(), period_length=c.period, lengthscale=tight)
    trend = {"trend": (0, 0.1)[seed] * x + np.cos(rng.uniform(1, 9) * x / span)}
    shapes = {
        "cycle": wave, "fading": wave * np.exp(-x / span),
        "variation": np.sin(0.7 * np.sqrt(x / step) * 9),
        "step": 1.0 * (x > rng.uniform(0.3, 0.7) * span),
    }  # fmt: skip
    size = 10 ** rng.uniform(-1, 1)
    y = size * (3 * shapes.get(kind, trend.get(kind, 0 * x)) + 0.2 * rng.standard_normal(n))
    y = y - y.mean() if kind != "constant" else 0 * y + 0.5
    long = scaled(RBFKernel(), size**2, lengthscale=span)
    kernel = {
        "cycle": cycle, "fading": scaled(PeriodicKernel(period_length=1) * RBFKernel()),
        "trend": long,
        "variation": scaled(MaternKernel(nu=1.5), size**2, lengthscale=c.length),
        "points": scaled(RBFKernel(), size**2, lengthscale=0.2 * step) + long,
        "step": scaled(StepKernel(location=0.5 * span), size**2),
    }.get(kind, scaled(RBFKernel(), lengthscale=5 * step))  # fmt: skip
    if kind == "fading":
        kernel.base_kernel.kernels[0].period_length = c.period
        kernel.base_kernel.kernels[1].lengthscale = c.fade
    if kind in ("cycle", "fading"):
        kernel.outputscale = size**2
    c.length = {"fading": c.fade, "noise": 5 * step, "constant": 5 * step}.get(kind, c.length)
    noise = (0.2 * size) ** 2 * (1.0, 0.3)[seed]
    model = GP(torch.as_tensor(x)[:, None], torch.as_tensor(y), kernel).double().eval()
    model.likelihood.noise = noise
    found = report(model, progress=False)
    split = found.decomposition
    dense(c, model, torch.as_tensor(x)[:, None], y, noise)
    c.y, c.noise = y, noise**0.5
    parts = split.posterior(x, centered=True).mean.numpy()
    total = max(float(y.var()), 1e-300)
    cumulative = [1 - np.var(y - parts[: k + 1].sum(0)) / total for k in range(len(parts))]
    varies = kind != "constant"
    c.explained = max(1 - np.var(c.left) / total, 0.0) * varies
    c.steps, c.count, c.is_table = np.diff(cumulative, prepend=0) * varies, len(parts), False
    kinds, c.over_mean = improvements(found, x, y, noise)
    sizes = np.ptp(parts, axis=1) > 0.02 * y.std()
    c.improves = [kind if varied else "level" for kind, varied in zip(kinds, sizes, strict=True)]
    check(found.summary, SUMMARY, c)
    check(found.checks, CHECKS, c)
    raw = split.posterior(x).mean.numpy()
    for place, section in enumerate(found.sections):
        c.mean, c.helps = parts[place], c.improves[place]

        def past(length, place=place):
            there = split.posterior(np.array([x[-1] + length])).mean[place]
            return float(there) / abs(raw[place]).max() * abs(c.mean).max()

        c.past = past
        check(section.sentences, COMPONENT, c)


@pytest.mark.parametrize("size", [0.3, 0.35, 1.0])
def test_sentences_on_cycles_that_are_weak_alone(size):
    rng, x = np.random.default_rng(0), np.arange(80.0)
    cycles = [scaled(PeriodicKernel(), size**2, period_length=p, lengthscale=3.0) for p in PERIODS]
    y = size * sum(np.sin(2 * np.pi * x / p) for p in PERIODS) + 0.3 * rng.standard_normal(80)
    y -= y.mean()
    model = GP(torch.as_tensor(x)[:, None], torch.as_tensor(y), cycles[0] + cycles[1] + cycles[2])
    model.double().eval().likelihood.noise = 0.09
    found = report(model, progress=False)
    c = SimpleNamespace(y=y, noise=0.3, is_table=False, count=4)
    dense(c, model, torch.as_tensor(x)[:, None], y, 0.09)
    c.explained = 1 - np.var(c.left) / y.var()
    kinds, c.over_mean = improvements(found, x, y, 0.09)
    c.improves = [*kinds[:3], "level"]
    check(found.summary[:1], SUMMARY, c)


@pytest.mark.parametrize("seed", range(6))
def test_sentences_on_tables_and_searches(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 26))
    x = torch.as_tensor(rng.uniform(0, 1, (n, 2)))
    a, b = x.numpy().T
    y = (3 * a, np.sin(9 * a) + 0.02 * b, a * b, (a - 0.4) ** 2 + b, 0 * a, -a)[seed]
    y = 10.0 ** (seed - 2) * (y + (0.05, 0.1, 0.01, 0.3, 1, 0.6)[seed] * rng.standard_normal(n))
    kernel = scaled(RBFKernel(ard_num_dims=2), lengthscale=torch.tensor([[0.4, 0.9]]))
    model = SingleTaskGP(
        x, torch.as_tensor(y)[:, None], covar_module=kernel.double(),
        outcome_transform=Standardize(1),
    ).eval()  # fmt: skip
    noise = (0.01, 0.1, 0.01, 0.2, 0.02, 0.5)[seed]
    model.likelihood.noise = noise
    model.mean_module.constant.data.fill_(0.0)

    def predict(rows):
        with torch.no_grad():
            return model.posterior(rows).mean[:, 0]

    c = SimpleNamespace(x=x, names=("x0", "x1"), predict=predict, y=y, sign=(1, -1)[seed % 2])
    standard = (y - y.mean()) / y.std(ddof=1)
    dense(c, model, x, standard, noise)
    grid = predict(torch.cartesian_prod(*x.T)).reshape(n, n).numpy()
    rest = grid - grid.mean(0) - grid.mean(1)[:, None] + grid.mean()
    c.joint = rest.var() / grid.var()
    c.total = {f"x{k}": grid.mean(1 - k).var() / grid.var() + c.joint for k in (0, 1)}
    c.range = {f"x{k}": np.ptp([partial(c, f"x{k}", v) for v in x[:, k].sort()[0]]) for k in (0, 1)}
    found = report(model, progress=False)
    check(describe_effects(found.effects, found.units), EFFECTS, c)
    c.is_table, c.count = True, None
    c.improves, c.over_mean = improvements(found, x, standard, noise)
    c.explained, c.noise = 1 - np.var(c.left) / standard.var(), noise**0.5 * y.std(ddof=1)
    check(found.summary[:1], SUMMARY, c)
    check(found.checks, CHECKS, c)
    c.first, c.kept = (0, 5, n, 5, 0, 5)[seed], rng.uniform(size=n) < (1.0 if seed < 3 else 0.7)
    c.top = (c.sign * y)[c.kept].max()
    candidate = torch.as_tensor(rng.uniform(0, 1, (1, 2)))
    posterior = model.posterior(candidate)
    c.next = float(posterior.mean), float(posterior.variance.sqrt())
    c.means, c.steps = predict(x).numpy(), c.innovations[max(c.first, 1) :]
    made = report_search(
        model,
        maximize=c.sign > 0,
        candidates=candidate,
        num_initial=c.first,
        feasible=c.kept.tolist(),
    )
    check(made.summary, SEARCH + EFFECTS, c)
    check(made.checks, CHECKS, c)


@pytest.mark.parametrize("seed", range(4))
def test_sentences_on_classes(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 30))
    x = rng.uniform(0, 1, (n, 2))
    a, b = x.T - 0.5
    score = (8 * a, 60 * a * b, 0 * a, 9 * np.sin(9 * a) + b)[seed]
    y = rng.uniform(size=n) < 1 / (1 + np.exp(-score))
    kernel = scaled(RBFKernel(ard_num_dims=2, lengthscale_constraint=GreaterThan(0.5)))
    model = NKNClassifier(
        kernel, restarts=1, recipe=Recipe(adam_steps=0, lbfgs_iterations=8), random_state=0
    ).fit(x, np.where(y, "yes", "no"))
    c = SimpleNamespace(y=y, x=torch.as_tensor(x), names=("x0", "x1"))
    c.predict = lambda rows: torch.as_tensor(model.predict_proba(rows.numpy())[:, 1])
    grid = c.predict(torch.cartesian_prod(*c.x.T)).reshape(n, n).numpy()
    rest = grid - grid.mean(0) - grid.mean(1)[:, None] + grid.mean()
    c.joint = rest.var() / max(grid.var(), 1e-12)
    c.total = {f"x{k}": grid.mean(1 - k).var() / max(grid.var(), 1e-12) + c.joint for k in (0, 1)}
    inside = [np.linspace(*np.quantile(column, [0, 1]), 15) for column in x.T]
    c.range = {f"x{k}": np.ptp([partial(c, f"x{k}", v) for v in inside[k]]) for k in (0, 1)}
    labels, p = model.held_out_
    own, p = labels == 1, p[:, 1]
    c.loss, c.right = log_loss(own, p), (p > 0.5) == own
    c.constant_loss = log_loss(own, np.full(len(p), own.mean()))
    excess = brier_score_loss(own, p) - (p * (1 - p)).mean()
    c.z = len(p) * excess / np.sqrt((p * (1 - p) * (1 - 2 * p) ** 2).sum())
    if seed == 3:  # too sure
        model.held_out_ = labels, np.eye(2)[1 - labels] * 0.8 + 0.1
        own = labels == 1
        c.loss, c.right = -np.log(0.1), np.zeros(len(labels), dtype=bool)
        c.z = len(p) * (0.81 - 0.09) / np.sqrt(len(p) * 0.09 * 0.64)
    found = report(model, progress=False)
    check([re.sub(r"^\d+\. ", "", one) for one in found.summary], CLASSES, c)
    check(found.checks, CLASSES, c)
