"""Why a retired partition makes no progress: codes for the mode log, and texts for people.

The log holds a code, optionally with a group's name after a colon, never moving figures, so a reason is written once.
The name is missing where the record has no room for it (:mod:`modeaware.lifecycle.record_size`).
"""

from __future__ import annotations

import re

STILL_WRITTEN = "still-written"
STRAGGLER = "straggler"
TRUNCATED = "truncated"
OPEN_TRANSACTION = "open-transaction"
UNAVAILABLE = "partition-unavailable"
DELAY = "delay"
RETENTION = "retention"
COMPACTED = "compacted"
GROUPS_UNKNOWN = "groups-unknown"
GROUPS_HIDDEN = "groups-hidden"
GROUPS_TOO_MANY = "groups-too-many"
GROUP_SETTLING = "group-settling"
GROUP_LAG = "group-lag"
GROUP_UNCOMMITTED = "group-uncommitted"
GROUP_NEVER_COMMITTED = "group-never-committed"
GROUP_GONE = "group-gone"
GROUP_BEYOND_END = "group-beyond-end"
GROUP_TRUNCATED = "group-truncated"
GROUP_STATEFUL = "group-stateful"
NOT_EVACUATED = "not-evacuated"
OPENING = "opening"
PAUSED = "paused"
UNDOING = "undoing"
NOT_FENCED = "not-fenced"
END_NOT_READ = "end-not-read"
FENCE_DENIED = "fence-denied"
FENCE_UNKNOWN = "fence-unknown"
GROUP_NOT_MOVED = "group-not-moved"
SUCCESSOR_GONE = "successor-gone"
NAME_TAKEN = "name-taken"
LEADS_NOWHERE = "leads-nowhere"
GROUP_SUBSCRIBED = "group-subscribed"
PREDECESSOR_FIRST = "predecessor-first"
NO_SUCCESSOR = "no-successor"
DELETING = "deleting"

_TEXTS = {
    STILL_WRITTEN: "records still arrive, from a producer without modes or from one that sends queued records; waiting "
    "until the partition is quiet",
    STRAGGLER: "a record arrived after the seal (from a producer without modes?); sealing and draining again",
    TRUNCATED: "the log ends before its seal (unclean leader election?); sealing and draining again",
    OPEN_TRANSACTION: "a transaction is open; waiting until it commits or aborts",
    UNAVAILABLE: "no leader available; waiting for one",
    DELAY: "the requested delay has not passed",
    RETENTION: "waiting for the topic's own retention to remove the records (name a delay to have them deleted "
    "once drained)",
    COMPACTED: "cleanup.policy is no longer delete alone, and the latest value of each key must be kept: set it back, "
    "or undo (--undo) and replace the topic with --evacuate",
    GROUPS_UNKNOWN: "the list of groups is not certain (a group in a rebalance, or an error); see the controller's log",
    GROUP_SETTLING: "group {group} is in a rebalance, and whether it uses the topic is not known: waiting until it is "
    "settled. Stop its consumers if it never is",
    GROUPS_HIDDEN: "the controller's user may not see all groups: grant it DESCRIBE on the cluster, or register the "
    "groups and close the list (modeaware groups require, modeaware groups closed)",
    GROUPS_TOO_MANY: "the topic's mode record has no room for the names of all groups that it waits for, or that are "
    "waived: delete groups that are not needed (kafka-consumer-groups --delete), or undo (--undo)",
    GROUP_LAG: "group {group} has not consumed it to the seal: run its consumers",
    GROUP_UNCOMMITTED: "group {group} has been given all of it; its application has not committed the last records: "
    "have it commit when poll returns nothing and when partitions are revoked, or stop it",
    GROUP_NEVER_COMMITTED: "group {group} uses the topic but never committed an offset here: run its consumers, "
    "commit an offset for it (kafka-consumer-groups --reset-offsets), or waive it (modeaware groups waive)",
    GROUP_GONE: "group {group} is required and not listed (deleted, its offsets expired, or it never ran): run it, or "
    "waive it (modeaware groups waive)",
    GROUP_BEYOND_END: "group {group} committed an offset beyond the end: reset it "
    "(kafka-consumer-groups --reset-offsets)",
    GROUP_TRUNCATED: "group {group} committed an offset on a part of the log that was truncated since (unclean leader "
    "election): it may have missed the records written instead. Reset it (kafka-consumer-groups --reset-offsets); a "
    "group whose clients commit no leader epochs can only be waived, once it has read them (modeaware groups waive)",
    GROUP_STATEFUL: "group {group} keeps state per partition (as Kafka Streams does), which does not move with the "
    "keys: undo (--undo), or repeat the shrink with --accept-state-loss",
    NOT_EVACUATED: "not all latest values of its keys are copied to the successor: run "
    "the Spark job modeaware.spark.evacuate (spark-submit)",
    OPENING: "opens for writes once every group has a committed offset on it, or after modeaware.open.timeout.ms",
    PAUSED: "the replacement was requested with --pause-before-switch: repeat it without, or undo it (--undo)",
    UNDOING: "the successor is being deleted; waiting until no broker returns it (30 s more where the answer to the "
    "deletion was lost; longer: see the controller's log)",
    NOT_FENCED: "a leader does not refuse data yet, or the fence has held for less than 10 s: waiting for it",
    END_NOT_READ: "looking for the last record of each partition; a long tail of aborted records takes a while",
    FENCE_DENIED: "the controller's user may not set or probe the fence: grant it WRITE, DESCRIBE_CONFIGS and "
    "ALTER_CONFIGS on the topic (or a policy of the brokers forbids it: see the controller's log); or, until the "
    "switch, undo (--undo) and replace it with --fence none",
    FENCE_UNKNOWN: "not every leader answers the probe of the fence: check the brokers, and the controller's log; or, "
    "until the switch, undo (--undo) and replace it with --fence none",
    GROUP_NOT_MOVED: "group {group} has no offset on the successor: run its consumers with modeaware; or stop "
    "them, commit its start there for it (modeaware groups prepare), and start them on the successor; or waive it "
    "(modeaware groups waive)",
    SUCCESSOR_GONE: "the successor was deleted, and records with it; it is created anew, for producers have no topic "
    "to write to, and consumers that run meanwhile may skip its first records. If another topic has its name by now, "
    "with records or offsets of groups, copy its records elsewhere, then delete it",
    NAME_TAKEN: "another topic has come up under the name, which leads to the successor: clients of modeaware do not "
    "use it, but others do. Copy the records that are wanted to the successor, delete it, and turn off the automatic "
    "creation of topics",
    LEADS_NOWHERE: "the topic that the name leads to was deleted. Clients that use the name fail, or use a topic that "
    "was created in its place, whose modes they do not know. Move them to that one's name, and forget the alias "
    "(modeaware alias forget)",
    GROUP_SUBSCRIBED: "group {group} has members that are subscribed to the topic or assigned it, and might create it "
    "again: it is deleted once they have stopped, or use the successor",
    PREDECESSOR_FIRST: "the topic {group}, which this one has replaced, goes first. One that was replaced with "
    "--fence none is never deleted: delete that yourself",
    NO_SUCCESSOR: "the successor was deleted, and records with it: the topic stays, with what it still holds. Delete "
    "it yourself once nothing needs it",
    DELETING: "the topic is being deleted; waiting until no broker returns it (30 s more where the answer to the "
    "deletion was lost; longer: see the controller's log)",
}
CODES = frozenset(_TEXTS)
"""Every code."""
AS_ASKED = frozenset({DELAY, RETENTION, OPENING, PAUSED, PREDECESSOR_FIRST})
"""Reasons that wait as requested: nothing is wrong."""
PASSING = frozenset({GROUPS_UNKNOWN, GROUP_SETTLING, NOT_FENCED, END_NOT_READ, UNAVAILABLE, DELETING})
"""Reasons of a replacement as a whole that come and go by themselves."""

ALARMS = frozenset(
    {
        *(STRAGGLER, TRUNCATED, COMPACTED, GROUPS_HIDDEN, GROUPS_TOO_MANY, GROUP_GONE, GROUP_BEYOND_END),
        *(GROUP_TRUNCATED, GROUP_STATEFUL, FENCE_DENIED, SUCCESSOR_GONE, NAME_TAKEN, LEADS_NOWHERE, NO_SUCCESSOR),
    }
)
"""Reasons at which changes of further topics had better not begin: something is wrong, and waiting does not cure it."""

OF_READERS = frozenset(
    {
        GROUP_LAG,
        GROUP_UNCOMMITTED,
        GROUP_NEVER_COMMITTED,
        GROUP_GONE,
        GROUP_BEYOND_END,
        GROUP_TRUNCATED,
        GROUP_STATEFUL,
        GROUP_NOT_MOVED,
    }
)
"""Reasons that name one group which has to read on, or to move; others may hold up the same."""

_BRIEF = re.compile(r"[:;.] | \(|, and")


def of_group(code: str, group: str) -> str:
    """Return the reason ``code`` on account of ``group``, or of the topic of that name."""
    return f"{code}:{group}"


def code_of(reason: str) -> str:
    """Return the code of a reason, without the group."""
    return reason.partition(":")[0]


def group_of(reason: str) -> str:
    """Return the group, or topic, that a reason names; "": none."""
    return reason.partition(":")[2]


def is_alarm(reason: str | None) -> bool:
    """Return whether a reason, if any, is one of :data:`ALARMS`."""
    return reason is not None and code_of(reason) in ALARMS


def brief(reason: str) -> str:
    """Return what a reason is, without its cause and remedy: the beginning of :func:`text`."""
    template = _TEXTS.get(code_of(reason))
    if template is None:
        return reason
    return _BRIEF.split(template, maxsplit=1)[0].format(group=_named(reason))


def text(reason: str, *, others: int = 0) -> str:
    """Return the text of a reason; an unknown code (of a newer controller) is returned unchanged.

    Args:
        others: how many groups have to read on, or to move, beside the one that the reason names.
    """
    template, named = _TEXTS.get(code_of(reason)), _named(reason)
    if others and code_of(reason) in OF_READERS:
        named += f" (and {others} more)"
    return template.format(group=named) if template else reason


def _named(reason: str) -> str:
    group = group_of(reason)
    return repr(group) if group else "(its name did not fit the record)"
