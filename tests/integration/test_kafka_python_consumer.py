"""One modeaware.kafka_python.KafkaConsumer on a real Kafka: what it reads, from where, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaError, NoOffsetForPartitionError
from kafka.structs import OffsetAndMetadata

from modeaware.kafka_python import FirstViewTimeout, KafkaConsumer
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from modeaware.views import registry
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.kafka_python_group import FAST, Calls
from tests.support.waiting import eventually

NONE = PartitionMode.NONE
COOPERATIVE = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
MakeConsumer = Callable[..., KafkaConsumer]
Send = Callable[..., None]


@pytest.fixture
def consumer_of(
    kafka: Kafka, fake_views: FakeViews, make_group: Callable[[], str]
) -> Iterator[Callable[..., KafkaConsumer]]:
    """Makes consumers of one group of their own, with the fake views."""
    made: list[KafkaConsumer] = []
    group = make_group()

    def make(*topics: str, **settings: Any) -> KafkaConsumer:
        conf = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": group, **FAST, **settings}
        made.append(KafkaConsumer(*topics, **conf))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def read(consumer: KafkaConsumer, count: int) -> list[tuple[int, int]]:
    """The next ``count`` records: partition and offset, sorted."""
    got: list[tuple[int, int]] = []

    def enough() -> bool:
        for records in consumer.poll(100).values():
            got.extend((record.partition, record.offset) for record in records)
        return len(got) >= count

    eventually(enough, message=f"{count} records")
    assert len(got) == count
    return sorted(got)


def await_held(consumer: KafkaConsumer, partitions: Iterable[int]) -> None:
    want = sorted(partitions)

    def held() -> bool:
        assert consumer.poll(50) == {}
        return (
            sorted(p.partition for p in consumer.assignment()) == want
            and consumer._subscription.has_all_fetch_positions()
        )

    eventually(held)


def committed(consumer: KafkaConsumer, topic: str, count: int) -> dict[int, int]:
    found = {p: consumer.committed(TopicPartition(topic, p)) for p in range(count)}
    return {p: offset for p, offset in found.items() if offset is not None}


@pytest.mark.parametrize("more", [{}, COOPERATIVE], ids=["range", "cooperative"])
def test_a_partition_is_let_go_and_taken_up_where_reading_stopped(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send, more: dict[str, Any]
) -> None:
    topic = make_topic(4)
    consumer = consumer_of(topic, enable_auto_commit=False, **more)
    await_held(consumer, range(4))
    send(topic, 0, 3)
    send(topic, 3, 5)
    assert len(read(consumer, 8)) == 8
    fake_views.set(topic, modes_of(4, 3, NONE))
    await_held(consumer, range(3))
    send(topic, 0, 1)
    send(topic, 3, 2)  # stragglers
    assert read(consumer, 1) == [(0, 3)]
    assert consumer.modeaware_stats()["hidden"] == 1
    assert consumer.paused() == set()
    consumer.commit()
    assert committed(consumer, topic, 4) == {0: 4, 1: 0, 2: 0, 3: 5}
    fake_views.set(topic, modes_of(4, 3))
    assert read(consumer, 2) == [(3, 5), (3, 6)]
    assert sorted(p.partition for p in consumer.assignment()) == [0, 1, 2, 3]


def test_the_iterator_reads_the_readable_ones(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    send(topic, 0, 2)
    send(topic, 1, 2)
    fake_views.set(topic, modes_of(2, 1, NONE))
    consumer = consumer_of(topic, consumer_timeout_ms=2000)
    assert [(record.partition, record.offset) for record in consumer] == [(0, 0), (0, 1)]


def test_a_latest_group_skips_nothing_of_what_comes_back_or_is_new(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        send(topic, partition, 5)
    fake_views.set(topic, modes_of(3, 1, NONE), resume_offsets={1: 3, 2: 4}, reclaimed=[2])
    consumer = consumer_of(topic, auto_offset_reset="latest")
    await_held(consumer, [0])
    send(topic, 1, 1)
    fake_views.set(topic, modes_of(3, 3))
    assert read(consumer, 4) == [(1, 3), (1, 4), (1, 5), (2, 4)]
    send(topic, 0, 1)
    assert read(consumer, 1) == [(0, 5)]


def test_a_commit_below_what_is_deleted_does_not_send_a_latest_group_to_the_end(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send, kafka: Kafka
) -> None:
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import AdminClient

    topic = make_topic(1)
    send(topic, 0, 5)
    before = consumer_of(enable_auto_commit=False)
    before.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (deleted,) = admin.delete_records([Place(topic, 0, 3)]).values()
    deleted.result(30)
    fake_views.set(topic, modes_of(1, 1))
    assert read(consumer_of(topic, auto_offset_reset="latest"), 2) == [(0, 3), (0, 4)]


def test_without_a_reset_policy_a_hidden_partition_raises_nothing(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    send(topic, 1, 3)
    fake_views.set(topic, modes_of(2, 1, NONE), resume_offsets={1: 2})
    consumer = consumer_of(enable_auto_commit=False, auto_offset_reset="none")
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
    consumer.subscribe([topic])
    await_held(consumer, [0])
    fake_views.set(topic, modes_of(2, 2))
    assert read(consumer, 1) == [(1, 2)]
    other = consumer_of(make_topic(1), auto_offset_reset="none", group_id="nobody-committed-yet")
    with pytest.raises(NoOffsetForPartitionError):
        eventually(lambda: other.poll(200))


def test_the_start_of_idle_read_only_partitions_is_committed(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(4)
    send(topic, 0)
    send(topic, 3, 7)
    fake_views.set(topic, modes_of(4, 3))
    consumer = consumer_of(topic, enable_auto_commit=False, auto_offset_reset="latest")
    await_held(consumer, range(4))
    assert committed(consumer, topic, 4) == {3: 7}, "ReadOnly from the start"
    send(topic, 1, 1)
    assert read(consumer, 1) == [(1, 0)]
    fake_views.set(topic, modes_of(4, 1))
    consumer.poll(200)
    assert committed(consumer, topic, 4) == {2: 0, 3: 7}, "not where something was delivered"


def test_idle_partitions_of_a_latest_group_are_committed_before_it_leaves_after_a_change(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    fake_views.set(topic, modes_of(2, 2))
    quiet = consumer_of(topic, enable_auto_commit=False, auto_offset_reset="latest")
    await_held(quiet, range(2))
    quiet.close()
    asker = consumer_of(enable_auto_commit=False)
    assert committed(asker, topic, 2) == {}, "nobody asked for a commit"
    consumer = consumer_of(topic, enable_auto_commit=False, auto_offset_reset="latest")
    await_held(consumer, range(2))
    fake_views.set(topic, modes_of(2, 2))
    consumer.close()
    assert committed(asker, topic, 2) == {0: 0, 1: 0}


def test_idle_partitions_of_a_cooperative_latest_group_are_committed_before_a_change_moves_them(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    consumer = consumer_of(topic, enable_auto_commit=False, auto_offset_reset="latest", **COOPERATIVE)
    await_held(consumer, range(2))
    assert committed(consumer, topic, 2) == {}
    fake_views.set(topic, modes_of(2, 2))
    consumer.poll(200)
    assert committed(consumer, topic, 2) == {0: 0, 1: 0}


def test_listeners_see_what_is_held(consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    fake_views.set(topic, modes_of(3, 2, NONE))
    calls = Calls()
    consumer = consumer_of(**COOPERATIVE)
    consumer.subscribe([topic], listener=calls)
    await_held(consumer, range(2))
    consumer._coordinator._is_leader = False  # so that it asks for no rebalance
    fake_views.set(topic, modes_of(3, 3))
    await_held(consumer, range(3))
    fake_views.set(topic, modes_of(3, 1, NONE))
    await_held(consumer, range(1))
    assert calls.told == [("assigned", [0, 1]), ("assigned", [2]), ("revoked", [1, 2])]
    with pytest.raises(TypeError, match="listener must be"):
        consumer.subscribe([topic], listener=object())


def test_an_eager_listener_sees_a_change_as_a_rebalance(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    calls = Calls()
    consumer = consumer_of()
    consumer.subscribe([topic], listener=calls)
    await_held(consumer, range(3))
    consumer._coordinator._is_leader = False
    del calls.told[:]
    fake_views.set(topic, modes_of(3, 2, NONE))
    await_held(consumer, range(2))
    assert calls.told == [("revoked", [0, 1, 2]), ("assigned", [0, 1])]


def test_a_listener_that_raises_in_mid_life_leaves_the_assignment_right(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic
) -> None:
    class Broken(ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]  # untyped
        def on_partitions_assigned(self, assigned: Any) -> None:
            pass

        def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                raise LookupError("no such thing")

    topic = make_topic(3)
    consumer = consumer_of(**COOPERATIVE)
    consumer.subscribe([topic], listener=Broken())
    await_held(consumer, range(3))
    consumer._coordinator._is_leader = False
    fake_views.set(topic, modes_of(3, 2, NONE))
    with pytest.raises(KafkaError, match="callback throws"):
        eventually(lambda: consumer.poll(100))
    await_held(consumer, range(2))
    consumer.unsubscribe()


def test_pauses_and_seeks_of_the_application_are_kept_apart(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(3)
    zero, two = TopicPartition(topic, 0), TopicPartition(topic, 2)
    consumer = consumer_of(**COOPERATIVE)
    consumer.subscribe([topic])
    await_held(consumer, range(3))
    consumer.pause(zero, two)
    fake_views.set(topic, modes_of(3, 2, NONE))
    await_held(consumer, range(2))
    assert consumer.paused() == {zero}
    consumer.resume(two)
    for partition in (0, 2):
        send(topic, partition, 1)
    consumer.seek_to_beginning()
    assert consumer.poll(500) == {}, "one is paused, one hidden"
    fake_views.set(topic, modes_of(3, 3))
    assert read(consumer, 1) == [(2, 0)]
    assert consumer.paused() == {zero}
    consumer.resume(zero)
    assert read(consumer, 1) == [(0, 0)]


def test_what_the_application_paused_stays_so_when_it_comes_back(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    one = TopicPartition(topic, 1)
    send(topic, 1, 1)
    fake_views.set(topic, modes_of(2, 2))
    consumer = consumer_of(**COOPERATIVE)
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(50) or consumer.assignment())
    consumer.seek_to_beginning()
    consumer.pause(one)
    fake_views.set(topic, modes_of(2, 1, NONE))
    await_held(consumer, range(1))
    fake_views.set(topic, modes_of(2, 2))
    await_held(consumer, range(2))
    assert consumer.paused() == {one}
    assert consumer.poll(500) == {}
    consumer.resume(one)
    assert read(consumer, 1) == [(1, 0)]


def test_a_manual_assignment_leaves_hidden_ones_out(
    consumer_of: MakeConsumer,
    fake_views: FakeViews,
    make_topic: MakeTopic,
    send: Send,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = make_topic(2)
    for partition in range(2):
        send(topic, partition, 1)
    fake_views.set(topic, modes_of(2, 1, NONE))
    consumer = consumer_of(group_id=None)
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    assert "partitions 1 are in mode None" in caplog.text
    assert read(consumer, 1) == [(0, 0)]
    assert consumer.assignment() == {TopicPartition(topic, 0)}
    fake_views.set(topic, modes_of(2, 2))
    assert read(consumer, 1) == [(1, 0)]


def test_a_consumer_without_a_group_reads_the_readable_ones(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    for partition in range(2):
        send(topic, partition, 2)
    fake_views.set(topic, modes_of(2, 1, NONE))
    consumer = consumer_of(topic, group_id=None)
    assert read(consumer, 2) == [(0, 0), (0, 1)]
    fake_views.set(topic, modes_of(2, 2))
    assert read(consumer, 2) == [(1, 0), (1, 1)]


def test_nothing_is_read_before_the_first_view(
    consumer_of: MakeConsumer, make_topic: MakeTopic, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = FakeViews(ready=False)
    monkeypatch.setattr(registry, "acquire", lambda conf, config: views)
    topic = make_topic(2)
    send(topic, 0, 1)
    send(topic, 1, 1)
    consumer = consumer_of(topic, modeaware_view_timeout_ms=100)
    assert consumer.poll(500) == {}
    assert consumer.modeaware_stats()["state"] == "waiting"
    assert consumer.assignment() == set()
    strict = consumer_of(topic, modeaware_view_timeout_ms=100, modeaware_on_unknown="error", group_id=None)
    with pytest.raises(FirstViewTimeout):
        strict.poll(1000)
    free = consumer_of(topic, modeaware_view_timeout_ms=100, modeaware_on_unknown="writable", group_id=None)
    assert len(read(free, 2)) == 2
    views.set(topic, modes_of(2, 1, NONE))
    views.set_ready()
    assert read(consumer, 1) == [(0, 0)]


def test_short_polls_bring_a_join_to_its_end(
    consumer_of: MakeConsumer, fake_views: FakeViews, make_topic: MakeTopic
) -> None:
    """kafka-python 3.0.12 forgets it, see ``_poll_once``."""
    topic = make_topic(3)
    consumer = consumer_of(topic)
    await_held(consumer, range(3))
    coordinator = consumer._coordinator
    generation = coordinator._generation.generation_id
    coordinator._assignment_snapshot = {}  # as if the metadata had changed
    consumer.poll(1)
    eventually(lambda: coordinator._generation.generation_id > generation)  # dealt, in kafka-python's own thread
    await_held(consumer, range(3))
    assert not coordinator.rejoining


def test_its_views_are_given_back(kafka: Kafka, fake_views: FakeViews) -> None:
    with KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as consumer:
        assert fake_views.listener_count == 1
    consumer.close()
    assert fake_views.closed
    assert fake_views.listener_count == 0
    fake_views.closed = False
    with pytest.raises(KafkaError, match="Unrecognized configs"):
        KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, unheard_of=1)
    assert fake_views.closed
