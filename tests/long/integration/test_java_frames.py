"""Stock messages as Kafka's Java client and broker encode them: decoded, and encoded again to the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from modeaware.local import Kafka
from modeaware.wire import stock
from tests.conftest import MakeTopic
from tests.support.java_frames import Exchange, RecordingRelay
from tests.support.kafka_tools import run_tool
from tests.support.plain import produce_keyed

API_VERSIONS, METADATA, CREATE_PARTITIONS = (
    stock.API_VERSIONS_KEY,
    stock.METADATA_KEY,
    stock.CREATE_PARTITIONS_KEY,
)


def check_bytes(exchanges: Iterable[Exchange]) -> list[tuple[Any, Any]]:
    """The decoded messages of all exchanges of the stock apis, each of which must encode to the bytes it came from."""
    decoded = []
    for each in exchanges:
        if not stock.is_supported(each.header):
            continue
        header, request = stock.decode_request(each.request)
        version = header.api_version
        assert stock.encode_request(request, version, header.correlation_id, header.client_id) == each.request
        correlation_id, response = stock.decode_response(each.response, header.api_key, version)
        assert correlation_id == header.correlation_id
        assert stock.encode_response(response, version, correlation_id) == each.response
        decoded.append((request, response))
    return decoded


def versions(exchanges: Iterable[Exchange]) -> set[int]:
    return {each.header.api_version for each in exchanges}


# Java speaks no Metadata 0, and before 4 it cannot ask about a topic without creating it.
@pytest.mark.parametrize(("metadata", "api_versions"), [(1, 0), (2, 1), (3, 2)])
def test_listing_in_the_oldest_versions(kafka: Kafka, make_topic: MakeTopic, metadata: int, api_versions: int) -> None:
    topic = make_topic(3)
    highest = {METADATA: metadata, API_VERSIONS: api_versions}
    with RecordingRelay(kafka.bootstrap_servers, highest) as relay:
        assert topic in run_tool(f"kafka-topics.sh --bootstrap-server {relay.address} --list")
    assert relay.errors == []
    assert versions(relay.of(METADATA)) == {metadata}
    assert versions(relay.of(API_VERSIONS)) == {api_versions}
    check_bytes(relay.exchanges)
    (answer,) = [message for _, message in check_bytes(relay.of(METADATA)[-1:])]
    assert {t.name: len(t.partitions) for t in answer.topics}[topic] == 3


@pytest.mark.parametrize(
    ("metadata", "api_versions", "create_partitions"),
    [(4, 3, 0), (5, 4, 1), (6, 4, 2), (7, 4, 3), (8, 4, 3), (9, 4, 3)],
)
def test_adding_partitions(
    kafka: Kafka, make_topic: MakeTopic, metadata: int, api_versions: int, create_partitions: int
) -> None:
    topic = make_topic(3)
    node_id = (
        AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        .list_topics(topic)
        .topics[topic]
        .partitions[0]
        .leader
    )
    highest = {METADATA: metadata, API_VERSIONS: api_versions, CREATE_PARTITIONS: create_partitions}
    with RecordingRelay(kafka.bootstrap_servers, highest) as relay:
        alter = f"kafka-topics.sh --bootstrap-server {relay.address} --alter --topic {topic} --partitions 4"
        printed = run_tool(f"{alter} --replica-assignment {','.join([str(node_id)] * 4)}")
        assert "rror" not in printed, printed
    assert relay.errors == []
    assert versions(relay.of(METADATA)) == {metadata}
    assert versions(relay.of(API_VERSIONS)) == {api_versions}
    check_bytes(relay.exchanges)
    ((asked, answered),) = check_bytes(relay.of(CREATE_PARTITIONS))
    (one,) = asked.topics
    assert (one.name, one.count, [each.broker_ids for each in one.assignments]) == (topic, 4, [[node_id]])
    assert [(t.name, t.error_code) for t in answered.results] == [(topic, 0)]
    assert versions(relay.of(CREATE_PARTITIONS)) == {create_partitions}


def test_describing_and_consuming(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    produce_keyed(kafka.bootstrap_servers, topic, [(None, b"v")] * 5)
    with RecordingRelay(kafka.bootstrap_servers, {}) as relay:
        described = run_tool(f"kafka-topics.sh --bootstrap-server {relay.address} --describe --topic {topic}")
        consumed = run_tool(
            f"kafka-console-consumer.sh --bootstrap-server {relay.address} --topic {topic} --from-beginning "
            "--max-messages 5 --timeout-ms 30000"
        )
    assert relay.errors == []
    assert f"Topic: {topic}\tPartition: 2" in described, described
    assert "Processed a total of 5 messages" in consumed, consumed
    messages = check_bytes(relay.exchanges)
    software = {ask.client_software_name for ask, _ in messages if isinstance(ask, stock.ApiVersionsRequest)}
    assert software == {"apache-kafka-java"}
    answers = [answer for _, answer in messages if isinstance(answer, stock.ApiVersionsResponse)]
    assert all("metadata.version" in {f.name for f in answer.supported_features} for answer in answers)
    assert any(
        ask.topics is not None and [t.name for t in ask.topics] == [topic] for ask, _ in check_bytes(relay.of(3))
    )
