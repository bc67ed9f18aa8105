"""A controller's engine over a mode log in memory and a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from modeaware.config import ControllerConfig
from modeaware.controller.engine import Engine
from modeaware.controller.failures import Failures
from modeaware.controller.log import Contact
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode
from tests.support.modelog import fold
from tests.support.simulated import MemoryLog, SimClock, SimCluster

TOPIC = "orders"
QUIET_MS = 10_000
INTERVAL_MS = 300_000


class Failing(Failures):
    """What a test finds wrong on its way is not dealt with."""

    @contextmanager
    def isolated(self, what: str, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> Iterator[None]:
        try:
            with super().isolated(what, code):
                yield
        except ClusterError as error:
            if isinstance(error.__cause__, AssertionError):
                raise error.__cause__ from None
            raise


class World:
    """A cluster, its mode log, and the controller of the day."""

    def __init__(self, partitions: int = 12) -> None:
        self.clock = SimClock()
        self.log = MemoryLog()
        self.cluster = SimCluster(self.clock, TOPIC, partitions)
        self.engine = self.restart()

    def restart(self) -> Engine:
        """A new controller, as after a crash: it knows what is on the log."""
        self.cluster.forget_quiet()
        config = ControllerConfig(check_interval_ms=INTERVAL_MS, seal_quiet_ms=QUIET_MS)
        self.engine = Engine(self.log, self.cluster, self.cluster, config, self.clock)
        self.engine.failures = Failing()
        self.engine.claim("test", Contact("127.0.0.1:1"))
        return self.engine

    def shrink(self, to: int, delay_ms: int = 0) -> ErrorCode:
        (result,) = self.engine.execute([DeletePartitionsCommand(TOPIC, to, delay_ms)])
        return result.code

    def grow(self, to: int, **fields: object) -> ErrorCode:
        (result,) = self.engine.execute([CreatePartitionsCommand(TOPIC, to, **fields)])
        return result.code

    def run(self, for_ms: int = 0) -> None:
        """Let time pass, checking what falls due when it does."""
        until_ms = self.clock.now_ms() + for_ms
        for _ in range(1_000):
            if due := self.engine.schedule.due(self.clock.now_ms()):
                self.engine.check(self.engine.awake(due))
            next_ms = self.engine.schedule.next_ms()
            if next_ms is None or next_ms > until_ms:
                break
            self.clock.advance(max(next_ms - self.clock.now_ms(), 0))
        else:
            raise AssertionError("the engine is never done")
        self.clock.advance(until_ms - self.clock.now_ms())

    @property
    def record(self) -> TopicRecord:
        """The one record in force; what is in memory is what the log says."""
        (record,) = self.engine.records
        assert fold(self.log.entries).records == {record.topic_id: record}
        return record

    @property
    def modes(self) -> tuple[PartitionMode, ...]:
        return self.record.modes
