"""``modeaware apply --at-once`` under load: killed and repeated, it brings all topics to the end, few at a time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import modeaware
from modeaware.modelog.records import TopicRecord
from tests.conftest import MakeTopic
from tests.support.command_line import Site
from tests.support.plain import watermarks
from tests.support.waiting import eventually
from tests.workload.load import Load

TOPICS, AT_ONCE, KILLS = 100, 10, 5
LOADED_EVERY = 10
READER = {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1_000}


def replacing(site: Site) -> dict[str, bool]:
    """The topics that are or were replaced -> whether that is over."""
    records = [TopicRecord.from_json(record) for record in (site.log() or ({}, 0))[0].values()]
    return {
        record.topic: record.replacement.gone_ms is not None for record in records if record.replacement is not None
    }


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("controller")
def test_killed_and_repeated_it_goes_on_and_nothing_is_lost(
    site: Site, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    topics = [make_topic(6) for _ in range(TOPICS)]
    wanted = {"partitions": 2, "shrink": {"policy": "drained", "delay": "0s"}}
    file = tmp_path / "topics.yaml"
    file.write_text(json.dumps({"version": 1, "topics": {t: {**wanted, "replace": f"{t}-v2"} for t in topics}}))
    aware: dict[str, Any] = {"bootstrap.servers": site.servers, "modeaware.mode.log.topic": site.mode_log}
    command = ("apply", str(file), "--yes", "--at-once", str(AT_ONCE))
    loads = {topic: Load() for topic in topics[::LOADED_EVERY]}
    for topic, load in loads.items():
        load.writer(partial(modeaware.Producer, {**aware, "enable.idempotence": True, "linger.ms": 5}), topic)
        load.reader(partial(modeaware.Consumer, {**aware, **READER, "group.id": make_group()}), [topic], batch=0)

    def done(count: int) -> bool:
        now = {topic: over for topic, over in replacing(site).items() if topic in topics}
        assert list(now.values()).count(False) <= AT_ONCE
        return list(now.values()).count(True) >= count

    with ExitStack() as running:
        for load in loads.values():
            running.enter_context(load.running())
            load.more(50)
        for count in sorted(random.Random(7).sample(range(1, TOPICS - AT_ONCE), KILLS)):
            process = site.spawn(*command)
            try:
                eventually(partial(done, count), 180, interval_s=0.5)
                assert process.poll() is None, process.communicate()
            finally:
                process.kill()
                process.communicate()
        told = site.run(*command)
        assert told.status == 0, told.out + told.err
        assert told.out.splitlines()[-1] == f"Topics: {len(topics)} of {len(topics)} done."
        for load in loads.values():
            load.more(50)
    for topic in topics:
        assert len(watermarks(site.servers, f"{topic}-v2")) == 2
    for topic, load in loads.items():
        load.check(servers=site.servers, chain={f"{topic}-v2": 2})
    again = site.run(*command)
    assert again.status == 0, again.err
    declared, done_line = f"Topics: {len(topics)} as declared.", f"Topics: {len(topics)} of {len(topics)} done."
    assert again.out.splitlines() in ([declared], [declared, done_line]), "the second line if an old topic still waits"
