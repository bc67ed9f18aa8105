"""``modeaware reassign-partitions`` where a broker is down: what was on it moves, throttle or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from modeaware.admin.reassignment_json import format_plan
from tests.conftest import MakeKafka
from tests.support.command_line import Site
from tests.support.reassigning import Moving
from tests.support.waiting import eventually


def test_a_throttled_move_off_a_dead_broker(
    make_kafka: MakeKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = make_kafka(3)
    moving = Moving(kafka)
    try:
        one, two, three = moving.nodes
        topic = moving.topic([one, two])
        kafka.brokers[0].kill()
        eventually(lambda: moving.brokers.node_ids() == (two, three), 60.0)
        plan = tmp_path / "plan.json"
        plan.write_text(format_plan({(topic, 0): (three, two)}))
        arguments = ("--reassignment-json-file", str(plan), "--throttle", "10000000", "--wait")
        told = Site(kafka, tmp_path, capsys).run("reassign-partitions", "--execute", *arguments)
        assert told.status == 0, told.err + told.out
        assert f"No throttle on broker {one}: not alive" in told.err
        assert f"Reassignment of partition {topic}-0 is completed." in told.out
        assert moving.replicas(topic) == {(topic, 0): (three, two)}
        assert moving.configs("topic", topic) == {}
        assert [moving.configs("broker", str(node)) for node in (two, three)] == [{}, {}]
    finally:
        moving.close()
