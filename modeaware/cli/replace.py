"""``modeaware replace``: a topic by a new one of another number of partitions."""

from __future__ import annotations

import argparse
from dataclasses import replace

from modeaware.admin.new_topics import TopicReplacement, check_replacement
from modeaware.admin.successors import (
    Predecessor,
    look_at_predecessor,
    replace_command,
    validate_successor,
)
from modeaware.cli import INTERRUPTED, BadUsage, Command, key_value
from modeaware.cli.change import Change, Situation
from modeaware.cli.progress import status_without_change, tell
from modeaware.cli.session import (
    add_change_options,
    add_connection_options,
    add_flags,
    open_session,
    server_options,
    whole_number,
)
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import Admission, admit
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.replacement import FENCES, refuse_alias
from modeaware.modelog.records import Replacement
from modeaware.plan.replacement import ReplacementPlan, plan_replacement, replacement_text
from modeaware.reports.acls import read_acls
from modeaware.reports.describe import TopicDescription
from modeaware.reports.serialise import json_help, json_text

_FIRST_ONLY = ("replication_factor", "config", "delete_partitions_delay", "fence")
VALIDATION_TIMEOUT_S = 10.0


class Replace(Command):
    """``replace TOPIC --with NAME --partitions N``; repeated, it watches the replacement or lets a paused one go on."""

    epilog = f"""\
{json_help(ReplacementPlan)}
Repeat the command without --pause-before-switch to let a paused replacement go on, and with --wait to watch one.
--undo takes it back, until producers write to the new topic. Nothing is deleted but the new topic, by --undo.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument("--with", dest="successor", metavar="NAME", help="the new topic, which must not exist")
        parser.add_argument("--partitions", type=int, metavar="N", help="how many partitions it gets, fewer or more")
        parser.add_argument(
            "--replication-factor",
            type=int,
            metavar="N",
            help="its replicas (default: those of TOPIC; -1: the brokers' default)",
        )
        parser.add_argument(
            "--config",
            action="append",
            default=[],
            type=key_value,
            metavar="KEY=VALUE",
            help="a config of it, over those copied from TOPIC; may be repeated",
        )
        parser.add_argument(
            "--delete-partitions-delay",
            type=whole_number(0),
            metavar="MS",
            help="TOPIC may be deleted once every group has read it, and no earlier than this many ms from now; "
            "without it, not before its own retention has emptied it",
        )
        parser.add_argument(
            "--fence",
            choices=FENCES,
            help="config (default): brokers are made to refuse data for TOPIC before its end counts as final, by two "
            "of its configs; none: they are not",
        )
        parser.add_argument(
            "--accept-state-loss",
            action="append",
            default=[],
            metavar="GROUP",
            help="replace although this group keeps state per partition (Kafka Streams): the state of keys that move "
            "to another partition stays behind; may be repeated",
        )
        add_flags(
            parser,
            pause_before_switch="create and announce the new topic, and wait for a repetition without this option",
            undo="give the replacement up, and delete the new topic; until producers write to it",
            json="print the plan as JSON, see below; with --dry-run",
        )
        add_connection_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        if args.undo and (args.pause_before_switch or args.accept_state_loss or _given(args)):
            raise BadUsage("--undo goes with TOPIC and --with alone")
        if args.json and not args.dry_run:
            raise BadUsage("--json belongs to --dry-run")
        with open_session(args, "replace the topic") as session, Change(session, args.timeout) as change:
            situation, command, admission, plan = change.retry(lambda: _look(args, change))
            changes = admission.record is not None
            tell(*(plan if changes else ()))
            if admission.message:
                tell(f"{args.topic}: {admission.message}")
            if args.json:
                return 0
            if (status := status_without_change(dry_run=args.dry_run, yes=args.yes, asks=changes)) is not None:
                return status
            if args.wait:
                change.embed(situation.claim)
            if changes:
                change.replace(command)
                print(f"{args.topic}: {_done(command)}")
                if not args.wait:
                    print(*_hints(args), sep="\n")
            return _wait(args, change, command) if args.wait else 0


def _given(args: argparse.Namespace) -> list[str]:
    return [name for name in _FIRST_ONLY if getattr(args, name) not in (None, [])]


def _look(args: argparse.Namespace, change: Change) -> tuple[Situation, ReplaceTopicCommand, Admission, list[str]]:
    """Return the topic, the command, what a controller would make of it, and what to show before the question."""
    session = change.session
    log = session.read_log()
    situation = change.look(args.topic, log)
    current = situation.record.replacement if situation.record is not None else None
    wanted = _wanted(args, current)
    found = None if current is not None or args.undo else look_at_predecessor(session.cluster.brokers, args.topic)
    command = replace_command(args.topic, wanted, found, pause_before_switch=args.pause_before_switch, undo=args.undo)
    if current is not None and not args.undo:
        # The AdminClient copies configs anew: these outweigh them, so that the repetition asks for what there is.
        command = replace(command, configs=dict(current.configs))
    successor = session.observer().observe(wanted.successor, None)
    facts = replace(situation.facts, successor=successor)
    refuse_alias(command, facts.topic_id, log.replay.records.values())
    epoch, now_ms = situation.claim.controller_epoch if situation.claim is not None else 0, session.clock.now_ms()
    admission = admit(command, situation.record, facts, session.controller, epoch, now_ms, situation.rules)
    if found is None:
        return situation, command, admission, _changes(command, current)
    validate_successor(session.cluster.brokers, command, VALIDATION_TIMEOUT_S)
    return situation, command, admission, _plan(args, change, command, situation, found)


def _wanted(args: argparse.Namespace, current: Replacement | None) -> TopicReplacement:
    """Return what the options ask for; of a replacement in progress, what they leave out is as it is."""
    successor = args.successor if args.successor is not None or current is None else current.successor
    count = args.partitions if args.partitions is not None or current is None else current.num_partitions
    if args.undo and current is None:
        why = f"topic {args.topic!r}: it is not being replaced: there is nothing to undo"
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=args.topic)
    if successor is None or count is None:
        why = (
            f"topic {args.topic!r} is not being replaced: name its successor (--with) and its partitions (--partitions)"
        )
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=args.topic)
    wanted = TopicReplacement(
        successor,
        count,
        args.replication_factor,
        dict(args.config),
        args.delete_partitions_delay,
        args.fence or FENCES[0],
        tuple(args.accept_state_loss),
    )
    check_replacement(args.topic, wanted)
    return wanted


def _plan(
    args: argparse.Namespace, change: Change, command: ReplaceTopicCommand, situation: Situation, found: Predecessor
) -> list[str]:
    session = change.session
    acls = read_acls(session.cluster.brokers, command.topic, command.successor, session.bootstrap_server)
    names, quiet_ms = session.cluster.topic_names(), session.controller.seal_quiet_ms
    plan = plan_replacement(command, situation.facts, found, dict(args.config), quiet_ms, acls, names)
    if args.json:
        print(json_text(plan))
        return []
    return replacement_text(plan)


def _changes(command: ReplaceTopicCommand, current: Replacement | None) -> list[str]:
    """What a command about a replacement in progress changes, in lines."""
    if command.undo:
        return [f"{command.topic}: its replacement is undone. {command.successor} is deleted; it has no records."]
    lines = [f"{command.topic}: its replacement by {command.successor} is in progress."]
    if current is not None and current.pause_before_switch and not command.pause_before_switch:
        lines.append(
            "It goes on to the switch: producers write to the new topic then, and it cannot be undone any more."
        )
    return lines


def _done(command: ReplaceTopicCommand) -> str:
    if command.undo:
        return f"its replacement by {command.successor} is being undone."
    return f"being replaced by {command.successor} ({command.num_partitions} partitions)."


def _hints(args: argparse.Namespace) -> list[str]:
    servers = server_options(args)
    hints = [f"Watch it:     modeaware topics {servers} --describe --topic {args.topic}"]
    if not args.undo:
        hints.append(f"Take it back: modeaware replace {args.topic} --undo {servers} (until the switch)")
    return hints


class _Watch:
    """Notes what a replacement has come to, from its descriptions."""

    def __init__(self, undo: bool) -> None:
        self._undo = undo
        self._seen_unsealed = False
        self.last: TopicDescription | None = None
        self.pause_ms: int | None = None
        """From the switch until all partitions were sealed, where that was seen."""

    def ended(self, topic: TopicDescription) -> bool:
        self.last, now = topic, topic.replacement
        if now is None:
            return True
        if now.switched_ms is None or topic.phase == "seal":
            self._seen_unsealed = True
        elif self._seen_unsealed and self.pause_ms is None:
            self.pause_ms = now.changed_ms - now.switched_ms
        return topic.phase == "done" or (self.is_paused and not self._undo)

    @property
    def is_paused(self) -> bool:
        """Whether it waits before the switch, as requested."""
        now = self.last.replacement if self.last is not None else None
        return now is not None and now.reason == reasons.PAUSED and now.pause_before_switch


def _wait(args: argparse.Namespace, change: Change, command: ReplaceTopicCommand) -> int:
    watch = _Watch(command.undo)
    try:
        change.wait(args.topic, watch.ended)
    except KeyboardInterrupt:
        state = "continues in the controller"
        if change.is_embedded:
            state = f"rests until a controller runs: modeaware controller {server_options(args)}"
        tell(f"Left. The replacement {state}", *_hints(args))
        return INTERRUPTED
    now = watch.last.replacement if watch.last is not None else None
    if watch.is_paused and not command.undo:
        print(
            f"{args.topic}: paused before the switch; {command.successor} exists. Repeat without --pause-before-switch."
        )
        return 0
    if command.undo:
        print(f"{args.topic}: undone.")
        return 0
    if now is None:
        raise ClusterError(
            f"topic {args.topic!r}: its replacement by {command.successor!r} was given up or undone; the controller's "
            "log says why",
            topic=args.topic,
        )
    print(f"{args.topic}: replaced by {command.successor}; every group has moved. Nothing was deleted.")
    if watch.pause_ms is not None:
        print(f"Readers in key order that kept up waited {watch.pause_ms / 1000:.1f} s for the end of {args.topic}.")
    return 0
