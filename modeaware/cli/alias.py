"""``modeaware alias``: the names of deleted old topics, which point to the topics that have replaced them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from modeaware.cli import Command, add_action
from modeaware.cli.embedded import forget_alias
from modeaware.cli.progress import status_without_change, tell
from modeaware.cli.session import (
    add_confirmation_options,
    add_connection_options,
    add_controller_config_option,
    add_flags,
    open_session,
)
from modeaware.cluster.cluster import TopicShape
from modeaware.lifecycle.alias import alias_of, is_new_topic
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.reasons import POINTS_NOWHERE
from modeaware.modelog.records import replaced
from modeaware.reports.serialise import json_help, json_text
from modeaware.reports.session import ModeLog, Session

_ACTIONS = {
    "list": "list the aliases and the topics that they point to",
    "forget": "remove an alias, so that the name points to no topic",
}


@dataclass(frozen=True)
class AliasReport:
    """One alias.

    Attributes:
        alias: the name.
        points_to: the topic that clients use under the name.
        topic_id: the id of the deleted topic.
        since_ms: when a controller found the topic deleted, in ms since the epoch.
        taken_by: the id of another topic that has the name now; clients do not use that topic. Null if there is none.
        reason: the problem that the controller has found, ``name-taken`` or ``points-nowhere``
            (docs/replace-reference.md); null if there is none.
    """

    alias: str
    points_to: str
    topic_id: str
    since_ms: int | None
    taken_by: str | None
    reason: str | None


@dataclass(frozen=True)
class AliasesReport:
    """The aliases of a cluster.

    Attributes:
        aliases: a list of objects, by name.
    """

    aliases: tuple[AliasReport, ...]


class Aliases(Command):
    """``list`` and ``forget``."""

    actions = tuple(_ACTIONS)

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        for name, text in _ACTIONS.items():
            action = add_action(actions, name, text)
            action.set_defaults(action=name)
            if name == "list":
                action.epilog = json_help(AliasesReport)
                add_flags(action, json="print JSON, see below")
            else:
                action.add_argument("topic", metavar="TOPIC", help="the alias")
                add_confirmation_options(action)
            add_connection_options(action)
            note = " (pass the values of the running controller; if none runs, those of the next one)"
            add_controller_config_option(action, "--controller-config", note)

    def run(self, args: argparse.Namespace) -> int:
        with open_session(args, "list the aliases") as session:
            return _list(args, session) if args.action == "list" else _forget(args, session)


def _list(args: argparse.Namespace, session: Session) -> int:
    report = _report(session, session.read_log())
    if args.json:
        print(json_text(report))
    for alias in () if args.json else report.aliases:
        taken = f"; another topic (id {alias.taken_by}) has the name now" if alias.taken_by is not None else ""
        deleted = (
            f"; {alias.points_to} was deleted: move the clients to another name, then remove the alias"
            if alias.reason == POINTS_NOWHERE
            else ""
        )
        print(f"{alias.alias} -> {alias.points_to}{taken}{deleted}")
    return 0


def _report(session: Session, log: ModeLog) -> AliasesReport:
    aliases = (alias for alias in replaced(log.replaced) if alias.record.is_alias)
    ordered = sorted(aliases, key=lambda alias: alias.record.topic)
    shapes = session.cluster.describe(record.topic for record, _ in ordered)
    reports = []
    for record, to in ordered:
        shape = shapes[record.topic]
        topic_id = shape.topic_id if isinstance(shape, TopicShape) else record.topic_id
        is_other = topic_id != record.topic_id and not is_new_topic(record.topic, topic_id, log.replaced)
        taken_by = topic_id if is_other else None
        reports.append(AliasReport(record.topic, to.new_topic, record.topic_id, to.gone_ms, taken_by, to.reason))
    return AliasesReport(tuple(reports))


def _forget(args: argparse.Namespace, session: Session) -> int:
    """Forget an alias. A request that the controller would refuse is refused before the question."""
    topic, log = args.topic, session.read_log()
    facts = session.observer().observe(topic, None, log.rules)
    points_to = log.points_to(topic) or ""
    command = ReplaceTopicCommand(topic, points_to, 1, forget=True)
    alias_of(command, facts, log.replaced)
    tell(*_consequences(topic, points_to, facts))
    if (status := status_without_change(dry_run=args.dry_run, yes=args.yes)) is not None:
        return status
    forget_alias(session, log.claim, command)
    print(f"{topic}: forgotten.")
    return 0


def _consequences(topic: str, points_to: str, facts: TopicFacts) -> list[str]:
    what = "No topic has the name: clients that still use the name will fail, or make brokers create the topic."
    if facts.topic_id is not None:
        what = f"Another topic (id {facts.topic_id}) has the name: clients that use the name will read and write it."
    return [f"{topic}: the name will no longer point to {points_to}. {what}"]
