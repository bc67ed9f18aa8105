"""Records written by Kafka's own Java producer, through its console tool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from modeaware.local.jars import find_java, kafka_tools_jars
from tests.support.kafka_tools import TIMEOUT_S

_CLASS = "org.apache.kafka.tools.ConsoleProducer"


def produce_by_java(bootstrap_servers: str, topic: str, keys: Iterable[str]) -> None:
    """A record for each key, by the Java producer's own partitioner.

    Raises:
        AssertionError: the tool failed.
    """
    java = [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_tools_jars()}/*", _CLASS]
    options = ["--bootstrap-server", bootstrap_servers, "--topic", topic]
    reader = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"]
    done = subprocess.run(
        [*java, *options, *reader],
        input="".join(f"{key}|value\n" for key in keys),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr, done.stderr
