"""``modeaware status``: every change under way, what blocks it, and the command to run next."""

from __future__ import annotations

import argparse
from functools import partial

from modeaware.cli import Command
from modeaware.cli.session import add_connection_options, add_flags, command_line, open_session
from modeaware.errors import ControllerUnavailable
from modeaware.modelog.records import ClaimRecord
from modeaware.printable import printable, printable_lines
from modeaware.reports.describe import describe_all_parts
from modeaware.reports.serialise import json_help, json_text
from modeaware.reports.session import Session
from modeaware.reports.status import StatusReport, status_report, status_text
from modeaware.wire.client import is_running


class Status(Command):
    """Prints one table; changes nothing."""

    epilog = f"""\
{json_help(StatusReport)}
`modeaware topics --describe --topic TOPIC` shows a change in full, with the cause and remedy of each wait.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topics", metavar="TOPIC", nargs="*", help="only these topics (default: all)")
        add_connection_options(parser)
        add_flags(parser, json="print JSON, see below")

    def run(self, args: argparse.Namespace) -> int:
        with open_session(args, "read the changes") as session:
            log = session.read_log()
            topics = describe_all_parts(session, args.topics or None, log)
            runs = _controller_runs(session, log.claim)
        report = status_report(topics, partial(command_line, args), runs)
        if args.json:
            print(json_text(report))
        elif not report.changes:
            print("No change is under way.")
        else:
            print(printable_lines(status_text(report)))
            if runs is False:
                start = command_line(args, "modeaware", "controller")
                print(printable(f"No controller is running: these changes pause. Start one: {start}"))
        return 0


def _controller_runs(session: Session, claim: ClaimRecord | None) -> bool | None:
    try:
        return is_running(session.conf, claim)
    except ControllerUnavailable:  # unknown from this host, or as this user
        return None
