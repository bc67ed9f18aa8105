"""Why a partition, or a replacement, makes no progress: codes for the mode log, and texts for people.

A reason is a code, optionally with the name of a group, or of a topic, after a colon. A reason contains no changing
numbers, so one record per wait is enough. The name is missing if the record has no room for it
(:mod:`modeaware.lifecycle.record_size`).
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
GROUP_REBALANCING = "group-rebalancing"
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
NEW_TOPIC_GONE = "new-topic-gone"
NAME_TAKEN = "name-taken"
POINTS_NOWHERE = "points-nowhere"
GROUP_SUBSCRIBED = "group-subscribed"
EARLIER_TOPIC_FIRST = "earlier-topic-first"
NO_NEW_TOPIC = "no-new-topic"
DELETING = "deleting"
NAME_SUBSCRIBED = "name-subscribed"
KNOWN_BY_CLIENTS = "known-by-clients"
OFFSETS_LEFT = "offsets-left"
RENAME_REFUSED = "rename-refused"

_TEXTS = {
    STILL_WRITTEN: "records still arrive, from a stock producer or from the queues of a mode-aware one; waiting until "
    "the partition is quiet",
    STRAGGLER: "a record arrived after the seal (from a stock producer?); sealing and draining again",
    TRUNCATED: "the log ends before its seal (unclean leader election?); sealing and draining again",
    OPEN_TRANSACTION: "a transaction is open; waiting until it commits or aborts",
    UNAVAILABLE: "no leader available; waiting for one",
    DELAY: "waiting for the requested delay",
    RETENTION: "waiting for the topic's own retention to remove the records (a shrink with a delay deletes them once "
    "drained)",
    COMPACTED: "cleanup.policy is no longer delete alone, and the latest value of each key must be kept: set it back "
    "to delete, or undo the change (--undo) and replace the topic with --evacuate",
    GROUPS_UNKNOWN: "the list of groups may be incomplete, because of an error or a group in a rebalance; see the "
    "controller's log",
    GROUP_REBALANCING: "group {group} is in a rebalance, and may use the topic; waiting until the rebalance ends. If "
    "it does not end, stop the group's consumers",
    GROUPS_HIDDEN: "the controller's user cannot list all groups: grant the user DESCRIBE on the cluster, or register "
    "the groups (modeaware groups require) and close the list (modeaware groups closed)",
    GROUPS_TOO_MANY: "the topic's mode record has no room for the names of all required and waived groups: delete "
    "groups that are not needed (kafka-consumer-groups --delete), or undo the change (--undo)",
    GROUP_LAG: "group {group} has not read to the seal: run its consumers",
    GROUP_UNCOMMITTED: "group {group} has received the last records but not committed them: commit when poll returns "
    "nothing and when partitions are revoked, or stop the application",
    GROUP_NEVER_COMMITTED: "group {group} uses the topic but has never committed an offset for the partition: run its "
    "consumers, commit an offset for it (kafka-consumer-groups --reset-offsets), or waive it (modeaware groups waive)",
    GROUP_GONE: "group {group} is required, but has neither commits nor members on the topic (it was deleted, its "
    "offsets expired, or it never ran): run the group, or waive it (modeaware groups waive)",
    GROUP_BEYOND_END: "group {group} committed an offset beyond the end of the log: reset the offset "
    "(kafka-consumer-groups --reset-offsets)",
    GROUP_TRUNCATED: "group {group} committed an offset on a part of the log that was truncated later (unclean leader "
    "election): the group may have missed the records written instead. Reset its offset (kafka-consumer-groups "
    "--reset-offsets). If its clients commit no leader epochs, let it read these records, then waive it (modeaware "
    "groups waive)",
    GROUP_STATEFUL: "group {group} keeps state per partition (like Kafka Streams), and state does not move with the "
    "keys: repeat the change with --accept-state-loss, or undo it (--undo; --stay between the switches of --keep-name)",
    NOT_EVACUATED: "the latest values of some keys are not copied to the new topic yet: run the Spark job "
    "modeaware.spark.evacuate (spark-submit)",
    OPENING: "the partition takes writes once every group has a committed offset on it, or after "
    "modeaware.open.timeout.ms",
    PAUSED: "the replacement is paused before the switch, as requested: repeat the command without "
    "--pause-before-switch, or undo the replacement (--undo)",
    UNDOING: "the new topic is being deleted; waiting until no broker returns it (30 s more if the response to the "
    "deletion was lost). If it takes longer, see the controller's log",
    NOT_FENCED: "a leader does not refuse data yet, or the fence has been in force for less than 10 s; waiting",
    END_NOT_READ: "reading the last record of each partition; a long tail of aborted records takes a while",
    FENCE_DENIED: "the controller's user cannot set or probe the fence: grant the user WRITE, DESCRIBE_CONFIGS and "
    "ALTER_CONFIGS on the topic. If it has them, a policy of the brokers forbids the fence: see the controller's log. "
    "Before the switch you can also undo the replacement (--undo) and repeat it with --fence none",
    FENCE_UNKNOWN: "not every leader answers the probe of the fence: check the brokers, and the controller's log. "
    "Before the switch you can also undo the replacement (--undo) and repeat it with --fence none",
    GROUP_NOT_MOVED: "group {group} has no offset on the new topic: run its consumers with modeaware. Or stop them, "
    "commit the group's start on the new topic (modeaware groups prepare), and start them there. Or waive the group "
    "(modeaware groups waive)",
    NEW_TOPIC_GONE: "the new topic was deleted, with its records; creating it again. Until then producers have no "
    "topic. Running consumers may skip the first records of the new topic. If another topic has taken its name, with "
    "records or offsets of groups, copy those records elsewhere, then delete that topic",
    NAME_TAKEN: "another topic has the name of the alias: stock clients use it, mode-aware clients use the new topic. "
    "Copy its records to the new topic if they are needed. Then delete it, and turn off the automatic creation of "
    "topics",
    POINTS_NOWHERE: "the topic that the alias points to was deleted. Clients that use the alias fail, or use a topic "
    "created under that name, without its modes. Give these clients another name, and remove the alias (modeaware "
    "alias forget)",
    GROUP_SUBSCRIBED: "group {group} has members that are subscribed to the topic or assigned to it, and might create "
    "it again: stop these members, or move them to the new topic. Then the topic is deleted",
    EARLIER_TOPIC_FIRST: "waiting until the topic {group}, which this topic has replaced, is deleted. If that topic "
    "was replaced with --fence none, delete it yourself",
    NO_NEW_TOPIC: "the new topic was deleted, with its records: this topic stays, with its remaining records. Delete "
    "it yourself once it is no longer needed",
    DELETING: "the topic is being deleted; waiting until no broker returns it (30 s more if the response to the "
    "deletion was lost). If it takes longer, see the controller's log",
    NAME_SUBSCRIBED: "group {group} is subscribed to the name with stock clients, which would skip the records of the "
    "interim topic: stop the group's members, or move them to the interim topic. Or end the change on the interim "
    "topic (modeaware replace TOPIC --stay)",
    KNOWN_BY_CLIENTS: "clients may still use the metadata of the deleted topic of that name; waiting until 45 s after "
    "its deletion, or 10 minutes if the new topic has more partitions than the deleted one",
    OFFSETS_LEFT: "group {group} has an offset from an earlier topic of the name, and would skip records; deleting "
    "the empty new topic together with that offset, then creating it again",
    RENAME_REFUSED: "the new topic with the kept name is refused, by the brokers or by a rule; retrying. See the "
    "controller's log, or end the change on the interim topic (modeaware replace TOPIC --stay)",
}
CODES = frozenset(_TEXTS)
"""Every code."""
AS_ASKED = frozenset({DELAY, RETENTION, OPENING, PAUSED, EARLIER_TOPIC_FIRST, KNOWN_BY_CLIENTS})
"""Reasons of waits that follow from the request itself: they raise no alarm."""
PASSING = frozenset({GROUPS_UNKNOWN, GROUP_REBALANCING, NOT_FENCED, END_NOT_READ, UNAVAILABLE, DELETING})
"""Reasons that hold up a replacement as a whole, and usually end by themselves."""

ALARMS = frozenset(
    {
        *(STRAGGLER, TRUNCATED, COMPACTED, GROUPS_HIDDEN, GROUPS_TOO_MANY, GROUP_GONE, GROUP_BEYOND_END),
        *(GROUP_TRUNCATED, GROUP_STATEFUL, FENCE_DENIED, NEW_TOPIC_GONE, NAME_TAKEN, POINTS_NOWHERE, NO_NEW_TOPIC),
        RENAME_REFUSED,
    }
)
"""Reasons that need an operator: waiting does not help. Until they are resolved, no change of another topic should
begin."""

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
"""Reasons that name one group that holds up a drain or a release. Other groups may hold it up, too."""

_BRIEF = re.compile(r"[:;.] | \(|, and")


def of_group(code: str, group: str) -> str:
    """Return the reason ``code`` with the name of ``group``, or of a topic."""
    return f"{code}:{group}"


def code_of(reason: str) -> str:
    """Return the code of a reason, without the group."""
    return reason.partition(":")[0]


def group_of(reason: str) -> str:
    """Return the group, or topic, that a reason names; an empty string if it names none."""
    return reason.partition(":")[2]


def is_alarm(reason: str | None) -> bool:
    """Return whether a reason is one of :data:`ALARMS`; False for None."""
    return reason is not None and code_of(reason) in ALARMS


def brief(reason: str) -> str:
    """Return the beginning of :func:`text`, without cause and remedy."""
    template = _TEXTS.get(code_of(reason))
    if template is None:
        return reason
    return _BRIEF.split(template, maxsplit=1)[0].format(group=_named(reason))


def text(reason: str, *, others: int = 0) -> str:
    """Return the text of a reason. If the code is unknown (of a newer controller), return the reason unchanged.

    Args:
        others: how many groups hold up the drain or the release, besides the one that the reason names.
    """
    template, named = _TEXTS.get(code_of(reason)), _named(reason)
    if others and code_of(reason) in OF_READERS:
        named += f" (and {others} more)"
    return template.format(group=named) if template else reason


def _named(reason: str) -> str:
    group = group_of(reason)
    return repr(group) if group else "(its name did not fit the record)"
