"""Record the mode log that a release writes: ``python -m tests.support.recorded_log 0.1.0 > tests/data/...jsonl``.

Made once for each release, on a real Kafka; the tests read what it left in ``tests/data``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from modeaware.local import start_kafka
from modeaware.modelog.reader import LogRecord, read_mode_log, read_to_end
from modeaware.modelog.records import RetiredPartition
from tests.support.old_release import DATA, OLD_VERSION, Release, new_release, old_release
from tests.support.plain import commit, create_topic, produce_keyed, watermarks
from tests.support.waiting import eventually

LOG = "__partition_modes"
QUICK = ("modeaware.seal.quiet.ms=200", "delete.topic.partition.check.interval.ms=500")
Entry = tuple[str, str | None]


def recorded(version: str = OLD_VERSION) -> list[Entry]:
    """The log that was recorded of a release: keys and values in order; None is a tombstone."""
    lines = (DATA / f"mode-log-{version}.jsonl").read_text(encoding="utf-8").splitlines()
    return [(entry["key"], entry["value"]) for entry in map(json.loads, lines)]


class Recording:
    """A cluster with the controller of a release, and the commands of that release."""

    def __init__(self, servers: str, release: Release) -> None:
        self.servers = servers
        self._release = release

    def modeaware(self, *arguments: str) -> None:
        self._release.run(*arguments, "--bootstrap-server", self.servers)

    def retired(self, topic: str) -> list[RetiredPartition]:
        record = read_mode_log({"bootstrap.servers": self.servers}, LOG, 20).record(topic)
        return [] if record is None else list(record.retired.values())

    @contextmanager
    def controller(self) -> Iterator[None]:
        words = [word for config in QUICK for word in ("--config", config)]
        command = self._release.command("command", "controller", "--bootstrap-server", self.servers, *words)
        with subprocess.Popen(command, env=self._release.environment, stdout=sys.stderr) as process:
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)

    def play(self) -> None:
        """All that a mode log can hold."""
        for name, partitions in (("shrunk", 6), ("kept", 6), ("undone", 6), ("late", 4), ("at-once", 4), ("gone", 4)):
            create_topic(self.servers, name, partitions, configs={})
            produce_keyed(self.servers, name, [(b"key-%d" % (n % 31), b"%d" % n) for n in range(120)])
        shrink = ("--yes", "--wait", "--delete-partitions-delay", "0")
        with self.controller():
            self.modeaware("shrink", "at-once", "--to", "2", "--yes", "--wait", "--immediate-delete")
            ends = {p: end for p, (_, end) in watermarks(self.servers, "shrunk").items()}
            commit(self.servers, "billing", "shrunk", ends)
            self.modeaware("shrink", "shrunk", "--to", "2", *shrink)
            self.modeaware("shrink", "kept", "--to", "3", "--yes")
            self.modeaware("shrink", "gone", "--to", "2", *shrink)
            AdminClient({"bootstrap.servers": self.servers}).delete_topics(["gone"])["gone"].result(30)
            commit(self.servers, "billing", "undone", dict.fromkeys(range(6), 0))
            self.modeaware("shrink", "undone", "--to", "2", "--yes", "--delete-partitions-delay", "0")
            eventually(lambda: {each.reason for each in self.retired("undone")} == {"group-lag:billing"}, 60)
            rule = ("audit-*", "--topic", "late", "--reason", "OPS-1: moved", "--expires", "1d")
            self.modeaware("groups", "waive", *rule, "--yes")
            self.modeaware("groups", "require", "export", "--topic", "late")
            self.modeaware("groups", "forget", "require", "export", "--topic", "late", "--yes")
        with self.controller():
            self.modeaware("topics", "--undo", "--topic", "undone", "--yes", "--wait")
            self.modeaware("shrink", "late", "--to", "2", *shrink)
            produce_keyed(self.servers, "late", [(b"k", b"straggler")], partition=3)
            eventually(lambda: any(retired.stragglers for retired in self.retired("late")), 60)
            self.modeaware("grow", "shrunk", "--to", "8", "--yes", "--wait")
            eventually(lambda: not self.retired("gone"), 60)
            commit(self.servers, "billing", "kept", dict.fromkeys(range(6), 0))

    def entries(self) -> Iterator[Entry]:
        taken: list[LogRecord] = []
        read_to_end({"bootstrap.servers": self.servers}, LOG, 0, taken.extend, 30, must_exist=True)
        for record in taken:
            assert record.key is not None
            yield record.key.decode(), None if record.value is None else record.value.decode()


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder, start_kafka() as kafka:
        release = old_release(Path(folder)) if version == OLD_VERSION else new_release()
        recording = Recording(kafka.bootstrap_servers, release)
        recording.play()
        for key, value in recording.entries():
            print(json.dumps({"key": key, "value": value}))


if __name__ == "__main__":
    main(sys.argv[1])
