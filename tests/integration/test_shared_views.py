"""One tail per process and cluster: who shares it, how it ends, what a fork and a crash in it leave."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from modeaware.config import ClientConfig
from modeaware.local import Kafka
from modeaware.modelog import tail
from modeaware.views import registry
from modeaware.views.choice import THREAD_NAME
from tests.support.modelog import RealLog, topic_record
from tests.support.waiting import eventually


class Tails:
    """The tails that were started since: those of earlier tests may still be on their way out."""

    def __init__(self) -> None:
        self._before = frozenset(self._all())

    def __len__(self) -> int:
        return len(self._all() - self._before)

    @staticmethod
    def _all() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == THREAD_NAME}


@pytest.fixture
def log(kafka: Kafka) -> Iterator[RealLog]:
    made = RealLog(kafka.bootstrap_servers)
    yield made
    made.close()


def test_clients_of_one_cluster_share_one_tail(log: RealLog) -> None:
    tails = Tails()
    first = registry.acquire(log.conf, log.config)
    second = registry.acquire({**log.conf, "group.id": "g", "client.id": "other"}, log.config)
    other = registry.acquire(log.conf, ClientConfig(mode_log_topic=log.topic + "-other"))
    assert len(tails) == 2
    assert first.stats()["clients"] == 2
    first.close()
    first.close()
    assert second.wait_ready(30)
    assert len(tails) == 2
    second.close()
    other.close()
    eventually(lambda: len(tails) == 0)


def run_program(log: RealLog, body: str) -> subprocess.CompletedProcess[str]:
    head = f"""
        import logging, os, sys, time
        from modeaware.config import ClientConfig
        from modeaware.views.registry import acquire
        conf, config = {log.conf!r}, ClientConfig(mode_log_topic={log.topic!r})
    """
    program = textwrap.dedent(head) + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_a_program_that_forgets_to_close_ends_all_the_same(log: RealLog) -> None:
    log.create()
    log.append(topic_record())
    done = run_program(
        log,
        """
        views = acquire(conf, config)
        assert views.wait_ready(30)
        dead = acquire({"bootstrap.servers": "127.0.0.1:1"}, config)
        print(views.view("orders").epoch)
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_after_a_fork_the_child_has_its_own_tail(log: RealLog) -> None:
    log.create()
    log.append(topic_record())
    done = run_program(
        log,
        """
        import gc, threading
        views = acquire(conf, config)
        heard = []
        views.subscribe(lambda changed: heard.append(os.getpid()))
        assert views.wait_ready(30)
        child = os.fork()
        if child == 0:
            assert [t.name for t in threading.enumerate()] == ["MainThread"]
            assert views.wait_ready(30) and views.view("orders").epoch == 1
            views.refresh(30)
            assert os.getpid() in heard
            gc.collect()
            views.close()
            unused = acquire(conf, config)
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
        views.refresh(30)
        assert heard == [os.getpid()]
        views.close()
        print("ok")
        """,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@contextmanager
def open_transaction(log: RealLog) -> Iterator[Producer]:
    """Somebody else's transaction that is open on the log; what is appended behind it is acknowledged, not yet read."""
    other = Producer({**log.conf, "transactional.id": f"other-{log.topic}"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(log.topic, key="junk", value=b"junk")
    other.flush(30)
    yield other
    other.close()


def test_a_first_view_misses_no_acknowledged_record(log: RealLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MARKER_WAIT_S", 60.0)
    log.create()
    with open_transaction(log) as other:
        log.append(topic_record(epoch=1))
        views = registry.acquire(log.conf, log.config)
        assert not views.wait_ready(1.0)
        other.abort_transaction(30)
        assert views.wait_ready(30)
        assert views.view("orders").epoch == 1
        views.close()
