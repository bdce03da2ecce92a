"""Numbers, lengths of time and periods as people write them."""

import math

import pytest

from gpytorch_nkn.interpretation.units import (
    length_text,
    period_name,
    rounded,
    singular,
    three_digits,
)

WRITTEN = {
    period_name: {
        (1.0, "yr"): "yearly", (0.25, "yr"): "quarterly", (7.0, "days"): "weekly",
        (1.0, "days"): "daily", (0.97, "yr"): "", (28.0, "days"): "", (1.0, ""): "",
    },
    three_digits: {
        (0.0,): "0", (0.5,): "0.500", (0.9997,): "1.00", (999.9,): "1000", (123_456,): "123456",
        (2.5e6,): "2500000", (-3.2e10,): "-3.20e10", (0.00012,): "0.000120",
        (1.5e-9,): "1.50e-9", (7.1e20,): "7.10e20", (math.inf,): "inf",
    },
    rounded: {  # to the digits of a change
        (114.3, 372.0): "114", (7.9312, 0.2): "7.93", (-0.001, 5.0): "0",
        (1.5e-9, 1e-9): "1.5e-9", (5.0, 0.0): "5.00",
    },
    length_text: {
        (0.998, "yr"): "0.998 yr", (0.2, "yr"): "73.0 days", (0.25, "days"): "6.00 hours",
        (2000.0, "days"): "5.48 yr", (3e5, ""): "300000",
    },
    singular: {
        ("days",): "day", ("yr",): "yr", ("",): "unit of time", ("s",): "s", ("ms",): "ms",
        ("pages",): "pages",
    },
}  # fmt: skip


@pytest.mark.parametrize("function", WRITTEN)
def test_numbers_and_lengths_as_people_write_them(function):
    assert {given: function(*given) for given in WRITTEN[function]} == WRITTEN[function]
