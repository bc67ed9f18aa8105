from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from modeaware.errors import NewerRecord, RecordError
from modeaware.modelog.json_form import READER_VERSION
from modeaware.modelog.records import (
    CLAIM_KEY,
    MAX_PARTITIONS,
    ClaimRecord,
    DeleteTopicPartitions,
    OpeningPartition,
    RetiredPartition,
    Straggler,
    TopicRecord,
)
from modeaware.modelog.replay import MAX_KEY_BYTES, MAX_REMEMBERED_KEYS, Replay
from modeaware.modes import ReplicaState
from tests.support.modelog import NONE, RO, RW, fold, for_newer_readers, topic_record

FULL = topic_record(
    rest=NONE,
    deletion=DeleteTopicPartitions(4, 3_600_000, False, 1_700_000_000_000, 12),
    required_groups=("billing", "audit"),
    opening_since_ms=5,
    changed_ms=1_700_000_000_001,
)


def changed(**fields: Any) -> bytes:
    """The JSON of FULL with some fields replaced; those set to ... are left out."""
    merged = {**json.loads(FULL.to_json()), **fields}
    return json.dumps({name: value for name, value in merged.items() if value is not ...}).encode()


def test_a_record_comes_back_as_it_was_written() -> None:
    read = TopicRecord.from_json(FULL.to_json())
    assert read == replace(
        FULL, required_groups=("audit", "billing")
    )  # written in order, so equal records are equal bytes
    assert read.to_json() == FULL.to_json()


def test_new_partitions_stand_beside_the_retired_ones() -> None:
    opening = {2: OpeningPartition(), 3: OpeningPartition(20)}
    record = TopicRecord("orders", "id", 1, 1, (RW, RW, RO, RO), opening=opening, opening_since_ms=5)
    assert json.loads(record.to_json())["opening"] == {"partitions": [[2, 3]], "offset": [None, 20]}
    assert TopicRecord.from_json(record.to_json()) == record
    assert (record.closed, record.view().resume_offsets) == ([2, 3], {2: 0, 3: 20})
    with pytest.raises(RecordError, match="is ReadWrite"):
        TopicRecord.from_json(replace(record, modes=(RW, RW, RW, RO)).to_json())


def test_a_record_for_newer_readers_says_of_which_topic_it_is_and_what_to_do() -> None:
    with pytest.raises(
        NewerRecord, match=rf"'orders' needs a reader of version {READER_VERSION + 1}, .*upgrade"
    ) as caught:
        TopicRecord.from_json(for_newer_readers(FULL))
    assert caught.value.topic == "orders"
    with pytest.raises(NewerRecord, match="upgrade"):
        ClaimRecord.from_json(b'{"min_reader": 2, "controller_epoch": 1}')


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"{}",
        changed(topic=...),
        changed(retired=...),
        changed(topic=7),
        changed(epoch="seven"),
        changed(epoch=float("inf")),
        changed(min_reader="1"),
        changed(modes=[]),
        changed(modes=[[0, 3, {}]]),
        changed(modes=[[0, 3, 0], [5, 6, 1]]),
        changed(modes=[[0, -1, 0]]),
        changed(modes=[[0, 10**18, 0]]),
        changed(retired=[]),
        changed(retired={"four": {}}),
        changed(retired={"4": {"replica_state": "Gone"}}),
        changed(retired={"4": {"drained": []}}),
        changed(retired={"4": {"seal_offset": float("inf")}}),
        changed(required_groups=[1]),
        changed(modes=[[0, 1, 0], [2, 3, 1]], retired={"99": {}}),
        changed(modes=[[0, 1, 0], [2, 3, 1]], retired={"0": {}}),
        changed(deletion={}),
        changed(deletion=[1]),
    ],
)
def test_rubbish_is_a_record_error_and_nothing_else(value: bytes) -> None:
    with pytest.raises(RecordError, match="mode log: "):
        TopicRecord.from_json(value)


def test_a_view_has_modes_seals_and_what_is_reclaimed() -> None:
    record = replace(
        topic_record(writable=1, count=4),
        modes=(RW, RO, NONE, NONE),
        retired={
            1: RetiredPartition(),
            2: RetiredPartition(seal_offset=7),
            3: RetiredPartition(replica_state=ReplicaState.DELETION_SUCCESSFUL, seal_offset=9),
        },
    )
    view = record.view()
    assert (view.topic, view.topic_id, view.version) == ("orders", "id-of-orders", (1, 1))
    assert view.modes == record.modes
    assert view.resume_offsets == {2: 7, 3: 9}
    assert view.reclaimed == {3}


def test_a_group_without_a_commit_resumes_at_the_seal_that_a_straggler_broke() -> None:
    record = replace(FULL, modes=(RW, RO, RO))
    sealed, unsealed = RetiredPartition(seal_offset=7), RetiredPartition(resume_offset=7)
    assert replace(record, retired={1: sealed, 2: unsealed}).view().resume_offsets == {1: 7, 2: 7}
    again = RetiredPartition(seal_offset=9, resume_offset=7)
    assert replace(record, retired={1: RetiredPartition(), 2: again}).view().resume_offsets == {2: 7}


def test_retired_partitions_come_back_from_their_columns() -> None:
    straggler = Straggler(9, 17, 1, 1_500)
    retired = {
        4: RetiredPartition(seal_offset=7, drained_by=2, lowest_commit=5),
        5: RetiredPartition(seal_offset=0, stragglers=1, straggler=straggler),
        9: RetiredPartition(replica_state=ReplicaState.DELETION_INELIGIBLE, reason="group-lag:g"),
    }
    record = replace(topic_record(count=10, writable=4, rest=RO), retired=retired)
    columns = json.loads(record.to_json())["retired"]
    assert (columns["partitions"], columns["seal_offset"]) == ([[4, 5], [9, 9]], [7, 0, None])
    assert TopicRecord.from_json(record.to_json()) == record
    done = replace(record, retired=dict.fromkeys((4, 5, 9), retired[4]))
    columns = json.loads(done.to_json())["retired"]
    assert (columns["seal_offset"], columns["drained_by"]) == (7, 2), "what all have in common stands once"
    assert TopicRecord.from_json(done.to_json()) == done


@pytest.mark.parametrize(
    "columns",
    [
        {"seal_offset": 7},
        {"partitions": [[4, 3]]},
        {"partitions": [[5, 6], [5, 6]]},
        {"partitions": [[4, MAX_PARTITIONS]]},
        {"partitions": [[4, 5]], "seal_offset": [7]},
        {"partitions": [[4, 5]], "seal_offset": "seven"},
        {"partitions": [[0, 0]]},
        [],
    ],
)
def test_malformed_columns_are_refused(columns: Any) -> None:
    with pytest.raises(RecordError):
        TopicRecord.from_json(changed(retired=columns))


def test_columns_of_a_newer_version_are_ignored() -> None:
    columns = {"partitions": [[4, 5]], "seal_offset": [7, 8], "later": [1], "also_later": {"a": 1}}
    assert TopicRecord.from_json(changed(retired=columns)).retired[5] == RetiredPartition(seal_offset=8)


def test_the_reason_of_a_waiver_is_written_once_for_all_its_groups() -> None:
    record = replace(FULL, waived={"b": "moved", "a": "moved", "c": "gone"})
    assert json.loads(record.to_json())["waived"] == {"moved": ["a", "b"], "gone": ["c"]}
    assert TopicRecord.from_json(record.to_json()).waived == record.waived


# Replay

ORDERS = "id-of-orders"


def claim(epoch: int) -> tuple[str, bytes]:
    return CLAIM_KEY, ClaimRecord(epoch, "127.0.0.1:1", "c").to_json()


def test_the_latest_record_of_a_topic_holds() -> None:
    replay = Replay()
    assert replay.apply(ORDERS, topic_record(epoch=1).to_json()) == {"orders"}
    assert replay.apply(ORDERS.encode(), topic_record(epoch=2, writable=2).to_json()) == {"orders"}
    view = replay.view_of(replay.record("orders"))
    assert (view.version, view.writable) == ((1, 2), (0, 1))
    assert list(replay.topics) == ["orders"]
    assert list(replay.records) == [ORDERS]


def test_a_topic_made_anew_under_its_name_counts_from_its_first_record() -> None:
    replay = fold(
        [
            ("id-1", topic_record(epoch=9, topic_id="id-1").to_json()),
            ("id-2", topic_record(epoch=1, topic_id="id-2").to_json()),
        ]
    )
    assert replay.record("orders").topic_id == "id-2"
    assert replay.apply("id-1", None) == {"orders"}
    assert replay.record("orders").topic_id == "id-2"
    assert set(replay.records) == {"id-2"}


def test_topics_whose_record_cannot_be_read_are_known_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    replay = fold([(ORDERS, topic_record().to_json())])
    replay.apply(ORDERS, b"rubbish")
    replay.apply("id-new", for_newer_readers(topic_record("new", topic_id="id-new")))
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


def test_long_key_is_neither_read_nor_remembered_whole(caplog: pytest.LogCaptureFixture) -> None:
    longest, too_long = "x" * MAX_KEY_BYTES, "x" * MAX_KEY_BYTES + "\ny" * 1_000
    replay = fold((key, topic_record(key[:2], topic_id=key).to_json()) for key in (longest, too_long))
    assert list(replay.records) == [longest]
    replay = fold([(too_long, b"{}"), (too_long.encode(), b"{}")])
    assert replay.unreadable == [longest]
    assert [len(record.getMessage()) < 300 for record in caplog.records] == [True] * 2


def test_an_older_claim_and_a_tombstone_of_the_claim_change_nothing() -> None:
    replay = fold([claim(3), claim(2), (CLAIM_KEY, None)])
    assert replay.claim is not None
    assert replay.claim.controller_epoch == 3
    assert replay.rejected == 2
