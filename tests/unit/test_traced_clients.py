"""Clients over the classes that OpenTelemetry's instrumentor puts in the place of confluent_kafka's.

It has to do so before modeaware is imported, hence in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
ConfluentKafkaInstrumentor().instrument(tracer_provider=provider)

import modeaware
from modeaware.views import registry
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import CONF

views = FakeViews()
registry.acquire = lambda conf, config: views
sent = []
with modeaware.Producer({**CONF, "on_delivery": lambda error, message: sent.append(message.partition())}) as producer:
    for _ in range(3):
        producer.produce("orders", b"v", key=b"k")
        views.set("orders", modes_of(12, {7}))
    producer.produce("orders", b"v", b"k")
    producer.produce_batch("orders", [{"value": b"v", "key": b"k"}])
    in_c = producer.modeaware_stats()["in_c"]
    producer.purge()
    producer.flush(10)
with modeaware.Consumer({**CONF, "group.id": "g"}) as consumer:
    polled = [consumer.poll(0), consumer.consume(1, 0)]
    consumer.subscribe(["orders"])
    polled += [consumer.poll(0), consumer.consume(1, 0)]
traced = [span.name for span in spans.get_finished_spans()]
print(json.dumps({"sent": sent, "in_c": in_c, "polled": polled, "traced": traced}))
"""


def test_traced_clients_produce_and_poll() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["polled"] == [None, [], None, []]
    assert found["sent"][1:] == [7] * 4
    assert not found["in_c"], "the extension calls librdkafka's own produce, past the tracer"
    assert found["traced"] == ["orders send"] * 4, "produce_batch is not traced"
