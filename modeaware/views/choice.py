"""The choice of the source of one cluster's views: the mode log, or KIP-694's Metadata over the wire.

``modeaware.mode.source`` names a source, or ``auto``. With ``auto`` one thread follows the log and, at the same time,
probes the bootstrap servers for the feature ``partition.mode``. Once a server has returned the modes, the wire is the
source. When the server stops responding, the thread follows the log and probes again. Both sources publish to one
store, so a change of the source is invisible to clients, and views outlive both sources (invariant I6).

"Absent" is never final: the log and the feature may appear while clients run. A failed probe is an error, never
"absent". An absent log means that every partition is ReadWrite. Exception: with ``auto``, before the first views, the
log's absence means this only if a server has responded, and no server that responded has the feature.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from modeaware import os_threads
from modeaware.callouts import get_logger
from modeaware.clock import SYSTEM_CLOCK, Backoff, Clock
from modeaware.config import ClientConfig
from modeaware.errors import ErrorCode, ModeAwareError, ModeSourceError, without_frames
from modeaware.modelog.records import ClaimRecord
from modeaware.views.log import LogSource
from modeaware.views.store import SourceStopped, ViewStore
from modeaware.views.topic_ids import IdChecks, TopicIds
from modeaware.views.wire import TopicsMissing, WireSource
from modeaware.wire.probe import Round

logger = get_logger(__name__)

THREAD_NAME = "modeaware-modes"
MIN_TTL_MS = 1_000
"""Younger views do not expire, even if ``topic.metadata.refresh.interval.ms`` is less: the log pushes its changes."""
MIN_INTERVAL_MS = 100
"""The shortest time between requests over the wire, even if ``topic.metadata.refresh.interval.ms`` is less."""
FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 10.0
REPORTED_AFTER = 2
"""Failures are reported after so many failed rounds, and not after one: a broker may be down for a moment, or may just
be starting."""
ASK_TIMEOUT_S = 5.0
TRY_TIMEOUT_S = 2.5
"""The timeout of the request that tries a server, once views exist. Meanwhile the thread cannot follow the log."""
SLICE_S, PROBE_SLICE_S = 0.2, 0.02
PROBE_WAIT_S = 0.003
"""How long one step of the tail (the loop that reads the log) waits for servers if only they delay the first view."""
LOG_PATIENCE_S = 0.5
"""How long to wait for the log's first answer before the wire is used, even if a server has the feature: loading the
wire's client takes longer."""
IDLE_S = 30.0
"""A connection that is idle for this long is closed: an endpoint has thousands of clients."""
SOON_S = 1.0
"""The least time between two requests over the wire, if :meth:`ModeSource.refresh_soon` or a replacement causes one."""


class ModesServer(NamedTuple):
    """A server that has the feature. ``ours`` is whether the server is an endpoint of modeaware."""

    server: str
    ours: bool


class FeatureProbe:
    """Probes all bootstrap servers for the feature, round by round. For one thread, which calls :meth:`step` often.

    A round without any response is an error; the next rounds follow with growing pauses. A round with responses, but
    without the feature, means "not now": the next round follows after ``interval_s``, or earlier after :meth:`hurry`.
    If some server was silent, the pauses before the next rounds grow to ``interval_s``.

    Args:
        conf: the client's librdkafka settings.
        interval_s: the pause between two rounds without failures.
        reports: whether the probe logs failures that last (:data:`REPORTED_AFTER`), once.

    Attributes:
        modes_server: a server that has the feature, by the last round with a response; else None.
        absent: whether no server has the feature, by the last round with a response.
        error: why the last round had no response; None if it had one.
    """

    def __init__(
        self, conf: Mapping[str, Any], interval_s: float, clock: Clock = SYSTEM_CLOCK, *, reports: bool = True
    ) -> None:
        self._conf = conf
        self._interval_s = interval_s
        self._clock = clock
        self._reports = reports
        self._failed_rounds = 0
        self._round: Round | None = None
        self._due_s = clock.monotonic_s()
        self._began_s = clock.monotonic_s() - FIRST_BACKOFF_S
        self._backoff = Backoff(FIRST_BACKOFF_S, LAST_BACKOFF_S)
        self.modes_server: ModesServer | None = None
        self.error: ModeSourceError | None = None
        self.absent = False

    def step(self, wait_s: float) -> None:
        """Continue a round, or begin one that is due. Wait for servers for at most ``wait_s``."""
        now_s = self._clock.monotonic_s()
        if self._round is None:
            if now_s < self._due_s:
                return
            self._began_s = now_s
            self._round = Round(self._conf)
            self._round.step(0.0)
        self._round.step(wait_s)
        if self._round.done or any(offer.modes for offer in self._round.offers.values()):
            self._conclude(self._round)

    def hurry(self, *, even_if_failing: bool = False) -> None:
        """Bring the next round forward, after a connection was lost. Rounds still begin at least a second apart.

        Args:
            even_if_failing: bring the next round forward even while rounds fail and pauses grow.
        """
        if even_if_failing or self._backoff.now_s == FIRST_BACKOFF_S:
            self._due_s = min(self._due_s, self._began_s + FIRST_BACKOFF_S)

    def lost(self, at_least_s: float = 0.0) -> None:
        """Note that ``modes_server`` cannot be used: probe again after a pause, which grows with each call until
        :meth:`served` is called."""
        self.modes_server = None
        self._due_s = self._clock.monotonic_s() + max(self._backoff.next_s(), at_least_s)

    def broke(self, error: Exception) -> None:
        """Note an unexpected error in a round, or in the use of ``modes_server``: retry after a growing pause."""
        self.lost()
        self.error = ModeSourceError(f"modes over the wire: {type(error).__name__}: {error}")
        self.close()

    def served(self) -> None:
        """Note that ``modes_server`` can be used."""
        self._backoff.reset()

    def close(self) -> None:
        """Close the connections of a round that is under way."""
        if self._round is not None:
            self._round.close()
            self._round = None

    def stats(self) -> dict[str, Any]:
        """Return ``wire`` ("found", "absent", "failed" or "unknown") and ``probe_error`` (a text or None)."""
        state = "absent" if self.absent else "unknown"
        if self.modes_server is not None:
            state = "found"
        elif self.error is not None:
            state = "failed"
        return {"wire": state, "probe_error": None if self.error is None else str(self.error)}

    def _conclude(self, done: Round) -> None:
        self.error = done.failure()
        if self.error is not None:
            self._failed_rounds += 1
            if self._failed_rounds == REPORTED_AFTER and self._reports:
                logger.warning("%s", self.error)
            wait_s = self._backoff.next_s()
        else:
            self._failed_rounds = 0
            servers = (ModesServer(server, offer.ours) for server, offer in done.offers.items() if offer.modes)
            self.modes_server = next(servers, None)
            self.absent = self.modes_server is None
            wait_s = self._interval_s
            if self.absent and done.failures:  # a server that was removed never responds: do not probe all the time
                wait_s = min(self._backoff.next_s(max(self._interval_s, LAST_BACKOFF_S)), self._interval_s)
            elif self.absent:
                self._backoff.reset()
        self._due_s = self._clock.monotonic_s() + wait_s
        self.close()


class ModeSource:
    """What clients' handles share: a store of views, the sources that fill the store, and the thread that chooses one.

    Args:
        conf: librdkafka settings of the client.
        config: names the source of modes and the log, and limits the age of views.
        wanted: returns whether a handle is still in use.
        groups: returns the groups of the consumers that use this source.

    Attributes:
        store: the views in force.
        log: the mode log as a source, also while the wire is the source.
        checks: compares the views' topic ids with the cluster's.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        config: ClientConfig,
        wanted: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM_CLOCK,
        groups: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        conf = dict(conf)
        self._wanted = wanted
        self._clock = clock
        self._pid = os.getpid()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._source = config.mode_source
        self._interval_s = max(config.refresh_interval_ms, MIN_INTERVAL_MS) / 1000
        name = f"the mode log {config.mode_log_topic!r}" if self._source == "log" else "the source of partition modes"
        if self._source == "wire":
            # Imported before the thread starts: if the process forked during the import, the child would hang in it.
            with suppress(ImportError):  # the thread reports the error
                import modeaware.wire.transport  # noqa: F401 # only imported, so that the thread need not
        self.store = ViewStore(self._fetch, max(config.refresh_interval_ms, MIN_TTL_MS), clock, name)
        self.log = LogSource(conf, config, self.store, self._log_wanted, clock, self._absence_counts)
        self._wire = WireSource(conf, self.store, lambda: not self._stopping.is_set(), clock, self._take_id, groups)
        self._ids = TopicIds(conf, clock)
        interval_s = config.refresh_interval_ms / 1000
        self.checks = IdChecks(self._ids, self.store.recorded, self._take_id, interval_s, self._stopping, clock)
        self._probe = FeatureProbe(conf, self._interval_s, clock, reports=self._source == "auto")
        self._on_wire = False
        self._wire_error: ModeAwareError | None = None
        self._log_state = (0, True)
        self._began_s = self._asked_s = clock.monotonic_s()
        self._soon = False
        self._following = False
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        """Start the thread. Once; does not block."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Stop the thread and wait for its end; the last views stay. In the thread itself, return at once: the thread
        ends after its present step.

        Returns:
            Whether the thread has ended within ``timeout_s``. A thread that waits for a dead broker ends later.
        """
        self._stopping.set()
        self._wake.set()
        self.store.end()
        self.log.end()
        self._ids.close()
        if self._thread is threading.current_thread():
            return False
        if self._thread.ident is not None:  # it was started
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # For handles: see ``Views``

    @property
    def ended(self) -> bool:
        return self._stopping.is_set()

    def claim(self) -> ClaimRecord | None:
        log, wire = self.log.claim(), self._wire.claim()
        return (wire or log) if self._on_wire else (log or wire)

    def refresh_soon(self) -> None:
        self.checks.soon()
        if self._on_wire:  # the log pushes its changes
            self._soon = True
            self._wake.set()

    def error(self) -> Exception | None:
        failing = self.store.error()
        if failing is None and (self._on_wire or self.log.present):
            return None  # both sources give the same views, so a failed probe matters only to stats()
        return self._wire_error or failing or self._probe.error

    def stats(self) -> dict[str, Any]:
        own: dict[str, Any] = self.store.stats()
        own |= {"rejected_records": 0, "unreadable_topics": []} if self._source == "wire" else self.log.stats()
        if self._source != "log":
            own |= self._probe.stats()
            own |= {"server": self._wire.server, "wire_error": self._wire_error and str(self._wire_error)}
        error = self.error()
        source = "wire" if self._on_wire or self._source == "wire" else "log"
        return {**own, "source": source, "error": error and str(error), **self.checks.stats()}

    def _take_id(self, topic: str, live_id: str) -> bool:
        """Put the view of ``live_id`` in force, the topic id that the cluster has returned for ``topic``.

        Return whether a view of another id is no longer in force.
        """
        with self.store.turn:
            if live_id in self.store.past_ids or self.log.removed([live_id]):
                logger.debug("a broker that lags behind returns an earlier topic id of %s: %s", topic, live_id)
                return False
            replaced = self.store.choose(topic, live_id, () if self._on_wire else self.log.views_of(topic))
        if replaced:
            logger.warning(
                "%s was deleted and created again (topic id %s): the view of the deleted topic no longer applies",
                *(topic, live_id),
            )
        return replaced

    def _fetch(self, fresh: bool, timeout_s: float) -> None:
        """Publish the current source's views; in the thread that calls :meth:`ViewStore.refresh`."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        if not self._on_wire and self._source != "log" and not self.store.wait_ready(max(timeout_s, 0.0)):
            why = self.error() or "no source has answered yet"
            raise ModeSourceError(f"no view of the partition modes in time: {why}", code=ErrorCode.REQUEST_TIMED_OUT)
        left_s = deadline_s - self._clock.monotonic_s()
        if not self._on_wire and self._source != "wire":
            self.log.fetch(left_s)
            return
        try:
            self._wire.fetch(left_s, fresh=fresh)
        except ModeSourceError as error:
            if self._stopping.is_set():
                raise SourceStopped(str(error), code=error.code) from error
            raise
        finally:
            self._note_new_topics()

    def _note_new_topics(self) -> None:
        new_topics = [view.replaced_by for view in self.store.views().values()]
        self._following = any(new_topic is not None and not new_topic.released for new_topic in new_topics)

    # The thread

    def _run(self) -> None:
        backoff, failed_s = Backoff(FIRST_BACKOFF_S, LAST_BACKOFF_S), self._began_s
        while self._is_wanted():
            try:
                if self._on_wire:
                    self._follow_wire()
                elif self._source == "wire":
                    self._probe_for_wire()
                else:
                    self.log.tail.read_anew()
                    self.log.tail.run()
            except Exception as error:
                logger.exception("the source of partition modes failed; starting again")
                self.store.failed(ModeSourceError(f"modes: {type(error).__name__}: {error}"))
                if self._clock.monotonic_s() > failed_s + 2 * LAST_BACKOFF_S:  # the source worked meanwhile
                    backoff.reset()
                failed_s = self._clock.monotonic_s()
                self._stopping.wait(backoff.next_s())
        self._probe.close()
        self._wire.close()
        self._ids.close()

    def _is_wanted(self) -> bool:
        os_threads.end_in_child_of(self._pid)
        return not self._stopping.is_set() and self._wanted()

    def _log_wanted(self) -> bool:
        """Return whether the tail is to continue. The tail calls this method a few times a second, so the method also
        compares topic ids and probes for the wire."""
        if self._on_wire or not self._is_wanted():
            return False
        self.checks.step()
        if self._source == "log" or not self.log.readings:  # servers are probed only once the log's client exists
            return True
        state = (self.log.readings, self.store.error() is None)
        if state != self._log_state:  # the log became reachable or unreachable, and perhaps so did the servers
            self._log_state = state
            self._probe.hurry(even_if_failing=state[1])
        went_over = self._switched_to_wire()
        if self._probe.absent:
            self._wire_error = None
            if not self.store.ready:
                self.log.confirm_absence()
        return not went_over

    def _absence_counts(self) -> bool:
        """Return whether an absent log means that every partition is ReadWrite. With ``auto``, before the first view,
        the log's absence means this only if no server has the feature."""
        return self._source == "log" or self.store.ready or self._probe.absent

    def _switched_to_wire(self) -> bool:
        """Probe for the wire for a moment, beside the log; return whether the wire is the source from now on."""
        try:
            self._probe.step(PROBE_WAIT_S if self.log.has_answered and not self.store.ready else 0.0)
            patient = not self.log.has_answered and self._clock.monotonic_s() < self._began_s + LOG_PATIENCE_S
            return (
                self._probe.modes_server is not None and not patient and self._switch_to_wire(self._probe.modes_server)
            )
        except Exception as error:  # no error may end the tail: the log can be read
            logger.exception("probing for partition modes over the wire failed; following the mode log meanwhile")
            self._probe.broke(error)
            return False

    def _probe_for_wire(self) -> None:
        self._probe.step(PROBE_SLICE_S)
        if self._probe.modes_server is not None:
            self._switch_to_wire(self._probe.modes_server)
        elif self._probe.error is not None:
            self.store.failed(self._probe.error)
        elif self._probe.absent:
            self._wire_error = None
            text = "no bootstrap server has the feature partition.mode (see modeaware.mode.source)"
            self.store.failed(ModeSourceError(f"modes over the wire: {text}"))
        if not self._on_wire:
            self._wake.wait(PROBE_SLICE_S if self._probe.error is None else SLICE_S)
            self._wake.clear()

    def _switch_to_wire(self, server: ModesServer) -> bool:
        """Request modes from a server with the feature; once it has returned them, the wire is the source."""
        missing: TopicsMissing | None = None
        try:
            self._wire.point_to(server.server, ours=server.ours)
            self._wire.fetch(TRY_TIMEOUT_S if self.store.ready else ASK_TIMEOUT_S, fresh=True)
        except TopicsMissing as error:
            missing = error
        except (ModeAwareError, ImportError) as error:
            if not self._stopping.is_set():
                self._cannot_use(server, error)
            return False
        self._note_new_topics()
        logger.info("partition modes come from %s over the wire", server.server)
        self._asked_s = self._clock.monotonic_s()
        self._on_wire, self._wire_error = True, None
        self._probe.served()
        self.store.confirm()
        if missing is not None:
            self.store.failed(missing)
        return True

    def _cannot_use(self, server: ModesServer, error: ModeAwareError | ImportError) -> None:
        known = error if isinstance(error, ModeAwareError) else ModeSourceError(f"modes over the wire: {error}")
        if self._wire_error is None:
            logger.warning("%s offers partition modes, but they cannot be requested: %s", server.server, known)
        self._wire_error = without_frames(known)
        # A missing package stays missing: probe again only after the interval.
        self._probe.lost(self._interval_s if isinstance(error, ImportError) else 0.0)

    def _follow_wire(self) -> None:
        """Request modes at each interval, and after :meth:`refresh_soon`, until the server does not respond."""
        backoff = Backoff(FIRST_BACKOFF_S, LAST_BACKOFF_S)
        while self._is_wanted():
            self.checks.step()
            if self._clock.monotonic_s() >= self._due_s(backoff.now_s):
                fresh, self._soon = self._soon, False
                self._asked_s = self._clock.monotonic_s()
                try:
                    self.store.refresh(ASK_TIMEOUT_S, fresh=fresh)
                    backoff.reset()
                except TopicsMissing:
                    backoff.next_s()
                except ModeSourceError as error:
                    if self._is_wanted():
                        self._leave_wire(error)
                    return
            elif self._clock.monotonic_s() > self._wire.used_s + IDLE_S:
                self._wire.close()
            self._wake.wait(min(SLICE_S, self._interval_s))
            self._wake.clear()

    def _due_s(self, backoff_s: float) -> float:
        """Return when the next request over the wire is due: within a second while a replacement is in progress, so
        that clients follow a switch as fast."""
        due_s = self._asked_s + 0.9 * self._interval_s  # before the views count as stale
        if self._following:
            due_s = min(due_s, self._asked_s + SOON_S)
        if self._wire.confirm_due_s is not None:
            due_s = min(due_s, self._wire.confirm_due_s)
        if self._soon:
            due_s = min(due_s, self._asked_s + SOON_S)
        if self.store.error() is not None:
            due_s = min(due_s, self._asked_s + backoff_s)
        return due_s

    def _leave_wire(self, error: ModeSourceError) -> None:
        """Probe for another source; meanwhile follow the log again, if the settings allow it (invariant I6)."""
        logger.warning("%s does not return modes any more (%s); looking for another source", self._wire.server, error)
        self._on_wire = False
        self._wire.close()
        self._probe.modes_server = None
        self._probe.hurry()
