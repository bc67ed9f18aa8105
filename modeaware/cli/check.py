"""``modeaware check``: whether a role has the rights it needs; ``certificate``: whether partitions were drained."""

from __future__ import annotations

import argparse
import sys

from modeaware.cli import Command
from modeaware.cli.session import (
    Connection,
    add_connection_options,
    add_controller_config_option,
    add_flags,
    connection,
    open_session,
)
from modeaware.errors import ConfigError
from modeaware.printable import printable, printable_lines
from modeaware.reports.certificate import Certificate, take_certificate
from modeaware.reports.needs import Role, Scope
from modeaware.reports.rights import PLACEHOLDER, CheckReport, Site, check, check_text
from modeaware.reports.serialise import json_help, json_text

FAILED = 3
"""The exit status if a check has failed, or a partition is not drained."""


class Check(Command):
    """Prints which checks pass and which fail; changes nothing."""

    epilog = f"""\
Sends requests to the brokers as the user of --command-config, and changes nothing. Prints a line for each right or
setting: pass, fail, or unknown with the cause. Then prints the commands of kafka-acls.sh that grant the missing rights,
and the effect of each missing right. docs/permissions.md describes the rights.

A client is a producer of its topics, or with --group a consumer. Check a client that is both in two runs. Without TOPIC
only the rights are checked that the role needs because of modeaware. A client needs no right on the mode log if a
bootstrap server returns the modes (the controller's endpoint does).

{json_help(CheckReport)}
Exit status: 0 if nothing fails; {FAILED} if something does; 1 for an error, for example if no broker answers.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        what = "a topic to be shrunk or replaced, or used by the client"
        parser.add_argument("topics", metavar="TOPIC", nargs="*", help=what)
        add_connection_options(parser)
        roles = [role.value for role in Role]
        parser.add_argument("--role", required=True, choices=roles, help="the role whose rights are checked")
        for name, text in (
            ("group", "a consumer group that uses the topics; for a client, its own group"),
            ("transactional-id", "the client's own transactional id"),
            ("new-topic", "a new topic that is to replace a TOPIC"),
        ):
            text += "; may be repeated"
            parser.add_argument(f"--{name}", action="append", default=[], metavar=name.upper(), help=text)
        add_controller_config_option(parser, "--config", " (those that the controller will have)")
        closed = "the lists of the topics' groups are closed (modeaware groups closed), so hidden groups are accepted"
        add_flags(parser, closed_groups=closed, json="print one JSON object")
        parser.add_argument(
            "--principal",
            metavar="User:NAME",
            help=f"the user that the commands grant rights to (default: User: and sasl.username, else {PLACEHOLDER})",
        )

    def run(self, args: argparse.Namespace) -> int:
        target = connection(args)
        scope, site = _scope(args, target), _site(args, target)
        with open_session(args, "check the rights") as session:
            report = check(session.cluster.brokers, scope, session.conf, site)
        print(json_text(report) if args.json else printable_lines(check_text(report, site)))
        return 0 if report.passed else FAILED


def _scope(args: argparse.Namespace, target: Connection) -> Scope:
    """Return the scope. Raise ConfigError for an empty name, or for an option of another role."""
    role = Role(args.role)
    if not all((*args.topics, *args.group, *args.transactional_id, *args.new_topic)):
        raise ConfigError("empty name of a topic, group or transactional id: name it, or leave the argument out")
    if role is not Role.CLIENT and args.transactional_id:
        raise ConfigError(f"--transactional-id works only with --role client, not with --role {role.value}")
    if args.transactional_id and args.group:
        raise ConfigError(
            "--transactional-id and --group exclude each other: check a client that reads and writes in two runs, with "
            "--group for its input topics and with --transactional-id for its output topics"
        )
    if role is Role.CLIENT and args.new_topic:
        raise ConfigError("--new-topic is for controllers and operators; clients create no topics")
    if role is Role.CLIENT and args.closed_groups:
        raise ConfigError("--closed-groups is for controllers and operators; clients do not list groups")
    return Scope(
        role,
        target.controller.mode_log_topic,
        tuple(args.topics),
        tuple(args.group),
        tuple(args.transactional_id),
        tuple(args.new_topic),
        closed=args.closed_groups,
        mode_source=target.config.mode_source,
        session_timeout_ms=target.controller.session_timeout_ms,
    )


def _site(args: argparse.Namespace, target: Connection) -> Site:
    user = target.conf.get("sasl.username")
    principal = args.principal or (f"User:{user}" if user else PLACEHOLDER)
    if ":" not in principal:
        principal = f"User:{principal}"
    secured = str(target.conf.get("security.protocol", "")).upper() not in ("", "PLAINTEXT")
    return Site(str(target.conf["bootstrap.servers"]), principal, secured)


class PrintCertificate(Command):
    """Prints the certificate; changes nothing."""

    epilog = f"""\
{json_help(Certificate, "Prints one JSON object:")}
If TOPIC has no retired partitions, the certificate is that of a deleted topic: the one that had the name before, or the
one that TOPIC has replaced.

Exit status: 0 if every partition is drained or reclaimed, and a replaced topic was released behind its fence;
{FAILED} if not; 1 for an error.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC")
        add_connection_options(parser)
        parser.add_argument(
            "--partition",
            type=int,
            action="append",
            metavar="P",
            help="only this partition, may be repeated (default: all that are retired)",
        )
        add_controller_config_option(parser, "--controller-config", " (those that the running controller has)")

    def run(self, args: argparse.Namespace) -> int:
        with open_session(args, "take the certificate") as session:
            certificate = take_certificate(session, args.topic, args.partition)
        print(json_text(certificate))
        topic = certificate.topic
        if topic != args.topic:
            text = f"{args.topic}: this is the certificate of {topic}, which {args.topic} has replaced"
            print(printable(text), file=sys.stderr)
        for partition in certificate.partitions:
            if partition.verdict_reason is not None:
                print(printable(f"{topic}-{partition.partition}: {partition.verdict}"), file=sys.stderr)
        for line in (certificate.objection, certificate.not_checked):
            if line is not None:
                print(printable(f"{topic}: {line}"), file=sys.stderr)
        return 0 if certificate.all_drained else FAILED
