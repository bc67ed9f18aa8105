from __future__ import annotations

import logging

import pytest

from modeaware.modelog.records import CLAIM_KEY, ClaimRecord
from modeaware.modelog.replay import MAX_REMEMBERED_KEYS, Replay, fold
from tests.support.modelog import topic_record

ORDERS = "id-of-orders"


def claim(epoch: int) -> tuple[str, bytes]:
    return CLAIM_KEY, ClaimRecord(epoch, "127.0.0.1:1", "c").to_json()


def test_the_latest_record_of_a_topic_holds() -> None:
    replay = Replay()
    assert replay.apply(ORDERS, topic_record(epoch=1).to_json()) == {"orders"}
    assert replay.apply(ORDERS.encode(), topic_record(epoch=2, writable=2).to_json()) == {"orders"}
    assert replay.view("orders").version == (1, 2)
    assert replay.view("orders").writable == (0, 1)
    assert list(replay.topics) == ["orders"]
    assert list(replay.records) == [ORDERS]


def test_a_topic_made_anew_under_its_name_counts_from_its_first_record() -> None:
    replay = fold(
        [
            ("id-1", topic_record(epoch=9, topic_id="id-1").to_json()),
            ("id-2", topic_record(epoch=1, topic_id="id-2").to_json()),
        ]
    )
    assert replay.view("orders").topic_id == "id-2"
    assert replay.apply("id-1", None) == {"orders"}
    assert replay.view("orders").topic_id == "id-2"
    assert set(replay.records) == {"id-2"}


def test_topics_whose_record_cannot_be_read_are_known_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    replay = fold([(ORDERS, topic_record().to_json())])
    replay.apply(ORDERS, b"rubbish")
    replay.apply("id-new", topic_record("new", topic_id="id-new", min_reader=2).to_json())
    replay.apply("what", b"rubbish")
    assert replay.unreadable == ["new", "orders", "what"]
    assert replay.newer == {"id-new"}
    replay.apply(ORDERS, topic_record(epoch=2).to_json())
    replay.apply("what", None)
    assert replay.unreadable == ["new"]


def test_log_full_of_rubbish_fills_neither_memory_nor_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        replay = fold((f"key-{n}", b"rubbish") for _ in range(2) for n in range(MAX_REMEMBERED_KEYS + 100))
    assert replay.rejected == 2 * (MAX_REMEMBERED_KEYS + 100)
    assert len(replay.unreadable) == MAX_REMEMBERED_KEYS
    assert len(caplog.records) == MAX_REMEMBERED_KEYS, "once per key"


def test_an_older_claim_and_a_tombstone_of_the_claim_change_nothing() -> None:
    replay = fold([claim(3), claim(2), (CLAIM_KEY, None)])
    assert replay.claim is not None
    assert replay.claim.controller_epoch == 3
    assert replay.rejected == 2
