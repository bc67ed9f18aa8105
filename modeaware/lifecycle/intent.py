"""The intent to replace a topic: whether a command may put it on the topic's record, change it, or take it back.

What follows from it, pass by pass, is in :mod:`modeaware.lifecycle.replacement`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import DeletePredecessor, Effect, FenceTopic, ReplaceTopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.replacement import DEFAULT_FACTOR, FENCE_CONFIGS, creation
from modeaware.modelog.records import (
    MAX_PARTITIONS,
    Replacement,
    TopicRecord,
)

FENCES = ("config", "none")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def new_replacement(record: TopicRecord, command: ReplaceTopicCommand, now_ms: int) -> TopicRecord:
    """Return the record with the intent of ``command``, which nothing objects to."""
    replacement = Replacement(
        successor=command.successor,
        num_partitions=command.num_partitions,
        requested_ms=now_ms,
        replication_factor=command.replication_factor,
        configs=dict(command.configs),
        delay_ms=command.delay_ms,
        fence=command.fence,
        pause_before_switch=command.pause_before_switch,
        accept_state_loss=tuple(sorted(command.accept_state_loss)),
        evacuation_epoch=record.epoch + 1 if command.evacuate else None,
    )
    return replace(replace(record, replacement=replacement), required_groups=(), groups_complete=True, waived={})


def changed_replacement(
    record: TopicRecord, replacement: Replacement, command: ReplaceTopicCommand, now_ms: int
) -> TopicRecord | str:
    """Return the record after a command about the replacement in progress, or why it is refused: a name that leads to a
    successor is not taken back (invariant I8)."""
    if command.successor != replacement.successor:
        if replacement.switched_ms is not None:
            return objection_to_change(replacement)
        return f"it is already being replaced, by {replacement.successor!r}: name that topic, or undo it first (--undo)"
    if command.undo:
        if replacement.switched_ms is not None:
            return f"its name already leads to {replacement.successor!r}: to go back, replace that by another topic"
        undone_ms = replacement.undone_ms or now_ms
        return replace(record, replacement=replace(replacement, undone_ms=undone_ms, reason=reasons.UNDOING))
    if replacement.undone_ms is not None:
        return f"its replacement by {replacement.successor!r} is being undone: wait until that is done"
    if differing := _differing(command, replacement):
        remedy = "undo that first (--undo)" if replacement.switched_ms is None else "repeat the command as it was"
        return f"it is already being replaced, with {', '.join(differing)}: {remedy}"
    if command.pause_before_switch and replacement.switched_ms is not None:
        return f"its name already leads to {replacement.successor!r}: it cannot pause before that any more"
    accepted = tuple(sorted({*replacement.accept_state_loss, *command.accept_state_loss}))
    pause = command.pause_before_switch
    changed = replace(replacement, pause_before_switch=pause, accept_state_loss=accepted, reason=None)
    return record if changed == replace(replacement, reason=None) else replace(record, replacement=changed)


def effects_to_come(command: ReplaceTopicCommand, topic_id: str) -> tuple[Effect, ...]:
    """Return what a replacement that begins will do on the brokers, of which they can say beforehand whether they would
    refuse it."""
    new = (creation(command.topic, topic_id, command),)
    if command.fence == "none":
        return new
    return (*new, FenceTopic(command.topic, topic_id, FENCE_CONFIGS), DeletePredecessor(command.topic, topic_id, {}))


def _differing(command: ReplaceTopicCommand, replacement: Replacement) -> list[str]:
    """Return what a repeated command wants otherwise than the first one. A count of replicas, a delay and configs that
    it does not name stay as they are, and it may name the fence's: copied from a predecessor that has them since."""
    spared = FENCE_CONFIGS if replacement.own_configs is not None else {}
    named = {name: value for name, value in command.configs.items() if name not in spared}
    held = [
        ("number of partitions", command.num_partitions, replacement.num_partitions, None),
        ("replication factor", command.replication_factor, replacement.replication_factor, DEFAULT_FACTOR),
        ("delay", command.delay_ms, replacement.delay_ms, None),
        ("fence", command.fence, replacement.fence, None),
        ("evacuation", command.evacuate, replacement.evacuation_epoch is not None, False),
    ]
    found = [
        f"another {what} ({'none' if now is None else repr(now)})"
        for what, wanted, now, unnamed in held
        if wanted not in (now, unnamed)
    ]
    if named.items() <= replacement.configs.items():
        return found
    return [*found, f"another set of configs ({dict(replacement.configs)!r})"]


def why_evacuate(cleanup_policy: str) -> str:
    """Return why a compacted topic is not shrunk, nor replaced without an evacuation, and what to do."""
    return (
        f"cleanup.policy is {cleanup_policy!r}, and the latest value of each key must be kept: replace it with "
        "--evacuate (in a file: replace and evacuate), and run the Spark job modeaware.spark.evacuate, which copies "
        "these values to the successor"
    )


def objections_to_replacement(command: ReplaceTopicCommand, facts: TopicFacts) -> Iterator[tuple[ErrorCode, str]]:
    """Yield why a first command is refused, beside what a shrink would be refused for, with the error codes."""
    if command.undo:
        yield ErrorCode.INVALID_REQUEST, "it is not being replaced; nothing to undo"
    if not _NAME.fullmatch(command.successor) or command.successor in (".", ".."):
        why = f"invalid topic name {command.successor!r}: 1 to 249 letters, digits, '.', '_' and '-'"
        yield ErrorCode.INVALID_TOPIC_EXCEPTION, why
    if command.num_partitions < 1:
        yield ErrorCode.INVALID_PARTITIONS, f"{command.num_partitions} partitions: at least 1"
    if command.num_partitions > MAX_PARTITIONS:
        yield ErrorCode.INVALID_PARTITIONS, f"{command.num_partitions} partitions: at most {MAX_PARTITIONS}"
    if command.delay_ms is not None and command.delay_ms < 0:
        yield ErrorCode.INVALID_REQUEST, f"a delay of {command.delay_ms} ms: name 0 or more, or none at all"
    if command.successor == command.topic:
        yield ErrorCode.INVALID_REQUEST, "it cannot replace itself: the successor needs a name of its own"
    if command.fence not in FENCES:
        yield ErrorCode.INVALID_REQUEST, f"a fence is one of {', '.join(FENCES)}, not {command.fence!r}"
    if facts.compacted and not command.evacuate:
        yield ErrorCode.POLICY_VIOLATION, why_evacuate(facts.cleanup_policy)
    if command.evacuate and not facts.compacted:
        why = f"cleanup.policy is {facts.cleanup_policy!r}: not compacted, nothing to evacuate; omit --evacuate"
        yield ErrorCode.INVALID_REQUEST, why
    if command.evacuate and "compact" not in command.configs.get("cleanup.policy", "compact"):
        yield ErrorCode.INVALID_REQUEST, "the successor has to be compacted too: retention would remove latest values"
    if command.evacuate and command.delay_ms is None and command.fence != "none":
        why = "compaction never empties it: name the delay after which it may be deleted (--delay)"
        yield ErrorCode.INVALID_REQUEST, why
    if facts.successor is not None and facts.successor.topic_id is not None:
        why = f"a topic {command.successor!r} exists already: choose another name for the successor"
        yield ErrorCode.TOPIC_ALREADY_EXISTS, why


def objection_to_change(replacement: Replacement) -> str:
    """Return why nothing else is changed about a topic that is replaced, and what to do."""
    successor = replacement.successor
    if replacement.switched_ms is not None:
        return f"its name leads to {successor!r}, which has replaced it: change that topic"
    return f"it is being replaced by {successor!r}: wait until that is done, or undo it (modeaware replace --undo)"
