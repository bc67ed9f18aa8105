"""What a refusal by the brokers means for a record that was queued for a topic before another one replaced it.

From the switch on brokers are made to refuse data for the predecessor, which they do with MSG_SIZE_TOO_LARGE. So a
record that was queued earlier, by a producer that was paused since, say, is refused with an error that misleads.
Nothing is sent again by us: an earlier attempt may have been stored.
"""

from __future__ import annotations

import math
import time
from typing import TypeVar

from modeaware.callouts import InnerLock, get_logger
from modeaware.errors import ModeSourceError, TopicReplaced
from modeaware.topic_view import Successor
from modeaware.views.source import Views

logger = get_logger(__name__)

E = TypeVar("E", bound=TopicReplaced)

PATIENCE_S = 3.0
"""How long refusals that the views do not explain wait for the views: those of a process that was suspended may take a
moment, too."""
REST_S = 10.0
"""How long none of them waits again after that."""


class Refusals:
    """The refusals of one producer's records. Thread-safe.

    Attributes:
        views: the producer's share; None until it has one.
    """

    def __init__(self, views: Views | None = None) -> None:
        self.views = views
        self._lock = InnerLock()
        self._asked_s = -math.inf
        self._logged: set[str] = set()

    def explain(self, topic: str, partition: int, kind: type[E]) -> E | None:
        """Return what to report of a record that brokers refused as too large; None: it is, or that is not known.

        May wait for the views.

        Args:
            kind: the client library's own form of the error.
        """
        try:
            successor = self._successor(topic)
        except Exception:  # a record that is refused has to be reported all the same
            logger.exception("%s-%d: it is not known why brokers refused a record", topic, partition)
            return None
        if successor is None:
            return None
        error = kind(
            f"{topic}-{partition}: brokers refused a record, because {topic} was replaced by {successor.topic}. This "
            "attempt has not stored it; where it was a retry, an earlier one may have, and the outcome is unknown. "
            f"Send it again under the same name if it may be stored twice: it goes to {successor.topic}",
            topic=topic,
            partition=partition,
            successor=successor.topic,
        )
        if topic not in self._logged:
            self._logged.add(topic)
            logger.warning("%s (logged once; others of the topic may follow)", error)
        return error

    def may_be_fenced(self, topic: str) -> bool:
        """Return whether ``topic`` is being replaced, or was: a refusal without explanation may still come of that."""
        return self.views is not None and self.views.view(topic).successor is not None

    def _successor(self, topic: str) -> Successor | None:
        """Return what has replaced ``topic``; None where nothing has: the record is too large."""
        views = self.views
        successor = None if views is None else views.view(topic).successor
        if views is None or successor is None:
            return None
        views.refresh_soon()
        if not successor.switched and (left_s := self._patience_s()) > 0:
            try:
                views.refresh(left_s)
            except ModeSourceError as error:
                logger.info("%s: it is not known whether it was replaced: %s", topic, error)
            successor = views.view(topic).successor
        return successor if successor is not None and successor.switched else None

    def _patience_s(self) -> float:
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._asked_s + PATIENCE_S + REST_S:
                self._asked_s = now_s
            return self._asked_s + PATIENCE_S - now_s
