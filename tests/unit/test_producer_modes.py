"""How a producer follows the modes, and what it does before it knows any. No broker is needed."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest

from modeaware.confluent.errors import FirstViewPending, RetiredPartitionChosen
from modeaware.confluent.producer import Producer
from modeaware.errors import ModeAwareError, ModeSourceError, ViewTimeout
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import CONF, Acquired, Reports, finish, is_librdkafkas_own, waiting_producer
from tests.support.waiting import eventually


def test_all_writable_is_librdkafkas_own_method_through_an_alias_too(producer: Producer, views: FakeViews) -> None:
    send, send_batch = producer.produce, producer.produce_batch
    for modes in (None, modes_of(12, 12), modes_of(12, 4), modes_of(12, 12)):
        if modes:
            views.set("orders", modes)
        if modes == modes_of(12, 4):
            for refused in (
                lambda: send("orders", b"v", partition=4),
                lambda: send_batch("orders", [{"partition": 4}]),
            ):
                with pytest.raises(RetiredPartitionChosen):
                    refused()
            continue
        for call in (producer.produce, send, send_batch):
            assert is_librdkafkas_own(call)
    assert producer.modeaware_stats()["state"] == "direct"


def test_the_first_send_waits_for_the_view(acquired: Acquired) -> None:
    producer = waiting_producer(acquired, view_timeout_ms=60_000)
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(producer.produce, "orders", b"v", partition=4)
        acquired.views.set("orders", modes_of(12, 4))
        assert not sent.done()
        acquired.views.set_ready()
        with pytest.raises(RetiredPartitionChosen):
            sent.result(60)
    assert producer.modeaware_stats()["state"] == "routed"
    finish(producer)


def test_block_is_a_buffer_error_that_says_why(acquired: Acquired, reports: Reports) -> None:
    producer = waiting_producer(acquired, reports.conf, view_timeout_ms=1)
    acquired.views.failure = ModeSourceError("no broker answers")
    for send in (lambda: producer.produce("t", b"v"), lambda: producer.produce_batch("t", [{}])):
        with pytest.raises(BufferError, match=r"within 1 ms .*no broker answers.*try again") as caught:
            send()
        assert isinstance(caught.value, FirstViewPending)
        assert isinstance(caught.value, ModeAwareError)
    assert reports.queued(producer) == 0
    acquired.views.set_ready()
    producer.produce("t", b"v")
    assert is_librdkafkas_own(producer.produce)
    finish(producer)


def test_error_is_a_view_timeout_and_a_kafka_exception(acquired: Acquired) -> None:
    producer = waiting_producer(acquired, view_timeout_ms=1, on_unknown="error")
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.produce("t", b"v")
    assert isinstance(caught.value, ViewTimeout)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError._TIMED_OUT
    finish(producer)


def test_writable_sends_and_is_routed_once_there_is_a_view(
    acquired: Acquired, caplog: pytest.LogCaptureFixture
) -> None:
    producer = waiting_producer(acquired, view_timeout_ms=1, on_unknown="writable")
    producer.produce("t", b"v", partition=11)
    producer.produce("t", b"v", partition=11)
    assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == ["WARNING"]
    assert producer.modeaware_stats()["state"] == "waiting"
    acquired.views.set("t", modes_of(12, 4))
    acquired.views.set_ready()
    with pytest.raises(RetiredPartitionChosen):
        producer.produce("t", b"v", partition=11)
    finish(producer)


class TestRecreatedTopic:
    """The view is of a topic that was deleted and created again (I8)."""

    def test_first_record_goes_by_the_view_of_the_live_topic(self, producer: Producer, views: FakeViews) -> None:
        views.set("orders", modes_of(12, 4), topic_id="old")
        views.live_ids["orders"] = "new"
        assert views.verified == [], "a topic that is not sent to costs nothing"
        producer.produce("orders", b"v", b"key")
        assert views.verified == [{"orders"}]
        assert is_librdkafkas_own(producer.produce)

    def test_first_record_waits_while_no_broker_answers_about_the_topic_id(
        self, producer: Producer, views: FakeViews
    ) -> None:
        views.set("orders", modes_of(12, 4), topic_id="old")
        views.live_ids["orders"], views.silent = "new", {"orders"}
        with pytest.raises(BufferError, match="topic id"):
            producer.produce("orders", b"v", b"key")
        with pytest.raises(BufferError, match="topic id"):
            producer.produce_batch("orders", [{"value": b"v", "key": b"key"}])
        views.silent = set()
        producer.produce("orders", b"v", b"key")
        assert is_librdkafkas_own(producer.produce), "the view of the old topic is out of force"

    def test_last_view_stays_where_no_broker_answers_for_long(self, views: FakeViews) -> None:
        producer = Producer({**CONF, "modeaware.view.timeout.ms": 1})
        views.set("orders", modes_of(12, 4), topic_id="old")
        views.silent = {"orders"}

        def taken() -> bool:
            try:
                producer.produce("orders", b"v", b"key")
            except BufferError:
                return False
            return True

        eventually(taken)
        assert producer.modeaware_stats()["state"] == "routed"
        finish(producer)

    def test_view_is_compared_once_for_many_records(self, producer: Producer, views: FakeViews) -> None:
        views.set("orders", modes_of(12, 4))
        for _ in range(3):
            producer.produce("orders", b"v", b"key")
            producer.produce("orders", b"v")
            producer.produce_batch("orders", [{"value": b"v"}])
        assert views.verified == [{"orders"}]
        views.set("orders", modes_of(12, 3))
        producer.produce("orders", b"v", b"key")
        assert views.verified == [{"orders"}], "a newer view of the same topic"

    @pytest.mark.parametrize("form", ["produce", "produce_batch"])
    def test_explicit_partition_is_refused_by_the_view_of_the_live_topic_only(
        self, producer: Producer, views: FakeViews, form: str
    ) -> None:
        views.set("orders", modes_of(12, 4), topic_id="old")

        def send() -> None:
            if form == "produce":
                producer.produce("orders", b"v", partition=11)
            else:
                assert producer.produce_batch("orders", [{"value": b"v", "partition": 11}]) == 1

        with pytest.raises(RetiredPartitionChosen):
            send()
        views.live_ids["orders"] = "new"
        send()
        assert producer.modeaware_stats()["state"] == "direct"
