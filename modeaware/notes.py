"""Notes: a member's report about a partition, in the metadata of its group's commits.

A committed offset does not prove that the application has handled the records before this offset: a client library may
commit by a timer. So mode-aware members add a note to commits on an old topic. By these notes the controller decides
for which groups it opens the *gate*, which hides the new topic (:mod:`modeaware.lifecycle.moved`). The *end* of a
partition is the offset behind its last record.
"""

from __future__ import annotations

from enum import Enum

READ = "modeaware: read"
"""The application has received all records to the end and has polled again, or the assignment began at the end."""
BUSY = "modeaware: busy"
"""The application has paused the partition, or has sought back: the offset does not show which records are handled."""
GIVEN = "modeaware: given"
"""The application has received all records to the end and has polled again, but has not committed the last records."""
OPENED = "modeaware: the gate is open"
"""A note on the new topic: the offset is the group's start, committed by a member because the gate was open."""


class Note(Enum):
    """The meaning of a commit's metadata. ``NONE``: no metadata. ``FOREIGN``: metadata of the application itself."""

    NONE = "none"
    READ = "read"
    BUSY = "busy"
    GIVEN = "given"
    OPENED = "opened"
    FOREIGN = "foreign"


_KINDS = {"": Note.NONE, READ: Note.READ, BUSY: Note.BUSY, GIVEN: Note.GIVEN, OPENED: Note.OPENED}


def kind_of(metadata: str | None) -> Note:
    """Return the meaning of a commit's metadata. librdkafka appends a NUL to metadata."""
    return _KINDS.get((metadata or "").rstrip("\0"), Note.FOREIGN)
