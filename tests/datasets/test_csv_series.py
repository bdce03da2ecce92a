"""Literal files, with the result of reading or the error."""

import gzip
import re
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest

from gpytorch_nkn.cli import main
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


DATES = {
    ("1960-Q4", "1961-Q1"): ["1960-10", "1961-01"],
    ("Q1'60", "Q2'60"): ["1960-01", "1960-04"],
    ("1960.4", "1961.1", "1961.2", "1961.3", "1961.4", "1962.1"): ["1960-10", "1961-01", "1961-04",
        "1961-07", "1961-10", "1962-01"],
    ("4/1960", "1/1961", "2/1961", "3/1961"): ["1960-10", "1961-01", "1961-04", "1961-07"],
    ("1960:04", "1961:01", "1961:02", "1961:03"): ["1960-10", "1961-01", "1961-04", "1961-07"],
    ("1st quarter 1990", "2nd quarter 1990"): ["1990-01", "1990-04"],
    ("1990-S2", "1991-S1"): ["1990-07", "1991-01"],
    ("2000 1e kwartaal", "2000 2e kwartaal"): ["2000-01", "2000-04"],
    ("2001\u5e7411\u6708", "2001\u5e7412\u6708"): ["2001-11", "2001-12"],
    ("Week of May 4, 2020", "Week of May 11, 2020"): ["2020-05-04", "2020-05-11"],
    ("01.03.1601", "02.03.1601"): ["1601-03-01", "1601-03-02"],
    ("194909", "194910"): ["1949-09", "1949-10"], ("09.1949", "10.1949"): ["1949-09", "1949-10"],
    ("May, 1949", "Sept. 1949"): ["1949-05", "1949-09"],
    ("Dec-29", "Jan-30"): ["2029-12", "1930-01"], ("Jan-01", "Feb-01 (P)"): ["2001-01", "2001-02"],
    ("2001", "2002*", "2003 (r)"): ["2001-01", "2002-01", "2003-01"],
    ("2001/02", "2002/03", "2003/04"): ["2001-01", "2002-01", "2003-01"],
    ("2001-2002", "2002-2003", "2003-2004"): ["2001-01", "2002-01", "2003-01"],
    ("52/2019", "51/2019"): ["2019-12-23", "2019-12-16"],
    ("2018KW01", "2018KW02"): ["2018-01-01", "2018-01-08"],
    ("1995KW04", "1996KW01", "1996KW02"): ["1995-10", "1996-01", "1996-04"],
    ("2010MM01", "2010MM02"): ["2010-01", "2010-02"],
    ("2020-W05-7", "2020-W06-7"): ["2020-02-02", "2020-02-09"],
    ("150131", "150228"): ["2015-01-31", "2015-02-28"],
    ("31011999", "01021999"): ["1999-01-31", "1999-02-01"],
    ("01311999", "02011999"): ["1999-01-31", "1999-02-01"],
    ("013199", "020199"): ["1999-01-31", "1999-02-01"],
    ("99-12-31", "00-01-01"): ["1999-12-31", "2000-01-01"],
    ("12/31/1999 05:00 PM", "1/1/2000 05:00 PM"): ["1999-12-31T17:00:00", "2000-01-01T17:00:00"],
    # day or month first, as there are no gaps then
    ("01/11/1999", "01/12/1999", "01/01/2000"): ["1999-11-01", "1999-12-01", "2000-01-01"],
    ("11/01/99", "12/01/99", "01/01/00"): ["1999-11-01", "1999-12-01", "2000-01-01"],
    ("Thu Jan 01 2015 01:00:00 GMT+0100 (CET)",
        "Fri Jan 02 2015 01:00:00 GMT+0100 (CET)"): ["2015-01-01T01:00:00", "2015-01-02T01:00:00"],
    ("2019-031", "2019-032"): ["2019-01-31", "2019-02-01"],
    ("31-Jan-60", "29-Feb-60"): ["1960-01-31", "1960-02-29"],
    ("January 31st, 1960", "February 2nd, 1960"): ["1960-01-31", "1960-02-02"],
    ("Wed, 1 Jan 2020", "Thu, 2 Jan 2020"): ["2020-01-01", "2020-01-02"],
    ("1.1.2020-31.1.2020", "1.2.2020-29.2.2020"): ["2020-01-01", "2020-02-01"],
    ("13/2/2020 18h00", "13/2/2020 19h30"): ["2020-02-13T18:00:00", "2020-02-13T19:30:00"],
    ("2001-09-01T10", "2001-09-01T11"): ["2001-09-01T10:00:00", "2001-09-01T11:00:00"],
    ("2001-09-01 00:00", "2001-09-01 24:00"): ["2001-09-01", "2001-09-02"],
    ("13/2/2020 12.00.00 AM", "13/2/2020 1.00.00 PM"): ["2020-02-13T00:00:00",
        "2020-02-13T13:00:00"],
    ("2399-12-31", "2400-01-01"): ["2399-12-31", "2400-01-01"],
    ("20200113:0010", "20200113:0110"): ["2020-01-13T00:10:00", "2020-01-13T01:10:00"],
    ("1/2/2020 12:00 a. m.", "13/2/2020 1:00 p. m."): ["2020-02-01T00:00:00",
        "2020-02-13T13:00:00"],
    ("2020-01-01 10:00:00.5", "2020-01-01 10:00:01"): ["2020-01-01T10:00:00.500",
        "2020-01-01T10:00:01.000"],
    ("01.01.2019 00:00 - 01.01.2019 01:00 (CET)",
        "01.01.2019 01:00 - 01.01.2019 02:00 (CET)"): ["2019-01-01T00:00:00",
        "2019-01-01T01:00:00"],
    ("2019-01-01T00:00Z/2019-01-02T00:00Z", "2019-01-02T00:00Z/2019-01-03T00:00Z"): ["2019-01-01",
        "2019-01-02"],
    ("2001-09-01T02:00+02:00", "2001-10-01T00:00Z"): ["2001-09-01", "2001-10-01"],
    ("1577836800000", "1577923200000"): ["2020-01-01", "2020-01-02"],
}  # fmt: skip


@pytest.mark.parametrize("cells", DATES)
def test_dates_are_read_to_the_resolution_that_they_are_written_with(read, cells):
    series = read(table(cells))
    expected = np.array(DATES[cells], "datetime64")
    found = dict(zip(series.y.tolist(), series.x.tolist(), strict=True))
    assert found == dict(enumerate(expected.tolist())) and series.x.dtype == expected.dtype


MONTHS = np.arange("1996-03", "2005-11", dtype="datetime64[M]")
DAYS = np.arange("1999-12-20", "2000-03-10", dtype="datetime64[D]")


def test_numbers_that_are_times_stay_numbers(read):
    decimals = ["1960.08", "1960.17", "1960.25"], ["1960.01", "1960.02", "1960.03"]
    for cells in (["1960", "1961"], *decimals, ["-1.5", "2e3"], ["1700001", "1700002"]):
        assert read(table(cells)).x.tolist() == [float(cell) for cell in cells]
    population = read("Year,Population\n2001,1990110\n2002,1990121\n2003,1990133\n")
    assert population.x.tolist() == [2001, 2002, 2003]
    decimal_commas = read("t;y\n1960,25;0,5\n1960,5;1\n")
    assert decimal_commas.x.tolist() == [1960.25, 1960.5]


NUMBERS = {
    ("1,234.5", "2", "1'234.5", "1\u2019234", "1,234,567", "12,34,568", "(1,234.5)", "3-", "1e5",
        "-2.5E-3", "\u22125", "+.5"): (
        [1234.5, 2, 1234.5, 1234, 1234567, 1234568, -1234.5, -3, 1e5, -0.0025, -5, 0.5], ""),
    ("1.234,5", "2", "1\u202f234,5", "12\u00a0345"): ([1234.5, 2, 1234.5, 12345], "decimal commas"),
    ("1,234", "987"): ([1234, 987], ""), ("1,234", "2,345"): ([1234, 2345], "separate thousands"),
    ("1,234", "2,5"): ([1.234, 2.5], "decimal commas"),
    ("0,123", "1,234"): ([0.123, 1.234], "decimal commas"),
    ("1.234", "2.345"): ([1.234, 2.345], ""),
    ("$1,234.50", "-$2.00", "$ (12)"): ([1234.5, -2, -12],
        "with a mark: 3; marks such as in '$1,234.50'"),
    ("12.5%", "3 %"): ([12.5, 3], "with a mark"), ("EUR 5", "EUR 6"): ([5, 6], "with a mark"),
    ("5 \u20ac", "-6 \u20ac"): ([5, -6], "with a mark"),
    ("5 z\u0142", "2 z\u0142"): ([5, 2], "with a mark"),
    ("126.4#", "127", "<3.0", "12*", "13 p", "14e", "15(b)", "12T", "12 (r)", "13 (pr)"): (
        [126.4, 127, 3, 12, 13, 14, 15, 12, 12, 13],
        "of 'y' with a mark: 9; marks such as in '126.4#'"),
    ("1.5K", "2M"): ([1500, 2e6], ""), ("$12T", "$13B"): ([12e12, 13e9], "with a mark"),
    ("TRUE", "False"): ([1, 0], ""), ("Yes", "no"): ([1, 0], "read as 1 (such as yes) and 0"),
}  # fmt: skip


@pytest.mark.parametrize("cells", NUMBERS)
def test_numbers_as_people_write_them(read, cells):
    values, told = NUMBERS[cells]
    series = read(column(cells))
    assert series.y.tolist() == values
    assert told in "".join(series.notices) and len(series.notices) == bool(told)


@pytest.mark.parametrize(("sep", "group"), [(";", "."), ("\t", " "), ("|", "")])
def test_values_with_decimal_commas_read_back_as_the_same(read, sep, group):
    values = np.random.default_rng(0).normal(scale=5e4, size=50).round(3).tolist()
    cells = [f"{v:,}".replace(",", "_").replace(".", ",").replace("_", group) for v in values]
    assert read(column(cells, sep).replace('"', "")).y.tolist() == values


def test_missing_values_are_omitted(read):
    marks = ["NaN", "nan", "NA", "n/a", "", "-", ".", "..", "?", "null", "None", "#N/A", "#DIV/0!"]
    series = read(column(["1", *marks, "2"]))
    assert series.x.tolist() == [0, len(marks) + 1] and series.y.tolist() == [1, 2]
    assert series.notices == (f"Dropped rows without a value of 'y': {len(marks)}.",)
    for missing in (["x", "-999"], iter(["x", -999])):
        assert read(column(["1", "x", "-999.0"]), na_values=missing).y.tolist() == [1]
    for missing in ("x", 9, np.int64(9)):
        assert read(column(["1", str(missing)]), na_values=missing).y.tolist() == [1]


VALUES = [20.5, 21.25, 19, 22, 18.5, 20, 21, 23.5]


@pytest.mark.parametrize("sentinel", ["-99.99", "-200", "9999", "1e20", "-1"])
def test_values_that_may_stand_for_missing_ones_get_a_notice_that_works(read, sentinel):
    text = column([*VALUES, sentinel, sentinel])
    series = read(text)
    option = re.search(r"na_values=\['(.*?)'\]", "".join(series.notices))[1]
    assert series.y.size == 10 and read(text, na_values=[option]).y.tolist() == VALUES


@pytest.mark.parametrize(
    "values", [[*VALUES, 23.5], [*VALUES, -3, -3.5], [0, 0, 5, 7, 0, 300], 2 * [*range(5)]], ids=str
)
def test_other_values_get_no_notice(read, values):
    assert not read(column(values)).notices


GERMAN = "Januar Februar M\u00e4rz April Mai Juni Juli August September Oktober November Dezember"
POLISH = "sty lut mar kwi maj cze lip sie wrz pa\u017a lis gru"
SPANISH = "ene feb mar abr may jun jul ago sep oct nov dic"
FRENCH = (
    "janv. f\u00e9vr. mars avr. mai juin juil. ao\u00fbt sept. oct. nov. d\u00e9c."  # with points
)
FINNISH = "tammi helmi maalis huhti touko kes\u00e4 hein\u00e4 elo syys loka marras joulu"


def hours(first, count, row):
    """Rows of consecutive numbers within days from 2019-03-01."""
    return "".join(row.format(d=1 + i // count, n=first + i % count, i=i) for i in range(3 * count))


FROM_TO = "".join(f"0{1 + i // 24}-05-2020;{i % 24:02} - {i % 24 + 1:02};{i}\n" for i in range(72))
WIDE_HOURS = "day," + ",".join(f"H{h}" for h in range(1, 25)) + "\n"
WIDE_HOURS += "".join(f"0{d}.03.2019," + ",".join("5" * 24) + "\n" for d in (1, 2))
AUTUMN = "date,period,y\n" + "".join(
    f"2023-10-{28 + d},{p + 1},{p}\n" for d, n in enumerate((48, 50, 48)) for p in range(n)
)
BY_HALVES = "Title,Sales\nUnit,%\n" + "".join(
    f"{1990 + i // 2} H{i % 2 + 1},{i}\n" for i in range(16)
)
BY_HALVES += "".join(f"{1990 + i} {b},{i}\n" for i in range(9) for b in ("JAN", "FEB", "MAR"))
FILES = {  # text, options, first and last time, number, first and last value
    "byte order mark": ("\ufefft,y\n1,2\n2,3\n", {}, 1, 2, 2, 2, 3),
    "utf-16": ("t,y\n1,2\n2,3\n".encode("utf-16"), {}, 1, 2, 2, 2, 3),
    "utf-16 of Java": ("t,y\n1,2\n2,3\n".encode("utf-16-be"), {}, 1, 2, 2, 2, 3),
    "latin-1": ("t,gr\u00f6\u00dfe\n1,2\n2,3\n".encode("latin-1"), {}, 1, 2, 2, 2, 3),
    "tab of a shell": ("t\ty\n1\t2\n2\t3\n", {"sep": r"\t"}, 1, 2, 2, 2, 3),
    "Excel's first line": ("sep=;\nt;y\n1;2,0\n2;3,0\n", {}, 1, 2, 2, 2, 3),
    "comments, quotes, blank lines and Windows": (
        '# a, b, c\r\n# d\r\n\r\n"t","y"\r\n\r\n"1","2"\r\n# e\r\n\r\n2,3', {}, 1, 2, 2, 2, 3),
    "header in another comment": ("% Year, Month, y\n 2001 1 5\n 2001 2 6\n", {}, "2001-01",
        "2001-02", 2, 5, 6),
    "logger": ("Plot Title: 1\n#,Date Time,T\n" + hours(1, 11, "{i},5/1{d}/24 {n:02}:00 PM,{i}\n"),
        {}, "2024-05-11T13:00:00", "2024-05-13T23:00:00", 33, 0, 32),
    "buoys": ("#YY MM DD hh mm WTMP\n#yr mo dy hr mn degC\n2024 2 1 0 0 5\n2024 2 1 0 30 6\n", {},
        "2024-02-01T00:00:00", "2024-02-01T00:30:00", 2, 5, 6),
    "preamble, as wide": ("Source,World Bank\nt,y\n1,2\n2,3\n", {"header": 1}, 1, 2, 2, 2, 3),
    "units and a line": ("t,y\n(yr),(EUR)\n---,---\n1,2\n2,3\n", {}, 1, 2, 2, 2, 3),
    "a note on the time": ("year,y\n2001,2\n2002,3\nyear,from July\n", {}, 2001, 2002, 2, 2, 3),
    "footnotes": ("t,y\n1,2\n2,3\nGrand total,5\n\nSource: World Bank\n* revised, see below\n", {},
        1, 2, 2, 2, 3),
    "empty columns": ("t,y,,\n1,2,,\n2,3,,\n", {}, 1, 2, 2, 2, 3),
    "row names of R": ("rownames,time,value\n1,2001,5\n2,2001.5,6\n3,2002,4\n", {}, 2001, 2002, 3,
        5, 4),
    "row names of a part of a table": (",day,y\n3,2001-01,5\n9,2001-02,6\n", {}, "2001-01",
        "2001-02", 2, 5, 6),
    "first rows with few values": ("year,a,b,c,d,y\n" + "".join(
        f"{y}," + (",,,," if y < 1993 else "1,2,1,2,") + f"{y % 7}\n" for y in range(1990, 2001)),
        {"target": "y"}, 1990, 2000, 11, 2, 5),
    "years of two digits beside months": ("Month,Year,y\n11,99,5\n12,99,6\n1,00,7\n", {}, "1999-11",
        "2000-01", 3, 5, 7),
    "years as columns, one of them twice": ("T\nSex;Unit;" + ";".join(map(str, [*range(2001,
        2014), *range(2013, 2020)])) + "\nall;persons" + ";5" * 20, {}, 2001, 2019, 19, 5, 5),
    "header that is not": ("2001,5\n2002,6\n2003,7\n", {"header": 0}, 2002, 2003, 2, 6, 7),
    "several series": ("id,t,y\n" + "".join(f"{i},{t},{t + 1}\n" for i in "ab" for t in (1, 2)),
        {"where": {"id": "b"}}, 1, 2, 2, 2, 3),
    "no times": ("sales\n5\nNA\n7\n", {}, 0, 2, 2, 5, 7),
    "rows, newest first": ("day,y\n2001-01-03,3\n2001-01-02,2\n2001-01-01,1\n", {"time": "rows"}, 0,
        2, 3, 1, 3),
    "rows beside a format of dates": ("t,y\n1-01,5\n1-02,6\n", {"time": "rows", "date_format":
        "%d.%m.%Y %Hh"}, 0, 1, 2, 5, 6),
    "full date beside year and month": ("Date,Year,Month,y\n2001-01-30,2001,1,5\n"
        "2001-01-31,2001,1,6\n2001-02-01,2001,2,7", {}, "2001-01-30", "2001-02-01", 3, 5, 7),
    "numbered months": ("Year,Month,y\n2001,01-Jan,1\n2001,02-Feb,2\n", {}, "2001-01", "2001-02", 2,
        1, 2),
    "lines in a cell": ('t,y,z\n1,2,"a b\nc d"\n2,3,"e f\ng h"\n', {}, 1, 2, 2, 2, 3),
    "quarter with its year": ("y,year,quarter\n5,2001,2001Q1\n6,2001,2001Q2\n", {}, "2001-01",
        "2001-04", 2, 5, 6),
    "weeks 53 of epidemiology": ("YEAR,WEEK,y\n2014,52,1\n2014,53,2\n2015,1,3\n", {}, "2014-12-21",
        "2015-01-04", 3, 1, 3),
    "weeks of epidemiology": ("epiyear,epiweek,y\n2019,5,1\n2019,6,2\n", {}, "2019-01-27",
        "2019-02-03", 2, 1, 2),
    "date and clock": ("day,clock,y\n2001-09-01,10.00.00,1\n2001-09-01,11.00.00,2\n", {},
        "2001-09-01T10:00:00", "2001-09-01T11:00:00", 2, 1, 2),
    "date and interval": ("day,MTU,y\n1.9.2001,00:00-00:30,1\n1.9.2001,00:30-01:00,2\n", {},
        "2001-09-01T00:00:00", "2001-09-01T00:30:00", 2, 1, 2),
    "settlement periods": ("SETTLEMENT_DATE,SETTLEMENT_PERIOD,ND\n" + hours(1, 48,
        "2019-03-{d:02},{n},{i}\n"), {}, "2019-03-01T00:00:00", "2019-03-03T23:30:00", 144, 0, 143),
    "four digits": ("date,time,y\n" + hours(0, 24, "2019030{d},{n:02}00,{i}\n"), {},
        "2019-03-01T00:00:00", "2019-03-03T23:00:00", 72, 0, 71),
    "dates of Excel": ("Due Date,Time,y\n" + hours(0, 24, "4355{d},{n}:00,{i}\n"), {},
        "2019-03-27T00:00:00", "2019-03-29T23:00:00", 72, 0, 71),
    "days of Excel": ("Day,y\n44957,1\n44958,2\n", {}, "2023-01-31", "2023-02-01", 2, 1, 2),
    "months of Excel": ("Month;y\n44927;1\n44958;2\n44986;4\n", {}, "2023-01-01", "2023-03-01", 3,
        1, 4),
    "hours of Excel": ("Time,y\n" + "".join(f"{44927 + i / 24:.5f},{i}\n" for i in range(48)), {},
        "2023-01-01T00:00:00", "2023-01-02T23:00:00", 48, 0, 47),
    "seconds of a clock": ("time,y\n45000,1\n45010,2\n45020,4\n", {}, 45000, 45020, 3, 1, 4),
    "days that are no dates": ("Date,Day\n2023-01-01,45000\n2023-01-02,45001\n", {}, "2023-01-01",
        "2023-01-02", 2, 45000, 45001),
    "rising values beside unsorted x": ("x,y\n3,1\n1,2\n2,5\n", {}, 1, 3, 3, 2, 1),
    "series of R": ('"","x"\n"2001",7\n"2001.25",9\n"2001.5",8\n', {}, 2001, 2001.5, 3, 7, 8),
    "dates of floats": ("d,y\n20230131.0,1\n20230201.0,2\n", {}, "2023-01-31", "2023-02-01", 2, 1,
        2),
    "six digits": ("<date>,<time>,<close>\n" + hours(0, 24, "2019030{d},{n:02}0000,{i}\n"), {},
        "2019-03-01T00:00:00", "2019-03-03T23:00:00", 72, 0, 71),
    "months of years in Spanish": ("Mes;y\n" + "".join(
        f"{SPANISH.split()[i % 12]} de {2001 + i // 12};{i}\n" for i in range(24)), {}, "2001-01",
        "2002-12", 24, 0, 23),
    "the first months in German": ("Tag;y\n" + "".join(
        f"{t:%d}. {GERMAN.split()[t.month - 1]} {t:%Y};{t:%d}\n" for t in DAYS[12:].tolist()), {},
        "2000-01-01", "2000-03-09", 69, 1, 9),
    "year and day": ("year,day,y\n2019,365,1\n2020,1,2\n", {}, "2019-12-31", "2020-01-01", 2, 1, 2),
    "years of two digits": ("yr,y\n98,1\n99,2\n00,3\n01,4\n", {}, 1998, 2001, 4, 1, 4),
    "clocks that end": ("Day,Ending,MW\n" + hours(1, 24, "2019-03-0{d},'{n:02}:00',{i}\n"), {},
        "2019-03-01T00:00:00", "2019-03-03T23:00:00", 72, 0, 71),
    "sums of years": ("Year,Mo,y\n2001,11,1\n,12,2\n2001 Total,,3\n2002,1,3\n", {}, "2001-11",
        "2002-01", 3, 1, 3),
    "numbered footnotes": ("Area,Year,y\n" + "".join(f"A,{y},5\n" for y in range(1990, 2021))
        + "footnote ID,Footnote\n1,Estimate\n", {}, 1990, 2020, 31, 5, 5),
    "months as columns": ("Year,Jan,Feb,Mar,Apr,May,Jun,Jul,Aug,Sep,Oct,Nov,Dec,Annual\n2001,"
        "1,2,3,4,5,6,7,8,9,8,7,6,5\n2002,4,5" + ",***" * 11 + "\n", {}, "2001-01", "2002-02", 14, 1,
        5),
    "steps as columns": (",".join(["id", *(f"d_{i}" for i in range(1, 31))]) + "\na" + ",5" * 30,
        {}, 1, 30, 30, 5, 5),
    "long lines above": ("Heathrow\nLocation 5E 6N, Lat 51.4 Lon -0.4, 25m amsl\n  yyyy mm tmax\n"
        "    degC\n 2001 1 8.9\n 2001 2 9.1* Provisional\n", {}, "2001-01", "2001-02", 2, 8.9, 9.1),
    "years without a name": ("    Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec\n" + "".join(
        f"{y} " + " 5" * 12 + "\n" for y in (2001, 2002)), {}, "2001-01", "2002-12", 24, 5, 5),
    "months of a climate index": (" 1979 1990\n" + "".join(f"{y}" + " .5" * 12 + "\n"
        for y in range(1979, 1991)) + " -999.0\nIndex Version 2\n", {}, "1979-01", "1990-12", 144,
        0.5, 0.5),
    "parts without names": (hours(1, 24, "1999;3;{d};{n};{i}\n"), {}, "1999-03-01T00:00:00",
        "1999-03-03T23:00:00", 72, 0, 71),
    "footer with numbers": ("Year,Month,y\n2001,1,5\n2001,2,6\n2001,3,7\n2001,4,8\nRelease 12, 2024"
        "\n", {}, "2001-01", "2001-04", 4, 5, 8),
    "repeated names above names": ("Title,A,B\nSource,RBA,RBA\nID,a,b\n2001-01,1,2\n2001-02,3,1\n",
        {"target": "A"}, "2001-01", "2001-02", 2, 1, 3),
    "dates as columns": ("Country,Lat,1/22/20,1/23/20,1/24/20\nFrance,46.2,1,2,3\n", {},
        "2020-01-22", "2020-01-24", 3, 1, 3),
    "empty cells in columns of fixed width": ("     Qtr1 Qtr2 Qtr3 Qtr4\n2001            5    7\n"
        "2002   8    9    5    3\n2003  11\n", {}, "2001-07", "2003-01", 7, 5, 11),
    "weeks as columns": ("id," + ",".join(f"W{i}" for i in range(1, 53)) + "\n2001" + ",5" * 52, {},
        "2001-01-01", "2001-12-24", 52, 5, 5),
    "hours as columns": (WIDE_HOURS, {}, "2019-03-01T00:00:00", "2019-03-02T23:00:00", 48, 5, 5),
    "years as columns beside months": ("Month,2019,2020\nJan,1,4\nFeb,2,5\nMar,3,6\n", {},
        "2019-01", "2020-03", 6, 1, 6),
    "a covariate that is like a year": ("t,2019,2020\n2001-01,1,4\n2001-02,2,5\n2001-03,3,6\n",
        {"covariates": ["2020"]}, "2001-01", "2001-03", 3, 1, 3),
    "hours from to": ("day;Hours;y\n" + FROM_TO, {}, "2020-05-01T00:00:00",
        "2020-05-03T23:00:00", 72, 0, 71),
    "mean of a year": ("Year,Period,y\n" + "".join(f"2001,M{i:02},{i}\n" for i in range(1, 14)), {},
        "2001-01", "2001-12", 12, 1, 12),
    "source above a header": ("Source,World Bank\nyear,y\n1,2\n2,3\n", {}, 1, 2, 2, 2, 3),
    "period beside the time of publication": ("id,day,no,published,MW\n" + hours(1, 24,
        "A,2019-03-0{d},{n},2019-03-0{d} {n:02}:15,{i}\n"), {}, "2019-03-01T01:15:00",
        "2019-03-04T00:15:00", 72, 0, 71),
    "quarters in words beside a year": (";;GDP\n2001;1. Quartal;5,5\n2001;2. Quartal;6,5\n", {},
        "2001-01", "2001-04", 2, 5.5, 6.5),
    "days as columns": ("Month," + ",".join(map(str, range(1, 32))) + "\n2001-01" + ",5" * 31
        + "\n2001-02" + ",6" * 28 + ",,,\n", {}, "2001-01-01", "2001-02-28", 59, 5, 6),
    "months in Finnish, the newest first": ("kausi;y\n" + "".join(
        f"{FINNISH.split()[i % 12]} {2001 + i // 12};{i}\n" for i in range(28, 2, -1)), {},
        "2001-04", "2003-05", 26, 3, 28),
    "October as .1": ("t,y\n" + "".join(
        f"{1871 + i // 12}.{'1' if i % 12 == 9 else f'{i % 12 + 1:02}'},{i}\n" for i in range(30)),
        {}, "1871-01", "1873-06", 30, 0, 29),
    "months of one digit": ("t;y\n" + "".join(
        f"{2001 + i // 12},{i % 12 + 1};{i}\n" for i in range(30)), {}, "2001-01", "2003-06", 30, 0,
        29),
    "days of the year in a number": ("t,y\n2001365,1\n2002001,2\n2002002,4\n", {}, "2001-12-31",
        "2002-01-02", 3, 1, 4),
    "quarters and years beside months": ("Title,Sales\n2001,7\n2002,8\n" + "".join(
        f"{2001 + i // 4} Q{i % 4 + 1},{i}\n" for i in range(8)) + "".join(
        f"{t:%Y %b},{i}\n" for i, t in enumerate(MONTHS[:24].tolist())), {}, "1996-03", "1998-02",
        24, 0, 23),
    "years beside months in Polish": ("t;y\n" + "".join(f"{y} {m};{5 if m else 99}\n"
        for y in (2001, 2002, 2003) for m in (*POLISH.split(), "")), {}, "2001-01", "2003-12", 36,
        5, 5),
    "months as columns in French": ("Ann\u00e9e;" + FRENCH.replace(" ", ";") + "\n" + "".join(
        f"{y}" + ";5" * 12 + "\n" for y in (2001, 2002)), {}, "2001-01", "2002-12", 24, 5, 5),
    "one row above a footer of two cells": ("x,2001M01,2001M02,2001M03\na,1,2,4\n\nUpdated:\n"
        "20240128 08:00\nSource:,SCB\n", {}, "2001-01", "2001-03", 3, 1, 4),
    "quarters as columns of values like years": ("Year,Q1,Q2,Q3,Q4\n2001,1900,1901,1800,2000\n"
        "2002,1950,1960,1970,2050\n", {}, "2001-01", "2002-10", 8, 1900, 2050),
    "years as columns, some of values like years": ("id,2001,2002,2003\na,2000,9,1900\n", {}, 2001,
        2003, 3, 2000, 1900),
    "years as columns in R": ("id,X2001,X2002,X2003\na,2,3,5\n", {}, 2001, 2003, 3, 2, 5),
    "months of half a year as columns in Spanish": ("id;" + ";".join(f"{m}-19" for m in
        SPANISH.split()[:6]) + "\n7" + ";5" * 6, {}, "2019-01", "2019-06", 6, 5, 5),
    "formulas of Excel": ('t,y\n="2001-01",="1"\n="2001-02",="2"\n', {}, "2001-01", "2001-02", 2, 1,
        2),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_of_many_forms(read, name):
    text, options, first, last, size, *values = FILES[name]
    series = read(text, **options)
    found = series.x.astype(str) if series.has_dates else series.x
    ends = [found[0], found[-1], series.y.size, series.y[0], series.y[-1]]
    assert ends == [first, last, size, *values]
    steps = np.diff(series.x.astype(series.x.dtype if not series.has_dates else int))
    assert np.unique(steps).size <= 2


def test_notices_say_what_was_skipped_or_assumed(read):
    series = read("t,y\n3,1.5\n1,2\n2,\n1,4\n5,NA\n,3\n")
    assert series.x.tolist() == [1, 1, 3] and series.y.tolist() == [2, 4, 1.5]
    assert (series.x_label, series.y_label, series.name) == ("t", "y", "series")
    assert not series.test.any() and not series.has_dates
    assert series.notices == (
        "Dropped rows without a time: 1 (such as '3').",
        "Dropped rows without a value of 'y': 2.",
        "Rows are sorted by time.",
        "Rows that repeat an earlier time: 1; all rows are used.",
    )
    winter, summer = "2020-01-01 10:00+01:00", "2020-07-01 10:00+02:00"
    for text, notice in {
        "World Bank\nt,y\n1,2\n2,3\n": "outside the data: 1 (such as 'World Bank').",
        "t,y\n1,2\n2,3\nsee below,\n": "outside the data: 1 (such as 'see below').",
        "2001-01,a,5\n2001-02,b,6\n": "the columns are called 'column 1', 'column 2', 'column 3'.",
        "sales\n5\n7\n": "Rows are counted from the first row.",
        table(["01/02/2020", "13/02/2020"]): "Dates are read day first.",
        table(["02/01/2020", "02/13/2020"]): "Dates are read month first.",
        table(["Jan-49", "Feb-49"]): "Years of two digits are read as 1930 to 2029.",
        table(["2020-W05"]): "Weeks begin on Mondays.",
        table(["1960-Q4"]): "Times are read as quarters, and dated to their first month.",
        table([winter, summer.replace("+02", "+05")]): "Times are converted to UTC.",
        table([winter, summer]): "offsets from UTC are dropped.",
        "Year,Month,y\n2001,1,5\n2001,2,6\n": "Times are read from the columns 'Year', 'Month'.",
        "d,hour,y\n2001-01-01,1,5\n2001-01-01,24,6\n": "60 minutes each; times are starts.",
        column([*"3456789" * 3, "-999", "9999", "-200", "-200"]): "['9999', '-999', '-200']",
        "t,a,price\n1,5,2\n2,6,1\n3,5,3\n": "--covariates price",
    }.items():
        assert notice in read(text, target="a" if "price" in text else None).notices[-1]
    assert "count from midnight, also on days of 23 or 25 hours" in read(AUTUMN).notices[2]
    text = "day,y\n2001-01-02,2\n2001-01-01,1\n"
    assert read(text, time="rows").notices[0] == "Rows are counted from the last row."


@pytest.mark.parametrize(
    ("cells", "zone", "texts"),
    [
        (["2020-01-01 10:00-0530", "2020-01-01 11:00-0530"], "UTC-05:30", "2020-01-01T10:00-05:30"),
        (["2020-03-29 01:00+01:00", "2020-03-29 03:00+02:00"], "", "2020-03-29T01:00"),
        (["2020-03-29 01:00+01:00", "2020-03-29 04:00+03:00"], "UTC", "2020-03-29T00:00+00:00"),
        (["2020-03-28T00:00+01:00", "2020-03-30T00:00+02:00"], "", "2020-03-28"),
        (["2020-01-01 10:00:30", "2020-01-01 11:00"], "", "2020-01-01T10:00:30"),
        (["2020Q3", "2020Q4"], "", "2020-07"),
        (["0.1", "0.25"], "", "0.1"),
        (["2460000.123456", "2460000.123579"], "", "2460000.123456"),
    ],
)
def test_times_keep_their_zone_and_form(read, cells, zone, texts):
    series = read(table(cells))
    assert series.zone == zone and series.texts(series.index)[0] == texts
    assert series.future_index.dtype == series.index.dtype
    if zone:
        given = [cell.replace("T", " ").replace("Z", "+0000") for cell in cells]
        assert read(table(given), date_format="%Y-%m-%d %H:%M%z").zone == "UTC"


def test_columns_are_chosen_where_there_is_no_doubt(read):
    for text, options, labels in [
        (",when,who,load\n0,2001-01,a,5\n1,2001-02,b,6\n", {}, ("when", "load")),
        ("region,when,load,cost\nn,1,5,2\ns,2,6,2\n", {"target": "load"}, ("when", "load")),
        ("a,b,c\n1,2,3\n2,3,5\n", {"time": "c", "target": "b"}, ("c", "b")),
        ("t,y,y\n1,2,3\n", {"target": "y.1"}, ("t", "y.1")),
        ("y,n\n5,10\n6,11\n4,12\n", {}, ("n", "y")),  # rises
        ("y,n\n5,1\n6,2\n7.5,3\n", {}, ("n", "y")),  # rises in equal steps
        ("y,when\n5,2\n6,1\n7,3\n", {}, ("when", "y")),
        ("n,mbar\n1,1990\n3,1980\n4,1990\n", {}, ("n", "mbar")),  # not years: out of order
        ("m,a,y\nSep,2001,1\nOct,2001,2\n", {"time": ["m", "a"], "target": "y"}, ("m a", "y")),
    ]:
        series = read(gzip.compress(text.encode()) if options else text, **options)
        assert (series.x_label, series.y_label) == labels
        assert series.y.size == text.count("\n") - 1
    one = read("id,b\np,3\np,1\nq,2\nq,4\n", time="rows", where={"id": "q"})
    assert (one.x.tolist(), one.y.tolist()) == ([0, 1], [2, 4])
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
    unnamed = read(text, covariates=["promo", "price"])  # the target is the only column left
    assert unnamed.y.tolist() == series.y.tolist()
    assert series.covariates["promo"].tolist() == [0, 1, 1, 0, 1, 0, 1, 0]
    assert series.covariates["price"].tolist() == [2] + [1.5] * 7
    assert series.future_x.astype(str).tolist() == ["2001-10", "2001-11", "2001-12"]
    assert series.future_covariates["promo"].tolist() == [1, 0, 1]
    lacking = "Dropped rows without a value of 'y' or, in the future, of 'promo', 'price'"
    assert series.notices == (f"{lacking}: 1.",)
    gap = read(text + "2002-01,,1,\n", target="y", covariates=["promo", "price"])
    assert gap.notices == (f"{lacking}: 2.",)
    assert gap.future_x.tolist() == series.future_x.tolist()
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
    more.write_text("t,promo\n2002-01,1\n")
    with pytest.raises(ValueError, match="no future column 'price'; the columns are 't', 'promo'"):
        read(text, **options)


@pytest.mark.parametrize(("names", "step"), [(GERMAN, 1), (SPANISH, -1)])
def test_months_in_other_languages_are_read_beside_a_column_of_years(read, tmp_path, names, step):
    """Rising values are not mistaken for the time."""
    names = names.split()
    future = tmp_path / "future.csv"
    future.write_text(f"Jahr;Monat;Preis\n2018;{names[4]};7\n2018;{names[5]};8\n")
    rows = [f"{2015 + i // 12};{names[i % 12]};{i + i**2};5\n" for i in range(3, 40)]
    text = "Jahr;Monat;Bestand;Preis\n" + "".join(rows[::step])
    series = read(text, covariates=["Preis"], future=future)
    assert (series.x == np.arange("2015-04", "2018-05", dtype="datetime64[M]")).all()
    assert (series.y == [i + i**2 for i in range(3, 40)]).all()
    assert f"'{names[0]}' to '{names[-1]}' in 'Monat' are months 1 to 12." in series.notices
    assert series.future_x.astype(str).tolist() == ["2018-05", "2018-06"]


BOTH = "a,b,t,y\n" + "".join(
    f"{a},{b},{t},{t % 7}\n" for a in ("north end", "s") for b in "pq" for t in range(5)
)
ADVICE = {
    "y\na\nb\nc~1\n": ("unusual character, name it with sep (--sep)", None),
    "t~y\n2001-01~1\n2001-02~3\n": ("name it with sep (--sep)", {"sep": "~"}),
    "t,a,b\n1,2,3\n2,4,6\n": ("'a', 'b': choose one with target (--target)", {"target": "b"}),
    "t,y\n1,a\n2,b\n3,4\n": ("na_values=['a', 'b'] (--na-values=a --na-values=b)",
        {"na_values": ["a", "b"]}),
    "t,Forecast [MW] - a name that is longer than forty,b\n1,1,2\n2,2,4\n3,4,1\n": (
        "'Forecast [MW] - a name that is longer than forty', 'b': choose one",
        {"target": "Forecast [MW] - a name that is longer than forty"}),
    table(["Jan 2001", "maj 2001", "Jun 2001"]): ("or set time='rows' (--time=rows)",
        {"time": "rows"}),
    table([*(f"{d} april 2020" for d in range(26, 31)), *(f"{d} maj 2020" for d in (1, 2, 3))]): (
        "drop such rows by na_values=['1 maj 2020', '2 maj 2020', '3 maj 2020']",
        {"na_values": ["1 maj 2020", "2 maj 2020", "3 maj 2020"]}),
    "t,y\n2001\u5e741\u6708,5\n2001\u5e742\u6708,6\n".encode("gb18030"): (
        "The text is read as cp1252; encoding (--encoding) sets another", {"encoding": "gb18030"}),
    "t,y\n1,2\n2,-inf\n3,1_000\n4,1\n": ("na_values=['-inf', '1_000'] (--na-values=-inf ",
        {"na_values": ["-inf", "1_000"]}),
    column(["5 W", "6 W", "7 kW", "8 W"]): ("must hold numbers like '5 W', got '7 kW'",
        {"na_values": ["7 kW"]}),
    column(["$5", "$6", "\u20ac7", "$8"]): ("like '$5', got '\u20ac7'", {"na_values": ["\u20ac7"]}),
    'a,y\n1,"1,23"\n2,1.23\n3,1.25\n': ("na_values=['1,23']", {"na_values": ["1,23"]}),
    column(["1,234", "2,345"], "\t"): ("decimal='.' (--decimal=.) or decimal=',' (--decimal=,)",
        {"decimal": "."}),
    "a,b\n1,3\n3,1\n2,2\n": ("with time (--time), or set time='rows' (--time=rows)",
        {"time": "rows", "target": "b"}),
    "rok;miesi;y\n"
    + "".join(f"{2015 + i // 12};{POLISH.split()[i % 12]};{i + i**2}\n" for i in range(30)): (
        "'rok', 'y' may be values: name it with time", {"time": ["rok", "miesi"]}),
    "t,y\nfoo,2\nbar,1\n": ("time='rows' (--time=rows)", {"time": "rows"}),
    "t,y\n1.2.01 7h,2\n1.2.01 8h,1\n": ("date_format='%d.%m.%Y %Hh'",
        {"date_format": "%d.%m.%y %Hh"}),
    "t,y\n2001-12,2\n2002-01,3\nx,3\n2002-02,5\n": ("na_values=['x'] (--na-values=x)",
        {"na_values": ["x"]}),
    "t,y\n1,2\n2,3\n\nt,z\n1,5\n2,7\n": (
        "Line 5: another table begins with 't', 'z'. Read it alone by skiprows=4 (--skiprows=4)",
        {"skiprows": 4}),
    BY_HALVES: ("skip these lines by skiprows=18 (--skiprows=18)", {"skiprows": 18}),
    "t,y\n2001-11,2\n2001-13,2\n2001-12,4\n": ("na_values=['2001-13']", {"na_values": ["2001-13"]}),
    "t,y\n2001-02-28,2\n2001-02-30,2\n2001-03-01,4\n": ("na_values=['2001-02-30']",
        {"na_values": ["2001-02-30"]}),
    "t,y\n14/02/2020,1\n13/02/2020,1\n02/13/2020,2\n": ("na_values=['02/13/2020']",
        {"na_values": ["02/13/2020"]}),
    "t,y\n2020-01-01T09:00Z,1\n2020-01-01T10:00Z,1\n2020-01-01T11:00,2\n": (
        "na_values=['2020-01-01T11:00']", {"na_values": ["2020-01-01T11:00"]}),
    table(["01/02/2020", "02/02/2020", "05/02/2020"]): (
        "dayfirst=True (--dayfirst) or dayfirst=False (--no-dayfirst)", {"dayfirst": False}),
    "t,y\n1,2\n2,3,4\n3,4\n": ("header=None (--header=none)",
        {"header": None, "target": "column 2"}),
    "id,t,y\n" + "".join(f"M{i},{t},{t % 7}\n" for i in (1, 2) for t in range(5)): (
        "where={'id': 'M1'} (--where=id=M1)", {"where": {"id": "M1"}}),
    "date,Index,y\n2001-01,9.8,0.5\n2001-02,9.9,1\n2001-03,9.7,2\n": ("any of 'Index', 'y'",
        {"target": "Index"}),
    BOTH: ("(--where='a=north end')", {"where": {"a": "north end", "b": "p"}}),
    "year,age_group,y\n" + "".join(f"{2001 + i // 12},{i % 12 + 1},{i}\n" for i in range(48)): (
        "any of 'age_group', 'y'", {"target": "y", "where": {"age_group": "1"}}),
    "Country,2001,2002,2003\nFrance,1,2,3\nSpain,3,4,5\n": ("where={'Country': 'France'}",
        {"where": {"Country": "France"}}),
    "year,y\n" + "".join(f"{2000 + i // 3},{i}\n" for i in range(12)): (
        "3 rows have the time 2000.0: name all columns of the time, or count rows by time='rows'",
        {"time": "rows"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def known_options():
    """Options of the command."""
    text = StringIO()
    with redirect_stdout(text), pytest.raises(SystemExit):
        main(["forecast", "--help"])
    return set(re.findall(r"--[a-z-]+", text.getvalue()))


@pytest.mark.parametrize("text", ADVICE)
def test_the_option_that_an_error_names_works(read, text, known_options):
    words, options = ADVICE[text]
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        read(text)
    assert "\n" not in str(error.value)
    if options is not None:
        assert read(text, **options).y.size >= 1
    assert set(re.findall(r"--[a-z][a-z-]+", str(error.value))) <= known_options


BAD = {
    "": ({}, "is empty"), "\n \n": ({}, "is empty"),
    "t,y\n": ({}, "no column of numbers"),
    "t,y\n1,\n2,\n": ({}, "no values in the column 'y'"),
    "t,y\n1,2\n": ({"target": "z"}, "no target column 'z'; the columns are 't', 'y'"),
    "t,y\n1,3\n": ({"time": "z"}, "no time column 'z'"),
    "t,y\n1,4\n": ({"where": {"z": "1"}}, "no where column 'z'"),
    "t,y\n1,5\n": ({"where": {"t": "3"}}, "no row with '3' in the column 't', but '1'"),
    "t;y\n1;2\n": ({"sep": ","}, "has no cells that are separated by ','"),
    "t,y\n1,6\n": ({"time": "y", "target": "y"}, "must be different, got 'y', 'y'"),
    "t,y\n1,7\n": ({"target": "y", "covariates": ["y"]}, "must be different"),
    "t,y\n1,8\n": ({"encoding": "foo"}, "is not text in 'foo'; leave encoding"),
    "t,y\n1,9\n": ({"future": "more.csv"}, "future needs covariates: name them"),
    "t,y\n2,9\n": ({"decimal": ";"}, "decimal must be '.' or ',', got ';'"),
    "t,y\n3,9\n": ({"date_format": "%K"}, "date_format='%K' (--date-format=%K): "),
    "t,y\n4,9\nx,5\n": ({"date_format": "%d"}, "Line 3: 'x' in the column 't' is not a time"),
    "Year,Q,y\n2012-13,Q3,1\n2012-13,Q4,2\n2013-14,Q1,4\n": ({"time": ["Year", "Q"]},
        "'2012-13 Q3' in the column 'Year Q' is not a time"),  # a quarter may be in the next year
    "PK\x03\x04": ({}, "save it as CSV"),
    gzip.compress(b"t,y", mtime=0)[:-4]: ({}, "is a damaged gzip file"),
    "t,y,z\n1,2,\n2,3,1\n": ({"target": "y", "covariates": ["z"]},
        "Line 2: the column 'z' must hold numbers, got ''; write numbers, such as 1 and 0, or"),
    "t,y\n2001-01,open\n2001-02,shut\n": ({},
        "got 'open', 'shut'; write numbers, such as 1 and 0, or name another column by target"),
    "year,price,shop,y\n" + "".join(
        f"{2001 + i // 6},{max(i % 6, 2)},{'abc'[i % 3]},{i}\n" for i in range(24)): (
        {"target": "y"}, "choose the rows of one series by where={'shop': 'a'}"),
    '[{"t": 1, "y": 2}]': ({}, "JSON or HTML; save it as CSV"),
    "t,y,z\n1,2,open\n2,3,shut\n": ({"target": "y", "covariates": ["z"]},
        "got 'open', 'shut'; write numbers, such as 1 and 0, or leave it out of covariates"),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_bad_files_and_options_are_explained_in_one_line(read, text):
    options, words = BAD[text]
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        read(text, **options)
    assert "\n" not in str(error.value)
