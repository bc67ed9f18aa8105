"""``modeaware groups``: whom a drain waits for, and the operator's rules about that."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from modeaware.cli.confirm import confirmed
from modeaware.cli.embedded import alter_group_rules, tell
from modeaware.cli.expiry import expiry
from modeaware.cli.group_situation import GroupSituation, look_at_topics
from modeaware.cli.group_text import LIST_JSON_HELP, given_up, groups_json, groups_text, rule_text
from modeaware.cli.options import (
    Connection,
    add_connection_options,
    add_controller_config_option,
    connect,
    connection,
    controller_config,
    kafka_errors,
)
from modeaware.clock import SYSTEM_CLOCK
from modeaware.config import ControllerConfig
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.group_rules import alter_group_rules as check_rules
from modeaware.modelog.group_rules import CLOSED, KINDS, REQUIRE, WAIVE, GroupRule, GroupRulesRecord

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
