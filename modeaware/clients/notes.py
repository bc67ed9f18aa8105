"""Notes in commit metadata: what a member says of an old topic's partition, beside the offset that it commits.

A commit at the end of a partition does not prove that the application has handled its last record: a client library
commits automatically while the application still works on it. So members write a note into the commit's metadata, and
the controller lets a group through to the new topic by offsets and notes (:mod:`modeaware.lifecycle`).

* ``READ``: the application was given all records to the end, and has polled again; or the partition was at its end when
  this member took it up.
* ``BUSY``: the commit is at the end, and the application has paused the partition, or has gone back in it.
* ``GIVEN``: the application was given all records, has polled again, and has not committed all of them.

Metadata of the application itself is left as it is, and counts as its own word.
"""

from __future__ import annotations

from enum import Enum

READ = "modeaware: read"
BUSY = "modeaware: busy"
GIVEN = "modeaware: given"
STARTED = "modeaware: the gate is open"
"""The metadata of a start that a member commits on a new topic. It says nothing of what was read there."""


class Note(Enum):
    """What the metadata of a commit says."""

    NONE = ""
    READ = READ
    BUSY = BUSY
    GIVEN = GIVEN
    FOREIGN = "metadata of the application"


_KINDS = {"": Note.NONE, STARTED: Note.NONE, READ: Note.READ, BUSY: Note.BUSY, GIVEN: Note.GIVEN}


def kind_of(metadata: str) -> Note:
    """Return what ``metadata`` says, with or without the NUL that librdkafka appends.

    A start on a new topic says nothing: such a topic may be replaced in its turn, and empty partitions end there.
    """
    return _KINDS.get(metadata.rstrip("\0"), Note.FOREIGN)
