"""Notes: what a member of a group says of a partition in the metadata of the group's commits.

A commit says where a group reads on, and nothing of whether the application has handled what lies before that: a client
library commits by a timer. So mode-aware members add a note to commits on an old topic, and the controller decides by
the notes which groups have an open gate to the new topic (:mod:`modeaware.lifecycle.moved`).
"""

from __future__ import annotations

from enum import Enum

READ = "modeaware: read"
"""The application was given all records to the end and has polled again, or the partition was taken up at its end."""
BUSY = "modeaware: busy"
"""The application has paused the partition, or gone back in it: the offset says nothing of what is handled."""
GIVEN = "modeaware: given"
"""The application was given all records to the end, has polled again, and has not committed the last ones."""
OPENED = "modeaware: the gate is open"
"""On the new topic: where the group starts, committed by a member when the gate was open."""


class Note(Enum):
    """What the metadata of a commit says; ``NONE``: nothing; ``FOREIGN``: something of the application's own."""

    NONE = "none"
    READ = "read"
    BUSY = "busy"
    GIVEN = "given"
    OPENED = "opened"
    FOREIGN = "foreign"


_KINDS = {"": Note.NONE, READ: Note.READ, BUSY: Note.BUSY, GIVEN: Note.GIVEN, OPENED: Note.OPENED}


def kind_of(metadata: str | None) -> Note:
    """Return what the metadata of a commit says. librdkafka appends a NUL to what it commits."""
    return _KINDS.get((metadata or "").rstrip("\0"), Note.FOREIGN)
