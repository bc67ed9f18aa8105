"""``modeaware groups``: the groups that a drain requires, and the operator's rules about groups."""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from modeaware.cli import BadUsage, Command, add_action
from modeaware.cli.embedded import alter_group_rules
from modeaware.cli.progress import status_without_change, tell
from modeaware.cli.session import (
    add_confirmation_options,
    add_connection_options,
    add_controller_config_option,
    add_flags,
    open_session,
)
from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.group_listing import list_groups
from modeaware.cluster.groups import find_groups, group_commits
from modeaware.durations import parse_duration_ms
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle.admission import LATEST_MS
from modeaware.lifecycle.admission import alter_group_rules as check_rules
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CommitOffsets
from modeaware.lifecycle.drain import noted_groups, unread_offsets
from modeaware.modelog.group_rules import (
    CLOSED,
    KINDS,
    REQUIRE,
    WAIVE,
    GroupRule,
    GroupRulesRecord,
    has_glob_characters,
)
from modeaware.modelog.records import replaced
from modeaware.modes import format_ranges
from modeaware.printable import number
from modeaware.reports.groups import (
    GroupSituation,
    GroupsReport,
    given_up,
    groups_text,
    rule_text,
    take_group_snapshot,
)
from modeaware.reports.serialise import json_help, json_text
from modeaware.reports.session import Session
from modeaware.spelling import NEARLY_SAME, nearest, with_hint, with_nearest

_GLOB = "* ? [...], case-sensitive"
_ACTIONS = {
    "list": "list the required groups of a topic, the reasons, and the rules",
    REQUIRE: "delete no record before a group has consumed it",
    WAIVE: "do not wait for a group",
    CLOSED: "accept that some groups may be hidden from the controller",
    "forget": "remove a rule",
    "prepare": "commit the start of a new topic for a stopped group that has read the old topic",
}


class Groups(Command):
    """``list``, ``require``, ``waive``, ``closed``, ``forget``, ``prepare``."""

    actions = tuple(_ACTIONS)

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        for name, text in _ACTIONS.items():
            action = add_action(actions, name, text)
            action.set_defaults(action=name)
            if name == "list":
                action.epilog = json_help(GroupsReport)
                what = "the topic (default: all topics that are being changed)"
                action.add_argument("topic", metavar="TOPIC", nargs="?", help=what)
                add_flags(action, json="print JSON, see below")
            elif name == "forget":
                action.add_argument("kind", metavar="KIND", choices=KINDS, help="require, waive or closed")
                what = "the rule's group; none for closed"
                action.add_argument("group", metavar="GROUP", nargs="?", default="", help=what)
                action.add_argument("--topic", required=True, metavar="GLOB", help="the rule's topic or glob")
            elif name == "prepare":
                action.add_argument("group", metavar="GROUP", help="the group, which has no members now")
                action.add_argument("--topic", required=True, metavar="NEW", help="the new topic, by its own name")
            else:
                _add_rule_options(action, name)
            if name != "list":
                add_confirmation_options(action)
            add_connection_options(action)
            note = " (pass the values of the running controller; if none runs, those of the next one)"
            add_controller_config_option(action, "--controller-config", note)

    def run(self, args: argparse.Namespace) -> int:
        rule = None
        if args.action == "forget" and (args.kind == CLOSED) is bool(args.group):
            raise BadUsage("GROUP is missing" if args.kind != CLOSED else "'closed' takes no GROUP")
        if args.action in KINDS:
            rule = _rule(args)
        with open_session(args, "read the groups") as session:
            if args.action == "list":
                return _list(args, session)
            if args.action == "prepare":
                return _prepare(args, session)
            return _forget(args, session) if rule is None else _add(args, session, rule)


def _add_rule_options(parser: argparse.ArgumentParser, kind: str) -> None:
    if kind != CLOSED:
        parser.add_argument("group", metavar="GROUP", help="the group, by its exact name (or see --glob)")
        effect = (
            "only groups that the cluster lists are required" if kind == REQUIRE else "registered groups are not waived"
        )
        parser.add_argument("--glob", action="store_true", help=f"GROUP is a glob: {_GLOB}; {effect}")
    what = f"the topics of the rule: a name or a glob: {_GLOB}"
    parser.add_argument("--topic", required=True, metavar="GLOB", help=what)
    what = "the reason; printed in the certificate"
    parser.add_argument("--reason", required=kind != REQUIRE, default="", metavar="TEXT", help=what)
    end = parser.add_mutually_exclusive_group(required=kind == WAIVE)
    end.add_argument("--expires", metavar="WHEN", help="when the rule ends: 90s, 30m, 12h, 7d, or an ISO time")
    if kind == WAIVE:
        end.add_argument("--forever", action="store_true", help="no end: the rule applies until it is removed")
        add_flags(parser, uncommitted_only="waive only on partitions where the group has never committed")


def _list(args: argparse.Namespace, session: Session) -> int:
    situation = take_group_snapshot(session, args.topic)
    report = GroupsReport.of(situation.topics(), situation.rules, SYSTEM_CLOCK.now_ms())
    print(json_text(report) if args.json else groups_text(report))
    return 0


def _prepare(args: argparse.Namespace, session: Session) -> int:
    """Commit the log start for a stopped group on partitions of a new topic where the group's commit is missing, or
    below the log start. Otherwise ``auto.offset.reset`` decides, and its default, ``latest``, skips records."""
    group, name, log = args.group, args.topic, session.read_log()
    pairs = sorted(replaced(log.replaced), key=lambda pair: pair.record.is_alias)  # aliases last
    pair = next((pair for pair in pairs if pair.replacement.new_topic == name), None)
    shape = session.shape(name)
    if pair is None or pair.replacement.new_topic_id != shape.topic_id:
        why = f"topic {name!r} does not replace another topic: a group can only be prepared for a new topic"
        why = with_nearest(why, name, (to.new_topic for _, to in pairs))
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=name)
    old, partitions = pair.record, range(shape.partition_count)
    wanted = {old.topic: range(len(old.modes)), name: partitions}
    using = find_groups(session.cluster, wanted, mode_log=session.config.mode_log_topic)
    on_old, on_new = using[old.topic].groups.get(group), using[name].groups.get(group)
    known = [facts for facts in (on_old, on_new) if facts is not None]
    if not known and group not in old.required_groups:
        why = f"group {group!r} uses neither {old.topic!r} nor {name!r}"
        why = with_nearest(why, group, {*using[old.topic].groups, *using[name].groups, *old.required_groups})
        raise RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=name)
    if any(facts.has_members for facts in known):
        why = (
            f"group {group!r} has members: stop them once they have read {old.topic!r} to its end, then repeat "
            "the command"
        )
        raise RequestRefused(why, code=ErrorCode.UNKNOWN_MEMBER_ID, topic=name)
    listed = list_groups(session.cluster.brokers).groups.get(group)  # finds the group even if it uses neither topic
    kind = "share" if listed is not None and listed.kind == "share" else "classic"
    starts, lost = _starts(session, group, kind, name, partitions)
    if not starts:
        print(f"{group}: already has an offset on each partition of {name}; nothing to do.")
        return 0
    ends = session.cluster.offsets((old.topic, p) for p in range(len(old.modes)))
    unread = sum(unread_offsets(on_old, p, log.end_offset, log.log_start) for (_, p), log in ends.items())
    if unread:
        tell(f"WARNING: the group has not read {number(unread)} offsets of {old.topic}: let it read them first.")
    if len(ends) < len(old.modes) and not old.is_alias:
        tell(f"WARNING: some leaders of {old.topic} do not answer: the group may not have read all of that topic.")
    if lost:
        tell(f"WARNING: retention has deleted {number(lost)} offsets of {name} that the group has not read.")
    tell(f"{group}: will begin at the log start of partitions {format_ranges(starts)} of {name}.")
    if (status := status_without_change(dry_run=args.dry_run, yes=args.yes)) is not None:
        return status
    starts, _ = _starts(session, group, kind, name, starts)  # the group may have committed while the question was open
    if starts:
        (failure,) = session.cluster.perform([CommitOffsets(name, shape.topic_id, group, starts, kind)])
        if failure is not None:
            raise failure
    print(f"{group}: prepared. Start it on {name}.")
    return 0


def _starts(
    session: Session, group: str, kind: str, topic: str, partitions: Collection[int]
) -> tuple[dict[int, int], int]:
    """Return the log start of each partition where the group has no commit, or one below the log start. Also return the
    number of unread offsets before these log starts."""
    held = group_commits(session.cluster, group, topic, partitions, kind)
    logs = session.cluster.offsets((topic, p) for p in partitions)
    if silent := [p for p in partitions if (topic, p) not in logs]:
        why = f"topic {topic!r}: no log start was returned for partitions {format_ranges(silent)}; repeat the command"
        raise ClusterError(why, code=ErrorCode.LEADER_NOT_AVAILABLE, topic=topic)
    starts = {p: log.log_start for (_, p), log in logs.items() if held.get(p, -1) < log.log_start}
    return starts, sum(start - held.get(p, 0) for p, start in starts.items())


def _rule(args: argparse.Namespace) -> GroupRule:
    now_ms = SYSTEM_CLOCK.now_ms()
    try:
        expires_ms = None if args.expires is None else expiry(args.expires, now_ms)
    except ValueError as error:
        raise BadUsage(f"--expires: {error}") from error
    group, glob = getattr(args, "group", ""), getattr(args, "glob", False)
    uncommitted_only = getattr(args, "uncommitted_only", False)
    return GroupRule(args.action, group, args.topic, args.reason, now_ms, expires_ms, uncommitted_only, glob)


def _add(args: argparse.Namespace, session: Session, rule: GroupRule) -> int:
    def given_up_on(topic: str) -> bool:  # the topics on which a waiver has consequences
        return rule.kind == WAIVE and rule.applies(topic, rule.created_ms)

    situation = take_group_snapshot(session, None, given_up_on)
    _check_names(session, situation, rule)
    consequences: list[str] = []
    if rule.kind == WAIVE:
        consequences = given_up(situation.topics(), situation.topics(rule), rule)
    elif rule.kind == CLOSED:
        consequences = [
            (
                "Records that a hidden group has not consumed may then be deleted. Register every such group first: "
                "modeaware groups require GROUP --topic ..."
            )
        ]
    # If the new requirement replaces one that ends later, records may be deleted unread: ask.
    held = next((held.expires_ms or math.inf for held in situation.rules if held.key == rule.key), 0)
    asks = rule.kind != REQUIRE or (rule.expires_ms or math.inf) < held
    lines = [rule_text(rule), *consequences]
    return _alter(args, session, situation, AlterGroupRulesCommand(add=(rule,)), lines, asks=asks)


def _check_names(session: Session, situation: GroupSituation, rule: GroupRule) -> None:
    """Refuse a waiver for a missing group or topic if an existing name is nearly equal. In all other cases, only warn
    of a similar name: a requirement may be made before its group exists."""
    noted = {name for record, _ in situation.snapshot if record is not None for name in record.required_groups}
    groups = noted | {name for _, facts in situation.snapshot for name in facts.groups}
    groups |= {held.group for held in situation.rules}
    checked: list[tuple[str, str, ErrorCode, Collection[str]]] = []
    if rule.group not in groups and not rule.glob and rule.kind != CLOSED:
        groups |= list_groups(session.cluster.brokers).groups.keys()
        checked.append(("group", rule.group, ErrorCode.GROUP_ID_NOT_FOUND, groups))
    if not has_glob_characters(rule.topic):
        checked.append(("topic", rule.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, session.cluster.topic_names()))
    for kind, name, code, known in checked:
        near = None if name in known else nearest(name, known)
        if near is None:
            continue
        why = with_hint(f"no such {kind} {name!r}", near)
        if rule.kind == WAIVE and nearest(name, (near,), NEARLY_SAME) is not None:
            raise RequestRefused(f"{why} For a {kind} that does not exist yet, pass a glob", code=code)
        tell(f"WARNING: {why}")


def _forget(args: argparse.Namespace, session: Session) -> int:
    def may_note(topic: str) -> bool:
        return args.kind == REQUIRE and fnmatchcase(topic, args.topic)

    situation = take_group_snapshot(session, None, may_note)
    command = AlterGroupRulesCommand(remove=((args.kind, args.group, args.topic),))
    removed = [rule for rule in situation.rules if rule.key in command.remove]
    if not removed:
        of_topic = [rule.group for rule in situation.rules if (rule.kind, rule.topic) == (args.kind, args.topic)]
        why = f"there is no rule {args.kind!r} for group {args.group!r} and topic {args.topic!r}"
        raise RequestRefused(with_nearest(why, args.group, of_topic), code=ErrorCode.INVALID_REQUEST)
    lines = [f"To be removed: {rule_text(rule)}" for rule in removed]
    if args.kind == REQUIRE:
        lines.append(
            "Records that the group has not consumed may then be deleted, unless the cluster lists the group for the "
            "topic, or the controller noted the group when a change began."
        )
        lines += [
            f"{record.topic}: group {name!r} was noted when the change in progress began, and stays required unless it "
            "is waived (modeaware groups waive)."
            for record, _ in situation.snapshot
            if record is not None
            for name in noted_groups(record)
            if any(rule.matches(name) for rule in removed)
        ]
    return _alter(args, session, situation, command, lines, asks=args.kind == REQUIRE)


def _alter(
    args: argparse.Namespace,
    session: Session,
    situation: GroupSituation,
    command: AlterGroupRulesCommand,
    lines: list[str],
    *,
    asks: bool,
) -> int:
    # Before the question, refuse the rules that the controller would refuse.
    check_rules(GroupRulesRecord(situation.rules), command, 0, situation.now_ms)
    tell(*lines)
    if (status := status_without_change(dry_run=args.dry_run, yes=args.yes, asks=asks)) is not None:
        return status
    alter_group_rules(session, situation.claim, command)
    kind, group, topic = command.remove[0] if command.remove else command.add[0].key
    print(f"{'Removed' if command.remove else 'In force'}: {kind} {f'{group!r} ' if group else ''}on topic {topic!r}")
    return 0


_TIME = "an ISO time (2030-01-31T18:00:00Z; UTC if it names no zone)"


def expiry(text: str, now_ms: int) -> int:
    """Return the time of ``text`` in ms since the epoch: ``text`` is a duration from now, or an ISO time.

    Raises:
        ValueError: the text is neither, or the time is not in the future.
    """
    text = text.strip()
    try:
        expires_ms = now_ms + parse_duration_ms(text)
    except ValueError as error:
        try:
            moment = datetime.fromisoformat(text if not text.isdecimal() else "")
        except ValueError:
            raise ValueError(f"{error}; or {_TIME}") from None
        expires_ms = int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if expires_ms <= now_ms:
        raise ValueError(f"{text!r} is not in the future")
    if expires_ms > LATEST_MS:
        raise ValueError(f"{text!r} is beyond the year 9999")
    return expires_ms
