"""Metadata through the endpoint: KIP-694's version 10, and old clients that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.endpoint.desk import REFUSE, ActiveController
from modeaware.endpoint.limits import Limits
from modeaware.endpoint.metadata import Answers
from modeaware.endpoint.splice import Additions, with_modes, without_ids
from modeaware.errors import ErrorCode
from modeaware.topic_view import TopicView
from modeaware.wire import kip694, stock
from modeaware.wire.frames import MalformedFrame
from tests.support.conversation import (
    LIVE_IDS,
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
    _, brokers = stock.decode_response(
        metadata_answer(2, {"orders": (0, 3, NOT_SAID), "plain": (0, 3, NOT_SAID)}), 3, 9
    )
    orders = topics(answer)["orders"]
    assert (orders.topic_id, orders.controller_epoch, orders.mode_epoch) == (ORDERS_ID, 3, 7)
    assert [p.mode for p in orders.partitions] == [RW, RW, RO, NONE]
    assert [p.resume_offset for p in orders.partitions] == [-1, -1, 40, 50]
    assert [p.reclaimed for p in orders.partitions] == [False, False, False, True]
    assert (orders.previous_counts, [p.handed_over for p in orders.partitions]) == ([6, 4], [True, False, False, True])
    plain = topics(answer)["plain"]
    assert (plain.topic_id, plain.controller_epoch, plain.mode_epoch, plain.previous_counts) == (None, -1, -1, [])
    assert [p.mode for p in plain.partitions] == [RW] * 3
    for topic in brokers.topics:
        for theirs, ours in zip(topic.partitions, topics(answer)[topic.name].partitions, strict=False):
            names = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes")
            for name in (*names, "offline_replicas"):
                assert getattr(ours, name) == getattr(theirs, name)
    assert answer.cluster_id == "cluster"
    assert [broker.node_id for broker in answer.brokers] == [1, 2, 3, kip694.ENDPOINT_NODE_ID]
    assert (answer.brokers[-1].host, answer.brokers[-1].port) == ("endpoint.example", 9690)
    assert (answer.controller_id, answer.controller_name) == (kip694.ENDPOINT_NODE_ID, "c1")


def test_of_the_topics_a_client_holds_those_whose_record_was_taken_back_are_named() -> None:
    talk = Talk(FakeDesk(taken_back=frozenset({"gone-1", "gone-2", "not-asked"})))
    held = {"held_topic_ids": ["gone-1", ORDERS_ID, "gone-2"]}
    assert asked(talk, modes_request(2, ["orders", "plain"], **held)).removed_topic_ids == ["gone-1", "gone-2"]
    assert asked(talk, modes_request(3, ["orders", "plain"])).removed_topic_ids == []


def test_a_partition_only_the_mode_log_names_is_told_without_a_leader() -> None:
    answer = asked(Talk(), modes_request(2, ["orders"]))
    last = answer.topics[0].partitions[3]
    assert (last.error_code, last.partition_index, last.leader_id, last.leader_epoch, last.replica_nodes) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        3,
        -1,
        -1,
        [],
    )


def test_a_partition_only_the_broker_names_is_read_only_while_others_are_retired() -> None:
    answer = asked(Talk(broker=FakeBroker(partitions=6)), modes_request(2, ["orders"]))
    assert [p.mode for p in answer.topics[0].partitions] == [RW, RW, RO, NONE, RO, RO]


@pytest.mark.parametrize("code", [3, 29, 5, 17, -1])
def test_of_a_topic_with_an_error_nothing_is_said(code: int) -> None:
    answer = asked(Talk(broker=FakeBroker(rights={}, missing=code)), modes_request(2, ["orders"]))
    topic = answer.topics[0]
    assert (topic.error_code, topic.partitions, topic.topic_id, topic.mode_epoch) == (code, [], None, -1)


def test_the_broker_is_asked_what_the_client_asked() -> None:
    talk = Talk()
    flags = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    asked(talk, modes_request(2, ["orders"], allow_auto_topic_creation=False, **flags))
    header, request = decoded_question(talk.sent[1])
    assert (header.api_version, header.correlation_id) == (10, -1)
    assert b"\0\x08a client" in talk.sent[1]
    assert [topic.name for topic in request.topics] == ["orders"]
    assert not request.allow_auto_topic_creation
    assert request.include_cluster_authorized_operations
    assert request.include_topic_authorized_operations
    asked(talk, modes_request(3))
    assert decoded_question(talk.sent[-1])[1].topics is None


def test_only_topics_with_a_record_are_asked_about_by_name_and_never_made() -> None:
    talk = Talk(broker=FakeBroker(rights={"orders": 0}))
    talk.desk.known = dict.fromkeys(("orders", "hidden", "\ud800"), talk.desk.known["orders"])
    answer = asked(talk, modes_request(2, modes_only=True))
    _, request = decoded_question(talk.sent[1])
    assert [topic.name for topic in request.topics] == ["orders", "hidden"]
    assert not request.allow_auto_topic_creation
    assert list(topics(answer)) == ["orders"]


@pytest.mark.parametrize(("code", "told"), [(3, False), (29, False), (5, True)])
def test_what_a_user_may_not_see_is_left_out(code: int, told: bool) -> None:
    answer = asked(Talk(broker=FakeBroker(rights={}, missing=code)), modes_request(2, modes_only=True))
    assert bool(answer.topics) is told


def test_no_record_means_no_topic() -> None:
    talk = Talk(FakeDesk(known={}))
    assert asked(talk, modes_request(2, modes_only=True)).topics == []
    assert decoded_question(talk.sent[1])[1].topics == []


def test_all_with_a_record_and_some_by_name_is_no_question() -> None:
    talk = Talk()
    talk.ask(hello(1), modes_request(2, ["orders"], modes_only=True))
    assert talk.closed == "a frame that cannot be read"


def test_without_an_active_controller_there_is_none() -> None:
    answer = asked(Talk(FakeDesk(active=False, claimed=None)), modes_request(2))
    assert (answer.controller_id, answer.controller_name, len(answer.brokers)) == (-1, None, 3)
    stopped = ActiveController("other")
    answer = asked(Talk(FakeDesk(active=False, claimed=stopped)), modes_request(2))
    assert (answer.controller_id, answer.controller_name, len(answer.brokers)) == (-1, "other", 3)


# -- the cache -------------------------------------------------------------------------------------------------------


def test_an_unchanged_answer_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(answer: bytes, views: Any, added: Additions, **how: Any) -> bytes:
        made.append(1)
        return with_modes(answer, views, added, **how)

    monkeypatch.setattr("modeaware.endpoint.metadata.with_modes", counted)
    cache = Answers(Limits())
    desk = FakeDesk()
    told = []
    for correlation_id in (2, 300):
        talk = Talk(desk, cache=cache)
        asked(talk, modes_request(correlation_id))
        told.append(talk.told[-1])
    assert len(made) == 1
    assert told[0][4:] == told[1][4:]
    assert told[1][:4] == (300).to_bytes(4, "big")
    for change in ({"number": 1}, {"active": False}, {"claimed": None}, {"advertised": ("elsewhere", 1)}):
        for name, value in change.items():
            setattr(desk, name, value)
        asked(Talk(desk, cache=cache), modes_request(2))
    # The advertised address is nobody's business while another one is active.
    assert len(made) == 4
    asked(Talk(desk, cache=cache), modes_request(2, modes_only=True))
    assert len(made) == 5


def test_a_mode_that_changes_is_told_at_once() -> None:
    talk = Talk()
    asked(talk, modes_request(2, ["orders"]))
    talk.desk.known = {"orders": TopicView("orders", ORDERS_ID, (3, 8), (RW, RO, RO, RO))}
    talk.desk.number += 1
    talk.ask(modes_request(3, ["orders"]))
    answer = kip694.decode_modes_response(talk.all_answered()[-1])[1]
    assert [p.mode for p in answer.topics[0].partitions] == [RW, RO, RO, RO]


def test_the_cache_is_bounded() -> None:
    answers = Answers(Limits(cache_bytes=5_000))
    for number in range(100):
        assert answers.get(memoryview(number.to_bytes(4, "big")), "x", lambda: b"y" * 1_000) == b"y" * 1_000
        assert answers.size_bytes <= 5_000
    assert answers.size_bytes > 3_000
    assert answers.get(memoryview(b"big"), "x", lambda: b"z" * 6_000) == b"z" * 6_000
    assert answers.get(memoryview((99).to_bytes(4, "big")), "x", lambda: b"other") == b"y" * 1_000


# -- the bytes -------------------------------------------------------------------------------------------------------

ADDED = Additions(None, None, False)
VIEWS = {"orders": FakeDesk().known["orders"]}


def views(topic: str) -> TopicView:
    return VIEWS.get(topic) or TopicView.unlisted(topic)


@pytest.mark.parametrize("version", [9, 10])
def test_an_answer_that_ends_early_or_late_is_none(version: int) -> None:
    answer = metadata_answer(1, {"orders": (0, 3, 0), "plain": (0, 130, 0)}, version=version)
    with_ids = version == stock.METADATA_WITH_IDS
    assert with_modes(answer, views, ADDED, with_ids=with_ids)
    for length in range(len(answer)):
        with pytest.raises(MalformedFrame):
            with_modes(answer[:length], views, ADDED, with_ids=with_ids)
    with pytest.raises(MalformedFrame):
        with_modes(answer + b"\0", views, ADDED, with_ids=with_ids)


def test_an_answer_without_topic_ids_is_the_brokers_own_of_the_version_before() -> None:
    told = {"orders": (0, 3, 0), "plain": (0, 130, 192), "denied": (29, 0, NOT_SAID)}
    plain, ids = without_ids(metadata_answer(1, told, version=10))
    assert plain == metadata_answer(1, told, version=9)
    assert ids == {"orders": LIVE_IDS["orders"], "plain": b"-----------plain", "denied": b"----------denied"}


def test_tagged_fields_of_others_and_long_arrays_are_read() -> None:
    replicas = list(range(300))
    partition = stock.MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    _, message = stock.decode_response(metadata_answer(1, {"orders": (0, 1, 0)}), 3, 9)
    message.topics[0].partitions = [
        partition(
            version=9,
            error_code=0,
            partition_index=0,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=replicas,
            isr_nodes=replicas[:127],
            offline_replicas=replicas[:126],
        )
    ]
    plain = stock.encode_response(message, 9, 1)
    at = plain.index(b"\0\0\0\0\0\0\0\0\0\1\0\0\0\0") + 14 + 2 + 300 * 4 + 2 + 127 * 4 + 1 + 126 * 4
    assert plain[at] == 0
    tagged = plain[:at] + b"\1\x85\1\3abc" + plain[at + 1 :]
    for answer in (plain, tagged):
        _, told = kip694.decode_modes_response(b"\0\0\0\1\0" + with_modes(answer, views, ADDED))
        got = told.topics[0].partitions[0]
        assert (got.replica_nodes, got.isr_nodes, got.offline_replicas) == (replicas, replicas[:127], replicas[:126])


@pytest.mark.parametrize(
    "rest",
    [
        b"\0\0\0\0\0",  # null brokers
        b"\0\0\0\0\xff\xff\xff\xff\xff\xff\1",  # a length that is none
        b"\0\0\0\0\xff\xff\xff\xff\x0f",  # more brokers than bytes
        b"\0\0\0\0\1\0\0\0\0\0\2\0\0\0\0\1\0\0\0\0\0",  # a topic without a name
        b"\0\0\0\0\1\0\0\0\0\0\2\0\0\2\xff\0\1\0\0\0\0\0",  # a name that is no text
    ],
)
def test_what_follows_no_layout_is_none(rest: bytes) -> None:
    with pytest.raises(MalformedFrame):
        with_modes(b"\0\0\0\1\0" + rest, views, ADDED)


# -- old clients, refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_an_old_client_is_turned_away_from_that_topic_alone(version: int) -> None:
    answer = refused(version, ["orders", "plain"])
    orders, plain = topics(answer)["orders"], topics(answer)["plain"]
    assert (orders.error_code, orders.partitions) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
    assert (plain.error_code, len(plain.partitions)) == (0, 3)
    assert {broker.node_id for broker in answer.brokers} == {1, 2, kip694.ENDPOINT_NODE_ID}
    assert version == 0 or answer.controller_id == kip694.ENDPOINT_NODE_ID


@pytest.mark.parametrize("version", range(10))
def test_who_is_turned_away_from_all_keeps_asking_here(version: int) -> None:
    answer = refused(version, ["orders"])
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (kip694.ENDPOINT_NODE_ID, "endpoint.example", 9690)
    ]


@pytest.mark.parametrize("code", [3, 29])
def test_who_may_not_see_a_topic_is_not_told_that_it_shrinks(code: int) -> None:
    assert refused(9, ["orders"], rights={}, missing=code).topics[0].error_code == code


@pytest.mark.parametrize("version", range(10))
def test_who_is_turned_away_here_is_sent_to_the_active_controller(version: int) -> None:
    """For growths; its questions are answered here as well."""
    talk = Talk(FakeDesk(old_clients=REFUSE, active=False))
    talk.ask(old_metadata_request(5, version, ["orders"]))
    _, answer = stock.decode_response(talk.all_answered()[0], 3, version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (kip694.ENDPOINT_NODE_ID, "endpoint.example", 9690),
        (kip694.ACTIVE_NODE_ID, "active.example", 9691),
    ]
    assert version == 0 or answer.controller_id == kip694.ACTIVE_NODE_ID


def test_a_claim_that_changes_is_told_to_who_is_turned_away_at_once() -> None:
    talk = Talk(FakeDesk(old_clients=REFUSE, active=False))
    talk.ask(old_metadata_request(5, 9, ["orders"]))
    talk.all_answered()
    talk.desk.claimed = None
    talk.ask(old_metadata_request(5, 9, ["orders"]))
    _, answer = stock.decode_response(talk.all_answered()[1], 3, 9)
    assert answer.controller_id == kip694.ENDPOINT_NODE_ID
    assert len(answer.brokers) == 1


def test_a_topic_whose_partitions_all_take_writes_again_is_served() -> None:
    talk = Talk(FakeDesk({"orders": TopicView("orders", ORDERS_ID, (1, 1), (RW, RW, RW))}, old_clients=REFUSE))
    talk.ask(old_metadata_request(5, 9, ["orders"]))
    assert len(stock.decode_response(talk.all_answered()[0], 3, 9)[1].topics[0].partitions) == 3


@pytest.mark.parametrize("name", ["modeaware", "modeaware-librdkafka"])
def test_what_is_underneath_aware_clients_is_not_turned_away(name: str) -> None:
    talk = Talk(FakeDesk(old_clients=REFUSE))
    talk.ask(hello(1, name), old_metadata_request(5, 9, ["orders"]))
    answer = stock.decode_response(talk.all_answered()[-1], 3, 9)[1]
    assert (answer.topics[0].error_code, len(answer.topics[0].partitions)) == (0, 3)


def test_aware_clients_are_not_turned_away() -> None:
    answer = asked(Talk(FakeDesk(old_clients=REFUSE)), modes_request(2, ["orders"]))
    assert len(answer.topics[0].partitions) == 4


# -- old clients, served ---------------------------------------------------------------------------------------------
