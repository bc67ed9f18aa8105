"""Identity: who somebody is, is between that client and the broker, and the endpoint is nobody but the client.

A real broker with SASL_SSL and ACLs. The controllers' own user may do anything, so whatever a client gets by that
identity would be seen.
"""

from __future__ import annotations

import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from modeaware import AdminClient
from modeaware.controller.daemon import Controller
from modeaware.errors import ControllerUnavailable, ErrorCode, ModeAwareError
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CreatePartitionsCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import ClaimRecord
from modeaware.wire import client as wire_client
from modeaware.wire import codec, messages
from tests.support.guarded import MODE_LOG, NOBODY, OTHER, Guarded, address_of
from tests.support.secured import ADMIN, MECHANISMS
from tests.support.waiting import eventually

ALTER, DELETE = AclOperation.ALTER, AclOperation.DELETE
DENIED, CLUSTER_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
GUESS = "guessed-by-somebody"


@pytest.fixture
def topic(guarded: Guarded, active: Controller) -> str:
    return guarded.topic()


@pytest.fixture
def claim(guarded: Guarded, active: Controller) -> ClaimRecord:
    found = read_mode_log(guarded.conf, MODE_LOG, 20).claim
    assert found is not None
    return found


def shrinking(topic: str) -> Any:
    return messages.delete_partitions_request({topic: 2}, delay_ms=None, immediate_delete=False, timeout_ms=9)


@pytest.mark.parametrize("source", ["log", "wire"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_carries_a_shrink_through(
    guarded: Guarded, active: Controller, topic: str, mechanism: str, source: str
) -> None:
    guarded.grant(OTHER, topic, ALTER, DELETE)
    servers = address_of(active) if source == "wire" else None
    guarded.shrink({**guarded.client(OTHER, mechanism, servers), "modeaware.mode.source": source}, topic, 1)
    assert guarded.writable(topic) == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_wrong_password_carries_nothing(
    guarded: Guarded, active: Controller, topic: str, mechanism: str, claim: ClaimRecord
) -> None:
    guarded.grant(OTHER, topic, ALTER, DELETE)
    conf = guarded.client(OTHER, mechanism, address_of(active), password=GUESS)
    with pytest.raises(ModeAwareError) as refused:
        guarded.shrink({**conf, "modeaware.mode.source": "wire"}, topic, 2, timeout_s=2)
    assert GUESS not in str(refused.value)
    with pytest.raises(ControllerUnavailable, match=r"[Aa]uthentication|disconnected") as refused:
        wire_client.request(conf, claim, shrinking(topic), 10)
    assert GUESS not in str(refused.value)
    assert guarded.record(topic) is None


def test_the_controllers_own_rights_are_nobodys(guarded: Guarded, active: Controller, topic: str) -> None:
    """The controller's user may do anything; this one nothing, by whatever request."""
    shrunk = guarded.topic()
    guarded.shrink(guarded.client(ADMIN), shrunk, 2)
    before = guarded.record(shrunk)
    with guarded.raw(address_of(active)) as peer:
        peer.authenticate(NOBODY)
        peer.name_itself()
        _, told = codec.decode_response(peer.ask(peer.metadata()), codec.METADATA_KEY, 9)
        assert (list(told.topics), max(told.cluster_authorized_operations, 0)) == ([], 0)
        assert list(codec.decode_response(peer.ask(peer.modes()), 3, 10)[1].topics) == []
        (named,) = codec.decode_response(peer.ask(peer.modes(shrunk)), 3, 10)[1].topics
        assert (named.error_code, list(named.partitions), named.topic_id, named.mode_epoch) == (DENIED, [], None, -1)
        assert [peer.shrinks(name, 1) for name in (shrunk, topic, "missing")] == [DENIED] * 3
        growth = [CreatePartitionsCommand(name, 9) for name in (shrunk, topic)]
        answer = peer.asked(messages.create_partitions_request(growth, validate_only=False, timeout_ms=9))
        assert [result.error_code for result in answer.results] == [DENIED] * 2
        codes = [
            peer.asked(messages.alter_group_rules_request(AlterGroupRulesCommand((rule,), ()), timeout_ms=9)).error_code
            for rule in (GroupRule("waive", "g", topic, "why", 1), GroupRule("waive", "g", "*", "why", 1))
        ]
        assert codes == [DENIED, CLUSTER_DENIED]
    assert (guarded.record(shrunk), guarded.record(topic)) == (before, None)


# Authenticating anew (KIP-368)


def test_our_own_connections_authenticate_anew_by_themselves(
    guarded: Guarded,
    active: Controller,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of clients that take modes from the wire. (librdkafka leaves the endpoint for a broker before it must.)

    kafka-python begins when 85 to 95 % of a session have passed: with 150 ms left, a machine that has much to do may be
    too late. Here it begins at half.
    """
    monkeypatch.setattr("kafka.net.connection.random", SimpleNamespace(uniform=lambda least, most: 0.5))
    conf = guarded.client(OTHER, "OAUTHBEARER", address_of(active))
    caplog.set_level(logging.DEBUG, logger="kafka.net.connection")  # and the handler is at DEBUG for all

    def said(words: str) -> list[str]:
        return [message for message in caplog.messages if words in message]

    with AdminClient({**conf, "modeaware.mode.source": "wire"}) as admin:
        answers = []

        def asked_for_longer_than_two_sessions() -> bool:
            answers.append(admin.describe_modes([topic])[topic].result().modes)
            times = Counter(said("Beginning SASL"))  # by connection; each at half a session
            return max(times.values(), default=0) >= 5

        eventually(asked_for_longer_than_two_sessions, 60, interval_s=0.2)
        answers.append(admin.describe_modes([topic])[topic].result().modes)
        assert set(answers) == {()}
    assert not said("Connection lost"), caplog.text
