"""The judge by counters of numbered records, of the soak and of chaos, and what a soak calls well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.soak.figures import Figures, as_json, figures
from tests.support.numbered import Number, Reading, Written

A, B = b"writer-a", b"writer-b"
ALL = ((A, 0), (B, 0), (A, 1), (B, 1))


@dataclass(frozen=True)
class Message:
    """As a consumer returns it."""

    number: Number
    failure: KafkaError | None = None

    def key(self) -> bytes:
        return self.number[0]

    def value(self) -> bytes:
        return b"%d" % self.number[1]

    def error(self) -> KafkaError | None:
        return self.failure

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return self.number[1]


def written(rounds: int, *void: Number) -> Written:
    made = Written([A, B])
    made.rounds = rounds
    made.void |= set(void)
    return made


def reading(*numbers: Number) -> Reading:
    made = Reading()
    made.take(map(Message, numbers))
    return made


def test_all_that_was_written_was_read_in_order() -> None:
    read = reading(*ALL)
    assert read.unread(written(2)) == read.lost([written(2)]) == set()
    assert (read.read, read.duplicates, read.out_of_order(written(2))) == (4, 0, 0)
    assert written(2).acknowledged == 4


def test_a_jump_is_a_loss() -> None:
    read = reading((A, 0), (A, 3), (B, 0), (B, 1), (B, 2), (B, 3))
    assert read.lost([written(4)]) == read.unread(written(4)) == {(A, 1), (A, 2)}
    assert read.read == 6
    assert [jump[:-1] for jump in read.skips(written(4))] == [(A, range(1, 3), "topic", 1, 3)]
    assert read.skips(written(4, (A, 1), (A, 2))) == [], "nothing was acknowledged"


def test_what_was_not_acknowledged_may_be_missing_and_may_be_read() -> None:
    writer = written(2, (A, 0), (B, 1))
    read = reading((A, 1), (B, 0), (B, 1))
    assert read.lost([writer]) == read.unread(writer) == set()
    assert writer.acknowledged == 2


def test_the_last_records_are_unread_though_no_jump_shows_it() -> None:
    read = reading((A, 0), (A, 1))
    assert read.lost([written(2)]) == set()
    assert read.unread(written(2)) == {(B, 0), (B, 1)}


def test_a_missing_record_that_comes_later_is_out_of_order_and_not_lost() -> None:
    read = reading((A, 0), (A, 2), (A, 1), (B, 0), (B, 1), (B, 2))
    assert read.unread(written(3)) == set()
    assert (read.out_of_order(written(3)), read.duplicates) == (1, 0)


def test_a_record_that_comes_again_is_a_duplicate() -> None:
    read = reading((A, 0), (A, 1), (A, 0), (A, 1), (A, 2))
    assert (read.duplicates, read.out_of_order(written(3)), read.read) == (2, 0, 3)


def test_order_and_completeness_are_of_one_writer() -> None:
    other = Written([b"other"])
    other.rounds = 2
    read = reading((A, 1), (A, 0), (b"other", 1))
    assert (read.out_of_order(written(2)), read.out_of_order(other)) == (1, 0)
    assert read.unread(other) == {(b"other", 0)}
    assert read.unread(written(2)) == {(B, 0), (B, 1)}


def test_only_a_fatal_error_ends_a_reader() -> None:
    read = Reading()
    read.take([Message((A, 0), KafkaError(KafkaError._TRANSPORT)), Message((A, 0))])
    assert (dict(read.errors), read.read) == ({"_TRANSPORT": 1}, 1)
    with pytest.raises(KafkaException):
        read.take([Message((A, 1), KafkaError(KafkaError._FATAL, "fenced", fatal=True))])


def soaked(group: Reading, *, at_end: bool = True, writer: Written | None = None, **more: Any) -> Figures:
    counts = {"seconds": 60.0, "replacements": 2, "deletions": 2, **more}
    return figures([writer or written(2)], {"range": group}, {"MSG_SIZE_TOO_LARGE": 1}, at_end, **counts)


def test_a_soak_is_well() -> None:
    end = soaked(reading(*ALL, (A, 0)))
    assert end.problems() == []
    assert (end.acknowledged, end.lag, end.duplicates) == (4, 0, {"range": 1})
    report = as_json([end], end, seed=1)
    assert (report["ok"], report["seed"], report["lost"], len(report["minutes"])) == (True, 1, {"range": 0}, 1)
    assert "refused 1" in end.line()


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        (soaked(reading((A, 0), (B, 0), (A, 1))), "group range has not read 1 records"),
        (soaked(reading((A, 1), (B, 0), (B, 1))), "group range has not read 1 records"),
        (soaked(reading((A, 1), (A, 0), (B, 0), (B, 1))), "group range: 1 records out of order"),
        (soaked(reading(), writer=written(0)), "no record was acknowledged"),
        (soaked(reading(*ALL), replacements=0, deletions=0), "no topic was replaced"),
        (soaked(reading(*ALL), deletions=1), "2 topics were replaced, 1 were deleted"),
    ],
)
def test_what_is_wrong_is_told(end: Figures, problem: str) -> None:
    assert end.problems() == [problem]
    report = as_json([], end)
    assert (report["ok"], report["problems"]) == (False, [problem])


def test_a_lag_is_no_loss_while_the_soak_goes_on() -> None:
    group = reading((A, 0), (B, 0))
    now = soaked(group, at_end=False)
    assert (now.problems(), now.lag) == ([], 2)
    group.take([Message((A, 2))])
    assert soaked(group, at_end=False, writer=written(3)).lost == {"range": 1}
