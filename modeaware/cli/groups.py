"""``modeaware groups``: the groups that a drain requires, and the operator's rules about groups."""

from __future__ import annotations

import argparse
import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from modeaware.cli.display import number
from modeaware.cli.embedded import alter_group_rules, tell
from modeaware.cli.options import (
    Connection,
    add_connection_options,
    add_controller_config_option,
    connect,
    connection,
    controller_config,
    kafka_errors,
)
from modeaware.cli.progress import confirmed
from modeaware.cli.situation import READ_TIMEOUT_S
from modeaware.clock import SYSTEM_CLOCK, utc
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.groups.found import list_groups_with_members
from modeaware.cluster.observer import Observer
from modeaware.config import ControllerConfig
from modeaware.confluent.controller_calls import group_rules_of
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.group_rules import LATEST_MS
from modeaware.lifecycle.group_rules import alter_group_rules as check_rules
from modeaware.lifecycle.phases import in_progress
from modeaware.modelog.group_rules import CLOSED, KINDS, REQUIRE, WAIVE, GroupRule, GroupRulesRecord
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modes import format_ranges
from modeaware.printable import printable_lines
from modeaware.reports.describe import unusable_record
from modeaware.reports.groups import GroupReport, TopicGroups, look_at_groups, report_groups
from modeaware.reports.table import table

_GLOB = "* ? [...], case counts"
_TOPICS = f"a name or a glob: {_GLOB}"


class Groups:
    """``list``, ``require``, ``waive``, ``closed``, ``forget``."""

    name = "groups"
    help = "show whom a drain waits for, and make rules about it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        for name, text, configure, run in (
            ("list", "which groups are required for a topic now and why, and the rules", _configure_list, _list),
            ("require", "do not delete before a group has consumed, listed or not", _configure_require, _require),
            ("waive", "do not wait for a group", _configure_waive, _waive),
            ("closed", "accept that some groups may be hidden from the controller", _configure_closed, _closed),
            ("forget", "remove a rule", _configure_forget, _forget),
        ):
            action = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
            configure(action)
            add_connection_options(action)
            note = " (for the controller in this process where none runs; name those that the running one has)"
            add_controller_config_option(action, "--controller-config", note)
            action.set_defaults(run_action=run, action_parser=action)

    def run(self, args: argparse.Namespace) -> int:
        target = connection(args, defaults={"log_level": 0})
        config = controller_config(args, target.config)
        action: Callable[[argparse.Namespace, Connection, ControllerConfig], int] = args.run_action
        with kafka_errors("look at the groups"):
            return action(args, target, config)


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = LIST_JSON_HELP
    parser.add_argument("--topic", metavar="TOPIC", help="the topic (without it: all whose partitions are in a change)")
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


def _configure_require(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="the group, by its exact name (or see --glob)")
    _add_glob(parser, "it requires the groups that are listed")
    _add_rule_options(parser, reason_required=False)
    parser.add_argument("--expires", metavar="WHEN", help="when it ends: 90s, 30m, 12h, 7d, 2w, or an ISO time")


def _configure_waive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="the group, by its exact name (or see --glob)")
    _add_glob(parser, "it leaves registered groups alone")
    _add_rule_options(parser, reason_required=True)
    end = parser.add_mutually_exclusive_group(required=True)
    end.add_argument("--expires", metavar="WHEN", help="when it ends: 90s, 30m, 12h, 7d, 2w, or an ISO time")
    end.add_argument("--forever", action="store_true", help="it holds until it is forgotten")
    parser.add_argument(
        "--uncommitted-only", action="store_true", help="only on partitions where the group has never committed"
    )


def _configure_closed(parser: argparse.ArgumentParser) -> None:
    _add_rule_options(parser, reason_required=True)
    parser.add_argument("--expires", metavar="WHEN", help="when it ends: 90s, 30m, 12h, 7d, 2w, or an ISO time")


def _configure_forget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help="require, waive or closed")
    parser.add_argument("group", metavar="GROUP", nargs="?", default="", help="as the rule has it; none for closed")
    parser.add_argument("--topic", required=True, metavar="GLOB", help="as the rule has it")
    _add_how(parser)


def _add_glob(parser: argparse.ArgumentParser, effect: str) -> None:
    parser.add_argument("--glob", action="store_true", help=f"GROUP is a pattern: {_GLOB}; {effect}")


def _add_rule_options(parser: argparse.ArgumentParser, *, reason_required: bool) -> None:
    parser.add_argument("--topic", required=True, metavar="GLOB", help=f"the topics it is for: {_TOPICS}")
    parser.add_argument(
        "--reason", required=reason_required, default="", metavar="TEXT", help="why; it stands in the certificate"
    )
    _add_how(parser)


def _add_how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="check, and show what would be done; change nothing")


def _list(args: argparse.Namespace, target: Connection, config: ControllerConfig) -> int:
    situation = look_at_topics(target, connect(target), config, args.topic)
    if args.json:
        print(json.dumps(groups_json(situation.topics, situation.rules, SYSTEM_CLOCK.now_ms()), indent=2))
    else:
        print(groups_text(situation.topics, situation.rules, SYSTEM_CLOCK.now_ms()))
    return 0


def _require(args: argparse.Namespace, target: Connection, config: ControllerConfig) -> int:
    return _add(args, target, config, _rule(args, REQUIRE, args.group))


def _waive(args: argparse.Namespace, target: Connection, config: ControllerConfig) -> int:
    return _add(args, target, config, _rule(args, WAIVE, args.group))


def _closed(args: argparse.Namespace, target: Connection, config: ControllerConfig) -> int:
    return _add(args, target, config, _rule(args, CLOSED, ""))


def _rule(args: argparse.Namespace, kind: str, group: str) -> GroupRule:
    now_ms = SYSTEM_CLOCK.now_ms()
    try:
        expires_ms = None if args.expires is None else expiry(args.expires, now_ms)
    except ValueError as error:
        args.action_parser.error(f"--expires: {error}")
    uncommitted_only, glob = getattr(args, "uncommitted_only", False), getattr(args, "glob", False)
    return GroupRule(kind, group, args.topic, args.reason, now_ms, expires_ms, uncommitted_only, glob)


def _add(args: argparse.Namespace, target: Connection, config: ControllerConfig, rule: GroupRule) -> int:
    def given_up_on(topic: str) -> bool:  # of other rules no consequence is shown
        return rule.kind == WAIVE and rule.applies(topic, rule.created_ms)

    situation = look_at_topics(target, connect(target), config, None, given_up_on)
    command = AlterGroupRulesCommand(add=(rule,))
    _check(command, situation)
    tell(rule_text(rule), *_consequences(rule, situation))
    asks = rule.kind != REQUIRE or _ends_earlier(rule, situation)
    return _carry_out(args, target, config, situation, command, asks=asks)


def _ends_earlier(rule: GroupRule, situation: GroupSituation) -> bool:
    """Whether it takes the place of a rule that would have held for longer."""
    for held in situation.rules:
        if held.key == rule.key and rule.expires_ms is not None:
            return held.expires_ms is None or rule.expires_ms < held.expires_ms
    return False


def _forget(args: argparse.Namespace, target: Connection, config: ControllerConfig) -> int:
    if (args.kind == CLOSED) is bool(args.group):
        args.action_parser.error("name the GROUP" if args.kind != CLOSED else "a rule 'closed' names no GROUP")
    situation = look_at_topics(target, connect(target), config, None, lambda topic: False)
    command = AlterGroupRulesCommand(remove=((args.kind, args.group, args.topic),))
    _check(command, situation)
    tell(*(f"To be forgotten: {rule_text(rule)}" for rule in situation.rules if rule.key in command.remove))
    if args.kind == REQUIRE:
        tell(
            "Records may then be deleted that it has not consumed, unless it uses the topic as a group that is listed."
        )
    return _carry_out(args, target, config, situation, command, asks=args.kind == REQUIRE)


def _consequences(rule: GroupRule, situation: GroupSituation) -> list[str]:
    if rule.kind == WAIVE:
        return given_up(situation.topics, situation.with_rule(rule), rule)
    if rule.kind == CLOSED:
        lost = "Records may then be deleted that a group has not consumed which the controller may not see."
        return [f"{lost} Register every such group first: modeaware groups require GROUP --topic ..."]
    return []


def _check(command: AlterGroupRulesCommand, situation: GroupSituation) -> None:
    """What the controller would refuse is refused before anybody is asked.

    Raises:
        RequestRefused: it would.
    """
    check_rules(GroupRulesRecord(situation.rules), command, 0)


def _carry_out(
    args: argparse.Namespace,
    target: Connection,
    config: ControllerConfig,
    situation: GroupSituation,
    command: AlterGroupRulesCommand,
    *,
    asks: bool,
) -> int:
    if args.dry_run:
        print("Dry run: nothing was changed.")
        return 0
    if asks and not confirmed(yes=args.yes):
        print("Nothing was changed.")
        return 1
    alter_group_rules(target, config, situation.claim, command)
    print("The rule is forgotten." if command.remove else "The rule holds now.")
    return 0


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupSituation:
    """The rules, and the groups of the topics looked at.

    Attributes:
        looked_at: record and facts of each topic, by which a rule can be tried out.
        claim: the claim of the controller, running or not.
    """

    rules: tuple[GroupRule, ...]
    looked_at: tuple[tuple[TopicRecord | None, TopicFacts], ...]
    ignored_groups: tuple[str, ...]
    now_ms: int
    claim: ClaimRecord | None

    @property
    def topics(self) -> tuple[TopicGroups, ...]:
        """The groups of each topic, by the rules as they are."""
        return self._report(self.rules)

    def with_rule(self, rule: GroupRule) -> tuple[TopicGroups, ...]:
        """The same, were ``rule`` among the rules."""
        others = tuple(other for other in self.rules if other.key != rule.key)
        return self._report((*others, rule))

    def _report(self, rules: tuple[GroupRule, ...]) -> tuple[TopicGroups, ...]:
        return tuple(
            report_groups(record, facts, rules, self.ignored_groups, self.now_ms) for record, facts in self.looked_at
        )


def look_at_topics(
    connection: Connection,
    cluster: Cluster,
    config: ControllerConfig,
    topic: str | None,
    wanted: Callable[[str], bool] = lambda topic: True,
) -> GroupSituation:
    """Look at one topic; or (None) at all that are in a change, leaving out what cannot be looked at. Groups are listed
    once, and only where there is a topic to look at.

    Args:
        wanted: which of the topics in a change, by name: a look takes a tenth of a second, and hundreds may be pending.

    Raises:
        RequestRefused: the topic that was named does not exist.
        RecordError: its record, or that of the rules, cannot be used.
        ClusterError, ModeSourceError: the brokers did not answer, or refused.
    """
    log_topic = config.mode_log_topic
    replay = read_mode_log(connection.conf, log_topic, READ_TIMEOUT_S)
    rules = group_rules_of(replay, log_topic)
    names = (
        [topic]
        if topic is not None
        else sorted(r.topic for r in replay.records.values() if in_progress(r) and wanted(r.topic))
    )
    listed = list_groups_with_members(cluster.brokers) if names else None
    observer = Observer(cluster, connection.conf, listed=listed)
    looked_at = []
    for name, shape in cluster.describe(names).items():
        if topic is not None and shape is None:
            raise RequestRefused(
                f"topic {name!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name
            )
        if shape is not None and _usable(replay, log_topic, name, shape.topic_id, must_be=topic is not None):
            record = replay.records.get(shape.topic_id)
            try:
                looked_at.append((record, look_at_groups(observer, name, record, rules)))
            except ClusterError as error:
                if topic is not None:
                    raise
                logger.warning("topic %s is left out: %s", name, error)
    now_ms = SYSTEM_CLOCK.now_ms()
    return GroupSituation(rules, tuple(looked_at), config.ignored_groups, now_ms, replay.claim)


def _usable(replay: Replay, log_topic: str, topic: str, topic_id: str, *, must_be: bool) -> bool:
    unusable = unusable_record(replay, log_topic, topic, topic_id)
    if unusable is not None and must_be:
        raise unusable
    return unusable is None


LIST_JSON_HELP = """\
--json prints one object:
  {"topics": [{"topic", "phase", "retired", "doubt", "groups"}], "rules"}
doubt says why there may be more groups than these, or is null. groups has
  {"group", "kind", "has_members", "stateful", "state_loss_accepted", "required", "because", "unread", "held_up",
   "waived"}
with kind classic, consumer, share, streams, or null for one that the brokers do not list; because a list of noted (it
used the topic when the shrink was admitted), using (it does now), registered (by a rule), evacuation (its commits prove
the evacuation of a compacted topic) and ignored (not waited for until it commits); unread, held_up and waived by
retired partition: the offsets it has still to consume, the reason code for which it holds the partition up, the reason
of the waiver by which it does not. rules has, expired ones too,
  {"kind", "group", "glob", "topic", "reason", "created_ms", "expires_ms", "uncommitted_only", "expired"}
Fields may be added.
"""

_BECAUSE = {
    "noted": "used the topic when the shrink was admitted",
    "using": "uses the topic",
    "registered": "registered",
    "evacuation": "proves the evacuation",
    "ignored": "not required: ignored until it commits (modeaware.ignored.groups)",
}


def groups_text(topics: Iterable[TopicGroups], rules: Sequence[GroupRule], now_ms: int) -> str:
    """Each topic with its groups, then all rules."""
    blocks: list[str] = [printable_lines(_topic_lines(topic)) for topic in topics]
    if not blocks:
        blocks = ["No topic is in a change: nobody is waited for. (--topic shows who would be.)"]
    return "\n\n".join([*blocks, printable_lines(_rule_lines(rules, now_ms))])


def groups_json(topics: Iterable[TopicGroups], rules: Iterable[GroupRule], now_ms: int) -> dict[str, Any]:
    """As :data:`LIST_JSON_HELP` documents it."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "phase": topic.phase,
                "retired": list(topic.retired),
                "doubt": topic.doubt,
                "groups": [_group_json(group) for group in topic.groups],
            }
            for topic in topics
        ],
        "rules": [
            {
                "kind": rule.kind,
                "group": rule.group,
                "glob": rule.glob,
                "topic": rule.topic,
                "reason": rule.reason,
                "created_ms": rule.created_ms,
                "expires_ms": rule.expires_ms,
                "uncommitted_only": rule.uncommitted_only,
                "expired": _expired(rule, now_ms),
            }
            for rule in rules
        ],
    }


def rule_text(rule: GroupRule) -> str:
    """A rule in one line."""
    about = f"Topics {rule.topic!r}: "
    if rule.kind == REQUIRE:
        listed = "as far as it is listed" if rule.glob else "listed or not"
        about += f"{_named(rule)} must have consumed what is deleted, {listed}"
    elif rule.kind == CLOSED:
        about += "the groups that are registered or seen are taken for all there are"
    else:
        about += f"{_named(rule)} is not waited for"
        about += " where it has never committed" if rule.uncommitted_only else ""
    until = "" if rule.expires_ms is None else f", until {utc(rule.expires_ms)}"
    return f"{about}{until}" + (f" ({rule.reason})." if rule.reason else ".")


def _named(rule: GroupRule) -> str:
    return f"each group that matches the glob {rule.group!r}" if rule.glob else f"group {rule.group!r}"


def given_up(before: Sequence[TopicGroups], after: Sequence[TopicGroups], waiver: GroupRule) -> list[str]:
    """What a waiver gives up now: per topic, the groups it frees from and what these have not read.

    Args:
        before, after: the same topics, without and with the waiver.
    """
    lines = []
    for topic, waived in zip(before, after, strict=True):
        if waiver not in waived.rules:  # it is for other topics
            continue
        freed = [line for group in waived.groups if (line := _freed(group, waiver)) is not None]
        prefix = f"{topic.topic}: "
        lines += [prefix + line for line in freed] or [f"{prefix}no group is waited for less by it now."]
    return lines or ["No topic that is in a change matches: it holds for shrinks to come."]


def _freed(group: GroupReport, waiver: GroupRule) -> str | None:
    partitions = sorted(p for p, rule in group.waived.items() if rule == waiver)
    if not partitions:
        return None
    unread = {p: group.unread.get(p, 0) for p in partitions if group.unread.get(p, 0) > 0}
    if not unread:
        return f"group {group.group!r} has read partitions {format_ranges(partitions)}: nothing is given up."
    return (
        f"group {group.group!r} has not read {number(sum(unread.values()))} offsets of partitions "
        f"{format_ranges(sorted(unread))}: they are given up, and may be deleted."
    )


def _topic_lines(topic: TopicGroups) -> list[str]:
    retired = format_ranges(topic.retired) if topic.retired else "none"
    lines = [f"Topic: {topic.topic}  Phase: {topic.phase}  Retired: {retired}"]
    if topic.doubt is not None:
        lines.append(f"  There may be more groups than these, so nothing is deleted: {topic.doubt}")
    if not topic.groups:
        return [*lines, "  No group uses it."]
    rows = [_row(group, bool(topic.retired)) for group in topic.groups]
    headings = ("Group", "Kind", "Unread", "Because", "Stands in the way")
    return lines + ["  " + line for line in table(headings, rows, {"Unread"})]


def _row(group: GroupReport, retired: bool) -> tuple[str, ...]:
    kind = (group.kind or "not listed") + (", keeps state" if group.stateful else "")
    because = ", ".join(_BECAUSE[word] for word in group.because)
    return (group.group, kind, number(sum(group.unread.values())) if retired else "-", because, _verdict(group))


def _verdict(group: GroupReport) -> str:
    told = []
    for reason in dict.fromkeys(group.held_up.values()):
        partitions = format_ranges(sorted(p for p, held in group.held_up.items() if held == reason))
        told.append(f"{partitions}: {reasons.text(reason)}")
    for rule in dict.fromkeys(group.waived.values()):
        partitions = format_ranges(sorted(p for p, waiver in group.waived.items() if waiver == rule))
        told.append(f"{partitions}: no, waived ({rule.reason})")
    if group.stateful and group.accepted:
        told.append("the loss of its state is accepted")
    return "; ".join(told) or "no"


def _rule_lines(rules: Sequence[GroupRule], now_ms: int) -> list[str]:
    if not rules:
        return ["There are no rules about groups."]
    rows = [
        (
            rule.kind + (" (glob)" if rule.glob else "") + (" (uncommitted only)" if rule.uncommitted_only else ""),
            rule.group or "-",
            rule.topic,
            _until(rule, now_ms),
            rule.reason or "-",
        )
        for rule in rules
    ]
    return ["Rules:", *("  " + line for line in table(("Kind", "Group", "Topic", "Until", "Reason"), rows))]


def _until(rule: GroupRule, now_ms: int) -> str:
    if rule.expires_ms is None:
        return "forgotten"
    return utc(rule.expires_ms) + (" (expired)" if _expired(rule, now_ms) else "")


def _expired(rule: GroupRule, now_ms: int) -> bool:
    return rule.expires_ms is not None and rule.expires_ms <= now_ms


def _group_json(group: GroupReport) -> dict[str, Any]:
    return {
        "group": group.group,
        "kind": group.kind,
        "has_members": group.has_members,
        "stateful": group.stateful,
        "state_loss_accepted": group.accepted,
        "required": group.required,
        "because": list(group.because),
        "unread": {str(p): count for p, count in group.unread.items()},
        "held_up": {str(p): reason for p, reason in group.held_up.items()},
        "waived": {str(p): rule.reason for p, rule in group.waived.items()},
    }


_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+)([smhdw])")
_FORMS = "a duration (90s, 30m, 12h, 7d, 2w) or an ISO time (2030-01-31T18:00:00Z; UTC where it names no zone)"


def expiry(text: str, now_ms: int) -> int:
    """The time in ms since the epoch: a duration from now, or an ISO time.

    Raises:
        ValueError: it is neither, or not in the future.
    """
    if found := _DURATION.fullmatch(text.strip()):
        expires_ms = now_ms + int(found[1]) * _UNITS_MS[found[2]]
    else:
        expires_ms = _iso_ms(text.strip())
    if expires_ms <= now_ms:
        raise ValueError(f"{text!r} is not in the future")
    if expires_ms > LATEST_MS:
        raise ValueError(f"{text!r} is beyond the year 9999")
    return expires_ms


def _iso_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {_FORMS}") from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
