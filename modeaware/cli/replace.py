"""``modeaware replace``: a topic by a new one of another number of partitions."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from modeaware.admin.acls import access_refusal, read_acls
from modeaware.admin.new_topics import TopicReplacement, check_replacement
from modeaware.admin.successors import (
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
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import Admission, admit
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.intent import FENCES, refuse_alias
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.plan.replacement import ReplacementPlan, acls_text, plan_replacement, replacement_text
from modeaware.reports.describe import TopicDescription
from modeaware.reports.serialise import json_help, json_text

_FIRST_ONLY = ("replication_factor", "config", "delete_partitions_delay", "fence")
VALIDATION_TIMEOUT_S = 10.0


class Replace(Command):
    """``replace TOPIC=NAME ... --partitions N``; repeated, it watches the replacement or lets a paused one go on."""

    epilog = f"""\
Several topics: modeaware replace orders=orders-v2 payments=payments-v2 --partitions 4. One that is refused does not
keep the others; the exit status is 1 then.

{json_help(ReplacementPlan, "--json prints one object a topic:")}
Repeat the command without --pause-before-switch to let a paused replacement go on, and with --wait to watch one.
--undo takes it back, until producers write to the new topic. Nothing is deleted but the new topic, by --undo.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "topics",
            metavar="TOPIC[=NAME]",
            nargs="+",
            help="a topic to replace, and the new topic, which must not exist; several share the options",
        )
        parser.add_argument("--with", dest="successor", metavar="NAME", help="the new topic, where one TOPIC is named")
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
            accept_access_loss="go on to the switch although the new topic lacks ACLs of TOPIC",
            pause_before_switch="create and announce the new topic, and wait for a repetition without this option",
            undo="give the replacement up, and delete the new topic; until producers write to it",
            json="print the plan as JSON, see below; with --dry-run",
        )
        add_connection_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        successors = _successors(args)
        if args.undo and (args.pause_before_switch or args.accept_state_loss or _given(args)):
            raise BadUsage("--undo goes with topics and the names of their successors alone")
        if args.json and not args.dry_run:
            raise BadUsage("--json belongs to --dry-run")
        with open_session(args, "replace the topic") as session, Change(session, args.timeout) as change:
            looks = _shown(args, _look_at_all(args, successors, change), alone=len(successors) == 1)
            refused = len(looks) < len(successors)
            if args.json:
                return int(refused)
            changing = [each.command for each in looks if each.changes]
            if (status := status_without_change(dry_run=args.dry_run, yes=args.yes, asks=bool(changing))) is not None:
                return status or int(refused)
            if args.wait and looks:
                change.embed(looks[-1].situation.claim)
            failures = _replace(args, change, changing)
            waited = [each.command for each in looks if each.command.topic not in failures]
            status = _wait(args, change, waited) if args.wait and waited else 0
            return status or int(refused or bool(failures))


def _successors(args: argparse.Namespace) -> dict[str, str | None]:
    """Return topic -> its successor, or None where none is named."""
    found: dict[str, str | None] = {}
    for each in args.topics:
        topic, separator, successor = each.partition("=")
        if topic in found:
            raise BadUsage(f"{topic} is named twice")
        found[topic] = successor if separator else None
    if args.successor is not None:
        if len(found) > 1 or None not in found.values():
            raise BadUsage("--with goes with one TOPIC: name the successors of several as TOPIC=NAME")
        found = dict.fromkeys(found, args.successor)
    return found


def _given(args: argparse.Namespace) -> list[str]:
    return [name for name in _FIRST_ONLY if getattr(args, name) not in (None, [])]


@dataclass(frozen=True)
class _Look:
    """One topic as it is, the command about it, what a controller would make of that, and what is shown before."""

    situation: Situation
    command: ReplaceTopicCommand
    admission: Admission
    shown: ReplacementPlan | list[str]
    refusal: RequestRefused | None = None
    """Of what a controller would admit, for a reason that is shown."""

    @property
    def changes(self) -> bool:
        return self.admission.record is not None

    def show(self, *, as_json: bool) -> None:
        if isinstance(self.shown, ReplacementPlan) and as_json:
            print(json_text(self.shown))
        elif self.changes:
            tell(*(replacement_text(self.shown) if isinstance(self.shown, ReplacementPlan) else self.shown))
        if self.admission.message:
            tell(f"{self.command.topic}: {self.admission.message}")


def _look_at_all(args: argparse.Namespace, successors: Mapping[str, str | None], change: Change) -> list[_Look]:
    """Look at all topics; of several, one that is refused is told, and does not keep the others."""
    looks: list[_Look] = []
    for topic, successor in successors.items():
        attempt = partial(_look, args, change, topic, successor, [each.admission.record for each in looks])
        try:
            looks.append(change.retry(attempt))
        except RequestRefused as error:
            if len(successors) == 1:
                raise
            tell(f"error: {error}")
    return looks


def _shown(args: argparse.Namespace, looks: Sequence[_Look], *, alone: bool) -> list[_Look]:
    """Show what was found of each topic. Returns those that are not refused for it."""
    for each in looks:
        each.show(as_json=args.json)
        if each.refusal is not None and alone:
            raise each.refusal
        if each.refusal is not None:
            tell(f"error: {each.refusal}")
    return [each for each in looks if each.refusal is None]


def _look(
    args: argparse.Namespace,
    change: Change,
    topic: str,
    successor_name: str | None,
    begun: Iterable[TopicRecord | None],
) -> _Look:
    """``begun``: the records that the commands before this one make, as the controller takes them in their order."""
    session = change.session
    log = session.read_log()
    situation = change.look(topic, log)
    current = situation.record.replacement if situation.record is not None else None
    wanted = _wanted(args, topic, successor_name, current)
    found = None if current is not None or args.undo else look_at_predecessor(session.cluster.brokers, topic)
    command = replace_command(topic, wanted, found, pause_before_switch=args.pause_before_switch, undo=args.undo)
    others = [record for record in (*log.replay.records.values(), *begun) if record is not None]
    admission = admitted(change, command, situation, others)
    brokers, acls, refusal = session.cluster.brokers, None, None
    if not args.undo and (current is None or current.switched_ms is None):
        acls = read_acls(brokers, topic, wanted.successor, session.bootstrap_server)
        if admission.record is not None and not args.accept_access_loss:
            refusal = access_refusal(command, acls)
    if found is None:
        return _Look(situation, command, admission, [*_changes(command, current), *acls_text(command, acls)], refusal)
    validate_successor(brokers, command, VALIDATION_TIMEOUT_S)
    names, quiet_ms = session.cluster.topic_names(), session.controller.seal_quiet_ms
    plan = plan_replacement(command, situation.facts, found, dict(args.config), quiet_ms, acls, names)
    return _Look(situation, command, admission, plan, refusal)


def admitted(
    change: Change, command: ReplaceTopicCommand, situation: Situation, records: Iterable[TopicRecord]
) -> Admission:
    """Return what a controller would make of the command; ``records``: of all topics.

    Raises:
        RequestRefused: the controller would refuse.
    """
    session, record = change.session, situation.record
    facts = replace(situation.facts, successor=session.observer().observe(command.successor, None))
    refuse_alias(command, facts.topic_id, records)
    epoch, now_ms = situation.claim.controller_epoch if situation.claim is not None else 0, session.clock.now_ms()
    return admit(command, record, facts, session.controller, epoch, now_ms, situation.rules)


def _wanted(
    args: argparse.Namespace, topic: str, successor: str | None, current: Replacement | None
) -> TopicReplacement:
    """Return what the options ask for; of a replacement in progress, what they leave out is as it is."""
    count, fence = args.partitions, args.fence
    if current is not None:
        successor, count, fence = (
            successor or current.successor,
            count or current.num_partitions,
            fence or current.fence,
        )
    if args.undo and current is None:
        why = f"topic {topic!r}: it is not being replaced: there is nothing to undo"
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=topic)
    if successor is None or count is None:
        why = f"topic {topic!r} is not being replaced: name its successor (--with) and its partitions (--partitions)"
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=topic)
    wanted = TopicReplacement(
        successor,
        count,
        args.replication_factor,
        dict(args.config),
        args.delete_partitions_delay,
        fence or FENCES[0],
        tuple(args.accept_state_loss),
    )
    check_replacement(topic, wanted)
    return wanted


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


def _replace(args: argparse.Namespace, change: Change, commands: list[ReplaceTopicCommand]) -> set[str]:
    """Have the topics replaced, and print what came of each. Returns those that failed."""
    failures = {topic: error for topic, error in change.replace(commands).items() if error is not None}
    if len(commands) == 1 and failures:
        raise next(iter(failures.values()))
    done = [command for command in commands if command.topic not in failures]
    for command in done:
        state = f"being replaced by {command.successor} ({command.num_partitions} partitions)."
        if command.undo:
            state = f"its replacement by {command.successor} is being undone."
        print(f"{command.topic}: {state}")
    for error in failures.values():
        tell(f"error: {error}")
    if done and not args.wait:
        print(*_hints(args, done), sep="\n")
    return set(failures)


def _hints(args: argparse.Namespace, commands: Sequence[ReplaceTopicCommand]) -> list[str]:
    servers, topics = server_options(args), [command.topic for command in commands]
    hints = [f"Watch it:     modeaware topics {servers} --describe --topic {topic}" for topic in topics]
    if not args.undo:
        hints.append(f"Take it back: modeaware replace {' '.join(topics)} --undo {servers} (until the switch)")
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


def _wait(args: argparse.Namespace, change: Change, commands: Sequence[ReplaceTopicCommand]) -> int:
    watches = {command.topic: _Watch(command.undo) for command in commands}
    try:
        change.wait(*watches, ended=lambda topic: watches[topic.topic].ended(topic))
    except KeyboardInterrupt:
        state = "continues in the controller"
        if change.is_embedded:
            state = f"rests until a controller runs: modeaware controller {server_options(args)}"
        tell(f"Left. The replacement {state}", *_hints(args, commands))
        return INTERRUPTED
    given_up = [command for command in commands if not _print_end(command, watches[command.topic])]
    for command in given_up:
        tell(
            f"error: topic {command.topic!r}: its replacement by {command.successor!r} was given up or undone; the "
            "controller's log says why"
        )
    return int(bool(given_up))


def _print_end(command: ReplaceTopicCommand, watch: _Watch) -> bool:
    """Print what a replacement has come to; False: it is no more."""
    topic, successor = command.topic, command.successor
    if command.undo:
        print(f"{topic}: undone.")
    elif watch.is_paused:
        print(f"{topic}: paused before the switch; {successor} exists. Repeat without --pause-before-switch.")
    elif watch.last is None or watch.last.replacement is None:
        return False
    else:
        print(f"{topic}: replaced by {successor}; every group has moved. Nothing was deleted.")
        if watch.pause_ms is not None:
            print(f"Readers in key order that kept up waited {watch.pause_ms / 1000:.1f} s for the end of {topic}.")
    return True
