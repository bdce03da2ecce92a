import json

import numpy as np
import pytest

from benchmarks.forecast_priors import main
from gpytorch_nkn.kernels.network.forecast import MODES, TERMS


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    values = np.tile([1.0, 3.0, 2.0, 5.0], 13) + 0.3 * rng.standard_normal(52).cumsum()
    series = {"period": "QUARTERLY", "x": values[:44].tolist(), "xx": values[44:].tolist()}
    short = {"period": "YEARLY", "x": [1.0, 2.0, 4.0], "xx": [3.0]}
    file = tmp_path / "series.json"
    file.write_text(json.dumps([series, short, series]))
    return str(file)


def test_priors_are_changed_for_a_moment(path, capsys):
    before = dict(TERMS), dict(MODES)
    assert main([path, "--names", "season,rough", "--factors", "1", "0.01", "--widths", "0.5"]) == 0
    assert (dict(TERMS), dict(MODES)) == before
    title, *_, rule, same, seldom, rough, _ = capsys.readouterr().out.splitlines()
    assert title.startswith("2 series, coverage ")
    assert same.startswith("| season | 1 | 0.5 | ") and rough.startswith("| rough | 1 | 0.5 | ")
    # without a season, errors of such a series are much larger
    assert float(seldom.split("|")[4].split("±")[0]) > 1


def test_unknown_priors_and_short_series_are_refused(path, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([path, "--names", "seasons"])
    assert "got ['seasons']" in capsys.readouterr().err
    (tmp_path / "short.json").write_text(json.dumps([]))
    with pytest.raises(SystemExit):
        main([str(tmp_path / "short.json")])
    assert "has no series of 40 points" in capsys.readouterr().err
