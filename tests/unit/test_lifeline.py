"""When a chaos run says that librdkafka has lost every broker, and what it does then: with librdkafka's mock broker."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

import modeaware
from modeaware.testing import MockKafka
from tests.chaos import lifeline
from tests.chaos.lifeline import Lifeline, brokers_lost

NOWHERE = "127.0.0.1:1"
ANSWER_S, LONG_ANSWER_S = 1.0, 15.0
CONF = {"group.id": "lifeline", "log_level": 0}


@pytest.fixture(scope="module")
def somewhere() -> Iterator[str]:
    with MockKafka() as kafka:
        yield kafka.bootstrap_servers


@pytest.mark.parametrize("kind", [confluent_kafka.Consumer, modeaware.Consumer])
def test_brokers_are_lost_where_only_a_new_client_finds_them(
    kind: type[confluent_kafka.Consumer], somewhere: str
) -> None:
    there, nowhere = {"bootstrap.servers": somewhere}, {"bootstrap.servers": NOWHERE, "log_level": 0}
    consumer = kind({**CONF, **nowhere})
    assert any(brokers_lost(consumer, there, ANSWER_S) for _ in range(10))  # a busy machine may be late with one
    assert not brokers_lost(consumer, nowhere, ANSWER_S)  # the brokers are away, for everyone
    consumer.close()
    consumer = kind({**CONF, **there})
    assert not brokers_lost(consumer, there, LONG_ANSWER_S)
    consumer.close()


class Ended(Exception):
    """What :class:`Lifeline` is given to end with."""


@pytest.mark.parametrize(
    ("lost", "quiet_s", "ends"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)], ids=str
)
def test_a_reader_ends_once_its_brokers_are_lost_and_it_reads_nothing(
    lost: bool, quiet_s: float, ends: bool, somewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifeline, "QUIET_S", quiet_s)
    monkeypatch.setattr(lifeline, "LOOK_S", 0.05)
    monkeypatch.setattr(lifeline, "ANSWER_S", 0.5)

    def end() -> None:
        raise Ended

    consumer = confluent_kafka.Consumer({**CONF, "bootstrap.servers": NOWHERE if lost else somewhere})
    watching = Lifeline(consumer, {"bootstrap.servers": somewhere}, end)
    watching.start()
    watching.join(30.0 if ends else 3.0)
    if ends:
        with pytest.raises(Ended):
            watching.fine()
    else:
        assert watching.is_alive()
        watching.stop()
    consumer.close()
