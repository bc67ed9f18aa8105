"""Three brokers, and a crash in each phase of a replacement: nothing is lost or unread, and keys keep their order."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeaware.lifecycle.state import topic_phase
from modeaware.local import LocalKafka
from modeaware.modelog.records import TopicRecord
from tests.support.controlled import Controlled
from tests.support.plain import create_topic, watermarks
from tests.support.waiting import eventually
from tests.workload.deployment import Deployment

COUNTS = (12, 4, 9, 5)
"""The partition counts of the chain: one replacement for each phase in which something crashes."""
PHASES = ("announce", "seal", "drain")
LATER = ("gap", "create", *PHASES, "reclaim", "done")
"""The phases of each half of a change that keeps a name, in order. (The gap is in the second one.)"""
OF_HALVES = (("create", "gap"), *((phase, phase) for phase in (*PHASES, "reclaim")))
"""In which phases of the first and of the second half something crashes."""
QUIET_MS = 2_000
"""Three brokers and seven processes take their time to acknowledge a record. What they have not by then is refused."""
NAMES = ("controller-1", "controller-2", *(f"{role}-{n}" for role in ("consumer", "producer") for n in (1, 2)))


@pytest.fixture
def site(
    kafka3: LocalKafka, setting: Controlled, make_group: Callable[[], str], tmp_path: Path
) -> Iterator[Deployment]:
    topic = f"crashes-{uuid.uuid4().hex[:8]}"
    create_topic(setting.servers, topic, COUNTS[0], replication_factor=3, configs={"min.insync.replicas": "2"})
    made = Deployment(setting.servers, setting.log, topic, make_group(), tmp_path, QUIET_MS)
    for name in NAMES:
        made.start(name)
    yield made
    made.kill()


def controller(site: Deployment, _: LocalKafka) -> None:
    site.replace("controller-1", kill=True)
    site.now["controller-1"], site.now["controller-2"] = site.now["controller-2"], site.now["controller-1"]


def broker(_: Deployment, kafka: LocalKafka) -> None:
    kafka.brokers[0].kill()
    time.sleep(3)  # others lead its partitions meanwhile
    kafka.brokers[0].start()


def half_of_the_consumers(site: Deployment, _: LocalKafka) -> None:
    site.replace("consumer-1", kill=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("crash", [controller, broker, half_of_the_consumers], ids=lambda crash: crash.__name__)
def test_crashes(
    kafka3: LocalKafka, setting: Controlled, site: Deployment, crash: Callable[[Deployment, LocalKafka], None]
) -> None:
    site.more()
    chain = [site.topic, *(f"{site.topic}-v{number}" for number in range(2, len(COUNTS) + 1))]
    for phase, (old, new), count in zip(PHASES, itertools.pairwise(chain), COUNTS[1:], strict=True):

        def has_come(record: TopicRecord, phase: str = phase) -> bool:
            return topic_phase(record) in (phase, "reclaim")  # the last one may be over at once

        site.command("replace", old, "--with", new, "--partitions", str(count), "--yes")
        setting.wait_for(old, has_come, 60)
        crash(site, kafka3)
        setting.wait_done(old, 120)
        site.more()
    site.stop()
    site.check("MSG_SIZE_TOO_LARGE")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("crash", [controller, broker], ids=lambda crash: crash.__name__)
def test_crashes_of_a_change_that_keeps_the_name(
    kafka3: LocalKafka, setting: Controlled, site: Deployment, crash: Callable[[Deployment, LocalKafka], None]
) -> None:
    """In each phase of both halves; a count below the present one, as a larger one waits ten minutes."""

    def has_come(half: int, phase: str) -> bool:
        described = json.loads(site.command("topics", "--describe", "--json", "--topic", site.topic))
        kept = described["topics"][0]["kept_name"]
        return kept is not None and (kept["half"], LATER.index(kept["phase"])) >= (half, LATER.index(phase))

    site.more()
    for phases, count in zip(OF_HALVES, (9, 7, 5, 4, 3), strict=True):
        options = ("--partitions", str(count), "--keep-name", "--delay", "0s", "--accept-auto-create", "--yes")
        site.command("replace", site.topic, *options)
        for half, phase in enumerate(phases, 1):
            eventually(lambda h=half, p=phase: has_come(h, p), 120, interval_s=0.3)
            crash(site, kafka3)
        eventually(lambda: has_come(2, "done"), 120, interval_s=1.0)
        site.more()
    site.stop()
    assert len(watermarks(setting.servers, site.topic)) == 3
    site.check("MSG_SIZE_TOO_LARGE", reused=[site.topic])
