"""Actions for the client library: the outputs of :class:`~modeaware.clients.member.Member`.

A *shell* (the code over one library) carries out one action at a time, in the polling thread. It answers each action
with :meth:`Member.done` or :meth:`Member.failed`. After a failure, the member repeats what is still to be done. A
commit may be answered later (:meth:`Member.begun`), so that it does not block the polling thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from modeaware.clients.starts import Committed as Committed
from modeaware.clients.starts import Key
from modeaware.clients.starts import Start as Start


class Place(NamedTuple):
    """The position from which a partition that was hidden is read again.

    Attributes:
        offset: the position, or None if the library's own position is right.
        has_begun: the application got records of the partition in this assignment.
    """

    offset: int | None
    has_begun: bool = False


@dataclass(frozen=True)
class Assign:
    """Assign partitions to the library.

    Attributes:
        places: partition -> the offset to read from, or None if the library decides it.
        whole: the partitions replace the library's assignment. If false, they are added to it.
    """

    places: Mapping[Key, int | None]
    whole: bool


@dataclass(frozen=True)
class Pause:
    keys: frozenset[Key]


@dataclass(frozen=True)
class Resume:
    keys: frozenset[Key]


@dataclass(frozen=True)
class Seek:
    """Read partitions from the offsets in ``places``. None as an offset means that the library's own position is right.
    Answer: the partitions where the seek is done. The library may not be ready for the other partitions yet."""

    places: Mapping[Key, int | None]


class Event(Enum):
    """The reason for a call of an application's callback."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True)
class Show:
    """Call the application's callback for ``event``.

    Answer: None, unless an ``ASSIGNED`` callback has called ``assign`` itself. Then the answer has each partition of
    that call -> the offset that the callback gave, or None. The action fails if the callback raises.
    """

    event: Event
    keys: frozenset[Key]


@dataclass(frozen=True)
class Commit:
    """Commit offsets. Answer: the partitions that are committed."""

    offsets: Mapping[Key, Committed]


@dataclass(frozen=True)
class CommitStored:
    """Commit the offsets that the library would commit automatically. Answer: a Committed for each partition that had
    an offset to commit."""


@dataclass(frozen=True)
class Subscribe:
    """Subscribe to topics and patterns.

    Attributes:
        left_out: topics that a pattern matches and that must not be read.
    """

    topics: tuple[str, ...]
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rejoin:
    """Leave the group and join it again. Without the leave, only a join of the group's leader starts a rebalance."""


class Asked(Enum):
    """The subject of a request to brokers."""

    STARTS = "where partitions start (a Start each)"
    PLACES = "the positions of partitions that were hidden (a Place each)"
    RESTARTS = "where the group's commits are, from which partitions are read again (a Start each)"
    COMMITTED = "what the group has committed (a Committed each; None: nothing)"
    OTHER_STARTS = "the starts of partitions that this member is not assigned (a Start each)"
    OWNED = "whether topics have an owner in the group (a bool each); the keys name partition 0 of each"
    TOPICS = "which topics brokers have by now (True each); the keys name partition 0 of each"


@dataclass(frozen=True)
class Request:
    """Send a request to brokers. Answer: a mapping from ``keys`` to the values that ``what`` describes, without the
    keys for which brokers returned nothing."""

    what: Asked
    keys: frozenset[Key]


Action = Assign | Pause | Resume | Seek | Show | Commit | CommitStored | Subscribe | Rejoin | Request
