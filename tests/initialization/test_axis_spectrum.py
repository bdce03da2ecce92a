import math

import numpy as np
import pytest

from gpytorch_nkn.initialization.axis_spectrum import axis_spectrum


def waves(coordinates, *components, rows=12):
    """Lines that share frequencies but not phases; each component is (period, amplitude)."""
    rng = np.random.default_rng(0)
    phases = rng.uniform(0, 2 * math.pi, (len(components), rows, 1))
    lines = sum(
        amplitude * np.sin(2 * math.pi * coordinates / period + phase)
        for (period, amplitude), phase in zip(components, phases, strict=True)
    )
    return lines + 0.05 * rng.standard_normal(lines.shape) + 3


def seen(values):
    return np.ones(values.shape, dtype=bool)


REGULAR = np.arange(64.0) * 0.5
IRREGULAR = np.sort(np.random.default_rng(1).uniform(0, 32, 64))


@pytest.mark.parametrize("coordinates", [REGULAR, IRREGULAR], ids=["regular", "irregular"])
def test_a_harmonic_may_be_higher_but_not_a_wave_of_little_power(coordinates):
    strong = waves(coordinates, (6.0, 1.0), (3.0, 1.2))
    spectrum = axis_spectrum(strong, seen(strong), 1, coordinates)
    assert spectrum.period() == pytest.approx(6.0, rel=0.03)
    assert spectrum.period(1) == pytest.approx(3.0, rel=0.03)
    assert spectrum.period(2) == pytest.approx(6.0, rel=0.03)
    weak = waves(coordinates, (6.0, 0.5), (3.0, 1.0))  # a quarter of the power
    spectrum = axis_spectrum(weak, seen(weak), 1, coordinates)
    assert spectrum.period() == pytest.approx(3.0, rel=0.03)


def test_a_trend_is_no_period():
    values = waves(REGULAR, (4.0, 1.0)) + 5 * np.sin(REGULAR / 10) + REGULAR
    spectrum = axis_spectrum(values, seen(values), 1, REGULAR)
    assert spectrum.period() == pytest.approx(4.0, rel=0.02)
    slow = spectrum.frequencies[spectrum.peaks] * spectrum.span
    assert (slow >= 2 * (1 - 1e-9)).all()


@pytest.mark.parametrize("coordinates", [REGULAR, IRREGULAR], ids=["regular", "irregular"])
def test_missing_cells_count_for_nothing(coordinates):
    values = waves(coordinates, (5.0, 1.0))
    observed = seen(values)
    observed[3:9, 20:40] = False
    holed = np.where(observed, values, 0.0)
    wild = np.where(observed, values, 1e6)
    one, two = (axis_spectrum(v, observed, 1, coordinates) for v in (holed, wild))
    np.testing.assert_allclose(one.power, two.power)
    assert one.period() == pytest.approx(5.0, rel=0.03)


def test_where_there_is_no_spectrum():
    values = waves(REGULAR, (5.0, 1.0))
    assert axis_spectrum(values[:, :7], seen(values[:, :7]), 1, REGULAR[:7]) is None
    assert axis_spectrum(0 * values + 4, seen(values), 1, REGULAR) is None
    assert axis_spectrum(values, seen(values), 1, np.repeat(np.arange(4.0), 16)) is None
    one_dimension = axis_spectrum(values[0], seen(values[0]), 0, REGULAR)
    assert one_dimension.period() == pytest.approx(5.0, rel=0.03)
