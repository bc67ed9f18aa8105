"""The command line on one cluster, as a person uses it."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from modeaware import cli
from modeaware.local import Kafka
from modeaware.modelog.reader import read_mode_log
from tests.support.plain import TIMEOUT_S, commit

QUICK = (
    *("--controller-config", "modeaware.seal.quiet.ms=200"),
    *("--controller-config", "delete.topic.partition.check.interval.ms=1000"),
)
LEAVE = ("--yes", "--wait", *QUICK)
WAIT = (*LEAVE, "--delay", "0s")


class Told(NamedTuple):
    """What a run of the command left behind."""

    status: int
    out: str
    err: str


class Site:
    """The command, on one cluster; by default with a mode log of its own."""

    def __init__(
        self, kafka: Kafka, folder: Path, capsys: pytest.CaptureFixture[str], mode_log: str | None = None
    ) -> None:
        self.servers = kafka.bootstrap_servers
        self.mode_log = mode_log or f"modes-{uuid.uuid4().hex[:12]}"
        config = folder / "client.properties"
        config.write_text(f"modeaware.mode.log.topic={self.mode_log}\n")
        self._common = ("--bootstrap-server", self.servers, "--command-config", str(config))
        self._capsys = capsys

    def run(self, *arguments: str) -> Told:
        self._capsys.readouterr()
        status = cli.main([*arguments, *self._common])
        return Told(status, *self._capsys.readouterr())

    def spawn(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "modeaware", *arguments, *self._common]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def describe(self, topic: str) -> dict[str, Any]:
        told = self.run("topics", "--describe", "--json", "--topic", topic)
        assert told.status == 0, told.err
        described: dict[str, Any] = json.loads(told.out)["topics"][0]
        return described

    def modes(self, topic: str) -> list[str]:
        return [partition["mode"] for partition in self.describe(topic)["partitions"]]

    def log(self) -> tuple[dict[str, bytes], int] | None:
        """Topic id -> its record now, and how many records could not be used; None while there is no mode log.

        Not offsets: a transaction's marker takes one too, and is written after the commit has been answered. Whatever
        was committed before the call is waited for.
        """
        conf = {"bootstrap.servers": self.servers}
        if self.mode_log not in AdminClient(conf).list_topics(timeout=TIMEOUT_S).topics:
            return None
        replay = read_mode_log(conf, self.mode_log, TIMEOUT_S, must_exist=True)
        return {topic_id: record.to_json() for topic_id, record in replay.records.items()}, replay.rejected

    def changed_topics(self) -> set[str]:
        """The topics that the mode log has a record of."""
        records, _ = self.log() or ({}, 0)
        return {json.loads(record)["topic"] for record in records.values()}

    def commit(self, topic: str, group: str, offsets: dict[int, int]) -> None:
        commit(self.servers, group, topic, offsets)
