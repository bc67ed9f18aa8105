"""Our producer of kafka-python while a topic is replaced, without a broker: what is queued for which topic, or
refused."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import murmur2
from kafka.errors import KafkaConnectionError, MessageSizeTooLargeError
from kafka.partitioner import DefaultPartitioner
from kafka.producer.transaction_manager import ProducerIdAndEpoch
from kafka.structs import OffsetAndMetadata, TopicPartition

from modeaware.clients import refusals
from modeaware.errors import ErrorCode, ModeSourceError, ResizeWarning, TopicReplaced
from modeaware.kafka_python import (
    KafkaConsumer,
    KafkaProducer,
    ReplacedTopicError,
    RetiredPartitionError,
)
from tests.support.fake_views import FakeViews, announce, modes_of, switch
from tests.support.kafka_python_offline import OFFLINE, Made

COUNTS = {"orders": 12, "orders-v2": 4, "orders-v3": 9, "other": 3}
KEYS = [b"key-%d" % number for number in range(60)]


def make(**settings: Any) -> Made:
    made = Made(KafkaProducer, **settings)
    metadata = made.producer._metadata
    metadata.topics.return_value = set(COUNTS)
    metadata.partitions_for_topic.side_effect = lambda topic: set(range(COUNTS[topic]))
    metadata.available_partitions_for_topic.side_effect = metadata.partitions_for_topic.side_effect
    return made


@pytest.fixture
def made(views: FakeViews) -> Iterator[Made]:
    made = make()
    yield made
    made.producer.close()


def queued(made: Made) -> list[tuple[str, int]]:
    found = [tuple(call.args[0]) for call in made.queue.append.call_args_list]
    made.queue.append.reset_mock()
    return found


def test_every_form_of_a_call_goes_to_the_new_topic_by_its_own_count(made: Made, views: FakeViews) -> None:
    announce(views, "orders", "orders-v2")
    made.producer.send("orders", b"v", b"key")
    assert queued(made) == [("orders", murmur2(b"key", 12))]
    switch(views, "orders", "orders-v2")
    for key in KEYS:
        made.producer.send("orders", b"v", key)
        made.producer.send(topic="orders", value=b"v", key=key)
    assert queued(made) == [("orders-v2", murmur2(key, 4)) for key in KEYS for _ in range(2)]
    made.producer.send("other", b"v", b"key")
    made.producer.send("orders", b"v", partition=3)
    assert queued(made) == [("other", murmur2(b"key", 3)), ("orders-v2", 3)]
    assert made.producer.modeaware_stats()["replaced"] == {"orders": "orders-v2"}
    with pytest.raises(TypeError):
        made.producer.send()


def test_chain_is_followed_to_its_end_and_the_modes_of_its_last_topic_apply(made: Made, views: FakeViews) -> None:
    switch(views, "orders", "orders-v2")
    switch(views, "orders-v2", "orders-v3", 9)
    views.set("orders-v3", modes_of(9, 5))
    for name in ("orders", "orders-v2", "orders-v3"):
        made.producer.send(name, b"v", b"key")
    assert queued(made) == [("orders-v3", murmur2(b"key", 5))] * 3
    with pytest.raises(RetiredPartitionError, match="partition 7 of orders-v3 is ReadOnly"):
        made.producer.send("orders", b"v", partition=7)


def test_partition_that_the_new_topic_lacks_is_refused(made: Made, views: FakeViews) -> None:
    switch(views, "orders", "orders-v2", 4)
    said = "partition 4 of orders: the topic was replaced by orders-v2, which has 4 partitions"
    with pytest.raises(RetiredPartitionError, match=said):
        made.producer.send("orders", b"v", partition=4)
    assert queued(made) == []


def test_topic_that_is_replaced_within_a_send_is_no_error(views: FakeViews) -> None:
    class Slow(DefaultPartitioner):  # type: ignore[misc,unused-ignore]  # untyped
        """The topic is replaced between the look-up of its name and the pick."""

        def partition(self, topic: str, *args: Any) -> int:
            if topic == "orders":
                switch(views, "orders", "orders-v2")
            return int(super().partition(topic, *args))

    made = make(partitioner=Slow())
    made.producer.send("orders", b"v", b"key")
    assert queued(made) == [("orders-v2", murmur2(b"key", 4))]
    made.producer.close()


def test_serializers_see_the_name_that_the_application_gave(views: FakeViews) -> None:
    class Named:
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            seen.append(topic)
            return bytes(data)

    seen: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = make(key_serializer=Named(), value_serializer=Named())
    made.producer.config["key_serializer"] = made.producer.config["value_serializer"] = Named()
    switch(views, "orders", "orders-v2")
    made.producer.send("orders", b"v", b"key")
    assert seen == ["orders", "orders"]
    assert {type(name) for name in seen} == {str}
    assert queued(made) == [("orders-v2", murmur2(b"key", 4))]
    made.producer.close()


class TestTopicIds:
    def test_a_topic_that_was_deleted_and_made_anew_points_nowhere(self, made: Made, views: FakeViews) -> None:
        switch(views, "orders", "orders-v2")
        views.live_ids["orders"] = "made-anew"
        made.producer.send("orders", b"v", b"key")
        assert queued(made) == [("orders", murmur2(b"key", 12))]
        before = len(views.verified)
        made.producer.send("orders", b"v", b"key")
        assert len(views.verified) == before

    def test_name_of_a_topic_that_is_gone_leads_on(self, made: Made, views: FakeViews) -> None:
        switch(views, "orders", "orders-v2", gone=True)
        views.live_ids["orders"] = "made-anew"
        made.producer.send("orders", b"v", b"key")
        assert queued(made) == [("orders-v2", murmur2(b"key", 4))]


def test_first_record_with_a_key_reports_the_replacement_once(made: Made, views: FakeViews) -> None:
    switch(views, "orders", "orders-v2", 5)
    made.producer.send("orders", b"v")
    with pytest.warns(ResizeWarning, match="orders .epoch 3. was replaced by orders-v2.* 12 .*5 now"):
        made.producer.send("orders", b"v", b"key")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.producer.send("orders", b"v", b"key")
    assert made.producer.modeaware_stats()["resizes"] == 1


TOO_LARGE = SimpleNamespace(error_code=10, error_message=None, record_errors=(), log_start_offset=-1)


class TestRefusals:
    """What a refusal by the brokers becomes; that brokers refuse is for a test with a broker."""

    def refused(self, made: Made, name: str = "orders", topic: str = "orders") -> list[Any]:
        """The errors of two records in one batch of ``topic``, which were sent under ``name``."""
        made.producer._accumulator = made.stock_queue
        futures = [made.producer.send(name, b"v", b"key", partition=3) for _ in range(2)]
        made.producer._accumulator = made.queue
        queue = made.stock_queue._batches[TopicPartition(topic, 3)]
        while queue:
            batch = queue.popleft()
            batch.records.close()
            made.producer._sender._complete_batch(batch, TOO_LARGE)
        return [future.exception for future in futures]

    def replaced_meanwhile(self, made: Made, views: FakeViews) -> list[Any]:
        announce(views, "orders", "orders-v2")
        sender = made.producer._sender
        dispatch = sender._dispatch_error

        def later(*args: Any, **kwargs: Any) -> None:
            switch(views, "orders", "orders-v2")
            dispatch(*args, **kwargs)

        sender._dispatch_error = later
        return self.refused(made)

    @pytest.mark.parametrize("idempotent", [False, True])
    def test_all_of_a_batch_fail_with_what_replaced_the_topic_and_the_producer_goes_on(
        self, views: FakeViews, idempotent: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = make(enable_idempotence=idempotent)
        with caplog.at_level(logging.WARNING):
            errors = self.replaced_meanwhile(made, views)
        for error in errors:
            assert isinstance(error, ReplacedTopicError)
            assert isinstance(error, TopicReplaced)
            assert isinstance(error, MessageSizeTooLargeError)
            assert (error.topic, error.partition, error.new_topic) == ("orders", 3, "orders-v2")
            assert (error.code, error.errno, error.retriable) == (ErrorCode.MESSAGE_TOO_LARGE, 10, True)
            assert str(copy.copy(error)) == str(error)
            assert str(error).startswith(
                "orders-3: brokers rejected a record, because orders was replaced by orders-v2"
            )
        assert len(errors) == 2
        assert "logged once" in caplog.text
        assert not idempotent or not made.producer._transaction_manager.has_error()
        made.producer.close()

    @pytest.mark.parametrize(
        ("error", "retries", "end"),
        [
            (KafkaConnectionError, 0, KafkaConnectionError),
            (KafkaConnectionError, 9, None),
        ],
    )
    def test_failure_on_the_client_side_is_kafka_pythons_own_business(
        self, views: FakeViews, error: type[Exception], retries: int, end: type[Exception] | None
    ) -> None:
        """A connection that breaks: no answer of a broker comes with that."""
        made = make(retries=retries, enable_idempotence=False)
        made.producer._accumulator = made.stock_queue
        future = made.producer.send("orders", b"v", b"key", partition=3)
        made.producer._accumulator = made.queue
        batch = made.stock_queue._batches[TopicPartition("orders", 3)].popleft()
        batch.records.close()
        made.producer._sender._metadata = Mock()
        made.producer._sender._complete_batch_with_exception(batch, error)
        assert future.is_done is (end is not None)
        assert type(future.exception) is (end or type(None))
        assert bool(made.stock_queue._batches[TopicPartition("orders", 3)]) is not future.is_done, "it is tried again"
        made.producer.close()

    @pytest.mark.parametrize("error", [ModeSourceError("away"), RuntimeError("a fault of ours")])
    def test_refusal_that_cannot_be_explained_yet_ends_no_idempotent_producer(
        self, views: FakeViews, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """kafka-python's would never send anything again after a record that is too large."""
        made = make(enable_idempotence=True)
        announce(views, "orders", "orders-v2")
        monkeypatch.setattr(views, "refresh", Mock(side_effect=error))
        assert [type(each) for each in self.refused(made)] == [MessageSizeTooLargeError] * 2
        assert not made.producer._transaction_manager.has_error()
        made.producer.close()

    def test_transaction_has_to_be_aborted(self, views: FakeViews) -> None:
        made = make(enable_idempotence=True, transactional_id="writer")
        manager = made.producer._transaction_manager
        manager.set_producer_id_and_epoch(ProducerIdAndEpoch(1, 0))
        manager._current_state = type(manager._current_state).IN_TRANSACTION
        self.replaced_meanwhile(made, views)
        assert manager.has_abortable_error()
        assert isinstance(manager.last_error, ReplacedTopicError)
        made.producer.close()

    def test_record_that_is_too_large_is_reported_as_ever(
        self, made: Made, views: FakeViews, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[float] = []
        monkeypatch.setattr(views, "refresh", asked.append)
        assert {type(each) for each in self.refused(made)} == {MessageSizeTooLargeError}
        assert asked == [], "nothing replaces it"
        announce(views, "orders", "orders-v2")
        assert {type(each) for each in self.refused(made)} == {MessageSizeTooLargeError}
        assert asked[0] == pytest.approx(refusals.PATIENCE_S)
        switch(views, "orders", "orders-v2")
        assert {type(each) for each in self.refused(made, topic="orders-v2")} == {MessageSizeTooLargeError}


def test_partitions_are_those_of_the_new_topic(made: Made, views: FakeViews) -> None:
    announce(views, "orders", "orders-v2")
    assert made.producer.partitions_for("orders") == set(range(12))
    switch(views, "orders", "orders-v2")
    assert made.producer.partitions_for("orders") == set(range(4))
    assert made.producer.partitions_for("other") == set(range(3))


def test_topic_that_is_deleted_after_its_replacement_is_not_requested_any_more(made: Made, views: FakeViews) -> None:
    """kafka-python requests what the producer has named, and what has no leader for one of its queues."""
    metadata, queues = made.producer._sender._metadata, made.stock_queue._batches
    metadata._topics = {"orders", "other"}
    full, empty, of_other = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("other", 0)
    queues[full].append("a batch")
    queues[empty], queues[of_other]

    def answered() -> tuple[set[str], set[TopicPartition]]:
        for listener in metadata._listeners:
            listener(metadata)
        return set(metadata._topics), set(queues)

    announce(views, "orders", "orders-v2")
    switch(views, "orders", "orders-v2", released=True)
    assert answered() == ({"orders", "other"}, {full, empty, of_other})
    switch(views, "orders", "orders-v2", released=True, gone=True)
    assert answered() == ({"other"}, {full, of_other})
    queues.clear()


def test_refusal_names_the_writable_partitions_that_the_producer_returns(made: Made, views: FakeViews) -> None:
    producer = made.producer
    assert producer.writable_partitions("orders") == tuple(range(12))
    views.set("orders", modes_of(12, 5))
    assert producer.writable_partitions("orders") == (0, 1, 2, 3, 4)
    assert producer.partitions_for("orders") == set(range(12)), "as the brokers have it"
    with pytest.raises(RetiredPartitionError, match=r"choose one of 0-4$") as error:
        producer.send("orders", b"v", partition=7)
    assert error.value.writable_partitions == (0, 1, 2, 3, 4)
    switch(views, "orders", "orders-v2")
    assert producer.writable_partitions("orders") == (0, 1, 2, 3)
    with pytest.raises(RetiredPartitionError, match=r"choose one of 0-3$"):
        producer.send("orders", b"v", partition=7)
    views.set("orders-v2", modes_of(4, 2))
    assert producer.writable_partitions("orders") == producer.writable_partitions("orders-v2") == (0, 1)


def consumer_of_two_topics() -> Any:
    """A consumer whose brokers have ``orders`` and ``orders-v2``, of the counts of :data:`COUNTS`, with offsets that
    name the topic."""
    consumer: Any = KafkaConsumer(**OFFLINE, group_id="g")
    consumer._cluster.partitions_for_topic = lambda topic: set(range(COUNTS[topic]))
    offsets = {"orders": 12, "orders-v2": 4}
    consumer._fetcher = Mock(
        beginning_offsets=lambda keys, timeout_ms: {key: offsets[key.topic] for key in keys},
        end_offsets=lambda keys, timeout_ms: {key: offsets[key.topic] + 100 for key in keys},
        offsets_by_times=lambda times, timeout_ms: {key: offsets[key.topic] + at for key, at in times.items()},
    )
    consumer._coordinator.fetch_committed_offsets = lambda keys, timeout_ms: {
        key: OffsetAndMetadata(offsets[key.topic] + 50, "", -1) for key in keys
    }
    return consumer


def test_a_consumer_is_answered_for_the_topic_that_is_there(views: FakeViews) -> None:
    """While the group reads ``orders`` its offsets are its own; then the name points to the new topic."""
    consumer, asked = consumer_of_two_topics(), TopicPartition("orders", 1)

    def check(count: int) -> None:
        assert consumer.partitions_for_topic("orders") == set(range(count))
        assert consumer.committed(asked) == count + 50
        assert consumer.committed(asked, metadata=True).offset == count + 50
        assert consumer.beginning_offsets([asked]) == {asked: count}
        assert consumer.end_offsets([asked], timeout_ms=10) == {asked: count + 100}
        assert consumer.offsets_for_times({asked: 7}) == {asked: count + 7}

    check(12)
    assert consumer.writable_partitions("orders") == tuple(range(12))
    switch(views, "orders", "orders-v2", released=True)
    check(12)
    assert consumer.writable_partitions("orders") == tuple(range(4))
    switch(views, "orders", "orders-v2", gone=True)
    check(4)
    new = TopicPartition("orders-v2", 1)
    assert consumer.end_offsets([asked, new]) == {asked: 104, new: 104}
    with pytest.raises(TypeError):
        consumer.committed(("orders", 1))
    views.set("orders-v2", modes_of(4, 3))
    assert consumer.writable_partitions("orders") == (0, 1, 2)
    consumer.close()
