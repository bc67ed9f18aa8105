"""The consumer as a drop-in, with no broker in reach; errors that show that metadata may be old."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer
from modeaware.errors import ViewTimeout
from modeaware.librdkafka import Message
from modeaware.modes import PartitionMode
from modeaware.notes import READ
from modeaware.testing import MockKafka
from tests.support.fake_views import FakeViews, announce, modes_of, switch
from tests.support.offline import CONF, Acquired, is_librdkafkas_own
from tests.support.waiting import eventually

NOWHERE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


def test_poll_and_consume_are_librdkafkas_own(views: FakeViews) -> None:
    with Consumer(NOWHERE) as consumer:
        for name in ("poll", "consume"):
            assert is_librdkafkas_own(getattr(consumer, name))


@pytest.mark.parametrize(("own", "shown"), [({}, "modeaware"), ({"client.id": "billing-1"}, "billing-1")])
@pytest.mark.parametrize("client", [Consumer, Producer])
def test_the_client_id_shows_a_mode_aware_client_unless_the_application_sets_one(
    views: FakeViews, client: type[Consumer | Producer], own: dict[str, str], shown: str
) -> None:
    told: list[str] = []
    group = {"group.id": "g"} if client is Consumer else {}
    stats = {"statistics.interval.ms": 50, "stats_cb": lambda text: told.append(json.loads(text)["client_id"])}
    with client({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **group, **stats, **own}) as made:
        eventually(lambda: [made.poll(0)] and bool(told))
    assert set(told) == {shown}


def test_a_subclass_that_overrides_poll_is_called_and_reaches_ours(views: FakeViews) -> None:
    polled = []

    class Own(Consumer):
        def poll(self, timeout: float = -1) -> Any:
            polled.append(timeout)
            return super().poll(timeout)

        def consume(self, *args: Any) -> Any:
            polled.append(args)
            return super().consume(*args)

    with Own(NOWHERE) as consumer:
        consumer.subscribe(["t"])
        views.set("t", modes_of(4, 2))
        assert consumer.modeaware_stats()["state"] == "acting"
        assert consumer.poll(0) is None
        assert consumer.consume(5, 0) == []
        assert polled == [0, (5, 0)]
        assert consumer.modeaware_stats()["state"] == "direct"


def test_close_gives_the_views_back_and_later_calls_raise_what_stock_raises(views: FakeViews) -> None:
    stock = confluent_kafka.Consumer(NOWHERE)
    with Consumer(NOWHERE) as consumer:
        poll = consumer.poll
    stock.close()
    assert views.closed
    assert views.listener_count == 0
    consumer.close()
    for call in (stock.poll, poll, consumer.poll, consumer.assignment, lambda: consumer.subscribe(["t"])):
        with pytest.raises(RuntimeError, match="closed"):
            call()


@pytest.mark.parametrize("topics", ["t", ("t",), [1], None])
@pytest.mark.parametrize("ready", [True, False])
def test_subscribe_refuses_at_once(acquired: Acquired, topics: Any, ready: bool) -> None:
    acquired.views = FakeViews(ready=ready)
    with Consumer(NOWHERE) as consumer:
        with pytest.raises(TypeError):
            consumer.subscribe(topics)
        with pytest.raises(TypeError):
            consumer.subscribe(["t"], on_assign=42)  # type: ignore[arg-type] # what is tested


@pytest.fixture
def pending(acquired: Acquired) -> FakeViews:
    acquired.views = FakeViews(ready=False)
    return acquired.views


def test_without_a_view_the_subscription_waits_and_nothing_blocks(pending: FakeViews) -> None:
    with Consumer({**NOWHERE, "modeaware.view.timeout.ms": 0}) as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(0) is None
        assert consumer.consume(5, 0) == []
        assert consumer.modeaware_stats()["state"] == "waiting"
        consumer.unsubscribe()
        assert consumer.modeaware_stats()["state"] != "waiting"
        consumer.subscribe(["t"])
        pending.set_ready()
        assert consumer.poll(0) is None
        assert consumer.modeaware_stats()["state"] == "direct"


def test_poll_raises_without_a_view_in_time_where_on_unknown_is_error(pending: FakeViews) -> None:
    with Consumer({**NOWHERE, "modeaware.view.timeout.ms": 0, "modeaware.on.unknown": "error"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ViewTimeout, match=r"modeaware\.view\.timeout\.ms"):
            consumer.poll(5)
        pending.set_ready()
        assert consumer.poll(0) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda heard: Producer({**CONF, "error_cb": heard}),
        lambda heard: Producer({**CONF}, error_cb=heard),
        lambda heard: Consumer({**CONF, "group.id": "g", "error_cb": heard}),
    ],
    ids=["producer", "producer, by name", "consumer"],
)
def test_an_error_that_shows_that_metadata_may_be_old_has_the_source_asked_again(
    acquired: Acquired, make: Callable[[Any], Producer | Consumer]
) -> None:
    heard: list[Any] = []
    client = make(heard.append)
    eventually(lambda: client.poll(0.1) or heard)
    eventually(lambda: acquired.views.hints)
    client.close()


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    with MockKafka() as mock:
        mock.make_topic("orders")
        yield mock


@pytest.mark.parametrize("is_ending", [False, True])
def test_records_of_a_topic_whose_end_is_known_do_not_wait_for_their_batch(
    views: FakeViews, mock: MockKafka, is_ending: bool
) -> None:
    """Those of another topic do, while it is looked up whether brokers have the new one, say."""
    if is_ending:
        switch(views, "orders", "orders-v2", read_up_to={0: 3, 1: 3, 2: 0, 3: 0})
    else:
        announce(views, "orders", "orders-v2")
    waiting: set[int] = set()

    def stats(figures: str) -> None:
        waiting.add(len(consumer._hook.taken))

    conf = {"statistics.interval.ms": 200, "stats_cb": stats, "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": mock.bootstrap_servers, "group.id": "g", **conf}) as consumer:
        consumer.subscribe(["orders"])
        with confluent_kafka.Producer({"bootstrap.servers": mock.bootstrap_servers}) as producer:
            for n in range(6):
                producer.produce("orders", str(n), partition=n % 2)
        read: list[Message] = []
        eventually(lambda: read.extend(consumer.consume(7, 2)) or len(read) == 6)
    assert (waiting > {0}) is not is_ending, "another member would find the topic committed to its end"


def test_records_of_a_batch_whose_call_raises_come_again(views: FakeViews, mock: MockKafka) -> None:
    announce(views, "orders", "orders-v2")
    raised: list[int] = []

    def stats(figures: str) -> None:
        if len(consumer._hook.taken) == 6 and not raised:
            raised.append(6)
            raise ValueError("the application's callback")

    conf = {"statistics.interval.ms": 200, "stats_cb": stats, "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": mock.bootstrap_servers, "group.id": "g", **conf}) as consumer:
        consumer.subscribe(["orders"])
        with Producer({"bootstrap.servers": mock.bootstrap_servers}) as producer:
            for n in range(6):
                producer.produce("orders", str(n), partition=n % 2)
        with pytest.raises(ValueError, match="callback"):
            consumer.consume(7, 60)
        again = consumer.consume(6, 60)
    assert sorted((m.partition(), m.value()) for m in again) == [(n % 2, b"%d" % n) for n in (0, 2, 4, 1, 3, 5)]
    assert raised == [6]


def test_records_that_were_taken_are_given_before_a_change_is_shown(views: FakeViews, mock: MockKafka) -> None:
    """The change may have librdkafka seek to what is committed, which would bring them again."""
    announce(views, "orders", "orders-v2")
    log: list[str] = []

    def stats(figures: str) -> None:
        if len(consumer._hook.taken) == 6 and not log:
            log.append("changed")
            announced = views.view("orders")
            views.put(replace(announced, version=(1, 9), modes=modes_of(4, 3, PartitionMode.NONE)))

    conf = {"statistics.interval.ms": 200, "stats_cb": stats, "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": mock.bootstrap_servers, "group.id": "g", **conf}) as consumer:
        consumer.subscribe(["orders"], on_revoke=lambda *_: log.append("revoked"))
        with Producer({"bootstrap.servers": mock.bootstrap_servers}) as producer:
            for n in range(6):
                producer.produce("orders", str(n), partition=n % 2)
        began_s = time.monotonic()
        log += [str(len(consumer.consume(7, 60)))]
        assert time.monotonic() - began_s < 30, "they do not wait for the rest of their batch either"
        consumer.poll(0)
        assert log == ["changed", "6", "revoked"]


@pytest.mark.parametrize("by_position", [False, True], ids=["offsets", "positions"])
def test_notes_ride_on_the_offsets_of_a_transaction_and_nothing_is_committed_beside_it(
    views: FakeViews, mock: MockKafka, monkeypatch: pytest.MonkeyPatch, by_position: bool
) -> None:
    """The end of partition 0 is read, that of partition 1 is not."""
    switch(views, "orders", "orders-v2", read_up_to={0: 3, 1: 4, 2: 1, 3: 1})
    sent: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        Producer.__base__, "send_offsets_to_transaction", lambda _, *given: sent.append(given), raising=False
    )
    conf = {"bootstrap.servers": mock.bootstrap_servers, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Producer({"bootstrap.servers": mock.bootstrap_servers}) as producer, Consumer({**conf, "group.id": "g"}) as c:
        c.subscribe(["orders"])
        eventually(lambda: c.poll(0.1) or c.assignment())
        metadata = c.consumer_group_metadata()  # for an earlier transaction
        with confluent_kafka.Producer({"bootstrap.servers": mock.bootstrap_servers}) as stock:
            for n in range(6):
                stock.produce("orders", str(n), partition=n % 2)
        read: list[Message] = []
        eventually(lambda: read.extend(c.consume(6, 0.2)) or len(read) == 6)
        assert c.poll(0.3) is None, "the member may look at what the application has got"
        behind = {(m.topic() or "", m.partition() or 0): (m.offset() or 0) + 1 for m in read}
        offsets = c.position(c.assignment()) if by_position else [TopicPartition(*k, at) for k, at in behind.items()]
        producer.send_offsets_to_transaction(offsets, metadata)
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 3, "mine")], metadata)
        producer.send_offsets_to_transaction(offsets, b"another consumer's")
        (noted, of), (own, _), (foreign, _) = sent
        assert of == metadata
        assert {(p.partition, p.offset, p.metadata) for p in noted if p.offset >= 0} == {(0, 3, READ), (1, 3, None)}
        assert len(noted) == (4 if by_position else 2)
        assert [p.metadata for p in own] == ["mine"]
        assert foreign is offsets
        assert {p.offset for p in c.committed([TopicPartition("orders", p) for p in range(4)], 10)} == {OFFSET_INVALID}


def called(consumer: Any, name: str, *partitions: int) -> int | list[int]:
    """Return the code of the error that the call raises, or what is assigned then."""
    try:
        getattr(consumer, name)([TopicPartition("orders", partition) for partition in partitions])
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return sorted(p.partition for p in confluent_kafka.Consumer.assignment(consumer))


@pytest.mark.parametrize("client", [confluent_kafka.Consumer, Consumer])
def test_assignments_that_librdkafka_takes_and_refuses(
    views: FakeViews, mock: MockKafka, client: type[confluent_kafka.Consumer]
) -> None:
    """Each refused call leaves the assignment as it was."""
    conf = {"bootstrap.servers": mock.bootstrap_servers, "partition.assignment.strategy": "cooperative-sticky"}
    with client({**conf, "group.id": "g"}) as manual:
        taken = [called(manual, "assign", 0), called(manual, "assign", 1), called(manual, "assign", 1)]
        taken += [called(manual, "incremental_assign", 2), called(manual, "incremental_assign", 2)]
        assert taken == [[0], [1], [1], [1, 2], KafkaError._CONFLICT]

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            consumer.incremental_assign([partition])

    with client({**conf, "group.id": "g-2"}) as member:
        member.subscribe(["orders"], on_assign=on_assign)
        eventually(lambda: [member.poll(0.1)] and len(member.assignment()) == 4)
        refused = [called(member, "assign", 0), called(member, "incremental_assign", 0)]
        assert refused == [KafkaError._STATE, KafkaError._CONFLICT]
        assert member.poll(0.1) is None
        assert len(member.assignment()) == 4
