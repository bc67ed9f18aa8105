"""A member of a group, driven by random walks over models of both client libraries, of its group, its brokers, the
controller, and of applications that commit in eight ways (:mod:`tests.support.member_world`).

At every step: no record of a new topic comes before the gate was open, nor while a record of the old one is at
work; nothing is resumed that the application has paused; each partition is shown once for each time that it is owned;
no partition is read again but where the application went back, or was shown a revocation; no commit sets a group back,
overwrites metadata of the application, or wins over a transaction. At the end every action was answered or repeated:
the gate was open, all is shown, and nothing is paused.
"""

from __future__ import annotations

from collections import Counter

import pytest

from modeaware.notes import BUSY, GIVEN, OPENED, READ
from tests.support.member_world import APPLICATIONS, LIBRARIES, World, as_world

WALKS = 120


def test_random_walks_end_break_no_rule_and_cover_all_events() -> None:
    seen: Counter[str] = Counter()
    for seed in range(WALKS):
        try:
            seen += as_world(seed).walk().seen
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    met = {"record of a", "record of b", "shown revocation", "declined", "sought", "carried", "dropped"}
    met |= {READ, BUSY, GIVEN, OPENED}
    assert met <= seen.keys()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("application", APPLICATIONS)
def test_without_failures_each_application_comes_to_the_new_topic_by_each_library(
    library: str, application: str
) -> None:
    for seed in range(2):
        world = World(seed, library, application, failing=0.0).walk(60)
        assert set(world.stages.values()) == {6}
