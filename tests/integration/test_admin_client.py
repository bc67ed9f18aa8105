"""Our AdminClient on a real Kafka without a mode log; with one: test_calls_until_done, test_create_partitions."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions

from modeaware import AdminClient, DeletePartitions
from modeaware.errors import ControllerUnavailable, ErrorCode
from modeaware.local import Kafka
from tests.conftest import MakeTopic

TIMEOUT_S = 30.0


def test_without_a_mode_log_it_is_the_stock_client_and_creates_none(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    mode_log = f"modes-of-{topic}"
    with AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "modeaware.mode.log.topic": mode_log}) as admin:
        assert admin.describe_modes() == {}
        assert admin.describe_modes([topic])[topic].result(TIMEOUT_S).modes == ()
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
        with pytest.raises(KafkaException) as caught:
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
        assert caught.value.args[0].code() == ErrorCode.INVALID_PARTITIONS
        with pytest.raises(ControllerUnavailable, match="start one with"):
            admin.delete_partitions({topic: DeletePartitions(1)}, request_timeout=2.0)[topic].result(TIMEOUT_S)
        assert mode_log not in admin.list_topics(timeout=TIMEOUT_S).topics
