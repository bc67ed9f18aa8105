"""The demo's counting: each figure is provoked once, by hand-made acknowledgements."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from modeaware.demo.audit import Ack, ModeHistory, Position, Stored, count, faults, report_lines
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView

READ_WRITE, NONE = PartitionMode.READ_WRITE, PartitionMode.NONE
BEFORE, SHRUNK, REPLACED = (-1, -1), (0, 0), (5, 5)


def view(epoch: int, writable: int) -> TopicView:
    return TopicView("t", "id", (0, epoch), (READ_WRITE,) * writable + (NONE,) * (12 - writable))


def history() -> ModeHistory:
    """The shrink from 12 to 4 partitions as epoch 0, at 50 s, and the switch to the new topic as epoch 5."""
    return ModeHistory("t", [(50.0, view(0, 4)), (150.0, view(5, 0))])


def ack(
    record_id: str,
    partition: int,
    offset: int,
    epochs: tuple[int, int] = BEFORE,
    key: bytes | None = None,
    topic: str = "t",
) -> Ack:
    return Ack(record_id, key, 10, topic, partition, offset, epochs, 100.0)


def judge(
    *acks: Ack,
    given: Counter[str] | None = None,
    stored: dict[Position, Stored] | None = None,
) -> dict[str, Any]:
    """Count one producer's records; by default each is delivered once and lies where it was acknowledged."""
    counted = count(
        acks,
        history(),
        Counter(a.id for a in acks) if given is None else given,
        {(a.topic, a.partition, a.offset): Stored(a.id, a.key) for a in acks} if stored is None else stored,
        lambda key, n: key[0] % n,
    )
    report = {
        **counted,
        "longest_gap_s": [0.5],
        "phases_s": {"seal": 2.0},
        "partitions": {},
        "partitions_on_cluster": [12, 4],
    }
    return {**report, "faults": list(faults(report))}


def test_producer_that_got_no_acknowledgement_or_waited_long_is_a_fault() -> None:
    report = judge()
    assert report["faults"] == ["nothing was acknowledged"]
    late = {**judge(ack("0-0", 0, 0)), "longest_gap_s": [0.5, 99.0]}
    assert list(faults(late)) == ["producer 1 went 99.0 s without an acknowledgement"]


def test_a_record_that_was_never_delivered_is_lost() -> None:
    acks = ack("0-0", 11, 0), ack("0-1", 1, 0, (0, 0))
    clean = judge(*acks)
    assert (clean["acknowledged"], clean["delivered"], clean["lost"], clean["duplicates"]) == (2, 2, 0, 0)
    assert (clean["faults"], report_lines(clean)[-1][:2]) == ([], "OK")
    report = judge(*acks, given=Counter({"0-1": 2}))
    assert (report["lost"], report["duplicates"]) == (1, 1)
    assert "never delivered" in report["faults"][0]
    assert report_lines(report)[-1].startswith("FAILED")


@pytest.mark.parametrize(
    ("partition", "epochs", "expected"),
    [
        (11, (-1, -1), 0),  # before the shrink every partition is writable
        (11, (0, 0), 1),
        (11, (-1, 0), 0),  # in between: it may have been chosen before
        (5, (0, 0), 1),
        (3, (0, 5), 0),  # the replacement may have come later
        (3, (5, 5), 1),
        (11, (0, 5), 1),  # in neither view
        (11, (-1, 5), 0),
    ],
)
def test_records_in_retired_partitions_are_judged_by_the_view_of_the_call(
    partition: int, epochs: tuple[int, int], expected: int
) -> None:
    report = judge(ack("0-0", partition, 0, epochs))
    assert report["in_retired_after_switch"] == expected
    assert len(report["faults"]) == expected


def test_a_key_in_another_writable_partition_is_misplaced() -> None:
    assert judge(ack("0-0", 3, 0, SHRUNK, b"\x03"))["misplaced"] == 0
    assert judge(ack("0-0", 2, 0, SHRUNK, b"\x03"))["misplaced"] == 1
    assert judge(ack("0-0", 9, 0, (-1, 0), b"\x09"))["late_in_retired"] == 1
    assert judge(ack("0-0", 1, 0, REPLACED, b"\x05", topic="t-v2"))["misplaced"] == 0
    assert judge(ack("0-0", 2, 0, REPLACED, b"\x05", topic="t-v2"))["misplaced"] == 1


def test_what_kafka_holds_must_agree_with_the_acknowledgements() -> None:
    missing = judge(ack("0-0", 0, 7, topic="t-v2"), stored={})
    other = judge(ack("0-0", 0, 7, topic="t-v2"), stored={("t-v2", 0, 7): Stored("0-9", None)})
    deleted = judge(ack("0-0", 0, 7), stored={})
    assert [report["contradictions"] for report in (missing, other, deleted)] == [1, 1, 0]
    assert (deleted["records_deleted"], deleted["bytes_deleted"]) == (1, 10)


def test_a_cluster_with_as_many_partitions_as_before_is_a_fault() -> None:
    report = {**judge(ack("0-0", 0, 7)), "partitions_on_cluster": [12, 16]}
    assert list(faults(report)) == ["the cluster has 16 partitions of the topic, and had 12"]
