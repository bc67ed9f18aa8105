"""The actions of ``modeaware reassign-partitions``, in the order of steps of Kafka's own tool."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from modeaware.admin.expected_replicas import expectation_failures
from modeaware.admin.generate import doubtful, propose, settled
from modeaware.admin.log_dirs import LogDirs, Replica, find_log_dirs, start_moves
from modeaware.admin.reassignment_json import Plan
from modeaware.admin.reassignment_state import look
from modeaware.admin.reassignments import (
    PartitionKey,
    PartitionReassignment,
    Replicas,
    alter_reassignments,
    assigned_replicas,
    list_reassignments,
    live_brokers,
    replicas_by_broker,
)
from modeaware.admin.throttle import clear_throttles, moves
from modeaware.cli import reassign_text as text
from modeaware.cli.reassign_throttle import Throttle
from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused
from modeaware.wire.brokers.client import Brokers


@dataclass(frozen=True)
class Execution:
    """What --execute was told.

    Attributes:
        plan: where the partitions shall be.
        additional: whether others may be in progress.
        throttle: bytes per second, or None.
        log_dirs_throttle: the same for moves between directories of one broker.
        timeout_s: how long to try to begin those.
        allow_replication_factor_change: False: KIP-860's guard.
        expected: compare-and-set.
        command: what to type again, without the action.
    """

    plan: Plan
    additional: bool = False
    throttle: int | None = None
    log_dirs_throttle: int | None = None
    timeout_s: float = 10.0
    allow_replication_factor_change: bool = True
    expected: Mapping[PartitionKey, Replicas] | None = None
    command: str = "modeaware reassign-partitions"


def execute(brokers: Brokers, wanted: Execution) -> None:
    """Start reassignments; prints the way back first.

    Raises:
        RequestRefused: not all of them were started; it says which were not, and why. The others were, but none of
            the moves between directories.
        ClusterError: no answer.
    """
    plan = wanted.plan.partitions
    before = list_reassignments(brokers)
    if before and not wanted.additional:
        raise RequestRefused(text.ANOTHER_IS_ACTIVE, code=ErrorCode.REASSIGNMENT_IN_PROGRESS)
    _check_brokers(brokers, {broker for replicas in plan.values() for broker in replicas})
    current = _known(assigned_replicas(brokers, (topic for topic, _ in plan)), plan)
    in_progress = {
        **before,
        **list_reassignments(brokers),
    }  # one that begins or ends meanwhile is in neither's metadata
    back = settled(current, in_progress)
    print(text.current_assignment(back, _log_dirs(brokers, back)), flush=True)  # it has to outlive this process
    _warn(current, in_progress)
    expected = {key: ids for key, ids in (wanted.expected or {}).items() if key in plan}
    _check_expected(brokers, wanted, expected, in_progress)
    with Throttle(brokers, moves(in_progress, plan, current), wanted.command) as throttle:
        _throttle(throttle, wanted)
        answers = alter_reassignments(
            brokers,
            plan,
            allow_replication_factor_change=wanted.allow_replication_factor_change,
            expected_replicas=expected,
        )
        errors = {key: error for key, error in answers.items() if error is not None}
        if begun := answers.keys() - errors.keys():
            print(text.started(begun))
        if errors:
            if not begun and all(isinstance(error, RequestRefused) for error in errors.values()):
                throttle.not_needed()
            raise _failed("Error reassigning partition(s):", errors)
        _move(brokers, wanted.plan.log_dirs, wanted.timeout_s)


def _check_expected(
    brokers: Brokers,
    wanted: Execution,
    expected: Mapping[PartitionKey, Replicas],
    in_progress: Mapping[PartitionKey, PartitionReassignment],
) -> None:
    """A first look, so that no throttle is set where all of it is refused; the one that counts is at the request."""
    if expected and (wanted.throttle is not None or wanted.log_dirs_throttle is not None):
        seen = replicas_by_broker(brokers, (topic for topic, _ in expected))
        failures = expectation_failures(expected, seen, in_progress.keys())
        if failures.keys() == wanted.plan.partitions.keys():
            raise _failed("Error reassigning partition(s):", failures)


def _throttle(throttle: Throttle, wanted: Execution) -> None:
    if wanted.throttle is not None or wanted.log_dirs_throttle is not None:
        print(text.VERIFY_PERIODICALLY)
    if wanted.throttle is not None:
        throttle.between_brokers(wanted.throttle)
    if wanted.log_dirs_throttle is not None:
        throttle.between_folders(wanted.log_dirs_throttle, (broker for _, _, broker in wanted.plan.log_dirs))


def _warn(current: Mapping[PartitionKey, Replicas], in_progress: Mapping[PartitionKey, PartitionReassignment]) -> None:
    for key in doubtful(current, in_progress):
        print(text.way_back_doubt(key), file=sys.stderr)


def _move(brokers: Brokers, log_dirs: Mapping[Replica, str], timeout_s: float) -> None:
    start_moves(brokers, log_dirs, timeout_s, lambda replica: print(text.move_started(replica, log_dirs[replica])))


def verify(brokers: Brokers, plan: Plan, *, preserve_throttles: bool, pauses_s: Iterable[float] = ()) -> bool:
    """Say how far the plan has come; when nothing in the cluster is in progress any more, remove the throttles.

    Args:
        pauses_s: see :func:`~modeaware.admin.reassignment_state.look`.

    Returns:
        Whether all of it is done.

    Raises:
        RequestRefused: not authorized, say.
        ClusterError: no answer, or a throttle could not be removed.
    """
    states, in_progress = look(brokers, plan.partitions, pauses_s)
    folders = find_log_dirs(brokers, plan.log_dirs)
    print(text.status(states))
    print(text.moves_status(plan.log_dirs, folders))
    moving = any(each.future is not None for each in folders.values())
    if not in_progress and not moving and not preserve_throttles:
        _clear(brokers, plan)
    elif in_progress and not preserve_throttles and not any(state.active for state in states.values()):
        print(text.throttles_stay(len(in_progress)), file=sys.stderr)
    there = all(folders[replica] == LogDirs(folder) for replica, folder in plan.log_dirs.items())
    return there and all(state.completed for state in states.values())


def cancel(brokers: Brokers, plan: Plan, *, preserve_throttles: bool, timeout_s: float) -> None:
    """Cancel what is in progress of the plan, and remove the throttles.

    Raises:
        RequestRefused: something could not be cancelled; it says what and why.
        ClusterError: no answer, or a throttle could not be removed.
    """
    active = list_reassignments(brokers, plan.partitions)
    if active:
        answers = alter_reassignments(brokers, dict.fromkeys(active))
        errors = {key: error for key, error in answers.items() if error is not None}
        if errors:
            raise _failed(f"Error cancelling partition reassignment{text.plural(errors)} for:", errors)
        print(text.cancelled(active))
    else:
        print(text.NOTHING_TO_CANCEL)
    folders = find_log_dirs(brokers, plan.log_dirs)
    back = {replica: str(each.current) for replica, each in folders.items() if each.future is not None}
    if back:
        _move(brokers, back, timeout_s)
    else:
        print(text.NO_MOVE_TO_CANCEL)
    if not preserve_throttles:
        _clear(brokers, plan)


def generate(brokers: Brokers, topics: Iterable[str], broker_ids: Iterable[int], *, rack_aware: bool) -> None:
    """Print a proposal, and what there is now.

    Raises:
        RequestRefused: no such topic or broker, not all brokers have a rack, or there are too few.
        ClusterError: no answer.
    """
    racks = _check_brokers(brokers, broker_ids)
    if rack_aware and len({rack is None for rack in racks.values()}) > 1:
        raise RequestRefused(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    wanted = list(topics)
    before = list_reassignments(brokers)
    current = assigned_replicas(brokers, wanted)
    _check_topics(current, wanted)
    in_progress = {**before, **list_reassignments(brokers)}
    to_use = racks if rack_aware else dict.fromkeys(racks)
    proposed = propose(current, to_use, in_progress, random.randrange)
    now = settled(current, in_progress)
    print(text.proposal(now, _log_dirs(brokers, now), proposed))
    _warn(current, in_progress)


def show_list(brokers: Brokers) -> None:
    """Print everything that is in progress.

    Raises:
        RequestRefused: not authorized, say.
        ClusterError: no answer.
    """
    print(text.listing(list_reassignments(brokers)))


def _check_brokers(brokers: Brokers, wanted: Iterable[int]) -> dict[int, str | None]:
    """The racks of these brokers, all of which have to be alive."""
    live = live_brokers(brokers)
    wanted = sorted(wanted)
    if unknown := [broker for broker in wanted if broker not in live]:
        raise RequestRefused(f"Unknown broker id {text.ids(unknown)}: not alive, or there is none")
    return {broker: live[broker] for broker in wanted}


def _check_topics(current: Mapping[PartitionKey, Replicas], topics: Iterable[str]) -> None:
    known = {topic for topic, _ in current}
    if missing := sorted(set(topics) - known):
        raise RequestRefused(
            f"Topic {', '.join(missing)} not found.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=missing[0]
        )


def _known(current: Mapping[PartitionKey, Replicas], plan: Iterable[PartitionKey]) -> dict[PartitionKey, Replicas]:
    wanted = list(plan)
    _check_topics(current, (topic for topic, _ in wanted))
    if missing := sorted(key for key in wanted if key not in current):
        told = ", ".join(map(text.name, missing))
        raise RequestRefused(f"Unable to find partition: {told}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {key: current[key] for key in wanted}


def _log_dirs(brokers: Brokers, partitions: Mapping[PartitionKey, Replicas]) -> dict[Replica, str]:
    """Where these replicas are; those of a broker that does not say are missing."""
    replicas = [(topic, p, broker) for (topic, p), ids in partitions.items() for broker in ids]
    found = find_log_dirs(brokers, replicas)
    return {replica: each.current for replica, each in found.items() if each.current is not None}


def _clear(brokers: Brokers, plan: Plan) -> None:
    nodes = sorted({*live_brokers(brokers), *(broker for replicas in plan.partitions.values() for broker in replicas)})
    topics = sorted({topic for topic, _ in plan.partitions})
    print(text.clearing("broker", nodes))
    print(text.clearing("topic", topics))
    sys.stdout.flush()
    clear_throttles(brokers, nodes, topics)


def _failed(head: str, errors: Mapping[PartitionKey, ModeAwareError]) -> RequestRefused:
    codes = {error.code for error in errors.values()}
    return RequestRefused(text.failures(head, errors), code=codes.pop() if len(codes) == 1 else None)
