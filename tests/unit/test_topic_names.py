"""Messages of the new topic under the name that was subscribed to, and their offsets where they belong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from modeaware.chain import logical_topic, old_topics
from modeaware.confluent.consumer import Consumer
from modeaware.confluent.names import LogicalNames, physical_topic
from modeaware.topic_view import ReplacedBy, TopicView
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import is_librdkafkas_own

NOWHERE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
LOGICAL = {**NOWHERE, "modeaware.topic.names": "logical"}
A = TopicView("a", "id-a", (1, 1), modes_of(2, 2), replaced_by=ReplacedBy("b", "id-b", 2, switched=True))
B = TopicView("b", "id-b", (1, 1), modes_of(2, 2), replaced_by=ReplacedBy("c", "id-c", 1, switched=True))


class Stock:
    """Keeps what it is called with, as a client's methods are."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def commit(self, client: None, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        return "committed"

    store_offsets = commit


def message(topic: str, offset: int = 7, error: KafkaError | None = None) -> Any:
    return Message(topic=topic, partition=1, offset=offset, key=b"k", value=b"", error=error)


def named(stock: Stock) -> LogicalNames:
    names = LogicalNames(stock.commit, stock.store_offsets, renames=True)
    assert names.follow({"b": "a"})
    return names


@pytest.mark.parametrize(
    ("topic", "subscribed", "logical"),
    [("b", "a", "a"), ("c", "a", "a"), ("c", "ab", "a"), ("c", "b", "b"), ("c", "", "c"), ("x", "a", "x")],
)
def test_logical_topic_is_the_earliest_of_the_chain_that_is_subscribed_to(
    topic: str, subscribed: str, logical: str
) -> None:
    assert logical_topic(topic, lambda name: name in subscribed, old_topics({"a": A, "b": B})) == logical


def test_chain_that_leads_back_to_its_name_ends() -> None:
    assert B.replaced_by is not None
    back = replace(B, replaced_by=replace(B.replaced_by, topic="a", topic_id="id-a"))
    assert logical_topic("b", lambda name: name == "a", old_topics({"a": A, "b": back})) == "a"


def test_renamed_message_is_committed_where_its_record_is() -> None:
    stock = Stock()
    names = named(stock)
    own, first, other = message("a"), message("b"), message("x")
    names.rename([own, first, other])
    assert [each.topic() for each in (own, first, other)] == ["a", "a", "x"]
    assert [physical_topic(each) for each in (own, first, other)] == ["a", "b", "x"]
    names.forget()  # whatever becomes of the subscription meanwhile
    assert names.commit.call(None, first, asynchronous=False) == "committed"
    assert names.store_offsets.call(None, message=first) == "committed"
    names.commit.call(None, message=own)
    at = TopicPartition("b", 1, 8)
    assert stock.calls == [
        ((), {"offsets": [at], "asynchronous": False}),
        ((), {"offsets": [at]}),
        ((), {"message": own}),
    ]
    assert [p.offset for _, given in stock.calls[:2] for p in given["offsets"]] == [8, 8], "not part of their equality"


def test_message_with_an_error_is_left_to_librdkafka() -> None:
    stock = Stock()
    names = named(stock)
    at_end = message("b", error=KafkaError(KafkaError._PARTITION_EOF))
    names.rename(at_end)
    assert at_end.topic() == "a"
    names.commit.call(None, message=at_end)
    assert stock.calls == [((), {"message": at_end})]


def test_offset_for_a_name_of_two_topics_is_refused_once_it_is_ambiguous() -> None:
    stock = Stock()
    names = named(stock)
    names.commit.call(None, offsets=[TopicPartition("a", 1, 8)])
    names.rename(message("b"))
    for call in (names.commit.call, names.store_offsets.call):
        with pytest.raises(KafkaException, match=r"a: .* ambiguous.*commit\(message") as refused:
            call(None, offsets=[TopicPartition("x", 1, 8), TopicPartition("a", 1, 8)])
        assert refused.value.args[0].code() == KafkaError._INVALID_ARG
    names.commit.call(None, offsets=[TopicPartition("b", 1, 8)])
    names.commit.call(None)
    assert len(stock.calls) == 3


def test_nothing_is_between_until_a_topic_of_the_subscription_is_replaced(views: FakeViews) -> None:
    with Consumer(LOGICAL) as consumer:
        consumer.subscribe(["a"])
        consumer.poll(0)
        views.put(replace(A, topic="other"))
        consumer.poll(0)
        for name in ("poll", "consume", "commit", "store_offsets"):
            assert is_librdkafkas_own(getattr(consumer, name))
        views.put(A)
        assert is_librdkafkas_own(consumer.commit), "the polling thread decides"
        consumer.poll(0)
        assert consumer.logical_topic(message("b")) == "a"
        for name in ("poll", "consume", "commit", "store_offsets"):
            assert not is_librdkafkas_own(getattr(consumer, name))


def test_record_is_renamed_by_the_views_of_an_assignment_within_the_same_call(views: FakeViews) -> None:
    with Consumer(LOGICAL) as consumer:
        consumer.subscribe(["^[ab]$"])
        consumer.poll(0)
        views.put(A)
        consumer._membership.member.viewed(views.views())  # private: as librdkafka's callback does
        got = message("b")
        assert not consumer._finish(got)
        assert (got.topic(), physical_topic(got)) == ("a", "b")


def test_logical_topic_with_physical_names_follows_the_subscription(views: FakeViews) -> None:
    views.put(A)
    views.put(B)
    with Consumer(NOWHERE) as consumer:
        assert consumer.logical_topic(message("c")) == "c"
        for topics, expected in ((["a"], "a"), (["b"], "b"), (["a", "c"], "c"), (["^[bc]"], "b"), (["x"], "c")):
            consumer.subscribe(topics)
            assert consumer.logical_topic(message("c")) == expected
        assert is_librdkafkas_own(consumer.commit)


def test_subclass_that_overrides_commit_reaches_ours(views: FakeViews) -> None:
    calls = []

    class Own(Consumer):
        def commit(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(kwargs)
            return super().commit(*args, **kwargs)

    views.put(A)
    with Own(LOGICAL) as consumer:
        consumer.subscribe(["a"])
        consumer._names.rename(message("b"))
        with pytest.raises(KafkaException, match="ambiguous"):
            consumer.commit(offsets=[TopicPartition("a", 1, 8)])
        with pytest.raises(KafkaException, match="ambiguous"):
            consumer.seek(TopicPartition("a", 1, 8))
    assert len(calls) == 1
