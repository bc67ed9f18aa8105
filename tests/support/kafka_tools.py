"""Kafka's own command line tools, run as their scripts would run them."""

from __future__ import annotations

import shlex
import subprocess

from modeaware.local.jars import kafka_tools_jars
from modeaware.local.java import find_java

TIMEOUT_S = 90.0
_CLASSES = {
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


def run_tool(command: str) -> str:
    """Run a command line such as ``kafka-get-offsets.sh --bootstrap-server ...``; what it printed, and logged."""
    script, *arguments = shlex.split(command)
    java = [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_tools_jars()}/*"]
    done = subprocess.run(
        [*java, _CLASSES[script], *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.stdout + done.stderr
