"""What the command line has printed as done stays done when every process is killed: brokers, controller, all."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from modeaware import cli
from modeaware.config import ControllerConfig
from modeaware.controller.daemon import Controller
from modeaware.local import LocalKafka
from modeaware.modelog.reader import read_mode_log
from tests.conftest import MakeKafka
from tests.support.plain import create_topic, drain_topic, produce_keyed, watermarks
from tests.support.waiting import eventually

QUICK = (
    *("--controller-config", "modeaware.seal.quiet.ms=200"),
    *("--controller-config", "delete.topic.partition.check.interval.ms=500"),
)


class Site:
    """The command on one cluster; each run of it has a controller of its own, which is gone afterwards."""

    def __init__(self, kafka: LocalKafka, capsys: pytest.CaptureFixture[str]) -> None:
        self.kafka = kafka
        self.servers = kafka.bootstrap_servers
        self._capsys = capsys

    def run(self, *arguments: str) -> str:
        self._capsys.readouterr()
        status = cli.main([*arguments, "--bootstrap-server", self.servers])
        out, err = self._capsys.readouterr()
        assert status == 0, err
        return out

    def described(self, topic: str) -> dict[str, Any]:
        (found,) = json.loads(self.run("topics", "--describe", "--topic", topic, "--json"))["topics"]
        return found

    def kill_everything(self) -> None:
        for broker in self.kafka.brokers:
            broker.kill()
        with ThreadPoolExecutor() as pool:  # none is up before most of them are
            list(pool.map(lambda broker: broker.start(), self.kafka.brokers))
        eventually(self._is_up, 60)

    def _is_up(self) -> bool:
        return cli.main(["topics", "--describe", "--bootstrap-server", self.servers]) == 0


def test_done_is_done(make_kafka: MakeKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(make_kafka(3), capsys)
    for topic in ("shrunk", "undone"):
        create_topic(site.servers, topic, 6, replication_factor=3, configs={"min.insync.replicas": "2"})
        produce_keyed(site.servers, topic, [(b"key-%d" % (n % 31), b"%d" % n) for n in range(300)])
    wait = ("--yes", "--wait", "--delete-partitions-delay", "0", *QUICK)
    assert "shrunk: done." in site.run("shrink", "shrunk", "--to", "2", *wait)
    assert "undone: done." in site.run("shrink", "undone", "--to", "2", *wait)
    assert "undone: done." in site.run("topics", "--undo", "--topic", "undone", "--yes", "--wait", *QUICK)
    produce_keyed(site.servers, "undone", [(None, b"again")], partition=5)
    before = {topic: (site.described(topic), watermarks(site.servers, topic)) for topic in ("shrunk", "undone")}
    records = read_mode_log({"bootstrap.servers": site.servers}, "__partition_modes", 20).records

    site.kill_everything()

    assert read_mode_log({"bootstrap.servers": site.servers}, "__partition_modes", 20).records == records
    config = ControllerConfig(check_interval_ms=200, seal_quiet_ms=200)
    controller = Controller({"bootstrap.servers": site.servers}, config)
    controller.start()
    try:  # it looks at everything again, more than once
        eventually(lambda: len(_claims(site.servers)) > 0, 30)
        produce_keyed(site.servers, "shrunk", [(b"k", b"after")], partition=0)
        # Brokers write the start of a log down once a minute: what was deleted since is deleted again.
        eventually(lambda: _empty(site.servers, "shrunk") == {2, 3, 4, 5}, 30)
        after = {topic: (site.described(topic), watermarks(site.servers, topic)) for topic in ("shrunk", "undone")}
    finally:
        controller.stop()
    assert read_mode_log({"bootstrap.servers": site.servers}, "__partition_modes", 20).records == records
    for topic in ("shrunk", "undone"):
        assert [p["mode"] for p in after[topic][0]["partitions"]] == [p["mode"] for p in before[topic][0]["partitions"]]
        assert after[topic][0]["phase"] == before[topic][0]["phase"] == "done"
    ends = {topic: {p: end for p, (_, end) in before[topic][1].items()} for topic in before}
    assert {p: end for p, (_, end) in after["undone"][1].items()} == ends["undone"], (
        "no offset is lost, none comes back"
    )
    assert {p: end for p, (_, end) in after["shrunk"][1].items()} == {**ends["shrunk"], 0: ends["shrunk"][0] + 1}
    # What was deleted before the undo may be there again (nobody keeps a log start for Kafka); what came since must be.
    assert drain_topic(site.servers, "undone", [5])[-1].value() == b"again"


def _empty(servers: str, topic: str) -> set[int]:
    return {partition for partition, (start, end) in watermarks(servers, topic).items() if start == end}


def _claims(servers: str) -> list[object]:
    claim = read_mode_log({"bootstrap.servers": servers}, "__partition_modes", 20).claim
    return [claim] if claim is not None and claim.address is not None else []
