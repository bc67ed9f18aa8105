"""Kafka's own command line tools, run as their scripts would run them."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

from modeaware.local.jars import find_java, kafka_tools_jars
from tests.support.process import LoggedProcess

TIMEOUT_S = 90.0
_CLASSES = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-jmx.sh": "org.apache.kafka.tools.JmxTool",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-producer.sh": "org.apache.kafka.tools.VerifiableProducer",
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
    done = subprocess.run([*_java(script), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def start_tool(command: str, log: Path) -> LoggedProcess:
    """Start a command line that does not end by itself; what it prints goes to ``log``."""
    script, *arguments = shlex.split(command)
    return LoggedProcess([*_java(script), *arguments], log)


def write_tools(folder: Path) -> None:
    """Put the tools into a folder as scripts of their own names, for a shell that has it on its PATH.

    Like Kafka's own scripts they log nothing below a warning.
    """
    for script in _CLASSES:
        path = folder / script
        java = shlex.join(_java(script, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"))
        path.write_text(f'#!/bin/sh\nexec {java} "$@"\n', encoding="utf-8")
        path.chmod(0o755)


def _java(script: str, *options: str) -> list[str]:
    quick = ["-Xmx128m", "-XX:TieredStopAtLevel=1", *options]
    return [str(find_java()), *quick, "-cp", f"{kafka_tools_jars()}/*", _CLASSES[script]]
