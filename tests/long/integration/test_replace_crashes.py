"""Three brokers, and a crash in each phase of a replacement: nothing is lost or unread, and keys keep their order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeaware.lifecycle.state import topic_phase
from modeaware.local import LocalKafka
from modeaware.modelog.records import TopicRecord
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.old_release import new_release
from tests.support.rolling import Deployment

COUNTS = (12, 4, 9, 5)
"""The partition counts of the chain: one replacement for each phase in which something crashes."""
PHASES = ("announce", "seal", "drain")
RELEASE = new_release()
NAMES = ("controller-1", "controller-2", *(f"{role}-{n}" for role in ("consumer", "producer") for n in (1, 2)))


@pytest.fixture
def site(
    kafka3: LocalKafka, setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> Iterator[Deployment]:
    made = Deployment(setting.servers, setting.log, make_topic(COUNTS[0]), make_group(), tmp_path)
    for name in NAMES:
        made.start(name, RELEASE)
    yield made
    made.kill()


def controller(site: Deployment, _: LocalKafka) -> None:
    site.replace("controller-1", RELEASE, kill=True)
    site.now["controller-1"], site.now["controller-2"] = site.now["controller-2"], site.now["controller-1"]


def broker(_: Deployment, kafka: LocalKafka) -> None:
    kafka.brokers[0].kill()
    time.sleep(3)  # others lead its partitions meanwhile
    kafka.brokers[0].start()


def half_of_the_consumers(site: Deployment, _: LocalKafka) -> None:
    site.replace("consumer-1", RELEASE, kill=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("crash", [controller, broker, half_of_the_consumers], ids=lambda crash: crash.__name__)
def test_crashes(
    kafka3: LocalKafka, setting: Controlled, site: Deployment, crash: Callable[[Deployment, LocalKafka], None]
) -> None:
    site.more()
    chain = [site.topic, *(f"{site.topic}-v{number}" for number in range(2, len(COUNTS) + 1))]
    for phase, (old, new), count in zip(PHASES, itertools.pairwise(chain), COUNTS[1:], strict=True):

        def has_come(record: TopicRecord, phase: str = phase) -> bool:
            return topic_phase(record) in (phase, "done")  # the last one may be over at once

        site.command(RELEASE, "replace", old, "--with", new, "--partitions", str(count), "--yes")
        setting.wait_for(old, has_come, 60)
        crash(site, kafka3)
        setting.wait_for(old, lambda record: topic_phase(record) == "done", 120)
        site.more()
    site.stop()
    assert site.failed() == []
    assert site.acked() - site.read() == set()
    assert site.out_of_order() == []
