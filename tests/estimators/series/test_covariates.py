import numpy as np
import pandas as pd
import pytest
import torch

from gpytorch_nkn.estimators.series.covariates import Covariates, covariate_frame

TIMES = pd.Index(np.arange(6.0))
TABLE = np.column_stack([[3.0, 7, 3, 3, 7, 7], np.arange(6.0), np.full(6, 2.0)])


def known(table=TABLE[:, :2], **options):
    return Covariates.of(covariate_frame(table, TIMES), by_name=False, **options)


def test_columns_are_standardised_and_two_values_count_as_0_and_1():
    scaled = known().scaled(covariate_frame(TABLE[:, :2], TIMES))
    assert scaled[:, 0].tolist() == [0, 1, 0, 0, 1, 1]
    assert scaled[:, 1].mean() == pytest.approx(0) and scaled[:, 1].std() == pytest.approx(1)
    later = known().frame([[11.0, 2.5]], TIMES[:1])
    np.testing.assert_allclose(known().scaled(later), [[2, 0]], atol=1e-12)


def test_constant_columns_are_dropped_with_a_notice():
    frame = pd.DataFrame(TABLE, columns=["law", "trend", "rate"])
    with pytest.warns(UserWarning, match="not used: rate"):
        covariates = Covariates.of(covariate_frame(frame, TIMES), by_name=True)
    assert covariates.names == ("law", "trend")
    assert covariates.scaled(covariate_frame(frame, TIMES)).shape == (6, 2)
    with pytest.warns(UserWarning, match="no effect.*rate"):
        covariates.scaled(covariates.frame(frame.assign(rate=[2, 2, 2, 2, 2, 3.0]), TIMES))


@pytest.mark.parametrize(
    "values",
    [
        TABLE,
        torch.tensor(TABLE, requires_grad=True),
        pd.DataFrame(TABLE).astype("Int64"),
        pd.DataFrame(TABLE).astype({0: "category"}).astype({0: object}),
    ],
)
def test_tables_of_every_kind(values):
    np.testing.assert_array_equal(covariate_frame(values, TIMES), TABLE)


def test_columns_are_found_by_name_and_rows_by_date():
    days = pd.date_range("2020-01-01", periods=6)
    frame = pd.DataFrame({"a": range(6), "b": range(6, 12)}, days, dtype=float)
    covariates = Covariates.of(covariate_frame(frame.iloc[:4], days[:4]), by_name=True)
    found = covariates.frame(frame[["b", "a"]].assign(c=0.0), days[[5, 2]])
    assert found.to_numpy().tolist() == [[5, 11], [2, 8]]
    of_periods = frame.set_axis(days.to_period("D"))
    assert covariates.frame(of_periods, days[[5, 2]]).to_numpy().tolist() == [[5, 11], [2, 8]]
    doubled = pd.concat([frame, frame])
    with pytest.raises(ValueError, match="repeated dates"):
        covariates.frame(doubled, days)


@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        (TABLE[:5], ValueError, r"each of the 6 times, got shape \(5, 3\)"),
        (np.where(TABLE == 4, np.nan, TABLE), ValueError, "covariate 2 has 1 NaN.*position 4"),
        (pd.DataFrame({"day": list("abcdef")}), ValueError, "'day'.*encode them first"),
        ({"a": 3}, TypeError, "covariates must be an array or a data frame, got dict"),
        (TIMES.to_numpy().astype("datetime64[D]"), TypeError, "datetime64"),
        (1e200 * TABLE, ValueError, "too large values in covariate 1, covariate 2"),
        (pd.DataFrame(TABLE, columns=["a", "b", "a"]), ValueError, "unique, got repeated a"),
    ],
)
def test_bad_tables_are_named(values, error, match):
    with pytest.raises(error, match=match):
        Covariates.of(covariate_frame(values, TIMES), by_name=False)
