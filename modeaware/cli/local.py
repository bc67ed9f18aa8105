"""``modeaware local up|down|status``: a Kafka on this machine that stays until ``down``."""

from __future__ import annotations

import argparse
import logging

from modeaware.cli import Command, key_value
from modeaware.local import cluster
from modeaware.local.cluster import MOST_NODES
from modeaware.reports.serialise import json_text


class Local(Command):
    """The exit status of ``status`` is 0 if all brokers run, and 1 otherwise."""

    actions = ("up", "down", "status")

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="up|down|status", required=True)
        up = actions.add_parser("up", help="start a local Kafka (the first start downloads Apache Kafka, about 45 MB)")
        nodes = range(1, MOST_NODES + 1)
        up.add_argument("--nodes", type=int, default=1, choices=nodes, help="how many brokers (default 1)")
        what = "a broker setting, may be repeated"
        up.add_argument("--config", action="append", default=[], type=key_value, metavar="KEY=VALUE", help=what)
        down = actions.add_parser("down", help="stop the local Kafka and remove its data")
        status = actions.add_parser("status", help="show the brokers; exit status 1 unless all run")
        for action in (up, down, status):
            action.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        actions = {"up": _up, "down": _down, "status": _status}
        kafka, lines = actions[args.action](args)
        if args.json:
            brokers = [broker._asdict() | {"log_path": str(broker.log_path)} for broker in kafka.brokers]
            report = {"running": kafka.healthy, "bootstrap_servers": kafka.bootstrap_servers, "brokers": brokers}
            print(json_text(report))
        else:
            print(*lines, sep="\n")
        return 0 if kafka.healthy or args.action != "status" else 1


def _up(args: argparse.Namespace) -> tuple[cluster.DetachedKafka, list[str]]:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("modeaware.local").setLevel(logging.INFO)  # its lines tell why a first start takes a while
    kafka, started = cluster.up(args.nodes, dict(args.config))
    return kafka, [
        f"Kafka {'runs' if started else 'was already running'} at {kafka.bootstrap_servers}",
        f"export KAFKA_BOOTSTRAP_SERVERS={kafka.bootstrap_servers}",
    ]


def _down(args: argparse.Namespace) -> tuple[cluster.DetachedKafka, list[str]]:
    stopped = len(cluster.down().brokers)
    return cluster.DetachedKafka(()), [f"Stopped {stopped} broker(s)" if stopped else "No local Kafka to stop"]


def _status(args: argparse.Namespace) -> tuple[cluster.DetachedKafka, list[str]]:
    kafka = cluster.status()
    lines = [
        f"broker {broker.node_id}  {broker.address}  "
        f"{f'pid {broker.pid}' if broker.pid is not None else 'not running'}  {broker.log_path}"
        for broker in kafka.brokers
    ]
    return kafka, lines or ["No local Kafka: modeaware local up"]
