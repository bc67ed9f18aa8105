"""``modeaware certificate``: the proof that retired partitions were drained, for others to check."""

from __future__ import annotations

import argparse
import json
import sys

from modeaware.cli.options import (
    add_connection_options,
    add_controller_config_option,
    connect,
    connection,
    controller_config,
    kafka_errors,
)
from modeaware.printable import printable
from modeaware.reports.certificate import all_drained, take_certificate

NOT_DRAINED = 3
HELP = """\
Prints one JSON object:
  {"certificate", "schema_version", "cluster_id", "topic", "topic_id", "mode_epoch", "controller_epoch", "recorded_ms",
   "shrink", "required_groups", "groups_complete", "waived", "accepted_state_loss", "partitions", "checked_now"}
All but checked_now is what the mode log says. shrink is
  {"policy", "delay_ms", "asked_for_ms", "from", "to", "evacuation_group"}
evacuation_group is the one whose commits prove that the latest values of a compacted topic were copied, or null.
required_groups used the topic when the shrink was admitted; waived gives the waiver's reason for each group that a
partition did not wait for; accepted_state_loss names groups whose loss of state was accepted. partitions has one object
a retired partition:
  {"partition", "mode", "phase", "replica_state", "seal_offset", "seal_leader_epoch", "proof", "recorded_reason",
   "evacuated", "stragglers", "straggler", "checked_now", "verdict", "reason", "check_with"}
proof gives the committed offset by which each group has proved that it read the partition to its seal (empty for a
partition that held no record, or that is not None yet). checked_now is looked up live:
  {"log_start", "log_end", "last_stable_offset", "leader_epoch", "sealed_epoch_ends_at", "groups"}
and so is the topic's, {"checked_ms", "topic_id", "required_groups", "groups_doubt", "rules_in_force"}
(the operators' rules about groups, with their reasons). verdict is
"drained", "reclaimed" (its records are gone), or "not drained: " and why; reason is the code of that. check_with lists
commands of Kafka's own tools, {"what", "command", "expect"}, that show the same (add --command-config where the cluster
needs it). Times are in ms since 1970. Fields may be added.

Exit status: 0 if every partition is drained or reclaimed; 3 if one is not; 1 for an error.
"""


class Certificate:
    """Prints the certificate; changes nothing."""

    name = "certificate"
    help = "print the proof that a topic's retired partitions were drained"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = HELP
        add_connection_options(parser)
        parser.add_argument("--topic", required=True, metavar="TOPIC")
        parser.add_argument(
            "--partition",
            type=int,
            action="append",
            metavar="P",
            help="only this partition, may be repeated (default: all that are retired)",
        )
        add_controller_config_option(parser, "--controller-config", " (name those that the running controller has)")

    def run(self, args: argparse.Namespace) -> int:
        target = connection(args, defaults={"log_level": 0})
        config = controller_config(args, target.config)
        with kafka_errors("take the certificate"):
            connect(target)
            document = take_certificate(target.conf, config, args.topic, args.partition)
        print(json.dumps(document, indent=2))
        if all_drained(document):
            return 0
        for partition in document["partitions"]:
            if partition["reason"] is not None:
                print(printable(f"{args.topic}-{partition['partition']}: {partition['verdict']}"), file=sys.stderr)
        return NOT_DRAINED
