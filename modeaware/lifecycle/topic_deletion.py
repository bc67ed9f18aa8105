"""The deletion of a released old topic: why the topic stays. Decided anew in each pass, from one snapshot. Pure.

After the release, no client seems to use the old topic. A deletion is final, so no earlier proof that groups have read
the topic counts. All of these conditions have to hold in one snapshot:

* the requested delay is over; if no delay was requested, retention has emptied the topic;
* the topic is the first of its chain, and its new topic exists, with the recorded id;
* the *fence* is proved on every leader, for its current leader epoch, and has been in force in every pass for
  :data:`FENCE_STABLE_MS`. A tool that keeps resetting the topic's configs (GitOps) could also reset them between the
  last check and the deletion. A record acknowledged at that time would be deleted with the topic (invariant I2);
* each log has no open transaction, and ends at its seal; records that are not replicated yet count, too;
* if the topic is compacted, its latest values are copied to the new topic, as the record or a new proof shows;
* the list of groups is certain; every required group that is not waived has read the topic to its seals, and has an
  offset on each partition of the new topic (invariant I1);
* no group has members that are subscribed to the topic or are assigned its partitions. For such a client, brokers with
  automatic creation would create a topic of the old name, and the client would commit its old offsets there.

Then the record notes the time (``deleting_ms``), and the deletion follows, by the topic's id. Right before the request
:func:`modeaware.cluster.fence.check_sealed` proves the fence once more, and compares the ends of all logs with the
seals, within the controller's lease. A later snapshot, not the answer to the request, decides whether the topic is
gone. If so, ``deleting_ms`` shows that the controller deleted the topic.

*Offsets that expire.* Brokers drop the offsets of a group some days after its members have left. A group that no longer
uses the old topic, but has an offset on each partition of the new topic, counts as moved. The group had moved at the
release, or begins anew on the new topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Requirement, check_drain, doubt_reason
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.progress import not_moved_reason, still_reading
from modeaware.modelog.records import RETENTION, Replacement, RetiredPartition

FENCE_STABLE_MS = 10_000
"""For how long every pass must have found the fence in force. Each pass restores a lifted fence, and the controller
never lifts the fence of an old topic. So a pass has seen any tool that lifts the fence at least every 10 s."""
CHECK_AGAIN_MS = 2_000
"""The time until the next check, for example while a group is in a rebalance."""


class Stay(NamedTuple):
    """Why a topic is not deleted, and when to check again, if known."""

    reason: str
    due_ms: int | None = None


def why_it_stays(
    replacement: Replacement,
    retired: Mapping[int, RetiredPartition],
    facts: TopicFacts,
    requirement: Requirement,
    now_ms: int,
) -> Stay | None:
    """Return why a released topic is not deleted yet, or None if all conditions hold.

    Args:
        replacement, retired: parts of the topic's record, as this pass leaves it.
    """
    return (
        _not_due(replacement, retired, facts, now_ms)
        or _not_first(replacement, facts)
        or _not_fenced(replacement, facts, now_ms)
        or _not_sealed(retired, facts)
        or _needed_by(replacement, retired, facts, requirement, now_ms)
    )


def _not_due(
    replacement: Replacement, retired: Mapping[int, RetiredPartition], facts: TopicFacts, now_ms: int
) -> Stay | None:
    if retired.keys() != facts.partitions.keys() or len(retired) != facts.partition_count:
        return Stay(reasons.UNAVAILABLE)
    if replacement.policy == RETENTION:
        emptied = all(facts.partitions[p].log_start >= (state.seal_offset or 0) for p, state in retired.items())
        return None if emptied else Stay(reasons.RETENTION)
    due_ms = replacement.earliest_after(replacement.requested_ms)
    return Stay(reasons.DELAY, due_ms) if now_ms < due_ms else None


def _not_first(replacement: Replacement, facts: TopicFacts) -> Stay | None:
    """Return why another topic of the chain prevents the deletion: for example, an earlier topic still exists."""
    if facts.earlier_topic is not None:
        return Stay(reasons.of_group(reasons.EARLIER_TOPIC_FIRST, facts.earlier_topic))
    new_topic = facts.new_topic
    if new_topic is None or new_topic.topic_id != replacement.new_topic_id:
        is_gone = new_topic is not None and (new_topic.gone or replacement.reason == reasons.NO_NEW_TOPIC)
        return Stay(reasons.NO_NEW_TOPIC if is_gone else reasons.UNAVAILABLE)
    return Stay(reasons.COMPACTED) if facts.compacted and replacement.evacuation_epoch is None else None


def _not_fenced(replacement: Replacement, facts: TopicFacts, now_ms: int) -> Stay | None:
    fence = facts.fence
    if fence is not None and fence.is_denied:
        return Stay(reasons.FENCE_DENIED)
    if fence is None or fence.failure is not None or replacement.fenced_ms is None:
        return Stay(reasons.NOT_FENCED)
    if any(fence.proved.get(p) != log.leader_epoch for p, log in facts.partitions.items()):
        return Stay(reasons.NOT_FENCED)
    stable_ms = replacement.fenced_ms + FENCE_STABLE_MS
    return Stay(reasons.NOT_FENCED, stable_ms) if now_ms < stable_ms else None


def _not_sealed(retired: Mapping[int, RetiredPartition], facts: TopicFacts) -> Stay | None:
    for partition, state in retired.items():
        log = facts.partitions[partition]
        if not log.is_stable:
            return Stay(reasons.OPEN_TRANSACTION)
        if not log.log_end == log.end_offset == state.seal_offset or state.read_up_to is None:
            return Stay(reasons.END_NOT_READ)
    return None


def _needed_by(
    replacement: Replacement,
    retired: Mapping[int, RetiredPartition],
    facts: TopicFacts,
    requirement: Requirement,
    now_ms: int,
) -> Stay | None:
    """Return which group still needs the topic, or may need it (invariants I1 and I2)."""
    if (doubt := requirement.doubt) is not None:
        return Stay(doubt_reason(doubt), None if doubt.rebalancing is None else now_ms + CHECK_AGAIN_MS)
    if (reason := not_moved_reason(replacement, facts, requirement)) is not None:
        return Stay(reason)
    to_drain = still_reading(requirement, replacement, facts)
    for partition, state in retired.items():
        assert state.seal_offset is not None, "it is released"
        log = facts.partitions[partition]
        drain = check_drain(partition, state.seal_offset, state.truncated_to, log, facts, to_drain.of(state))
        if drain.reason is not None:
            return Stay(drain.reason)
    for name in sorted(requirement.spared):  # a waiver excuses unread records, not a subscription
        if facts.unclear_groups[name].rebalancing is not None:
            return Stay(reasons.of_group(reasons.GROUP_REBALANCING, name), now_ms + CHECK_AGAIN_MS)
    for name, group in sorted(facts.groups.items()):
        if group.subscribed is None:
            return Stay(reasons.of_group(reasons.GROUP_REBALANCING, name), now_ms + CHECK_AGAIN_MS)
        if group.subscribed:
            return Stay(reasons.of_group(reasons.GROUP_SUBSCRIBED, name))
    return None
