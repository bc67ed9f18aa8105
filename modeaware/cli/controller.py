"""``modeaware controller``: run a controller of a cluster, active or standing by."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from types import FrameType

from modeaware.cli.options import (
    add_connection_options,
    add_controller_config_option,
    connect,
    connection,
    controller_config,
    kafka_errors,
)
from modeaware.controller.daemon import Controller as Daemon


class Controller:
    """Any number may run; one is active. Each says on standard error what it is: ``active: epoch N``, or ``standby:``
    and who is active.

    Exit status: 0 stopped by SIGTERM or Ctrl-C, or ``--once`` is through; 1 an error, or ``--once`` while another
    controller is active.
    """

    name = "controller"
    help = "run the controller that keeps the modes, or a standby that takes over from it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_connection_options(parser)
        add_controller_config_option(parser, "--config")
        parser.add_argument(
            "--listen",
            default="127.0.0.1:0",
            metavar="HOST:PORT",
            help="where admin commands are taken; a loopback address, port 0 for any free one (default %(default)s)",
        )
        parser.add_argument("--once", action="store_true", help="take every topic as far as it goes now, then exit")
        parser.add_argument("--verbose", action="store_true", help="log more")

    def run(self, args: argparse.Namespace) -> int:
        level = logging.DEBUG if args.verbose else logging.INFO
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(message)s", level=logging.WARNING)
        logging.getLogger("modeaware").setLevel(level)
        target = connection(args, defaults={} if args.verbose else {"log_level": 0})
        config = controller_config(args, target.config)
        signal.signal(signal.SIGTERM, _stop)
        try:
            with kafka_errors("run the controller"):
                connect(target)
                daemon = Daemon(target.conf, config, listen=None if args.once else args.listen)
                if args.once:
                    daemon.run_once()
                else:
                    daemon.run_forever()
        except KeyboardInterrupt:
            logging.getLogger(__name__).info("stopped")
        return 0


def _stop(number: int, frame: FrameType | None) -> None:
    """SIGTERM means what Ctrl-C means: leave the wait, stop in good order."""
    raise KeyboardInterrupt
