"""Clients at the interpreter's exit, when no view of the modes can come any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from modeaware.clients.following import ClientErrors, FirstView
from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError, ViewTimeout
from modeaware.kafka_python import KafkaProducer
from modeaware.testing.modes import FakeViews
from modeaware.views import registry
from modeaware.views.registry import _Registry
from tests.support.fake_sources import FakeTail
from tests.support.kafka_python_offline import OFFLINE
from tests.support.program import run_program

LATE = """
import atexit, logging, sys

def last():
    from modeaware import Producer
    sent = made[0] if made else Producer(conf)
    for _ in range(2):
        try:
            sent.produce("orders", b"v", b"k", on_delivery=lambda error, message: queued.append(error))
        except Exception as error:
            print(type(error).__name__)
    sent.purge()
    sent.flush(10)
    print(len(queued), "queued")

atexit.register(last)
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
logging.getLogger("modeaware.views").disabled = True
from modeaware import Producer
conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "modeaware.view.timeout.ms": 600_000}
if sys.argv[1]:
    conf["modeaware.on.unknown"] = sys.argv[1]
queued = []
made = [Producer(conf)] if sys.argv[2] == "made before" else []
"""


@pytest.mark.parametrize("when", ["made before", "made late"])
class TestExitHandlers:
    """Registered before ours, so they run after it. The timeout of ten minutes would end the test."""

    @pytest.mark.parametrize("on_unknown", ["", "block", "writable"])
    def test_late_send_goes_out_and_that_is_logged_once(self, on_unknown: str, when: str) -> None:
        done = run_program(LATE, on_unknown, when)
        lines = [line for line in done.stdout.splitlines() if "mode log" not in line]
        assert lines[-1:] == ["2 queued"], done
        assert len([line for line in lines if "taking every partition as ReadWrite" in line]) == 1

    def test_error_is_raised_where_it_was_asked_for(self, when: str) -> None:
        done = run_program(LATE, "error", when)
        lines = [line for line in done.stdout.splitlines() if "mode log" not in line]
        assert lines == ["FirstViewTimeout", "FirstViewTimeout", "0 queued"], done


LATE_ADMIN = """
import atexit, logging, sys

def last():
    from modeaware import AdminClient, DeletePartitions
    from confluent_kafka.admin import NewPartitions, NewTopic
    admin = made[0] if made else AdminClient(conf)
    for futures in (
        admin.create_topics([NewTopic("orders", 2, 1)], request_timeout=0.2),
        admin.create_partitions([NewPartitions("orders", 2)], request_timeout=0.2),
        admin.delete_partitions({"orders": DeletePartitions(1)}),
    ):
        print(repr(futures["orders"].exception(10)))
    admin.close()

atexit.register(last)
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
logging.getLogger("modeaware.views").disabled = True
from modeaware import AdminClient
conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
made = [AdminClient(conf)] if sys.argv[1] == "made before" else []
"""


@pytest.mark.parametrize("when", ["made before", "made late"])
def test_admin_calls_of_an_exit_handler_are_the_stock_ones_and_that_is_logged_once(when: str) -> None:
    """They go to the brokers, of which none answers here. A call without a stock form fails, and does not wait."""
    done = run_program(LATE_ADMIN, when)
    logged, created, grown, shrunk = done.stdout.splitlines()
    assert "created and grown as by confluent_kafka's AdminClient" in logged
    assert "_TIMED_OUT" in created
    assert "_TIMED_OUT" in grown
    assert "not read before the interpreter's exit" in shrunk
    assert (done.returncode, done.stderr) == (0, "")


BEFORE_OURS = """
import atexit
from modeaware import AdminClient
from modeaware.testing.modes import ScriptedModes

def last():
    print(admin.describe_modes(["orders"])["orders"].result(10).writable)

atexit.register(last)
modes = ScriptedModes()
modes.__enter__()
modes.shrink("orders", 4, 2)
admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
"""


def test_admin_calls_of_an_exit_handler_see_the_modes_until_the_sources_stop() -> None:
    """The pool of the client takes no work by then."""
    done = run_program(BEFORE_OURS)
    assert (done.returncode, done.stdout) == (0, "(0, 1)\n"), done.stderr


@pytest.fixture
def exiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Registry]:
    FakeTail.made, FakeTail.log = [], None
    monkeypatch.setattr("modeaware.views.log.Tail", FakeTail)
    made = _Registry()
    monkeypatch.setattr(registry, "_registry", made)
    yield made
    made.stop_all()


CONF, CONFIG = {"bootstrap.servers": "127.0.0.1:1"}, ClientConfig(mode_source="log")


class TestSources:
    def test_waiting_for_the_first_view_ends_with_the_source(self, exiting: _Registry) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("modeaware.views.choice.ModeSource.start", lambda _: None)
            views, over = registry.acquire(CONF, CONFIG), list[object]()

        def refresh() -> None:
            with suppress(ModeSourceError):
                views.refresh(600)
            over.append("refresh")

        waiting = [
            threading.Thread(target=lambda: over.append(views.wait_ready(600)), daemon=True),
            threading.Thread(target=refresh, daemon=True),
        ]
        for thread in waiting:
            thread.start()
        assert not views.ended
        exiting.stop_all()
        for thread in waiting:
            thread.join(30)
        assert views.ended
        assert sorted(map(str, over)) == ["False", "refresh"]

    def test_client_made_late_starts_no_thread(self, exiting: _Registry) -> None:
        exiting.stop_all()
        before = threading.active_count()
        views = registry.acquire(CONF, CONFIG)
        assert (views.ended, views.wait_ready(600), threading.active_count()) == (True, False, before)

    @pytest.mark.parametrize("is_exiting", [True, False])
    def test_refused_thread_is_no_error_at_exit_alone(
        self, exiting: _Registry, monkeypatch: pytest.MonkeyPatch, is_exiting: bool
    ) -> None:
        def refuse(_: object) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

        monkeypatch.setattr("modeaware.views.choice.ModeSource.start", refuse)
        if not is_exiting:
            with pytest.raises(RuntimeError, match="new thread"):
                registry.acquire(CONF, CONFIG)
            return
        monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: False)
        assert registry.acquire(CONF, CONFIG).ended


class TestFirstView:
    @pytest.mark.parametrize("on_unknown", ["block", "writable"])
    def test_calls_proceed_where_none_can_come(self, on_unknown: str, caplog: pytest.LogCaptureFixture) -> None:
        views = FakeViews(ready=False)
        waits: list[float] = []
        first = FirstView(
            ClientConfig(on_unknown=on_unknown), lambda wait_s: bool(waits.append(wait_s)), views, ClientErrors()
        )
        views.close()
        first.wait()
        first.wait()
        assert waits == [0.0]
        # Clients of other tests may still try to connect.
        (line,) = (record.getMessage() for record in caplog.records if record.name.startswith("modeaware"))
        assert line.endswith("taking every partition as ReadWrite until a view arrives")

    def test_error_wins(self) -> None:
        views = FakeViews(ready=False)
        views.close()
        first = FirstView(ClientConfig(on_unknown="error"), lambda _: False, views, ClientErrors())
        with pytest.raises(ViewTimeout, match="none will"):
            first.wait()


def test_send_that_waits_returns_when_its_producer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "acquire", lambda conf, config: FakeViews(ready=False))
    producer = KafkaProducer(**OFFLINE, modeaware_view_timeout_ms=600_000)
    ended: list[str] = []

    def send() -> None:
        try:
            producer.send("orders", b"v")
        except Exception as error:  # noqa: BLE001 - whatever kafka-python raises when it is closed
            ended.append(type(error).__name__)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    producer.close(0)
    thread.join(30)
    assert len(ended) == 1
