"""The views of one cluster, from wherever they are to be had: the mode log, or KIP-694's Metadata over the wire.

One thread does it all: it asks the bootstrap servers whether they have the feature, follows the log meanwhile, and goes
over to the wire once that has told the modes. Where the wire is lost, the log is followed again (invariant I6). Clients
see one board.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.config import ClientConfig
from modeaware.errors import ErrorCode, ModeAwareError, ModeSourceError
from modeaware.modelog.records import ClaimRecord
from modeaware.topic_view import TopicView
from modeaware.views.board import Board, OnBoard
from modeaware.views.cache import SourceStopped
from modeaware.views.log_views import MIN_TTL_MS, LogViews
from modeaware.views.scout import FIRST_BACKOFF_S, LAST_BACKOFF_S, Found, Scout
from modeaware.views.source import MAX_ID_AGE_S
from modeaware.views.topic_ids import IdChecks, TopicIds
from modeaware.views.wire_views import TopicsNotTold, WireViews

logger = logging.getLogger(__name__)

THREAD_NAME = "modeaware-modes"
MIN_INTERVAL_MS = 100
"""How often the wire is asked at most, however small ``topic.metadata.refresh.interval.ms`` is."""
ASK_TIMEOUT_S = 5.0
TRY_TIMEOUT_S = 2.5
"""The same while the log is in force, which is not followed meanwhile."""
SLICE_S, PROBE_SLICE_S = 0.2, 0.02
PROBE_WAIT_S = 0.003
"""What the tail waits for the servers' answers, several times at most, where only they are missing for a first view."""
LOG_PATIENCE_S = 0.5
"""How long the log's first view is waited for when the wire could tell one, too: loading its client takes longer."""
IDLE_S = 30.0
"""A connection that was not used for so long is closed: thousands of clients hang on an endpoint."""
SOON_S = 1.0
"""What :meth:`ClusterViews.refresh_soon` asks for comes no sooner after the last question."""


class ClusterViews(OnBoard):
    """``Views`` for the handles of one cluster, by ``modeaware.mode.source``.

    Args:
        conf: librdkafka settings of the client.
        config: where modes come from; names the log; how old views may grow.
        wanted: whether anybody still uses this.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        config: ClientConfig,
        wanted: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._conf = dict(conf)
        self._wanted = wanted
        self._clock = clock
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._source = config.mode_source
        self._interval_s = max(config.refresh_interval_ms, MIN_INTERVAL_MS) / 1000
        name = f"the mode log {config.mode_log_topic!r}" if self._source == "log" else "the source of partition modes"
        self.board = Board(self._fetch, max(config.refresh_interval_ms, MIN_TTL_MS), clock, name)
        self._log = LogViews(self._conf, config, self._log_goes_on, clock, self.board, self._absence_counts)
        self._wire = WireViews(self._conf, self.board, lambda: not self._stopping.is_set(), clock, self._take_id)
        self._ids = TopicIds(self._conf, clock)
        self._checks = IdChecks(
            self._ids, self.board.recorded, self._take_id, config.refresh_interval_ms / 1000, self._stopping, clock
        )
        self._scout = Scout(self._conf, self._interval_s, clock, says_so=self._source == "auto")
        self._on_wire = False
        self._wire_error: ModeAwareError | None = None
        self._log_state = (0, True)
        self._began_s = clock.monotonic_s()
        self._asked_s = self._began_s
        self._soon = False
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        """Start the thread. Once; blocks on nothing."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Stop the thread and wait for its end; the last views stay. From that thread itself: it ends when what it does
        now is done.

        Returns:
            Whether it has ended within ``timeout_s``: one that waits for a dead broker's answer ends a second later.
        """
        self._stopping.set()
        self._wake.set()
        self._log.tail.stop()
        self._ids.close()
        if self._thread is threading.current_thread():
            return False
        if self._thread.ident is not None:  # it was started
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # Views, as far as the board does not know

    def claim(self) -> ClaimRecord | None:
        ours, others = self._log.claim(), self._wire.claim()
        return (others or ours) if self._on_wire else (ours or others)

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        return self._log.removed(topic_ids)

    def verify(self, topics: Iterable[str], timeout_s: float, max_age_s: float = MAX_ID_AGE_S) -> frozenset[str]:
        return self._checks.verify(topics, timeout_s, max_age_s)

    def _take_id(self, topic: str, live_id: str) -> bool:
        """The cluster has ``live_id`` for the topic: have its view in force. Whether that took another one out."""
        with self.board.turn:
            if live_id in self.board.past_ids or self._log.removed([live_id]):
                logger.debug("a broker that lags behind returns a past topic id of %s: %s", topic, live_id)
                return False
            replaced = self.board.choose(topic, live_id, () if self._on_wire else self._log.views_of(topic))
        if replaced:
            logger.warning(
                "%s was deleted and created again (topic id %s): the view of the old topic is out of force",
                *(topic, live_id),
            )
        return replaced

    def refresh_soon(self) -> None:
        self._checks.soon()
        # The log tells changes by itself.
        if self._on_wire:
            self._soon = True
            self._wake.set()

    def error(self) -> Exception | None:
        failing = self.board.cache.error()
        if failing is None and (self._on_wire or self._log.present):
            return None  # what the probe has to say stands in the stats: both sources tell the same
        return self._wire_error or failing or self._scout.error

    def stats(self) -> dict[str, Any]:
        own: dict[str, Any] = {} if self._source == "wire" else self._log.stats()
        if self._source != "log":
            own = {"rejected_records": 0, "unreadable_topics": [], **own, **self.board.stats(), **self._scout.stats()}
            own |= {"server": self._wire.server, "wire_error": self._wire_error and str(self._wire_error)}
        error = self.error()
        return {
            **own,
            "source": "wire" if self._on_wire or self._source == "wire" else "log",
            "error": error and str(error),
            **self._checks.stats(),
        }

    def _fetch(self, topics: Collection[str] | None, timeout_s: float) -> Iterable[TopicView]:
        """For the cache, in whatever thread asks. ``topics``: None = all, as of now; empty = as the server has them."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        if not self._on_wire and self._source != "log" and not self.board.wait_ready(max(timeout_s, 0.0)):
            why = self.error() or "nobody has told the modes yet"
            raise ModeSourceError(f"no view of the partition modes in time: {why}", code=ErrorCode.REQUEST_TIMED_OUT)
        left_s = deadline_s - self._clock.monotonic_s()
        if not self._on_wire and self._source != "wire":
            return self._log.fetch(topics, left_s)
        try:
            self._wire.fetch(left_s, fresh=topics is None)
        except ModeSourceError as error:
            if self._stopping.is_set():
                raise SourceStopped(str(error), code=error.code) from error
            raise
        self.board.confirm()
        return ()

    # The thread

    def _run(self) -> None:
        backoff_s, failed_s = FIRST_BACKOFF_S, self._began_s
        while self._goes_on():
            try:
                if self._on_wire:
                    self._follow_wire()
                elif self._source == "wire":
                    self._look_for_wire()
                else:
                    self._log.tail.read_anew()
                    self._log.tail.run()
            except Exception as error:
                logger.exception("the source of partition modes failed; starting again")
                self.board.failed(ModeSourceError(f"modes: {type(error).__name__}: {error}"))
                if self._clock.monotonic_s() > failed_s + 2 * LAST_BACKOFF_S:  # it was well meanwhile
                    backoff_s = FIRST_BACKOFF_S
                failed_s = self._clock.monotonic_s()
                self._stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)
        self._scout.close()
        self._wire.close()
        self._ids.close()

    def _goes_on(self) -> bool:
        return not self._stopping.is_set() and self._wanted()

    def _log_goes_on(self) -> bool:
        """Asked by the tail a few times a second: the time to look for the wire."""
        if self._on_wire or not self._goes_on():
            return False
        self._checks.step()
        if self._source == "log" or not self._log.readings:  # the log's client is made before servers are asked
            return True
        state = (self._log.readings, self.board.cache.error() is None)
        if state != self._log_state:  # it was out of reach, or is in reach again, and so may be the servers
            self._log_state = state
            self._scout.hurry(even_if_failing=state[1])
        went_over = self._went_over()
        if self._scout.absent:
            self._wire_error = None
            if not self.board.ready:
                self._log.settle_absence()
        return not went_over

    def _went_over(self) -> bool:
        """Look for the wire for a moment, beside the log; whether the wire is the source from now on."""
        try:
            self._scout.step(PROBE_WAIT_S if self._log.spoke and not self.board.ready else 0.0)
            patient = not self._log.spoke and self._clock.monotonic_s() < self._began_s + LOG_PATIENCE_S
            return self._scout.found is not None and not patient and self._goes_over(self._scout.found)
        except Exception as error:  # whatever it is, it must not end the tail: the log can be read
            logger.exception("looking for partition modes over the wire failed; the log is followed meanwhile")
            self._scout.broke(error)
            return False

    def _absence_counts(self) -> bool:
        """ "There is no log" means that every partition is ReadWrite, unless a server may know modes all the same."""
        return self._source == "log" or self.board.ready or self._scout.absent

    def _look_for_wire(self) -> None:
        self._scout.step(PROBE_SLICE_S)
        found = self._scout.found
        if found is not None:
            self._goes_over(found)
        elif self._scout.error is not None:
            self.board.failed(self._scout.error)
        elif self._scout.absent:
            self._wire_error = None
            text = "no bootstrap server has the feature partition.mode (see modeaware.mode.source)"
            self.board.failed(ModeSourceError(f"modes over the wire: {text}"))
        if not self._on_wire:
            self._wake.wait(PROBE_SLICE_S if self._scout.error is None else SLICE_S)
            self._wake.clear()

    def _goes_over(self, found: Found) -> bool:
        """Ask the server that was found; from the moment it has told the modes, the wire is the source."""
        not_told: TopicsNotTold | None = None
        try:
            self._wire.point_to(found.server, ours=found.ours)
            self._wire.fetch(TRY_TIMEOUT_S if self.board.ready else ASK_TIMEOUT_S, fresh=True)
        except TopicsNotTold as error:
            not_told = error
        except (ModeAwareError, ImportError) as error:
            if not self._stopping.is_set():
                self._cannot_use(found, error)
            return False
        logger.info("partition modes come from %s over the wire", found.server)
        self._asked_s = self._clock.monotonic_s()
        self._on_wire, self._wire_error = True, None
        self._scout.served()
        self.board.confirm()
        if not_told is not None:
            self.board.failed(not_told)
        return True

    def _cannot_use(self, found: Found, error: ModeAwareError | ImportError) -> None:
        known = error if isinstance(error, ModeAwareError) else ModeSourceError(f"modes over the wire: {error}")
        if self._wire_error is None:
            logger.warning("%s has partition modes, and they cannot be asked for: %s", found.server, known)
        self._wire_error = known
        # What is not installed will not be in a second either.
        self._scout.lost(self._interval_s if isinstance(error, ImportError) else 0.0)

    def _follow_wire(self) -> None:
        """Ask at each interval, and when somebody has reason to, until the server does not answer."""
        backoff_s = FIRST_BACKOFF_S
        while self._goes_on():
            self._checks.step()
            if self._clock.monotonic_s() >= self._due_s(backoff_s):
                fresh, self._soon = self._soon, False
                self._asked_s = self._clock.monotonic_s()
                try:
                    self.board.cache.refresh(None if fresh else (), ASK_TIMEOUT_S)
                    backoff_s = FIRST_BACKOFF_S
                except TopicsNotTold:
                    backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)
                except ModeSourceError as error:
                    if self._goes_on():
                        self._leave_wire(error)
                    return
            elif self._clock.monotonic_s() > self._wire.used_s + IDLE_S:
                self._wire.close()
            self._wake.wait(min(SLICE_S, self._interval_s))
            self._wake.clear()

    def _due_s(self, backoff_s: float) -> float:
        """When the wire has to be asked next."""
        due_s = self._asked_s + 0.9 * self._interval_s  # before the views count as old
        if self._wire.confirm_due_s is not None:
            due_s = min(due_s, self._wire.confirm_due_s)
        if self._soon:
            due_s = min(due_s, self._asked_s + SOON_S)
        if self.board.cache.error() is not None:
            due_s = min(due_s, self._asked_s + backoff_s)
        return due_s

    def _leave_wire(self, error: ModeSourceError) -> None:
        logger.warning("%s does not tell the modes any more (%s); looking for another source", self._wire.server, error)
        self._on_wire = False
        self._wire.close()
        self._scout.found = None
        self._scout.hurry()
