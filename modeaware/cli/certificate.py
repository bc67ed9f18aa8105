"""``modeaware certificate``: the proof that retired partitions were drained, for others to check."""

from __future__ import annotations

import argparse
import sys

from modeaware.cli import Command
from modeaware.cli.session import add_connection_options, add_controller_config_option, open_session
from modeaware.printable import printable
from modeaware.reports.certificate import Certificate, take_certificate
from modeaware.reports.serialise import json_help, json_text

NOT_DRAINED = 3


class PrintCertificate(Command):
    """Prints the certificate; changes nothing."""

    epilog = f"""\
{json_help(Certificate, "Prints one JSON object:")}
Exit status: 0 if every partition is drained or reclaimed; {NOT_DRAINED} if one is not; 1 for an error.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_connection_options(parser)
        parser.add_argument("--topic", required=True, metavar="TOPIC")
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
        for partition in certificate.partitions:
            if partition.reason is not None:
                print(printable(f"{args.topic}-{partition.partition}: {partition.verdict}"), file=sys.stderr)
        return 0 if certificate.all_drained else NOT_DRAINED
