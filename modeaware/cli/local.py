"""``modeaware local up|down|status``: a Kafka on this machine that stays until it is told to go."""

from __future__ import annotations

import argparse
import json
import logging

from modeaware.local import detached
from modeaware.local.cluster import MOST_NODES


class Local:
    """Exit status of ``status``: 0 when all brokers run, 1 else."""

    name = "local"
    help = "run a real Kafka on this machine to try things out"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="up|down|status", required=True)
        up = actions.add_parser("up", help="start it (the first time this downloads Apache Kafka, about 45 MB)")
        up.add_argument(
            "--nodes", type=int, default=1, choices=range(1, MOST_NODES + 1), help="how many brokers (default 1)"
        )
        up.add_argument(
            "--config",
            action="append",
            default=[],
            type=_setting,
            metavar="KEY=VALUE",
            help="a broker setting, may be repeated",
        )
        down = actions.add_parser("down", help="stop it and remove its data")
        status = actions.add_parser("status", help="show its brokers; exit status 1 unless all run")
        for action in (up, down, status):
            action.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        actions = {"up": self._up, "down": self._down, "status": self._status}
        return actions[args.action](args)

    def _up(self, args: argparse.Namespace) -> int:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("modeaware.local").setLevel(logging.INFO)  # the first time takes a while: say why
        kafka, started = detached.up(args.nodes, dict(args.config))
        if args.json:
            _print_json(kafka)
        else:
            print(f"Kafka {'runs' if started else 'was already running'} at {kafka.bootstrap_servers}")
            print(f"export KAFKA_BOOTSTRAP_SERVERS={kafka.bootstrap_servers}")
        return 0

    def _down(self, args: argparse.Namespace) -> int:
        found = detached.down()
        if args.json:
            _print_json(detached.DetachedKafka(()))
        else:
            print(f"Stopped {len(found.brokers)} broker(s)" if found.brokers else "No local Kafka to stop")
        return 0

    def _status(self, args: argparse.Namespace) -> int:
        kafka = detached.status()
        if args.json:
            _print_json(kafka)
        elif not kafka.brokers:
            print("No local Kafka: modeaware local up")
        for broker in [] if args.json else kafka.brokers:
            state = f"pid {broker.pid}" if broker.pid is not None else "not running"
            print(f"broker {broker.node_id}  {broker.address}  {state}  {broker.log_path}")
        return 0 if kafka.healthy else 1


def _print_json(kafka: detached.DetachedKafka) -> None:
    brokers = [{**broker._asdict(), "log_path": str(broker.log_path)} for broker in kafka.brokers]
    report = {"running": kafka.healthy, "bootstrap_servers": kafka.bootstrap_servers, "brokers": brokers}
    print(json.dumps(report, indent=2))


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
