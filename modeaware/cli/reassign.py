"""``modeaware reassign-partitions``: Kafka's ``kafka-reassign-partitions``, its flags and its look, and some more.

Exit status as every command; with ``--wait`` also 1 where a partition is not where the plan wants it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from modeaware.admin.reassignment_json import Plan, parse_brokers, parse_plan, parse_topics
from modeaware.admin.reassignment_state import HEARD_PAUSES_S
from modeaware.admin.reassignments import PartitionKey, Replicas
from modeaware.cli.options import add_connection_options, connect, connection, delay_ms, kafka_errors
from modeaware.cli.reassign_actions import Execution, cancel, execute, generate, show_list, verify
from modeaware.cli.reassign_waiting import wait_for_plan
from modeaware.errors import ConfigError, RequestRefused
from modeaware.wire.brokers.client import Brokers

_REQUIRED = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}
_PERMITTED = {
    "generate": ("disable_rack_aware",),
    "execute": (
        "additional",
        "throttle",
        "replica_alter_log_dirs_throttle",
        "timeout",
        "disallow_replication_factor_change",
        "expected_json_file",
        "wait",
    ),
    "verify": ("preserve_throttles", "wait"),
    "cancel": ("preserve_throttles", "timeout"),
    "list": (),
}
_TIMEOUT_S = 10.0
_FORMATS = """
The file of --reassignment-json-file (version 1, as Kafka's tool takes and prints it; "log_dirs" may be left out):
  {"version":1,"partitions":[{"topic":"foo","partition":1,"replicas":[1,2,3],"log_dirs":["any","any","/disk2"]}]}
The file of --topics-to-move-json-file:
  {"version":1,"topics":[{"topic":"foo"},{"topic":"foo1"}]}
"""


class ReassignPartitions:
    """``--generate``, ``--execute``, ``--verify``, ``--cancel`` or ``--list``."""

    name = "reassign-partitions"
    help = "move partitions to other brokers, watch that, and cancel it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = _FORMATS
        add_connection_options(parser)
        actions = parser.add_mutually_exclusive_group(required=True)
        for name, told in (
            ("generate", "propose replicas for topics; changes nothing"),
            ("execute", "start what the file says; prints the way back first"),
            ("verify", "say how far the file's partitions are; when all is done, remove the throttles"),
            ("cancel", "cancel what is in progress of the file's partitions, and remove the throttles"),
            ("list", "list all that is in progress"),
        ):
            actions.add_argument(f"--{name}", dest="action", action="store_const", const=name, help=told)
        _add_files(parser)
        _add_settings(parser)

    def run(self, args: argparse.Namespace) -> int:
        self._check(args)
        plan = None
        if args.reassignment_json_file is not None:
            plan = parse_plan(_read(args.reassignment_json_file))
        target = connection(args, defaults={"log_level": 0})
        with kafka_errors("reassign partitions"), closing(connect(target)) as cluster:
            if args.action == "generate":
                topics = parse_topics(_read(args.topics_to_move_json_file))
                asked = parse_brokers(args.broker_list)
                generate(cluster.brokers, topics, asked, rack_aware=not args.disable_rack_aware)
            elif plan is None:
                show_list(cluster.brokers)
            elif args.action == "cancel":
                cancel(cluster.brokers, plan, preserve_throttles=args.preserve_throttles, timeout_s=_timeout_s(args))
            else:
                if args.action == "execute":
                    execute(cluster.brokers, _execution(args, plan))
                if args.wait:
                    return _wait(cluster.brokers, plan, args)
                if args.action == "verify":
                    verify(cluster.brokers, plan, preserve_throttles=args.preserve_throttles)
        return 0

    def _check(self, args: argparse.Namespace) -> None:
        for required in _REQUIRED[args.action]:
            if getattr(args, required) is None:
                self._parser.error(f"--{args.action} needs {_flag(required)}")
        allowed = (*_REQUIRED[args.action], *_PERMITTED[args.action])
        for option in sorted({each for table in (_REQUIRED, _PERMITTED) for some in table.values() for each in some}):
            value = getattr(args, option)
            if option not in allowed and value is not None and value is not False:
                self._parser.error(f'Option "{_flag(option)}" can\'t be used with action "--{args.action}"')


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reassignment-json-file", type=Path, metavar="FILE", help="the plan: which partition goes to which brokers"
    )
    parser.add_argument("--topics-to-move-json-file", type=Path, metavar="FILE", help="--generate: the topics to move")
    parser.add_argument("--broker-list", metavar="0,1,2", help="--generate: the brokers to use")
    parser.add_argument(
        "--expected-json-file",
        type=Path,
        metavar="FILE",
        help="--execute: compare-and-set: reassign a partition only if its replicas are those of this plan (what "
        "--generate or --execute printed as current) on every live broker, and it is not being reassigned",
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--disable-rack-aware", action="store_true", help="--generate: take no notice of racks")
    parser.add_argument(
        "--throttle",
        type=_rate,
        metavar="BYTES",
        help="--execute: move no more than so many bytes per second between brokers; --verify removes it at the end, "
        "and with --additional the same plan can be given again to change it",
    )
    parser.add_argument(
        "--replica-alter-log-dirs-throttle",
        type=_rate,
        metavar="BYTES",
        help="--execute: the same between directories of one broker",
    )
    parser.add_argument(
        "--timeout",
        type=delay_ms,
        metavar="MS",
        help="--execute, --cancel: how long to try to begin moves between directories (default: 10000)",
    )
    parser.add_argument(
        "--additional", action="store_true", help="--execute: also while other reassignments are in progress"
    )
    parser.add_argument(
        "--disallow-replication-factor-change",
        action="store_true",
        help="--execute: refuse partitions whose number of replicas would change (KIP-860; needs Kafka 4.1)",
    )
    parser.add_argument(
        "--preserve-throttles", action="store_true", help="--verify, --cancel: leave the throttles as they are"
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="--execute, --verify: show the progress until it is done, then do what --verify does; after Ctrl-C it "
        "goes on in the cluster, and --verify --wait watches again",
    )


def _execution(args: argparse.Namespace, plan: Plan) -> Execution:
    expected: Mapping[PartitionKey, Replicas] | None = None
    if args.expected_json_file is not None:
        expected = parse_plan(_read(args.expected_json_file)).partitions
        if stray := sorted(plan.partitions.keys() - expected.keys()):
            told = ",".join(f"{topic}-{partition}" for topic, partition in stray)
            raise RequestRefused(
                f"{args.expected_json_file} does not name {told}, which {args.reassignment_json_file} does"
            )
    return Execution(
        plan,
        args.additional,
        args.throttle,
        args.replica_alter_log_dirs_throttle,
        _timeout_s(args),
        not args.disallow_replication_factor_change,
        expected,
        _command(args),
    )


def _command(args: argparse.Namespace) -> str:
    """This command for a shell, without its action."""
    words = ["modeaware", "reassign-partitions", "--bootstrap-server", args.bootstrap_server]
    if args.command_config is not None:
        words += ["--command-config", str(args.command_config)]
    return shlex.join([*words, "--reassignment-json-file", str(args.reassignment_json_file)])


def _timeout_s(args: argparse.Namespace) -> float:
    return _TIMEOUT_S if args.timeout is None else args.timeout / 1000


def _wait(brokers: Brokers, plan: Plan, args: argparse.Namespace) -> int:
    sys.stdout.flush()  # what was printed is of use while it goes on
    try:
        wait_for_plan(brokers, plan, sys.stderr)
    except KeyboardInterrupt:
        told = _command(args)
        print(
            f"It goes on in the cluster.\nWatch it:     {told} --verify --wait\nCancel it:    {told} --cancel",
            file=sys.stderr,
        )
        raise
    done = verify(brokers, plan, preserve_throttles=args.preserve_throttles, pauses_s=HEARD_PAUSES_S)
    return 0 if done else 1


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def _rate(value: str) -> int:
    """argparse type: bytes per second."""
    try:
        rate = int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is not a whole number") from None
    if rate < 0:
        raise argparse.ArgumentTypeError(f"{rate} is below 0")
    return rate
