"""What can go wrong, the phases it can go wrong in, and a count of how often each pair was met."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum, auto

from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import TopicRecord

PHASES = ("none", "seal", "drain", "reclaim", "done", "opening")
"""The phase of the topic: ``none`` while no partition is retired; the others are modeaware.lifecycle.state'."""
REPLACED = len(PHASES)
"""The phase under which is counted what happens in schedules that replace topics."""


class Kind(IntEnum):
    """What a schedule is about; each has all that those before it have, from replacements on."""

    RESIZES = 0
    REPLACEMENTS = auto()
    DELETIONS = auto()
    CHAINS = auto()
    NAMES = auto()


class Fault(IntEnum):
    """Kinds of faults; each is counted when it strikes, and only if it made a difference to what is there.

    ``RUBBISH_IN_USE``: rubbish, or a record for newer readers, under the key of the claim, the rules or a topic.
    ``MODES_OUT_OF_REACH``: an aware producer picks while it cannot reach the mode log. ``WAIVER``: a waiver is used.
    ``GROUP_OMITTED``, ``GROUPS_HIDDEN``: a listing does without a group that is in use. ``LONG_PAUSED_PRODUCER``: the
    record lands in a sealed partition, and its producer's view is older than the delay and the quiet time.
    """

    # controllers
    CRASH = 0
    PAUSE = auto()
    SESSION_LOST = auto()
    FENCED = auto()
    STALE_GENERATION = auto()
    # the mode log
    APPEND_LOST = auto()
    APPEND_ANSWER_LOST = auto()
    APPEND_LATE = auto()
    LOG_UNREACHABLE = auto()
    COMPACTION = auto()
    DUPLICATES = auto()
    RUBBISH = auto()
    RUBBISH_IN_USE = auto()
    STRAY_RECORD = auto()
    # brokers
    OBSERVE_FAILED = auto()
    STALE_BROKER = auto()
    NO_LEADER = auto()
    TRUNCATION = auto()
    REGROWTH = auto()
    RETENTION = auto()
    CLEANUP_POLICY = auto()
    RECREATED = auto()
    RECREATED_AT_EFFECT = auto()
    FOREIGN_GROWTH = auto()
    EFFECT_REFUSED = auto()
    EFFECT_ANSWER_LOST = auto()
    LATE_DELETE = auto()
    LATE_CREATE = auto()
    # producers
    UNAWARE = auto()
    STALE_PRODUCER = auto()
    LONG_PAUSED_PRODUCER = auto()
    RETRY_ACROSS_SWITCH = auto()
    MODES_OUT_OF_REACH = auto()
    OPEN_TRANSACTION = auto()
    ABORTED_TRANSACTION = auto()
    HANGING_TRANSACTION = auto()
    # groups
    GROUP_LEAVES = auto()
    OFFSETS_EXPIRE = auto()
    GROUP_RESET = auto()
    LATE_GROUP = auto()
    GROUP_OMITTED = auto()
    GROUPS_HIDDEN = auto()
    CONSOLE_GROUP = auto()
    WAIVER = auto()

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


RESIZING: dict[Fault, float] = {
    Fault.CRASH: 0.03,
    Fault.APPEND_LOST: 0.04,
    Fault.APPEND_ANSWER_LOST: 0.04,
    Fault.APPEND_LATE: 0.04,
    Fault.LOG_UNREACHABLE: 0.2,
    Fault.OBSERVE_FAILED: 0.03,
    Fault.STALE_BROKER: 0.03,
    Fault.EFFECT_REFUSED: 0.15,
    Fault.EFFECT_ANSWER_LOST: 0.3,
    Fault.LATE_DELETE: 0.5,
    Fault.LATE_CREATE: 0.7,
    Fault.RECREATED_AT_EFFECT: 0.1,
    Fault.HANGING_TRANSACTION: 1.0,
}
"""How likely a fault is at each request where it can strike, in a schedule that has it."""
REPLACING: dict[Fault, float] = {
    Fault.CRASH: 0.02,
    Fault.APPEND_LOST: 0.03,
    Fault.APPEND_ANSWER_LOST: 0.03,
    Fault.APPEND_LATE: 0.03,
    Fault.LOG_UNREACHABLE: 0.15,
    Fault.OBSERVE_FAILED: 0.03,
    Fault.EFFECT_REFUSED: 0.1,
    Fault.EFFECT_ANSWER_LOST: 0.3,
    Fault.LATE_CREATE: 0.3,
}
"""The same, of schedules that replace topics."""

IMPOSSIBLE = frozenset(
    {
        # counted when a record lands in a retired partition, or in a sealed one (a growth past the last opens them all)
        (Fault.UNAWARE, "none"),
        (Fault.STALE_PRODUCER, "none"),
        (Fault.LONG_PAUSED_PRODUCER, "none"),
        (Fault.LONG_PAUSED_PRODUCER, "opening"),
        (Fault.RETRY_ACROSS_SWITCH, "none"),
        # counted when a drain or a deletion does without a group
        (Fault.WAIVER, "none"),
        (Fault.WAIVER, "done"),
        (Fault.WAIVER, "opening"),
        # strike where an effect is carried out, and a record without retired partitions has none
        (Fault.RECREATED_AT_EFFECT, "none"),
        (Fault.EFFECT_ANSWER_LOST, "none"),
    }
)
"""Pairs that cannot be; a run asserts that none of them occurred."""


def phase_of(record: TopicRecord | None) -> int:
    """The index in :data:`PHASES` of a topic whose record in force is ``record``."""
    if record is None or not record.closed:
        return 0
    return PHASES.index(topic_phase(record))


Coverage = Counter[tuple[Fault | str, int]]
"""How often each pair of a fault, or other event, and a phase (an index in :data:`PHASES`) was met."""
