"""Rights: what the broker grants a user is what that user gets done through the endpoint, and nothing else.

A real broker with SASL_SSL and ACLs. The controllers' own user may do anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation

from modeaware.controller.daemon import Controller
from modeaware.controller.status import Role
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.wire import codec, messages
from tests.support.guarded import OWNER, Guarded, address_of
from tests.support.secured import ADMIN

ALTER, DELETE, DESCRIBE, READ = AclOperation.ALTER, AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.READ
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def standby(guarded: Guarded, active: Controller) -> Iterator[Controller]:
    controller = guarded.controller()
    controller.start()
    assert (controller.role, active.role) == (Role.STANDBY, Role.ACTIVE)
    yield controller
    controller.stop()


@pytest.fixture
def topic(guarded: Guarded, active: Controller) -> str:
    return guarded.topic()


@pytest.fixture
def shrunk(guarded: Guarded, active: Controller) -> str:
    """4 partitions, 2 of them writable."""
    topic = guarded.topic()
    guarded.shrink(guarded.client(ADMIN), topic, 2)
    return topic


@pytest.mark.parametrize("source", ["log", "wire"])
@pytest.mark.parametrize("rights", [(), (ALTER,), (DELETE,)], ids=["none", "no DELETE", "no ALTER"])
def test_a_shrink_that_deletes_records_needs_alter_and_delete(
    guarded: Guarded, active: Controller, topic: str, rights: tuple[AclOperation, ...], source: str
) -> None:
    """With ``log`` the client starts at the brokers and finds the controller by its claim."""
    guarded.grant(OWNER, topic, *rights)
    conf = guarded.client(OWNER, servers=address_of(active) if source == "wire" else None)
    with pytest.raises(RequestRefused, match=f"{topic}: this needs ALTER and DELETE") as refused:
        guarded.shrink({**conf, "modeaware.mode.source": source}, topic, 2, delay_ms=0)
    assert refused.value.code is DENIED
    assert refused.value.code == 29
    assert guarded.record(topic) is None
    guarded.grant(OWNER, topic, ALTER, DELETE)
    guarded.shrink({**conf, "modeaware.mode.source": source}, topic, 2, delay_ms=0)
    assert guarded.writable(topic) == 2


def test_without_delete_no_group_is_waived_and_a_shrink_by_retention_is_allowed(
    guarded: Guarded, active: Controller, topic: str
) -> None:
    guarded.grant(OWNER, topic, ALTER)
    require, waive = (GroupRule(kind, "audit", topic, "why", 1) for kind in ("require", "waive"))
    with guarded.raw(address_of(active)) as peer:
        peer.authenticate(OWNER)
        peer.name_itself()

        def rule(add: tuple[GroupRule, ...] = (), remove: tuple[GroupRule, ...] = ()) -> int:
            command = AlterGroupRulesCommand(add, tuple(each.key for each in remove))
            return int(peer.asked(messages.alter_group_rules_request(command, timeout_ms=20_000)).error_code)

        assert rule(add=(waive,)) == DENIED, "no shrink is in progress yet"
        assert (peer.shrinks(topic, 2, delay_ms=0), guarded.writable(topic)) == (DENIED, None)
        assert (peer.shrinks(topic, 2), guarded.writable(topic)) == (ErrorCode.NONE, 2)
        assert (rule(add=(waive,)), rule(add=(require,)), rule(remove=(require,))) == (DENIED, ErrorCode.NONE, DENIED)
        guarded.grant(OWNER, topic, DELETE)
        assert (rule(add=(waive,)), rule(remove=(require, waive))) == (ErrorCode.NONE, ErrorCode.NONE)


def test_rights_that_are_taken_away_or_given_count_with_the_next_request(
    guarded: Guarded, active: Controller, topic: str
) -> None:
    guarded.grant(OWNER, topic, ALTER, DELETE)
    with guarded.raw(address_of(active)) as peer:
        peer.authenticate(OWNER)
        peer.name_itself()
        assert (peer.shrinks(topic, 3, delay_ms=0), guarded.writable(topic)) == (ErrorCode.NONE, 3)
        guarded.take(OWNER, topic, DELETE)
        assert (peer.grows(topic, 4), guarded.writable(topic)) == (ErrorCode.NONE, 4)
        assert (peer.shrinks(topic, 2, delay_ms=0), guarded.writable(topic)) == (DENIED, 4)
        guarded.grant(OWNER, topic, DELETE)
        assert (peer.shrinks(topic, 2, delay_ms=0), guarded.writable(topic)) == (ErrorCode.NONE, 2)
        guarded.take(OWNER, topic, ALTER)
        assert (peer.grows(topic, 4), guarded.writable(topic)) == (DENIED, 2)


def test_a_standby_tells_the_modes_and_names_the_active_one_for_changes(
    guarded: Guarded, active: Controller, standby: Controller, shrunk: str
) -> None:
    guarded.grant(OWNER, shrunk, ALTER, DELETE)
    before = guarded.record(shrunk)
    whom = f"the active controller is {active.controller_id} at {active.address}"
    with guarded.raw(address_of(standby)) as peer:
        peer.authenticate(OWNER)
        peer.name_itself()
        _, told = codec.decode_response(peer.ask(peer.modes(shrunk)), 3, 10)
        node = next(broker for broker in told.brokers if broker.node_id == codec.ACTIVE_NODE_ID)
        assert f"{node.host}:{node.port}" == active.address
        assert (told.controller_id, told.controller_name) == (codec.ACTIVE_NODE_ID, active.controller_id)
        assert {each.partition_index: each.mode for each in told.topics[0].partitions} == {0: 0, 1: 0, 2: 1, 3: 1}
        shrinking = messages.delete_partitions_request({shrunk: 1}, delay_ms=None, immediate_delete=False, timeout_ms=9)
        ruling = messages.alter_group_rules_request(
            AlterGroupRulesCommand((GroupRule("waive", "g", shrunk, "why", 1),), ()), timeout_ms=9
        )
        for message in (shrinking, ruling):
            answer = peer.asked(message)
            assert (answer.error_code, whom in answer.error_message) == (ErrorCode.NOT_CONTROLLER, True)
        assert peer.grows(shrunk, 4) == ErrorCode.NOT_CONTROLLER
    assert guarded.record(shrunk) == before
