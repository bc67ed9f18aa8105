"""``modeaware replace``: a topic by a new one of another number of partitions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from modeaware.admin.acls import ClusterAcls, compare_acls, read_acls
from modeaware.admin.new_topics import TopicReplacement, check_replacement
from modeaware.admin.successors import (
    check_consequences,
    look_at_predecessors,
    replace_command,
    validate_successor,
)
from modeaware.cli import INTERRUPTED, BadUsage, Command, key_value
from modeaware.cli.change import Change, Situation, situation_of
from modeaware.cli.progress import status_without_change, tell
from modeaware.cli.session import (
    add_change_options,
    add_connection_options,
    add_delay_option,
    add_flags,
    command_line,
    open_session,
)
from modeaware.cluster.observer import Look
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.lifecycle.admission import Admission
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.drain import required_of
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.objections import FENCES
from modeaware.lifecycle.report import ReplacementReport
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.plan.replacement import ReplacementPlan, acls_text, plan_replacement, replacement_text
from modeaware.reports.describe import TopicDescription
from modeaware.reports.serialise import json_help, json_text
from modeaware.reports.session import ModeLog

_FIRST_ONLY = ("partitions", "replication_factor", "config", "delay_ms", "fence")
VALIDATION_TIMEOUT_S = 10.0


ACCEPTING = {
    "accept_access_loss": "switch although users gain or lose access: the ACLs of the new topic differ",
    "accept_mirroring": "switch although MirrorMaker 2 is in use: it does not copy the configs of the fence",
}
"""Flags: what may follow from a switch and refuses it, unless it is accepted."""


class Replace(Command):
    """``replace TOPIC=NAME ... --partitions N``; repeated, it watches the replacement or continues a paused one."""

    epilog = f"""\
Several topics: modeaware replace orders=orders-v2 payments=payments-v2 --partitions 4. If one is refused, the others
proceed and the exit status is 1.

{json_help(ReplacementPlan, "--json prints one object a topic:")}
Repeat the command without --pause-before-switch to continue a paused replacement, and with --wait to watch one.
--undo takes it back, until producers write to the new topic, and deletes that. TOPIC itself is deleted once every
group has read it and none is subscribed to it any more, and once the delay has passed or its retention has emptied it.
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
        add_delay_option(
            parser,
            "delete TOPIC once every group has read it, and no earlier than this long from now; without it, not "
            "before its own retention has emptied it",
        )
        parser.add_argument(
            "--fence",
            choices=FENCES,
            help="config (default): brokers are made to refuse data for TOPIC before its end counts as final, by two "
            "of its configs; none: they are not, and TOPIC is never deleted",
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
            evacuate="replace a compacted topic: TOPIC stays until the Spark job modeaware.spark.evacuate has copied "
            "the latest values of its keys to the new one",
            **ACCEPTING,
            pause_before_switch="create and announce the new topic, and wait for a repetition without this option",
            undo="give the replacement up, and delete the new topic; until producers write to it",
            json="print the plan as JSON, see below; with --dry-run",
        )
        add_connection_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        successors = _successors(args)
        if args.undo and (args.pause_before_switch or args.accept_state_loss or args.evacuate or _given(args)):
            raise BadUsage("--undo goes with topics and the names of their successors alone")
        if args.json and not args.dry_run:
            raise BadUsage("--json belongs to --dry-run")
        with open_session(args, "replace the topic") as session, Change(session, args.timeout_ms / 1000) as change:
            looks = _look_at_all(args, successors, change)
            refused = len(looks) < len(successors)
            if args.json or not looks:
                return int(refused)
            changing = [each.command for each in looks if each.changes]
            if (status := status_without_change(dry_run=args.dry_run, yes=args.yes, asks=bool(changing))) is not None:
                return status or int(refused)
            if args.wait:
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
        if not topic or args.successor == "" or (separator and not successor):
            raise BadUsage("the name of a topic is empty")
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


@dataclass(frozen=True)
class _Seen:
    """What one look at the cluster shows of all topics and their successors; ``acls`` and ``names`` read once."""

    log: ModeLog
    facts: Mapping[str, TopicFacts | ClusterError]
    acls: Callable[[], ClusterAcls | None]
    names: Callable[[], Collection[str]]


def _look_at_all(args: argparse.Namespace, successors: Mapping[str, str | None], change: Change) -> list[_Look]:
    """Look at all topics, and show what was found. Returns those that are not refused."""
    looks: dict[str, _Look] = {}

    def attempt(topics: Sequence[str]) -> dict[str, _Look | ModeAwareError]:
        try:
            seen = _see(change, {topic: successors[topic] for topic in topics})
        except ModeAwareError as error:
            return dict.fromkeys(topics, error)
        answers: dict[str, _Look | ModeAwareError] = {}
        for topic in topics:
            begun = [each.admission.record for each in looks.values()]
            try:
                answers[topic] = looks[topic] = _look(args, change, seen, topic, successors[topic], begun)
            except ModeAwareError as error:
                answers[topic] = error
        return answers

    errors = [
        each for each in change.retry_each(list(successors), attempt).values() if isinstance(each, ModeAwareError)
    ]
    for look in looks.values():
        look.show(as_json=args.json)
    errors += [look.refusal for look in looks.values() if look.refusal is not None]
    tell(*dict.fromkeys(f"error: {error}" for error in errors))
    return [look for look in looks.values() if look.refusal is None]


def _see(change: Change, successors: Mapping[str, str | None]) -> _Seen:
    session = change.session
    log = session.read_log()
    known = [record.replacement for topic in successors for record in log.replay.records_of(topic)]
    names = {*successors, *filter(None, successors.values()), *(now.successor for now in known if now is not None)}
    facts = session.observer().observe_all([Look(name, None) for name in names], log.rules)
    acls = cache(partial(read_acls, session.cluster.brokers))
    return _Seen(log, dict(zip(names, facts, strict=True)), acls, session.cluster.topic_names)


def _look(
    args: argparse.Namespace,
    change: Change,
    seen: _Seen,
    topic: str,
    successor_name: str | None,
    begun: Iterable[TopicRecord | None],
) -> _Look:
    """``begun``: the records that the commands before this one make, as the controller takes them in their order."""
    session, brokers = change.session, change.session.cluster.brokers
    situation = situation_of(session, topic, seen.log, seen.facts[topic])
    situation = replace(situation, replaced=[*situation.replaced, *filter(None, begun)])
    current = situation.record.replacement if situation.record is not None else None
    wanted = _wanted(args, topic, successor_name, current)
    found = None if current is not None or args.undo else look_at_predecessors(brokers, [topic])[topic]
    if isinstance(found, ModeAwareError):
        raise found
    command = replace_command(topic, wanted, found, pause_before_switch=args.pause_before_switch, undo=args.undo)
    successor = seen.facts[wanted.successor]
    if isinstance(successor, ClusterError):
        raise successor
    admission = change.admission(command, situation.with_successor(successor))
    acls, refusal, servers = None, None, session.bootstrap_server
    if not args.undo and (current is None or current.switched_ms is None):
        acls = compare_acls(seen.acls(), topic, wanted.successor, servers)
        try:
            if admission.record is not None:
                check_consequences(command, wanted, seen.acls, seen.names, servers)
        except RequestRefused as error:
            refusal = error
    if found is None:
        lines = [*_changes(command, current, successor), *acls_text(command, acls)]
        return _Look(situation, command, admission, lines, refusal)
    validate_successor(brokers, command, VALIDATION_TIMEOUT_S)
    quiet_ms, ignored = session.controller.seal_quiet_ms, session.controller.ignored_groups
    facts, now_ms = situation.facts, session.clock.now_ms()
    requirement = required_of((), facts, situation.rules, ignored, now_ms)
    plan = plan_replacement(command, facts, found, dict(args.config), quiet_ms, acls, seen.names(), requirement)
    return _Look(situation, command, admission, plan, refusal)


def _wanted(
    args: argparse.Namespace, topic: str, successor: str | None, current: Replacement | None
) -> TopicReplacement:
    """Return what the options ask for; of a replacement in progress, what they leave out is as it is."""
    count, fence = args.partitions, args.fence
    if current is not None:
        successor = current.successor if successor is None else successor
        count = current.num_partitions if count is None else count
        fence = fence or current.fence
    if args.undo and current is None:
        why = f"topic {topic!r}: it is not being replaced; nothing to undo"
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=topic)
    if successor is None or count is None:
        why = f"topic {topic!r} is not being replaced: name its successor (--with) and its partitions (--partitions)"
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=topic)
    wanted = TopicReplacement(
        successor,
        count,
        args.replication_factor,
        dict(args.config),
        args.delay_ms,
        fence or FENCES[0],
        tuple(args.accept_state_loss),
        args.accept_access_loss,
        args.accept_mirroring,
        args.evacuate,
    )
    check_replacement(topic, wanted)
    return wanted


def _changes(command: ReplaceTopicCommand, current: Replacement | None, successor: TopicFacts) -> list[str]:
    """Return what a command about a replacement in progress changes, in lines."""
    if command.undo:
        fate = "stays: it has records" if successor.untouched is False else "is deleted, unless it has records by then"
        return [f"{command.topic}: its replacement is undone. {command.successor} {fate}."]
    lines = [f"{command.topic}: its replacement by {command.successor} is in progress."]
    if current is not None and current.pause_before_switch and not command.pause_before_switch:
        lines.append(
            "It continues to the switch: producers write to the new topic then, and it cannot be undone any more."
        )
    return lines


def _replace(args: argparse.Namespace, change: Change, commands: list[ReplaceTopicCommand]) -> set[str]:
    """Have the topics replaced, and print what came of each. Returns those that failed."""
    failures = {topic: error for topic, error in change.replace(commands).items() if error is not None}
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


def _hints(
    args: argparse.Namespace, commands: Sequence[ReplaceTopicCommand], switched: Collection[str] = ()
) -> list[str]:
    topics = [command.topic for command in commands]
    hints = [
        f"Watch it:     {command_line(args, 'modeaware', 'topics', '--describe', '--topic', topic)}" for topic in topics
    ]
    left = [topic for topic in topics if topic not in switched]
    if left and not args.undo:
        hints.append(f"Take it back: {command_line(args, 'modeaware', 'replace', *left, '--undo')} (until the switch)")
    return hints


class _Watch:
    """Notes what a replacement has come to, from its descriptions."""

    def __init__(self, undo: bool) -> None:
        self._undo = undo
        self._seen_unsealed = False
        self.count = 0
        """Of its partitions, while it was there."""
        self.last: TopicDescription | None = None
        self.pause_ms: int | None = None
        """From the switch until all partitions were sealed, where that was seen."""

    def ended(self, topic: TopicDescription) -> bool:
        self.last, now = topic, topic.replacement
        self.count = len(topic.partitions) or self.count
        if now is None:
            return True
        if now.switched_ms is None or topic.phase == "seal":
            self._seen_unsealed = True
        elif self._seen_unsealed and self.pause_ms is None:
            self.pause_ms = now.changed_ms - now.switched_ms
        return topic.is_settled and not (topic.is_paused and self._undo)

    @property
    def is_switched(self) -> bool:
        now = self.last.replacement if self.last is not None else None
        return now is not None and now.switched_ms is not None


def _wait(args: argparse.Namespace, change: Change, commands: Sequence[ReplaceTopicCommand]) -> int:
    """Wait for the end of each, and print it at once. Returns the exit status."""
    left, watches = {c.topic: c for c in commands}, {c.topic: _Watch(c.undo) for c in commands}
    failed = False

    def ended(topic: TopicDescription) -> bool:
        nonlocal failed
        if not watches[topic.topic].ended(topic):
            return False
        lines = _outcome(change, left[topic.topic], watches[topic.topic])
        if lines:
            print(*lines, sep="\n")
        else:
            failed = True
            tell(
                f"error: topic {topic.topic!r}: its replacement by {left[topic.topic].successor!r} was given up or "
                "undone; the controller's log says why"
            )
        del left[topic.topic]
        return True

    def lost(error: RequestRefused) -> None:
        nonlocal failed
        failed = True
        tell(f"error: {error}")
        left.pop(error.topic or "")

    try:
        change.wait(*watches, ended=ended, lost=lost)
    except KeyboardInterrupt:
        state = "continues while a controller runs"
        if change.is_embedded:
            state = f"rests until a controller runs: {command_line(args, 'modeaware', 'controller')}"
        switched = {topic for topic, watch in watches.items() if watch.is_switched}
        tell(f"Left. The replacement {state}", *_hints(args, list(left.values()), switched))
        return INTERRUPTED
    return int(failed)


def _outcome(change: Change, command: ReplaceTopicCommand, watch: _Watch) -> list[str]:
    """Return what a replacement has come to, in lines; none: it is no more."""
    topic, successor = command.topic, command.successor
    if command.undo:
        if change.session.cluster.shape(successor) is None:
            return [f"{topic}: undone."]
        return [f"{topic}: undone. {successor} stays: it has records, or another partition count."]
    last = watch.last
    if last is None or last.replacement is None:
        return []
    if last.is_paused:
        return [f"{topic}: paused before the switch; {successor} exists. Repeat without --pause-before-switch."]
    lines = [f"{topic}: replaced by {successor}{_end_of(topic, watch, last.replacement)}."]
    if watch.pause_ms is not None:
        lines.append(f"Readers in key order that kept up waited {watch.pause_ms / 1000:.1f} s for the end of {topic}.")
    return lines


def _end_of(topic: str, watch: _Watch, now: ReplacementReport) -> str:
    """Return what has become of a topic that is let go."""
    if now.gone_ms is not None:
        fewer = watch.count - now.num_partitions
        count = f"; {abs(fewer)} {'fewer' if fewer > 0 else 'more'} partitions" if fewer and watch.count else ""
        return f" and deleted{count}"
    moved = f"; every group that is waited for has moved. {topic} is"
    if now.fence == "none":
        return f"{moved} not deleted (--fence none)"
    return f"{moved} deleted once its own retention has emptied it"
