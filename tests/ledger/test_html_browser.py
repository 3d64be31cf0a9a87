"""The page in a real browser: figures as in the JSON, no error, no sideways scrolling, both schemes, no script."""

import json
import shutil

import pytest
from pages import eventful_run

from argosy.ledger.html.page import write_page
from argosy.ledger.report import build_report

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=PATIENCE_MS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    report = build_report(eventful_run(folder / "run").path)
    write_page(report, folder / "report.html")
    return report, folder / "report.html"


def open_page(browser, file, said, **how):
    page = browser.new_context(**how).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else said.append(request.url))
    page.goto(file.as_uri())
    return page


def test_figures_errors_widths_and_schemes(browser, written):
    report, file = written
    said, grounds = [], set()
    for width, scheme in ((400, "light"), (900, "dark"), (1400, "light")):
        page = open_page(browser, file, said, viewport={"width": width, "height": 800}, color_scheme=scheme)
        across = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert across[0] <= across[1], f"{width} px scrolls sideways"
        grounds.add((scheme, page.evaluate("getComputedStyle(document.body).backgroundColor")))
        texts = page.evaluate(OVERLAPPING_TEXTS)
        assert texts == [], f"texts overlap at {width} px"
    assert len(grounds) == 2, "the two schemes look the same"
    rows = page.evaluate(ACCOUNT_ROWS)
    assert {row["account"]: int(row["ns"]) for row in rows if "." in row["account"]} == {
        name: line.ns for name, line in report.accounts.items()
    }
    for row in rows:
        assert row["shown"] == f"{int(row['ns']) / 1e9:,.1f}"
    embedded = page.evaluate("JSON.parse(document.getElementById('report').textContent)")
    assert embedded == json.loads(json.dumps(report.to_json()))
    assert page.title().startswith(report.run.name)
    assert said == []


def test_it_is_whole_without_script(browser, written):
    report, file = written
    page = open_page(browser, file, [], java_script_enabled=False)
    assert report.verdict.headline in page.inner_text("#verdict")
    assert page.locator("svg").count() > 20
    assert page.locator("#attempts tbody tr").count() == len(report.attempts)


ACCOUNT_ROWS = """[...document.querySelectorAll('tr[data-account]')].map(row => ({
  account: row.dataset.account, ns: row.querySelector('data').value, shown: row.querySelector('data').textContent }))"""

OVERLAPPING_TEXTS = """[...document.querySelectorAll('svg.chart')].flatMap(chart => {
  const boxes = [...chart.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) =>
    p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3).map(([b]) => [a, b]));
})"""
