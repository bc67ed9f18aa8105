"""Faust, unchanged, by ``modeaware run``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, produce
from tests.support.frameworks import (
    DIFFERENT_KEYS,
    command,
    committed,
    end,
    faust,
    programs,
    refused_for_its_state,
    through_a_shrink_of_both,
)
from tests.support.plain import drain_topic
from tests.support.waiting import eventually

EXAMPLE = "faust_app.py"
GENERATION = re.compile(r"\[(\d+)\] \[INFO\] generation id (\d+) ")
READY = re.compile(r"\[(\d+)\] \[INFO\] \[\^-*Recovery\]: Worker ready")


def settled(log: str, workers: int) -> bool:
    """Whether so many workers are in one generation of their group, and ready since they are.

    What comes while a worker recovers, Faust may repeat or leave out, with and without us (docs/adoption.md).
    """
    generations: dict[str, str] = {}
    ready: set[str] = set()
    for line in log.splitlines():
        if joined := GENERATION.search(line):
            generations[joined[1]] = joined[2]
            ready.discard(joined[1])
        elif at_work := READY.search(line):
            ready.add(at_work[1])
    return len(ready) == len(generations) == workers and len(set(generations.values())) == 1


@pytest.mark.timeout(280)
@pytest.mark.parametrize("guarantee", [(), ("--exactly-once",)], ids=["at-least-once", "exactly-once"])
def test_two_processes_through_a_shrink_of_what_they_read_and_what_they_write(
    served: Controlled,
    make_topic: MakeTopic,
    make_group: Callable[[], str],
    tmp_path: Path,
    guarantee: tuple[str, ...],
) -> None:
    names, log = (make_topic(12), make_topic(12), make_group()), tmp_path / "log"
    two = [command(served, EXAMPLE, *names, *guarantee, "--state-dir", str(tmp_path / n)) for n in ("one", "two")]
    with programs(two, log, PYTHONPATH=str(faust())) as running:
        eventually(lambda: settled(log.read_text(), 2), 90, message=str(log))
        through_a_shrink_of_both(served, *names, running, log)


@pytest.mark.timeout(280)
def test_a_shrink_under_an_application_with_a_table_is_refused_with_the_reason_and_the_table_goes_on(
    served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    source, to, group = make_topic(12), make_topic(12), make_group()
    log, state = tmp_path / "log", str(tmp_path / "state")
    one = command(served, EXAMPLE, source, to, group, "--count", "--state-dir", state)

    def rounds_are_counted(rounds: int) -> None:
        """``rounds`` records of each key were sent, and each has its number."""
        sent = rounds * DIFFERENT_KEYS
        eventually(lambda: len(drain_topic(served.servers, to)) >= sent, 90, message=str(log))
        counts = Counter(message.value() for message in drain_topic(served.servers, to))
        assert counts == {b"%d" % number: DIFFERENT_KEYS for number in range(1, rounds + 1)}
        eventually(lambda: sum(committed(served, source, group)) == sent, 60, message=str(log))

    def ready(times: int) -> None:
        """See :func:`settled`."""
        eventually(lambda: log.read_text().count("Worker ready") == times, 90, message=str(log))

    with programs([one], log, PYTHONPATH=str(faust())) as running:
        ready(1)
        produce(served, source, 2 * DIFFERENT_KEYS)
        rounds_are_counted(2)
        refused_for_its_state(served, source, group)
        produce(served, source, DIFFERENT_KEYS)
        rounds_are_counted(3)
        end(running, log)
    # The table lies in memory: the next process has it from its changelog, whose partitions are those of the records.
    with programs([one], log, PYTHONPATH=str(faust())) as running:
        ready(2)
        produce(served, source, DIFFERENT_KEYS)
        rounds_are_counted(4)
        end(running, log)
