"""The batch that proves a write fence, and what its answers mean."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import calc_crc32c

from modeaware.errors import ClusterError
from modeaware.wire.fence_probe import FENCE_CONFIGS, FenceState, probe_batch, read_answer

MARKER_BYTES = 78  # of a commit or abort marker
COUNTED_FROM, CRC_FROM = 12, 21


def test_probe_is_one_byte_larger_than_the_fence_allows() -> None:
    assert len(probe_batch()) == int(FENCE_CONFIGS["max.message.bytes"]) + 1 == MARKER_BYTES + 1


def test_probe_is_a_whole_batch_with_a_wrong_crc() -> None:
    read = DefaultRecordBatch(probe_batch())
    assert int.from_bytes(probe_batch()[8:COUNTED_FROM], "big") == len(probe_batch()) - COUNTED_FROM
    assert read.magic == 2
    assert read.base_offset == 0  # another one is refused before the size is looked at
    assert read.crc != calc_crc32c(probe_batch()[CRC_FROM:])
    assert not read.validate_crc()


def test_probe_is_refused_without_a_check_of_the_crc() -> None:
    """Brokers refuse control records of clients, by a check that comes after the one of the CRC."""
    read = DefaultRecordBatch(probe_batch())
    assert read.is_control_batch
    assert read.producer_id == -1  # it can touch the state of no producer


def test_probe_holds_one_record_that_says_what_it_is() -> None:
    plain = bytearray(probe_batch())
    plain[CRC_FROM : CRC_FROM + 2] = b"\0\0"  # kafka-python reads control records by another layout
    (record,) = DefaultRecordBatch(plain)
    assert (record.key, record.value, list(record.headers)) == (None, b"fence probe", [])


@pytest.mark.parametrize(
    ("code", "state"),
    [(10, FenceState.FENCED), (2, FenceState.OPEN)] + [(code, FenceState.UNKNOWN) for code in (3, 5, 6, 7, 9, 56, 100)],
)
def test_answer_is_fenced_open_or_unknown(code: int, state: FenceState) -> None:
    assert read_answer(code, "orders", 3) is state


@pytest.mark.parametrize(
    ("code", "says"), [(0, "orders-3: .* appended"), (29, "orders-3: .*grant WRITE"), (87, "orders-3: .*error 87")]
)
def test_other_answer_is_an_error(code: int, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        read_answer(code, "orders", 3)
