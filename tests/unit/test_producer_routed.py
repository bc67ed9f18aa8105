"""The routed functions over a base that writes down what reaches it, and over librdkafka's own to compare refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, murmur2
from hypothesis import given
from hypothesis import strategies as st

from modeaware.clients.routes import Route, route_for
from modeaware.confluent import router  # private: what reaches librdkafka, call by call
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.confluent.route_table import Unverified  # private: likewise
from modeaware.librdkafka import C_HASHES
from modeaware.topic_view import TopicView
from partitioners import Hash, named
from tests.support.fake_views import modes_of
from tests.support.offline import bound

NAMES = ("topic", "value", "key", "partition", "callback", "on_delivery", "timestamp", "headers")


class Recorder:
    """Takes calls as librdkafka's ``produce`` would and keeps what they mean."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append((args, kwargs))

    @property
    def last(self) -> dict[str, Any]:
        """The last call by parameter; ``callback`` is what librdkafka would call."""
        args, kwargs = self.calls[-1]
        given = {**dict(zip(NAMES, args, strict=False)), **kwargs}
        meant = {**dict.fromkeys(NAMES), "partition": -1, "timestamp": 0, "callback": given.get("on_delivery"), **given}
        del meant["on_delivery"]
        return meant


def route(modes: int = 12, writable: int | tuple[int, ...] = 4) -> Route:
    made = route_for(TopicView("orders", "id", (1, 2), modes_of(modes, writable)), named("murmur2_random"))
    assert made is not None
    return made


def in_c(base: Callable[..., Any], orders: Route) -> Callable[..., Any]:
    counts = {"orders": router.count_of(orders)}
    return bound(router.fast_produce, base, {"orders": orders}, counts, C_HASHES[Hash.MURMUR2], absent=router.DIRECT)


def in_python(base: Callable[..., Any], orders: Route) -> Callable[..., Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(router, "RoutedProduce", None)
        return in_c(base, orders)


def faithful(base: Callable[..., Any], orders: Route) -> Callable[..., Any]:
    return bound(router.faithful_produce, base, {"orders": orders})


Make = Callable[[Callable[..., Any], Route], Callable[..., Any]]
both = pytest.mark.parametrize("make", [in_c, in_python, faithful])


def test_tracers_function_gets_any_key_and_its_errors_are_raised() -> None:
    recorder = Recorder()
    produce, odd = faithful(recorder, route()), object()
    produce("orders", b"v", memoryview(b"k"))
    assert recorder.last["partition"] == C_HASHES[Hash.MURMUR2](b"k", 4)
    produce("orders", b"v", odd)
    produce("orders", b"v", b"k", "1")
    assert (recorder.last["key"], recorder.last["partition"]) == (b"k", "1")
    assert recorder.calls[1] == (("orders", b"v", odd), {})

    def failing(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._QUEUE_FULL))

    with pytest.raises(KafkaException):
        faithful(failing, route())("orders", b"v", b"k")


def on_delivery(error: object, message: object) -> None:
    raise AssertionError("nothing is delivered here")


@both
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("orders", b"v", b"k"), {}),
        (("orders",), {"value": b"v", "key": b"k"}),
        (("orders", b"v", "k"), {}),
        (("orders", b"v", b"k"), {"on_delivery": on_delivery}),
        (("orders", b"v", b"k"), {"callback": None, "on_delivery": on_delivery}),
    ],
)
def test_every_form_of_a_call_gets_the_partition_and_is_otherwise_unchanged(
    make: Make, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    plain, routed = Recorder(), Recorder()
    plain(*args, **kwargs)
    make(routed, route())(*args, **kwargs)
    assert routed.last == {**plain.last, "partition": confluent_kafka.murmur2(b"k", 4)}


@both
@given(key=st.binary(max_size=20), sparse=st.booleans())
def test_keys_go_where_their_hash_says(make: Make, key: bytes, sparse: bool) -> None:
    writable = (1, 4, 6, 7) if sparse else (0, 1, 2, 3)
    base = Recorder()
    make(base, route(12, writable))("orders", b"v", key)
    assert base.last["partition"] == writable[confluent_kafka.murmur2(key, 4)]


@both
def test_a_record_without_key_goes_to_a_writable_partition(make: Make) -> None:
    base = Recorder()
    produce = make(base, route(12, (3, 5)))
    produce("orders", b"v")
    produce("orders", b"v", None)
    assert {args[3] if len(args) > 3 else kwargs["partition"] for args, kwargs in base.calls} <= {3, 5}


@both
@pytest.mark.parametrize("topic", ["other", "", b"orders", None, 5, ["orders"]])
def test_other_topics_pass(make: Make, topic: Any) -> None:
    base = Recorder()
    produce = make(base, route())
    for _ in range(2):
        produce(topic, b"v", b"k", timestamp=3)
        produce(topic, b"v", b"k")
    expected = {"topic": topic, "value": b"v", "key": b"k", "partition": -1, "callback": None, "headers": None}
    assert base.last == {**expected, "timestamp": 0}
    assert len(base.calls) == 4


@both
@pytest.mark.parametrize("partition", [4, 11, 12, 1000, True + 3])
@pytest.mark.parametrize("positional", [True, False])
def test_an_explicit_retired_partition_is_refused(make: Make, partition: int, positional: bool) -> None:
    base = Recorder()
    produce = make(base, route())
    with pytest.raises(RetiredPartitionChosen) as caught:
        _ = produce("orders", b"v", b"k", partition) if positional else produce("orders", b"v", partition=partition)
    error = caught.value
    assert base.calls == []
    assert isinstance(error, confluent_kafka.KafkaException)
    assert error.args[0].code() == confluent_kafka.KafkaError._UNKNOWN_PARTITION
    assert (error.topic, error.partition) == ("orders", partition)
    assert f"partition {partition} of orders" in str(error)


@both
@pytest.mark.parametrize("partition", [0, 3, True, -2])
def test_any_other_explicit_partition_passes(make: Make, partition: int) -> None:
    base = Recorder()
    make(base, route())("orders", b"v", b"k", partition)
    assert base.last["partition"] is partition


@both
def test_nothing_can_be_sent_where_no_partition_is_writable(make: Make) -> None:
    base = Recorder()
    with pytest.raises(RetiredPartitionChosen, match="no partition of orders takes records"):
        make(base, route(3, 0))("orders", b"v", b"k")
    assert base.calls == []


@pytest.fixture(scope="module")
def stock() -> Iterator[confluent_kafka.Producer]:
    producer = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    yield producer
    producer.purge()


@both
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        (("orders", b"v", "\ud800"), {}),
        (("orders", b"v", b"k", 1.0), {}),
        (("orders", b"v", b"k"), {"colour": "red"}),
        (("orders", b"v", b"k", -1, None, None, 0, None, None), {}),
        (("x" * 600, b"v", b"k"), {}),
    ],
    ids=lambda given: repr(given)[:60],
)
def test_what_librdkafka_refuses_is_refused_alike(
    make: Make, args: tuple[Any, ...], kwargs: dict[str, Any], stock: confluent_kafka.Producer
) -> None:
    with pytest.raises(Exception) as theirs:
        stock.produce(*args, **kwargs)
    with pytest.raises(theirs.type):
        make(stock.produce, route())(*args, **kwargs)


class Batches:
    """Takes calls of ``produce_batch``; marks messages whose value is ``"full"``, as librdkafka does."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, topic: Any, messages: Any, partition: int = -1, *args: Any, **kwargs: Any) -> int:
        self.calls.append((topic, list(messages), partition, args, kwargs))
        failed = [message for message in messages if message.get("value") == "full"]
        for message in failed:
            message["_error"] = "queue full"
        return len(messages) - len(failed)


def test_a_batch_goes_out_by_partition_with_the_callers_own_dicts() -> None:
    base = Batches()
    messages = [{"key": f"k{n}", "value": "full" if n == 7 else "v"} for n in range(20)]
    queued = bound(router.routed_batch, base, {"orders": route()})("orders", messages, on_delivery=on_delivery)
    assert queued == 19
    assert messages[7]["_error"] == "queue full"
    sent = {id(message): partition for _, group, partition, _, _ in base.calls for message in group}
    assert sent == {id(m): confluent_kafka.murmur2(m["key"].encode(), 4) for m in messages}
    assert all(kwargs == {"on_delivery": on_delivery} for *_, kwargs in base.calls)


def test_a_batchs_own_partitions_count() -> None:
    base = Batches()
    messages: list[dict[str, Any]] = [{"partition": 2}, {"partition": None}, {"partition": -1, "key": b"k"}, {}]
    assert bound(router.routed_batch, base, {"orders": route()})("orders", messages, 1) == 4
    assert {id(m): partition for _, group, partition, *_ in base.calls for m in group} == {
        id(messages[0]): 2,
        id(messages[1]): 1,
        id(messages[2]): confluent_kafka.murmur2(b"k", 4),
        id(messages[3]): 1,
    }


@pytest.mark.parametrize("messages", [({},), "abc", [{"value": 5}], [{"partition": "1"}], [{"key": "\ud800"}]])
def test_a_bad_batch_is_refused_as_librdkafka_refuses_it(messages: Any, stock: confluent_kafka.Producer) -> None:
    with pytest.raises(Exception) as theirs:
        stock.produce_batch("orders", messages)
    with pytest.raises(theirs.type):
        bound(router.routed_batch, stock.produce_batch, {"orders": route()})("orders", messages)


class TestDoubt:
    """librdkafka refuses a record for a partition that we chose: the topic may have been created again (I8)."""

    @pytest.mark.parametrize("changed", [True, False])
    @pytest.mark.parametrize("way", ["in C", "in Python", "faithful"])
    @pytest.mark.parametrize("given", [(), (-1,)], ids=["", "as SerializingProducer"])
    def test_record_that_was_not_queued_is_placed_anew_if_the_view_has_changed(
        self, given: tuple[int, ...], way: str, changed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        routes: dict[str, Route | Unverified | None] = {"orders": route()}
        counts = {"orders": router.count_of(route())}
        calls: list[int] = []

        def base(topic: str, value: Any = None, key: Any = None, partition: int = -1, *_: Any, **more: Any) -> None:
            calls.append(partition)
            if partition > 1:
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

        def doubt(topic: str) -> None:
            if changed:
                routes[topic], counts[topic] = None, 0

        if way == "in Python":
            monkeypatch.setattr(router, "RoutedProduce", None)
        if way == "faithful":
            produce = bound(router.faithful_produce, base, routes, doubt)
        else:
            produce = bound(router.fast_produce, base, routes, counts, C_HASHES[Hash.MURMUR2], doubt)
        key = next(b"%d" % n for n in range(100) if C_HASHES[Hash.MURMUR2](b"%d" % n, 4) > 1)
        with nullcontext() if changed else pytest.raises(KafkaException):
            produce("orders", b"v", key, *given)
        assert calls[0] > 1
        assert calls[1:] == ([-1] if changed else [])

    def test_messages_of_a_batch_that_were_not_queued_are_placed_anew(self) -> None:
        routes: dict[str, Route | Unverified | None] = {"orders": route()}
        queued: list[int] = []

        def base(topic: str, messages: list[dict[str, Any]], partition: int) -> int:
            if partition > 1:
                for message in messages:
                    message["_error"] = KafkaError(KafkaError._UNKNOWN_PARTITION)
                return 0
            queued.extend([partition] * len(messages))
            return len(messages)

        produce = bound(router.routed_batch, base, routes, lambda topic: routes.update({topic: None}))
        messages = [{"value": b"v", "key": b"%d" % n} for n in range(40)]
        assert produce("orders", messages) == 40
        assert {0, 1, -1} == set(queued)
        assert not any("_error" in message for message in messages)

    def test_batch_in_which_the_name_comes_to_lead_elsewhere_is_placed_there_as_a_whole(self) -> None:
        hashing = named("murmur2_random")
        routes: dict[str, Any] = {"orders": route_for(TopicView("orders", "id", (1, 3), modes_of(12, 6)), hashing)}
        new_topic = TopicView("orders-v2", "id-2", (1, 3), modes_of(8, 8))
        chosen = hashing.for_topic("orders-v2")
        switched = Route(new_topic, new_topic.writable, True, chosen, passes=True, name="orders", count=8)
        sent: dict[bytes, tuple[str, int]] = {}

        def base(topic: str, messages: list[dict[str, Any]], partition: int) -> int:
            sent.update({message["key"]: (topic, partition) for message in messages})
            return len(messages)

        produce = bound(router.routed_batch, base, routes, lambda _: routes.update({"orders": switched}))
        keys = [b"k%d" % n for n in range(12)]
        produce("orders", [{"key": key, "value": b"v"} for key in keys] + [{"key": b"x", "partition": 7}])
        assert [sent[key] for key in keys] == [("orders-v2", -1)] * 12, "librdkafka chooses, by the new topic's count"

    def test_batch_of_which_another_view_accepts_a_partition_is_placed_by_that_view_as_a_whole(self) -> None:
        hashing = named("murmur2_random")
        before, after = (
            route_for(TopicView("orders", "id", version, modes_of(12, writable)), hashing)
            for version, writable in (((1, 3), 3), ((1, 4), 8))
        )
        routes: dict[str, Any] = {"orders": before}
        sent: dict[bytes, set[int]] = {}

        def base(topic: str, messages: list[dict[str, Any]], partition: int) -> int:
            for message in messages:
                sent.setdefault(message["key"], set()).add(partition)
            return len(messages)

        produce = bound(router.routed_batch, base, routes, lambda _: routes.update({"orders": after}))
        keys = [b"k%d" % n for n in range(12)]
        batch = [{"key": key, "value": b"v"} for key in keys]
        produce("orders", [*batch, {"key": b"x", "partition": 7}, *(message.copy() for message in batch)])
        assert [sent[key] for key in keys] == [{murmur2(key, 8)} for key in keys]

    def test_text_that_cannot_be_written_is_refused_before_any_record_is_queued(self) -> None:
        base = Recorder()
        messages = [{"value": "v", "key": "a"}, {"value": "\ud800", "key": "b"}]
        with pytest.raises(UnicodeEncodeError):
            bound(router.routed_batch, base, {"orders": route()})("orders", messages)
        assert base.calls == []

    def test_nothing_is_raised_once_records_for_another_partition_are_queued(self) -> None:
        queued: list[int] = []

        def base(topic: str, messages: list[dict[str, Any]], partition: int) -> int:
            if queued:
                raise RuntimeError("Handle has been closed")
            queued.append(len(messages))
            return len(messages)

        messages = [{"value": b"v", "key": b"%d" % n} for n in range(40)]
        assert bound(router.routed_batch, base, {"orders": route()})("orders", messages) == queued[0]
        assert sum("_error" in message for message in messages) == 40 - queued[0]

    def test_nothing_is_raised_once_records_of_a_batch_are_queued(self) -> None:
        """The caller would send all of it again."""
        routes: dict[str, Any] = {"orders": route()}

        def base(topic: str, messages: list[dict[str, Any]], partition: int) -> int:
            failed = [message for message in messages if partition > 1]
            for message in failed:
                message["_error"] = KafkaError(KafkaError._UNKNOWN_PARTITION)
            return len(messages) - len(failed)

        class Refusing:
            def __getattr__(self, name: str) -> Any:
                raise ValueError("no place for it")

        produce = bound(router.routed_batch, base, routes, lambda topic: routes.update({topic: Refusing()}))
        messages = [{"value": b"v", "key": b"%d" % n} for n in range(40)]
        queued = produce("orders", messages)
        left = [message["_error"] for message in messages if "_error" in message]
        assert 0 < queued == 40 - len(left)
        assert {(error.code(), error.str()) for error in left} == {(KafkaError._APPLICATION, "no place for it")}
