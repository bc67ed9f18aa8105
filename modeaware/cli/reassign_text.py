"""What ``modeaware reassign-partitions`` prints: the sentences of ``kafka-reassign-partitions.sh``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from modeaware.admin.log_dirs import LogDirs, Replica, replica_name
from modeaware.admin.reassignment_json import format_plan
from modeaware.admin.reassignment_state import MoveState
from modeaware.admin.reassignments import PartitionKey, PartitionReassignment, Replicas
from modeaware.printable import printable_lines

ANOTHER_IS_ACTIVE = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
VERIFY_PERIODICALLY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
NOTHING_TO_CANCEL = "None of the specified partition reassignments are active."
NO_MOVE_TO_CANCEL = "None of the specified partition moves are active."


def name(key: PartitionKey) -> str:
    """``topic-partition``."""
    return f"{key[0]}-{key[1]}"


def names(keys: Iterable[PartitionKey]) -> str:
    """The same of several, sorted."""
    return ",".join(name(key) for key in sorted(keys))


def ids(brokers: Iterable[int]) -> str:
    """``1,2,3``."""
    return ",".join(map(str, brokers))


def current_assignment(partitions: Mapping[PartitionKey, Replicas], log_dirs: Mapping[Replica, str]) -> str:
    """What --execute prints before it begins: the way back."""
    return (
        f"Current partition replica assignment\n\n{format_plan(partitions, log_dirs)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )


def way_back_doubt(key: PartitionKey) -> str:
    """Said of a partition whose replicas before it moved are not certain."""
    return (
        f"{name(key)}: was redirected, or its replication factor changes: use the file that the first --execute printed"
    )


def not_throttled(brokers: Iterable[int]) -> str:
    """What --execute says of brokers that are down."""
    brokers = list(brokers)
    return f"No throttle on broker{plural(brokers)} {ids(brokers)}: not alive"


def throttle_stays(command: str) -> str:
    """What --execute says where it fails after it has set a throttle."""
    return f"The throttle stays set; remove it with: {command} --verify"


def throttles_stay(others: int) -> str:
    """What --verify says where the plan is at its end, but others are not."""
    told = "1 other reassignment is" if others == 1 else f"{others} other reassignments are"
    return f"Throttles stay: {told} in progress; run --verify again"


def proposal(
    current: Mapping[PartitionKey, Replicas],
    log_dirs: Mapping[Replica, str],
    proposed: Mapping[PartitionKey, Replicas],
) -> str:
    """What --generate prints."""
    return (
        f"Current partition replica assignment\n{format_plan(current, log_dirs)}\n\n"
        f"Proposed partition reassignment configuration\n{format_plan(proposed)}"
    )


def started(keys: Iterable[PartitionKey]) -> str:
    """What --execute has begun."""
    keys = list(keys)
    return f"Successfully started partition reassignment{plural(keys)} for {names(keys)}"


def cancelled(keys: Iterable[PartitionKey]) -> str:
    """What --cancel has ended."""
    keys = list(keys)
    return f"Successfully cancelled partition reassignment{plural(keys)} for: {names(keys)}"


def failures(head: str, errors: Mapping[PartitionKey, Exception]) -> str:
    """A line for each partition that was refused."""
    return printable_lines([head, *(f"{name(key)}: {errors[key]}" for key in sorted(errors))])


def status(states: Mapping[PartitionKey, MoveState]) -> str:
    """What --verify prints of the partitions."""
    return printable_lines(
        ["Status of partition reassignment:", *(_status(key, states[key]) for key in sorted(states))]
    )


def _status(key: PartitionKey, state: MoveState) -> str:
    if state.active:
        return f"Reassignment of partition {name(key)} is still in progress."
    if state.completed:
        return f"Reassignment of partition {name(key)} is completed."
    return (
        f"There is no active reassignment of partition {name(key)}, but replica set is {ids(state.current)} "
        f"rather than {ids(state.target)}."
    )


def moves_status(wanted: Mapping[Replica, str], found: Mapping[Replica, LogDirs]) -> str:
    """What --verify prints of the directories; empty where the plan names none."""
    lines = [_move_status(replica, wanted[replica], found[replica]) for replica in sorted(wanted, key=_by_broker)]
    return printable_lines(lines)


def _by_broker(replica: Replica) -> tuple[int, str, int]:
    topic, partition, broker = replica
    return broker, topic, partition


def _move_status(replica: Replica, target: str, found: LogDirs) -> str:
    topic, partition, broker = replica
    if found.future == target:
        return f"Reassignment of replica {replica_name(replica)} is still in progress."
    if found.future is not None:
        where = f"Partition {topic}-{partition} on broker {broker}"
        return f"{where} is being moved to log dir {found.future} instead of {target}."
    if found.current is None:
        return f"Partition {topic}-{partition} cannot be found in any live log directory on broker {broker}."
    if found.current == target:
        return f"Reassignment of replica {replica_name(replica)} completed successfully."
    where = f"Partition {topic}-{partition} on broker {broker}"
    return f"{where} is not being moved from log dir {found.current} to {target}."


def move_started(replica: Replica, folder: str) -> str:
    """What --execute says of a directory."""
    topic, partition, broker = replica
    return (
        f"Successfully started moving log directory to {folder} for replica {topic}-{partition} with broker {broker} "
    )


def listing(in_progress: Mapping[PartitionKey, PartitionReassignment]) -> str:
    """What --list prints."""
    if not in_progress:
        return "No partition reassignments found."
    lines = []
    for key, each in sorted(in_progress.items()):
        adding = f" adding: {ids(each.adding_replicas)}." if each.adding_replicas else ""
        removing = f" removing: {ids(each.removing_replicas)}." if each.removing_replicas else ""
        lines.append(f"{name(key)}: replicas: {ids(each.replicas)}.{adding}{removing}")
    return printable_lines(["Current partition reassignments:", *lines])


def clearing(kind: str, whose: Iterable[object]) -> str:
    """What is said before throttles are removed: ``kind`` is broker or topic."""
    listed = [str(each) for each in whose]
    return f"Clearing {kind}-level throttles on {kind}{plural(listed)} {','.join(listed)}"


def plural(things: Iterable[object]) -> str:
    """Kafka's "s", which none and many have."""
    return "" if len(list(things)) == 1 else "s"
