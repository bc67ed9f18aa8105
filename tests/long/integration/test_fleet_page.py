"""The page of ``modeaware plan --all`` in a real browser: on a desk and on a phone; its search, and rows that open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from modeaware.plan.fleet import Fleet, Sizing, make_fleet_plan
from modeaware.plan.html import fleet_html
from tests.support.browser import browser
from tests.unit.test_plan_fleet import WEEK, fleet, held, topic

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


def test_names_become_no_markup(opened: Page, tmp_path: Path) -> None:
    file = tmp_path / "fleet.html"
    plan = make_fleet_plan(Fleet([topic(groups=held(**{NAUGHTY: 0}))], WEEK), Sizing())
    file.write_text(fleet_html(plan), encoding="utf-8")
    opened.goto(file.as_uri())
    opened.locator("summary").click()
    expect(opened.locator("details")).to_contain_text(re.compile(re.escape(f"Groups, and their members: {NAUGHTY}")))
    assert opened.evaluate("window.hit") is None
