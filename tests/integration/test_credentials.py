"""Credentials that change on a living client, on a real broker with users."""

from __future__ import annotations

import uuid

import pytest

import modeaware
from modeaware.controller.daemon import Controller
from modeaware.errors import ModeAwareError
from tests.support.guarded import Guarded
from tests.support.secured import ADMIN, login, secret
from tests.support.waiting import eventually


def test_clients_read_the_modes_with_the_credentials_that_they_are_given(guarded: Guarded, active: Controller) -> None:
    """Each with the configuration of the first, whose password counts no more."""
    topic = guarded.topic(4)
    conf = {
        "bootstrap.servers": guarded.servers,
        "log_level": 0,
        **login(guarded.secured.certificate, ADMIN, "SCRAM-SHA-256", "outdated"),
    }
    told: list[object] = []
    with modeaware.AdminClient(conf) as admin:
        with pytest.raises(ModeAwareError):
            admin.describe_modes([topic], request_timeout=1)[topic].result(30)
        admin.set_sasl_credentials(ADMIN, secret(ADMIN))
        admin.delete_partitions({topic: modeaware.DeletePartitions(1)})[topic].result(60)
    producer = modeaware.Producer(conf)
    eventually(lambda: producer.modeaware_stats()["views"]["error"], 30)
    producer.set_sasl_credentials(ADMIN, secret(ADMIN))
    producer.produce(topic, b"v", b"k", on_delivery=lambda error, message: told.append(error or message.partition()))
    assert producer.flush(60) == 0
    assert told == [0]
    consumer = modeaware.Consumer({**conf, "group.id": f"g-{uuid.uuid4().hex[:8]}", "auto.offset.reset": "earliest"})
    try:
        consumer.set_sasl_credentials(ADMIN, secret(ADMIN))
        consumer.subscribe([topic])
        eventually(lambda: (found := consumer.poll(0.2)) is not None and found.value() == b"v", 60)
        assert producer.modeaware_stats()["views"]["clients"] == 2
    finally:
        consumer.close()
        producer.close()
