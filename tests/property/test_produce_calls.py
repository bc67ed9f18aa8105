"""``produce`` in C and in Python: any call means the same to both, and ends alike. Run under ASan or valgrind, too."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware import Producer
from modeaware.clients.routes import Route, route_for
from modeaware.confluent import delivery, retarget, router  # private: both functions, whatever this machine has built
from modeaware.librdkafka import C_HASHES
from modeaware.topic_view import TopicView
from partitioners import Hash, named
from tests.support.fake_views import modes_of
from tests.support.offline import unbound

NAMES = ("topic", "value", "key", "partition", "callback", "on_delivery", "timestamp", "headers")
COUNTS: router.Counts = {
    "direct": router.DIRECT,
    "routed": 4,
    "guarded": 0,
    "led": ("direct", router.DIRECT),
    "led to routed": ("routed", 4),
    "led to guarded": 0,
    "announced": router.DIRECT,
}
DEFAULTS = (None, None, 0, None)
"""Of confluent_kafka's method, from the callback on: not given, or given so, is the same."""
REPORTS: router.Reports = {"announced": lambda callback, error, message: (callback, error, message)}


class Text(str):
    __slots__ = ()


def raising(*_: Any) -> None:
    raise ZeroDivisionError


KEYS = st.one_of(st.binary(max_size=40), st.text(max_size=20), st.none(), st.just("\ud800"), st.just(b"k" * 100_000))
ODDITIES = st.sampled_from([None, 0, 1.5, Text("direct"), object(), bytearray(b"k"), memoryview(b"k"), [], raising, ()])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from([*COUNTS, "never seen"]),
    "value": st.binary(max_size=5),
    "key": KEYS,
    "partition": st.sampled_from([-1, 0, 3, 11, True]),
    "callback": st.sampled_from([None, raising]),
    "on_delivery": st.sampled_from([None, raising]),
    "timestamp": st.integers(0, 2**60),
    "headers": st.sampled_from([None, [("h", b"1")], {"h": b"1"}, {}]),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """By position up to a parameter, then by name; now and then with a wrong type, a wrong name, or one too many."""
    values = {name: draw(st.one_of(VALUES[name], VALUES[name], VALUES[name], ODDITIES)) for name in NAMES}
    positional = draw(st.integers(0, len(NAMES)))
    named_ones = draw(st.sets(st.sampled_from([*NAMES, "colour"]), max_size=4))
    args = [values[name] for name in NAMES[:positional]] + draw(st.sampled_from([[], [], [], [None]]))
    left = named_ones if draw(st.integers(0, 9)) == 0 else named_ones - set(NAMES[:positional])
    return tuple(args), {name: values.get(name) for name in left}


def routes() -> dict[str, Any]:
    view = TopicView("routed", "id", (1, 2), modes_of(12, 4))
    route: Route | None = route_for(view, named("murmur2_random"))
    assert route is not None
    plain = replace(route, view=TopicView("direct", "id"), writable=(), passes=True)
    led = {
        name: replace(to, view=replace(to.view, topic=topic), name=name, count=6)
        for name, topic, to in (
            ("led", "direct", plain),
            ("led to routed", "routed", route),
            ("led to guarded", "guarded", route),
        )
    }
    announced = replace(plain, view=TopicView("announced", "id"))
    return {"routed": route, "guarded": route, "direct": None, "announced": announced, **led}


class InPython:
    """``Producer.produce`` where the package has no extension."""

    produce = getattr(Producer.produce, "function", Producer.produce)

    def __init__(self, made: router.RoutedInPython, client: Any) -> None:
        def with_client(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda _, *args: call(client, *args)

        calls = {name: with_client(getattr(made, name)) for name in ("base", "slow", "retry")}
        self._following_produce = partial(replace(made, **calls))


def every_way(base: Callable[..., Any], hash_name: Hash = Hash.MURMUR2) -> Iterator[Callable[..., Any]]:
    """In C, in Python as a function, and as the method of a producer."""
    function, client = unbound(base)
    for extension in (router.RoutedProduce, None):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(router, "RoutedProduce", extension)
            made = router.fast_produce(
                function, routes(), dict(COUNTS), C_HASHES[hash_name], absent=router.DIRECT, reports=REPORTS
            )
            yield partial(made, client)
    yield InPython(made, client).produce


def outcome(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 # whatever it is, the other must end alike
        return type(error), str(error).removeprefix("InPython.").split("produce() ")[-1]


def test_the_extension_is_built_where_a_compiler_is() -> None:
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
    headers = Path(sysconfig.get_path("include"), "Python.h")
    assert router.RoutedProduce is not None or compiler is None or not headers.exists()


@settings(max_examples=300)
@given(calls())
def test_both_mean_the_same(call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    args, kwargs = call
    seen: list[Any] = []

    def base(topic: Any, value: Any = None, key: Any = None, partition: Any = -1, *rest: Any) -> str:
        # Without a key the partition is drawn: that it is writable is all there is to compare.
        drawn = topic in ("routed", "guarded") and not key
        assert not str(topic).startswith("led")
        called, *others = (*rest, *DEFAULTS[len(rest) :])
        called = called("error", "message") if isinstance(called, delivery.Reported) else called
        seen.append((topic, value, key, partition in range(4) if drawn else partition, called, *others))
        return "queued"

    ends = [outcome(produce, args, kwargs) for produce in every_way(base)]
    assert ends[0] == ends[1]
    assert ends[2] in (ends[0], None)  # a method says how it ends, but returns nothing
    assert len(seen) in (0, 3)
    assert len({repr(each) for each in seen}) <= 1


@pytest.fixture(scope="module")
def stock() -> Iterator[confluent_kafka.Producer]:
    producer = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    yield producer
    producer.purge()


@settings(max_examples=300)
@given(call=calls())
def test_librdkafka_refuses_the_same(stock: confluent_kafka.Producer, call: Any) -> None:
    assert len({outcome(produce, *call) for produce in every_way(stock.produce)}) == 1
    plain = outcome(stock.produce, *call)
    produce = partial(retarget.Forward(confluent_kafka.Producer.produce), stock)
    assert outcome(produce, *call) == outcome(partial(stock.produce), *call) == plain


@pytest.mark.parametrize("hash_name", Hash)
@given(key=st.one_of(st.binary(min_size=1), st.text(min_size=1)))
def test_each_hash_is_librdkafkas(hash_name: Hash, key: bytes | str) -> None:
    where: list[int] = []
    for produce in every_way(lambda topic, value, key, partition, *_: where.append(partition), hash_name):
        for topic in ("routed", "led to routed"):
            produce(topic, None, key)
            produce(topic, key=key)
    assert where == [C_HASHES[hash_name](key.encode() if isinstance(key, str) else key, 4)] * 12
