"""``producer.produce`` and its siblings are bound methods like any other, for tools that look at what they get."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterator
from typing import Any
from unittest import mock

import backoff
import confluent_kafka
import pytest
import tenacity
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor

import modeaware
from modeaware.errors import PartitionRetired
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import CONF, finish

PRODUCE = ["topic", "value", "key", "partition", "callback", "on_delivery", "timestamp", "headers"]
ANY = ["args", "kwargs"]
METHODS = {
    modeaware.Producer: {"produce": PRODUCE, "produce_batch": ANY},
    modeaware.Consumer: {
        "poll": ["timeout"],
        "consume": ["num_messages", "timeout"],
        "commit": ANY,
        "store_offsets": ANY,
    },
}
"""With their parameters."""


def without_extension(kind: type[Any]) -> type[Any]:
    """``kind`` with its methods as they are where no compiler was."""
    methods = {
        name: getattr(method, "function", method) for name, method in vars(kind).items() if name in METHODS[kind]
    }
    return type(kind.__name__, (kind,), methods)


@pytest.fixture(params=["in C", "in Python"])
def clients(request: pytest.FixtureRequest, views: FakeViews) -> Iterator[dict[type[Any], Any]]:
    kinds = {kind: kind if request.param == "in C" else without_extension(kind) for kind in METHODS}
    made = {kind: of({**CONF, "group.id": "g"} if kind is modeaware.Consumer else CONF) for kind, of in kinds.items()}
    yield made
    made[modeaware.Consumer].close()
    finish(made[modeaware.Producer])


def test_it_has_all_that_a_bound_method_has(clients: dict[type[Any], Any]) -> None:
    for kind, names in METHODS.items():
        client: Any = clients[kind]
        for name, parameters in names.items():
            method = getattr(client, name)
            assert inspect.ismethod(method)
            assert (method.__name__, method.__qualname__) == (name, f"{kind.__name__}.{name}")
            assert method.__self__ is client
            assert method.__module__ == kind.__module__
            assert method.__doc__ == getattr(kind, name).__doc__
            assert "confluent_kafka" in method.__doc__
            assert method.__func__ is getattr(type(client), name)
            assert method == getattr(client, name) == copy.copy(method)
            assert hash(method) == hash(getattr(client, name))
            assert list(inspect.signature(method).parameters) == parameters
            assert "self" in inspect.signature(getattr(kind, name)).parameters
            wrapped = functools.wraps(method)(lambda: None)
            assert (wrapped.__name__, wrapped.__doc__) == (name, method.__doc__)
            assert vars(wrapped) == {"__wrapped__": method}
            assert inspect.signature(wrapped) == inspect.signature(method)
            assert repr(method).startswith(f"<bound method {kind.__name__}.{name} of <")


def test_decorators_of_others_take_it(clients: dict[type[Any], Any]) -> None:
    producer: Any = clients[modeaware.Producer]
    retried = backoff.on_exception(backoff.constant, BufferError, max_tries=2, interval=0)(producer.produce)
    retried("orders", b"v", b"k")
    again = tenacity.retry(stop=tenacity.stop_after_attempt(2), reraise=True)(producer.produce)
    again("orders", value=b"v")
    with pytest.raises(TypeError):
        again()
    functools.partial(producer.produce, "orders")(b"v")
    proxy = ConfluentKafkaInstrumentor.instrument_producer(producer)
    proxy.produce("orders", b"v", key=b"k")
    polled = ConfluentKafkaInstrumentor.instrument_consumer(clients[modeaware.Consumer]).poll(0)
    assert polled is None
    assert mock.create_autospec(producer, instance=True).produce("orders", b"v") is not None
    delivered: list[Any] = []
    producer.produce("orders", b"v", on_delivery=lambda error, message: delivered.append(message.value()))
    producer.purge()
    producer.flush(10)
    assert delivered == [b"v"]


def test_a_patch_of_the_instance_or_of_the_class_is_called_as_long_as_it_is_there(
    clients: dict[type[Any], Any], views: FakeViews
) -> None:
    producer: Any = clients[modeaware.Producer]
    with mock.patch.object(producer, "produce") as patched:
        producer.produce("orders", b"v")
    patched.assert_called_once_with("orders", b"v")
    with mock.patch.object(type(producer), "produce") as patched:
        producer.produce("orders", b"v")
    patched.assert_called_once_with("orders", b"v")
    views.set("orders", modes_of(12, 4))
    with pytest.raises(confluent_kafka.KafkaException):
        producer.produce("orders", b"v", partition=4)


def test_it_is_called_on_a_client_alone() -> None:
    for kind, names in METHODS.items():
        for name in names:
            for wrong in ((), (None,), (object(),), (confluent_kafka.Producer({"log_level": 0}),)):
                with pytest.raises((TypeError, AttributeError)):
                    getattr(kind, name)(*wrong)


def test_client_whose_constructor_has_not_run_is_confluent_kafkas(views: FakeViews) -> None:
    producer = modeaware.Producer.__new__(modeaware.Producer)
    with pytest.raises(RuntimeError) as ours:
        producer.produce("orders", b"v")
    with pytest.raises(RuntimeError) as theirs:
        confluent_kafka.Producer.__new__(confluent_kafka.Producer).produce("orders", b"v")
    assert str(ours.value) == str(theirs.value)


def test_a_method_may_have_another_name_in_a_class(views: FakeViews) -> None:
    class Aliased(modeaware.Producer):
        send = modeaware.Producer.produce
        produce_batch = modeaware.Producer.produce  # type: ignore[assignment]  # a name with a target of its own

    aliased, plain = Aliased(CONF), modeaware.Producer(CONF)
    reports: list[Any] = []
    for send in (aliased.send, aliased.produce_batch, plain.produce):
        send("orders", b"v", on_delivery=lambda error, message: reports.append(message))
    assert plain.produce_batch("orders", [{"value": b"v"}]) == 1
    views.set("orders", modes_of(4, 2))
    aliased.send("orders", b"v", partition=1, on_delivery=lambda error, message: reports.append(message))
    with pytest.raises(PartitionRetired):
        aliased.send("orders", b"v", partition=3)
    finish(aliased)
    finish(plain)
    assert len(reports) == 4
