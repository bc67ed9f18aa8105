"""Following the claim: what a look that ends in an unusual way leaves behind, and when a claim was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware.controller import claims as claims_module
from modeaware.controller.claims import ClaimWatch
from modeaware.controller.contact import Contact
from modeaware.modelog.reader import LogAbsent, LogRecord, LogRewound
from modeaware.modelog.records import CLAIM_KEY, ClaimRecord
from modeaware.modelog.replay import fold
from tests.support.engine_world import World

CLAIM = ClaimRecord(7, "127.0.0.1:7", "the-other", claimed_ms=70, host="afar")
Apply = Callable[[Sequence[LogRecord]], None]


class Reads:
    """A mode log that is read: each look is a claim, or an error."""

    def __init__(self, *looks: ClaimRecord | Exception | None) -> None:
        self._looks = list(looks)
        self.starts: list[int] = []

    def __call__(self, conf: Any, topic: str, start: int, apply: Apply, timeout_s: float) -> int:
        self.starts.append(start)
        look = self._looks.pop(0)
        if isinstance(look, Exception):
            raise look
        if look is not None:
            apply([LogRecord(start, CLAIM_KEY.encode(), look.to_json())])
        return start + 1


def watch(monkeypatch: pytest.MonkeyPatch, reads: Reads) -> ClaimWatch:
    monkeypatch.setattr(claims_module, "read_to_end", reads)
    return ClaimWatch({}, "modes")


def test_a_log_that_was_made_again_has_no_claim_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(CLAIM, LogRewound("shorter"), None)
    seen = watch(monkeypatch, reads)
    seen.look(1)
    assert seen.look(1) is None
    assert reads.starts == [0, 1, 0]
    assert seen.highest_epoch == 7, "what was written under it may still be known to somebody"


def test_the_highest_epoch_stays_whatever_becomes_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, Reads(CLAIM, LogAbsent("none"), replace(CLAIM, controller_epoch=3)))
    assert seen.highest_epoch == 0
    for _ in range(3):
        seen.look(1)
    assert seen.claim is not None
    assert (seen.claim.controller_epoch, seen.highest_epoch) == (3, 7)


def test_a_claim_is_no_earlier_than_it_is_told_to_be_nor_is_its_release() -> None:
    """On a host whose clock is behind: who joins the election goes by the claim's time."""
    world = World()
    world.restart()
    later_ms = world.clock.now_ms() + 60_000
    world.engine.claim("test", Contact("127.0.0.1:2"), not_before_ms=later_ms)
    claimed = fold(world.log.entries).claim
    world.engine.release()
    released = fold(world.log.entries).claim
    assert claimed is not None
    assert released is not None
    assert (claimed.claimed_ms, released.claimed_ms) == (later_ms, later_ms)
