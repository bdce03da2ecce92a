import pytest

from benchmarks import clusters, scaling


def test_exponents_are_slopes_of_logarithms():
    assert scaling.exponent([10, 20, 80], [3, 12, 192]) == pytest.approx(2)


def test_a_way_is_measured():
    seconds, memory = scaling.measure("exact", 60, 30)
    assert seconds > 0 and memory > 0


def test_every_ladder_has_a_way():
    assert set(scaling.LADDERS) == set(scaling._WAYS)


def test_the_model_of_a_cluster():
    costs = clusters.Costs(start=9.0, call=2.0, dispatch=0.01, megabyte=0.1)
    assert costs.seconds(0, 0.0, 3, 0) == 2.0
    assert costs.seconds(31, 1.0, 3, 10) == pytest.approx(2 + 3 * 10 * 0.1 + 11)
    assert costs.seconds(1000, 0.1, 1000, 0) == pytest.approx(2 + 10 + 0.1)  # one door for all


def test_what_is_measured_is_finite(capsys):
    assert clusters.main(["--backends", "threading", "--tasks", "2", "--rows", "30"]) == 0
    assert "| threading |" in capsys.readouterr().out
