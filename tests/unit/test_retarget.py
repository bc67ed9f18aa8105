"""What is handed out for ``produce``, ``poll`` and ``consume``: the same in C as a ``functools.partial``."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import confluent_kafka
import pytest

from modeaware.confluent import retarget
from modeaware.confluent.retarget import PollHook, Switch, idle_stats


@pytest.fixture(params=["in C", "partial"], autouse=True)
def forward(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "partial":
        monkeypatch.setattr(retarget, "Forward", partial)


@pytest.fixture
def producer() -> Iterator[confluent_kafka.Producer]:
    made = confluent_kafka.Producer({"log_level": 0})
    yield made
    made.purge()


def test_librdkafkas_methods_are_called_as_they_are(producer: confluent_kafka.Producer) -> None:
    produce, poll = Switch(producer.produce).call, Switch(producer.poll).call
    produce("orders", b"v")
    produce("orders", value=b"v", key="k")
    produce("orders", b"v", on_delivery=None)
    assert len(producer) == 3
    assert poll(0) == poll(timeout=0) == poll(0.0) == 0
    for args, kwargs in [((), {}), ((1,), {}), (("orders", b"v", None, None), {}), (("orders",), {"colour": 1})]:
        with pytest.raises(TypeError) as ours:
            produce(*args, **kwargs)
        with pytest.raises(TypeError) as theirs:
            producer.produce(*args, **kwargs)  # type: ignore[arg-type]  # wrong on purpose
        assert str(ours.value) == str(theirs.value)


def test_an_alias_follows(producer: confluent_kafka.Producer) -> None:
    switch = Switch(producer.flush)
    alias = switch.call
    for target in (len, lambda *args, **kwargs: (args, kwargs), producer.flush):
        switch.point_to(target)
        assert switch.target is target
        assert alias is switch.call
    switch.point_to(lambda *args, **kwargs: (args, kwargs))
    assert alias(1, 2, a=3) == ((1, 2), {"a": 3})
    switch.point_to(len)
    assert alias("abc") == 3


def test_what_an_application_makes_of_an_alias_follows_as_well(producer: confluent_kafka.Producer) -> None:
    switch = Switch(producer.flush)
    kept, of_no_use = partial(switch.call, "abc"), partial(switch.call)
    for target in (len, str.upper, len):
        switch.point_to(target)
        assert (kept(), of_no_use("abc")) == (target("abc"), target("abc"))
    other = Switch(len).call
    assert getattr(other, "__dict__", 0) is not getattr(switch.call, "__dict__", 1), "what tracers note is its own"


def test_a_call_under_way_keeps_its_target() -> None:
    """In C the forward holds it; before a partial the switch does."""
    inside, leave = threading.Event(), threading.Event()

    def make() -> Callable[[], Any]:
        kept = object()

        def target() -> Any:
            inside.set()
            assert leave.wait(30)
            return kept

        return target

    switch = Switch(make())
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(switch.call()))
    thread.start()
    assert inside.wait(30)
    switch.point_to(len)
    gc.collect()
    leave.set()
    thread.join(30)
    assert type(found[0]) is object


def test_it_can_be_collected_and_referred_to_weakly() -> None:
    class Owner:
        def __init__(self) -> None:
            self.method = Switch(self.called).call

        def called(self) -> Owner:
            return self

    owner = Owner()
    assert owner.method() is owner
    reference, method = weakref.ref(owner), weakref.ref(owner.method)
    del owner
    gc.collect()
    assert reference() is None
    assert method() is None


@pytest.mark.parametrize("value", [None, b""])
def test_record_without_a_value_is_returned_by_a_hooked_poll(value: bytes | None) -> None:
    message: Any = confluent_kafka.Message("orders", 0, 0, b"key", value)
    answers: Iterator[Any] = iter([None, message, None])
    hook = PollHook(lambda _, timeout: next(answers), list, lambda: None, lambda: 0.0, idle_stats())
    hook.call()
    assert not message, "its truth is that of its length"
    assert hook.poll.call(None, 30.0) is message


@pytest.mark.parametrize("hooked", [True, False])
def test_call_is_repeated_where_nothing_is_left_of_its_result(hooked: bool) -> None:
    results: Iterator[list[str]] = iter([["event"], ["record", "event"]])

    def finish(result: list[str]) -> bool:
        result[:] = [each for each in result if each != "event"]
        return not result

    hook = PollHook(lambda *_, **__: next(results), list, lambda: None, lambda: None, idle_stats(), finish)
    if hooked:
        hook.call()
    else:
        hook.finish_all(True)
    assert hook.poll.call(None, -1) == ["record"]


@pytest.mark.parametrize("hooked", [True, False])
def test_events_of_which_nothing_is_left_do_not_lengthen_a_call(hooked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    waits: list[float] = []

    def poll(consumer: None, timeout: float) -> str:
        nonlocal now_s
        waits.append(timeout)
        now_s += 0.75
        return "event"

    monkeypatch.setattr(retarget.time, "monotonic", lambda: now_s)
    hook = PollHook(poll, list, lambda: None, lambda: None, idle_stats(), lambda result: result == "event")
    if hooked:
        hook.call()
    else:
        hook.finish_all(True)
    assert hook.poll.call(None, 2.0) is None
    assert waits == [2.0, 1.25, 0.5]
    hook.finish_all(False)
    assert hook.direct


def test_work_knows_whether_it_is_done_within_a_callback() -> None:
    found: list[bool] = []
    stats = idle_stats()
    hook = PollHook(lambda _, timeout: None, list, lambda: found.append(hook.inside), lambda: None, stats)
    hook.call()
    stats.call("{}")
    hook.call()
    hook.poll.call(None, 0.0)
    assert found == [True, False]


@dataclass
class Trickle:
    """A consumer that ``records`` trickle into, one every 0.06 s, and its clock. Work is due ``looks`` times, every
    ``every_s``; at once where it ``holds_back`` for records that were taken. A call that takes the record ``error``
    raises."""

    records: Iterator[str] = field(default_factory=lambda: (str(n) for n in range(1_000)))
    looks: int = 1_000_000
    every_s: float = 0.15
    now_s: float = 0.0
    due_s: float = 0.0
    error: BaseException | None = None
    holds_back: bool = False
    may_wait: Callable[[list[str]], bool] = lambda taken: True
    calls: list[tuple[int, float]] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    back: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hook = PollHook(
            list, self._consume, self._act, lambda: self.due_s if self.looks else None, idle_stats(),
            may_wait=lambda taken: self.may_wait(taken), give_back=self.back.extend,
        )  # fmt: skip
        self.hook.call()

    def _consume(self, consumer: None, num_messages: int, timeout: float) -> list[str]:
        self.calls.append((num_messages, timeout))
        taken: list[str] = []
        until_s = self.now_s + timeout if timeout >= 0 else float("inf")
        while len(taken) < num_messages and self.now_s + 0.06 <= until_s:
            self.now_s += 0.06
            taken.append(next(self.records))
            if taken[-1] == "error":
                assert self.error is not None
                raise self.error
        if len(taken) < num_messages:
            self.now_s = until_s
        return taken

    def _act(self) -> None:
        self.looks -= 1
        self.due_s = self.now_s + (0.0 if self.holds_back and self.hook.taken else self.every_s)
        self.seen.append(len(self.hook.taken))


@pytest.fixture
def trickle(monkeypatch: pytest.MonkeyPatch) -> Trickle:
    made = Trickle()
    monkeypatch.setattr(retarget.time, "monotonic", lambda: made.now_s)
    return made


def test_batch_is_filled_while_work_is_done(trickle: Trickle) -> None:
    assert trickle.hook.consume.call(None, 5, 60.0) == ["0", "1", "2", "3", "4"]
    assert trickle.calls == [(count, pytest.approx(0.15)) for count in (5, 3, 1)]
    assert trickle.seen == [0, 2, 4], "what librdkafka has returned, and the application was not given, is known"
    assert trickle.hook.taken == []
    assert trickle.hook.consume.call(None, 2, 60.0) == ["5", "6"]


def test_batch_is_returned_when_its_timeout_is_over(trickle: Trickle) -> None:
    assert trickle.hook.consume.call(None, num_messages=500, timeout=1.1) == [str(n) for n in range(14)]
    assert trickle.now_s == pytest.approx(1.1)
    assert trickle.hook.consume.call(None, 500, 0) == []
    assert trickle.calls[-1] == (500, 0)


def test_batch_without_a_timeout_is_returned_when_it_is_full(trickle: Trickle) -> None:
    assert len(trickle.hook.consume.call(None, 30)) == 30
    assert trickle.hook.consume.call(None, 0) == [], "librdkafka returns at once as well"


def test_rest_of_a_batch_is_one_call_once_nothing_waits(trickle: Trickle) -> None:
    trickle.looks = 3
    assert len(trickle.hook.consume.call(None, 500, 5.0)) > 70
    assert [timeout for _, timeout in trickle.calls] == pytest.approx([0.15, 0.15, 4.7])


def test_slices_of_a_batch_are_single_calls_of_librdkafka_while_work_is_pending(trickle: Trickle) -> None:
    trickle.every_s = 1.5
    trickle.hook.consume.call(None, 500, 2.0)
    assert len(trickle.seen) == 2
    assert max(timeout for _, timeout in trickle.calls) < 0.2, "confluent_kafka makes several of one call from then on"


def test_batch_of_what_is_a_single_call_of_librdkafka_has_records_of_one_slice(trickle: Trickle) -> None:
    """A rebalance in another slice would leave it records of partitions that the application holds no more."""
    trickle.every_s = 0.07
    assert trickle.hook.consume.call(None, 500, 0.2) == ["0"]
    assert trickle.seen == [0], "and nothing is done between the slice and the return"
    assert trickle.hook.consume.call(None, 500, 0.05) == []


def test_slice_of_poll_lasts_until_work_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def poll(consumer: None, timeout: float) -> str:
        waits.append(timeout)
        return "record"

    monkeypatch.setattr(retarget.time, "monotonic", lambda: 0.0)
    hook = PollHook(poll, list, lambda: None, lambda: 1.5, idle_stats())
    hook.call()
    assert hook.poll.call(None, 2.0) == "record"
    assert waits == [1.5]


def test_records_that_may_not_wait_are_returned_at_once(trickle: Trickle) -> None:
    trickle.may_wait = lambda taken: "3" not in taken
    assert trickle.hook.consume.call(None, 500, 60.0) == ["0", "1", "2", "3"]
    assert trickle.hook.taken == []


def test_records_are_returned_at_once_where_what_is_due_waits_for_that(trickle: Trickle) -> None:
    trickle.holds_back = True
    assert trickle.hook.consume.call(None, 500, 60.0) == ["0", "1"]
    assert trickle.seen == [0, 2]
    assert trickle.hook.consume.call(None, 500, 60.0) == ["2", "3"]
    assert trickle.seen == [0, 2, 0, 2]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a callback's")])
def test_what_a_call_took_that_raises_is_given_back(trickle: Trickle, error: BaseException) -> None:
    trickle.error, trickle.records = error, iter(["a", "b", "c", "error", "d", "e", "f"])
    with pytest.raises(type(error)):
        trickle.hook.consume.call(None, 500, 60.0)
    assert trickle.back == ["a", "b"], "a call of librdkafka's that raises drops what it has taken itself"
    assert trickle.hook.taken == []
    assert trickle.hook.consume.call(None, 2, 60.0) == ["d", "e"]


def test_nothing_is_given_back_to_a_consumer_that_a_callback_has_closed(trickle: Trickle) -> None:
    trickle.error, trickle.records = RuntimeError("closed"), iter(["a", "b", "c", "error"])

    def may_wait(taken: list[str]) -> bool:
        trickle.hook.stop()
        return True

    trickle.may_wait = may_wait
    consume = trickle.hook.consume.call
    with pytest.raises(RuntimeError):
        consume(None, 500, 60.0)
    assert trickle.back == []
