import base64
import html
import re
import struct
from html.parser import HTMLParser

import numpy as np
import pytest
from gpytorch.kernels import ScaleKernel

from gpytorch_nkn import __version__, plotting
from gpytorch_nkn.interpretation import report
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.interpretation.small_models import columns_gp, forecaster, season, seasonal_gp

VOID = {"meta", "img", "br", "link", "hr"}
BAD = "<script>alert(1)</script> \"'&amp; $x$ $ {{ 7 * 7 }} {% raw %} é μ ж"
BAD_COLUMNS = (BAD, "<img src=x onerror=alert(1)>", "b" * 200)


class Page(HTMLParser):
    """Tags with their attributes, text by tag, and whether tags are closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.faults = [], [], [], []
        self.feed(text)
        self.close()
        self.faults += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"{tag} is closed out of order")

    def handle_data(self, data):
        if data.strip() and self.open:
            self.texts.append((self.open[-1], " ".join(data.split())))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag):
        return [text for name, text in self.texts if name == tag]


@pytest.fixture(scope="module")
def series():
    return report(seasonal_gp(), x_unit="months", y_name="sales", y_unit="kg")


@pytest.fixture(scope="module")
def series_page(series):
    return Page(series.to_html())


@pytest.fixture(scope="module")
def columns_text():
    """A page of columns with bad names."""
    return report(columns_gp(), columns=BAD_COLUMNS, y_name=BAD).to_html()


@pytest.fixture(scope="module")
def columns_page(columns_text):
    return Page(columns_text)


@pytest.mark.parametrize("name", ["series_page", "columns_page"])
def test_page_is_well_formed_and_complete_in_itself(name, request):
    page = request.getfixturevalue(name)
    assert page.faults == []
    assert page.all("html") == [{"lang": "en"}] and {"charset": "utf-8"} in page.all("meta")
    assert any(tag.get("name") == "viewport" for tag in page.all("meta"))
    names = [tag["id"] for _, tag in page.tags if "id" in tag]
    assert len(set(names)) == len(names)
    for link in page.all("a"):
        assert link["href"].removeprefix("#") in names
    assert not page.all("script") and not page.all("link") and not page.all("iframe")
    assert all(tag["src"].startswith("data:image/png;base64,") for tag in page.all("img"))
    assert not any(name.startswith("on") for _, tag in page.tags for name in tag)


@pytest.mark.parametrize("name", ["series_page", "columns_page"])
def test_images_are_figures_with_a_text_of_their_own(name, request):
    images = request.getfixturevalue(name).all("img")
    texts = [image["alt"] for image in images]
    assert all(len(text) > 10 for text in texts) and len(set(texts)) == len(texts)
    for image in images:
        data = base64.b64decode(image["src"].split(",")[1], validate=True)
        assert data.startswith(b"\x89PNG\r\n")
        width, height = struct.unpack(">II", data[16:24])
        assert width >= 800 and height >= 200
        assert len(data) > 3000  # an empty figure of this size has fewer


def test_page_of_a_series_has_its_sections(series, series_page):
    heads = ["Summary", "Components", "Continuation", "Model checking", "The kernel"]
    assert series_page.text("h2") == heads
    assert series_page.text("h1") == series_page.text("title") == ["What was found in sales"]
    titles = [f"{n}. {part.title}" for n, part in enumerate(series.sections, 1)]
    assert series_page.text("h3") == titles
    assert [text for text in series_page.text("li") if "of the variance)" in text] == [
        line.split(". ", 1)[1] for line in series.summary[1:]
    ]
    paragraphs = series_page.text("p")
    assert series.summary[0] in paragraphs
    for part in series.sections:
        assert set(part.sentences) <= set(paragraphs)
    # overview, shares, every component, continuation, four checks
    assert len(series_page.all("img")) == 2 + len(series.sections) + 1 + 4
    assert series_page.text("footer") == [f"Made by gpytorch_nkn {__version__}."]
    assert str(series.expansion) in series_page.text("code")


def test_checks_are_told_in_the_page(series, series_page):
    items = [text.replace("\u00a0", " ") for text in series_page.text("li")]
    for sentence in series.residual_checks.sentences() + series.left_out.sentences():
        assert sentence in items


def test_page_of_columns_has_effects_and_no_continuation(columns_page):
    heads = ["Summary", "Effects of the columns", "Components", "Model checking", "The kernel"]
    assert columns_page.text("h2") == heads
    texts = [image["alt"] for image in columns_page.all("img")]
    assert "Effects of the columns, and of pairs beyond these" in texts


def test_a_network_is_drawn_within_its_scale_and_with_the_names_of_columns(monkeypatch):
    drawn, original = [], plotting.plot_network

    def plot_network(ax, kernel, **options):
        drawn.append((kernel, options["names"]))
        return original(ax, kernel, **options)

    monkeypatch.setattr(plotting, "plot_network", plot_network)
    kernel = ScaleKernel(NeuralKernelNetwork.optimization(2))
    page = Page(report(columns_gp(2, kernel=kernel), columns=("dose", "$age$")).to_html())
    texts = [image["alt"] for image in page.all("img")]
    assert "The network, from its primitives on the left to the kernel on the right" in texts
    assert drawn == [(kernel, ["dose", r"\$age\$"])]


@pytest.fixture(scope="module")
def logarithms_page():
    """Without draws of the function."""
    made = forecaster(np.arange(20.0), np.exp(season(20) / 5), transform="log")
    return Page(report(made, samples=0).to_html())


@pytest.fixture(scope="module")
def bad_names():
    """A page with one draw."""
    names = {"x_name": BAD, "x_unit": BAD, "y_name": BAD, "y_unit": BAD}
    return report(seasonal_gp(20), title=BAD, samples=1, **names).to_html()


def test_draws_are_counted(series_page, logarithms_page, bad_names):
    words = " ".join(logarithms_page.text("p"))
    assert "draw of" not in words and "draws of" not in words
    words = " ".join(Page(bad_names).text("p"))
    assert "Green: 1 draw of the function without noise." in words
    words = " ".join(series_page.text("p"))
    assert "Green: 5 draws of the function without noise, each as plausible" in words


def test_logarithms_have_a_median(logarithms_page):
    assert "Blue: the median and the 95 % band" in " ".join(logarithms_page.text("p"))


def test_names_are_text_whatever_they_hold(bad_names):
    text, page = bad_names, Page(bad_names)
    assert page.faults == [] and not page.all("script")
    assert page.text("h1") == page.text("title") == [BAD]
    assert "<script" not in text and "alert(1)&lt;/script&gt;" in text
    assert "49 }}" not in text


def test_names_of_columns_are_text_too(columns_text, columns_page):
    assert columns_page.faults == [] and not columns_page.all("script")
    assert all(image["src"].startswith("data:") for image in columns_page.all("img"))
    assert set(BAD_COLUMNS) <= set(columns_page.text("td"))
    assert html.escape(BAD_COLUMNS[1]) in columns_text


def test_numbers_in_the_page_are_finite_and_written_out(series_page):
    words = " ".join(text for tag, text in series_page.texts if tag in ("p", "li", "h3", "td"))
    assert not re.search(r"\bnan\b|\binf\b|None|e[+-]0\d|-0\.0 ", words)
