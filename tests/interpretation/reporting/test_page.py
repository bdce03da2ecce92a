from html.parser import HTMLParser

import pytest

from gpytorch_nkn.interpretation import report
from tests.interpretation.small_models import columns_gp, seasonal_gp

VOID = {"meta", "img", "br", "link", "hr"}
BAD = "<script>alert(1)</script> \"'&amp; $x$ $ {{ 7 * 7 }} {% raw %} é μ ж"
BAD_COLUMNS = (BAD, "<img src=x onerror=alert(1)>")


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


def series_text():
    names = {"columns": [BAD], "x_unit": BAD, "y_name": BAD, "y_unit": BAD}
    return report(seasonal_gp(20), title=BAD, **names).to_html()


def columns_text():
    return report(columns_gp(2), columns=BAD_COLUMNS, y_name=BAD).to_html()


@pytest.mark.usefixtures("few_iterations")
@pytest.mark.parametrize("make", [series_text, columns_text])
def test_page_is_well_formed_and_complete_in_itself_whatever_names_hold(make):
    text = make()
    page = Page(text)
    assert page.faults == []
    assert page.all("html") == [{"lang": "en"}] and {"charset": "utf-8"} in page.all("meta")
    assert any(tag.get("name") == "viewport" for tag in page.all("meta"))
    names = [tag["id"] for _, tag in page.tags if "id" in tag]
    assert len(set(names)) == len(names)
    for link in page.all("a"):
        assert link["href"].removeprefix("#") in names
    assert not page.all("script") and not page.all("link") and not page.all("iframe")
    assert all(tag["src"].startswith("data:image/png;base64,") for tag in page.all("img"))
    texts = [tag["alt"] for tag in page.all("img")]
    assert all(len(text) > 10 for text in texts) and len(set(texts)) == len(texts)
    assert not any(name.startswith("on") for _, tag in page.tags for name in tag)
    assert "<script" not in text and "49 }}" not in text
    if make is series_text:
        assert page.text("h1") == page.text("title") == [BAD]
        assert "alert(1)&lt;/script&gt;" in text
