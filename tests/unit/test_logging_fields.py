"""What log records of main events are about comes with them, to OpenTelemetry as well."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.instrumentation.logging.handler import LoggingHandler
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from tests.support.engine_world import QUIET_MS, TOPIC, World


class Exported:
    """What OpenTelemetry has been given."""

    def __init__(self) -> None:
        self._exporter = InMemoryLogRecordExporter()
        self.provider = LoggerProvider(shutdown_on_exit=False)
        self.provider.add_log_record_processor(SimpleLogRecordProcessor(self._exporter))

    def told(self, text: str) -> tuple[str | None, Mapping[str, Any]]:
        """Logger and attributes of the last record with this text."""
        found = [one for one in self._exporter.get_finished_logs() if text in str(one.log_record.body)]
        assert found, [one.log_record.body for one in self._exporter.get_finished_logs()]
        scope = found[-1].instrumentation_scope
        return scope.name if scope is not None else None, dict(found[-1].log_record.attributes or {})


@pytest.fixture
def exported(caplog: pytest.LogCaptureFixture) -> Iterator[Exported]:
    caplog.set_level(logging.INFO, "modeaware")
    exported = Exported()
    handler = LoggingHandler(logger_provider=exported.provider)
    logging.getLogger("modeaware").addHandler(handler)
    yield exported
    logging.getLogger("modeaware").removeHandler(handler)
    exported.provider.shutdown()


def test_a_shrink_with_opentelemetry(exported: Exported) -> None:
    world = World()
    world.cluster.produce(11)
    world.shrink(4)
    record = world.record
    topic = {"topic": TOPIC, "topic_id": record.topic_id, "controller_epoch": 1}
    claimed = ("modeaware.controller", {"controller_id": "test", "controller_epoch": 1})
    assert exported.told("claimed the mode log") == claimed
    shrunk = ("modeaware.controller", {**topic, "mode_epoch": record.epoch, "phase": "seal"})
    assert exported.told("ReadOnly 4-11") == shrunk
    world.cluster.consume("g", 11)
    world.run(QUIET_MS)
    done = ("modeaware.controller", {**topic, "mode_epoch": world.record.epoch, "phase": "done"})
    assert exported.told("phase done") == done
    effect = {"topic": TOPIC, "topic_id": record.topic_id, "effect": "DeleteRecords"}
    assert exported.told(f"topic {TOPIC}: done: DeleteRecords") == ("modeaware.controller", effect)
