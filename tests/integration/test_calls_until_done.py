"""Calls in the first second of a topic and during a takeover: made once, they end with the change done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from modeaware import AdminClient, DeletePartitions
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.librdkafka import NewTopic
from modeaware.modelog.reader import read_mode_log
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.takeover import ControllerProcess

CREATIONS, PARTITIONS, KEPT, TIMEOUT_S = 10, 12, 4, 60.0


def admin_of(setting: Controlled) -> AdminClient:
    return AdminClient({**setting.conf, "modeaware.mode.log.topic": setting.log})


def test_shrink_right_after_the_creation_is_never_refused(served: Controlled) -> None:
    topics = [f"new-{served.log}-{n}" for n in range(CREATIONS)]
    with admin_of(served) as admin:
        for topic in topics:
            admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(30)
            shrunk = admin.delete_partitions({topic: DeletePartitions(KEPT)}, request_timeout=TIMEOUT_S)[topic].result()
            assert sorted(shrunk.retired) == list(range(KEPT, PARTITIONS))
    for future in served.admin.delete_topics(topics).values():
        future.result(30)


def test_mistyped_topic_is_refused_long_before_the_deadline(served: Controlled) -> None:
    with admin_of(served) as admin, pytest.raises(RequestRefused, match="gave up after") as caught:
        admin.delete_partitions({"no-such-topic": DeletePartitions(1)}, request_timeout=600)["no-such-topic"].result(60)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_shrink_outlasts_a_takeover(setting: Controlled, make_topic: MakeTopic, tmp_path: Path) -> None:
    """The active controller is killed, and holds its place in the election for the default session of 10 s."""
    by_client, by_command = make_topic(PARTITIONS), make_topic(PARTITIONS)
    file = tmp_path / "client.properties"
    file.write_text(f"modeaware.mode.log.topic={setting.log}\n")
    command = [sys.executable, "-m", "modeaware", "shrink", by_command, "--partitions", str(KEPT), "--yes"]
    connection = ["--bootstrap-server", setting.servers, "--command-config", str(file)]
    active = ControllerProcess(setting.conf, setting.log, tmp_path)
    active.wait_until_it_says("active: epoch")
    standby = ControllerProcess(setting.conf, setting.log, tmp_path)
    try:
        standby.wait_until_it_says("standby:")
        active.kill()
        with (
            admin_of(setting) as admin,
            subprocess.Popen([*command, *connection], stderr=subprocess.PIPE, text=True) as process,
        ):
            call = admin.delete_partitions({by_client: DeletePartitions(KEPT)}, request_timeout=TIMEOUT_S)[by_client]
            assert sorted(call.result().retired) == list(range(KEPT, PARTITIONS))
            _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
    finally:
        for each in (active, standby):
            each.kill()
    replay = read_mode_log(setting.conf, setting.log, 20)
    assert replay.claim is not None
    assert replay.claim.controller_epoch == 2
    for topic in (by_client, by_command):
        record = replay.record(topic)
        assert record is not None
        assert record.writable_count == KEPT
