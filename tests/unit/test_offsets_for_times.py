"""A ListOffsets request that is encoded here is what kafka-python encodes."""

from __future__ import annotations

import pytest

from modeaware.cluster.metadata import EARLIEST, EARLIEST_LOCAL, READ_UNCOMMITTED, list_offsets_request
from modeaware.wire.offsets_for_times import LOCAL_VERSION, VERSION, OffsetsForTimes


@pytest.mark.parametrize("count", [1, 200], ids=["a count of one byte", "of two"])
@pytest.mark.parametrize("topics", [1, 300])
@pytest.mark.parametrize(
    ("time_ms", "version"), [(EARLIEST, VERSION), (1_800_000_000_000, VERSION), (EARLIEST_LOCAL, LOCAL_VERSION)]
)
def test_bytes_are_those_of_kafka_python(topics: int, count: int, time_ms: int, version: int) -> None:
    led = {f"täglich-{'x' * 130}-{n}": dict.fromkeys(range(count), -1) for n in range(topics)}
    ours = OffsetsForTimes([(name, p) for name in led for p in led[name]], dict.fromkeys(led, time_ms), version)
    theirs = list_offsets_request(led, time_ms, READ_UNCOMMITTED)
    theirs.API_VERSION = version
    for request in (ours, theirs):
        request.with_header(7, "modeaware")
    assert ours.encode(framed=True, header=True) == bytes(theirs.encode(framed=True, header=True))


def test_topics_have_times_of_their_own_and_each_sending_its_own_correlation_id() -> None:
    request = OffsetsForTimes([("a", 3), ("b", 4)], {"a": 5, "b": 6})
    request.with_header(1, "modeaware")
    first = request.encode(framed=True, header=True)
    request.with_header(2, "modeaware")
    second = request.encode(framed=True, header=True)
    assert first.replace((1).to_bytes(4, "big"), (2).to_bytes(4, "big"), 1) == second
    for partition, time_ms in ((3, 5), (4, 6)):
        assert partition.to_bytes(4, "big") + b"\xff" * 4 + time_ms.to_bytes(8, "big") + b"\0" in first
