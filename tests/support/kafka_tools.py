"""Kafka's own command line tools, run as their scripts would run them."""

from __future__ import annotations

import shlex
import subprocess
from typing import NamedTuple

from modeaware.local.jars import kafka_tools_jars
from modeaware.local.java import find_java

TIMEOUT_S = 90.0
_CLASSES = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


class Done(NamedTuple):
    """How a tool ended: ``status`` is 0 where it succeeded."""

    status: int
    out: str
    err: str


def run_tool(command: str) -> str:
    """Run a command line such as ``kafka-get-offsets.sh --bootstrap-server ...``; what it printed, and logged."""
    done = finish_tool(command)
    return done.out + done.err


def finish_tool(command: str) -> Done:
    """The same, with its exit status and what it printed apart from what it logged."""
    script, *arguments = shlex.split(command)
    java = [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_tools_jars()}/*"]
    done = subprocess.run(
        [*java, _CLASSES[script], *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)
