"""Calls that block in C, in processes whose threads are greenlets; and the same calls where they are threads."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future

import pytest

from modeaware import os_threads
from tests.support.greenlets import FRAMEWORKS, PATCHED
from tests.support.program import run_program

CALLS = (
    PATCHED
    + """
from confluent_kafka import Consumer, KafkaException
from modeaware import os_threads
assert os_threads.are_greenlets()
consumer = os_threads.call(Consumer, {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
ticker = Ticker()
time.sleep(0.05)
before = ticker.ticks
assert os_threads.call(consumer.poll, 0.5) is None
during = ticker.ticks - before
try:
    os_threads.call(consumer.list_topics, timeout=0.1)
except KafkaException as error:
    print("raised", error.args[0].name())
before = ticker.ticks
assert os_threads.call_apart(consumer.poll, 0.2) is None
apart = ticker.ticks - before
ticker.stop()
print("ticks", during > 20, apart <= 1)
"""
)

ANSWERS = (
    PATCHED
    + """
from confluent_kafka.admin import AdminClient
from confluent_kafka import TopicCollection, KafkaException
from modeaware import os_threads
admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
ticker = Ticker()
found = os_threads.awaitable(admin.describe_topics(TopicCollection(["t"]), request_timeout=0.3)["t"])
assert not found.done()
try:
    found.result(0.01)
except TimeoutError:
    print("not yet")
try:
    found.result(20)
except KafkaException as error:
    print(error.args[0].name(), found.done(), found.exception(0) is error, ticker.ticks > 20)
ticker.stop()
"""
)

INTERRUPTED = (
    PATCHED
    + """
from confluent_kafka import Consumer
from modeaware import os_threads
consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
if sys.argv[1] == "gevent":
    from gevent import Timeout
else:
    from eventlet import Timeout
try:
    with Timeout(0.05):
        os_threads.call(consumer.poll, 0.3)
except Timeout:
    print("interrupted")
print(os_threads.call(consumer.poll, 0.5))
"""
)

FORKED = (
    PATCHED
    + """
import os
from confluent_kafka import Consumer
from modeaware import os_threads
consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
done = []
def helper():
    os_threads.call(consumer.poll, 0.5)
    done.append(os.getpid())
thread = threading.Thread(target=helper, daemon=True)
thread.start()
time.sleep(0.1)
child = os.fork()
if child == 0:
    time.sleep(1)
    os._exit(1 if done else 0)
thread.join(10)
print("parent", done == [os.getpid()], "child", os.waitpid(child, 0)[1])
"""
)


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestGreenlets:
    def test_other_greenlets_run_while_one_calls(self, framework: str) -> None:
        done = run_program(CALLS, framework)
        assert (done.stdout.splitlines(), done.returncode) == (["raised _TRANSPORT", "ticks True True"], 0), done.stderr

    def test_answer_of_a_thread_of_librdkafka_reaches_the_greenlet(self, framework: str) -> None:
        done = run_program(ANSWERS, framework)
        assert done.stdout.splitlines() == ["not yet", "_TIMED_OUT True True True"], done.stderr

    def test_greenlet_that_is_interrupted_leaves_nothing_behind(self, framework: str) -> None:
        done = run_program(INTERRUPTED, framework)
        assert done.stdout.splitlines() == ["interrupted", "None"], done.stderr
        assert "Error" not in done.stderr


def test_helper_ends_in_a_forked_child_and_continues_in_the_parent() -> None:
    done = run_program(FORKED, "gevent")  # children of eventlet share its epoll with their parent
    assert done.stdout.splitlines() == ["parent True child 0"], done.stderr


class TestThreads:
    def test_call_stays_in_its_thread(self) -> None:
        assert os_threads.call(threading.get_ident) == threading.get_ident()
        future: Future[int] = Future()
        assert os_threads.awaitable(future) is future
        os_threads.end_in_child_of(os.getpid())

    def test_call_apart_is_in_another_one(self) -> None:
        assert os_threads.call_apart(threading.get_native_id) != threading.get_native_id()
        with pytest.raises(ZeroDivisionError):
            os_threads.call_apart(divmod, 1, 0)

    def test_no_thread_is_an_error_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(os_threads._os_thread, "start_new_thread", refuse)
        with pytest.raises(os_threads.NoThread, match="can't start"):
            os_threads.call_apart(int)
