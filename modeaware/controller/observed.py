"""Remembering the cluster's brokers on the mode log, so that one that is down is still known (KIP-409)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from modeaware.clock import Clock
from modeaware.cluster.registered import Registered
from modeaware.controller.failures import Failures
from modeaware.errors import ClusterError
from modeaware.modelog.records import OBSERVED_BROKERS_KEY, ObservedBrokersRecord

logger = logging.getLogger("modeaware.controller")

LOOK_INTERVAL_S = 10.0


class ObservedLog(Protocol):
    """The log, and its record of brokers; None: one that was written for a newer reader, and is left alone."""

    observed: ObservedBrokersRecord | None
    observed_unreadable: bool

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None: ...


class BrokerWatch:
    """Keeps the record of observed brokers. The controller's thread owns it, and calls it while it is active.

    Args:
        look: asks the cluster which brokers it has.
        log: where the record is.
        policy: ``modeaware.under.replicated.creation``; None: whatever the record says.
    """

    def __init__(self, look: Callable[[], Registered], log: ObservedLog, policy: str | None, clock: Clock) -> None:
        self._look = look
        self._log = log
        self._policy = policy
        self._clock = clock
        self._epoch: int | None = None
        self._failures = Failures()
        self._due_s = 0.0

    def step(self, controller_epoch: int) -> None:
        """Look at the brokers, if it is time to; append the record, if anything has changed.

        After a claim there is more urgent work, so the first look comes a while later; but a log's first
        record and a new policy are for now.

        Raises:
            ControllerFenced, ClusterError: the log could not be appended to.
        """
        now_s = self._clock.monotonic_s()
        held = self._log.observed
        if held is None:
            return
        if controller_epoch != self._epoch:
            self._epoch = controller_epoch
            urgent = not held.brokers or self._policy not in (None, held.policy)
            self._due_s = now_s if urgent else now_s + LOOK_INTERVAL_S
        if now_s < self._due_s:
            return
        self._due_s = now_s + LOOK_INTERVAL_S
        try:
            with self._failures.isolated("a look at the cluster's brokers"):
                registered = self._look()
        except ClusterError as error:
            logger.debug("which brokers there are cannot be told now: %s", error)
            return
        after = observed_after(held, registered, self._policy)
        if after == held and not self._log.observed_unreadable:
            return
        record = replace(after, controller_epoch=controller_epoch, epoch=held.epoch + 1)
        self._log.append([(OBSERVED_BROKERS_KEY, record.to_json())])
        self._log.observed, self._log.observed_unreadable = record, False
        logger.info("brokers %s; under-replicated creation %s", sorted(record.brokers), record.policy)


def observed_after(held: ObservedBrokersRecord, registered: Registered, policy: str | None) -> ObservedBrokersRecord:
    """The record after a look. A broker stays in it until the cluster says that it is not even registered any more."""
    racks = {broker.node_id: broker.rack for broker in registered.brokers.values()}
    kept = {} if registered.complete else dict(held.brokers)
    return replace(held, policy=policy or held.policy, brokers=MappingProxyType({**kept, **racks}))
