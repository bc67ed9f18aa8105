"""modeaware.aiokafka.AIOKafkaProducer without a broker: its settings, and what stands before aiokafka's choice."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError
from confluent_kafka import murmur2

from modeaware.aiokafka import AIOKafkaProducer, FirstViewPending, FirstViewTimeout, RetiredPartitionError
from modeaware.errors import ConfigError, ResizeWarning
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import Acquired
from tests.support.partitioning import Metadata
from tests.support.secured import make_certificate

TOPIC, NOWHERE = "t", "127.0.0.1:1"
PARTITIONS = Metadata(range(12))


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The producers that were to connect, which none does."""
    asked: list[object] = []

    async def start(self: object) -> None:
        asked.append(self)

    monkeypatch.setattr(aiokafka.AIOKafkaProducer, "start", start)
    return asked


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    signature = inspect.signature(test)

    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    run.__signature__ = signature  # type: ignore[attr-defined]  # pytest reads the fixtures from it
    return run


@asynccontextmanager
async def started(cls: type[AIOKafkaProducer] = AIOKafkaProducer, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = cls(bootstrap_servers=NOWHERE, **settings)
    producer._metadata = PARTITIONS
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


async def applied() -> None:
    """What the views' thread has handed over is done."""
    await asyncio.sleep(0)  # lets the loop run what was called in


def place(producer: AIOKafkaProducer, key: bytes | None = None, partition: int | None = None) -> int:
    chosen: int = producer._partition(TOPIC, partition, key, b"v", key, b"v")
    return chosen


def untouched(producer: AIOKafkaProducer) -> bool:
    """Whether aiokafka's own methods alone are on the way of a record."""
    own = ("send", "send_and_wait", "send_batch", "_partition", "_serialize")
    return all(
        getattr(getattr(producer, name), "__func__", None) is getattr(aiokafka.AIOKafkaProducer, name) for name in own
    )


@in_a_loop
async def test_nothing_of_ours_is_on_the_way_but_while_a_topic_has_retired_partitions(views: FakeViews) -> None:
    views.set(TOPIC, modes_of(12, 12))
    async with started() as producer:
        assert untouched(producer)
        assert producer.modeaware_stats()["state"] == "direct"
        views.set(TOPIC, modes_of(12, 4))
        await applied()
        assert not untouched(producer)
        stats = producer.modeaware_stats()
        assert (stats["state"], stats["routed_topics"], stats["view_changes"], stats["resizes"]) == ("routed", 1, 1, 0)
        views.set(TOPIC, modes_of(12, 12))
        await applied()
        assert untouched(producer)


@in_a_loop
async def test_records_go_to_writable_partitions_that_have_a_leader_or_nowhere(views: FakeViews) -> None:
    views.set(TOPIC, modes_of(12, (0, 1, 2, 3, 5)))
    async with started() as producer:
        producer._metadata = Metadata(range(12), range(2, 11))
        assert {place(producer) for _ in range(200)} == {2, 3, 5}
        views.set(TOPIC, modes_of(12, 0))
        await applied()
        with pytest.raises(RetiredPartitionError, match="no partition of t takes records"):
            place(producer, b"k")


@in_a_loop
async def test_a_block_that_cannot_be_entered_gives_the_views_back(acquired: Acquired) -> None:
    ours = {"modeaware_view_timeout_ms": 1, "modeaware_on_unknown": "error"}
    acquired.views = FakeViews(ready=False)
    with pytest.raises(FirstViewTimeout):
        async with AIOKafkaProducer(bootstrap_servers=NOWHERE, **ours):
            raise AssertionError("there is no view")
    assert acquired.views.closed


@pytest.mark.parametrize(("policy", "error"), [("block", FirstViewPending), ("error", FirstViewTimeout)])
@in_a_loop
async def test_the_first_view_is_waited_for_by_start(
    acquired: Acquired, connected: list[object], policy: str, error: type[Exception]
) -> None:
    views = acquired.views = FakeViews(ready=False)
    views.failure = OSError("no broker answers")
    views.set(TOPIC, modes_of(12, 4))
    producer = AIOKafkaProducer(bootstrap_servers=NOWHERE, modeaware_view_timeout_ms=1, modeaware_on_unknown=policy)
    producer._metadata = PARTITIONS
    for _ in range(2):
        with pytest.raises(error, match=r"within 1 ms .*no broker answers"):
            await producer.start()
    with pytest.raises(error):
        place(producer, b"k")
    assert producer.modeaware_stats()["state"] == "waiting"
    views.set_ready()
    await producer.start()
    assert place(producer, b"k") == murmur2(b"k", 4)
    assert connected == [producer]
    connected.clear()
    await producer.stop()
    assert issubclass(FirstViewPending, KafkaTimeoutError)
    assert issubclass(FirstViewPending, BufferError)
    assert issubclass(FirstViewTimeout, KafkaError)


@pytest.mark.filterwarnings("default::modeaware.errors.ResizeWarning")
@in_a_loop
async def test_a_resize_under_keys_warns_once(views: FakeViews) -> None:
    told: list[Any] = []
    views.set(TOPIC, modes_of(12, 12))
    async with started(modeaware_resize_cb=told.append) as producer:
        views.set(TOPIC, modes_of(12, 5), previous_count=12)
        await applied()
        place(producer)
        place(producer, b"k", 3)
        assert told == []
        with pytest.warns(ResizeWarning, match="went from 12 to 5 writable partitions"):
            place(producer, b"k")
        place(producer, b"k")
        assert [(resize.old_count, resize.new_count) for resize in told] == [(12, 5)]
        assert producer.modeaware_stats()["resizes"] == 1


@in_a_loop
async def test_stop_gives_the_views_back_and_nothing_keeps_the_producer(
    views: FakeViews, connected: list[object]
) -> None:
    async with started() as producer:
        connected.clear()
        views.set(TOPIC, modes_of(12, 4))
        await applied()
        dropped = weakref.ref(producer)
        assert views.listener_count == 1
        for listener in producer.client.cluster._listeners:
            listener(producer.client.cluster)
        assert views.hints == 1
    assert views.closed
    assert views.listener_count == 0
    del producer
    assert dropped() is None


def test_the_signature_is_aiokafkas() -> None:
    assert inspect.signature(AIOKafkaProducer) == inspect.signature(aiokafka.AIOKafkaProducer)


async def conf_of(acquired: Acquired, **configs: Any) -> dict[str, Any]:
    """The librdkafka configuration of a producer's views."""
    await AIOKafkaProducer(**configs).stop()
    return dict(acquired.asked[-1][0])


@in_a_loop
async def test_ssl_context_is_translated_as_far_as_it_can_be_read(acquired: Acquired, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(make_certificate(tmp_path).certificate))
    tls = {"bootstrap_servers": "a:1", "security_protocol": "SSL", "ssl_context": context}
    conf = await conf_of(acquired, **tls)
    read = ssl.create_default_context(cadata=conf["ssl.ca.pem"])
    assert read.get_ca_certs(binary_form=True) == context.get_ca_certs(binary_form=True) != []
    assert conf.keys() == {"bootstrap.servers", "security.protocol", "ssl.ca.pem"}
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    loose = await conf_of(acquired, **tls)
    assert loose["ssl.endpoint.identification.algorithm"] == "none"
    assert loose["enable.ssl.certificate.verification"] is False
    given = {"ssl.ca.location": "ca.pem"}
    assert "ssl.ca.pem" not in await conf_of(acquired, **tls, modeaware_librdkafka=given)
    tls["ssl_context"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert (await conf_of(acquired, **tls)).keys() == {"bootstrap.servers", "security.protocol"}
    plain = await conf_of(
        acquired, security_protocol="SASL_PLAINTEXT", sasl_plain_username="u", sasl_plain_password="p"
    )
    assert "PLAIN" in plain.values()


def test_token_coroutine_runs_in_the_event_loop(acquired: Acquired) -> None:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return f"of {threading.current_thread().name}"

        def extensions(self) -> dict[str, str]:
            return {"a": "b"}

    async def test() -> tuple[Any, ...]:
        nonlocal callback
        oauth = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
        producers = [AIOKafkaProducer(security_protocol="SASL_PLAINTEXT", **oauth) for _ in range(2)]
        callback, again = (conf["oauth_cb"] for conf, _ in acquired.asked)
        assert callback == again, "clients that share a provider share their views"
        token: tuple[Any, ...] = await asyncio.to_thread(callback, "")
        for producer in producers:
            await producer.stop()
        return token

    callback: Any = None
    token, _, _, extensions = asyncio.run(test())
    assert (token, extensions) == (f"of {threading.current_thread().name}", {"a": "b"})
    with pytest.raises(RuntimeError, match="closed"):
        callback("")


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"modeaware_on_resize": "hold"}, "'hold' is not supported with aiokafka"),
        ({"modeaware_on_unknow": "block"}, "did you mean 'modeaware_on_unknown'"),
    ],
)
@in_a_loop
async def test_unsupported_settings_are_rejected(configs: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        AIOKafkaProducer(**configs)
