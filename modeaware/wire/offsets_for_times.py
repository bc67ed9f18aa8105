"""ListOffsets for thousands of partitions, with a time for each topic: encoded here, decoded by kafka-python.

kafka-python's request has an object for each partition. Encoding such a request takes three times as long as the rest
of a scan (:mod:`modeaware.plan.scan`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from modeaware.wire.frames import varint
from modeaware.wire.requests import ListOffsetsRequest

VERSION = 7
"""The first version with MAX_TIMESTAMP. Kafka 3.0 and later have it."""
LOCAL_VERSION = 8
"""The first version with EARLIEST_LOCAL. Brokers that can tier logs have it (KIP-405)."""
_PARTITION = struct.Struct(">iiqB")
"""Index, leader epoch, timestamp, no tags."""
_ANY_EPOCH = -1


class OffsetsForTimes:
    """A ListOffsets request for kafka-python's connections.

    Args:
        partitions: the partitions, grouped by topic.
        times_ms: topic -> a time, or one of the negative timestamps that stand for an offset.
        version: the request's version: :data:`VERSION` or :data:`LOCAL_VERSION`.
    """

    def __init__(
        self, partitions: Iterable[tuple[str, int]], times_ms: Mapping[str, int], version: int = VERSION
    ) -> None:
        self.topics = [(name, [p for _, p in some]) for name, some in groupby(partitions, key=itemgetter(0))]
        self.times_ms = times_ms
        self._sent_version = version
        self._head = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[], min_version=version, max_version=version
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    API_VERSION: Any = None  # set by the connection, if the broker supports the version

    def with_header(self, correlation_id: int, client_id: str | None) -> None:
        self._head.API_VERSION = self._sent_version
        self._head.with_header(correlation_id, client_id)

    def encode(self, framed: bool = False, header: bool = False) -> bytes:
        assert framed, "header and all, as connections require it"
        assert header
        before = bytes(self._head.encode(framed=False, header=True))[:-2]  # no topics, no tags
        parts = [before, varint(len(self.topics) + 1)]
        for name, partitions in self.topics:
            text, time_ms = name.encode(), self.times_ms[name]
            parts += [varint(len(text) + 1), text, varint(len(partitions) + 1)]
            parts += [_PARTITION.pack(p, _ANY_EPOCH, time_ms, 0) for p in partitions]
            parts.append(b"\0")
        payload = b"".join([*parts, b"\0"])
        return len(payload).to_bytes(4, "big") + payload
