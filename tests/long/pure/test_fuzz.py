"""A few thousand frames from a fixed seed, without a coverage-guided fuzzer; and the fuzzer finds what it is for."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator

import pytest

from tests.fuzz import large
from tests.fuzz.events import mutated, plainly_changed
from tests.fuzz.play import Player
from tests.fuzz.seeds import seeds, spare
from tests.fuzz.tally import watched

SEED = 694
CONVERSATIONS = 1_500
MOST_BYTES = 4_096


@pytest.fixture
def player() -> Iterator[Player]:
    gc.collect()
    gc.freeze()  # to walk through what other tests have left is no part of what a frame costs
    try:
        with watched() as depth:
            yield Player(depth)
    finally:
        gc.unfreeze()


def test_good_conversations_are_read_to_the_end(player: Player) -> None:
    for data in seeds():
        player.play(data)
    seen = player.tally
    assert seen.frames == seen.client + seen.broker + seen.decoder
    assert seen.whole > seen.frames / 2
    assert seen.told > seen.client / 2
    assert seen.whole == seen.past_header, "no seed is malformed"


def test_a_few_thousand_frames(player: Player) -> None:
    choices = random.Random(SEED)
    pool, more = seeds(), spare()
    change = plainly_changed(choices)
    for _ in range(CONVERSATIONS):
        data = choices.choice(pool)
        for _ in range(choices.randrange(1, 4)):
            data = mutated(data, MOST_BYTES, choices, change, more)
        player.play(data)
    seen = player.tally
    assert seen.frames > 5_000
    assert seen.past_header > seen.frames / 2
    assert seen.closed > 100
    assert seen.measured
    assert all((seen.client, seen.broker, seen.decoder, seen.refused_bytes, seen.told, seen.whole))


def test_the_largest_requests(player: Player) -> None:
    large.play(player, measure_memory=False)
    assert player.tally.past_header == player.tally.frames > 12
