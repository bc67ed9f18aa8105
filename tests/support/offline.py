"""Producers without a broker: what reaches librdkafka stays in its queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import BuiltinMethodType, MethodDescriptorType
from typing import Any

from confluent_kafka import murmur2

from modeaware.config import ClientConfig
from modeaware.confluent.producer import Producer
from tests.support.fake_views import FakeViews

CONF = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


class Acquired:
    """Stands in for ``modeaware.views.registry.acquire``: hands out one FakeViews and keeps what it was asked with."""

    def __init__(self) -> None:
        self.views = FakeViews()
        self.asked: list[tuple[Mapping[str, Any], ClientConfig]] = []

    def __call__(self, conf: Mapping[str, Any], config: ClientConfig) -> FakeViews:
        self.asked.append((conf, config))
        return self.views


class Reports(list[Any]):
    """Counts what leaves a producer's queue; ``len()`` of the producer counts errors of the connection as well."""

    @property
    def conf(self) -> dict[str, Any]:
        """A configuration with which every record adds its delivery report."""
        return {**CONF, "on_delivery": lambda error, message: self.append(error)}

    def queued(self, producer: Any) -> int:
        """How many records were in the queue; it is empty afterwards."""
        producer.purge()
        producer.flush(10)
        return len(self)


def waiting_producer(acquired: Acquired, conf: Mapping[str, Any] = CONF, **ours: Any) -> Producer:
    acquired.views = FakeViews(ready=False)
    return Producer({**conf}, **{f"modeaware.{name.replace('_', '.')}": value for name, value in ours.items()})


def finish(producer: Any) -> None:
    """Close without waiting for a broker that is not there."""
    producer.purge()
    producer.close()


def is_librdkafkas_own(call: Any) -> bool:
    """Whether ``call``, a client's method, leads to librdkafka's in C, with nothing of ours around it."""
    return isinstance(getattr(call.__self__, f"_following_{call.__name__}").func, MethodDescriptorType)


def unbound(call: Any) -> tuple[Callable[..., Any], Any]:
    """Return ``call`` as a function that takes the client first, and the client: a bound method's own."""
    if isinstance(call, BuiltinMethodType):
        return getattr(type(call.__self__), call.__name__), call.__self__
    return lambda client, *args, **kwargs: call(*args, **kwargs), None


def bound(make: Callable[..., Callable[..., Any]], base: Any, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Return what ``make`` makes over ``base``, with the client given that it takes first."""
    function, client = unbound(base)
    return partial(make(function, *args, **kwargs), client)


KEYS = [f"key-{number}".encode() for number in range(200)]
MOVED_12_TO_5 = [key for key in KEYS if murmur2(key, 12) != murmur2(key, 5)]
Make = Callable[..., Producer]


class Makes:
    """``make(policy, **settings)``: a producer that hashes with murmur2; ``close()`` closes them all."""

    def __init__(self) -> None:
        self._made: list[Producer] = []

    def __call__(self, policy: str | None = None, **settings: Any) -> Producer:
        ours = {} if policy is None else {"modeaware.on.resize": policy}
        self._made.append(Producer({**CONF, "partitioner": "murmur2_random", **ours, **settings}))
        return self._made[-1]

    def close(self) -> None:
        for producer in self._made:
            finish(producer)
