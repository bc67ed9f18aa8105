"""The journals of writers and readers: entries of a fixed size, appended with ``write(2)``, so that they survive a
``kill -9`` of the process that wrote them."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_ENTRY = struct.Struct("<QIIBB")
_CHUNK = _ENTRY.size * 50_000
UNPLACED = (1 << 32) - 1
"""An acknowledged record whose offset was not told: librdkafka's answer to DUPLICATE_SEQUENCE_NUMBER."""

Entry = tuple[int, int, int, int, int]
"""(number, offset, at_ms, partition, kind); what does not apply is 0."""


class Kind(IntEnum):
    """What an entry says, of a reader (READ to COMMIT_FAILED), a writer, or the topic (STORED).

    READ: the reader was given the record ``number`` at ``partition``, ``offset``.
    TAKEN, DROPPED: it holds ``partition`` from here on, or does not any more.
    COMMIT_FAILED: its commit failed, or it lost its partitions: what it has read since ``offset`` (a time in ms: that
        of the first reading that it had not committed) may be read again.
    ACKED: the record ``number`` was acknowledged at ``partition``, ``offset`` (:data:`UNPLACED`: somewhere).
    VIEW: from the sequence number ``offset`` on, the writer sends under the versions of :func:`unpack_bounds`.
    BEGUN, COMMITTED, ABORTED: a transaction; ``offset`` is the sequence number of its first record, or the one behind
        its last.
    ENDED: the process ended in good order; of a writer: all it sent is settled.
    STORED: the record ``number`` lies at ``partition``, ``offset`` at the end of the run.
    """

    READ = 1
    TAKEN = 2
    DROPPED = 3
    COMMIT_FAILED = 4
    ACKED = 5
    VIEW = 6
    BEGUN = 7
    COMMITTED = 8
    ABORTED = 9
    ENDED = 10
    STORED = 11


class Journal:
    """Appends entries to a new file. One thread owns it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._waiting = bytearray()

    def add(self, kind: Kind, *, number: int = 0, offset: int = 0, at_ms: int = 0, partition: int = 0) -> None:
        """Note an entry; it is on the way with the next :meth:`flush`."""
        self._waiting += _ENTRY.pack(number, offset, at_ms, partition, kind)

    def flush(self) -> None:
        """Hand all noted entries to the operating system: from then on this process may be killed."""
        while self._waiting:
            written = os.write(self._file, self._waiting)
            del self._waiting[:written]

    def close(self) -> None:
        self.flush()
        os.close(self._file)


@dataclass(frozen=True)
class JournalFile:
    """A journal's entries of some kinds, in the order they were noted; it can be iterated over again.

    An entry that a kill has torn at the end is left out.
    """

    path: Path
    kinds: Collection[Kind]

    def __iter__(self) -> Iterator[Entry]:
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                for entry in _ENTRY.iter_unpack(chunk[: len(chunk) // _ENTRY.size * _ENTRY.size]):
                    if entry[4] in self.kinds:
                        yield entry


def pack_bounds(lower: int, upper: int) -> int:
    """Two view versions (-1 or more) as the number of a VIEW entry."""
    return (lower + 1) << 32 | (upper + 1)


def unpack_bounds(number: int) -> tuple[int, int]:
    return (number >> 32) - 1, (number & 0xFFFFFFFF) - 1
