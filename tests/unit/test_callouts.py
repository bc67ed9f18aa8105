"""Nothing calls out while an inner lock is held: log handlers and callbacks of the application may take their time."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from modeaware import callouts
from modeaware.callouts import InnerLock, call_out, get_logger, is_inside
from modeaware.clients.following import ClientErrors
from modeaware.clients.resize import Resize
from modeaware.clients.routes import Routes
from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.views.store import ViewStore
from partitioners import as_partitioner
from tests.support.fake_views import FakeViews, announce, modes_of, switch
from tests.support.source_tree import modules

OWN_LOCK = re.compile(r"\b(?:threading\.)?(?:R?Lock|Condition|Semaphore)\(\)|\blogging\.getLogger\(__name__\)")
EXEMPT = {
    "modeaware.callouts",
    "modeaware.local.supervisor",  # a process of its own, with one lock that is never released
}


def is_free(take: Callable[[], object]) -> bool:
    """Whether another thread can do something that takes a lock, while this one is where it is."""
    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def taken(lock: InnerLock) -> None:
    with lock:
        pass


class Handler(logging.Handler):
    """Notes each message, and whether another thread could ``take`` a lock meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.take: Callable[[], object] = list
        self.seen: list[tuple[str, bool]] = []

    def handle(self, record: logging.LogRecord) -> bool:
        self.emit(record)  # without the handler's lock: what is done meanwhile may be logged as well
        return True

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.getMessage(), is_free(self.take)))

    @property
    def all_were_free(self) -> bool:
        return bool(self.seen) and all(free for _, free in self.seen)


@pytest.fixture
def handler() -> Iterator[Handler]:
    added, root = Handler(), logging.getLogger("modeaware")
    level = root.level
    root.addHandler(added)
    root.setLevel(logging.INFO)
    yield added
    root.setLevel(level)
    root.removeHandler(added)


def test_every_lock_and_logger_of_the_product_comes_from_one_place() -> None:
    found = {name: OWN_LOCK.findall(path.read_text("utf-8")) for name, path in modules().items()}
    assert {name: calls for name, calls in found.items() if calls and name.startswith("modeaware")}.keys() == EXEMPT


def test_log_record_waits_for_the_release_of_the_last_lock(handler: Handler) -> None:
    outer, inner, logger = InnerLock(), InnerLock(), get_logger("modeaware.some.module")
    handler.take = lambda: taken(outer)
    with outer:
        with inner, inner:
            logger.info("first")
        logger.info("second")
        assert handler.seen == []
    assert [message for message, _ in handler.seen] == ["first", "second"]
    assert handler.seen[0][1], "the lock was free by then"
    logger.info("outside")
    assert handler.seen[-1][0] == "outside"


def test_a_wait_for_a_condition_releases_what_is_due(handler: Handler) -> None:
    changed, logger = threading.Condition(InnerLock()), get_logger("modeaware.some.module")
    with changed:
        logger.info("before the wait")
        changed.wait(0)
        assert handler.seen == [("before the wait", True)]


class Broken(logging.Handler):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def emit(self, record: logging.LogRecord) -> None:
        raise self._error


@pytest.fixture
def broken() -> Iterator[Callable[[BaseException], logging.Logger]]:
    logger, added = get_logger("modeaware.some.module"), list[Broken]()

    def breaks(error: BaseException) -> logging.Logger:
        added.append(Broken(error))
        logger.addHandler(added[-1])
        return logger

    yield breaks
    for each in added:
        logger.removeHandler(each)


def test_record_that_a_handler_fails_on_later_hides_no_error(
    broken: Callable[[BaseException], logging.Logger], capsys: pytest.CaptureFixture[str]
) -> None:
    logger = broken(ValueError("of the handler"))

    def fail() -> None:
        with InnerLock():
            logger.warning("later")
            raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        fail()
    assert "ValueError: of the handler" in capsys.readouterr().err, "reported as logging reports it"
    with pytest.raises(ValueError, match="of the handler"):
        logger.warning("now")


def test_wait_that_a_deferred_call_breaks_off_leaves_the_lock_as_it_was(
    broken: Callable[[BaseException], logging.Logger],
) -> None:
    lock = InnerLock()
    changed = threading.Condition(lock)
    logger = broken(KeyboardInterrupt())

    def wait() -> None:
        with changed:
            logger.warning("later")
            changed.wait(0)

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert is_free(lambda: taken(lock))


def test_calls_are_made_in_order_whatever_one_of_them_raises(caplog: pytest.LogCaptureFixture) -> None:
    made: list[int] = []
    with InnerLock():
        call_out(made.append, 1)
        call_out(int, "none")
        call_out(made.append, 2)
        assert made == []
    assert made == [1, 2]
    assert "int failed" in caplog.text
    with pytest.raises(ValueError, match="none"):
        call_out(int, "none")


def test_lock_that_a_signal_handler_left_noted_holds_nothing_back() -> None:
    made: list[int] = []
    callouts._here.locks.append(InnerLock())  # private: as an exception between two steps of acquire() leaves it
    try:
        call_out(made.append, 1)
    finally:
        callouts._here.locks.clear()
    assert made == [1]


def test_views_in_force_are_logged_when_other_threads_can_send(handler: Handler) -> None:
    store = ViewStore(lambda fresh, timeout_s: None, 1_000)
    logger = get_logger("modeaware.clients.routes")
    store.subscribe(lambda changed: logger.info("%s", sorted(changed)))
    handler.take = lambda: store.recorded(["orders"])  # as the first send to a topic does
    store.failed(ModeSourceError("no broker"))
    store.confirm()
    store.publish([FakeViews().set("orders", modes_of(12, 4))])
    assert handler.all_were_free
    assert handler.seen[-1][0] == "['orders']"


def test_failed_request_is_logged_when_callers_that_wait_for_it_have_their_answer(handler: Handler) -> None:
    asked: list[bool] = []

    def fetch(fresh: bool, timeout_s: float) -> None:
        asked.append(fresh)
        if len(asked) == 1:
            raise ModeSourceError("no broker")

    store = ViewStore(fetch, 1_000)
    handler.take = lambda: store.refresh(20)
    with pytest.raises(ModeSourceError):
        store.refresh(20)
    assert handler.all_were_free


class OwnPartitioner:
    """An application's partitioner, which notes whether a lock is held where it is called."""

    def __init__(self) -> None:
        self.inside: list[bool] = []

    def for_topic(self, topic: str) -> OwnPartitioner:
        self.inside.append(is_inside())
        return self

    def requires_consistency(self, key: bytes | None) -> bool:
        self.inside.append(is_inside())
        return key is not None

    def partition(self, key: bytes | None, count: int) -> int:
        self.inside.append(is_inside())
        return sum(key or b"") % count


@pytest.mark.parametrize("function", [False, True])
def test_partitioner_of_the_application_is_asked_without_any_lock(function: bool) -> None:
    views, own, resizes = FakeViews(), OwnPartitioner(), list[Resize]()
    partitioner = as_partitioner(own.partition, "own") if function else own
    routes = Routes(views, ClientConfig(resize_callback=resizes.append), ClientErrors(), partitioner)
    views.set("orders", modes_of(12, 4))
    routes.serve(routes)
    assert own.inside == [], "no record yet: no partitioner"
    routes.of("orders").pick(b"key")
    views.set("orders", modes_of(12, 6))
    routes.of("orders").pick(b"key")
    announce(views, "orders", "orders-v2")
    switch(views, "orders", "orders-v2")
    assert [resize.new_count for resize in resizes] == [6]
    assert 0 < (resizes[0].moved_share or 0) < 1
    assert own.inside
    assert not any(own.inside)


def test_application_is_called_about_a_resize_when_other_threads_can_send(handler: Handler) -> None:
    views, called = FakeViews(), list[bool]()
    config = ClientConfig(resize_callback=lambda resize: called.append(is_free(handler.take)))
    routes = Routes(views, config, ClientErrors())
    # private: what a send takes
    handler.take = lambda: (taken(routes._lock), taken(views._lock))
    views.set("orders", modes_of(12, 4))
    routes.serve(routes)
    route = routes.of("orders")
    route.pick(b"key")
    views.set("orders", modes_of(12, 12))
    assert called == [True]
    announce(views, "orders", "orders-v2")
    switch(views, "orders", "orders-v2")
    assert handler.all_were_free
    assert "orders was replaced by orders-v2" in handler.seen[-1][0]
