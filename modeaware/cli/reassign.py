"""``modeaware reassign-partitions``: the part of ``kafka-reassign-partitions`` that KIP-860 changes.

Flags, files and output are those of Kafka's tool, so that each tool can complete reassignments of the other. For moves
between log directories, throttles and ``--generate``, use Kafka's own tool.

The exit status is as for every command. With ``--wait`` it is also 1 if a partition is not on the wanted brokers.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from modeaware.admin.reassignments import (
    MoveState,
    PartitionKey,
    PartitionReassignment,
    Replicas,
    alter_reassignments,
    assigned_replicas,
    list_reassignments,
    move_states,
    replicas_before,
    uncertain_before,
)
from modeaware.cli import BadUsage, Command
from modeaware.cli.progress import Progress, run_interruptibly, tell
from modeaware.cli.session import (
    add_actions,
    add_connection_options,
    add_flags,
    check_actions,
    command_line,
    open_session,
)
from modeaware.errors import ClusterError, ConfigError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.printable import printable_lines
from modeaware.wire.brokers import Brokers

Assignment = Mapping[PartitionKey, Replicas]
"""Partition -> its brokers: the content of a file of ``--reassignment-json-file``."""

_ACTIONS = {
    "execute": "start the reassignments in the file; first print the current assignment, for a rollback",
    "verify": "show the progress of the file's partitions",
    "cancel": "cancel reassignments in progress of the file's partitions",
    "list": "list all reassignments in progress",
}
_ACTIONS_OF = {
    "reassignment_json_file": ("execute", "verify", "cancel"),
    "additional": ("execute",),
    "disallow_replication_factor_change": ("execute",),
    "wait": ("execute", "verify"),
}
_ANOTHER_IS_ACTIVE = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one."
)
_ANY_LOG_DIR = "any"
_VERSION = 1
_CHECK_INTERVAL_S = 1.0
_CATCH_UP_PAUSES_S = (0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 1.0)
"""Pauses between the last checks: a broker's metadata may lag behind the cluster's controller by about 3 s."""
_T = TypeVar("_T", bound=Hashable)


class ReassignPartitions(Command):
    """``--execute``, ``--verify``, ``--cancel`` or ``--list``."""

    epilog = """
The file of --reassignment-json-file (version 1, as Kafka's tool takes and prints it; "log_dirs" are ignored):
  {"version":1,"partitions":[{"topic":"foo","partition":1,"replicas":[1,2,3]}]}
Moves between log directories, throttles and proposals: kafka-reassign-partitions.sh.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_connection_options(parser)
        add_actions(parser, _ACTIONS)
        parser.add_argument(
            "--reassignment-json-file", type=Path, metavar="FILE", help="which partition goes to which brokers"
        )
        add_flags(
            parser,
            additional="--execute: also while other reassignments are in progress",
            disallow_replication_factor_change="--execute: refuse partitions whose number of replicas would change "
            "(KIP-860; needs Kafka 4.1)",
            wait="--execute, --verify: show the progress until the move is done, then do what --verify does; after "
            "Ctrl-C the move continues in the cluster, and --verify --wait watches it again",
        )

    def run(self, args: argparse.Namespace) -> int:
        if args.action != "list" and args.reassignment_json_file is None:
            raise BadUsage(f"--{args.action} needs --reassignment-json-file")
        check_actions(args, _ACTIONS_OF)
        wanted = {} if args.action == "list" else _wanted(args.reassignment_json_file)
        with open_session(args, "reassign partitions") as session:
            brokers = session.cluster.brokers
            if args.action == "list":
                print(listing(list_reassignments(brokers)))
            elif args.action == "cancel":
                cancel(brokers, wanted)
            elif args.action == "execute":
                execute(
                    brokers,
                    wanted,
                    additional=args.additional,
                    allow_replication_factor_change=not args.disallow_replication_factor_change,
                )
            if args.wait:
                return 0 if _wait(brokers, wanted, args) else 1
            if args.action == "verify":
                verify(brokers, wanted)
        return 0


def execute(
    brokers: Brokers,
    wanted: Assignment,
    *,
    additional: bool = False,
    allow_replication_factor_change: bool = True,
) -> None:
    """Print the present assignment, which a rollback needs, and start reassignments.

    Raises:
        RequestRefused: some reassignments were not started. The message names them and the reasons.
    """
    before = list_reassignments(brokers)
    if before and not additional:
        raise RequestRefused(_ANOTHER_IS_ACTIVE, code=ErrorCode.REASSIGNMENT_IN_PROGRESS)
    live = brokers.node_ids()
    if unknown := sorted({broker for replicas in wanted.values() for broker in replicas if broker not in live}):
        raise RequestRefused(f"Unknown broker id {_ids(unknown)}: no live broker has it")
    current = _current(brokers, wanted)
    in_progress = {**before, **list_reassignments(brokers)}  # metadata may be older than both lists
    print(
        f"Current partition replica assignment\n\n{format_assignment(replicas_before(current, in_progress))}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback",
        flush=True,  # at once: a rollback needs it even if this process is killed
    )
    for key in uncertain_before(current, in_progress):
        how = (
            "the replicas printed above may be wrong, because a reassignment in progress was redirected or changes the "
            "replication factor. For a rollback, use the assignment that the first --execute printed"
        )
        tell(f"{_name(key)}: {how}")
    answers = alter_reassignments(
        brokers,
        wanted,
        allow_replication_factor_change=allow_replication_factor_change,
    )
    errors = {key: error for key, error in answers.items() if error is not None}
    if begun := answers.keys() - errors.keys():
        print(f"Successfully started partition reassignment{_plural(begun)} for {_names(begun)}")
    if errors:
        raise _failed("Error reassigning partition(s):", errors)


def verify(brokers: Brokers, wanted: Assignment, pauses_s: Iterable[float] = ()) -> bool:
    """Print the progress of the reassignments; return whether all are done. ``pauses_s`` goes to `move_states`."""
    states = move_states(brokers, wanted, pauses_s)
    print(status(states))
    return all(state.completed for state in states.values())


def cancel(brokers: Brokers, wanted: Assignment) -> None:
    """Cancel the wanted reassignments that are in progress. Raise RequestRefused if one was not cancelled."""
    active = list_reassignments(brokers, wanted)
    if not active:
        print("None of the specified partition reassignments are active.")
        return
    answers = alter_reassignments(brokers, dict.fromkeys(active))
    errors = {key: error for key, error in answers.items() if error is not None}
    if errors:
        raise _failed(f"Error cancelling partition reassignment{_plural(errors)} for:", errors)
    print(f"Successfully cancelled partition reassignment{_plural(active)} for: {_names(active)}")


def wait_until_final(brokers: Brokers, wanted: Assignment, progress: Progress) -> None:
    """Show the progress until no wanted partition is moving. A failed check is noted and repeated."""
    pause = threading.Event()
    while True:
        try:
            states = run_interruptibly(lambda: move_states(brokers, wanted), stop=lambda: None)
        except ClusterError as error:
            progress.note(f"no answer; trying again: {error}")
        else:
            moving = [key for key, state in states.items() if state.active]
            if not moving:
                return
            progress.note(f"{len(states) - len(moving)} of {len(states)} partitions done; moving: {_names(moving)}")
        pause.wait(_CHECK_INTERVAL_S)


def _wait(brokers: Brokers, wanted: Assignment, args: argparse.Namespace) -> bool:
    sys.stdout.flush()  # so that the assignment is visible during the move
    try:
        wait_until_final(brokers, wanted, Progress(sys.stderr))
    except KeyboardInterrupt:
        command = ("modeaware", "reassign-partitions", "--reassignment-json-file", str(args.reassignment_json_file))
        tell(
            "The move continues in the cluster.", f"Watch it:     {command_line(args, *command, '--verify', '--wait')}"
        )
        tell(f"Cancel it:    {command_line(args, *command, '--cancel')}")
        raise
    return verify(brokers, wanted, _CATCH_UP_PAUSES_S)


def _current(brokers: Brokers, wanted: Assignment) -> dict[PartitionKey, Replicas]:
    assigned = assigned_replicas(brokers, (topic for topic, _ in wanted))
    if missing := sorted({topic for topic, _ in wanted} - {topic for topic, _ in assigned}):
        raise RequestRefused(
            f"Topic {', '.join(missing)} not found.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=missing[0]
        )
    if absent := wanted.keys() - assigned.keys():
        raise RequestRefused(f"Unable to find partition: {_names(absent)}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {key: assigned[key] for key in wanted}


def _wanted(file: Path) -> Assignment:
    text = _read(file)
    wanted = parse_assignment(text)
    entries = json.loads(text)["partitions"]
    if any(entry.get("log_dirs", []) not in ([], [_ANY_LOG_DIR] * len(entry["replicas"])) for entry in entries):
        tell("log_dirs are ignored; kafka-reassign-partitions.sh moves replicas between them")
    return wanted


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def parse_assignment(text: str) -> dict[PartitionKey, Replicas]:
    """Read ``{"version":1,"partitions":[{"topic":..,"partition":..,"replicas":[..]}]}``; ``log_dirs`` are ignored.

    Raises:
        RequestRefused: the text is malformed, lacks partitions or replicas, or names a partition or replica twice.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad(f"The input string is not a valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise _bad("The input string is not a valid JSON object")
    if (version := document.get("version", _VERSION)) != _VERSION:
        raise _bad(f"Not supported version field value {version}")
    entries = document.get("partitions", [])
    if not isinstance(entries, list):
        raise _bad(f"Expected an array in 'partitions', received {json.dumps(entries)}")
    wanted = [_parse_entry(entry) for entry in entries]
    if not wanted:
        raise _bad("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in wanted):
        raise _bad("Partition replica list cannot be empty")
    if twice := _twice(key for key, _ in wanted):
        raise _bad(f"Partition reassignment contains duplicate topic partitions: {_names(twice)}")
    repeated = [(key, _twice(replicas)) for key, replicas in wanted]
    if texts := [f"{_name(key)} contains multiple entries for {_ids(brokers)}" for key, brokers in repeated if brokers]:
        raise _bad(f"Partition replica lists may not contain duplicate entries: {'. '.join(texts)}")
    return dict(wanted)


def _parse_entry(entry: Any) -> tuple[PartitionKey, Replicas]:
    match entry:
        case {"topic": str(topic), "partition": int(partition), "replicas": [*replicas]} if all(
            isinstance(number, int) and not isinstance(number, bool) for number in (partition, *replicas)
        ):
            return (topic, partition), tuple(replicas)
    raise _bad(
        'Expected "topic" (a string), "partition" (a whole number) and "replicas" (whole numbers), received '
        f"{json.dumps(entry)}"
    )


def format_assignment(wanted: Assignment) -> str:
    """Return an assignment as one line, sorted: exactly the output of Kafka's tool."""
    entries = [
        {"topic": topic, "partition": partition, "replicas": ids, "log_dirs": [_ANY_LOG_DIR] * len(ids)}
        for (topic, partition), ids in sorted(wanted.items())
    ]
    return json.dumps({"version": _VERSION, "partitions": entries}, separators=(",", ":"))


def status(states: Mapping[PartitionKey, MoveState]) -> str:
    """Return the output of ``--verify``."""
    return printable_lines(
        ["Status of partition reassignment:", *(_status(key, states[key]) for key in sorted(states))]
    )


def _status(key: PartitionKey, state: MoveState) -> str:
    if state.active:
        return f"Reassignment of partition {_name(key)} is still in progress."
    if state.completed:
        return f"Reassignment of partition {_name(key)} is completed."
    return (
        f"There is no active reassignment of partition {_name(key)}, but replica set is {_ids(state.current)} "
        f"rather than {_ids(state.target)}."
    )


def listing(in_progress: Mapping[PartitionKey, PartitionReassignment]) -> str:
    """Return the output of ``--list``."""
    if not in_progress:
        return "No partition reassignments found."
    lines = []
    for key, reassignment in sorted(in_progress.items()):
        adding = f" adding: {_ids(reassignment.adding_replicas)}." if reassignment.adding_replicas else ""
        removing = f" removing: {_ids(reassignment.removing_replicas)}." if reassignment.removing_replicas else ""
        lines.append(f"{_name(key)}: replicas: {_ids(reassignment.replicas)}.{adding}{removing}")
    return printable_lines(["Current partition reassignments:", *lines])


def _failed(head: str, errors: Mapping[PartitionKey, ModeAwareError]) -> RequestRefused:
    codes = {error.code for error in errors.values()}
    lines = printable_lines([head, *(f"{_name(key)}: {errors[key]}" for key in sorted(errors))])
    return RequestRefused(lines, code=codes.pop() if len(codes) == 1 else None)


def _name(key: PartitionKey) -> str:
    return f"{key[0]}-{key[1]}"


def _names(keys: Iterable[PartitionKey]) -> str:
    return ",".join(_name(key) for key in sorted(keys))


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _plural(things: Iterable[object]) -> str:
    return "" if len(list(things)) == 1 else "s"


def _twice(values: Iterable[_T]) -> list[_T]:
    return [value for value, count in Counter(values).items() if count > 1]


def _bad(message: str) -> RequestRefused:
    return RequestRefused(message, code=ErrorCode.INVALID_REQUEST)
