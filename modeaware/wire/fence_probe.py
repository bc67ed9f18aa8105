"""The probe that proves a topic's write fence on the leader of a partition, and the meaning of its answers.

The fence is ``compression.type=gzip`` with ``max.message.bytes=78``. It rejects all data: under gzip the smallest batch
of data that a broker stores has 81 bytes (61 of header, 18 of gzip framing, at least 2 of deflate). It admits the
markers of commits and aborts, which have 78. A broker applies a changed config some milliseconds after the change is
acknowledged, and may become leader before it applies the config. So each leader gets a probe: a batch of records. The
leader's answer proves whether the fence is in force there.

The probe must never be appended, with or without a fence. A leader checks an incoming batch in this order
(``UnifiedLog``, ``analyzeAndValidateRecords`` and then ``LogValidator``; the same in Kafka 3.9, 4.0 and 4.2):

1. its base offset is 0, else INVALID_RECORD;
2. its size, else MESSAGE_TOO_LARGE;
3. its CRC, else CORRUPT_MESSAGE;
4. its counts, its control bit (clients may not set it), then, if the topic has CreateTime, its timestamps.

So on topics of any timestamp type, a batch of 79 bytes with a wrong CRC gets MESSAGE_TOO_LARGE with the fence, and
CORRUPT_MESSAGE without it. Neither leaves a line in the broker's log. MESSAGE_TOO_LARGE counts in the broker's metric
BytesRejectedPerSec, CORRUPT_MESSAGE in InvalidMessageCrcRecordsPerSec. A broker that skipped the CRC would reject the
batch for its control bit.

MESSAGE_TOO_LARGE does not prove that ``compression.type`` is gzip. So change both configs in one request, which brokers
apply as a whole, and read both back.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.replacement import FENCE_CONFIGS as FENCE_CONFIGS

PROBE_ACKS: Final = 1
"""With -1, a partition below ``min.insync.replicas`` returns NOT_ENOUGH_REPLICAS before the batch is read."""

# Base offset, length from here on, leader epoch, magic, CRC, attributes, last offset delta, first and last timestamp,
# producer id, its epoch, base sequence, number of records.
BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_COUNTED_FROM = struct.calcsize(">qi")
_CONTROL = 0x20
_WRONG_CRC = 0  # a test checks that this is not the batch's CRC
# 17 bytes: attributes, deltas of timestamp and offset, no key, 11 bytes of value, no headers.
_RECORD = b"\x22\x00\x00\x00\x01\x16fence probe\x00"


class FenceState(Enum):
    """The state of a leader's fence at the time of its answer."""

    FENCED = "fenced"
    OPEN = "open"
    UNKNOWN = "unknown"
    """The answer does not show that a leader checked the batch: look up the leader and probe again."""


def probe_batch() -> bytes:
    """Return the records of a Produce request (version 3 or later, one for each partition) that is never appended.

    The batch has 79 bytes, the fewest that the fence rejects. So a topic's own ``max.message.bytes`` is taken for a
    fence only if that value is no larger than the fence's.
    """
    length = BATCH_HEADER.size - _COUNTED_FROM + len(_RECORD)
    return BATCH_HEADER.pack(0, length, -1, 2, _WRONG_CRC, _CONTROL, 0, 0, 0, -1, -1, -1, 1) + _RECORD


def read_answer(error_code: int, topic: str, partition: int) -> FenceState:
    """Return what the answer to a probe proves.

    Args:
        error_code: the partition's error code in the Produce response.

    Raises:
        ClusterError: another probe would get the same answer, for example because the right WRITE is missing; or the
            batch was appended, which no Kafka broker does.
    """
    if error_code == _MESSAGE_TOO_LARGE:
        return FenceState.FENCED
    if error_code == _CORRUPT_MESSAGE:
        return FenceState.OPEN
    if error_code in _NO_LEADER:
        return FenceState.UNKNOWN
    where, code = f"{topic}-{partition}", None
    if error_code == 0:
        message = (
            f"{where}: the broker appended the probe of the write fence, because it checks no CRC: use no fence "
            "there (--fence none)"
        )
    elif error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        message = f"{where}: not authorized to probe the write fence; grant WRITE on the topic"
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    else:
        message = f"{where}: the probe of the write fence was answered with Kafka error {error_code}"
    raise ClusterError(message, code=code, topic=topic, partition=partition)


_CORRUPT_MESSAGE = 2
_MESSAGE_TOO_LARGE = 10
# UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, REPLICA_NOT_AVAILABLE,
# KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_ID.
_NO_LEADER = frozenset((3, 5, 6, 7, 9, 56, 100))
