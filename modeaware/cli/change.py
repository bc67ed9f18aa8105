"""Changes of a topic's number of partitions: look, show, confirm, carry out, wait; ``modeaware shrink`` and ``grow``.

:class:`Change` is behind shrink, grow, ``topics --alter`` and ``--undo``, and apply. What a controller would refuse is
refused before the question, by the controller's own rules (:func:`modeaware.lifecycle.admission.admit`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from modeaware.admin.new_topics import NewPartitions, TopicReplacement
from modeaware.cli import INTERRUPTED, Command
from modeaware.cli.embedded import admin_client, carry_out, carry_out_all, embedded_controller
from modeaware.cli.progress import status_without_change, tell, wait_for_topics
from modeaware.cli.session import (
    add_change_options,
    add_connection_options,
    add_delay_option,
    add_flags,
    command_line,
    open_session,
)
from modeaware.confluent.admin import AdminClient
from modeaware.confluent.controller_calls import REQUEST_TIMEOUT_S, DeletePartitions
from modeaware.controller.daemon import Controller
from modeaware.errors import ClusterError, ModeAwareError
from modeaware.lifecycle.admission import Admission, admit
from modeaware.lifecycle.commands import (
    CreatePartitions,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
    ReplaceTopicCommand,
    ResizeCommand,
    TopicCommand,
)
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.state import current_record, in_progress
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.modes import PartitionMode, divides_text, format_ranges
from modeaware.reports.describe import TopicDescription, reclaim_text
from modeaware.reports.session import ModeLog, Session, no_such_topic
from modeaware.wire.retries import Deadline, Retrying, RetryPolicy

_T = TypeVar("_T")


@dataclass(frozen=True)
class Situation:
    """One topic, as the mode log (no ``record``: it was never changed) and the brokers show it now.

    Attributes:
        replaced: the records of all topics that are or were replaced.
    """

    topic: str
    record: TopicRecord | None
    facts: TopicFacts
    claim: ClaimRecord | None = None
    rules: tuple[GroupRule, ...] = ()
    replaced: Collection[TopicRecord] = ()

    @property
    def count(self) -> int:
        """The number of partitions on the brokers."""
        return self.facts.partition_count

    @property
    def known(self) -> TopicRecord:
        """The topic as its record and the brokers have it."""
        return current_record(self.record, self.topic, self.facts.topic_id or "", self.count)

    @property
    def writable_count(self) -> int:
        """The number of partitions that take writes."""
        return self.known.writable_count

    def with_successor(self, facts: TopicFacts) -> Situation:
        """Return the topic beside the one that has the name of its successor."""
        return replace(self, facts=replace(self.facts, successor=facts))


def situation_of(session: Session, topic: str, log: ModeLog, facts: TopicFacts | ClusterError) -> Situation:
    """Return a topic as the mode log and the facts show it; errors as of :mod:`.reports.session`."""
    if isinstance(facts, ClusterError):
        raise facts
    if facts.topic_id is None:
        raise no_such_topic(topic, session.cluster.topic_names(), log)
    return Situation(topic, log.record(topic, facts.topic_id), facts, log.claim, log.rules, log.replaced)


class Change:
    """Changes of topics in one session. A context manager; one thread.

    Commands go to the controller that runs, or after :meth:`embed` to one in this process.

    Args:
        timeout_s: how long what did nothing is retried; all looks and validations together, and each command.
    """

    def __init__(self, session: Session, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.session = session
        self._timeout_s = timeout_s
        self._deadline = Deadline(timeout_s)
        self._stack = ExitStack()
        self._embedded: Controller | None = None

    def __enter__(self) -> Change:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def admin(self) -> AdminClient:
        return self._stack.enter_context(admin_client(self.session))

    def retry(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of a look or validation, which changes nothing; retried until the deadline."""
        policy = RetryPolicy.from_conf(self.session.conf)
        return Retrying(self._deadline, policy).call(attempt, repeatable=True)

    def retry_each(
        self, topics: Sequence[str], attempt: Callable[[Sequence[str]], Mapping[str, _T | ModeAwareError]]
    ) -> dict[str, _T | ModeAwareError]:
        """Return what a look at each topic results in; retried as of :meth:`retry`, for those that failed alone."""
        policy = RetryPolicy.from_conf(self.session.conf)
        return Retrying(self._deadline, policy).each(topics, attempt, repeatable=True, settle=lambda _, last: last)

    def look(self, topic: str, log: ModeLog | None = None) -> Situation:
        """Observe a topic, by this reading of the mode log or a new one; errors as of :mod:`.reports.session`."""
        log = self.session.read_log() if log is None else log
        return situation_of(self.session, topic, log, self.session.observer().observe(topic, None, log.rules))

    def admission(self, command: TopicCommand, situation: Situation) -> Admission:
        """Return what a controller would make of the command; raises RequestRefused where it would refuse."""
        config, now_ms = self.session.controller, self.session.clock.now_ms()
        epoch = situation.claim.controller_epoch if situation.claim is not None else 0
        record, facts, rules, replaced = situation.record, situation.facts, situation.rules, situation.replaced
        return admit(command, record, facts, config, epoch, now_ms, rules, replaced)

    def validate(self, command: ResizeCommand, situation: Situation, minimum: int | None = None) -> Admission:
        """Return the :meth:`admission`. Brokers validate the partitions to be created.

        ``minimum`` is KIP-409's, of live replicas. Raises RequestRefused where the controller or a broker would refuse.
        """
        admission, facts = self.admission(command, situation), situation.facts
        if isinstance(command, CreatePartitionsCommand) and command.total_count > situation.count:
            if situation.record is None:
                self.grow(command, minimum, validate_only=True)
            else:
                assert facts.topic_id is not None
                growth = CreatePartitions(command.topic, facts.topic_id, command.total_count, command.assignments)
                (refused,) = self.session.cluster.validate([growth])
                if refused is not None:
                    raise refused
        return admission

    def embed(self, claim: ClaimRecord | None) -> None:
        """Do the controller's work in this process, unless one runs: that of ``claim``, or a later one."""
        self._embedded = self._stack.enter_context(embedded_controller(self.session, claim))

    @property
    def is_embedded(self) -> bool:
        return self._embedded is not None

    def carry_out(self, command: ResizeCommand, minimum: int | None = None) -> str:
        """Have a command carried out. Returns what was done, in words."""
        if isinstance(command, CreatePartitionsCommand):
            if self._embedded is not None and minimum is None:
                carry_out(self._embedded, command, self._timeout_s)
            else:
                self.grow(command, minimum, validate_only=False)
            return f"grown to {command.total_count} writable partitions"
        if self._embedded is not None:
            modes = dict(enumerate(carry_out(self._embedded, command, self._timeout_s).modes))
        else:
            modes = self._shrink(command)
        return f"ReadOnly now: {format_ranges(p for p, m in sorted(modes.items()) if m is PartitionMode.READ_ONLY)}"

    def replace(self, commands: Sequence[ReplaceTopicCommand]) -> dict[str, ModeAwareError | None]:
        """Have topics replaced, or that undone: commands that agree on that, and on the pause. Returns what failed."""
        if self._embedded is not None:
            results = carry_out_all(self._embedded, {c.topic: c for c in commands}, self._timeout_s)
            return {topic: each if isinstance(each, ModeAwareError) else None for topic, each in results.items()}
        if not commands:
            return {}
        futures = self.admin.replace_topics(
            {command.topic: _wanted(command) for command in commands},
            pause_before_switch=commands[0].pause_before_switch,
            undo=commands[0].undo,
            request_timeout=self._timeout_s,
        )
        return {topic: _failure(future.result) for topic, future in futures.items()}

    def _shrink(self, command: DeletePartitionsCommand) -> dict[int, PartitionMode]:
        """Returns the modes of the partitions that are retired now."""
        wanted = DeletePartitions(command.total_count, command.immediate_delete, command.accept_state_loss)
        futures = self.admin.delete_partitions(
            {command.topic: wanted}, delay_ms=command.delay_ms, request_timeout=self._timeout_s
        )
        return dict(futures[command.topic].result().retired)

    def grow(self, command: CreatePartitionsCommand, minimum: int | None = None, *, validate_only: bool) -> None:
        """Have a topic grown by the controller that runs; one that was never changed by the brokers alone."""
        replicas = {} if command.assignments is None else {"replica_assignment": [*map(list, command.assignments)]}
        new = NewPartitions(command.topic, command.total_count, **replicas, min_required_replication_factor=minimum)
        futures = self.admin.create_partitions(
            {command.topic: new}, validate_only=validate_only, request_timeout=self._timeout_s
        )
        result = futures[command.topic].result()
        if result.under_replicated:
            (tell if validate_only else print)(result.describe())

    def wait(self, *topics: str, **watch: Any) -> None:
        """Show the progress until no change of ``topics`` is in progress; ``watch``: as of :func:`wait_until_done`."""

        def failure() -> BaseException | None:
            return self._embedded.failure if self._embedded is not None else None

        wait_for_topics(self.session, topics, failure, **watch)


def _wanted(command: ReplaceTopicCommand) -> TopicReplacement:
    return TopicReplacement(
        command.successor,
        command.num_partitions,
        command.replication_factor,
        command.configs,
        command.delay_ms,
        command.fence,
        command.accept_state_loss,
        accept_access_loss=True,  # judged before the question, as what follows
        accept_mirroring=True,
        evacuate=command.evacuate,
    )


def _failure(work: Callable[[], object]) -> ModeAwareError | None:
    try:
        work()
    except ModeAwareError as error:
        return error
    return None


CommandOf = Callable[[Situation], ResizeCommand | None]
"""The command to carry out as things stand; None: there is nothing to undo."""


def run_change(
    args: argparse.Namespace,
    topic: str,
    command_of: CommandOf,
    notes: Callable[[Situation], list[str]] = lambda situation: [],
) -> int:
    """Change one topic as the options say, with ``notes`` among the lines shown before. Returns the exit status."""
    with open_session(args, "change the topic") as session, Change(session, args.timeout_ms / 1000) as change:
        minimum = getattr(args, "min_required_replication_factor", None)  # the short forms have no such option

        def look() -> tuple[Situation, ResizeCommand, Admission] | str:
            """Return why there is nothing to do, or the command and what would follow from it."""
            situation = change.look(topic)
            command = command_of(situation)
            if command is None:
                return "nothing to undo, no partition is retired"
            if situation.writable_count == command.total_count and not in_progress(situation.record):
                return f"it has {command.total_count} writable partitions already, nothing to do"
            return situation, command, change.validate(command, situation, minimum)

        found = change.retry(look)
        if isinstance(found, str):
            print(f"{topic}: {found}.")
            return 0
        situation, command, admission = found
        changes = admission.record is not None
        if changes:
            tell(*preview(command, situation), *notes(situation))
        if admission.message:
            tell(f"{topic}: {admission.message}")
        if (status := status_without_change(dry_run=args.dry_run, yes=args.yes, asks=changes)) is not None:
            return status
        # A topic that was never shrunk is grown by the brokers alone, and then there is nothing to wait for.
        wait = args.wait and (situation.record is not None or isinstance(command, DeletePartitionsCommand))
        if wait:
            change.embed(situation.claim)
        if changes:
            print(f"{topic}: {change.carry_out(command, minimum)}.")
            if isinstance(command, DeletePartitionsCommand) and not args.wait:
                print(*_hints(args, topic), sep="\n")
        return _wait(args, change, command) if wait else 0


def _wait(args: argparse.Namespace, change: Change, command: ResizeCommand) -> int:
    topic = command.topic
    seen: list[TopicDescription] = []

    def ended(found: TopicDescription) -> bool:
        seen[:] = [found]
        return found.phase == "done"

    try:
        change.wait(topic, ended=ended)
    except KeyboardInterrupt:
        state = "continues while a controller runs"
        if change.is_embedded:
            state = f"rests until a controller runs: {command_line(args, 'modeaware', 'controller')}"
        hints = _hints(args, topic)
        tell(f"Left. The change {state}", *(hints if isinstance(command, DeletePartitionsCommand) else hints[:1]))
        return INTERRUPTED
    check_count(topic, seen, command.total_count)
    print(f"{topic}: done.")
    return 0


def check_count(topic: str, seen: Sequence[TopicDescription], wanted: int) -> None:
    """Raise a ModeAwareError where a topic has, at the last look, another number of writable partitions than it was
    changed to have: somebody has taken the change back, say, while it was waited for."""
    if seen and seen[-1].writable != wanted:
        found = f"{seen[-1].writable} partitions take writes, not {wanted}"
        raise ModeAwareError(f"{found}: its change was taken back, or another one has followed", topic=topic)


def _hints(args: argparse.Namespace, topic: str) -> list[str]:
    return [
        f"Watch it:     {command_line(args, 'modeaware', 'topics', '--describe', '--topic', topic)}",
        f"Take it back: {command_line(args, 'modeaware', 'topics', '--undo', '--topic', topic)}",
    ]


# What a change will do, in words


# KIP-694, "Kafka Topic Command changes", word for word.
GROWTH_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the messages "
    "will be affected"
)
FEATURE_WARNING = (
    "WARNING: This feature is only enabled with Metadata version above 10 and delete.topic.partition.enable turned on"
)
CHANGING_WARNING = "WARNING: The topic is currently under changes"


def preview(command: ResizeCommand, situation: Situation) -> list[str]:
    """Return KIP-694's three warnings, as far as each applies, and what the command will do to the topic."""
    if isinstance(command, CreatePartitionsCommand):
        return [GROWTH_WARNING, *changing_warning(situation), *_growth(command, situation)]
    warnings = [
        FEATURE_WARNING,
        (
            "  (On a stock Kafka the clients honour the modes: one that is not mode-aware continues to write to "
            "retired partitions, which then stay until it has stopped.)"
        ),
        *_state_warnings(command, situation),
        *changing_warning(situation),
    ]
    before, after = situation.writable_count, command.total_count
    if before == after:  # in progress already: only what is accepted changes
        return warnings
    return [
        *warnings,
        f"{command.topic}: {before} -> {after} writable partitions.",
        f"ReadOnly: {format_ranges(range(after, before))}, no new records, and consumers read them to their end.",
        f"T{reclaim_text(command)[1:]}.",
        f"{divides_text(before, after)}.",
    ]


def changing_warning(situation: Situation) -> list[str]:
    """Return KIP-694's third warning, where a change of the topic is in progress."""
    return [CHANGING_WARNING] if in_progress(situation.record) else []


def _state_warnings(command: DeletePartitionsCommand, situation: Situation) -> list[str]:
    """What stays behind in each group whose loss of state is accepted; and names that give nothing up."""
    lines = []
    for name in command.accept_state_loss:
        group = situation.facts.groups.get(name)
        if group is not None and group.stateful:
            lines.append(
                f"WARNING: group {name!r} keeps state per partition, and state does not move with the keys: what it "
                "has stored (windows, joins, aggregates, tables) for the keys that move stays in the changelogs of "
                "their old partitions. In its new partition such a key begins without"
            )
        else:
            known = "keeps no state that is known of" if group is not None else "does not use the topic now"
            lines.append(f"  (--accept-state-loss {name}: the group {known}; recorded for when it does.)")
    return lines


def _growth(command: CreatePartitionsCommand, situation: Situation) -> list[str]:
    before, after = situation.writable_count, command.total_count
    listed = len(situation.known.modes)
    lines = [f"{command.topic}: {before} -> {after} writable partitions."]
    if revived := range(before, min(after, listed)):
        lines.append(f"ReadWrite again: {format_ranges(revived)}.")
    if created := range(max(listed, situation.count), after):
        closed = ", closed to writes until every group knows them" if situation.record is not None else ""
        lines.append(f"New: {format_ranges(created)}{closed}.")
    return lines


def undo_note(situation: Situation) -> list[str]:
    """Return what an undo gives back of each revived partition's records, and what it cannot."""
    record = situation.known
    if record.deletion is None:
        return []
    revived = [p for p in record.retired if p < record.deletion.previous_count]
    logs = {p: situation.facts.partitions[p] for p in sorted(revived) if p in situation.facts.partitions}
    gone = {p: log.log_start for p, log in logs.items() if log.log_start > 0}
    kept = sum(log.end_offset - log.log_start for log in logs.values())
    lost = "None of their records were deleted."
    if gone:
        lost = (
            f"Records deleted before stay deleted: {sum(gone.values())} offsets below the log starts of partitions "
            f"{format_ranges(sorted(gone))} (by the shrink, or by the topic's retention)."
        )
    return [f"Given back: partitions {format_ranges(sorted(revived))} with the {kept} offsets they still hold.", lost]


# The commands


DELAY_HELP = (
    "delete the retired partitions' records once every group has consumed them, and no earlier than {delay} from now; "
    "without it they stay until the topic's own retention removes them"
)


def add_shrink_options(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`shrink_command` reads, but for the delay, which ``topics`` takes in KIP-694's form."""
    parser.add_argument(
        "--accept-state-loss",
        action="append",
        default=[],
        metavar="GROUP",
        help="shrink although this group keeps state per partition (Kafka Streams): the state of keys that move to "
        "another partition stays behind; may be repeated",
    )
    add_flags(
        parser,
        immediate_delete="delete the retired partitions' records at once, consumed or not",
    )


def shrink_command(topic: str, count: int, delay_ms: int | None, args: argparse.Namespace) -> DeletePartitionsCommand:
    """Return the shrink that the options ask for."""
    accepted = tuple(dict.fromkeys(args.accept_state_loss))
    return DeletePartitionsCommand(topic, count, delay_ms, args.immediate_delete, accepted)


class _Resize(Command):
    what = ""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument("--partitions", type=int, required=True, metavar="N", help=self.what)
        add_connection_options(parser)
        add_change_options(parser)


class Grow(_Resize):
    """Revives retired partitions first, then creates new ones; fewer than there are is refused."""

    what = "how many partitions take writes then"

    def run(self, args: argparse.Namespace) -> int:
        return run_change(args, args.topic, lambda _: CreatePartitionsCommand(args.topic, args.partitions))


class Shrink(_Resize):
    """Retires a topic's last partitions; more than there are is refused."""

    what = "how many partitions stay writable"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        add_delay_option(parser, DELAY_HELP.format(delay="this long"))
        add_shrink_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        return run_change(args, args.topic, lambda _: shrink_command(args.topic, args.partitions, args.delay_ms, args))
