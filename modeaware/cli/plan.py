"""What a change will do, in words, before it is done. Pure."""

from __future__ import annotations

from modeaware.cli.situation import Situation
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, TopicCommand
from modeaware.lifecycle.phases import in_progress
from modeaware.modelog.records import RETENTION_DELAY_MS
from modeaware.modes import format_ranges

# KIP-694, "Kafka Topic Command changes", word for word.
GROWTH_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the messages "
    "will be affected"
)
FEATURE_WARNING = (
    "WARNING: This feature is only enabled with Metadata version above 10 and delete.topic.partition.enable turned on"
)
CHANGING_WARNING = "WARNING: The topic is currently under changes"


def warnings(command: TopicCommand, situation: Situation) -> list[str]:
    """KIP-694's three warnings, as far as each applies."""
    told = []
    if isinstance(command, CreatePartitionsCommand):
        told.append(GROWTH_WARNING)
    else:
        told.append(FEATURE_WARNING)
        told.append(
            "  (On a stock Kafka it is the clients that honour the modes: one that is not mode-aware goes on writing "
            "to retired partitions, which then stay until it has stopped.)"
        )
        told += _state_warnings(command, situation)
    return told + changing_warning(situation)


def _state_warnings(command: DeletePartitionsCommand, situation: Situation) -> list[str]:
    """What stays behind in each group whose loss of state is accepted; and names that give nothing up."""
    told = []
    for name in command.accept_state_loss:
        group = situation.facts.groups.get(name)
        if group is not None and group.stateful:
            told.append(
                f"WARNING: group {name!r} keeps state per partition, and state does not move with the keys: what it "
                f"has stored (windows, joins, aggregates, tables) for {_moving_keys(command, situation)} stays in the "
                "changelogs of their old partitions. Where such a key goes next, it begins without"
            )
        else:
            known = "keeps no state that is known of" if group is not None else "does not use the topic now"
            told.append(f"  (--accept-state-loss {name}: the group {known}; it is remembered for when it does.)")
    return told


def _moving_keys(command: DeletePartitionsCommand, situation: Situation) -> str:
    deletion = situation.record.deletion if situation.record is not None else None
    count, target = situation.writable_count, command.total_count
    if count == target and deletion is not None:  # under way already
        count = deletion.previous_count
    if not 0 < target < count:
        return "keys that move"
    if count % target:
        return f"most keys, since {target} does not divide {count},"
    return f"the keys of partitions {format_ranges(range(target, count))}"


def changing_warning(situation: Situation) -> list[str]:
    """KIP-694's third warning, where a change of the topic is in progress."""
    return [CHANGING_WARNING] if in_progress(situation.record) else []


def plan(command: TopicCommand, situation: Situation) -> list[str]:
    """What the command will do to the topic."""
    if isinstance(command, DeletePartitionsCommand):
        return _shrink_plan(command, situation)
    return _grow_plan(command, situation)


def key_note(count: int, target: int) -> str:
    """What a shrink from ``count`` to ``target`` partitions does to keys: a dividing target moves the fewest."""
    if count % target == 0:
        return (
            f"{target} divides {count}: only keys of the retired partitions move to another partition, "
            "all other keys stay where they are."
        )
    dividing = ", ".join(str(n) for n in range(1, count) if count % n == 0)
    return (
        f"{target} does not divide {count}: most keys move to another partition. A target that divides it ({dividing}) "
        "moves only the keys of the retired partitions."
    )


def _shrink_plan(command: DeletePartitionsCommand, situation: Situation) -> list[str]:
    before, after = situation.writable_count, command.total_count
    if before == after:  # under way already: only what is accepted changes
        return []
    retired = range(after, before)
    return [
        f"{command.topic}: {before} -> {after} writable partitions.",
        f"ReadOnly: {format_ranges(retired)}, no new records, and consumers read them to their end.",
        *_evacuation(command, situation),
        _policy(command, situation),
        key_note(before, after),
    ]


def _evacuation(command: DeletePartitionsCommand, situation: Situation) -> list[str]:
    """What has to be done by somebody else, and what it does not do."""
    if not command.evacuate:
        return []
    job = (
        "Evacuated first: they wait until the Spark job modeaware.spark.evacuate has copied the latest values of their "
        "keys to the partitions that stay. Start it once they are sealed (--describe shows the phase drain)."
    )
    lines = [job]
    if situation.writable_count % command.total_count:
        lines.append(
            "WARNING: keys that move from one partition that stays to another are not evacuated: their values so far "
            "stay where they are, beside newer ones elsewhere. A target that divides the count moves no such key."
        )
    return lines


def _policy(command: DeletePartitionsCommand, situation: Situation) -> str:
    if command.immediate_delete:
        return "Their records are deleted WITHOUT waiting for consumers (--immediate-delete)."
    if command.evacuate and (command.delay_ms == RETENTION_DELAY_MS or not situation.facts.deletes):
        return "Then no client reads them any more, and their records stay on the brokers."
    if command.delay_ms == RETENTION_DELAY_MS:
        return (
            "Their records stay until the topic's own retention removes them; name --delete-partitions-delay to have "
            "them deleted once consumed."
        )
    earliest = f", {command.delay_ms} ms from now at the earliest" if command.delay_ms else ""
    return f"Their records are deleted once every group has consumed them{earliest}."


def undo_plan(situation: Situation) -> list[str]:
    """What an undo gives back of each revived partition's records, and what it cannot."""
    record = situation.record
    if record is None or record.deletion is None:
        return []
    revived = [p for p, r in record.retired.items() if p < record.deletion.previous_count and not r.opening]
    logs = {p: situation.facts.partitions[p] for p in sorted(revived) if p in situation.facts.partitions}
    gone = {p: log.log_start for p, log in logs.items() if log.log_start > 0}
    kept = sum(log.end_offset - log.log_start for log in logs.values())
    lines = [f"Given back: partitions {format_ranges(sorted(revived))} with the {kept} offsets they still hold."]
    if gone:
        lines.append(
            f"Records deleted before stay deleted: {sum(gone.values())} offsets below the log starts of partitions "
            f"{format_ranges(sorted(gone))} (taken by the shrink, or by the topic's retention)."
        )
    else:
        lines.append("Nothing of them was deleted.")
    return lines


def _grow_plan(command: CreatePartitionsCommand, situation: Situation) -> list[str]:
    before, after = situation.writable_count, command.total_count
    listed = len(situation.record.modes) if situation.record is not None else situation.count
    lines = [f"{command.topic}: {before} -> {after} writable partitions."]
    revived = range(before, min(after, listed))
    created = range(max(listed, situation.count), after)
    if revived:
        lines.append(f"ReadWrite again: {format_ranges(revived)}.")
    if created and situation.record is not None:
        lines.append(f"New: {format_ranges(created)}, closed to writes until every group knows them.")
    elif created:
        lines.append(f"New: {format_ranges(created)}.")
    return lines
