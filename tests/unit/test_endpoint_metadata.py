"""Metadata through the endpoint: KIP-694's version 10, old clients refused or served, topics created again (I8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.endpoint.facade import REFUSE, ActiveController
from modeaware.endpoint.metadata import Additions, with_modes
from modeaware.errors import ErrorCode, ModeSourceError
from modeaware.modelog.connection import connection_conf
from modeaware.topic_view import Moved, ReplacedBy, TopicView
from modeaware.wire import codec
from modeaware.wire.frames import MalformedFrame
from tests.support.conversation import (
    NONE,
    NOT_SAID,
    ORDERS_ID,
    RO,
    RW,
    FakeBroker,
    FakeDesk,
    Talk,
    asked,
    decoded_question,
    hello,
    metadata_answer,
    modes_request,
    old_metadata_request,
    refused,
)


def topics(answer: Any) -> dict[str, Any]:
    return {topic.name: topic for topic in answer.topics}


def test_modes_are_the_views_and_the_rest_is_the_brokers() -> None:
    talk = Talk()
    answer = asked(talk, modes_request(2, ["orders", "plain"]))
    _, brokers = codec.decode_response(
        metadata_answer(2, {"orders": (0, 3, NOT_SAID), "plain": (0, 3, NOT_SAID)}), 3, 9
    )
    orders = topics(answer)["orders"]
    assert (orders.topic_id, orders.controller_epoch, orders.mode_epoch) == (ORDERS_ID, 3, 7)
    assert [p.mode for p in orders.partitions] == [RW, RW, RO, NONE]
    assert [p.resume_offset for p in orders.partitions] == [-1, -1, 40, 50]
    assert [p.reclaimed for p in orders.partitions] == [False, False, False, True]
    assert orders.previous_count == 4
    plain = topics(answer)["plain"]
    assert (plain.topic_id, plain.controller_epoch, plain.mode_epoch, plain.previous_count) == (None, -1, -1, -1)
    assert [p.mode for p in plain.partitions] == [RW] * 3
    for topic in brokers.topics:
        for theirs, ours in zip(topic.partitions, topics(answer)[topic.name].partitions, strict=False):
            names = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes")
            for name in (*names, "offline_replicas"):
                assert getattr(ours, name) == getattr(theirs, name)
    assert answer.cluster_id == "cluster"
    assert [broker.node_id for broker in answer.brokers] == [1, 2, 3, codec.ENDPOINT_NODE_ID]
    assert (answer.brokers[-1].host, answer.brokers[-1].port) == ("endpoint.example", 9690)
    assert (answer.controller_id, answer.controller_name) == (codec.ENDPOINT_NODE_ID, "c1")
    last = orders.partitions[3]  # which only the mode log names
    assert (last.error_code, last.partition_index) == (ErrorCode.LEADER_NOT_AVAILABLE, 3)
    assert (last.leader_id, last.leader_epoch, last.replica_nodes) == (-1, -1, [])


MOVED = TopicView("orders", ORDERS_ID, (3, 8), (RO,) * 3, {0: 9, 1: 3, 2: 0})
NEW_TOPIC = ReplacedBy(
    "orders-v2", "bmV3LXRvcGljLWlkLWluLQ", 4, True, False, False, {0: 9, 1: 2, 2: 0}, frozenset("ba"), False
)


@pytest.mark.parametrize(
    ("new_topic", "state"),
    [
        (replace(NEW_TOPIC, switched=False), 0),
        (NEW_TOPIC, 1),
        (replace(NEW_TOPIC, released=True), 2),
        (replace(NEW_TOPIC, released=True, gone=True), 3),
    ],
)
def test_new_topic_is_returned(new_topic: ReplacedBy, state: int) -> None:
    talk = Talk(FakeDesk({"orders": replace(MOVED, replaced_by=new_topic)}))
    (topic,) = asked(talk, modes_request(2, ["orders"])).topics
    (told,) = topic.replaced_by
    assert (told.name, told.topic_id) == (NEW_TOPIC.topic, NEW_TOPIC.topic_id)
    assert (told.partition_count, told.state, told.groups) == (4, state, ["a", "b"])
    assert not told.groups_complete
    assert [p.read_up_to for p in topic.partitions] == [9, 2, 0]


@pytest.mark.parametrize(
    ("moved", "named", "told"),
    [
        (Moved(), ["billing"], ([], -1, -1)),
        (Moved(groups=frozenset({"billing", "secret"}), version=(3, 7)), ["billing", "other"], (["billing"], 3, 7)),
        (Moved(groups=frozenset({"billing", "secret"}), version=(3, 7)), [], ([], 3, 7)),
        (Moved(all=True, version=(4, 0)), ["b", "a"], (["a", "b"], 4, 0)),
    ],
)
def test_client_is_told_which_of_the_groups_it_has_named_have_an_open_gate(
    moved: Moved, named: list[str], told: tuple[list[str], int, int]
) -> None:
    talk = Talk(FakeDesk({"orders": replace(MOVED, replaced_by=replace(NEW_TOPIC, moved=moved))}))
    for groups, expected in ((named, told), ([], ([], *told[1:]))):  # the answers are kept apart
        (topic,) = asked(talk, modes_request(2, ["orders"], groups=groups)).topics
        assert (topic.moved, topic.moved_controller_epoch, topic.moved_epoch) == expected


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize(("code", "told"), [(3, 0), (29, 29)])
def test_name_of_a_topic_that_is_gone_points_to_its_new_topic_for_users_who_may_know_of_it(
    by_name: bool, code: int, told: int
) -> None:
    gone = replace(MOVED, replaced_by=replace(NEW_TOPIC, released=True, gone=True))
    talk = Talk(FakeDesk({"orders": gone}), broker=FakeBroker(rights={}, missing=code, ids={"orders": bytes(16)}))
    question = {"topics": ["orders"]} if by_name else {"modes_only": True}
    found = asked(talk, modes_request(2, **question)).topics
    assert [topic.error_code for topic in found] == ([told] if by_name or not told else [])
    if not told:
        assert ([p.mode for p in found[0].partitions], found[0].topic_id) == ([RO] * 3, ORDERS_ID)
        assert len(found[0].replaced_by) == 1


def test_of_the_topics_a_client_holds_those_whose_record_was_taken_back_are_named() -> None:
    talk = Talk(FakeDesk(taken_back=frozenset({"gone-1", "gone-2", "not-asked"})))
    held = {"held_topic_ids": ["gone-1", ORDERS_ID, "gone-2"]}
    assert asked(talk, modes_request(2, ["orders", "plain"], **held)).removed_topic_ids == ["gone-1", "gone-2"]
    assert asked(talk, modes_request(3, ["orders", "plain"])).removed_topic_ids == []


def test_a_partition_only_the_broker_names_is_read_only_while_others_are_retired() -> None:
    answer = asked(Talk(broker=FakeBroker(partitions=6)), modes_request(2, ["orders"]))
    assert [p.mode for p in answer.topics[0].partitions] == [RW, RW, RO, NONE, RO, RO]


def test_only_topics_with_a_record_are_asked_about_by_name_and_never_made() -> None:
    talk = Talk(broker=FakeBroker(rights={"orders": 0}))
    talk.desk.known = dict.fromkeys(("orders", "hidden", "\ud800"), talk.desk.known["orders"])
    answer = asked(talk, modes_request(2, modes_only=True))
    _, request = decoded_question(talk.sent[1])
    assert [topic.name for topic in request.topics] == ["orders", "hidden"]
    assert not request.allow_auto_topic_creation
    assert list(topics(answer)) == ["orders"]


def test_without_an_active_controller_there_is_none() -> None:
    for claimed, name in ((None, None), (ActiveController("other"), "other")):
        answer = asked(Talk(FakeDesk(active=False, claimed=claimed)), modes_request(2))
        assert (answer.controller_id, answer.controller_name, len(answer.brokers)) == (-1, name, 3)


# -- the bytes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 10])
def test_an_answer_that_ends_early_or_late_is_none(version: int) -> None:
    answer = metadata_answer(1, {"orders": (0, 3, 0), "plain": (0, 130, 0)}, version=version)
    views, added, with_ids = FakeDesk().views, Additions(None, None, False), version == codec.METADATA_WITH_IDS
    assert with_modes(answer, views, added, with_ids=with_ids)
    for broken in (*(answer[:length] for length in range(len(answer))), answer + b"\0"):
        with pytest.raises(MalformedFrame):
            with_modes(broken, views, added, with_ids=with_ids)


# -- old clients, refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_an_old_client_is_turned_away_from_that_topic_alone(version: int) -> None:
    answer = refused(version, ["orders", "plain"])
    orders, plain = topics(answer)["orders"], topics(answer)["plain"]
    assert (orders.error_code, orders.partitions) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
    assert (plain.error_code, len(plain.partitions)) == (0, 3)
    assert {broker.node_id for broker in answer.brokers} == {1, 2, codec.ENDPOINT_NODE_ID}
    assert version == 0 or answer.controller_id == codec.ENDPOINT_NODE_ID


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("active", [True, False])
def test_who_is_turned_away_keeps_asking_here_and_is_sent_to_the_active_controller(version: int, active: bool) -> None:
    """For growths; its questions are answered here as well."""
    talk = Talk(FakeDesk(old_clients=REFUSE, active=active))
    talk.ask(old_metadata_request(5, version, ["orders"]))
    _, answer = codec.decode_response(talk.all_answered()[0], 3, version)
    here = (codec.ENDPOINT_NODE_ID, "endpoint.example", 9690)
    nodes = [here] if active else [here, (codec.ACTIVE_NODE_ID, "active.example", 9691)]
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == nodes
    assert version == 0 or answer.controller_id == nodes[-1][0]


@pytest.mark.parametrize("name", ["modeaware", connection_conf({}, "ids")["client.software.name"]])
def test_what_is_underneath_aware_clients_is_not_turned_away(name: str) -> None:
    talk = Talk(FakeDesk(old_clients=REFUSE))
    talk.ask(hello(1, name), old_metadata_request(5, 9, ["orders"]))
    answer = codec.decode_response(talk.all_answered()[-1], 3, 9)[1]
    assert (answer.topics[0].error_code, len(answer.topics[0].partitions)) == (0, 3)


@pytest.mark.parametrize("code", [3, 29])
def test_user_who_may_not_see_a_topic_does_not_learn_that_it_shrinks(code: int) -> None:
    assert refused(9, ["orders"], rights={}, missing=code).topics[0].error_code == code


# -- old clients, served ---------------------------------------------------------------------------------------------


def served(desk: FakeDesk, version: int, names: list[str] | None = None) -> tuple[bytes, bytes]:
    """What the broker says, and what the client is told."""
    talk = Talk(desk)
    talk.ask(old_metadata_request(5, version, names))
    upstream = talk.broker.answer()
    talk.broker_answers(upstream)
    assert talk.closed is None
    return upstream, talk.told[0]


@pytest.mark.parametrize("version", range(1, 10))
@pytest.mark.parametrize("names", [None, [], ["orders", "plain"], ["absent"]])
@pytest.mark.parametrize(("active", "at"), [(True, ("endpoint.example", 9690)), (False, ("active.example", 9691))])
def test_served_ones_are_told_the_active_controller_and_else_what_the_broker_says(
    version: int, names: list[str] | None, active: bool, at: tuple[str, int]
) -> None:
    upstream, told = served(FakeDesk(active=active), version, names)
    _, expected = codec.decode_response(upstream, 3, version)
    broker_class = type(expected).MetadataResponseBroker
    node_id, (host, port) = codec.ENDPOINT_NODE_ID, at
    expected.brokers.append(broker_class(version=version, node_id=node_id, host=host, port=port, rack=None))
    expected.controller_id = node_id
    assert told == codec.encode_response(expected, version, 5)


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize(
    "known",
    [
        {"claimed": None},
        {"claimed": ActiveController("other")},
        {"failure": ModeSourceError("the mode log has not been read yet")},
    ],
)
def test_served_ones_are_told_what_the_broker_says_where_no_controller_is_known(
    version: int, known: dict[str, Any]
) -> None:
    upstream, told = served(FakeDesk(active=False, **known), version, ["orders"])
    assert told == upstream


# -- topics that were deleted and created again under their names ----------------------------------------------------

REMADE = {"orders": b"another-topic-id"}
REMADE_ID = "YW5vdGhlci10b3BpYy1pZA"


def test_modes_are_returned_only_for_the_topic_id_that_they_belong_to() -> None:
    talk = Talk(broker=FakeBroker(partitions=12))
    assert asked(talk, modes_request(2, ["orders"])).topics[0].mode_epoch == 7
    talk.broker.ids = REMADE  # at once, though no mode has changed
    (orders,) = asked(talk, modes_request(3, ["orders"])).topics
    assert [p.mode for p in orders.partitions] == [RW] * 12
    assert [(p.resume_offset, p.reclaimed) for p in orders.partitions] == [(-1, False)] * 12
    assert (orders.topic_id, orders.controller_epoch, orders.mode_epoch) == (REMADE_ID, -1, -1)


@pytest.mark.parametrize("broker", [FakeBroker(newest=9, ids=REMADE), FakeBroker(ids={"orders": bytes(16)})])
def test_where_brokers_have_no_topic_ids_the_name_counts(broker: FakeBroker) -> None:
    talk = Talk(broker=broker)
    talk.ask(hello(1))
    talk.all_answered()
    assert asked(talk, modes_request(2, ["orders"])).topics[0].mode_epoch == 7


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("names", [["orders", "plain"], None])
def test_an_old_client_is_not_turned_away_from_a_topic_made_anew(version: int, names: list[str] | None) -> None:
    answer = refused(version, names if names or version else [], partitions=12, ids=REMADE)
    assert {t.name: (t.error_code, len(t.partitions)) for t in answer.topics} == {"orders": (0, 12), "plain": (0, 12)}


@pytest.mark.parametrize("version", range(10))
def test_what_an_old_client_asks_for_is_asked_in_its_place(version: int) -> None:
    fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": version >= 8}
    talk = Talk(FakeDesk(old_clients=REFUSE))
    talk.ask(old_metadata_request(5, version, ["orders"], **fields))
    header, asked_for = decoded_question(talk.sent[0])
    assert header.api_version == 10
    assert [topic.name for topic in asked_for.topics] == ["orders"]
    assert asked_for.allow_auto_topic_creation == (version < 4)  # which has no such field
    assert asked_for.include_topic_authorized_operations == (version >= 8)
    assert not asked_for.include_cluster_authorized_operations
