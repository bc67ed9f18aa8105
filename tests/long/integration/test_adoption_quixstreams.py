"""QuixStreams, unchanged, by ``modeaware run``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.modelog.records import TopicRecord
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, commit_zero, produce
from tests.support.frameworks import (
    DIFFERENT_KEYS,
    command,
    committed,
    end,
    programs,
    quixstreams,
    refused_for_its_state,
    through_a_shrink_of_both,
)
from tests.support.plain import drain_topic
from tests.support.waiting import eventually

EXAMPLE = "quixstreams_app.py"


@pytest.mark.timeout(280)
def test_two_processes_through_a_shrink_of_what_they_read_and_what_they_write(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    names, log = (make_topic(12), make_topic(12), make_group()), tmp_path / "log"
    two = [command(served, EXAMPLE, *names, "--state-dir", str(tmp_path / name)) for name in ("one", "two")]
    with programs(two, log, PYTHONPATH=str(quixstreams())) as running:
        through_a_shrink_of_both(served, *names, running, log)


@pytest.mark.timeout(200)
def test_a_topic_that_is_replaced_is_read_to_its_end_and_its_owner_moves_the_group(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    source, to, group, log = make_topic(12), make_topic(4), make_group(), tmp_path / "log"
    new_topic = f"{source}-v2"

    def application(name: str) -> list[list[str]]:
        return [command(served, EXAMPLE, name, to, group, "--state-dir", str(tmp_path / "state"))]

    def is_left_behind(record: TopicRecord) -> bool:
        return record.replacement is not None and record.replacement.reason == f"group-not-moved:{group}"

    with programs(application(source), log, PYTHONPATH=str(quixstreams())) as running:
        produce(served, source, 2 * DIFFERENT_KEYS)
        eventually(lambda: all(committed(served, source, group)), 90)
        assert served.ask(ReplaceTopicCommand(source, new_topic, 4)).code is ErrorCode.NONE
        served.wait_for(source, is_left_behind)
        produce(served, new_topic, DIFFERENT_KEYS)
        time.sleep(5)  # the gate of a group that has read the topic opens within a second
        end(running, log)
    commit_zero(served, group, new_topic, 4)
    with programs(application(new_topic), log, PYTHONPATH=str(quixstreams())) as running:
        eventually(
            lambda: len(drain_topic(served.servers, to)) == 3 * DIFFERENT_KEYS, 90, message=log.read_text()[-3000:]
        )
        served.wait_done(source)
        end(running, log)


@pytest.mark.timeout(200)
def test_a_shrink_under_an_application_with_state_is_refused_with_the_reason_and_the_state_goes_on(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    source, to, group = make_topic(12), make_topic(12), make_group()
    log, state = tmp_path / "log", str(tmp_path / "state")
    one = command(served, EXAMPLE, source, to, group, "--count", "--state-dir", state)
    with programs([one], log, PYTHONPATH=str(quixstreams())) as running:
        produce(served, source, 2 * DIFFERENT_KEYS)
        eventually(lambda: len(drain_topic(served.servers, to)) == 2 * DIFFERENT_KEYS, 90)
        refused_for_its_state(served, source, group)
        produce(served, source, DIFFERENT_KEYS)
        eventually(lambda: len(drain_topic(served.servers, to)) == 3 * DIFFERENT_KEYS, 60)
        end(running, log)
    counts = Counter(message.value() for message in drain_topic(served.servers, to))
    assert counts == {b"1": DIFFERENT_KEYS, b"2": DIFFERENT_KEYS, b"3": DIFFERENT_KEYS}
