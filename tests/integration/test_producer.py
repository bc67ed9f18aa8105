"""``modeaware.Producer`` on a real broker: callbacks, transactions, serializers, and how a process ends."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from typing import Any

import confluent_kafka
import pytest

from modeaware.confluent.producer import Producer
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import drain_topic
from tests.support.source_tree import ROOT
from tests.support.waiting import eventually

BEFORE, AFTER = 12, 4


def test_transactions(kafka: Kafka, make_topic: MakeTopic, fake_views: FakeViews) -> None:
    topic = make_topic(BEFORE)
    fake_views.set(topic, modes_of(BEFORE, AFTER))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, value, str(number))
        producer.produce_batch(topic, [{"value": value, "key": str(number)} for number in range(20)])
        end(30)
    producer.close()
    messages = drain_topic(kafka.bootstrap_servers, topic)
    assert [message.value() for message in messages] == [b"kept"] * 40
    assert all(message.partition() == confluent_kafka.consistent(message.key() or b"", AFTER) for message in messages)


def test_a_change_on_the_mode_log_reaches_a_running_producer(kafka: Kafka, make_topic: MakeTopic) -> None:
    """No fakes: an alias taken before there even was a log follows it to the shrink and back."""
    topic, log = make_topic(BEFORE), RealLog(kafka.bootstrap_servers)
    conf = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "modeaware.mode.log.topic": log.topic,
        "partitioner": "murmur2",
    }
    with Producer(conf) as producer:
        producer.list_topics(topic)
        send = producer.produce
        send(topic, "0", "k")
        log.create()
        for epoch, writable in ((1, AFTER), (2, BEFORE), (3, 6)):
            log.append(topic_record(topic, epoch, writable=writable))
            state = "direct" if writable == BEFORE else "routed"
            eventually(lambda s=state: producer.modeaware_stats()["state"] == s)
            send(topic, str(epoch), "k")
        assert producer.flush(30) == 0
    log.close()
    found = {message.value(): message.partition() for message in drain_topic(kafka.bootstrap_servers, topic)}
    counts = {b"0": BEFORE, b"1": AFTER, b"2": BEFORE, b"3": 6}
    assert found == {value: confluent_kafka.murmur2(b"k", count) for value, count in counts.items()}


def test_threads_send_while_the_modes_change(kafka: Kafka, make_topic: MakeTopic, fake_views: FakeViews) -> None:
    """Nothing is lost, and after the last change all keys of all threads are at their new places."""
    topic = make_topic(BEFORE)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2"})
    send = producer.produce
    changed, last = threading.Event(), threading.Event()
    sent = [0] * 4

    def work(number: int) -> None:
        while not last.is_set():
            send(topic, b"during", key=b"%d-%d" % (number, sent[number] % 50))
            sent[number] += 1
            if sent[number] > 500:
                changed.wait()
        for key in range(50):
            send(topic, b"after", key=b"%d-%d" % (number, key))
            sent[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(sent))]
    for thread in threads:
        thread.start()
    for writable in (6, 12, 3, 11, AFTER):
        fake_views.set(topic, modes_of(BEFORE, writable))
    last.set()
    changed.set()
    for thread in threads:
        thread.join()
    producer.close()
    messages = drain_topic(kafka.bootstrap_servers, topic)
    assert len(messages) == sum(sent)
    assert all(
        message.partition() == confluent_kafka.murmur2(message.key() or b"", AFTER)
        for message in messages
        if message.value() == b"after"
    )


def run(program: str, *arguments: str) -> list[Any]:
    """The JSON lines that a program prints, in an interpreter of its own, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


EXITS = {
    "flushed": "producer.flush(30)",
    "not flushed": "pass",
    "in a cycle": "producer.itself = producer; del producer",
    "with threads sending": """
def work():
    while True:
        try:
            producer.produce(topic, b"v", key=b"k")
        except BufferError:
            producer.poll(0.1)
import threading
threading.Thread(target=work, daemon=True).start()
producer.poll(0.1)
""",
}


@pytest.mark.parametrize("end", list(EXITS))
@pytest.mark.parametrize("tail", ["real", "fake"])
def test_the_interpreter_exits_in_good_order(kafka: Kafka, make_topic: MakeTopic, end: str, tail: str) -> None:
    """Routed (fake views) and direct (the real tail, running to the end); nothing on stderr, exit status 0."""
    program = f"""
import sys
import modeaware
from modeaware.views import registry
from tests.support.fake_views import FakeViews, modes_of
servers, topic = sys.argv[1:]
if {tail == "fake"}:
    views = FakeViews()
    views.set(topic, modes_of({BEFORE}, {AFTER}))
    registry.acquire = lambda conf, config: views
producer = modeaware.Producer({{"bootstrap.servers": servers, "log_level": 0, "linger.ms": 50}})
producer.produce(topic, b"v", key=b"k")
{textwrap.dedent(EXITS[end]).strip()}
print('"end"')
"""
    assert run(program, kafka.bootstrap_servers, make_topic(BEFORE)) == ["end"]


def test_a_producer_made_in_a_forked_child_works(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = make_topic(BEFORE)
    program = """
        import os, sys
        import modeaware
        servers, topic = sys.argv[1:]

        def send(value):
            producer = modeaware.Producer({"bootstrap.servers": servers, "log_level": 0})
            producer.produce(topic, value)
            left = producer.flush(30)
            producer.close()
            return left

        parent = modeaware.Producer({"bootstrap.servers": servers, "log_level": 0})
        parent.produce(topic, "parent")
        child = os.fork()
        if child == 0:
            os._exit(send("child"))
        _, status = os.waitpid(child, 0)
        left = parent.flush(30)
        parent.close()
        print([status, left])
    """
    assert run(program, kafka.bootstrap_servers, topic) == [[0, 0]]
    assert {message.value() for message in drain_topic(kafka.bootstrap_servers, topic)} == {b"parent", b"child"}
