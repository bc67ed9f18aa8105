"""Noticing within seconds that topics with a record were deleted, or deleted and recreated (invariant I4).

A look is one Metadata request, by name, for all topics that have a record: cheap enough to be repeated every few
seconds, however long the check interval of a settled topic is. One broker's word starts an inquiry and decides nothing:
a record goes only when every live broker names another id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from modeaware.clock import Clock
from modeaware.cluster.topic_identity import Ids
from modeaware.controller.engine import Engine
from modeaware.errors import ClusterError
from modeaware.lifecycle.replaced import missing_records, replaced_records

logger = logging.getLogger("modeaware.controller")

LOOK_INTERVAL_S = 3.0
COST_SHARE = 20
"""The pause after a look is at least so many times what the look took: thousands of large topics cost no more of the
thread than that share."""


class TopicWatch:
    """Compares the topic ids of all records with the cluster's. The controller's thread owns it.

    Args:
        one: what some broker says of these names.
        each: what each live broker says of them.
    """

    def __init__(
        self,
        engine: Engine,
        one: Callable[[Sequence[str]], Ids],
        each: Callable[[Sequence[str]], Mapping[int, Ids]],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._one = one
        self._each = each
        self._clock = clock
        self._due_s = clock.monotonic_s()
        self._missing: frozenset[str] = frozenset()

    def step(self) -> None:
        """Look, if it is time to. Topics that were replaced lose their record, those that are missing are checked.

        Raises:
            ControllerFenced, ClusterError: the mode log could not be appended to.
        """
        begun_s = self._clock.monotonic_s()
        if begun_s < self._due_s:
            return
        try:
            with self._engine.failures.isolated("a look at the ids of all topics"):
                replaced = self._look()
        except ClusterError as error:
            logger.debug("the ids of topics cannot be compared now: %s", error)
            replaced = ()
        now_s = self._clock.monotonic_s()
        self._due_s = now_s + max(LOOK_INTERVAL_S, COST_SHARE * (now_s - begun_s))
        if replaced:
            self._engine.remove(replaced)

    def _look(self) -> tuple[str, ...]:
        """The ids of the records to be removed.

        Raises:
            ClusterError: a broker that had to be asked did not answer.
        """
        records = self._engine.records
        if not records:
            return ()
        ids = self._one(sorted({record.topic for record in records}))
        missing = frozenset(record.topic_id for record in missing_records(records, ids))
        for topic_id in missing - self._missing:
            self._engine.check_at_once(topic_id)
        self._missing = missing
        suspects = replaced_records(records, [ids])
        if not suspects:
            return ()
        told = self._each(sorted({record.topic for record in suspects}))
        return tuple(record.topic_id for record in replaced_records(suspects, list(told.values())))
