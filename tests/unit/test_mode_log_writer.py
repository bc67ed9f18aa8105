"""The writer with a producer that is made up: how long things may take, and what becomes of errors."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.clock import SystemClock, utc
from modeaware.cluster.cluster import Cluster
from modeaware.controller import log as log_module
from modeaware.controller.election import MAX_POLL_INTERVAL_MS
from modeaware.controller.log import ControllerLog
from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.modelog import topic as topic_module
from modeaware.modelog import writer as writer_module
from modeaware.modelog.writer import ModeLogWriter


class MadeUp:
    """A producer whose ``commit_transaction`` fails as told."""

    failure: KafkaError | None = None
    full = False

    def __init__(self) -> None:
        self.aborted_s: list[float] = []

    def init_transactions(self, timeout_s: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, *args: Any, **kwargs: Any) -> None:
        if self.full:
            raise BufferError

    def commit_transaction(self, timeout_s: float) -> None:
        if self.failure is not None:
            raise KafkaException(self.failure)

    def abort_transaction(self, timeout_s: float) -> None:
        self.aborted_s.append(timeout_s)

    def purge(self) -> None: ...

    def flush(self, timeout_s: float) -> None: ...


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    made = MadeUp()
    monkeypatch.setattr(writer_module, "Producer", lambda conf: made)
    return made


def opened() -> ModeLogWriter:
    writer = ModeLogWriter({"bootstrap.servers": "b:1"}, "modes")
    writer.open()
    return writer


def test_an_abort_is_bound_by_the_append_s_time(producer: MadeUp) -> None:
    """A controller that is told to stop has seconds."""
    writer = opened()
    producer.failure = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    for timeout_s in (300.0, 0.0):
        with pytest.raises(ClusterError):
            writer.append([("key", b"{}")], timeout_s=timeout_s)
    first, second = producer.aborted_s
    assert 1.0 < first <= 300.0
    assert second == 1.0


def test_writer_refuses_rejected_settings_and_closes_where_the_abort_fails(
    producer: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, denied = opened(), KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    producer.failure = denied

    def fail(*_: object) -> None:
        raise KafkaException(denied)

    monkeypatch.setattr(MadeUp, "abort_transaction", fail)
    writer.append([])
    with pytest.raises(ClusterError):
        writer.append([("key", b"{}")])
    assert not writer.is_open
    monkeypatch.setattr(writer_module, "Producer", fail)
    with pytest.raises(ConfigError, match="client settings: "):
        writer.open()


TIMED_OUT, TOO_LARGE = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (None, TOO_LARGE),  # the queue is full at once: larger than all of it
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), TOO_LARGE),
        (KafkaError(KafkaError.RECORD_LIST_TOO_LARGE), TOO_LARGE),
        (KafkaError(KafkaError._TIMED_OUT), TIMED_OUT),
        (KafkaError(KafkaError.NOT_ENOUGH_REPLICAS, "", retriable=True), TIMED_OUT),
        (KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), None),
    ],
)
def test_failed_append_has_a_code_and_leaves_the_writer_open_where_the_record_can_never_be_appended(
    producer: MadeUp, failure: KafkaError | None, code: ErrorCode | None
) -> None:
    writer = opened()
    producer.failure, producer.full = failure, failure is None
    with pytest.raises(ClusterError) as error:
        writer.append([("key", b"{}")])
    assert error.value.code is code
    assert writer.is_open or code is not TOO_LARGE


def test_a_claim_takes_less_than_the_election_waits_for_a_poll() -> None:
    """Else librdkafka leaves the group while the log is being claimed, and somebody else is elected."""
    # Private allowances of two modules, whose sum with the public ones is the subject.
    blocking_s = (
        topic_module.ENSURE_TIMEOUT_S + 2 * topic_module._SLACK_S,
        2 * topic_module._SLACK_S,  # of the look before the append, which takes its time from that
        writer_module.OPEN_TIMEOUT_S,
        log_module.READ_TIMEOUT_S,
        writer_module.APPEND_TIMEOUT_S + writer_module._ABORT_AT_LEAST_S,
    )
    assert sum(blocking_s) < MAX_POLL_INTERVAL_MS / 1000


def test_after_no_answer_the_mode_log_is_looked_at_with_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else librdkafka asks the broker it is connected to, which may be frozen, for a minute."""
    monkeypatch.setattr(topic_module, "ENSURE_TIMEOUT_S", 0.3)
    cluster = Cluster({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    elected: Any = SimpleNamespace(group_metadata=None)
    log, first = ControllerLog(cluster, {}, "modes", election=elected), cluster.admin
    with pytest.raises(ClusterError):
        log.ensure()
    assert cluster.admin is not first


def test_time_that_is_in_no_calendar_is_shown_as_it_is() -> None:
    assert (utc(0), utc(10**18)) == ("1970-01-01 00:00:00 UTC", f"{10**18} ms")


def test_a_lease_runs_out_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.clock_gettime", {time.CLOCK_BOOTTIME: 7.5}.get)
    assert SystemClock().monotonic_s() == 7.5
