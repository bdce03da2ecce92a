"""Literal files, and what is read of them or why they are refused."""

import gzip

import numpy as np
import pytest

from gpytorch_nkn.datasets import read_time_series


@pytest.fixture
def read(tmp_path):
    """Write a file and read it as a series."""

    def read_text(content, **options):
        path = tmp_path / "series.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_time_series(path, **options)

    return read_text


def table(cells, sep=","):
    """A file of times and the values 0, 1, ..."""
    return f"t{sep}y\n" + "".join(f'"{cell}"{sep}{i}\n' for i, cell in enumerate(cells))


def column(cells, sep=","):
    """A file of the times 0, 1, ... and values."""
    return f"t{sep}y\n" + "".join(f'{i}{sep}"{cell}"\n' for i, cell in enumerate(cells))


def test_rows_are_sorted_and_what_was_left_out_is_said(read):
    series = read("t,y\n3,1.5\n1,2\n2,\n1,4\n5,NA\n")
    assert series.x.tolist() == [1.0, 1.0, 3.0] and series.y.tolist() == [2.0, 4.0, 1.5]
    assert (series.x_label, series.y_label, series.name) == ("t", "y", "series")
    assert not series.test.any() and not series.has_dates
    assert series.notices == (
        "2 rows without a value of 'y' left out.",
        "Rows are sorted by time.",
        "1 row at a time that is there already; all are used.",
    )


DATES = {
    ("1960Q1", "1960Q2"): ["1960-01", "1960-04"],
    ("1960-Q4", "1961-Q1"): ["1960-10", "1961-01"],
    ("1960 Q1", "1960 Q2"): ["1960-01", "1960-04"],
    ("1960:Q1", "1960:Q2"): ["1960-01", "1960-04"],
    ("Q1 1960", "Q2 1960"): ["1960-01", "1960-04"],
    ("Q1-60", "Q2-60"): ["1960-01", "1960-04"],
    ("Q1'60", "Q2'60"): ["1960-01", "1960-04"],
    ("1Q60", "2Q60"): ["1960-01", "1960-04"],
    ("3q 2001", "4q 2001"): ["2001-07", "2001-10"],
    ("1949M01", "1949M12"): ["1949-01", "1949-12"],
    ("1949m1", "1949m2"): ["1949-01", "1949-02"],
    ("1949-11", "1949-12"): ["1949-11", "1949-12"],
    ("1949/9", "1949/10"): ["1949-09", "1949-10"],
    ("1949:09", "1949:10"): ["1949-09", "1949-10"],
    ("194909", "194910"): ["1949-09", "1949-10"],
    ("Jan 1949", "Feb 1949"): ["1949-01", "1949-02"],
    ("January 1949", "September 1949"): ["1949-01", "1949-09"],
    ("May, 1949", "Sept. 1949"): ["1949-05", "1949-09"],
    ("Jan-49", "feb-49"): ["1949-01", "1949-02"],
    ("Dec-29", "Jan-30"): ["2029-12", "1930-01"],
    ("JAN49", "FEB49"): ["1949-01", "1949-02"],
    ("1949 Jan", "1949 Feb"): ["1949-01", "1949-02"],
    ("1949-Jan", "1949-Feb"): ["1949-01", "1949-02"],
    ("01/1949", "12/1949"): ["1949-01", "1949-12"],
    ("1-1949", "2-1949"): ["1949-01", "1949-02"],
    ("2020-W05", "2020-W06"): ["2020-01-27", "2020-02-03"],
    ("2020W53", "2021W01"): ["2020-12-28", "2021-01-04"],
    ("W53 2020", "W1 2021"): ["2020-12-28", "2021-01-04"],
    ("2020-W05-7", "2020-W06-7"): ["2020-02-02", "2020-02-09"],
    ("2001-09-01", "2001-9-2"): ["2001-09-01", "2001-09-02"],
    ("2001/09/01", "2001/09/02"): ["2001-09-01", "2001-09-02"],
    ("2001.09.01", "2001.09.02"): ["2001-09-01", "2001-09-02"],
    ("20150131", "20150228"): ["2015-01-31", "2015-02-28"],
    ("31/01/2001", "1/2/2001"): ["2001-01-31", "2001-02-01"],
    ("01/31/2001", "2/1/2001"): ["2001-01-31", "2001-02-01"],
    ("31-12-68", "01-01-69"): ["1968-12-31", "1969-01-01"],
    ("1.2.2001", "2.2.2001"): ["2001-02-01", "2001-02-02"],
    ("99-12-30", "99-12-31"): ["1999-12-30", "1999-12-31"],
    ("31 Jan 1960", "29 Feb 1960"): ["1960-01-31", "1960-02-29"],
    ("31-Jan-60", "29-Feb-60"): ["1960-01-31", "1960-02-29"],
    ("31JAN1960", "29FEB1960"): ["1960-01-31", "1960-02-29"],
    ("Jan 31, 1960", "Feb 29, 1960"): ["1960-01-31", "1960-02-29"],
    ("Wed, 1 Jan 2020", "Thu, 2 Jan 2020"): ["2020-01-01", "2020-01-02"],
    ("2001-09-01 10:00", "2001-10-01T00:00:05"): ["2001-09-01T10:00:00", "2001-10-01T00:00:05"],
    ("2001-09-01T10", "2001-09-01T11"): ["2001-09-01T10:00:00", "2001-09-01T11:00:00"],
    ("2001-09-01 00:00", "2001-09-01 24:00"): ["2001-09-01", "2001-09-02"],
    ("1/13/2020 12:30 AM", "1/13/2020 1:00 p.m."): ["2020-01-13T00:30:00", "2020-01-13T13:00:00"],
    ("2020-01-01 10:00:00.5", "2020-01-01 10:00:01"): [
        "2020-01-01T10:00:00.500",
        "2020-01-01T10:00:01.000",
    ],
    ("2001-09-01T02:00+02:00", "2001-10-01T00:00Z"): ["2001-09-01", "2001-10-01"],
    ("2020-01-01 10:00-0530", "2020-01-01 16:00 GMT"): [
        "2020-01-01T15:30:00",
        "2020-01-01T16:00:00",
    ],
    # midnights by one clock, summer time or not
    ("2020-03-29T00:00+01:00", "2020-03-30T00:00+02:00"): ["2020-03-29", "2020-03-30"],
}


@pytest.mark.parametrize("cells", DATES)
def test_dates_are_read_to_the_resolution_that_they_are_written_with(read, cells):
    series = read(table(cells))
    expected = np.array(DATES[cells], "datetime64")
    assert dict(zip(series.y.tolist(), series.x.tolist(), strict=True)) == dict(
        enumerate(expected.tolist())
    )
    assert series.x.dtype == expected.dtype


MONTHS = np.arange("1996-03", "2005-11", dtype="datetime64[M]")
QUARTERS = MONTHS[1::3]
DAYS = np.arange("1999-12-20", "2000-03-10", dtype="datetime64[D]")
WRITTEN = {
    "%Y-%m": MONTHS,
    "%YM%m": MONTHS,
    "%Y%m": MONTHS,
    "%Y.%m": MONTHS,
    "%b %Y": MONTHS,
    "%B %Y": MONTHS,
    "%b-%y": MONTHS,
    "%m/%Y": MONTHS,
    "%m.%Y": MONTHS,
    "01/%m/%Y": MONTHS.astype("datetime64[D]"),  # day first, as it has no gaps then
    "%m/01/%Y": MONTHS.astype("datetime64[D]"),
    "%m/01/%y": MONTHS.astype("datetime64[D]"),
    "%Y-%m-%d": DAYS,
    "%d/%m/%Y": DAYS,
    "%m/%d/%Y": DAYS,
    "%d.%m.%y": DAYS,
    "%y-%m-%d": DAYS,
    "%Y%m%d": DAYS,
    "%d%b%Y": DAYS,
    "%b %d, %Y": DAYS,
    "%a %d %b %Y": DAYS,
    "%G-W%V": DAYS[::7],
    "%d/%m/%Y %H:%M": DAYS.astype("datetime64[s]") + 5 * np.timedelta64(1, "h"),
    "%m/%d/%y %I:%M %p": DAYS.astype("datetime64[s]") + 17 * np.timedelta64(1, "h"),
}


@pytest.mark.parametrize("date_format", WRITTEN)
def test_series_written_in_any_format_read_back_as_the_same(read, date_format):
    times = WRITTEN[date_format]
    cells = [moment.strftime(date_format) for moment in times.astype("datetime64[s]").tolist()]
    values = np.random.default_rng(0).normal(size=times.size)
    rows = [f'"{cell}",{value!r}\n' for cell, value in zip(cells, values.tolist(), strict=True)]
    series = read("t,y\n" + "".join(rows))
    assert (series.x == times).all() and series.x.dtype == times.dtype
    assert (series.y == values).all()
    rng = np.random.default_rng(1)
    shuffled = read("t,y\n" + "".join(rng.permutation(rows)))
    assert (shuffled.x == times).all() and (shuffled.y == values).all()
    if "V" not in date_format:
        given = read("t,y\n" + "".join(rows), date_format=date_format)
        assert (given.x == times).all()


@pytest.mark.parametrize(
    "pattern", ["{y}Q{q}", "{y}-Q{q}", "Q{q} {y}", "Q{q}-{yy:02}", "{y}-{q}", "{y}.{q}", "{y}:{q}"]
)
def test_quarters_in_any_format_are_equal_steps(read, pattern):
    years = QUARTERS.astype("datetime64[Y]").astype(int) + 1970
    quarters = QUARTERS.astype(int) % 12 // 3 + 1
    cells = [pattern.format(y=y, q=q, yy=y % 100) for y, q in zip(years, quarters, strict=True)]
    series = read(table(cells))
    assert (series.x == QUARTERS).all()
    assert series.notices[0] == "Times are read as quarters, and dated to their first month."


def test_numbers_that_are_times_stay_numbers(read):
    decimals = ["1960.08", "1960.17", "1960.25"], ["1960.01", "1960.02", "1960.03"]
    for cells in (["1960", "1961"], *decimals, ["-1.5", "2e3"]):
        assert read(table(cells)).x.tolist() == [float(cell) for cell in cells]
    decimal_commas = read("t;y\n1960,25;0,5\n1960,5;1\n")
    assert decimal_commas.x.tolist() == [1960.25, 1960.5]
    assert decimal_commas.y.tolist() == [0.5, 1.0]


def test_what_was_understood_of_dates_is_said(read):
    assert read(table(["13/02/2020", "01/02/2020"])).notices[0] == "Dates are read day first."
    assert read(table(["02/13/2020", "02/01/2020"])).notices[0] == "Dates are read month first."
    pivot = "Years of two digits are read as 1930 to 2029."
    assert read(table(["Jan-49", "Feb-49"])).notices == (pivot,)
    assert read(table(["2020-W05"])).notices == ("Weeks begin on Mondays.",)
    winter, summer = "2020-01-01 10:00+01:00", "2020-07-01 12:00+02:00"
    assert read(table([winter, summer])).notices == ("Times are converted to UTC.",)
    own = "Times are those of their own clocks: offsets from UTC are left out."
    series = read(table([winter, winter.replace("10", "12")]))
    assert series.notices == (own,) and str(series.x[0]) == "2020-01-01T10:00:00"
    excel = read(table(["43831", "43832", "43833"]))
    assert excel.x[0] == 43831 and "--date-format excel" in excel.notices[0]
    assert "--date-format unix" in read(table(["1577836800", "1577836801"])).notices[0]


def test_day_and_month_first_are_told_by_an_option_where_both_may_be(read):
    text = table(["01/02/2020", "02/02/2020", "05/02/2020"])
    with pytest.raises(ValueError, match="'01/02/2020' .* dayfirst=True .*--day-first or --month"):
        read(text)
    assert str(read(text, dayfirst=True).x[0]) == "2020-02-01"
    assert str(read(text, dayfirst=False).x[0]) == "2020-01-02"
    with pytest.raises(ValueError, match="Line 3: '02/13/2020' .* otherwise than '01/02/2020'"):
        read(table(["01/02/2020", "02/13/2020"]), dayfirst=True)


def test_serial_numbers_and_other_formats_are_dates_where_that_is_said(read):
    excel = read(table(["43831", "43832.5"]), date_format="excel")
    assert excel.x.tolist() == np.array(["2020-01-01T00", "2020-01-02T12"], "M8[s]").tolist()
    assert str(read(table(["43831", "43832"]), date_format="excel").x[1]) == "2020-01-02"
    for scale in (1, 1000):  # seconds, milliseconds
        seconds = read(table([1577836800 * scale, 1577923200 * scale]), date_format="unix")
        assert [str(day) for day in seconds.x] == ["2020-01-01", "2020-01-02"]
    hours = read(table(["1.2.01 7h", "1.2.01 8h"]), date_format="%d.%m.%y %Hh")
    assert str(hours.x[1]) == "2001-02-01T08:00:00"
    months = read(table(["49 Jan", "50 Jan"]), date_format="%y %b")
    assert [str(month) for month in months.x] == ["1949-01", "1950-01"]
    with pytest.raises(ValueError, match="Line 3: '1e30' .* is no date of 'unix'"):
        read(table(["1577836800", "1e30"]), date_format="unix")
    with pytest.raises(ValueError, match="Line 3: 'x' .* is not written as '%Y'"):
        read(table(["2001", "x"]), date_format="%Y")
    with pytest.raises(ValueError, match=r"date_format='%K' \(--date-format\): "):
        read(table(["2001", "x"]), date_format="%K")


NUMBERS = {  # values, and what is told of them
    ("1,234.5", "2"): ([1234.5, 2], ["commas between thousands"]),
    ("1.234,5", "2"): ([1234.5, 2], ["decimal commas", "points between thousands"]),
    ("1 234,5", "2"): ([1234.5, 2], ["decimal commas", "spaces between thousands"]),
    ("1\u202f234,5", "12\u00a0345"): ([1234.5, 12345], ["decimal", "spaces between thousands"]),
    ("1\u2009234.5", "-2"): ([1234.5, -2], ["spaces between thousands"]),
    ("1'234.5", "1\u2019234"): ([1234.5, 1234], ["apostrophes between thousands"]),
    ("1,234,567", "2,345"): ([1234567, 2345], ["commas between thousands"]),
    ("1,234", "987"): ([1234, 987], ["commas between thousands"]),
    ("1,234", "2,5"): ([1.234, 2.5], ["decimal commas"]),
    ("0,123", "1,234"): ([0.123, 1.234], ["decimal commas"]),
    ("1.234", "2.345"): ([1.234, 2.345], []),
    ("$1,234.50", "-$2.00"): ([1234.5, -2], ["in $", "commas between thousands"]),
    ("12.5%", "3 %"): ([12.5, 3], ["in %"]),
    ("5 \u20ac", "-6 \u20ac"): ([5, -6], ["in \u20ac"]),
    ("EUR 5", "EUR 6"): ([5, 6], ["in EUR"]),
    ("1e5", "-2.5E-3"): ([1e5, -0.0025], []),
    ("\u22125", "+.5"): ([-5, 0.5], []),
}


@pytest.mark.parametrize("cells", NUMBERS)
def test_numbers_as_people_write_them(read, cells):
    values, told = NUMBERS[cells]
    series = read(column(cells))
    assert series.y.tolist() == values
    assert len(series.notices) == len(told)
    assert all(words in notice for words, notice in zip(told, series.notices, strict=True))


@pytest.mark.parametrize("sep", [";", "\t", "|"])
@pytest.mark.parametrize("group", ["", ".", " "])
def test_values_with_decimal_commas_read_back_as_the_same(read, sep, group):
    values = np.random.default_rng(0).normal(scale=5e4, size=50).round(3).tolist()
    cells = [f"{v:,}".replace(",", "_").replace(".", ",").replace("_", group) for v in values]
    assert read(column(cells, sep)).y.tolist() == values
    assert read(column(cells, sep).replace('"', "")).y.tolist() == values


def test_decimal_tells_what_a_lone_mark_means(read):
    for cells, sep in ((["1,234", "2,345"], ","), (["1.234", "2.345"], ";")):
        with pytest.raises(ValueError, match=r"decimal='.' or decimal=',' \(--decimal . or"):
            read(column(cells, sep))
        mark = cells[0][1]
        assert read(column(cells, sep), decimal=mark).y.tolist() == [1.234, 2.345]
        other = ",." if mark == "." else ".,"
        assert read(column(cells, sep), decimal=other[0]).y.tolist() == [1234, 2345]
    with pytest.raises(ValueError, match=r"decimal must be '.' or ',', got ';'"):
        read(column(["1"]), decimal=";")


def test_missing_values_are_left_out(read):
    marks = ["NaN", "nan", "NA", "n/a", "", "-", ".", "..", "?", "null", "None", "#N/A"]
    series = read(column(["1", *marks, "2"]))
    assert series.x.tolist() == [0, len(marks) + 1] and series.y.tolist() == [1, 2]
    assert series.notices == (f"{len(marks)} rows without a value of 'y' left out.",)
    assert read(column(["1", "x", "-999.0"]), na_values=["x", "-999"]).y.tolist() == [1]
    stand_in = read(column(["1", "-99.99", "2", "-99.99"]))
    assert stand_in.y.size == 4 and "--na-values=-99.99" in stand_in.notices[0]
    assert not read(column(["1", "-99.99", "2", "-3"])).notices


def test_missing_time_needs_no_date_where_there_is_no_value(read):
    assert read("t,y\n2001-01,1\n2001-02,2\nSource: x,\nNote\n").y.tolist() == [1, 2]


FILES = {
    "byte order mark": ("\ufefft,y\n1,2\n2,3\n", {}),
    "semicolons": ("t;y\n1;2\n2;3\n", {}),
    "semicolons, decimal commas, no header": ("1;2,0\n2;3,0\n", {}),
    "tabs": ("t\ty\n1\t2\n2\t3\n", {}),
    "bars": ("t|y\n1|2\n2|3\n", {}),
    "spaces": ("  t    y\n  1   2\n  2   3\n", {}),
    "another separator": ("t~y\n1~2\n2~3\n", {"sep": "~"}),
    "tab by its name": ("t\ty\n1\t2\n2\t3\n", {"sep": "tab"}),
    "Excel's first line": ("sep=;\nt;y\n1;2,0\n2;3,0\n", {}),
    "quotes and Windows": ('"t","y"\r\n"1","2"\r\n2,3', {}),
    "old Macintosh": ("t,y\r1,2\r2,3\r", {}),
    "blank lines": ("\n\nt,y\n\n1,2\n\n2,3\n\n", {}),
    "comments": ("# a, b, c\n# d\nt,y\n1,2\n# e\n2,3\n", {}),
    "header in a comment": ("# from x\n#t,y\n1,2\n2,3\n", {}),
    "lines before": ("World Bank\nUpdated today\n\nt,y\n1,2\n2,3\n", {}),
    "lines before, padded": ("World Bank,,\n,,\nt,y,\n1,2,\n2,3,\n", {}),
    "lines before, as wide": ("Source,World Bank\nt,y\n1,2\n2,3\n", {"skiprows": 1}),
    "units": ("t,y\n(yr),(EUR)\n1,2\n2,3\n", {}),
    "footnotes": ("t,y\n1,2\n2,3\n\nSource: World Bank\n", {}),
    "empty columns": ("t,y,,\n1,2,,\n2,3,,\n", {}),
    "short rows": ("t,y,z\n1,2,a\n2,3\n", {}),
    "row numbers": (",t,y\n0,1,2\n1,2,3\n", {}),
    "row numbers called #": ("#,t,y\n1,1,2\n2,2,3\n", {}),
    "pandas read twice": ("Unnamed: 0,t,y\n0,1,2\n1,2,3\n", {}),
    "several series": (
        "id,t,y\n" + "".join(f"{i},{t},{t + 1}\n" for i in "ab" for t in (1, 2)),
        {"where": {"id": "b"}},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_many_forms(read, name):
    text, options = FILES[name]
    series = read(text, **options)
    assert series.x.tolist() == [1, 2] and series.y.tolist() == [2, 3]
    if "no header" not in name:
        assert (series.x_label, series.y_label) == ("t", "y")


def test_encodings(read, tmp_path):
    text = "t,gr\u00f6\u00dfe\n1,2\n2,3\n"
    for encoding, option in [
        ("utf-8", None),
        ("utf-16", None),
        ("utf-16-le", "utf-16-le"),
        ("latin-1", "latin-1"),
        ("cp1252", "cp1252"),
    ]:
        assert read(text.encode(encoding), encoding=option).y_label == "gr\u00f6\u00dfe"
    path = tmp_path / "packed.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert read_time_series(path).name == "packed"
    with pytest.raises(ValueError, match=r"not text in UTF-8; .*encoding='latin-1' \(--encoding"):
        read(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"encoding='utf-16-le' \(--encoding utf-16-le\)"):
        read(text.encode("utf-16-le"))
    with pytest.raises(ValueError, match="not text in ascii"):
        read_time_series(path, encoding="ascii")
    with pytest.raises(ValueError, match=r"no encoding 'foo' \(--encoding\)"):
        read_time_series(path, encoding="foo")


def test_a_file_without_a_header_has_numbered_columns(read):
    series = read("2001-01,a,5\n2001-02,b,6\n")
    assert (series.x_label, series.y_label) == ("column 1", "column 3")
    expected = "No header; the columns are called 'column 1', 'column 2', 'column 3'."
    assert series.notices == (expected,)
    assert read("2001,5\n2002,6\n", has_header=True).y.tolist() == [6]
    assert read("1,2\n").y.tolist() == [2]
    counts = read("2001-01,1812,1790\n2001-02,1813,1795\n", target="column 2")  # no years
    assert counts.y.tolist() == [1812, 1813]
    named = read("t,2001\n1,5\n2,6\n")  # a number as name
    assert named.y_label == "2001" and named.y.tolist() == [5, 6]


def test_columns_are_chosen_where_there_is_no_doubt(read):
    series = read(",when,who,load\n0,2001-01,a,5\n1,2001-02,b,6\n")
    assert (series.x_label, series.y_label) == ("when", "load")
    series = read("region,when,load\nnorth,2001-01,5\nnorth,2001-02,6\n")
    assert (series.x_label, series.y_label) == ("when", "load")
    series = read("region,when,load,cost\nnorth,1,5,2\nsouth,2,6,2\n", target="load")
    assert (series.x_label, series.y_label) == ("when", "load")
    text = "a,b,c\n1,2,3\n2,3,5\n"
    assert read(text, target="a").x_label == "b"
    assert read(text, time="c", target="b").y.tolist() == [2.0, 3.0]
    assert read("t,y,y\n1,2,3\n", target="y.1").y.tolist() == [3.0]
    # the target comes first
    for text in (
        "y,year\n5,2001\n6,2002\n4,2003\n",
        "y,n\n5,10\n6,11\n4,12\n",  # rises
        "y,n\n5,1\n6,2\n7.5,3\n",  # rises in equal steps
        "y,when\n5,2001-01-01\n6,2001-01-02\n",
        "y,when\n5,2\n6,1\n7,3\n",  # has a name of times, though it is not in order
    ):
        series = read(text)
        assert series.y_label == "y" and series.y.size == text.count("\n") - 1
    with pytest.raises(ValueError, match=r"none of 'a', 'b' rises .*\(--time\), .*--time rows"):
        read("a,b\n1,3\n3,1\n2,2\n")
    assert read("y,year,quarter\n5,2001,2001Q1\n6,2001,2001Q2\n").y.tolist() == [5, 6]


def test_rows_are_counted_where_there_are_no_times(read):
    alone = read("sales\n5\nNA\n7\n")
    assert (alone.x.tolist(), alone.y.tolist()) == ([0, 2], [5, 7])
    assert alone.notices[0] == "Rows are counted, as there is no column of times."
    asked = read("a,b\n1,3\n3,1\n2,2\n", time="rows", target="b")
    assert (asked.x.tolist(), asked.y.tolist()) == ([0, 1, 2], [3, 1, 2])
    own = read("b,rows\n5,7\n6,8\n", time="rows")
    assert own.x.tolist() == [7, 8]
    one = read("id,b\np,3\np,1\nq,2\nq,4\n", time="rows", where={"id": "q"})
    assert (one.x.tolist(), one.y.tolist()) == ([0, 1], [2, 4])


@pytest.mark.parametrize(
    ("text", "options", "first"),
    [
        ("Year,Month,y\n2001,9,1\n2001,10,2\n", {}, "2001-09"),
        ("y,YEAR,MONTH\n1,2001,01\n2,2001,02\n", {}, "2001-01"),
        ("Year,Month,y\n2001,Sep,1\n2001,Oct,2\n", {}, "2001-09"),
        ("Year,Quarter,y\n2001,2,1\n2001,3,2\n", {}, "2001-04"),
        ("Year,Quarter,y\n2001,Q2,1\n2001,Q3,2\n", {}, "2001-04"),
        ("year,month,day,y\n2001,1,1,5\n2001,1,2,6\n", {}, "2001-01-01"),
        ("m,a,y\nSep,2001,1\nOct,2001,2\n", {"time": ["m", "a"], "target": "y"}, "2001-09"),
        (
            "day,clock,y\n2001-09-01,10:00,1\n2001-09-01,11:00,2\n",
            {"time": ["day", "clock"]},
            "2001-09-01T10:00:00",
        ),
        (
            "day,clock,y\n2001-09-01,10:00,1\n2001-09-01,11:00,2\n",
            {},
            "2001-09-01T10:00:00",
        ),
        ("date,hour,y\n2001-09-01,5,1\n2001-09-01,6,2\n", {}, "2001-09-01T05:00:00"),
        ("year,month,day,hour,y\n2001,9,1,5,1\n2001,9,1,6,2\n", {}, "2001-09-01T05:00:00"),
        ("Jahr,Monat,y\n2001,9,1\n2001,10,2\n", {}, "2001-09"),
        ("year,quarter,y\n2001,2001Q3,1\n2001,2001Q4,2\n", {}, "2001-07"),
        ("year,part,y\n" + "".join(f"2001,{i},{i % 3}\n" for i in (2, 3, 4, 1)), {}, "2001-01"),
        ("year,part,y\n" + "".join(f"2001,Q{i},{i % 3}\n" for i in (2, 3, 4, 1)), {}, "2001-01"),
        ("year,period,y\n" + "".join(f"2001,M{i:02},5\n" for i in range(1, 13)), {}, "2001-01"),
    ],
)
def test_columns_that_tell_the_time_together(read, text, options, first):
    assert str(read(text, **options).x[0]) == first


def test_files_of_several_series_are_refused_unless_one_is_chosen(read):
    rows = [f"{name},{time},{time % 7}\n" for name in ("M1", "M2") for time in range(5)]
    with pytest.raises(ValueError, match=r"'id' seems to name 2 series: .*\(--where id=M1\)"):
        read("id,t,y\n" + "".join(rows))
    with pytest.raises(ValueError, match="no row with 'M3' in the column 'id', but 'M1', 'M2'"):
        read("id,t,y\n" + "".join(rows), where={"id": "M3"})
    numbered = ",id,t,y\n" + "".join(f"{i},{row}" for i, row in enumerate(rows))
    assert read(numbered, where={"id": "M2"}).x.tolist() == [0, 1, 2, 3, 4]
    # a row that came twice, and series of other lengths, hide nothing
    doubled = "id,t,y\n" + "".join(rows) + rows[0] + "M3,0,5\nM3,1,5\nM3,2,6\n"
    with pytest.raises(ValueError, match=r"'id' seems to name 3 series: .*\(--where id=M1\)"):
        read(doubled)
    both = [f"{a},{b},{t},{t % 7}\n" for a in ("north end", "s") for b in "pq" for t in range(5)]
    with pytest.raises(ValueError, match=r"'a' and 'b' seem to name 4 .* 'a=north end' --where b"):
        read("a,b,t,y\n" + "".join(both))
    blocks = "id,t,y\n" + "".join(f"{'ab'[i // 5]},{i},{i % 3}\n" for i in range(10))
    assert "though 'id' has 2 values; --where id=a" in read(blocks).notices[-1]
    years = "year,season,y\n" + "".join(f"{2000 + i // 3},{i % 3},{i}\n" for i in range(12))
    with pytest.raises(ValueError, match="'season' seems .*, say --time year --time season"):
        read(years, target="y")
    alone = "year,y\n" + "".join(f"{2000 + i // 3},{i}\n" for i in range(12))
    with pytest.raises(ValueError, match="3 rows have the time '2000': .* --time year --time COL"):
        read(alone)
    assert read(alone, time="year").y.size == 12
    # other columns beside times that repeat
    repeated = "t,y,z\n" + "".join(f"{i // 3},{i},{i % 2}\n" for i in range(12))
    assert read(repeated, target="y").y.size == 12
    corrected = "t,y,z\n" + "".join(f"{min(i, 10)},{i},{i % 2}\n" for i in range(12))
    assert read(corrected, target="y").y.size == 12


def known_for_the_future(rows):
    return "t,y,price,promo\n" + "".join(
        f"2001-{i + 1:02},{'' if i in (2, *rows) else 5 + i},{'1.5' if i else 2},{i % 2}\n"
        for i in range(12)
    )


def test_covariates_stand_beside_values_and_in_rows_that_follow(read, tmp_path):
    text = known_for_the_future(range(9, 12))
    series = read(text, target="y", covariates=["promo", "price"])
    assert series.y.size == 8 and list(series.covariates) == ["promo", "price"]
    assert series.covariates["promo"].tolist() == [0, 1, 1, 0, 1, 0, 1, 0]
    assert series.covariates["price"].tolist() == [2] + [1.5] * 7
    assert series.future_x.astype(str).tolist() == ["2001-10", "2001-11", "2001-12"]
    assert series.future_covariates["promo"].tolist() == [1, 0, 1]
    assert series.notices == ("1 row without a value of 'y' left out.",)
    assert read(text, target="y").covariates is None
    # rows in another order, and a second file with columns in another one
    lines = text.splitlines(keepends=True)
    shuffled = read(lines[0] + "".join(lines[:0:-1]), target="y", covariates=["promo", "price"])
    assert shuffled.covariates.equals(series.covariates)
    assert shuffled.future_covariates.equals(series.future_covariates)
    more = tmp_path / "more.csv"
    more.write_text("promo,price,t\n1,3,2002-02\n0,2,2002-01\n1,9,2001-05\n")
    options = {"target": "y", "covariates": ["price"], "future": more}
    longer = read(text, **options)
    assert longer.future_x.astype(str).tolist()[3:] == ["2002-01", "2002-02"]
    assert longer.future_covariates["price"].tolist() == [1.5, 1.5, 1.5, 2, 3]


def test_covariates_that_cannot_be_read_are_explained(read, tmp_path):
    text = known_for_the_future([11])
    for names, message in [
        (["cost"], "no covariates column 'cost'; the columns are 't', 'y'"),
        (["y"], "beside time and target, got 'y'"),
        (["price", "price"], "different columns"),
    ]:
        with pytest.raises(ValueError, match=message):
            read(text, target="y", covariates=names)
    with pytest.raises(ValueError, match="Line 3: the covariate 'price' has no value; .*--cov"):
        read(text.replace("6,1.5", "6,"), target="y", covariates=["price"])
    with pytest.raises(ValueError, match="'price' must hold finite numbers .* got 'low'"):
        read(text.replace("6,1.5", "6,low"), target="y", covariates=["price"])
    more = tmp_path / "more.csv"
    more.write_text("t,promo\n2002-01,1\n")
    with pytest.raises(ValueError, match="more.csv must have the columns 't', 'price', got 't', '"):
        read(text, target="y", covariates=["price"], future=more)
    with pytest.raises(ValueError, match="future has values of covariates: name them"):
        read(text, target="y", future=more)


BAD_FILES = {
    "": "is empty",
    "\n \n": "is empty",
    "# only\n": "is empty",
    "t,y\n": "header and no rows",
    "y\na\nb\n": r"a time and a target column, got only 'y'; .* by sep \(--sep\)",
    "t,y\n1,a\n": r"Line 2: the column 'y' must hold finite .* got 'a'; .*na_values=\['a'\]",
    "t,y\n1,2\n2,-inf\n": "Line 3: .* finite numbers .* got '-inf'",
    "t,y\n1,2\n2,1e999\n": "Line 3: .* finite numbers, got '1e999'",
    "t,y\n1,2\n2,1_000\n": "Line 3: .* got '1_000' beside '2' in line 2",
    'a,y\n1,"1,23"\n2,1.23\n': "Line 2: .* got '1,23' beside '1.23' in line 3",
    "t,y\n1,$5\n2,6\n": r"Line 2: .* got '\$5' beside '6'",
    "t,y\ninf,2\n2,1\n": "Line 2: 'inf' .* written otherwise than '2' in line 3",
    "t,y\n1,2\n,3\n": "Line 3: '' in the column 't' is written otherwise than '1' in line 2",
    "t,y\nfoo,2\nbar,1\n": r"Line 2: 'foo' in the column 't' is neither a number nor a date .*--d",
    "t,y\n2001-13,2\n": "'2001-13' .* neither a number nor a date",
    "t,y\n2001-02-30,2\n": "Line 2: '2001-02-30' in the column 't' does not exist",
    "t,y\n2021-W53,2\n": "Line 2: '2021-W53' in the column 't' does not exist",
    "t,y\n2001-12,2\n2002,3\n": "Line 3: '2002' .* written otherwise than '2001-12' in line 2",
    "t,y\n13/02/2020,1\n02/13/2020,2\n": "Line 3: '02/13/2020' .* otherwise than '13/02/2020'",
    "t,y\n20-01-15,1\n20-02-17,2\n": "may be 2015-01-20 or 2020-01-15: .*--date-format %y-%m-%d",
    table(f"Jan {day:02}" for day in (1, 2, 3, 9)) + "Feb 01,4\n": "may be a day without its year",
    "t,y\n2001-1,1\n2001-2,2\n": "Line 3: '2001-2' .* may be 2001-02 or 2001-04: .*quarters as",
    "t,y\n2020-01-01T10:00Z,1\n2020-01-01T11:00,2\n": "have an offset from UTC, and some",
    "t,y\n1,2\n2,3,4\n3,4\n": "line 3: expected 2 cells as in the header, got 3; .* with #",
    "t,y\n2001-01,1,5\n2001-02,2,5\n": r"2 cells in line 1 and 3 in line 2: .*\(--skip-rows\)",
    "t,y\n1,\n2,\n": "no values in the column 'y'",
    "t,a,b\n1,2,3\n": r"Which column is the target\? .* 't', 'a', 'b'; .*\(--target\)",
    "Country,2001,2002\nFrance,1,2\nSpain,3,4\n": "one row for each time, .* 'Country', '2001'",
    "Year,Jan,Feb,Mar\n2001,1,2,3\n": "one row for each time, .* pandas.melt",
    "x,y\nupdated,2024-01-05\n2001-01,2\n2001-02,3\n": r"Line 2: .*\(--skip-rows\)",
    "t,y\n1,\0\n": r"zero bytes; .*\(--encoding utf-16-le\)",
    "PK\x03\x04": "save it as CSV",
    b"\x1f\x8b12": "cannot be unpacked",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_bad_files_are_explained_in_one_line(read, text):
    with pytest.raises(ValueError, match=BAD_FILES[text]) as error:
        read(text)
    assert "\n" not in str(error.value)


def test_columns_and_separators_that_are_not_there_are_explained(read):
    text = "t,y\n1,2\n"
    with pytest.raises(ValueError, match="no target column 'z'; the columns are 't', 'y'"):
        read(text, target="z")
    for option in ("time", "where"):
        with pytest.raises(ValueError, match=f"no {option} column 'z'"):
            read(text, **{option: {"z": "1"} if option == "where" else "z"})
    with pytest.raises(ValueError, match="got 'y' for both"):
        read(text, time="y", target="y")
    with pytest.raises(ValueError, match="sep must be one character, .* got '::'"):
        read(text, sep="::")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_time_series(tmp_path / "missing.csv")
