"""Walking a chain of topics, forwards and back; one that leads back to its first name."""

from __future__ import annotations

from modeaware.chain import chain_views, logical_topic, old_topics, read_topics, topics_before
from modeaware.lifecycle.alias import chain_of, earlier_topic_of, is_rename_back
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modes import PartitionMode


def replaced(topic: str, topic_id: str, new_topic: str, new_topic_id: str, *, gone: bool = False) -> TopicRecord:
    now = Replacement(new_topic, 1, 0, new_topic_id=new_topic_id, switched_ms=1, gone_ms=2 if gone else None)
    return TopicRecord(topic, topic_id, 1, 1, (PartitionMode.READ_ONLY,), replacement=now)


FIRST = replaced("orders", "id-1", "interim", "id-2", gone=True)
SECOND = replaced("interim", "id-2", "orders", "id-3")
VIEWS = {"orders": FIRST.view(), "interim": SECOND.view()}


def test_a_chain_that_leads_back_to_its_name_is_walked_by_ids_to_both_ends() -> None:
    assert [view.topic_id for view in chain_views("orders", VIEWS.__getitem__)] == ["id-1", "id-2", "id-3"]
    assert read_topics("orders", VIEWS.__getitem__, lambda view: True) == ["orders", "interim", "orders"]
    before = old_topics(VIEWS)
    assert [view.topic_id for view in topics_before("orders", before)] == ["id-2", "id-1"]
    assert [view.topic_id for view in topics_before("interim", before)] == ["id-1"], "not itself"
    assert logical_topic("interim", lambda name: name == "orders", before) == "orders"


def test_a_chain_that_leads_in_a_circle_ends() -> None:
    """No controller writes such records."""
    circle = {"a": replaced("a", "id-a", "b", "id-b").view(), "b": replaced("b", "id-b", "a", "id-a").view()}
    assert [view.topic for view in chain_views("a", circle.__getitem__)] == ["a", "b"]
    assert read_topics("b", circle.__getitem__, lambda view: True) == ["b", "a"]
    assert [view.topic for view in topics_before("a", old_topics(circle))] == ["b", "a"]


def test_records_are_walked_past_topics_that_are_gone() -> None:
    third = replaced("orders", "id-3", "last", "id-4")
    gone = replaced("interim", "id-2", "orders", "id-3", gone=True)
    chain = chain_of([FIRST, gone, third])
    assert earlier_topic_of("id-4", chain) == "orders"
    assert earlier_topic_of("id-3", chain) is None
    first = replaced("orders", "id-1", "interim", "id-2")
    assert earlier_topic_of("id-3", chain_of([first, gone])) == "orders", "one between them was deleted by hand"
    assert earlier_topic_of(None, chain) is None


def test_the_way_back_is_found_through_the_chain() -> None:
    third = replaced("orders-v3", "id-3", "last", "id-4")
    second = replaced("interim", "id-2", "orders-v3", "id-3")
    command = ReplaceTopicCommand("last", "orders", 1)
    assert is_rename_back(command, "id-4", FIRST, [FIRST, second, third])
    assert not is_rename_back(command, "id-5", FIRST, [FIRST, second, third])
