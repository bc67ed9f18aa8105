"""The gate before a new topic: when a simulated group may read it.

Notes and the controller's decision are not simulated (the model of the rule is :mod:`tests.support.gate_model`): a
simulated group reads the new topic once it has committed the old topic to its end, in every partition. What it has
committed of the new topic, or of a later topic, shows that the gate was open before, and an open gate never shuts for
it; or a group that is set back would wait for itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from modeaware.topic_view import TopicView


def has_read(view: TopicView, committed: Mapping[int, int], log_starts: Mapping[int, int]) -> bool:
    """Return whether a group has read the topic of ``view``, which is replaced, to its end in every partition.

    Args:
        committed: the group's offsets on it.
        log_starts: what its retention has taken need not be read.
    """
    new_topic = view.replaced_by
    return new_topic is not None and all(
        partition in new_topic.read_up_to
        and max(committed.get(partition, 0), log_starts.get(partition, 0)) >= new_topic.read_up_to[partition]
        for partition in range(len(view.modes))
    )


def is_open(view: TopicView, *, has_read: bool, has_moved: bool, waived: bool = False, is_next: bool = True) -> bool:
    """Return whether a group may read a partition of the new topic that replaces the topic of ``view`` (invariant I2).

    Args:
        has_read: :func:`has_read`.
        has_moved: what the group has committed on the new topic, or on a later topic, shows that the gate was open.
        waived: the operator does not wait for the group.
        is_next: the gate before the topic of ``view`` itself is open: one that nothing was written to counts as read,
            also by a group that still reads the topic before it.
    """
    new_topic = view.replaced_by
    return new_topic is None or new_topic.gone or (has_read and is_next) or has_moved or waived


def needs_old_topic(view: TopicView, *, has_read: bool, has_moved: bool, owes_commit: bool = False) -> bool:
    """Return whether members of a group subscribe to the topic of ``view`` itself. A group that begins late still reads
    its records, and before the new topic. One that has moved does not read it again when its offsets there expire.

    Args:
        has_read: :func:`has_read`.
        has_moved: the same as for :func:`is_open`, and the group has no offsets on the topic. With others ``has_read``
            decides: a group that was set back leaves records.
        owes_commit: the topic has replaced another one, which is kept until the group has a commit on each partition
            of the topic, and the group has not: also where there is nothing to read.
    """
    new_topic = view.replaced_by
    if new_topic is None:
        return True
    return not new_topic.gone and (owes_commit or not (new_topic.released and (has_read or has_moved)))


def awaits_group(view: TopicView, group: str, committed: Mapping[int, int]) -> bool:
    """Return whether the topic of ``view`` is kept until the group has a commit on each partition of the new topic: not
    for a group that comes when it is released, and has never used it.

    Args:
        committed: the group's offsets on the topic.
    """
    new_topic = view.replaced_by
    if new_topic is None or new_topic.gone:
        return False
    return not new_topic.released or bool(committed) or group in new_topic.groups
