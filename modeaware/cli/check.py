"""``modeaware check``: what a role needs on this cluster, and whether this user has it."""

from __future__ import annotations

import argparse
import json

from modeaware.cli.options import (
    Connection,
    add_connection_options,
    add_controller_config_option,
    connect,
    connection,
    controller_config,
    kafka_errors,
)
from modeaware.errors import ConfigError
from modeaware.printable import printable_lines
from modeaware.reports.rights.needs import Role, Scope
from modeaware.reports.rights.report import check
from modeaware.reports.rights.told import PLACEHOLDER, Site, as_json, as_text

FAILED = 3
_PLAIN = ("", "PLAINTEXT")
HELP = """\
Asks the brokers as the user of --command-config, and changes nothing. One line a right or setting: pass, fail, or
unknown (not named, or the brokers do not tell). Then the commands of kafka-acls.sh that grant what is missing, and what
is lost without it. The rights are those of docs/permissions.md.

A client is a producer of its topics, or with --group a consumer (check one that is both in two runs); without --topic
only what modeaware adds is checked. It needs nothing on the mode log where a bootstrap server tells the modes: the
controller's endpoint does.

--json prints one object:
  {"role", "principal", "bootstrap_servers", "mode_log_topic", "mode_log_missing", "passed", "rights", "settings",
   "commands", "notes"}
rights has {"state", "resource", "name", "operation", "for", "detail", "command"}, settings {"state", "name", "detail"}.
Fields may be added.

Exit status: 0 if nothing fails; 3 if something does; 1 for an error, such as no broker that answers.
"""


class Check:
    """Prints what passes and what fails; changes nothing."""

    name = "check"
    help = "tell whether a client, controller or operator has every right it needs, with the ACLs to add"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = HELP
        add_connection_options(parser)
        roles = [role.value for role in Role]
        parser.add_argument("--role", required=True, choices=roles, help="whose rights are checked")
        _names(parser, "--topic", "a topic to be shrunk, or used by the client")
        _names(parser, "--group", "a consumer group that uses the topics; the client's own")
        _names(parser, "--transactional-id", "a client's own")
        add_controller_config_option(parser, "--config", " (those that the controller will have)")
        parser.add_argument(
            "--closed-groups",
            action="store_true",
            help="the lists of the topics' groups are closed (modeaware groups closed): not all groups need be seen",
        )
        parser.add_argument(
            "--principal",
            metavar="User:NAME",
            help=f"whom the commands grant rights (default: User: and sasl.username, else {PLACEHOLDER})",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        target = connection(args, defaults={"log_level": 0})
        scope = _scope(args, target)
        site = _site(args, target)
        with kafka_errors("check the rights"):
            cluster = connect(target)
            try:
                report = check(cluster.brokers, scope, target.conf)
            finally:
                cluster.close()
        if args.json:
            print(json.dumps(as_json(report, site), indent=2))
        else:
            print(printable_lines(as_text(report, site)))
        return 0 if report.passed else FAILED


def _names(parser: argparse.ArgumentParser, flag: str, text: str) -> None:
    parser.add_argument(
        flag, action="append", default=[], metavar=flag.strip("-").upper(), help=f"{text}; may be repeated"
    )


def _scope(args: argparse.Namespace, target: Connection) -> Scope:
    """
    Raises:
        ConfigError: an empty name, an option of another role, or a bad config.
    """
    role = Role(args.role)
    if not all((*args.topic, *args.group, *args.transactional_id)):
        raise ConfigError("a name cannot be empty")
    if role is not Role.CLIENT and args.transactional_id:
        raise ConfigError(f"--transactional-id is a client's: a {role.value} has one of its own")
    if args.transactional_id and args.group:
        raise ConfigError(
            "--transactional-id and --group: check a client that reads and writes in two runs, one for the topics it "
            "reads with --group, one for those it writes with --transactional-id"
        )
    if role is Role.CLIENT and args.closed_groups:
        raise ConfigError("--closed-groups is for controllers and operators: a client looks at no groups")
    config = controller_config(args, target.config)
    return Scope(
        role,
        config.mode_log_topic,
        tuple(args.topic),
        tuple(args.group),
        tuple(args.transactional_id),
        closed=args.closed_groups,
        mode_source=target.config.mode_source,
        session_timeout_ms=config.session_timeout_ms,
    )


def _site(args: argparse.Namespace, target: Connection) -> Site:
    user = target.conf.get("sasl.username")
    principal = args.principal or (f"User:{user}" if user else PLACEHOLDER)
    if ":" not in principal:
        principal = f"User:{principal}"
    secured = str(target.conf.get("security.protocol", "")).upper() not in _PLAIN
    return Site(target.bootstrap_server, principal, secured)
