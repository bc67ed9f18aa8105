"""``modeaware controller``: run a controller of a cluster, active or as a standby."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from types import FrameType
from typing import Any

from modeaware.callouts import get_logger
from modeaware.cli import Command
from modeaware.cli.progress import run_interruptibly
from modeaware.cli.session import (
    Connection,
    add_connection_options,
    add_controller_config_option,
    add_flags,
    connect,
    connection,
    kafka_errors,
)
from modeaware.controller.daemon import DEFAULT_LISTEN, Controller, default_listen
from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.monitoring.pages import ControllerPages
from modeaware.monitoring.server import MonitoringServer, check_listen

logger = get_logger(__name__)


class RunController(Command):
    """Any number of controllers may run; one is active. Each prints its role on standard error: ``active: epoch N``,
    or ``standby:`` and the active controller.

    Exit status: 0 stopped by SIGTERM or Ctrl-C, or ``--once`` is done; 1 an error, or ``--once`` while another
    controller is active.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_connection_options(parser)
        add_controller_config_option(parser, "--config")
        parser.add_argument(
            "--listen",
            metavar="HOST:PORT",
            help="the address of the endpoint, which serves the modes to clients and accepts admin commands; port 0: "
            f"any free port; none: no endpoint (default: {DEFAULT_LISTEN}; none if security.protocol is SSL)",
        )
        parser.add_argument(
            "--advertised-listener", metavar="HOST:PORT", help="the address that clients use (default: --listen)"
        )
        parser.add_argument(
            "--tls-certificate", metavar="FILE", help="PEM, the endpoint's certificate with its chain (default: no TLS)"
        )
        parser.add_argument(
            "--tls-key", metavar="FILE", help="PEM, the certificate's private key (default: in the certificate's file)"
        )
        parser.add_argument(
            "--http",
            metavar="HOST:PORT",
            help="serve /metrics, /health, /ready and a read-only status page at this address, without TLS or "
            "authentication, for example 127.0.0.1:9404 (default: not served)",
        )
        add_flags(parser, once="advance every topic as far as possible now, then exit", verbose="log more")

    def run(self, args: argparse.Namespace) -> int:
        level = logging.DEBUG if args.verbose else logging.INFO
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(message)s", level=logging.WARNING)
        logging.getLogger("modeaware").setLevel(level)
        if not args.verbose:  # kafka-python logs several lines for each failed connection; the controller's are enough
            logging.getLogger("kafka").setLevel(logging.CRITICAL)
        if args.http is not None:
            check_listen(args.http)
        target = connection(args, log_level=None if args.verbose else 0)
        if args.once and args.http is not None:
            raise ConfigError(
                "--http with --once: the command ends before a client could connect. Leave one of them out"
            )
        signal.signal(signal.SIGTERM, _stop)
        try:
            with kafka_errors("run the controller"):
                _connect(target, 1 if args.once else 2)  # one attempt lasts some ten seconds
                controller = Controller(
                    target.conf,
                    target.controller,
                    listen=None if args.once else _listen(args.listen, target.conf),
                    advertised=args.advertised_listener,
                    tls_certificate=args.tls_certificate,
                    tls_key=args.tls_key,
                )
                if args.once:
                    run_interruptibly(controller.run_once, controller.stop)
                    return 0
                with ExitStack() as stack:
                    if args.http is not None:
                        server = MonitoringServer(args.http, ControllerPages(controller.snapshot))
                        server.start()
                        controller.serves_pages_at(server.reachable_address)
                        stack.callback(server.stop)
                    controller.run_forever()
        except KeyboardInterrupt:
            logger.info("stopped")
        return 0


def _connect(target: Connection, attempts: int) -> None:
    """Fail early if no broker answers. A timeout is retried, because all brokers may be restarting."""
    for left in range(attempts - 1, -1, -1):
        try:
            with connect(target):
                return
        except ClusterError as error:
            if not left or error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            logger.warning("%s; trying once more", error)


def _listen(asked: str | None, conf: Mapping[str, Any]) -> str | None:
    if asked is not None:
        return None if asked == "none" else asked
    listen = default_listen(conf)
    if listen is None:
        logger.warning(
            "no endpoint: with security.protocol=SSL an endpoint cannot authenticate clients to the brokers. While "
            "this controller runs, commands cannot change topics. For an endpoint, reach the brokers by SASL_SSL"
        )
    return listen


def _stop(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C: the controller stops cleanly."""
    raise KeyboardInterrupt
