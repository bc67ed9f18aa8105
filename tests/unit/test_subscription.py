"""What a member subscribes to, and which topics it shows, as a function of views and names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from modeaware.clients.subscription import Gate, Reader, read
from modeaware.modes import PartitionMode
from modeaware.topic_view import Moved, ReplacedBy, TopicView

USER = frozenset({"g"})
MOVED = Moved(groups=USER)


def matches(pattern: str, topic: str) -> bool | None:
    return None if "[:" in pattern else re.search(pattern, topic) is not None


def replaced(topic: str, new: str, *, topic_id: str = "", new_id: str = "", **state: Any) -> TopicView:
    given: dict[str, Any] = {"switched": True, "groups": USER, **state}
    new_topic = ReplacedBy(new, new_id or f"id-{new}", 1, **given)
    return TopicView(topic, topic_id or f"id-{topic}", (1, 1), (PartitionMode.READ_ONLY,), replaced_by=new_topic)


AB, BC = replaced("a", "b"), replaced("b", "c")
AB_MOVED, BC_MOVED = replaced("a", "b", moved=MOVED), replaced("b", "c", moved=MOVED)
RELEASED = replaced("a", "b", moved=MOVED, released=True)
LATE = replaced("a", "b", groups=frozenset())
BACK = (  # orders, interim, and orders again
    replaced("orders", "interim", topic_id="id-1", new_id="id-2", gone=True),
    replaced("interim", "orders", topic_id="id-2", new_id="id-3"),
)


@pytest.mark.parametrize(
    ("names", "views", "topics", "left_out"),
    [
        (("a",), (), ("a",), ()),
        (("a",), (AB,), ("a", "b"), ()),
        (("a",), (AB, BC), ("a", "b", "c"), ()),
        (("b",), (AB,), ("b",), ()),
        (("a",), (RELEASED,), ("b",), ()),
        (("a",), (replace(RELEASED, replaced_by=replace(RELEASED.replaced_by, moved=Moved())),), ("a", "b"), ()),
        (("a",), (AB_MOVED,), ("a", "b"), ()),
        (("a",), (replaced("a", "b", gone=True),), ("b",), ()),
        (("^a",), (AB,), ("^a", "b"), ()),
        (("^[ab]$",), (AB,), ("^[ab]$",), ()),
        (("^a",), (RELEASED,), ("^a", "b"), ("a",)),
        (("^x",), (AB,), ("^x",), ()),
        (("^[[:alpha:]]$",), (AB,), ("^[[:alpha:]]$",), ()),
        (("orders",), BACK, ("interim", "orders"), ()),
    ],
)  # fmt: skip
def test_topics_of_a_subscription(
    names: tuple[str, ...], views: tuple[TopicView, ...], topics: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    reading = read(Reader("g", names, matches), {view.topic: view for view in views})
    assert (reading.topics, reading.left_out) == (topics, frozenset(left_out))


def test_member_that_reads_what_it_names_follows_no_chain() -> None:
    reading = read(Reader("g", ("a",), matches, "named"), {"a": AB})
    assert (reading.topics, reading.gate("b")) == (("a",), Gate.CLOSED)


@pytest.mark.parametrize(
    ("names", "views", "topic", "gate"),
    [
        (("a",), (), "a", Gate.ABSENT),
        (("a",), (AB,), "a", Gate.ABSENT),
        (("a",), (AB,), "b", Gate.CLOSED),
        (("a",), (AB_MOVED,), "b", Gate.OPEN),
        (("a",), (replaced("a", "b", moved=Moved(all=True)),), "b", Gate.OPEN),
        (("a",), (replaced("a", "b", released=True),), "b", Gate.CLOSED),  # a release opens no gate
        (("a",), (replaced("a", "b", gone=True),), "b", Gate.OPEN),
        (("a",), (AB, BC_MOVED), "c", Gate.CLOSED),  # all topics before it count
        (("a",), (AB_MOVED, BC), "c", Gate.CLOSED),
        (("a",), (AB_MOVED, BC_MOVED), "c", Gate.OPEN),
        (("a",), (replaced("a", "b", gone=True), BC_MOVED), "c", Gate.OPEN),
        (("b",), (AB,), "b", Gate.CLOSED),  # the group uses the old topic
        (("b",), (LATE,), "b", Gate.OPEN),
        (("a", "b"), (LATE,), "b", Gate.CLOSED),
        (("^b",), (LATE,), "b", Gate.OPEN),
        (("^[ab]",), (LATE,), "b", Gate.CLOSED),
        (("^[[:alpha:]]",), (LATE,), "b", Gate.CLOSED),  # it may match the old topic
        (("b",), (replaced("a", "b", groups=frozenset(), groups_complete=False),), "b", Gate.CLOSED),
        (("b",), (replaced("a", "b", groups=frozenset(), switched=False),), "b", Gate.CLOSED),  # not known before
        (("orders",), BACK, "orders", Gate.CLOSED),
        (("orders",), BACK, "interim", Gate.OPEN),  # it does not wait for itself
        (("orders",), (BACK[0], replace(BACK[1], replaced_by=replace(BACK[1].replaced_by, groups=frozenset()))),
         "orders", Gate.CLOSED),  # its name means the first topic, from which its chain leads by the interim one
        (("a",), (RELEASED,), "a", Gate.LEFT),
        (("a",), (AB_MOVED,), "a", Gate.ABSENT),
        (("a",), (), "b", Gate.UNNAMED),
        (("^b",), (), "b", Gate.ABSENT),
    ],
)  # fmt: skip
def test_gate_of_a_topic(names: tuple[str, ...], views: tuple[TopicView, ...], topic: str, gate: Gate) -> None:
    assert read(Reader("g", names, matches), {view.topic: view for view in views}).gate(topic) is gate


def test_consumer_without_a_group_passes_what_it_has_read_itself() -> None:
    reader = Reader("", ("a",), matches)
    assert read(reader, {"a": AB_MOVED}).gate("b") is Gate.CLOSED
    assert read(replace(reader, passed=frozenset({"id-a"})), {"a": AB}).gate("b") is Gate.OPEN
    assert read(replace(reader, names=("b",)), {"a": AB}).gate("b") is Gate.OPEN


def test_unordered_member_has_no_closed_gate() -> None:
    assert read(Reader("g", ("a",), matches, "unordered"), {"a": AB}).gate("b") is Gate.OPEN


def test_logical_names_are_the_earliest_ones_that_are_subscribed_to() -> None:
    views = {"a": AB, "b": BC}
    assert read(Reader("g", ("a",), matches), views).logical == {"b": "a", "c": "a"}
    assert read(Reader("g", ("a", "c"), matches), views).logical == {"b": "a"}
    assert read(Reader("g", ("b",), matches), views).logical == {"c": "b"}


def test_another_topic_of_the_new_topics_name_has_no_gate() -> None:
    views = {"a": AB, "b": TopicView("b", "another", (1, 1), (PartitionMode.READ_WRITE,))}
    reading = read(Reader("g", ("a",), matches), views)
    assert (reading.topics, reading.old) == (("a",), {})


def test_modes_of_a_deleted_topic_do_not_apply_to_a_later_topic_of_its_name() -> None:
    reading = read(Reader("g", ("orders",), matches), {view.topic: view for view in BACK})
    assert (reading.view("orders").modes, reading.topic_id("orders")) == ((), "id-3")
