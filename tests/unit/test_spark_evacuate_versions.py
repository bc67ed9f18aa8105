"""Which value of a key is the newest. For histories in which the truth is known see tests/long/pure."""

from __future__ import annotations

import pytest

from modeaware.spark.evacuation.versions import Order, Source, Verdict, Version


def order(switch: int = 10, first_seal: int = 100) -> Order:
    return Order({1: switch, 2: switch}, {7: first_seal, 8: first_seal}, admitted_ms=1000)


def copy(offset: int, source: Source, partition: int = 1) -> Version:
    return Version(partition, offset, source.timestamp_ms, source)


@pytest.mark.parametrize(
    ("survivor", "verdict"),
    [
        (Version(1, 10, 5), Verdict.NEWER),  # behind the switch, though its clock was slow
        (Version(1, 9, 5), Verdict.COPY),
        (Version(1, 9, 50), Verdict.COPY),  # at the same time: the count before the shrink was the last one
        (Version(2, 9, 51), Verdict.NEWER),  # elsewhere, and readable there
        (copy(20, Source(7, 40, 50)), Verdict.PLACED),
        (copy(20, Source(7, 39, 99)), Verdict.COPY),  # of a value that its own partition has replaced
        (copy(20, Source(1, 15, 5)), Verdict.NEWER),  # a value written once more: what counts is its place before
        (Version(1, 9, -1), Verdict.COPY),
    ],
)
def test_one_survivor_against_a_retired_partition(survivor: Version, verdict: Verdict) -> None:
    assert order().decide([Version(7, 40, 50)], [survivor], home=1)[0] is verdict


@pytest.mark.parametrize(("survivor_ms", "verdict"), [(60, Verdict.NEWER), (50, Verdict.NEWER), (49, Verdict.COPY)])
def test_a_straggler_is_compared_by_time(survivor_ms: int, verdict: Verdict) -> None:
    straggler = Version(7, 100, 50)
    assert order().decide([straggler], [Version(1, 10, survivor_ms)], home=1)[0] is verdict
    assert order().decide([straggler], [Version(1, 9, 99)], home=1)[0] is Verdict.COPY


def test_a_copy_that_lies_in_a_retired_partition_stands_for_itself() -> None:
    retired = Version(7, 40, 50, Source(9, 3, 30))
    assert retired.itself == Source(7, 40, 30)
    assert order().decide([retired], [copy(20, Source(7, 40, 30))], home=1)[0] is Verdict.PLACED


@pytest.mark.parametrize(
    ("header", "source"),
    [
        (Source(7, 40, -1).header(3), Source(7, 40, -1)),
        (None, None),
        (b"", None),
        (b"7@40@x@3", None),
    ],
)
def test_headers_are_read_and_those_of_others_are_not(header: bytes | str | None, source: Source | None) -> None:
    assert Source.parse(header) == source
