"""The pages of ``modeaware plan`` in a real browser: on a desk and on a phone; their charts, the fleet's search, and
rows that open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from modeaware.plan.fleet import Fleet, Sizing, make_fleet_plan
from modeaware.plan.html import fleet_html, plan_html
from tests.support.browser import browser
from tests.unit.test_plan_fleet import WEEK, fleet, held, topic
from tests.unit.test_plan_report import planned

BARS_BY_COLUMN = """
[...document.querySelectorAll("table")].flatMap(table => {
  const lines = {};
  for (const bar of table.querySelectorAll(".bar"))
    (lines[bar.closest("td").cellIndex] ??= new Set()).add(bar.getBoundingClientRect().x);
  return Object.values(lines).map(of => of.size);
})"""
"""How many different x the bars of each column begin at."""
LABELS_TO_SEE = """
[...document.querySelectorAll(".chart .x, .chart .y")].map(axis => {
  const boxes = [...axis.children].map(label => {
    const range = document.createRange();
    range.selectNodeContents(label);
    return range.getBoundingClientRect();
  });
  const inside = box => box.width > 0 && box.left >= 0 && box.right <= window.innerWidth;
  const apart = (a, b) => a.right < b.left || b.right < a.left || a.bottom <= b.top || b.bottom <= a.top;
  return boxes.every((box, n) => inside(box) && boxes.slice(n + 1).every(other => apart(box, other)));
})"""
"""For each axis, whether all its labels are on the page and apart."""
NAUGHTY = "<img src=x onerror='window.hit=1'>"


@pytest.fixture(scope="module")
def opened() -> Iterator[Page]:
    expect.set_options(timeout=60_000)
    with browser() as running:
        page = running.new_page()
        page.set_default_timeout(60_000)
        yield page
        page.close()


@pytest.mark.parametrize("width", [1_280, 400])
def test_the_page_fits_and_its_table_is_searched_and_opened(opened: Page, tmp_path: Path, width: int) -> None:
    file = tmp_path / "fleet.html"
    file.write_text(fleet_html(fleet()), encoding="utf-8")
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(message.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.set_viewport_size({"width": width, "height": 800})
    opened.goto(file.as_uri())
    expect(opened.locator("h1")).to_have_text("6 topics, 140 partition replicas")
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "tables scroll by themselves"
    expect(opened.get_by_role("img")).to_have_attribute("aria-label", "Replicas that the first topics free, of 140")
    curve = opened.locator("svg path").bounding_box()
    assert curve is not None
    assert curve["width"] > 0.8 * min(width, 1_280) - 100

    rows = opened.locator("#topics tbody tr")
    expect(rows.locator("visible=true").locator("summary")).to_have_text(
        ["big", "read", "123", "small", "unused", "full"]
    )
    opened.get_by_label("Search topics").fill("REPLACE BIG")
    expect(rows.filter(visible=True).locator("summary")).to_have_text(["big"])
    why = opened.get_by_text("modeaware replace big --keep-name --partitions 3")
    expect(why).to_be_hidden()
    opened.locator("summary", has_text="big").click()
    expect(why).to_be_visible()
    opened.get_by_label("Search topics").fill("")
    expect(rows.filter(visible=True)).to_have_count(6)
    assert errors == []


@pytest.mark.parametrize("width", [1_280, 400])
def test_bars_begin_at_one_line_and_axes_have_labels(opened: Page, tmp_path: Path, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    many = make_fleet_plan(Fleet([topic(f"t{n}", 240) for n in range(1_300)], WEEK), Sizing(most_on_broker=2_000))
    pages = {
        plan_html(planned("murmur2", 5)): ([1, 1], 4),  # the shares of each hash; the keys that move to each target
        plan_html(planned("own", 200, count=300)): ([1], 2),
        fleet_html(fleet()): ([1, 1], 2),  # replicas of brokers before, and after
        fleet_html(many): ([1, 1], 2),
    }
    file = tmp_path / "page.html"
    for page, (begins, axes) in pages.items():
        file.write_text(page, encoding="utf-8")
        opened.goto(file.as_uri())
        assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert opened.evaluate(BARS_BY_COLUMN) == begins
        assert opened.evaluate(LABELS_TO_SEE) == [True] * axes


def test_names_become_no_markup(opened: Page, tmp_path: Path) -> None:
    file = tmp_path / "fleet.html"
    plan = make_fleet_plan(Fleet([topic(groups=held(**{NAUGHTY: 0}))], WEEK), Sizing())
    file.write_text(fleet_html(plan), encoding="utf-8")
    opened.goto(file.as_uri())
    opened.locator("summary").click()
    expect(opened.locator("details")).to_contain_text(re.compile(re.escape(f"Groups, and their members: {NAUGHTY}")))
    assert opened.evaluate("window.hit") is None
