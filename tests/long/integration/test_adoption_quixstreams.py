"""QuixStreams, unchanged, by ``modeaware run``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, produce
from tests.support.frameworks import (
    DIFFERENT_KEYS,
    command,
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
