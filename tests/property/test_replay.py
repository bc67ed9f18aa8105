"""The fold over the mode log, for any log that controllers write."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.modelog.moved import MovedRecord, moved_key
from modeaware.modelog.records import CLAIM_KEY, ClaimRecord
from modeaware.modelog.replay import Replay
from tests.support.modelog import NONE, RO, fold, for_newer_readers, topic_record


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of examples of rubbish are no news."""
    with patch.object(logging.getLogger("modeaware.modelog.replay"), "disabled", True):
        yield


Entry = tuple[str | bytes | None, bytes | None]
NAMES = ("a", "b")
IDS = ("1", "2", "3")

# What a controller does next: a change or the deletion of one of a few topics, a take-over.
Step = tuple[str, str, str, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.sampled_from(NAMES), st.sampled_from(IDS), st.integers(1, 7)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.sampled_from(IDS), st.just(0)),
        st.tuples(st.just("move"), st.sampled_from(NAMES), st.sampled_from(IDS), st.integers(0, 7)),
        st.tuples(st.just("claim"), st.just(""), st.just(""), st.just(0)),
    ),
    max_size=40,
)


def write(done: list[Step]) -> list[Entry]:
    """The log of controllers that do this, one after the other."""
    controller_epoch = 0
    log: list[Entry] = []
    held: dict[str, int] = {}
    for action, name, number, writable in [("claim", "", "", 0), *done]:
        topic_id = f"{name}{number}"
        if action == "claim":
            controller_epoch += 1
            log.append((CLAIM_KEY, ClaimRecord(controller_epoch, None, "c").to_json()))
        elif action == "change":
            held[topic_id] = held.get(topic_id, 0) + 1
            record = topic_record(
                name, held[topic_id], topic_id=topic_id, writable=writable, count=8, rest=RO if writable % 2 else NONE
            )
            log.append((topic_id, replace(record, controller_epoch=controller_epoch).to_json()))
        elif action == "move":
            key = moved_key(topic_id)
            held[key] = held.get(key, 0) + 1
            groups = tuple(f"g{number}" for number in range(writable))
            moved = MovedRecord(topic_id, groups, writable == 7, controller_epoch, held[key])
            log.append((key, moved.to_json() if writable else None))
        elif held.pop(topic_id, None) is not None:
            log.append((topic_id, None))
    return log


def compact(log: list[Entry], chance: random.Random) -> list[Entry]:
    """Something the cleaner may leave: of each key the newest records, at least one, or none after a tombstone."""
    left: list[Entry] = []
    latest = dict(log)
    counts = Counter(key for key, _ in log)
    kept = {key: chance.randint(latest[key] is not None, count) for key, count in counts.items()}
    for key, value in log:
        if counts[key] <= kept[key]:
            left.append((key, value))
        counts[key] -= 1
    return left


def state(replay: Replay) -> object:
    views = [replay.view_of(record) for name in NAMES for record in replay.records_of(name)]
    return replay.records, replay.moved, replay.claim, views


@given(steps, st.randoms(use_true_random=False))
def test_compaction_changes_nothing(done: list[Step], chance: random.Random) -> None:
    log = write(done)
    assert state(fold(compact(log, chance))) == state(fold(log))


@given(steps, st.randoms(use_true_random=False))
def test_duplicates_change_nothing(done: list[Step], chance: random.Random) -> None:
    log = write(done)
    # A retried append repeats a record right after itself, and so does a batch that is read twice.
    repeated = [entry for entry in log for _ in range(chance.choice((1, 1, 2, 3)))]
    assert state(fold(repeated)) == state(fold(log))


@given(steps, st.integers(0, 40))
def test_reading_on_from_an_earlier_offset_changes_nothing(done: list[Step], back: int) -> None:
    log = [entry for entry in write(done) if entry[1] is not None]
    replay = fold(log)
    before = replay.records, replay.claim
    for key, value in log[max(len(log) - back, 0) :]:
        replay.apply(key, value)
    assert (replay.records, replay.claim) == before


ELSEWHERE = topic_record("z", 9, topic_id="elsewhere").to_json()
"""A good record, and rubbish under any key but its topic's id, which is longer than the keys below."""
rubbish = st.tuples(
    st.one_of(st.none(), st.binary(max_size=8), st.sampled_from([CLAIM_KEY, "a1", "b2"])),
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from([b"{}", b"null", b'{"modes": [[0, 1e9, 0]]}', ELSEWHERE]),
        st.just(for_newer_readers(topic_record("a", 999, topic_id="a1"))),
    ),
)


@given(steps, st.lists(rubbish, max_size=10), st.randoms(use_true_random=False))
def test_rubbish_changes_nothing(done: list[Step], junk: list[Entry], chance: random.Random) -> None:
    log = write(done)
    mixed = list(log)
    for entry in junk:
        mixed.insert(chance.randint(0, len(mixed)), entry)
    replay = fold(mixed)
    assert state(replay) == state(fold(log))
    assert replay.rejected == len(junk)


@given(steps, st.integers(0, 2), st.integers(1, 40), st.randoms(use_true_random=False))
def test_a_topic_never_goes_back(done: list[Step], stale: int, late: int, chance: random.Random) -> None:
    log = write(done)
    # A controller that was replaced writes again, and records arrive that are older than what is held.
    mixed = list(log)
    for key, value in chance.sample(log, min(late, len(log))):
        if value is not None and key != CLAIM_KEY:
            mixed.insert(chance.randint(0, len(mixed)), (key, value))
    replay = Replay()
    for key, value in mixed:
        before = dict(replay.records)
        replay.apply(key, value)
        for topic_id, record in replay.records.items():
            assert topic_id not in before or record.version >= before[topic_id].version
