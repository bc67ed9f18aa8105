"""What our clients of the mode log take over from the client they serve, and what errors of theirs mean."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from modeaware.errors import ClusterError, ErrorCode, ModeSourceError, NotAuthorized
from modeaware.librdkafka import NO_ANSWER, RENEW_S, KafkaError, KafkaException
from modeaware.modelog import topic as topic_module
from modeaware.modelog.connection import cluster_key, tail_conf
from modeaware.modelog.reader import LogAbsent, LogRecord, LogRewound, LogUnreachable, Tail, to_error
from modeaware.modelog.records import MAX_RECORD_BYTES
from modeaware.modelog.topic import ensure_mode_log, log_configs, log_weakness, unfit, weakness
from tests.support.simulated import SimClock


def token(_config: str) -> tuple[str, float]:
    return "t", 0.0


INHERITED: dict[str, Any] = {
    "bootstrap.servers": "a:1,b:2",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.username": "alice",
    "ssl.ca.location": "ca.pem",
    "ssl_key": object(),
    "enable.ssl.certificate.verification": "false",
    "oauth_cb": token,
    "socket.timeout.ms": 9000,
    "broker.address.family": "v4",
    "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    "client.rack": "r1",
    "reconnect.backoff.max.ms": 500,
}
LEFT: dict[str, Any] = {
    "group.id": "billing",
    "enable.auto.commit": True,
    "allow.auto.create.topics": True,
    "transactional.id": "t",
    "acks": "all",
    "partitioner": "murmur2",
    "logger": object(),
    "plugin.library.paths": "x",
    "topic.metadata.refresh.interval.ms": 10,
    "isolation.level": "read_uncommitted",
}


def test_tail_reaches_the_cluster_as_the_client_does_and_has_nothing_else_of_it() -> None:
    conf, ours = tail_conf({**INHERITED, **LEFT}, fetch_wait_ms=5000), tail_conf({}, fetch_wait_ms=5000)
    assert conf.pop("group.id") != ours.pop("group.id")
    assert conf == {**ours, **INHERITED}
    wanted = {"enable.auto.commit": False, "allow.auto.create.topics": False, "isolation.level": "read_committed"}
    assert conf.items() >= wanted.items()


def test_clients_of_one_cluster_and_user_share_a_tail() -> None:
    conf = {"bootstrap.servers": "a:1, b:2", "security.protocol": "SSL", "group.id": "g", "oauth_cb": token}
    same = {"bootstrap.servers": "b:2,a:1", "security.protocol": "SSL", "acks": 1, "oauth_cb": token}
    assert cluster_key(conf, "m") == cluster_key(same, "m")
    assert hash(cluster_key(conf, "m")) == hash(cluster_key(same, "m"))
    assert cluster_key({"metadata.broker.list": "a:1"}, "m") == cluster_key({"bootstrap.servers": "a:1"}, "m")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, None),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, LogAbsent),
        (KafkaError._UNKNOWN_PARTITION, LogAbsent),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized),
        (KafkaError._AUTO_OFFSET_RESET, LogRewound),
        (KafkaError._ALL_BROKERS_DOWN, LogUnreachable),
        (KafkaError._AUTHENTICATION, LogUnreachable),
        (-99999, LogUnreachable),
    ],
)
def test_only_the_clusters_own_word_makes_a_log_absent(code: int, error: type[ModeSourceError] | None) -> None:
    found = to_error("modes", code, "why")
    assert type(found) is (type(None) if error is None else error)
    assert found is None or ("'modes'" in str(found) and "why" in str(found))


@pytest.mark.parametrize(
    ("partitions", "policy", "fit"),
    [(1, "compact", True), (2, "compact", False), (1, "delete", False), (1, "compact,delete", False), (1, None, False)],
)
def test_a_mode_log_has_one_partition_and_is_compacted_without_deletion(
    partitions: int, policy: str | None, fit: bool
) -> None:
    reason = unfit("m", partitions, {"cleanup.policy": policy})
    assert (reason is None) is fit
    assert reason is None or "modeaware.mode.log.topic" in reason


def test_a_new_mode_log_takes_the_largest_record_whatever_the_brokers_default_is() -> None:
    assert int(log_configs(1)["max.message.bytes"]) > MAX_RECORD_BYTES


class Admin:
    """Three brokers that describe the log in turn as ``described``: by its partitions, or with an error's code."""

    def __init__(self, *described: int, creation: int = 0) -> None:
        self._described, self._creation = iter(described), creation

    @staticmethod
    def _future(value: object, code: int = 0) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(code))) if code else future.set_result(value)
        return future

    def describe_topics(self, topics: object, request_timeout: float) -> Any:
        found = next(self._described)
        partitions = SimpleNamespace(topic_id="the-id", partitions=[SimpleNamespace(replicas=[1])] * found)
        return {"m": self._future(partitions, 0 if 0 < found <= 2 else found)}

    def describe_configs(self, resources: list[Any], request_timeout: float) -> Any:
        return {resources[0]: self._future({"cleanup.policy": SimpleNamespace(value="compact")})}

    def describe_cluster(self, request_timeout: float) -> Any:
        return self._future(SimpleNamespace(nodes=[1, 2, 3]))

    def create_topics(self, new: object, request_timeout: float) -> Any:
        return {"m": self._future(None, self._creation)}


ABSENT, DENIED = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED
EXISTS = KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("described", "creation", "outcome"),
    [
        ([1], 0, None),
        ([2], 0, "has 2 partitions"),
        ([DENIED], 0, "cannot be described"),
        ([ABSENT, ABSENT, 1], 0, None),
        ([ABSENT, 2], 0, "has 2 partitions"),
        ([ABSENT], DENIED, "cannot be created"),
        ([ABSENT, ABSENT, 1], EXISTS, None),
        ([ABSENT, DENIED], EXISTS, "was created just now and cannot be described yet"),
    ],
)
def test_mode_log_is_created_where_it_is_missing_by_whichever_controller_comes_first(
    monkeypatch: pytest.MonkeyPatch, described: list[int], creation: int, outcome: str | None
) -> None:
    monkeypatch.setattr(topic_module, "AGAIN_S", 0)
    admin: Any = Admin(*described, creation=creation)
    if outcome is not None:
        with pytest.raises(ClusterError, match=outcome):
            ensure_mode_log(admin, "m")
    else:
        assert ensure_mode_log(admin, "m") == "the-id"


@pytest.mark.parametrize("number", NO_ANSWER)
def test_a_connection_that_ends_is_no_answer_and_tried_again(number: int) -> None:
    admin: Any = Admin(number)
    with pytest.raises(ClusterError) as raised:
        ensure_mode_log(admin, "m")
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_weakness_of_a_log_is_unknown_without_an_answer() -> None:
    found: list[Any] = [Admin(1), Admin(DENIED)]
    weak, unknown = (log_weakness(admin, "m") for admin in found)
    assert "it has 1 of the 3 replicas" in str(weak)
    assert unknown is None


def test_log_that_was_made_unfit_is_an_error() -> None:
    admin: Any = Admin(2)
    with pytest.raises(ClusterError, match=r"has 2 partitions, .* the active one performs no change"):
        log_weakness(admin, "m")


@pytest.mark.parametrize(
    ("replicas", "in_sync", "brokers", "told"),
    [
        (1, "1", 1, []),
        (3, "2", 9, []),
        (3, "1", 3, ["one in-sync replica is enough for an append: set the mode log's min.insync.replicas to 2"]),
        (
            1,
            "1",
            5,
            ["it has 1 of the 3 replicas that 5 brokers can keep: give it 3", "append: then set the mode log's"],
        ),
    ],
)
def test_a_log_that_was_made_while_brokers_were_down_is_told(
    replicas: int, in_sync: str | None, brokers: int, told: list[str]
) -> None:
    weak = weakness(replicas, in_sync, brokers)
    assert (weak or "").count("; ") == max(len(told) - 1, 0)
    assert (weak is None) is (not told)
    assert [each for each in told if each not in str(weak)] == []


@pytest.mark.parametrize(
    ("polled", "asked", "clients"),
    [
        (LogUnreachable("no answer"), 0, 2),
        (None, LogUnreachable("no answer"), 2),
        (LogAbsent("no such topic"), 0, 1),
    ],
)
def test_log_that_cannot_be_reached_for_long_is_read_by_a_new_client(
    monkeypatch: pytest.MonkeyPatch, polled: Exception | None, asked: int | Exception, clients: int
) -> None:
    """The first client polls and requests the end as said here, every second; the second one without fault."""
    clock = SimClock()
    made: list[float] = []

    def make(*_args: object, **_kwargs: object) -> Mock:
        made.append(clock.monotonic_s())
        faults = len(made) == 1
        target = Mock(side_effect=asked if faults and isinstance(asked, Exception) else None, return_value=0)
        return Mock(position=0, poll_or_ask=partial(poll, polled if faults else None), target=target)

    def poll(error: Exception | None, _timeout_s: float) -> list[LogRecord]:
        clock.advance(1_000)
        if error is not None:
            raise error
        return []

    monkeypatch.setattr("modeaware.modelog.reader.LogStream", make)
    sink = Mock(wanted=lambda: not made or clock.monotonic_s() < made[0] + 3 * RENEW_S)
    tail = Tail({}, "log", sink, clock)
    sink.reached_end.side_effect = lambda _: tail.stop()
    tail.run()
    assert len(made[:2]) == clients
    assert all(RENEW_S < later - made[0] < RENEW_S + 3 for later in made[1:2])
