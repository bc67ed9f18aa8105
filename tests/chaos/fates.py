"""What became of each record, as far as its writer was told: which run, which transaction, with which outcome."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from tests.chaos.history import Outcome, WriterRun
from tests.chaos.record import Identity


class Fates:
    """Looks records up in the writers' transactions."""

    def __init__(self, writers: Iterable[WriterRun]) -> None:
        self._runs = {writer.run: _Transactions(writer) for writer in writers}

    def knows(self, number: int) -> bool:
        """Whether its run is one of the history's."""
        return number >> 48 in self._runs

    def seen(self, number: int) -> bool:
        """Note that a reader was given the record. False: it is one of an aborted transaction.

        A transaction of unknown outcome of which one record was seen was committed: then all of it has to be there.
        """
        run = self._runs[number >> 48]
        if not run.outcomes:
            return True
        index = run.index(Identity.of(number).sequence)
        if run.outcomes[index] is Outcome.UNKNOWN:
            run.outcomes[index] = Outcome.COMMITTED
        return run.outcomes[index] is not Outcome.ABORTED

    def outcome(self, number: int) -> Outcome:
        """COMMITTED for what was sent without a transaction."""
        run = self._runs[number >> 48]
        return run.outcomes[run.index(number & 0xFFFFFFFF)] if run.outcomes else Outcome.COMMITTED

    def transaction(self, number: int) -> tuple[int, int]:
        """Which one of which run it was sent in: the run, and the transaction's place in it."""
        run = self._runs[number >> 48]
        return number >> 48, run.index(number & 0xFFFFFFFF)


class _Transactions:
    def __init__(self, writer: WriterRun) -> None:
        transactions = writer.transactions or ()
        self._firsts = [transaction.first for transaction in transactions]
        self.outcomes = [transaction.outcome for transaction in transactions]

    def index(self, sequence: int) -> int:
        return max(bisect_right(self._firsts, sequence) - 1, 0)
