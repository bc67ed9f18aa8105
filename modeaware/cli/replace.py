"""``modeaware replace``: replace a topic by a new topic with another number of partitions.

With ``--keep-name``, the change has two halves. First an *interim topic* replaces the old topic. Then a new topic with
the old name replaces the interim topic.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from modeaware.admin.acls import TopicAcls, compare_acls, read_acls
from modeaware.admin.new_topics import Accepted, TopicReplacement, check_replacement
from modeaware.admin.replacements import check_consequences, creating_broker, describe_old_topics, replace_command
from modeaware.cli import BadUsage, Command, key_value
from modeaware.cli.certificates import add_certificates_option
from modeaware.cli.change import Request, Seen
from modeaware.cli.declared import current_topics, diff_of
from modeaware.cli.session import (
    add_change_options,
    add_connection_options,
    add_delay_option,
    add_flags,
    add_state_loss_option,
)
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.interim import interim_name
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.drain import required_of
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.keep_name import KeptName, kept
from modeaware.lifecycle.objections import FENCES, why_not_now
from modeaware.lifecycle.replacement import DEFAULT_FACTOR
from modeaware.lifecycle.second_half import second_half_of
from modeaware.modelog.records import Replacement
from modeaware.plan.diff import UNCHANGED, TopicDiff
from modeaware.plan.file import DesiredTopic
from modeaware.plan.replacement import ReplacementPlan, acls_text, plan_replacement, replacement_text
from modeaware.plan.steps import Replace as ReplaceStep
from modeaware.reports.serialise import json_help, json_text
from modeaware.reports.session import Session

_FIRST_ONLY = ("partitions", "replication_factor", "config", "delay_ms", "fence")
ACCEPTING = {
    "accept_access_loss": "switch although users gain or lose access: the ACLs of the new topic differ",
    "accept_mirroring": "switch although MirrorMaker 2 is in use; make sure that it does not copy the fence's configs",
    "accept_auto_create": "keep the name although brokers create topics automatically",
}
"""Flag -> help. Each flag accepts one consequence of a switch. Without the flag, the consequence leads to a refusal."""


class Replace(Command):
    """``replace TOPIC=NAME ... --partitions N``, or ``replace TOPIC ... --partitions N --keep-name``.

    A repeated command continues a paused replacement, watches one (``--wait``), or does nothing if the change is done.
    """

    epilog = f"""\
Several topics: modeaware replace orders=orders-v2 payments=payments-v2 --partitions 4. If one is refused, the others
proceed and the exit status is 1.

{json_help(ReplacementPlan, "--json prints one object for each new replacement:")}
Repeat the command without --pause-before-switch to continue a paused replacement, and with --wait to watch one.
--undo gives the replacement up and deletes the new topic, as long as producers do not write to the new topic.

TOPIC is deleted once every group has read it, no group is subscribed to it any more, and the delay has passed. Without
a delay, TOPIC is not deleted before its retention has emptied it.

With --keep-name TOPIC is replaced by an interim topic, and the interim topic by a new TOPIC. Between the two switches
--stay ends the change on the interim topic. Until the second switch --keep-name cancels an earlier --stay.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "topics",
            metavar="TOPIC[=NAME]",
            nargs="+",
            help="a topic to replace, and the new topic, which must not exist; the options apply to every TOPIC",
        )
        parser.add_argument(
            "--with", dest="new_topic", metavar="NAME", help="the new topic, if only one TOPIC is named"
        )
        parser.add_argument("--partitions", type=int, metavar="N", help="partitions of the new topic, fewer or more")
        parser.add_argument(
            "--replication-factor",
            type=int,
            metavar="N",
            help="replicas of the new topic (default: those of TOPIC; -1: the brokers' default)",
        )
        parser.add_argument(
            "--config",
            action="append",
            default=[],
            type=key_value,
            metavar="KEY=VALUE",
            help="a config of the new topic; overrides the one copied from TOPIC; may be repeated",
        )
        add_delay_option(
            parser,
            "delete TOPIC once every group has read it, but not before this time has passed (default: not before the "
            "retention of TOPIC has emptied it)",
        )
        parser.add_argument(
            "--fence",
            choices=FENCES,
            help="config (default): two configs of TOPIC make brokers refuse data, and only then the end of TOPIC "
            "counts as final; none: brokers refuse nothing, and TOPIC is never deleted",
        )
        add_state_loss_option(parser, "replace")
        add_flags(
            parser,
            evacuate="replace a compacted topic: TOPIC stays until the Spark job modeaware.spark.evacuate has copied "
            "the latest values of its keys to the new one",
            **ACCEPTING,
            pause_before_switch="create and announce the new topic; switch when the command is repeated without this",
            undo="give the replacement up and delete the new topic; only before producers write to the new topic",
            keep_name="replace TOPIC by an interim topic, and the interim topic by a new topic named TOPIC",
            stay="end a change with --keep-name on its interim topic; only between the two switches",
            json="with --dry-run: print the plan as JSON, see below",
        )
        add_connection_options(parser)
        add_change_options(parser)
        add_certificates_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        new_topics = _new_topics(args)
        if args.undo and (args.pause_before_switch or args.accept_state_loss or args.evacuate or _given(args)):
            raise BadUsage("--undo takes only topics and the names of their new topics")
        if args.stay and (args.undo or args.keep_name or args.evacuate or args.accept_state_loss or _given(args)):
            raise BadUsage("--stay takes only topics")
        if (args.keep_name or args.stay) and any(new_topics.values()):
            raise BadUsage("--keep-name and --stay take no NAME of a new topic")
        if args.keep_name and args.undo:
            raise BadUsage("--keep-name and --undo exclude each other")
        if args.json and not args.dry_run:
            raise BadUsage("--json works only with --dry-run")
        return _Replacement(args, new_topics).run()


def _new_topics(args: argparse.Namespace) -> dict[str, str | None]:
    """Return old topic -> new topic; None if the command names no new topic."""
    new_topics: dict[str, str | None] = {}
    for argument in args.topics:
        topic, separator, new_topic = argument.partition("=")
        if not topic or args.new_topic == "" or (separator and not new_topic):
            raise BadUsage("the name of a topic is empty")
        if topic in new_topics:
            raise BadUsage(f"{topic} is named twice")
        new_topics[topic] = new_topic if separator else None
    if args.new_topic is not None:
        if len(new_topics) > 1 or None not in new_topics.values():
            raise BadUsage("--with names the new topic of one TOPIC; for several topics, write each as TOPIC=NAME")
        new_topics = dict.fromkeys(new_topics, args.new_topic)
    return new_topics


def _given(args: argparse.Namespace) -> list[str]:
    return [name for name in _FIRST_ONLY if getattr(args, name) not in (None, [])]


class Consequences:
    """The effects of a switch on access, mirrors and a kept name. ACLs, names and configs are read at most once."""

    def __init__(self, args: argparse.Namespace, session: Session) -> None:
        self._args = args
        self._server = session.bootstrap_server
        self._creates = cache(partial(creating_broker, session.cluster.brokers))
        self._acls = cache(partial(read_acls, session.cluster.brokers))
        self.names = cache(session.cluster.topic_names)

    def acls(self, topic: str, new_topic: str) -> TopicAcls | None:
        """Return the differences between the ACLs of an old and a new topic; None if the cluster has no authorizer."""
        return compare_acls(self._acls(), topic, new_topic, self._server)

    def check(self, command: ReplaceTopicCommand) -> None:
        """Raise RequestRefused if a consequence is not accepted; see :func:`check_consequences`."""
        args = self._args
        accepted = Accepted(args.accept_access_loss, args.accept_mirroring, args.accept_auto_create)
        check_consequences(command, accepted, self._acls, self.names, self._creates, self._server)


class _Replacement(Request):
    """The replacements of some topics; ``new_topics``: old topic -> new topic, or None if the command names none."""

    what = "replace the topic"

    def __init__(self, args: argparse.Namespace, new_topics: Mapping[str, str | None]) -> None:
        super().__init__(args, new_topics)
        self._new_topics = new_topics
        self._plans: dict[str, ReplacementPlan | list[str]] = {}
        self._kept: dict[str, KeptName | None] = {}
        self._interim: dict[str, str] = {}
        self._done: dict[str, str] = {}

    def take_snapshot(self, topics: Sequence[str]) -> Seen:
        session = self.change.session
        log = session.read_log()
        self._consequences = Consequences(self.args, session)
        known = [record.replacement for topic in topics for record in log.replay.records_of(topic)]
        new_topics = [self._new_topics[topic] for topic in topics] + [r.new_topic for r in known if r is not None]
        self._kept = {topic: kept(topic, log.replaced) for topic in topics}
        new_topics += [change.interim for change in self._kept.values() if change is not None]
        if self.args.keep_name:
            first = [t for t, change in self._kept.items() if change is None or change.is_over]
            shapes = {topic: session.cluster.shape(topic) for topic in first}
            new = {topic: interim_name(topic, shape.topic_id) for topic, shape in shapes.items() if shape is not None}
            self._interim = new
            new_topics += new.values()
        seen = self.change.take_snapshot({*topics, *filter(None, new_topics)}, log)
        self._done = self._finished(topics, seen)
        return seen

    def _finished(self, topics: Sequence[str], seen: Seen) -> dict[str, str]:
        """Return topic -> why nothing is to be done, for topics that an earlier run has already replaced as requested.
        ``modeaware apply`` makes the same decision about a file that declares the same."""
        declared = [declared for topic in topics if (declared := self._declared(topic, seen)) is not None]
        if not declared:
            return {}
        names = {name for topic in declared for name in (topic.name, topic.replace) if name is not None}
        current = current_topics(self.change.session, seen.log, sorted(names))

        def why(topic: DesiredTopic) -> str:
            if topic.replace is None:
                return f"already has {topic.partitions} partitions and keeps its name, nothing to do"
            return f"already replaced by {topic.replace}, with {topic.partitions} partitions"

        as_declared = [topic for topic in declared if diff_of(topic, current, seen.log).status == UNCHANGED]
        return {topic.name: why(topic) for topic in as_declared}

    def _declared(self, topic: str, seen: Seen) -> DesiredTopic | None:
        """Return the command as a declaration, or None if no earlier run can have completed the command. A completed
        command leaves no topic of the name, or with --keep-name a topic with the requested number of partitions.
        (Without --keep-name, a new topic may have as many partitions as the old one. Options that exclude --keep-name
        are refused later.)"""
        args, facts, new_topic = self.args, seen.observed[topic], self._new_topics[topic]
        if args.undo or args.stay or args.pause_before_switch or args.partitions is None:
            return None
        if isinstance(facts, ClusterError):
            return None
        is_gone = not args.keep_name and facts.topic_id is None
        keeps_name = args.keep_name and args.fence != "none" and not args.evacuate
        if not is_gone and not (keeps_name and facts.partition_count == args.partitions):
            return None
        factor = None if args.replication_factor == DEFAULT_FACTOR else args.replication_factor
        return DesiredTopic(
            topic, args.partitions, factor, dict(args.config), replace=new_topic, keep_name=args.keep_name
        )

    def judge(self, topic: str, seen: Seen) -> TopicDiff:
        args, session, consequences = self.args, self.change.session, self._consequences
        if (why := self._done.get(topic)) is not None:
            return TopicDiff(topic, notes=(why,))
        change = self._kept[topic]
        if change is not None and not change.is_over and change.is_in_second_half and self._new_topics[topic] is None:
            return self._judge_second_half(topic, change, seen)
        situation = seen.situation(topic)
        current = situation.record.replacement if situation.record is not None else None
        if args.stay and (current is None or current.switched_ms is None):
            why = (
                f"topic {topic!r}: --stay works only after the first switch of a change with --keep-name; before that "
                "switch, pass --undo"
            )
            raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=topic)
        new_topic = self._interim.get(topic) if args.keep_name and current is None else self._new_topics[topic]
        wanted = _wanted(args, topic, new_topic, current)
        is_first = current is None and not args.undo
        old = describe_old_topics(session.cluster.brokers, [topic])[topic] if is_first else None
        if isinstance(old, ModeAwareError):
            raise old
        command = replace_command(topic, wanted, old, pause_before_switch=args.pause_before_switch, undo=args.undo)
        admission = self.admit(command, seen)
        acls, refusal, step = None, None, ReplaceStep(situation.writable_count, command)
        if not args.undo and (current is None or current.switched_ms is None):
            acls = consequences.acls(topic, wanted.new_topic)
            try:
                if admission.record is not None:
                    consequences.check(command)
            except RequestRefused as error:
                refusal = error.message
        plan: ReplacementPlan | list[str]
        plan = [*_changes(command, current, seen.facts(wanted.new_topic)), *acls_text(command, acls)]
        if old is not None:
            self.change.validate(topic, step)
            facts, config, given, names = situation.facts, session.controller, dict(args.config), consequences.names()
            requirement = required_of((), facts, situation.rules, config.ignored_groups, session.clock.now_ms())
            plan = plan_replacement(command, facts, old, given, config.seal_quiet_ms, acls, names, requirement)
        notes = () if admission.message is None else (admission.message,)
        if admission.record is None:
            return TopicDiff(topic, notes=notes, begun=(step,))
        self._plans[topic] = plan
        return TopicDiff(topic, steps=(step,), notes=notes, refusal=refusal)

    def _judge_second_half(self, topic: str, change: KeptName, seen: Seen) -> TopicDiff:
        """Judge a command in the second half of a change that keeps a name: the interim topic has replaced ``topic``.
        The command replaces the interim topic by a new topic of the name, or ends the change on the interim topic."""
        args = self.args
        if args.undo or change.first is None:
            has_new = change.second is not None and change.second.replacing.switched_ms is not None
            why = f"producers already write to the interim topic {change.interim!r}: end the change there (--stay)"
            why = "producers already write to the new topic of this name: nothing can be undone" if has_new else why
            raise RequestRefused(f"topic {topic!r}: {why}", code=ErrorCode.REASSIGNMENT_IN_PROGRESS, topic=topic)
        wanted = _wanted(args, topic, None, change.first.replacing)
        repeated = replace_command(topic, wanted, None, pause_before_switch=args.pause_before_switch)
        if (refused := why_not_now(repeated, change.first, change.first.replacing)) is not None:
            raise RequestRefused(f"topic {topic!r}: {refused}", code=ErrorCode.REASSIGNMENT_IN_PROGRESS, topic=topic)
        request = second_half_of(change.first)
        accepted = tuple(dict.fromkeys([*request.accept_state_loss, *args.accept_state_loss]))
        command = replace(request, undo=args.stay, accept_state_loss=accepted)
        waits_itself = change.second is None and change.keeps and command == request
        step = ReplaceStep(seen.situation(change.interim).writable_count, command)
        if waits_itself:
            return TopicDiff(topic, begun=(step,))
        admission = self.admit(command, seen)
        if admission.record is None and admission.also is None:
            return TopicDiff(topic, notes=(admission.message or "",), begun=(step,))
        notes = () if admission.message is None else (admission.message,)
        end = f"The change will end on the interim topic {change.interim}."
        if not args.stay:
            end = f"The interim topic {change.interim} will be replaced by a new topic {topic}."
        self._plans[topic] = [f"{topic}: the change that keeps the name is in its second half. {end}"]
        return TopicDiff(topic, steps=(step,), notes=notes)

    def shown(self, diff: TopicDiff) -> Iterable[str]:
        plan = self._plans.get(diff.topic)
        if plan is None:
            return super().shown(diff)
        lines = replacement_text(plan) if isinstance(plan, ReplacementPlan) else plan
        return [*lines, *(f"{diff.topic}: {note}" for note in diff.notes)]

    def show(self) -> None:
        plans = [plan for plan in self._plans.values() if isinstance(plan, ReplacementPlan)]
        if self.args.json:
            for plan in plans:
                print(json_text(plan))
            self._plans.clear()
        super().show()


def _wanted(
    args: argparse.Namespace, topic: str, new_topic: str | None, current: Replacement | None
) -> TopicReplacement:
    """Return the wanted replacement. The replacement in progress supplies a missing name, count or fence."""
    count, fence = args.partitions, args.fence
    if current is not None:
        new_topic = current.new_topic if new_topic is None else new_topic
        count = current.num_partitions if count is None else count
        fence = fence or current.fence
    if args.undo and current is None:
        why = f"topic {topic!r}: it is not being replaced; nothing to undo"
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=topic)
    if new_topic is None or count is None:
        why = f"topic {topic!r} is not being replaced: name the new topic (--with) and its partitions (--partitions)"
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=topic)
    wanted = TopicReplacement(
        new_topic,
        count,
        args.replication_factor,
        dict(args.config),
        args.delay_ms,
        fence or FENCES[0],
        tuple(args.accept_state_loss),
        args.accept_access_loss,
        args.accept_mirroring,
        args.evacuate,
        keep_name=_keeps_name(args, current),
        accept_auto_create=args.accept_auto_create,
    )
    check_replacement(topic, wanted)
    return wanted


def _keeps_name(args: argparse.Namespace, current: Replacement | None) -> bool:
    """Return whether the name is to be kept: by the options, or else by the replacement in progress."""
    return args.keep_name or (current is not None and current.keep_name and not args.stay)


def _changes(command: ReplaceTopicCommand, current: Replacement | None, new_topic: TopicFacts) -> list[str]:
    """Return lines that tell what a command changes in a replacement in progress."""
    if command.undo:
        fate = (
            "will not be deleted: it has records"
            if new_topic.untouched is False
            else "will be deleted, unless it has records by then"
        )
        return [f"{command.topic}: its replacement will be undone. {command.new_topic} {fate}."]
    lines = [f"{command.topic}: its replacement by {command.new_topic} is in progress."]
    if current is not None and current.keep_name is not command.keep_name:
        back = f"The name will be kept: a new topic {command.topic} will replace {command.new_topic}."
        lines.append(back if command.keep_name else f"The change will end on {command.new_topic}.")
    if current is not None and current.pause_before_switch and not command.pause_before_switch:
        lines.append(
            "The replacement continues to the switch: from then on producers write to the new topic, and --undo is "
            "refused."
        )
    return lines
