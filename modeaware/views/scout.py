"""Finds out which bootstrap server speaks KIP-694's Metadata, and never takes no for an answer for good."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ModeSourceError
from modeaware.wire.probe import Round

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 10.0
NEWS_AFTER = 2
"""One round that fails is no news: a broker of several may be down, or the only one be starting."""


@dataclass(frozen=True)
class Found:
    """A server that has the feature; ``ours``: it is an endpoint of modeaware."""

    server: str
    ours: bool


class Scout:
    """Asks all bootstrap servers, round by round. For one thread, which calls :meth:`step` a few times a second.

    A round in which nobody answers is an error, and says nothing about the feature; it is repeated with growing pauses.
    One in which somebody does answer, and nobody has the feature, means "not now": it is repeated after ``interval_s``
    (where some server was silent, after pauses that grow to that), and when :meth:`hurry` says so.

    Args:
        conf: the client's librdkafka settings.
        interval_s: between two rounds while all is well.
        says_so: whether failures are told to the log here, once, when they last.

    Attributes:
        found: who has the feature, by the last round that somebody answered.
        error: why nobody has answered in the last round.
        absent: nobody has the feature, by the last round that somebody answered.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        interval_s: float,
        clock: Clock = SYSTEM_CLOCK,
        *,
        says_so: bool = True,
    ) -> None:
        self._conf = conf
        self._interval_s = interval_s
        self._clock = clock
        self._says_so = says_so
        self._failed_rounds = 0
        self._round: Round | None = None
        self._due_s = clock.monotonic_s()
        self._began_s = clock.monotonic_s() - FIRST_BACKOFF_S
        self._backoff_s = FIRST_BACKOFF_S
        self.found: Found | None = None
        self.error: ModeSourceError | None = None
        self.absent = False

    def step(self, wait_s: float) -> None:
        """Go on with a round, or begin one that is due. Waits ``wait_s`` for servers at most."""
        now_s = self._clock.monotonic_s()
        if self._round is None:
            if now_s < self._due_s:
                return
            self._began_s = now_s
            self._round = Round(self._conf, self._clock)
            self._round.step(0.0)
        self._round.step(wait_s)
        if self._round.done or any(offer.modes for offer in self._round.offers.values()):
            self._conclude(self._round)

    def hurry(self, *, even_if_failing: bool = False) -> None:
        """Ask again soon: a connection was lost, or who was found does not answer. Not more than once a second.

        Args:
            even_if_failing: also while pauses grow, because rounds fail.
        """
        if even_if_failing or self._backoff_s == FIRST_BACKOFF_S:
            self._due_s = min(self._due_s, self._began_s + FIRST_BACKOFF_S)

    def lost(self, at_least_s: float = 0.0) -> None:
        """Who was found cannot be used: look again, after a pause that grows each time until :meth:`served`."""
        self.found = None
        self._due_s = self._clock.monotonic_s() + max(self._backoff(), at_least_s)

    def broke(self, error: Exception) -> None:
        """Looking, or using who was found, ended with an error that nobody expects: again after a growing pause."""
        self.lost()
        self.error = ModeSourceError(f"modes over the wire: {type(error).__name__}: {error}")
        self.close()

    def served(self) -> None:
        """Who was found can be used."""
        self._backoff_s = FIRST_BACKOFF_S

    def close(self) -> None:
        """Let the connections of a round that is under way go."""
        if self._round is not None:
            self._round.close()
            self._round = None

    def stats(self) -> dict[str, Any]:
        """``wire``: "found", "absent", "failed" or "unknown"; ``probe_error``."""
        if self.found is not None:
            state = "found"
        elif self.error is not None:
            state = "failed"
        else:
            state = "absent" if self.absent else "unknown"
        return {"wire": state, "probe_error": None if self.error is None else str(self.error)}

    def _conclude(self, done: Round) -> None:
        failure = done.failure()
        if failure is not None:
            self._failed_rounds += 1
            if self._failed_rounds == NEWS_AFTER and self._says_so:
                logger.warning("%s", failure)
            self._due_s = self._clock.monotonic_s() + self._backoff()
        else:
            self._failed_rounds = 0
            having = [Found(server, offer.ours) for server, offer in done.offers.items() if offer.modes]
            self.found = having[0] if having else None
            self.absent = not having
            if not done.failures and not having:
                self._backoff_s = FIRST_BACKOFF_S
            silent = bool(done.failures) and not having
            wait_s = self._interval_s
            if silent:  # for ever, maybe: nobody is kept busy by a server that was taken away
                wait_s = min(self._backoff(max(self._interval_s, LAST_BACKOFF_S)), self._interval_s)
            self._due_s = self._clock.monotonic_s() + wait_s
        self.error = failure
        self.close()

    def _backoff(self, last_s: float | None = None) -> float:
        last_s = LAST_BACKOFF_S if last_s is None else last_s
        now_s = min(self._backoff_s, last_s)
        self._backoff_s = min(2 * now_s, last_s)
        return now_s
