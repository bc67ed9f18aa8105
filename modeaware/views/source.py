"""The contract between clients and the source of partition modes: the mode log, or an endpoint over the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from modeaware.modelog.records import ClaimRecord
from modeaware.topic_view import TopicView

MAX_ID_AGE_S = 0.25
"""The age up to which a topic id from the cluster is reused, so that clients that start together share one request."""
VERIFY_TIMEOUT_S = 3.0
"""How long a client waits for the comparison of topic ids before it continues with the last view."""

ViewListener = Callable[[Mapping[str, TopicView]], None]


class Views(Protocol):
    """A client's handle on the shared views of one cluster. All methods may be called from any thread.

    Right after views come into force, listeners are called with them: one listener at a time, in the source's own
    thread or in the thread of a caller of :meth:`refresh`, :meth:`verify` or :meth:`subscribe`. Listeners must not
    block. Do not call these three methods while holding a lock that a listener takes. An exception from a listener is
    logged, and affects no other listener.
    """

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait for the first views. Return False on timeout, or if the source ends before it has views.

        The first views exist once the log has been read to its end, or a server has returned modes over the wire. They
        also exist (and are empty) once responses have shown that there is neither a log nor such a server.
        """
        ...

    @property
    def ready(self) -> bool:
        """Return whether the first views exist."""
        ...

    @property
    def ended(self) -> bool:
        """Return whether no more views can come, because the handle was closed or the interpreter is exiting."""
        ...

    def view(self, topic: str) -> TopicView:
        """Return the topic's view in force, or ``TopicView.unlisted(topic)`` if there is no record. Never does IO."""
        ...

    def views(self) -> Mapping[str, TopicView]:
        """Return the views of all topics that have a record."""
        ...

    def recorded(self, topics: Iterable[str]) -> set[str]:
        """Return those of ``topics`` that have a record, even of an earlier topic of that name (invariant I8)."""
        ...

    def claim(self) -> ClaimRecord | None:
        """Return the claim of the active controller, if there ever was one."""
        ...

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``topic_ids`` whose record was removed from the mode log, as far as the log was read."""
        ...

    def refresh(self, timeout_s: float) -> None:
        """Return once the views include all records that were in the log at the time of the call.

        Concurrent callers share one request. Waits for a transaction that is open at the end of the log.

        Raises:
            ModeSourceError: ``timeout_s`` has passed, or the source fails; the last views stay in force.
        """
        ...

    def refresh_soon(self) -> None:
        """Make the source's thread request views again soon, for example after an error of the cluster. Returns at
        once; calls in quick succession cause one request. Only the wire needs this: the log pushes its changes."""
        ...

    def verify(self, topics: Iterable[str], timeout_s: float, max_age_s: float = MAX_ID_AGE_S) -> frozenset[str]:
        """Compare the topic ids of views with the cluster's current ids (invariant I8).

        A topic that was deleted and created again has another id, and no view of the earlier id applies to the topic.
        When this method returns, the earlier view is out of force, and listeners have been called. If a record of the
        cluster's id is known, its view is in force, else :meth:`TopicView.unlisted`. From the first call on, the source
        repeats the comparison for these topics, at least every ``topic.metadata.refresh.interval.ms``.

        Topics without a record cost no request. For others the call blocks for one Metadata request, which concurrent
        callers share. If no id is returned (no broker, not authorized, unknown topic, brokers without topic ids), the
        last view stays in force, and :meth:`stats` names the topic. Never creates a topic, and never raises.

        Args:
            topics: names of topics that the client is about to use.
            timeout_s: how long to wait for the answer.
            max_age_s: up to what age an earlier answer is reused.

        Returns:
            The topics about which no broker has answered in time. An answer without an id counts as an answer.
        """
        ...

    def live_id(self, topic: str, timeout_s: float) -> str | None:
        """Return the cluster's current id of ``topic``, by one request; None if no broker returns it."""
        ...

    def subscribe(self, listener: ViewListener) -> None:
        """Call ``listener`` with the changed views at each change, and once with all views when they first exist."""
        ...

    def unsubscribe(self, listener: ViewListener) -> None:
        """Remove ``listener``. No call of ``listener`` begins afterwards; one may still be running. Idempotent."""
        ...

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Read the views with the client's new credentials from now on. The views in force stay, and other clients keep
        their credentials. Returns at once."""
        ...

    def error(self) -> Exception | None:
        """Return why the source cannot be read now, or None while it can be read."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return figures of the source: ``ready``, ``topics``, ``view_age_ms``, ``stale``, ``refresh_failures``, ..."""
        ...

    def close(self) -> None:
        """Release the handle; the release of the last one stops the source. Idempotent."""
        ...
