import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.interpretation import Effect, Effects
from gpytorch_nkn.interpretation.components.behaviour import Geometry, Role
from gpytorch_nkn.interpretation.components.decomposition import Component
from gpytorch_nkn.interpretation.expansion.terms import Term
from gpytorch_nkn.interpretation.reporting.words import (
    describe_component,
    describe_effect,
    describe_effects,
    title_of,
)
from gpytorch_nkn.interpretation.units import (
    Units,
    length_text,
    listed,
    period_name,
    rounded,
    singular,
    three_digits,
)
from gpytorch_nkn.kernels import CenteredLinearKernel, ZeroMeanPeriodicKernel

X = np.linspace(0, 10, 201)
GEOMETRY = Geometry(span=10.0, step=0.05)
YEARS = Units(x_unit="yr", y_unit="ppm")


def term(*factors, share=1.0):
    return Term(1.0, factors, share, "term")


def smooth(lengthscale):
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return kernel


def periodic(period, lengthscale=10.0):
    kernel = ZeroMeanPeriodicKernel().double()
    kernel.period_length, kernel.lengthscale = period, lengthscale
    return kernel


def trend(mean, units=YEARS, std=1.0):
    component = Component("trend", (), Role("trend"), has_mean=True)
    return describe_component(component, X, mean, std, GEOMETRY, units)


def cycle(mean, *terms, period=1.0, units=YEARS, geometry=GEOMETRY, x=X):
    component = Component("cycle", terms, Role("cycle", period))
    return describe_component(component, x, mean, 1.0, geometry, units)


TRENDS = {
    "rising line": (
        2 + 3 * X,
        "A rising trend, nearly a straight line",
        "It rises from 2 to 32 ppm, by 3.00 ppm per yr on average.",
    ),
    "falling line through zero": (
        5 - X,
        "A falling trend, nearly a straight line",
        "It falls from 5 to -5 ppm, by 1.00 ppm per yr on average.",
    ),
    "steeper": (
        X**3,
        "A rising trend that gets steeper",
        "It rises from 0 to 1000 ppm.",
    ),
    "flatter": (
        10 * np.sqrt(X) - 40,
        "A rising trend that gets flatter",
        "It rises from -40 to -8 ppm.",
    ),
    "falls ever steeper": (
        -(X**3),
        "A falling trend that gets steeper",
        "It falls from 0 to -1000 ppm.",
    ),
    "hill": (
        X * (10 - X),
        "A trend that rises, then falls",
        "It rises from 0 to 25, then falls to 0 ppm.",
    ),
    "valley": (
        (X - 4) ** 2,
        "A trend that falls, then rises",
        "It falls from 16 to 0, then rises to 36 ppm.",
    ),
    "waves": (
        np.sin(2 * X),
        "A trend that rises and falls",
        "It moves between -1.0 and 1.0, from 0 at the start to 0.9 ppm at the end.",
    ),
    "flat": (
        7 + 0.001 * X,
        "A constant level",
        "The level stays at about 7.0 ppm.",
    ),
    "a line on a large offset": (
        101_325 + X / 5,
        "A rising trend, nearly a straight line",
        "It rises from 101325.0 to 101327.0 ppm, by 0.200 ppm per yr on average.",
    ),
}


@pytest.mark.parametrize("name", TRENDS)
def test_trends(name):
    mean, title, sentence = TRENDS[name]
    found = trend(mean)
    assert (found.title, found.sentences) == (title, (sentence,))


def test_small_wiggles_do_not_turn_a_trend():
    found = trend(X**3 / 100 + 0.1 * np.sin(20 * X))
    assert found.title == "A rising trend that gets steeper"


def test_a_constant_curve_of_constant_targets_is_a_level():
    assert trend(np.full(201, 3.0), std=0.0).title == "A constant level"


def test_trend_of_logarithms_is_told_in_the_targets():
    units = Units(x_unit="yr", y_unit="kg", link=Transform("log", 0.0, power=0.0))
    found = trend(math.log(100) + math.log(1.08) * X, units)
    assert found.title == "A rising trend, nearly exponential"
    last = 100 * 1.08**10
    assert found.sentences == (f"It rises from 100 to {last:.0f} kg, by 8.0 % per yr on average.",)
    (falling,) = trend(math.log(100) + math.log(0.9) * X, units).sentences
    assert "falls from 100" in falling and "by 10.0 % per yr" in falling


def test_a_trend_of_logarithms_gets_steeper_if_the_targets_do():
    units = Units(x_unit="yr", y_unit="kg", link=Transform("log", 0.0, power=0.0))
    rising = X / 2 - 1.5 * (X / 10) ** 2  # flatter, but its exponential is steeper
    assert trend(rising, units).title == "A rising trend that gets steeper"


def test_a_window_of_few_points_begins_where_it_begins():
    component = Component("trend", (term(smooth(9.0)),), Role("trend", begin=9.87), has_mean=True)
    found = describe_component(component, X, X, 1.0, GEOMETRY, YEARS)
    assert found.title.endswith(", from 9.9 yr on")


def test_rate_has_a_unit_of_time_in_the_singular():
    (sentence,) = trend(X, Units(x_unit="days")).sentences
    assert sentence.endswith("per day on average.")
    (sentence,) = trend(X, Units()).sentences
    assert sentence.endswith("by 1.00 per unit of time on average.")


AMPLITUDES = {"grows": 1 + X, "shrinks": 11 - X, "": np.ones(201)}


@pytest.mark.parametrize("change", AMPLITUDES)
def test_cycle_tells_how_its_amplitude_changes(change):
    mean = AMPLITUDES[change] * np.sin(2 * np.pi * X)
    found = cycle(mean, term(periodic(1.0)))
    expected = f"A yearly cycle whose amplitude {change}" if change else "A yearly cycle"
    assert found.title == expected
    first, last = mean[X <= 10 / 3].std(), mean[X >= 20 / 3].std()
    if change:
        ends = f"{change} from {first:.2f} in the first third to {last:.2f} ppm in the last."
        assert found.sentences[0] == f"It repeats every 1.00 yr; its standard deviation {ends}"
        same = "Apart from that, its shape stays nearly the same throughout the data."
    else:
        size = f"its standard deviation is {mean.std():.3f} ppm."
        assert found.sentences[0] == f"It repeats every 1.00 yr; {size}"
        same = "Its shape stays nearly the same throughout the data."
    assert found.sentences[1] == same


def test_few_cycles_have_no_growth_unless_the_kernel_says_so():
    mean = np.where(X > 5, np.sin(2 * np.pi * X / 6), 0.1 * np.sin(2 * np.pi * X / 6))
    found = cycle(mean, term(periodic(6.0)), period=6.0)
    assert found.title == "A cycle with a period of 6.00 yr"
    growing = cycle((1 + X) * mean, term(CenteredLinearKernel(), periodic(6.0)), period=6.0)
    assert growing.title == "A cycle with a period of 6.00 yr whose amplitude grows"


@pytest.mark.parametrize(
    ("period", "unit", "name"),
    [
        (1.0, "yr", "yearly"),
        (0.5, "years", "half-yearly"),
        (0.25, "yr", "quarterly"),
        (1 / 12, "yr", "monthly"),
        (7 / 365.2425, "yr", "weekly"),
        (365.0, "days", "yearly"),
        (30.44, "days", "monthly"),
        (7.0, "days", "weekly"),
        (1.0, "days", "daily"),
        (24.0, "hours", "daily"),
        (12.0, "months", "yearly"),
        (0.97, "yr", ""),
        (28.0, "days", ""),
        (1.0, "", ""),
        (1.0, "m", ""),
    ],
)
def test_periods_have_names_in_units_of_time(period, unit, name):
    assert period_name(period, unit) == name


def test_cycle_over_days_is_weekly():
    found = cycle(np.sin(X), term(periodic(7.0)), period=7.0, units=Units(x_unit="days"))
    assert found.title == "A weekly cycle"


def test_scale_of_the_kernel_counts():
    units = Units(x_scale=np.array([4.0]), x_unit="yr")
    found = cycle(np.sin(X), term(periodic(0.25)), period=0.25, units=units)
    assert found.title == "A yearly cycle"


def test_a_cycle_that_forgets_is_approximate():
    found = cycle(np.sin(2 * np.pi * X), term(periodic(1.0), smooth(4.0)))
    assert found.title == "An approximate yearly cycle"
    length = "4.00 yr"  # where an RBF kernel has fallen to exp(-1/2)
    assert found.sentences[1] == (
        f"Its shape changes slowly: cycles that are {length} apart are alike only in part."
    )
    assert not any("same" in sentence for sentence in found.sentences)
    found = cycle(np.sin(2 * np.pi * X), term(periodic(1.0), smooth(1.0)))
    assert "changes from one cycle to the next: cycles that are 1.00 yr" in found.sentences[1]


def test_another_period_shapes_a_cycle():
    both = term(periodic(1.0), periodic(5.0))
    found = cycle(np.sin(2 * np.pi * X), term(periodic(1.0)), both)
    assert "It changes with a period of 5.00 yr." in found.sentences
    assert not any("same" in sentence for sentence in found.sentences)
    fading = cycle(np.sin(2 * np.pi * X), term(periodic(1.0), periodic(5.0), smooth(3.0)))
    assert fading.sentences[-2] == "It also changes with a period of 5.00 yr."


@pytest.mark.parametrize("lengthscale", [10.0, 0.1])
def test_the_shape_within_a_period_is_that_of_the_curve_whatever_its_kernel_allows(lengthscale):
    said = "Within a period it is close to a sine wave."
    kernel = term(periodic(1.0, lengthscale))
    assert said in cycle(np.sin(2 * np.pi * X), kernel).sentences
    assert said not in cycle(np.exp(8 * np.sin(2 * np.pi * X)), kernel).sentences


def variation(mean, lengthscale, units=YEARS):
    component = Component("smooth variation", (term(smooth(lengthscale)),), Role("variation"))
    return describe_component(component, X, mean, 1.0, GEOMETRY, units)


def test_variation_tells_its_scale():
    found = variation(np.sin(5 * X), 1.0)
    assert found.title == "A smooth variation without a period"
    assert found.sentences == (
        f"It varies over about 1.00 yr; its standard deviation is {np.sin(5 * X).std():.3f} ppm.",
        "Past the data it fades within a few times 1.00 yr.",
    )
    assert variation(X * np.sin(5 * X), 1.0).title.endswith(
        "without a period whose amplitude grows"
    )
    assert "days; its standard deviation" in variation(np.sin(5 * X), 0.1).sentences[0]


def test_variation_from_point_to_point_is_no_smooth_one():
    found = variation(np.sin(1000 * X), 0.01)
    assert found.title == "A variation from point to point"
    assert "smooth" not in " ".join(found.sentences)


def test_components_without_a_role_have_a_title():
    units = Units(x_offset=np.zeros(3), x_scale=np.ones(3), names=("a", "b", "c"))
    kernels = (term(smooth(1.0)),)

    def title(name, terms=kernels, **options):
        component = Component(name, terms, **options)
        return describe_component(component, X, np.sin(X), 1.0, GEOMETRY, units)

    assert title("LIN*RBF").title == "The part of the kernels LIN*RBF"
    assert title("3 smaller components").title == "3 smaller components"
    assert title("3 smaller components").sentences[0].startswith("Their standard deviation")
    assert title("what was pruned", (), is_rest=True).title == "What was pruned"
    assert title("a", columns=frozenset([0])).title == "What depends on a alone"
    three = title("a, b, c", columns=frozenset([0, 1, 2]))
    assert three.title == "What depends on a, b and c together"
    assert title("constant", columns=frozenset()).title == "A constant level"


@pytest.mark.parametrize(
    ("columns", "unused", "expected"),
    [
        ({0, 1, 2}, (), "What depends on a, b and c together"),
        ({0, 1, 2}, (1,), "What depends on a and c together, and hardly on b"),
        ({0, 1, 2}, (2, 0), "What depends on b, and hardly on a and c"),
        ({0, 1}, (0, 1), "What depends on a and b together"),  # of nothing that can be told
        ({0, 1}, (5,), "What depends on a and b together"),
        (set(range(8)), (), "What depends on all of them"),
        (set(range(8)), (1,), "What depends on all of them, and hardly on b"),
        (set(range(8)), range(2, 8), "What depends on a and b together, and hardly on others"),
        ({3}, (), "What depends on d alone"),
    ],
)
def test_titles_tell_the_columns_that_are_used(columns, unused, expected):
    names = tuple("abcdefgh")
    units = Units(x_offset=np.zeros(8), x_scale=np.ones(8), names=names)
    component = Component("all of them", (term(smooth(1.0)),), columns=frozenset(columns))
    assert title_of(component, units, unused) == expected


def test_names_are_listed():
    assert [listed(names) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("mean", "sentence"),
    [
        (2 * X, "As dose goes from 0 to 10, the prediction rises by 20.0 ppm."),
        (-X, "As dose goes from 0 to 10, the prediction falls by 10.0 ppm."),
        (
            X * (8 - X),
            "As dose goes from 0 to 10, the prediction rises by 16.0 ppm until 4, then falls by "
            "36.0 ppm.",
        ),
        (
            2 * np.sin(1.5 * X) * np.exp(-0.1 * X),
            "As dose goes from 0 to 10, the prediction goes up and down within a range of 3.27 "
            "ppm, highest at 1.0 and lowest at 3.1.",
        ),
        (np.zeros(201), "The prediction does not change with dose."),
    ],
)
def test_effects_of_a_column(mean, sentence):
    found = describe_effect("dose", X, mean, YEARS)
    assert found == sentence


def test_effects_on_logarithms_are_shares_of_the_level():
    ends = np.array([0.0, 1.0])
    logs = replace(YEARS, link=Transform("log", 0.0, power=0.0))
    for change, words in [(-0.2, "falls by 18.1 %"), (0.2, "rises by 22.1 %")]:
        sentence = describe_effect("law", ends, change * ends, logs)
        assert sentence == f"As law goes from 0 to 1, the prediction {words}."


NUMBERS = [(0.0, "0"), (0.5, "0.500"), (1.0, "1.00"), (999.9, "1000"), (123_456, "123456")]
NUMBERS += [(2.5e6, "2.50 million"), (-3.2e10, "-32.0 billion"), (0.00012, "0.000120")]
NUMBERS += [(1.5e-9, "1.50e-9"), (7.1e20, "7.10e20"), (math.inf, "inf")]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_as_people_write_them(value, text):
    assert three_digits(value) == text


@pytest.mark.parametrize(
    ("value", "change", "text"),
    [
        (114.3, 372.0, "114"),
        (315.24, 56.0, "315"),
        (7.9312, 0.2, "7.93"),
        (-0.001, 5.0, "0"),
        (1.03e10, 1.5e9, "10.3 billion"),
        (1.5e-9, 1e-9, "1.5e-9"),
        (3.0, 1e11, "0"),
        (5.0, 0.0, "5.00"),
    ],
)
def test_numbers_have_the_digits_of_a_change(value, change, text):
    assert rounded(value, change) == text
    shown = float(text.split()[0]) * (1e9 if "billion" in text else 1)
    assert shown == pytest.approx(value, abs=change / 10)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.73, "yr", "1.73 yr"),
        (0.998, "yr", "0.998 yr"),
        (0.2, "yr", "73.0 days"),
        (0.25, "days", "6.00 hours"),
        (1e-3, "hours", "3.60 seconds"),
        (2000.0, "days", "5.48 yr"),
        (0.2, "m", "0.200 m"),
        (2.5, "", "2.50"),
        (3e5, "", "300000"),
    ],
)
def test_lengths_of_time_have_a_unit_of_their_size(value, unit, text):
    assert length_text(value, unit) == text


def test_singular_of_units():
    assert [singular(u) for u in ("days", "yr", "", "s", "ms", "pages")] == [
        "day", "yr", "unit of time", "s", "ms", "pages",
    ]  # fmt: skip


def test_words_leave_the_random_state_alone():
    before = torch.get_rng_state()
    cycle(np.sin(2 * np.pi * X), term(periodic(1.0)))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("columns", "uncertain", "said"),
    [
        (2, 0.02, "b hardly matters."),
        (3, 0.02, "b and c hardly matter."),
        (9, 0.02, "8 other columns hardly matter."),
        (
            2,
            0.3,
            "b has shown hardly any effect so far; "
            "30.0 % of the variance of the function is uncertain.",
        ),
        (9, 0.3, "8 other columns have shown hardly any effect so far; 30.0 % of the variance"),
    ],
)
def test_columns_without_an_effect_may_not_have_been_seen(columns, uncertain, said):
    names = tuple("abcdefghi"[:columns])
    total = np.array([1.0] + [0.0] * (columns - 1))
    grid, none = np.linspace(0, 1, 5), np.zeros(5)
    first = Effect("a", (0,), ("a",), (grid,), (None,), grid, grid, grid, (none, none), 1.0)
    found = Effects((first,), (), total, total, names, uncertain)
    assert describe_effects(found, YEARS)[-1].startswith(said)


@pytest.mark.parametrize("seed", range(20))
def test_every_sentence_on_columns_holds_for_their_indices(seed):
    rng = np.random.default_rng(seed)
    names = tuple("pqrstu")
    total = rng.choice([0.0, 0.001, 0.02, 0.2, 0.8], 6) * rng.uniform(0.9, 1.1, 6)
    total[0] = 0.5
    grid = np.linspace(0.0, 1.0, 9)
    none = np.empty(0)
    drawn = rng.permutation(6)[: rng.integers(1, 7)]  # time is not drawn, however much it explains
    effects = tuple(
        Effect(names[n], (n,), (names[n],), (grid,), (None,), grid, grid, grid, (none, none), 1.0)
        for n in sorted(drawn, key=lambda n: -total[n])
    )
    by_name = dict(zip(names, total, strict=True))
    shown = [by_name[effect.label] for effect in effects]
    for sentence in describe_effects(Effects(effects, (), total, total, names, 0.0), Units()):
        told = [by_name[name] for name in names if name in sentence.replace(",", "").split()]
        if "hardly matter" in sentence:
            assert all(share < 5e-3 for share in told)
        elif "matter" in sentence:
            assert all(share < min(shown) for share in told)
        elif "of the variance" in sentence:
            (share,) = told
            number = float(sentence.split(" makes up ")[1].split(" %")[0])
            assert number == pytest.approx(100 * share, abs=0.06)
