import math

import pytest

from gpytorch_nkn.interpretation.units import (
    length_text,
    period_name,
    rounded,
    singular,
    three_digits,
)


@pytest.mark.parametrize(
    ("period", "unit", "name"),
    [
        (1.0, "yr", "yearly"),
        (0.25, "yr", "quarterly"),
        (7.0, "days", "weekly"),
        (1.0, "days", "daily"),
        (0.97, "yr", ""),
        (28.0, "days", ""),
        (1.0, "", ""),
    ],
)
def test_periods_have_names_in_units_of_time(period, unit, name):
    assert period_name(period, unit) == name


NUMBERS = [(0.0, "0"), (0.5, "0.500"), (0.9997, "1.00"), (999.9, "1000"), (123_456, "123456")]
NUMBERS += [(2.5e6, "2500000"), (-3.2e10, "-3.20e10"), (0.00012, "0.000120")]
NUMBERS += [(1.5e-9, "1.50e-9"), (7.1e20, "7.10e20"), (math.inf, "inf")]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_as_people_write_them(value, text):
    assert three_digits(value) == text


@pytest.mark.parametrize(
    ("value", "change", "text"),
    [
        (114.3, 372.0, "114"),
        (7.9312, 0.2, "7.93"),
        (-0.001, 5.0, "0"),
        (1.5e-9, 1e-9, "1.5e-9"),
        (5.0, 0.0, "5.00"),
    ],
)
def test_numbers_have_the_digits_of_a_change(value, change, text):
    assert rounded(value, change) == text
    assert float(text) == pytest.approx(value, abs=change / 10)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.998, "yr", "0.998 yr"),
        (0.2, "yr", "73.0 days"),
        (0.25, "days", "6.00 hours"),
        (2000.0, "days", "5.48 yr"),
        (3e5, "", "300000"),
    ],
)
def test_lengths_of_time_have_a_unit_of_their_size(value, unit, text):
    assert length_text(value, unit) == text


def test_singular_of_units():
    assert [singular(u) for u in ("days", "yr", "", "s", "ms", "pages")] == [
        "day", "yr", "unit of time", "s", "ms", "pages",
    ]  # fmt: skip
