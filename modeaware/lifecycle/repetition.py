"""Repeated requests: whether a request repeats the change in force for its topic, adds to it, or differs. Pure.

A request that differs from the change in force is refused. A request that adds to it changes the topic's record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from modeaware.lifecycle.commands import DeletePartitionsCommand, ReplaceTopicCommand, TopicCommand
from modeaware.lifecycle.replacement import DEFAULT_FACTOR, FENCE_CONFIGS
from modeaware.lifecycle.state import in_progress
from modeaware.modelog.records import DeleteTopicPartitions, Replacement, TopicRecord


@dataclass(frozen=True)
class Repetition:
    """A request for the change in force.

    Attributes:
        record: the topic's record with the request's additions; the record in force if there are none.
        accepts: groups whose loss of state the request accepts, and the change in force does not.
        differs: the settings in which the request differs, in words, with the values in force.
    """

    record: TopicRecord
    accepts: tuple[str, ...]
    differs: tuple[str, ...]


def repetition_of(command: TopicCommand, current: TopicRecord) -> Repetition | None:
    """Return how ``command`` repeats the change in force; None if there is none, or if the command requests another.

    A growth needs no comparison: its repetition results in the same record.
    """
    if isinstance(command, ReplaceTopicCommand):
        replacement = current.replacing
        if not current.has_replacement or command.undo or command.new_topic != replacement.new_topic:
            return None
        return _of_replacement(command, current, replacement)
    deletion = current.deletion
    if not isinstance(command, DeletePartitionsCommand) or deletion is None or not in_progress(current):
        return None
    if not command.total_count == deletion.delete_partitions == current.writable_count:
        return None
    return _of_shrink(command, current, deletion)


def _of_shrink(command: DeletePartitionsCommand, current: TopicRecord, deletion: DeleteTopicPartitions) -> Repetition:
    wanted = replace(deletion, delay_ms=command.delay_ms, immediate_delete=command.immediate_delete)
    held = [
        ("policy", wanted.policy, deletion.policy),
        ("delay", wanted.delay_text, deletion.delay_text),
    ]
    accepts = _accepted(deletion, command)
    added = replace(deletion, accept_state_loss=tuple(sorted({*deletion.accept_state_loss, *accepts})))
    return Repetition(replace(current, deletion=added), accepts, _others(held))


def _of_replacement(command: ReplaceTopicCommand, current: TopicRecord, replacement: Replacement) -> Repetition:
    """Compare with the replacement in force. A replication factor, delay, evacuation or config that the request does
    not name stays. The fence's configs do not count: the request may have copied them from the fenced topic."""
    factor = (
        replacement.replication_factor if command.replication_factor == DEFAULT_FACTOR else command.replication_factor
    )
    evacuates = replacement.evacuation_epoch is not None
    held: list[tuple[str, Any, Any]] = [
        ("number of partitions", command.num_partitions, replacement.num_partitions),
        ("replication factor", factor, replacement.replication_factor),
        ("delay", command.delay_text or replacement.delay_text, replacement.delay_text),
        ("fence", command.fence, replacement.fence),
        ("evacuation", command.evacuate or evacuates, evacuates),
    ]
    spared = FENCE_CONFIGS if replacement.own_configs is not None else {}
    named = {name: value for name, value in command.configs.items() if name not in spared}
    if not named.items() <= replacement.configs.items():
        held.append(("set of configs", named, dict(replacement.configs)))
    accepts = _accepted(replacement, command)
    changed = replace(
        replacement,
        pause_before_switch=command.pause_before_switch,
        keep_name=command.keep_name,
        accept_state_loss=tuple(sorted({*replacement.accept_state_loss, *accepts})),
    )
    after = current if changed == replacement else replace(current, replacement=replace(changed, reason=None))
    return Repetition(after, accepts, _others(held))


def _accepted(
    change: DeleteTopicPartitions | Replacement, command: DeletePartitionsCommand | ReplaceTopicCommand
) -> tuple[str, ...]:
    return tuple(sorted({*command.accept_state_loss} - {*change.accept_state_loss}))


def _others(held: Iterable[tuple[str, Any, Any]]) -> tuple[str, ...]:
    return tuple(
        f"another {what} ({'none' if current is None else repr(current)})"
        for what, wanted, current in held
        if wanted != current
    )
