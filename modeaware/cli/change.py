"""Changes of a topic's number of partitions: plan, confirm, carry out, wait; ``modeaware shrink`` and ``grow``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from modeaware.admin.topics_to_make import NewPartitions
from modeaware.cli import INTERRUPTED
from modeaware.cli import plan as plans
from modeaware.cli.embedded import ask_for_shrink, carry_out, embedded_controller, our_settings, tell
from modeaware.cli.options import (
    Connection,
    add_connection_options,
    add_controller_config_option,
    add_timeout_option,
    connect,
    connection,
    controller_config,
    delay_ms,
    kafka_errors,
)
from modeaware.cli.progress import confirmed
from modeaware.cli.situation import Situation, look
from modeaware.cli.waiting import wait_for_topic
from modeaware.cluster.cluster import Cluster
from modeaware.config import ControllerConfig
from modeaware.confluent._admin_base import REQUEST_TIMEOUT_S
from modeaware.confluent.admin import AdminClient
from modeaware.controller.daemon import Controller
from modeaware.errors import RequestRefused
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, TopicCommand
from modeaware.lifecycle.effects import CreatePartitions
from modeaware.modelog.records import RETENTION_DELAY_MS
from modeaware.modes import PartitionMode, format_ranges
from modeaware.retries import Deadline, Retrying, RetryPolicy

CommandOf = Callable[[Situation], TopicCommand | None]
"""The command to carry out as things stand; None: there is nothing to do."""
NotesOf = Callable[[Situation], list[str]]


@dataclass(frozen=True)
class ChangeOptions:
    """How a change is carried out: without asking, only shown, watched to its end, and by which embedded controller.

    ``min_required_replication_factor`` is KIP-409's, for partitions that are created. ``command_config`` is the file of
    client settings, for the commands that are proposed. ``timeout_s``: how long what did nothing is retried.
    """

    yes: bool
    dry_run: bool
    wait: bool
    controller_config: ControllerConfig
    min_required_replication_factor: int | None = None
    command_config: Path | None = None
    timeout_s: float = REQUEST_TIMEOUT_S


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """``--yes``, ``--dry-run``, ``--wait`` and what the controller of ``--wait`` is configured with."""
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="check, and show what would be done; change nothing")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="show the progress until all is done (Ctrl-C leaves it without harm); does the controller's work where "
        "none runs",
    )
    add_timeout_option(parser)
    add_controller_config_option(parser, "--controller-config", " (for --wait where no controller runs)")


def add_shrink_options(parser: argparse.ArgumentParser) -> None:
    """When the records of retired partitions go."""
    parser.add_argument(
        "--delete-partitions-delay",
        type=delay_ms,
        metavar="MS",
        help="delete the retired partitions' records once every group has consumed them, and no earlier than this many "
        "ms from now; without it they stay until the topic's own retention removes them",
    )
    parser.add_argument(
        "--immediate-delete",
        action="store_true",
        help="delete the retired partitions' records at once, consumed or not",
    )
    parser.add_argument(
        "--accept-state-loss",
        action="append",
        default=[],
        metavar="GROUP",
        help="shrink although this group keeps state per partition (Kafka Streams): the state of keys that move to "
        "another partition stays behind; may be repeated",
    )
    parser.add_argument(
        "--evacuate",
        action="store_true",
        help="shrink a compacted topic: no retired partition goes before the Spark job modeaware.spark.evacuate has "
        "copied the latest values of its keys to the partitions that stay",
    )


def no_notes(situation: Situation) -> list[str]:
    """Nothing to tell beside the plan."""
    return []


def shrink_command(topic: str, count: int, args: argparse.Namespace) -> DeletePartitionsCommand:
    """The shrink that the options of :func:`add_shrink_options` ask for."""
    delay = args.delete_partitions_delay
    return DeletePartitionsCommand(
        topic,
        count,
        RETENTION_DELAY_MS if delay is None else delay,
        args.immediate_delete,
        tuple(dict.fromkeys(args.accept_state_loss)),
        args.evacuate,
    )


def run_change(args: argparse.Namespace, topic: str, command_of: CommandOf, notes: NotesOf = no_notes) -> int:
    """Carry out a change as the options say. Returns the exit status.

    Args:
        notes: further lines to tell before it.

    Raises:
        ModeAwareError: it was refused, or could not be carried out.
    """
    target = connection(args, defaults={"log_level": 0})  # one line of ours says what librdkafka would in many
    minimum = getattr(args, "min_required_replication_factor", None)  # the short forms have no such option
    config = controller_config(args, target.config)
    options = ChangeOptions(args.yes, args.dry_run, args.wait, config, minimum, args.command_config, args.timeout)
    with kafka_errors("change the topic"):
        return _Change(target, topic, options).run(command_of, notes)


class _Change:
    """One change of one topic."""

    def __init__(self, target: Connection, topic: str, options: ChangeOptions) -> None:
        self._target = target
        self._topic = topic
        self._options = options

    def run(self, command_of: CommandOf, notes: NotesOf) -> int:
        cluster = connect(self._target)
        seen: list[Situation] = []  # the last one
        policy = RetryPolicy.from_conf(self._target.conf)
        try:
            found = Retrying(Deadline(self._options.timeout_s), policy).call(
                lambda: self._look(cluster, command_of, seen), repeatable=True
            )
        except RequestRefused:
            if seen:
                tell(*plans.changing_warning(seen[-1]))
            raise
        if found is None:
            print(f"{self._topic}: nothing to undo, no partition is retired.")
            return 0
        situation, command, note, changes = found
        if changes:
            tell(*plans.warnings(command, situation), *plans.plan(command, situation), *notes(situation))
        if note:
            tell(f"{self._topic}: {note}")
        if self._options.dry_run:
            print("Dry run: nothing was changed.")
            return 0
        if changes and not confirmed(yes=self._options.yes):
            print("Nothing was changed.")
            return 1
        # A topic that was never shrunk is grown by the brokers alone, and then there is nothing to wait for.
        kept_by_controller = situation.record is not None or isinstance(command, DeletePartitionsCommand)
        wait = self._options.wait and kept_by_controller
        config = self._options.controller_config
        with embedded_controller(self._target, config, situation.claim) if wait else nullcontext() as embedded:
            if changes:
                self._carry_out(command, embedded)
            return self._wait(embedded) if wait else 0

    def _look(
        self, cluster: Cluster, command_of: CommandOf, seen: list[Situation]
    ) -> tuple[Situation, TopicCommand, str | None, bool] | None:
        """The topic, the command, and :meth:`_preview` of it; None: there is nothing to do. Changes nothing.

        Raises:
            ModeAwareError: as of :func:`look` and :meth:`_preview`.
        """
        seen[:] = [look(self._target, cluster, self._topic)]
        command = command_of(seen[0])
        return None if command is None else (seen[0], command, *self._preview(command, seen[0], cluster))

    def _preview(self, command: TopicCommand, situation: Situation, cluster: Cluster) -> tuple[str | None, bool]:
        """What a controller would say of the command, and whether it would change anything.

        Raises:
            RequestRefused: it would refuse.
        """
        admission = situation.admission(command, self._options.controller_config)
        if isinstance(command, CreatePartitionsCommand) and command.total_count > situation.count:
            if situation.record is None:
                self._grow(command, validate_only=True)
            else:
                assert situation.facts.topic_id is not None
                growth = CreatePartitions(
                    command.topic, situation.facts.topic_id, command.total_count, command.assignments
                )
                cluster.create_partitions(growth, validate_only=True)
        return admission.message, admission.record is not None

    def _carry_out(self, command: TopicCommand, embedded: Controller | None) -> None:
        direct = embedded is not None and self._options.min_required_replication_factor is None
        modes = (
            carry_out(embedded, command, self._options.timeout_s).modes
            if embedded is not None and direct
            else self._ask_for(command)
        )
        if isinstance(command, DeletePartitionsCommand):
            read_only = [p for p, mode in enumerate(modes) if mode is PartitionMode.READ_ONLY]
            print(f"{command.topic}: ReadOnly now: {format_ranges(read_only)}.")
            if not self._options.wait:
                print(f"Watch it:     {self._hint('--describe')}\nTake it back: {self._hint('--undo')}")
        else:
            print(f"{command.topic}: grown to {command.total_count} writable partitions.")

    def _ask_for(self, command: TopicCommand) -> Sequence[PartitionMode | None]:
        """Have it carried out by the controller that runs. Returns the modes, as far as they were told."""
        if isinstance(command, CreatePartitionsCommand):
            self._grow(command, validate_only=False)
            return ()
        with self._admin() as admin:
            retired = ask_for_shrink(admin, command, self._options.timeout_s)
            return [retired.get(p) for p in range(max(retired, default=-1) + 1)]

    def _grow(self, command: CreatePartitionsCommand, *, validate_only: bool) -> None:
        replicas = {} if command.assignments is None else {"replica_assignment": [*map(list, command.assignments)]}
        minimum = self._options.min_required_replication_factor
        new = NewPartitions(command.topic, command.total_count, **replicas, min_required_replication_factor=minimum)
        timeout_s = self._options.timeout_s
        with self._admin() as admin:
            growth = admin.create_partitions(
                {command.topic: new}, validate_only=validate_only, request_timeout=timeout_s
            )
            result = growth[command.topic].result()
        if result.under_replicated:
            (tell if validate_only else print)(result.describe())

    def _admin(self) -> AdminClient:
        return AdminClient({**self._target.conf, **our_settings(self._target)})

    def _wait(self, embedded: Controller | None) -> int:
        try:
            wait_for_topic(self._target, self._topic, lambda: embedded.failure if embedded else None, sys.stderr)
        except KeyboardInterrupt:
            goes_on = (
                "goes on in the controller"
                if embedded is None
                else f"rests until a controller runs: modeaware controller {self._connection_options()}"
            )
            tell(
                f"Left. The change {goes_on}",
                f"Watch it:     {self._hint('--describe')}",
                f"Take it back: {self._hint('--undo')}",
            )
            return INTERRUPTED
        print(f"{self._topic}: done.")
        return 0

    def _hint(self, action: str) -> str:
        return f"modeaware topics {self._connection_options()} {action} --topic {self._topic}"

    def _connection_options(self) -> str:
        options = f"--bootstrap-server {self._target.bootstrap_server}"
        file = self._options.command_config
        return options if file is None else f"{options} --command-config {shlex.quote(str(file))}"


class Grow:
    """Revives retired partitions first, then creates new ones; fewer than there are is refused."""

    name = "grow"
    help = "revive retired partitions, then create new ones"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument("--to", type=int, required=True, metavar="N", help="how many partitions take writes then")
        add_connection_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        command = CreatePartitionsCommand(args.topic, args.to)
        return run_change(args, args.topic, lambda _: command)


class Shrink:
    """Retires a topic's last partitions; more than there are is refused."""

    name = "shrink"
    help = "retire a topic's last partitions"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument("--to", type=int, required=True, metavar="N", help="how many partitions stay writable")
        add_connection_options(parser)
        add_shrink_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        command = shrink_command(args.topic, args.to, args)
        return run_change(args, args.topic, lambda _: command)
