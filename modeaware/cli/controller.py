"""``modeaware controller``: run a controller of a cluster, active or standing by."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from modeaware.cli.options import (
    Connection,
    add_connection_options,
    add_controller_config_option,
    connect,
    connection,
    controller_config,
    kafka_errors,
)
from modeaware.cli.progress import aside
from modeaware.controller.contact import DEFAULT_LISTEN, default_listen
from modeaware.controller.daemon import Controller as Daemon
from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.monitoring.pages import ControllerPages
from modeaware.monitoring.server import MonitoringServer, check_listen

_LOOKS = 2
"""How often the brokers are looked for at the start: a look gives up after some ten seconds."""


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
            metavar="HOST:PORT",
            help="where the endpoint listens, which tells clients the modes and takes admin commands: port 0 for any "
            f"free one, 'none' for no endpoint (default {DEFAULT_LISTEN}; none where security.protocol is SSL)",
        )
        parser.add_argument(
            "--advertised-listener", metavar="HOST:PORT", help="by which clients reach it (default: where it listens)"
        )
        parser.add_argument(
            "--tls-certificate", metavar="FILE", help="PEM, the endpoint's certificate with its chain (default: no TLS)"
        )
        parser.add_argument(
            "--tls-key", metavar="FILE", help="PEM, its private key (default: it is in the certificate's file)"
        )
        parser.add_argument(
            "--http",
            metavar="HOST:PORT",
            help="serve /metrics, /health, /ready and a read-only status page there, without TLS and to whoever can "
            "connect: 127.0.0.1:9404, say (default: not at all)",
        )
        parser.add_argument("--once", action="store_true", help="take every topic as far as it goes now, then exit")
        parser.add_argument("--verbose", action="store_true", help="log more")

    def run(self, args: argparse.Namespace) -> int:
        level = logging.DEBUG if args.verbose else logging.INFO
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(message)s", level=logging.WARNING)
        logging.getLogger("modeaware").setLevel(level)
        if not args.verbose:  # it tells each connection that fails in several lines; ours say what could not be asked
            logging.getLogger("kafka").setLevel(logging.CRITICAL)
        if args.http is not None:
            check_listen(args.http)
        target = connection(args, defaults={} if args.verbose else {"log_level": 0})
        config = controller_config(args, target.config)
        if args.once and args.http is not None:
            raise ConfigError("--http with --once: nobody would have the time to look. Leave one of them out")
        signal.signal(signal.SIGTERM, _stop)
        try:
            with kafka_errors("run the controller"):
                _connect(target, 1 if args.once else _LOOKS)
                daemon = Daemon(
                    target.conf,
                    config,
                    listen=None if args.once else _listen(args.listen, target.conf),
                    advertised=args.advertised_listener,
                    tls_certificate=args.tls_certificate,
                    tls_key=args.tls_key,
                )
                if args.once:
                    aside(daemon.run_once, daemon.stop)
                else:
                    with _watched(daemon, args.http):
                        daemon.run_forever()
        except KeyboardInterrupt:
            logging.getLogger(__name__).info("stopped")
        return 0


@contextmanager
def _watched(daemon: Daemon, http: str | None) -> Iterator[None]:
    """Have the controller watched by HTTP meanwhile, if it is to be.

    Raises:
        ConfigError: the address cannot be used.
    """
    if http is None:
        yield
        return
    server = MonitoringServer(http, ControllerPages(daemon.snapshot))
    server.start()
    try:
        yield
    finally:
        server.stop()


def _connect(target: Connection, looks: int) -> None:
    """See that the brokers can be reached, before anything is promised.

    Raises:
        ClusterError: they cannot. No answer is asked for again: all of them may just be restarted.
    """
    for left in range(looks - 1, -1, -1):
        try:
            connect(target).close()
            return
        except ClusterError as error:
            if not left or error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            logging.getLogger(__name__).warning("%s; trying once more", error)


def _listen(asked: str | None, conf: Mapping[str, Any]) -> str | None:
    if asked is not None:
        return None if asked == "none" else asked
    listen = default_listen(conf)
    if listen is None:
        logging.getLogger(__name__).warning(
            "no endpoint: with security.protocol=SSL it could not show the brokers who asks. Commands are carried out "
            "by the CLI itself while no controller runs"
        )
    return listen


def _stop(number: int, frame: FrameType | None) -> None:
    """SIGTERM means what Ctrl-C means: leave the wait, stop in good order."""
    raise KeyboardInterrupt
