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


def test_an_older_record_changes_nothing() -> None:
    replay = fold([(ORDERS, topic_record(epoch=5, controller_epoch=2).to_json())])
    assert replay.apply(ORDERS, topic_record(epoch=4, controller_epoch=2).to_json()) == frozenset()
    assert replay.apply(ORDERS, topic_record(epoch=9, controller_epoch=1).to_json()) == frozenset()
    assert replay.view("orders").version == (2, 5)
    assert replay.rejected == 2


def test_records_of_a_controller_that_was_replaced_do_not_count() -> None:
    replay = fold([(ORDERS, topic_record(epoch=1, controller_epoch=1).to_json()), claim(2)])
    assert replay.apply(ORDERS, topic_record(epoch=2, controller_epoch=1).to_json()) == frozenset()
    assert replay.view("orders").version == (1, 1)
    assert replay.apply(ORDERS, topic_record(epoch=2, controller_epoch=2).to_json()) == {"orders"}
    assert replay.rejected == 1


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff\xfe", topic_record().to_json()),
        (b"other-id", topic_record().to_json()),
        (b"x", b"not json"),
        (CLAIM_KEY.encode(), b"{}"),
        (ORDERS.encode(), b"rubbish"),
        (ORDERS.encode(), topic_record(epoch=99, min_reader=2).to_json()),
    ],
)
def test_what_cannot_be_read_changes_nothing_and_is_counted(key: bytes | None, value: bytes) -> None:
    replay = fold([claim(1), (ORDERS, topic_record().to_json())])
    assert replay.apply(key, value) == frozenset()
    assert replay.view("orders").version == (1, 1)
    assert replay.claim is not None
    assert replay.rejected == 1


def test_what_cannot_be_read_is_logged_once_per_key(caplog: pytest.LogCaptureFixture) -> None:
    replay = fold([(ORDERS, topic_record().to_json())])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            replay.apply(ORDERS, topic_record(epoch=2, min_reader=2).to_json())
            replay.apply(b"id-new", topic_record("new", topic_id="id-new", min_reader=2).to_json())
            replay.apply(None, b"")
    assert replay.rejected == 9
    assert len(caplog.records) == 3
    assert "the last one stays in force" in caplog.messages[0]
    assert "passed over" in caplog.messages[1]


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


def test_a_log_full_of_rubbish_fills_neither_memory_nor_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        replay = fold((f"key-{n}", b"rubbish") for n in range(MAX_REMEMBERED_KEYS + 100))
    assert replay.rejected == MAX_REMEMBERED_KEYS + 100
    assert len(replay.unreadable) == MAX_REMEMBERED_KEYS
    assert len(caplog.records) == MAX_REMEMBERED_KEYS


def test_an_older_claim_and_a_tombstone_of_the_claim_change_nothing() -> None:
    replay = fold([claim(3), claim(2), (CLAIM_KEY, None)])
    assert replay.claim is not None
    assert replay.claim.controller_epoch == 3
    assert replay.rejected == 2
