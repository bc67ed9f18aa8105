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
ANSWER_S = 1.0


@pytest.fixture(scope="module")
def somewhere() -> Iterator[str]:
    with MockKafka() as kafka:
        yield kafka.bootstrap_servers


@pytest.mark.parametrize("kind", [confluent_kafka.Consumer, modeaware.Consumer])
def test_brokers_are_lost_where_only_a_new_client_finds_them(
    kind: type[confluent_kafka.Consumer], somewhere: str
) -> None:
    for servers, new_servers, lost in (
        (NOWHERE, somewhere, True),
        (NOWHERE, NOWHERE, False),  # the brokers are away, for everyone
        (somewhere, NOWHERE, False),
    ):
        consumer = kind({"bootstrap.servers": servers, "group.id": "lifeline", "log_level": 0})
        conf = {"bootstrap.servers": new_servers, "log_level": 0}
        assert brokers_lost(consumer, conf, ANSWER_S) is lost, (servers, new_servers)
        consumer.close()


class Ended(Exception):
    """What :class:`Lifeline` is given to end with."""


def test_a_reader_ends_once_its_brokers_are_lost(somewhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "QUIET_S", 0.0)
    monkeypatch.setattr(lifeline, "LOOK_S", 0.05)
    monkeypatch.setattr(lifeline, "ANSWER_S", 1.0)

    def end() -> None:
        raise Ended

    for servers in (NOWHERE, somewhere):
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "lifeline", "log_level": 0})
        watching = Lifeline(consumer, {"bootstrap.servers": somewhere, "log_level": 0}, end)
        watching.start()
        watching.join(2.0 if servers == somewhere else 30.0)
        assert watching.is_alive() is (servers == somewhere)
        if servers == somewhere:
            watching.stop()
        else:
            with pytest.raises(Ended):
                watching.fine()
        consumer.close()
