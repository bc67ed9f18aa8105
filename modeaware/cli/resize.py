"""Changes of one topic's number of writable partitions: ``shrink``, ``grow``, ``topics --alter``, ``topics --undo``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from modeaware.cli import Command
from modeaware.cli.change import Request, Seen, Situation
from modeaware.cli.session import (
    add_change_options,
    add_connection_options,
    add_delay_option,
    add_flags,
    add_state_loss_option,
)
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, ResizeCommand
from modeaware.modes import format_ranges
from modeaware.plan.diff import UNCHANGED, TopicDiff, resize
from modeaware.plan.steps import Grow as GrowStep

CommandOf = Callable[[Situation], ResizeCommand | None]
"""Returns the command to carry out in the present situation; None if there is nothing to undo."""


class Resize(Request):
    """A change of a topic's number of writable partitions; ``notes`` returns lines to show before the question."""

    def __init__(
        self,
        args: argparse.Namespace,
        topic: str,
        command_of: CommandOf,
        notes: Callable[[Situation], Sequence[str]] = lambda situation: (),
    ) -> None:
        super().__init__(args, [topic])
        self._command_of, self._notes = command_of, notes
        self._warnings: list[str] = []

    def judge(self, topic: str, seen: Seen) -> TopicDiff:
        situation = seen.situation(topic)
        command = self._command_of(situation)
        if command is None:
            return TopicDiff(topic, notes=("nothing to undo: no partition is retired",))
        count, under_way = situation.writable_count, situation.current.in_progress
        if count == command.total_count and not under_way:
            return TopicDiff(topic, notes=(f"already has {count} writable partitions, nothing to do",))
        admission = self.admit(command, seen)
        diff = resize(command, situation.current)
        messages = () if admission.message is None else (admission.message,)
        if admission.record is None:
            return replace(diff, steps=(), warnings=(), notes=messages, begun=diff.steps)
        (step,) = diff.steps
        if isinstance(step, GrowStep):  # only topics --alter has --min-required-replication-factor
            step = replace(step, minimum=getattr(self.args, "min_required_replication_factor", None))
        self.change.validate(topic, step, situation.facts.topic_id)
        self._warnings = warnings(command, situation)
        return replace(diff, steps=(step,), notes=(*diff.notes, *self._notes(situation), *messages))

    def shown(self, diff: TopicDiff) -> Iterable[str]:
        return () if diff.status == UNCHANGED else (*self._warnings, *super().shown(diff))


# The warnings before a change


# GROWTH_WARNING and CHANGING_WARNING quote KIP-694 ("Kafka Topic Command changes"). The KIP's second warning is
# omitted: it is about brokers that implement modes ("only enabled with Metadata version above 10"). No broker does.
GROWTH_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the messages "
    "will be affected"
)
SHRINK_WARNING = (
    "WARNING: Brokers do not enforce modes: producers without modeaware continue to write to retired partitions. "
    "Retired partitions stay in the cluster's metadata"
)
CHANGING_WARNING = "WARNING: The topic is currently under changes"


def warnings(command: ResizeCommand, situation: Situation) -> list[str]:
    """Return the warnings that apply to the command."""
    first = GROWTH_WARNING if isinstance(command, CreatePartitionsCommand) else SHRINK_WARNING
    return [first, CHANGING_WARNING] if situation.current.in_progress else [first]


def undo_note(situation: Situation) -> list[str]:
    """Return lines about the partitions and records that an undo gives back, and about records that stay deleted."""
    record = situation.current.known
    if record.deletion is None:
        return []
    revived = [p for p in record.retired if p < record.deletion.previous_count]
    logs = {p: situation.facts.partitions[p] for p in sorted(revived) if p in situation.facts.partitions}
    gone = {p: log.log_start for p, log in logs.items() if log.log_start > 0}
    kept = sum(log.end_offset - log.log_start for log in logs.values())
    lost = "None of their records were deleted."
    if gone:
        lost = (
            f"Records that were already deleted stay deleted: {sum(gone.values())} offsets below the log starts of "
            f"partitions {format_ranges(sorted(gone))} (by the shrink, or by the topic's retention)."
        )
    return [f"Given back: partitions {format_ranges(sorted(revived))} with the {kept} offsets they still hold.", lost]


# The commands


DELAY_HELP = (
    "delete the retired partitions' records once every group has consumed them, and no earlier than {delay} from now; "
    "without this option the records stay until the topic's own retention removes them"
)


def add_shrink_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`shrink_command`, except the delay: ``modeaware topics`` has its own option for it, in
    KIP-694's form."""
    add_state_loss_option(parser, "shrink")
    add_flags(parser, immediate_delete="delete the retired partitions' records at once, consumed or not")


def shrink_command(topic: str, count: int, delay_ms: int | None, args: argparse.Namespace) -> DeletePartitionsCommand:
    """Return the shrink that the options request."""
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
    """Revives retired partitions, then creates new ones; a lower number is refused."""

    what = "the number of writable partitions afterwards"

    def run(self, args: argparse.Namespace) -> int:
        command = CreatePartitionsCommand(args.topic, args.partitions)
        return Resize(args, args.topic, lambda _: command).run()


class Shrink(_Resize):
    """Retires a topic's last partitions; a higher number is refused."""

    what = "the number of partitions that stay writable"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        add_delay_option(parser, DELAY_HELP.format(delay="this long"))
        add_shrink_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        return Resize(
            args, args.topic, lambda _: shrink_command(args.topic, args.partitions, args.delay_ms, args)
        ).run()
