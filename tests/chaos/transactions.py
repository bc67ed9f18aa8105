"""The transactions of a transactional writer: when they begin and end, and what is noted of them."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

from tests.chaos.journal import Journal, Kind

log = logging.getLogger("transactions")

LENGTH_S = (0.1, 0.6)
ABORTED_SHARE = 0.08
CALL_S = 15.0
GIVE_UP_S = 90.0


class Transactions:
    """Keeps one transaction open at a time. One thread owns it.

    What is not noted as committed or aborted is of unknown outcome: also where a call failed.
    """

    def __init__(
        self, producer: Producer, journal: Journal, chance: random.Random, monotonic_s: Callable[[], float]
    ) -> None:
        self._producer = producer
        self._journal = journal
        self._chance = chance
        self._monotonic_s = monotonic_s
        self._end_s = 0.0
        self._first: int | None = None

    @property
    def open(self) -> bool:
        """Whether records can be sent."""
        return self._first is not None

    def start(self) -> None:
        """Fence the last incarnation, end its transaction.

        Raises:
            KafkaException: not possible.
        """
        self._insist(lambda: self._producer.init_transactions(CALL_S))

    def turn(self, sequence: int) -> None:
        """End the open transaction where it is time, and begin the next.

        Args:
            sequence: the number of the record that is sent next.

        Raises:
            KafkaException: the producer is of no use any more.
        """
        if self._first is not None and self._monotonic_s() >= self._end_s:
            self.finish(sequence)
        if self._first is None:
            self._producer.begin_transaction()
            self._first = sequence
            self._end_s = self._monotonic_s() + self._chance.uniform(*LENGTH_S)
            self._journal.add(Kind.BEGUN, offset=sequence)

    def finish(self, sequence: int) -> None:
        """Commit or abort what is open.

        Raises:
            KafkaException: the producer is of no use any more, and what became of the transaction is not known.
        """
        if self._first is None:
            return
        if self._chance.random() < ABORTED_SHARE or not self._commit():
            self.abandon(sequence)
        else:
            self._ended(Kind.COMMITTED, sequence)

    def abandon(self, sequence: int) -> None:
        """Abort what is open.

        Raises:
            KafkaException: the producer is of no use any more, and what became of the transaction is not known.
        """
        self._insist(lambda: self._producer.abort_transaction(CALL_S))
        self._ended(Kind.ABORTED, sequence)

    def _ended(self, outcome: Kind, sequence: int) -> None:
        self._producer.poll(0)
        self._journal.add(outcome, offset=sequence)
        self._journal.flush()
        self._first = None

    def _commit(self) -> bool:
        """False: it has to be aborted."""
        try:
            self._producer.flush(CALL_S)  # so that every acknowledgement is noted before the commit is
        except SystemError as error:  # confluent_kafka's, when a signal comes just then: nothing is wrong but the call
            log.warning("again: %s", error)
            self._producer.flush(CALL_S)
        try:
            self._insist(lambda: self._producer.commit_transaction(CALL_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            log.warning("aborting: %s", error)
            return False
        return True

    def _insist(self, call: Callable[[], object]) -> None:
        deadline_s = self._monotonic_s() + GIVE_UP_S
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._monotonic_s() > deadline_s:
                    raise
                log.warning("again: %s", error)
