"""The page without a browser: every figure of the report is in it, nothing is loaded, text cannot break out."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import HOSTILE, eventful_run
from test_report_command import argosy

from argosy.ledger.html.chart import HEIGHT, TOP, WIDTH, Level, Series, line_chart
from argosy.ledger.html.markup import Markup, el
from argosy.ledger.html.page import page
from argosy.ledger.html.scale import padded, spread, ticks
from argosy.ledger.html.strip import columns
from argosy.ledger.report import build_report

SIZES = st.floats(-1e12, 1e12)


class Reader(HTMLParser):
    """Tables as rows of cells, exact values of `data` elements, and what is not closed."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.values, self.open, self.wrong = {}, [], [], []
        self.row, self.texts = None, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag == "tr":
            self.row = named.get("data-account")
        if tag == "data":
            self.values.append((self.row, named["value"]))
        self.wrong += [(tag, name) for name, value in attributes if name in ("src", "onload", "onerror")]
        if tag == "link" and named["href"] != "data:,":
            self.wrong.append((tag, named["href"]))
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return build_report(eventful_run(tmp_path_factory.mktemp("page") / "run").path)


def test_every_account_is_there_to_the_nanosecond(report):
    reader = Reader(page(report))
    assert reader.open == []
    assert reader.wrong == []
    values = set(reader.values)
    for name, line in report.accounts.items():
        assert (name, str(line.ns)) in values
        assert (name, line.money) in values
    for layer, line in report.layers.items():
        assert (layer, str(line.ns)) in values
    assert ("paid", str(report.paid_ns)) in values
    everywhere = {value for _, value in reader.values}
    for point in report.eval_curve:
        assert {str(point.loss), str(point.bits_per_byte), str(point.paid_ns)} <= everywhere
    for row in report.attempts:
        assert {str(row.paid_ns), *map(str, row.phases.values())} <= everywhere
    for fates in report.crosstab.values():
        assert {str(ns) for ns in fates.values() if ns} <= everywhere


def test_it_is_readable_without_script(report):
    text = " ".join(Reader(page(report)).texts)
    for words in (
        report.verdict.headline,
        report.verdict.do,
        "gzip -9",
        "attempt 2",
        "killed by SIGKILL",
        "lost failure",
    ):
        assert words in text


def test_the_embedded_report_is_the_json(report):
    (script,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', page(report), re.DOTALL)
    assert json.loads(script) == json.loads(json.dumps(report.to_json()))


def test_text_of_a_model_stays_text(report):
    text = page(report)
    assert HOSTILE not in text
    assert "<img" not in text
    assert "\x1b" not in text
    assert text.count("<script") == text.count("</script") == 1
    assert not re.search(r"https?://(?!www\.w3\.org)", text.split("</style>")[1].split("<script")[0])


def test_it_is_small(report):
    assert len(page(report)) < 150_000


def test_a_run_that_has_only_begun(tmp_path):
    from growing_run import GrowingRun

    run = GrowingRun(tmp_path / "run", price=None)
    run.begin(0)
    reader = Reader(page(build_report(run.path)))
    assert reader.open == []
    assert "undetermined" in " ".join(reader.texts)


def test_the_door_writes_the_page(tmp_path, capsys):
    run = eventful_run(tmp_path / "run")
    code, out, err = argosy(capsys, "report", str(run.path), "--html")
    assert (code, out.strip(), err) == (0, f"written: {run.path / 'report.html'}", "")
    argosy(capsys, "report", str(run.path), "--html", str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").read_text() == (run.path / "report.html").read_text()
    assert argosy(capsys, "report", str(run.path), str(tmp_path / "page.html"))[0] == 64
    assert argosy(capsys, "report", str(tmp_path), "--html")[0] == 64
    code, _, err = argosy(capsys, "report", str(run.path), "--html", str(tmp_path / "no" / "page.html"))
    assert (code, err.count("\n")) == (66, 1)


# -- the parts ---------------------------------------------------------------------------------------


def test_markup_escapes_text_and_attributes():
    made = el("p", "<b>", Markup("<i>x</i>"), None, ["&", 1], title='"<', class_="a")
    assert made == '<p title="&quot;&lt;" class="a">&lt;b&gt;<i>x</i>&amp;1</p>'


@given(SIZES, SIZES, st.integers(1, 12))
def test_ticks_are_few_round_and_inside(a, b, most):
    low, high = sorted((a, b))
    found = ticks(low, high, most)
    assert 1 <= len(found) <= max(most, 1)
    air = (high - low) * 1e-6
    assert all(low - air <= value <= high + air for value in found)


@given(st.lists(st.floats(-50, 150), max_size=12), st.floats(1, 20))
def test_labels_keep_their_distance(places, least):
    moved = spread(places, least, 0.0, 100.0)
    ordered = sorted(moved)
    room = min(least, 100 / max(len(places) - 1, 1))
    assert all(b - a >= room - 1e-6 for a, b in pairwise(ordered))
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in moved)
    assert [sorted(places)[i] for i in range(len(places))] == [
        places[i] for i in sorted(range(len(places)), key=lambda i: (moved[i], places[i]))
    ]


def test_labels_that_do_not_touch_stay():
    assert spread([10.0, 50.0, 30.0], 15, 0, 100) == [10.0, 50.0, 30.0]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=5))
def test_padding_is_never_empty(values):
    low, high = padded(values)
    assert low < min(values) or high > max(values)
    assert low < high


@pytest.mark.parametrize(
    "points",
    [
        [(0, 1.0)],
        [(5, 2.0), (5, 2.0)],
        [(0, 1e-9), (1e9, 1e9)],
        [(1, float("nan")), (2, 1.0), (3, float("inf"))],
        [(float(i), 5.0 / (i + 1)) for i in range(200)],
    ],
)
def test_charts_draw_inside_their_frame(points):
    chart = line_chart(
        "t",
        [Series("one", points, "train"), Series("two", points, "eval", dots=True)],
        x_title="x",
        y_title="y",
        x_format=lambda value: f"{value:,.0f}",
        y_format=lambda value: f"{value:.2f}",
        levels=[Level("other", 1.0)],
    )
    numbers = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", chart)]
    assert numbers
    assert all(0 <= x <= WIDTH and TOP - 1 <= y <= HEIGHT for x, y in numbers)
    assert "nan" not in chart
    heights = [float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)" class="name', chart)]
    assert len(heights) == 3
    assert all(b - a >= 12 for a, b in pairwise(sorted(heights)))


def test_nothing_to_draw_is_no_chart():
    empty = line_chart(
        "t", [Series("one", [(0, float("nan"))], "train")], x_title="", y_title="", x_format=str, y_format=str
    )
    assert empty == ""


def test_columns_stack_from_the_bottom():
    drawn = columns([("useful", "a", [0.25, 1.0]), ("comm", "b", [0.75, 0.0])])
    assert "M0.0 100.00V75.00h500.00V100.00z" in drawn
    assert "M0.0 75.00V0.00h500.00V75.00z" in drawn
    assert drawn.count("M") == 3, "a column without height is not drawn"
