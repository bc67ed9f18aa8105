"""The status page in a real browser: a shrink that a group holds up, and what becomes of it, without a reload."""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from modeaware.monitoring.pages import ControllerPages
from modeaware.monitoring.server import MonitoringServer
from tests.conftest import MakeTopic
from tests.support.browser import browser
from tests.support.command_line import Site
from tests.support.plain import produce_keyed
from tests.support.process import LoggedProcess
from tests.support.watched import (
    NAUGHTY,
    Snapshot,
    busy_snapshot,
    keeping_snapshot,
    replacing_snapshot,
    standby_snapshot,
)

DEADLINE_MS = 60_000
NO_PACE = re.compile("not known yet|not falling")
NO_CURVE_TEXT = re.compile("^-?$")
PLACE = re.compile(r"status page at (http:\S+:\d+)/")
QUICK = (
    *("--config", "modeaware.seal.quiet.ms=200"),
    *("--config", "delete.topic.partition.check.interval.ms=1000"),
)


@pytest.fixture
def page() -> Iterator[Page]:
    expect.set_options(timeout=DEADLINE_MS)
    with browser() as running:
        opened = running.new_page()
        opened.set_default_timeout(DEADLINE_MS)
        yield opened
        opened.close()


@pytest.fixture
def watched(site: Site, tmp_path: Path) -> Iterator[tuple[str, LoggedProcess]]:
    """A controller in a process of its own: where its pages are, and the process."""
    command = [sys.executable, "-m", "modeaware", "controller", "--bootstrap-server", site.servers]
    command += ["--command-config", str(tmp_path / "client.properties"), "--http", "127.0.0.1:0", *QUICK]
    process = LoggedProcess(command, tmp_path / "controller.log")
    try:
        process.wait_until_it_says("active: epoch", 60)
        place = PLACE.search(process.said)
        assert place is not None, process.said
        yield place[1], process
    finally:
        process.send_sigterm()
        process.wait(60)


def test_a_drain_from_blocked_to_done(
    site: Site, watched: tuple[str, LoggedProcess], page: Page, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    url, process = watched
    topic, group = make_topic(4), make_group()
    produce_keyed(site.servers, topic, [(b"k%d" % n, b"v%d" % n) for n in range(41)], partition=3)
    site.commit(topic, group, dict.fromkeys(range(4), 0))
    told = site.run("shrink", topic, "--partitions", "1", "--yes", "--delay", "0s")
    assert told.status == 0, told.err

    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    page.evaluate("window.sameDocument = true")
    card = page.locator(f'article[data-topic="{topic}"]')
    row = card.locator("tr", has_text=group)
    expect(row.locator("td")).to_have_text(
        [group, "it has 41 unread records in partitions 3", NO_CURVE_TEXT, NO_PACE, "no members"]
    )
    expect(card.locator(".blocked")).to_contain_text([f"group '{group}' has not read to the seal"])
    expect(card.locator(".blocked code")).to_have_text([f"modeaware groups list {topic}"])
    expect(card.locator(".events li")).to_contain_text(["sealed", "requested"])
    expect(card.locator(".blocked strong")).to_contain_text(["Partition 3 blocked (group-lag) for "])
    expect(card.locator('.cell[title^="3: ReadOnly"]')).to_have_text("R")
    expect(card.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("^Partitions: 0 ReadWrite, .*3 ReadOnly")
    )
    expect(page.locator("#live")).to_have_text("live")
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    assert f'modeaware_topic_unread_offsets{{topic="{topic}"}} 41.0' in metrics
    assert f'modeaware_topic_blocked_seconds{{reason="group-lag",topic="{topic}"}}' in metrics

    site.commit(topic, group, {3: 41})
    expect(page.locator(f'#done [data-topic="{topic}"][data-phase="done"]')).to_contain_text("1 of 4 writable")
    expect(card).to_have_count(0)
    assert page.evaluate("window.sameDocument") is True
    assert errors == []

    process.send_sigterm()
    assert process.wait(60) == 0
    expect(page.locator("#live")).to_contain_text("stale: no response for ")
    expect(page.locator("body")).to_have_class("stale")


@contextmanager
def served(page: Page, snapshot: Callable[[], Snapshot], width: int) -> Iterator[None]:
    """The page of a snapshot, without an error in its script."""
    server = MonitoringServer("127.0.0.1:0", ControllerPages(snapshot))
    server.start()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        page.set_viewport_size({"width": width, "height": 640})
        page.goto(f"http://{server.address}/")
        yield
        assert errors == []
    finally:
        page.goto("about:blank")
        server.stop()


CLIPPED = """[...document.querySelectorAll("main *")]
    .filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 1 && !e.closest("thead")).map((e) => e.className)"""


@pytest.mark.parametrize("width", [1280, 400])
def test_a_replacement_is_drawn_with_its_steps_and_both_topics(page: Page, width: int) -> None:
    with served(page, replacing_snapshot, width):
        card = page.locator('article[data-topic="orders"]')
        expect(card.locator(".steps li")).to_have_text(["create", "announce", "seal", "drain", "reclaim", "done"])
        expect(card.locator("[aria-current=step]")).to_have_text("drain")
        expect(card.locator(".side h4")).to_have_text(["orders", "orders-v2"])
        expect(card.locator(".side").first.locator(".cell")).to_have_count(12)
        expect(card.locator(".side").last.locator(".cell.rw")).to_have_count(4)
        expect(card.locator(".side").last).to_contain_text("4 partitions, takes writes; its gate is closed to 1 group")
        closed = "gate closed: it has 1 200 unread records in partitions 0-11"
        expect(card.locator("td.left")).to_have_text([closed, "-"])
        expect(card.locator("td:last-child")).to_have_text(["running", "gate open, running"])
        expect(card).to_contain_text(re.compile(r"Checked \d+ s ago; the next check is due in \d+ s"))
        expect(card).to_contain_text("9 600 of 10 800 records read")
        expect(card.locator("svg.curve")).to_have_attribute("aria-label", re.compile("1 200 at the last check"))
        expect(card.locator(".events li")).to_contain_text(["sealed", "fenced", "switched", "announced", "requested"])
        prepare = "modeaware groups prepare audit --topic payments-v2"
        expect(page.locator('article[data-topic="payments"] code')).to_have_text(prepare)
        alias = page.locator('#done [data-topic="clicks"]')
        expect(alias).to_contain_text("clicks → clicks-v2")
        expect(alias.locator(".cell")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CLIPPED) == []


@pytest.mark.parametrize("width", [1280, 400])
def test_a_change_that_keeps_a_name_is_one_card_with_that_name_and_both_switches(page: Page, width: int) -> None:
    with served(page, keeping_snapshot, width):
        card = page.locator("#topics article")
        expect(card).to_have_count(1)
        expect(card.locator("h3")).to_have_text("orders")
        expect(card).to_contain_text(
            re.compile(r"Half 2 of 2: first switch \S+, old topic deleted \S+, second switch \S+")
        )
        expect(card.locator(".side h4").last).to_have_text("orders")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CLIPPED) == []


def test_a_standby_links_to_the_page_of_the_active_controller(page: Page) -> None:
    with served(page, standby_snapshot, 400):
        expect(page.locator("#controllers a")).to_have_attribute("href", "http://example.com:9404/")
        expect(page.locator("#topics")).to_be_hidden()


def test_names_become_no_markup_and_a_phone_shows_it_all(page: Page) -> None:
    with served(page, busy_snapshot, 360):
        expect(page.locator('article[data-topic="orders"] td.name')).to_contain_text(["billing", NAUGHTY, "audit"])
        assert page.locator("main img").count() == 0
        assert page.evaluate("window.hit") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate(CLIPPED) == []
        assert page.locator("article h3").all_text_contents() == ["grown", "orders", "clicks"]
        expect(page.locator('article[data-topic="clicks"] .cell')).to_have_count(128)
