"""What writers and readers note: entries of a fixed size, into a ledger, or with ``write(2)`` into a file, where they
survive a ``kill -9`` of the process that wrote them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path

_ENTRY = struct.Struct("<QQIIB")
_CHUNK = _ENTRY.size * 50_000
UNPLACED = (1 << 32) - 1
"""An acknowledged record whose offset was not told: librdkafka's answer to DUPLICATE_SEQUENCE_NUMBER."""

Entry = tuple[int, int, int, int, int]
"""(number, log, offset, at_ms, kind); what does not apply is 0."""


class Kind(IntEnum):
    """What an entry says, of a reader (READ to COMMIT_FAILED), a writer, or a topic (STORED).

    READ: the reader was given the record ``number`` at ``log``, ``offset``.
    TAKEN, DROPPED: it holds ``log`` from here on, or does not any more.
    COMMIT_FAILED: its commit failed, or it lost its partitions: what it has read since ``offset`` (a time in ms: that
        of the first reading that it had not committed) may be read again.
    ACKED: the record ``number`` was acknowledged at ``log``, ``offset`` (:data:`UNPLACED`: somewhere).
    REFUSED: the record ``number`` was not; ``offset`` is the error's code in 32 bits.
    VIEW: from the sequence number ``offset`` on, the writer sends under the versions of :func:`unpack_bounds`.
    BEGUN, COMMITTED, ABORTED: a transaction; ``offset`` is the sequence number of its first record, or the one behind
        its last.
    ENDED: the client ended in good order; of a writer: all it sent is settled.
    STORED: the record ``number`` lies at ``log``, ``offset`` at the end.
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
    REFUSED = 12


class Sink:
    """Takes what one client notes.

    Args:
        now_ms: the time of the run, the same for all of its clients.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms

    def note(self, kind: int, number: int = 0, log: int = 0, offset: int = 0, at_ms: int | None = None) -> None:
        """Note an entry of a :class:`Kind`, by default of now. It is safe with the next :meth:`flush`."""
        raise NotImplementedError

    def flush(self) -> None:
        """From here on this process may be killed."""


class Journal(Sink):
    """Appends entries to a new file. One thread owns it."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._waiting = bytearray()

    def note(self, kind: int, number: int = 0, log: int = 0, offset: int = 0, at_ms: int | None = None) -> None:
        at_ms = self.now_ms() if at_ms is None else at_ms
        self._waiting += _ENTRY.pack(number, log, offset, at_ms, kind)

    def flush(self) -> None:
        while self._waiting:
            written = os.write(self._file, self._waiting)
            del self._waiting[:written]

    def close(self) -> None:
        self.flush()
        os.close(self._file)


def read_journal(path: Path) -> Iterator[Entry]:
    """A journal's entries in the order they were noted; one that a kill has torn at the end is left out."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield from _ENTRY.iter_unpack(chunk[: len(chunk) // _ENTRY.size * _ENTRY.size])


def replay(path: Path, sink: Sink) -> None:
    """Note a journal's entries again."""
    for number, log, offset, at_ms, kind in read_journal(path):
        sink.note(kind, number, log, offset, at_ms)


def pack_bounds(lower: int, upper: int) -> int:
    """Two view versions (-1 or more) as the number of a VIEW entry."""
    return (lower + 1) << 32 | (upper + 1)


def unpack_bounds(number: int) -> tuple[int, int]:
    return (number >> 32) - 1, (number & 0xFFFFFFFF) - 1
