"""The page of a report in headless Chromium (or what CHROME names), if there is one."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest
import torch
from botorch.models import SingleTaskGP

from gpytorch_nkn.interpretation import report, report_search
from tests.interpretation.small_models import columns_gp, seasonal_gp

NAMES = (
    os.environ.get("CHROME", "chromium"), "chromium", "chromium-browser", "google-chrome",
    "google-chrome-stable", "chrome", "microsoft-edge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)  # fmt: skip
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} is installed")

LONG = "Bruttoinlandsprodukt<script>document.title='run'</script> " + "ü" * 80
# what the page says of itself, with everything unfolded
PROBE = """<script>
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(part => part.open = true);
  const root = document.documentElement;
  const past = [...document.querySelectorAll("main *")].filter(
    part => !part.closest(".wide") && part.getBoundingClientRect().right > innerWidth + 1);
  root.dataset.found = JSON.stringify({
    title: document.title, inner: innerWidth, width: root.scrollWidth,
    heads: [...document.querySelectorAll("h2")].map(head => head.textContent),
    heights: [...document.querySelectorAll("h2, h3, p, li, figure")].map(p => p.offsetHeight),
    images: [...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth]),
    past: past.map(part => part.outerHTML.slice(0, 80)),
  });
});
</script>"""


def run(page, folder, *options):
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", *options, path.as_uri(),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result


def look(page, width, folder):
    """What the page says of itself in a frame of a width, and what the console says."""
    page = page.replace("</body>", PROBE + "</body>")
    frame = (
        '<!DOCTYPE html><body style="margin:0"><iframe style="border:0" '
        f'width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe><script>'
        "addEventListener('load', () => document.body.dataset.found ="
        " document.querySelector('iframe').contentDocument.documentElement.dataset.found)"
        "</script>"
    )
    result = run(frame, folder, "--window-size=1200,900", "--dump-dom")
    found = re.search(r'<body[^>]*data-found="([^"]*)"', result.stdout)
    assert found, result.stderr
    return json.loads(html.unescape(found[1])), re.findall(r"CONSOLE.*", result.stderr)


@pytest.fixture(scope="module")
def pages():
    names = (LONG, "b" * 90, "Alter in Jahren")
    return {
        "plain": report(seasonal_gp(), x_unit="yr", y_unit="ppm").to_html(),
        "long": report(
            seasonal_gp(), title=LONG, x_name=LONG, x_unit="x" * 60, y_name=LONG, y_unit="µ" * 60
        ).to_html(),
        "columns": report(columns_gp(), title="Σ", columns=names, y_name=LONG).to_html(),
    }


@pytest.mark.parametrize("width", [390, 1000])
@pytest.mark.parametrize("name", ["plain", "long", "columns"])
def test_page_fits_the_screen_and_shows_all_figures(name, width, pages, tmp_path):
    found, console = look(pages[name], width, tmp_path)
    assert console == []
    assert found["inner"] == width
    assert found["width"] <= width, found["past"]
    assert found["past"] == []
    third = "Effects of the columns" if name == "columns" else "Continuation"
    heads = {"Summary", "Components", third, "Model checking", "The kernel"}
    assert set(found["heads"]) == heads
    # the shares, three effects or the continuation and its components, and the checks
    assert len(found["images"]) == pages[name].count("<img ") >= 3
    for complete, natural, shown in found["images"]:
        assert complete and natural > 800 and shown >= 300
    assert min(found["heights"]) > 0
    assert found["title"] == {"plain": "What was found in the data", "long": LONG}.get(name, "Σ")


@pytest.mark.parametrize("width", [390, 1000])
def test_page_of_a_search_fits_the_screen(width, tmp_path):
    x = torch.rand(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = SingleTaskGP(x, x.sum(-1, keepdim=True).sin())
    page = report_search(model, columns=(LONG, "b" * 90, "Alter in Jahren"), title=LONG).to_html()
    found, console = look(page, width, tmp_path)
    assert console == [] and found["past"] == [] and found["width"] <= width
    assert len(found["images"]) == page.count("<img ") == 5
    assert all(complete for complete, _, _ in found["images"])


def test_probe_notices_a_page_that_is_too_wide_and_a_broken_image(pages, tmp_path):
    wide = '<p style="width:900px">wide</p><img src="data:image/png;base64,AAAA">'
    page = pages["plain"].replace("</main>", f"{wide}<script>nothing()</script></main>")
    found, console = look(page, 390, tmp_path)
    assert found["width"] > 390 and len(found["past"]) >= 1
    assert [image for image in found["images"] if image[1] == 0]
    assert any("nothing is not defined" in line for line in console)


def test_screenshot_is_not_empty(pages, tmp_path):
    image = tmp_path / "page.png"
    run(pages["plain"], tmp_path, "--window-size=1000,2000", f"--screenshot={image}")
    assert image.stat().st_size > 50_000
