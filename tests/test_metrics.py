import numpy as np
import pytest

from gpytorch_nkn.metrics import forecast_scores, interval_coverage


def test_coverage_counts_the_ends_in():
    y = [1.0, 2.0, 3.0, 4.0]
    assert interval_coverage(y, [1.0, 2.5, 0.0, 5.0], [1.0, 3.0, 3.0, 6.0]) == 0.5


@pytest.mark.parametrize(
    ("y", "lower", "upper", "message"),
    [
        ([1.0, 2.0], [1.0], [1.0], r"shapes \(2,\), \(1,\) and \(1,\)"),
        ([], [], [], r"not be empty, got shapes \(0,\)"),
        ([1.0, np.nan], [0.0, 0.0], [2.0, 2.0], "got NaN"),
        ([1.0, 2.0], [0.0, 3.0], [2.0, 1.0], "for 1 of 2 observations"),
    ],
)
def test_coverage_rejects_what_it_cannot_count(y, lower, upper, message):
    with pytest.raises(ValueError, match=message):
        interval_coverage(y, lower, upper)


def test_forecast_scores_written_out_for_two_points():
    scores = forecast_scores(
        [1.0, 5.0], mean=[2.0, 2.0], lower=[0.0, 0.0], upper=[4.0, 4.0], log_density=[-1.0, -4.0]
    )
    assert scores == pytest.approx(
        {"rmse": np.sqrt(5), "mae": 2.0, "mean_log_density": -2.5, "coverage": 0.5}
    )


def test_forecast_scores_reject_a_log_density_of_another_shape():
    with pytest.raises(ValueError, match=r"shape of y, \(2,\), got \(\)"):
        forecast_scores(
            [1.0, 5.0], mean=[2.0, 2.0], lower=[0.0, 0.0], upper=[4.0, 4.0], log_density=-2.5
        )
