"""The page of a simulation in a real browser: no error, nothing loaded, no sideways scrolling, whole without script."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from courses import JOB, OFTEN

from argosy.simulator.answer import Question, answer
from argosy.simulator.failures import DAY_S
from argosy.simulator.job import Price
from argosy.simulator.page import write_page
from argosy.simulator.scenario import Scenario

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=PATIENCE_MS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    scenario = Scenario(replace(JOB, prices=(Price(Fraction(2)),)), OFTEN, 5 * DAY_S)
    knobs: dict[str, list[float | str]] = {"spares": [0.0, 8.0, 999.0]}
    write_page(answer(scenario, Question(replications=8, knobs=knobs, studied=True, budget=1e6)), file)
    return file


@pytest.mark.parametrize("script", [True, False])
def test_it_is_whole_at_every_width(browser: Any, page_file: Path, script: bool) -> None:
    said: list[str] = []
    asked: list[str] = []
    page = browser.new_context(java_script_enabled=script).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for width in (360, 760, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(page_file.as_uri())
        box = page.locator("main").bounding_box()
        assert box is not None
        assert box["width"] <= width, "the page is wider than the window"
    for words in ("What it hangs on", "What things are worth", "Policies compared", "Assumed", "999"):
        assert words in page.inner_text("main")
    assert page.locator("#over-time tbody tr").count() == 5
    assert page.locator("#tornado tbody tr").count() == 7
    assert said == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
