"""A few thousand frames from a fixed seed, without a coverage-guided fuzzer; and the fuzzer finds what it is for."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from typing import Any

import pytest

from modeaware.endpoint import session as session_module
from modeaware.endpoint.order import Order
from modeaware.endpoint.session import Session
from modeaware.wire import strict
from modeaware.wire.frames import MalformedFrame
from tests.fuzz import large, play, tally
from tests.fuzz.events import Event, Kind, build, mutated, parse, plainly_changed
from tests.fuzz.play import Player
from tests.fuzz.seeds import seeds, spare
from tests.fuzz.tally import Finding, watched
from tests.support.conversation import hello, modes_request, request

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


def test_a_conversation_is_what_it_was_made_from() -> None:
    events = [Event(Kind.CLIENT, 0, b"x"), Event(Kind.DECODE, 31, b""), Event(Kind.GOOD, 3, b"y" * 300)]
    assert parse(build(200, events)) == (200, events)
    assert parse(build(1, events)[:-5]) == (1, [*events[:2], Event(Kind.GOOD, 3, b"y" * 295)])
    assert parse(b"") == (0, [])


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


HELLO = build(0, [Event(Kind.CLIENT, 0, hello(1)), Event(Kind.GOOD)])
TWO = build(0, [*(Event(Kind.CLIENT, 0, request(10, 4, number)) for number in (1, 2)), *[Event(Kind.GOOD)] * 2])
MALFORMED = build(0, [Event(Kind.CLIENT, 0, hello(1)), Event(Kind.CLIENT, 0, modes_request(2) + b"x")])


def _raising(error: Exception) -> Any:
    def raising(*_: Any) -> Any:
        raise error

    return raising


@pytest.mark.parametrize("error", [IndexError("x"), KeyError("x"), RecursionError("x"), MemoryError("x")])
def test_an_exception_is_found(player: Player, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(session_module, "peek_header", _raising(error))
    with pytest.raises(type(error)):
        player.play(HELLO)


def test_a_session_that_lets_a_malformed_frame_out_is_found(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    player.play(MALFORMED)
    assert player.tally.closed == 1
    for name in ("MalformedFrame", "ModeAwareError"):
        monkeypatch.setattr(session_module, name, KeyError)
    with pytest.raises(MalformedFrame):
        player.play(MALFORMED)


def test_a_decoder_that_raises_anything_else_is_found(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "read_message", _raising(TypeError("x")))
    with pytest.raises(TypeError):
        player.play(build(0, [Event(Kind.DECODE, 0, hello(1))]))


def test_an_answer_out_of_order_is_found(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    player.play(TWO)
    answered = Order.answered
    monkeypatch.setattr(Order, "answered", lambda self, payload: answered(self, payload) or self._send(b"twice"))
    with pytest.raises(Finding, match="out of order"):
        player.play(TWO)


def test_a_frame_that_hangs_is_found(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "MOST_CPU_S", 0.0)
    with pytest.raises(Finding, match="CPU time"):
        player.play(HELLO)


def test_a_conversation_that_takes_much_memory_is_found(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    init = Session.__init__

    def wasteful(self: Session, *arguments: Any) -> None:
        bytearray(2 * tally.MOST_PEAK_BYTES)
        init(self, *arguments)

    monkeypatch.setattr(Session, "__init__", wasteful)
    monkeypatch.setattr(play, "_MEASURED_EVERY", 1)
    with pytest.raises(Finding, match="bytes of memory"):
        player.play(HELLO)


def test_what_stays_is_found(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of it than other threads of the tests' process, which is what is measured, allocate meanwhile."""
    monkeypatch.setattr(play, "_WARM_AFTER", 1)
    monkeypatch.setattr(play, "_SAMPLED_EVERY", 1)
    monkeypatch.setattr(tally, "MOST_GROWTH_BLOCKS", 1_000_000)
    for _ in range(5):
        player.play(HELLO)
    kept: list[Any] = []
    init = Session.__init__

    def keeping(self: Session, *arguments: Any) -> None:
        kept.extend(object() for _ in range(2_000_000))
        init(self, *arguments)

    monkeypatch.setattr(Session, "__init__", keeping)
    with pytest.raises(Finding, match="grew"):
        player.play(HELLO)


def test_a_secret_in_a_reason_is_found(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Session._end
    monkeypatch.setattr(Session, "_end", lambda self, reason: end(self, reason + play.SECRET.decode()))
    with pytest.raises(Finding, match="may quote"):
        player.play(MALFORMED)
