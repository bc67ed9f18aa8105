"""Metadata through the endpoint of topics that were deleted and created again under their names (invariant I8)."""

from __future__ import annotations

import pytest

from modeaware.endpoint.desk import REFUSE
from modeaware.wire import kip694, stock
from tests.support.conversation import (
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

REMADE = {"orders": b"another-topic-id"}
REMADE_ID = "YW5vdGhlci10b3BpYy1pZA"


def test_modes_are_told_of_the_topic_id_they_were_made_for_and_of_no_other() -> None:
    answer = asked(Talk(broker=FakeBroker(partitions=12, ids=REMADE)), modes_request(2, ["orders"]))
    (orders,) = answer.topics
    assert [p.mode for p in orders.partitions] == [RW] * 12
    assert [(p.resume_offset, p.reclaimed, p.handed_over) for p in orders.partitions] == [(-1, False, False)] * 12
    assert (orders.topic_id, orders.controller_epoch, orders.mode_epoch) == (REMADE_ID, -1, -1)


def test_a_topic_made_anew_with_fewer_partitions_is_told_with_those_it_has() -> None:
    answer = asked(Talk(broker=FakeBroker(partitions=2, ids=REMADE)), modes_request(2, modes_only=True))
    assert [p.partition_index for p in answer.topics[0].partitions] == [0, 1]


def test_a_topic_made_anew_is_told_at_once_though_no_mode_has_changed() -> None:
    talk = Talk(broker=FakeBroker())
    assert asked(talk, modes_request(2, ["orders"])).topics[0].mode_epoch == 7
    talk.broker.ids = REMADE
    talk.ask(modes_request(3, ["orders"]))
    assert kip694.decode_modes_response(talk.all_answered()[-1])[1].topics[0].mode_epoch == -1


@pytest.mark.parametrize("broker", [FakeBroker(newest=9, ids=REMADE), FakeBroker(ids={"orders": bytes(16)})])
def test_where_brokers_have_no_topic_ids_the_name_counts(broker: FakeBroker) -> None:
    talk = Talk(broker=broker)
    talk.ask(hello(1))
    talk.all_answered()
    talk.ask(modes_request(2, ["orders"]))
    assert kip694.decode_modes_response(talk.all_answered()[-1])[1].topics[0].mode_epoch == 7


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("names", [["orders", "plain"], None])
def test_an_old_client_is_not_turned_away_from_a_topic_made_anew(version: int, names: list[str] | None) -> None:
    answer = refused(version, names if names or version else [], partitions=12, ids=REMADE)
    assert {t.name: (t.error_code, len(t.partitions)) for t in answer.topics} == {"orders": (0, 12), "plain": (0, 12)}


@pytest.mark.parametrize("version", range(10))
def test_what_an_old_client_asks_for_is_asked_in_its_place(version: int) -> None:
    message = stock.MetadataRequest(
        topics=[("orders",)], allow_auto_topic_creation=False, include_topic_authorized_operations=version >= 8
    )
    talk = Talk(FakeDesk(old_clients=REFUSE))
    talk.ask(stock.encode_request(message, version, 5, "a client"))
    header, asked_for = decoded_question(talk.sent[0])
    assert header.api_version == 10
    assert [topic.name for topic in asked_for.topics] == ["orders"]
    assert asked_for.allow_auto_topic_creation == (version < 4)  # which has no such field
    assert asked_for.include_topic_authorized_operations == (version >= 8)
    assert not asked_for.include_cluster_authorized_operations


@pytest.mark.parametrize(("version", "told"), [(5, 5), (6, 72)])
def test_a_missing_listener_is_told_by_the_code_that_a_client_knows(version: int, told: int) -> None:
    talk = Talk(FakeDesk(old_clients=REFUSE))
    talk.ask(old_metadata_request(5, version, ["plain"]))
    answer = metadata_answer(-1, {"plain": (0, 1, 0)}, version=10)
    listed = b"\0\0" + bytes(4) + (1).to_bytes(4, "big") + (4).to_bytes(4, "big")
    assert answer.count(listed) == 1
    talk.broker_answers(answer.replace(listed, b"\0\x48" + listed[2:]))
    assert stock.decode_response(talk.told[0], 3, version)[1].topics[0].partitions[0].error_code == told
