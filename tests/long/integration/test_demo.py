"""The demo, in short: fewer flights and less time, but the same story on a real Kafka."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from modeaware.config import ClientConfig
from modeaware.librdkafka import AdminClient
from modeaware.local import Kafka
from modeaware.views import registry
from tests.support.waiting import eventually

RECORDS = 30_000


def demo(kafka: Kafka, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo as a process in a session of its own, on the tests' Kafka; its own temporary files in ``folder``."""
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "TMPDIR": str(folder)}
    environment.pop("MODEAWARE_LOCAL_KAFKA", None)
    return subprocess.Popen(
        [sys.executable, "-m", "modeaware.demo", "--report", str(folder / "report.json"), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def processes_of(session: int) -> list[int]:
    """The processes of a session that are still there (zombies apart)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.timeout(300)
def test_a_short_demo_loses_nothing(kafka: Kafka, tmp_path: Path) -> None:
    process = demo(kafka, tmp_path, "--records", str(RECORDS), "--lead", "4s")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["acknowledged"], report["delivered"], report["lost"]) == (RECORDS, RECORDS, 0)
    assert (report["in_retired_after_switch"], report["misplaced"], report["contradictions"]) == (0, 0, 0)
    assert report["duplicates"] == 0
    assert report["bytes_deleted"] > 0
    assert set(report["phases_s"]) >= {"ReadOnly", "seal", "drain", "reclaim", "switch", "release", "delete"}
    assert report["partitions_on_cluster"] == [12, 4], "a shrink leaves them in the metadata, a replacement does not"
    conf = {"bootstrap.servers": kafka.bootstrap_servers}
    topics = AdminClient(conf).list_topics(timeout=10).topics
    assert not {report["topic"], report["new_topic"]} & topics.keys(), "nothing of it is left"
    with contextlib.closing(registry.acquire(conf, ClientConfig())) as views:
        assert views.view(report["topic"]).replaced_by is None, "nor is its name an alias"
    eventually(lambda: processes_of(process.pid) == [], message="child processes are left")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"], "its own files are gone"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_demo(kafka: Kafka, tmp_path: Path, how: signal.Signals) -> None:
    process = demo(kafka, tmp_path, "--records", str(RECORDS), "--lead", "1m")
    assert process.stdout is not None
    for line in process.stdout:
        if "producers at work" in line:
            break
    process.send_signal(how)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if how is signal.SIGKILL else 130), output
    eventually(lambda: processes_of(process.pid) == [], message="child processes are left")
