"""What log records of main events are about comes with them, to OpenTelemetry as well."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.instrumentation.logging.handler import LoggingHandler
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from tests.support.engine_world import QUIET_MS, TOPIC, World

Told = Callable[[str], tuple[str | None, Mapping[str, Any]]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    """Logger and attributes of the last record with a text, as OpenTelemetry has been given it."""
    exporter, provider = InMemoryLogRecordExporter(), LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))

    def told(text: str) -> tuple[str | None, Mapping[str, Any]]:
        *_, last = (one for one in exporter.get_finished_logs() if text in str(one.log_record.body))
        scope = last.instrumentation_scope
        return scope.name if scope is not None else None, dict(last.log_record.attributes or {})

    caplog.set_level(logging.INFO, "modeaware")
    handler = LoggingHandler(logger_provider=provider)
    logging.getLogger("modeaware").addHandler(handler)
    yield told
    logging.getLogger("modeaware").removeHandler(handler)
    provider.shutdown()


def test_a_shrink_with_opentelemetry(told: Told) -> None:
    world = World()
    world.cluster.produce(11)
    world.shrink(4)
    record = world.record
    topic = {"topic": TOPIC, "topic_id": record.topic_id, "controller_epoch": 1}
    claimed = ("modeaware.controller", {"controller_id": "test", "controller_epoch": 1})
    assert told("claimed the mode log") == claimed
    shrunk = ("modeaware.controller", {**topic, "mode_epoch": record.epoch, "phase": "seal"})
    assert told("ReadOnly 4-11") == shrunk
    world.cluster.consume("g", 11)
    world.run(QUIET_MS)
    done = ("modeaware.controller", {**topic, "mode_epoch": world.record.epoch, "phase": "done"})
    assert told("phase done") == done
    effect = {"topic": TOPIC, "topic_id": record.topic_id, "effect": "DeleteRecords"}
    assert told(f"topic {TOPIC}: done: DeleteRecords") == ("modeaware.controller", effect)
