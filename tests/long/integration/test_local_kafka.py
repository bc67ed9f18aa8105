"""modeaware.local with real brokers: harming them, and what is left of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modeaware.errors import LocalKafkaError
from modeaware.local import Kafka, LocalKafka
from modeaware.local.process import command_line
from tests.conftest import MakeKafka
from tests.support.kafka_tools import run_tool
from tests.support.waiting import eventually


def test_stop_leaves_nothing_or_only_the_logs(make_kafka: MakeKafka, tmp_path: Path) -> None:
    kafka = make_kafka(folder=tmp_path / "one")
    pid = kafka.brokers[0].pid
    assert pid is not None
    kafka.stop()
    assert not command_line(pid)
    assert not (tmp_path / "one").exists()
    kafka.stop()  # again: harmless
    with pytest.raises(LocalKafkaError, match="not running"):
        _ = kafka.folder

    kafka = make_kafka(folder=tmp_path / "two")
    kafka.stop(keep_logs=True)
    assert "Kafka Server started" in kafka.logs_tail(200)
    assert not kafka.brokers[0].data.exists()


def test_a_broker_that_dies_while_it_starts_is_reported_with_its_log(tmp_path: Path) -> None:
    nonsense = {"authorizer.class.name": "no.such.Authorizer"}
    with pytest.raises(LocalKafkaError, match=r"(?s)ended while it started.*no\.such\.Authorizer.*kept in"):
        LocalKafka(folder=tmp_path / "kafka", configs=nonsense).start()


def test_ports_taken_by_somebody_else_are_replaced(
    make_kafka: MakeKafka, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = int(kafka.bootstrap_servers.split(",")[0].rpartition(":")[2])
    cluster = sys.modules[LocalKafka.__module__]
    free = cluster.free_ports
    answers = [[taken, *free(1)]]
    monkeypatch.setattr(cluster, "free_ports", lambda count: answers.pop() if answers else free(count))
    mine = make_kafka()
    assert mine.brokers[0].seat.port != taken
    assert not answers


def test_another_version_is_another_kafka(kafka40: LocalKafka, kafka3: LocalKafka) -> None:
    assert (kafka40.version, kafka3.version) == ("4.0.1", "4.2.0")
    told = [
        run_tool(f"kafka-broker-api-versions.sh --bootstrap-server {k.bootstrap_servers}") for k in (kafka40, kafka3)
    ]
    versions = [re.findall(r"AlterPartitionReassignments\(45\): (.*) \[", text) for text in told]
    assert versions == [["0"], ["0 to 1"] * 3]


OWNER = """
import sys, time
from pathlib import Path
from modeaware.local import LocalKafka
kafka = LocalKafka(folder=Path(sys.argv[1])).start()
if sys.argv[2] == "fork":
    import os
    if os.fork() == 0:  # a child that keeps the pipe to the supervisor open
        time.sleep(120)  # longer than the test looks
print(kafka.brokers[0].pid, flush=True)
if sys.argv[2] == "forget":
    sys.exit()
if sys.argv[2] == "raise":
    raise RuntimeError("on purpose")
time.sleep(120)
"""


@pytest.fixture
def start_owner(tmp_path: Path) -> Callable[[str], tuple[subprocess.Popen[str], int]]:
    """Runs a program that starts a Kafka and then does something; gives the program and its broker's pid."""

    def start(what: str) -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, "-c", OWNER, str(tmp_path / "kafka"), what]
        owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
        assert owner.stdout is not None
        return owner, int(owner.stdout.readline())

    return start


@pytest.mark.parametrize("what", ["sleep", "fork"])
def test_a_killed_owner_leaves_no_broker(
    what: str, start_owner: Callable[[str], tuple[subprocess.Popen[str], int]], tmp_path: Path
) -> None:
    owner, pid = start_owner(what)
    with owner:
        try:
            owner.send_signal(signal.SIGKILL)
            owner.wait(10)
            eventually(lambda: not command_line(pid), message=f"broker {pid} is gone")
            eventually(lambda: not (tmp_path / "kafka/node-1/data").exists(), message="its data is gone")
        finally:
            if what == "fork":
                os.killpg(owner.pid, signal.SIGKILL)  # the child; the group is the owner's own
    assert (tmp_path / "kafka/node-1/broker.log").exists()


@pytest.mark.parametrize("what", ["forget", "raise"])
def test_an_owner_that_ends_without_a_stop_leaves_neither_broker_nor_folder(
    what: str, start_owner: Callable[[str], tuple[subprocess.Popen[str], int]], tmp_path: Path
) -> None:
    owner, pid = start_owner(what)
    with owner:
        owner.wait(30)
    assert not command_line(pid)
    assert not (tmp_path / "kafka").exists()
