"""The features of a server, by its answer to ApiVersions, and an explanation of each feature that a broker lacks.

ApiVersions 3 is encoded and read by hand, without the codec: each client sends this request at its start, and few
clients need the codec. The whole answer is read and checked, though little of it is kept. No IO here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from modeaware.errors import ErrorCode
from modeaware.wire.frames import INT16, INT32, Cursor, MalformedFrame

FEATURE = "partition.mode"
"""The feature (versions 1 to 1) in the ApiVersions response of a server whose Metadata 10 is KIP-694's."""
CLIENT_NAME = "modeaware"
"""The client software name (KIP-511) by which a server recognises a client that reads KIP-694's Metadata 10."""
UNDERLYING_NAME = "modeaware-librdkafka"
"""The software name of the librdkafka in our clients. librdkafka reads no modes itself, but our client follows them."""
SOFTWARE_NAME = "client.software.name"
"""librdkafka's setting (KIP-511). An endpoint that refuses old clients recognises our clients' librdkafka by it."""
CLIENT_ID = "modeaware"
"""The client id of a mode-aware client if the application sets none. Brokers show it for each member of a group."""
IDENTITY: Mapping[str, str] = {SOFTWARE_NAME: UNDERLYING_NAME, "client.id": CLIENT_ID}
"""librdkafka's settings by which servers recognise a mode-aware client; an application's own take precedence."""
_IDENTITY = "modeaware.controller."
_API_VERSIONS_KEY, API_VERSIONS_VERSION, _METADATA_KEY, _MODES_VERSION = 18, 3, 3, 10
_SUPPORTED_FEATURES_TAG = 0
_HEADER, _SPAN, _API = struct.Struct(">hhi"), struct.Struct(">hh"), struct.Struct(">hhh")

Versions = tuple[int, int]


@dataclass(frozen=True)
class Capabilities:
    """A server's answer to ApiVersions: for each api key and each supported feature, the (lowest, highest) version."""

    versions: Mapping[int, Versions] = field(default_factory=dict)
    features: Mapping[str, Versions] = field(default_factory=dict)

    @property
    def modes(self) -> bool:
        """Whether Metadata 10 returns modes."""
        lowest, highest = self.features.get(FEATURE, (0, -1))
        return lowest <= 1 <= highest and self.common_version(_METADATA_KEY, (_MODES_VERSION,) * 2) is not None

    @property
    def ours(self) -> bool:
        """Whether the server is an endpoint of modeaware, which returns topic ids and epochs as well."""
        return any(name.startswith(_IDENTITY) for name in self.features)

    def common_version(self, api_key: int, versions: Versions) -> int | None:
        """Return the highest version that the server and a client with these ``versions`` have in common."""
        lowest, highest = self.versions.get(api_key, (0, -1))
        common = min(highest, versions[1])
        return common if common >= max(lowest, versions[0]) else None


def identity(controller_id: str) -> str:
    """Return the feature by which a controller identifies itself in ApiVersions."""
    return f"{_IDENTITY}{controller_id}"


def request(correlation_id: int, software_version: str) -> bytes:
    """Return the ApiVersions request's frame payload (without the length)."""
    client_id = CLIENT_NAME.encode()
    header = _HEADER.pack(_API_VERSIONS_KEY, API_VERSIONS_VERSION, correlation_id)
    body = b"".join(_compact(text.encode()) for text in (CLIENT_NAME, software_version))
    return header + INT16.pack(len(client_id)) + client_id + b"\0" + body + b"\0"


def read(payload: bytes, correlation_id: int | None = None) -> Capabilities:
    """Read an ApiVersions response's frame payload.

    A server without version 3 returns UNSUPPORTED_VERSION in version 0 (KIP-511); the result is then empty.

    Args:
        correlation_id: the request's, to be compared; None if the transport has compared it.
    """
    data = Cursor(payload)
    (answered,) = data.unpack(INT32)
    if correlation_id is not None and answered != correlation_id:
        raise MalformedFrame(f"a response to request {answered}, not to {correlation_id}")
    (error_code,) = data.unpack(INT16)
    if error_code == ErrorCode.UNSUPPORTED_VERSION:
        return Capabilities()
    if error_code:
        raise MalformedFrame(f"error {error_code} to ApiVersions")
    versions: dict[int, Versions] = {}
    for _ in range(data.count(_API.size + 1)):
        api_key, lowest, highest = data.unpack(_API)
        data.skip_tags()
        versions[api_key] = (lowest, highest)
    data.take(INT32.size)  # throttle_time_ms
    features: dict[str, Versions] = {}
    for _ in range(data.varint()):
        tag, size = data.varint(), data.varint()
        value = data.take(size)
        if tag == _SUPPORTED_FEATURES_TAG:
            features = _read_features(value)
    data.end()
    return Capabilities(versions, features)


def _read_features(value: bytes) -> dict[str, Versions]:
    cursor = Cursor(value)
    features: dict[str, Versions] = {}
    for _ in range(cursor.count(_SPAN.size + 2)):
        if (name := cursor.string()) is None:
            raise MalformedFrame("ApiVersions response with a feature that has no name")
        lowest, highest = cursor.unpack(_SPAN)
        cursor.skip_tags()
        features[name] = (lowest, highest)
    cursor.end()
    return features


def _compact(data: bytes) -> bytes:
    assert len(data) < 0x7F, "a varint of one byte"
    return bytes([len(data) + 1]) + data


class BrokerFeature(NamedTuple):
    """A feature that older brokers lack: its purpose, and the first release of Kafka that has it."""

    purpose: str
    since: str

    def missing(self) -> str:
        return f"{self.purpose} needs Kafka {self.since} or newer; upgrade the brokers"


TOPIC_IDS = BrokerFeature("comparing topic ids (KIP-516)", "2.8")
_REQUESTS: Mapping[tuple[str, int], BrokerFeature] = {
    ("AlterPartitionReassignments", 0): BrokerFeature("reassigning partitions (KIP-455)", "2.4"),
    ("AlterPartitionReassignments", 1): BrokerFeature("allow_replication_factor_change=false (KIP-860)", "4.1"),
    ("ConsumerGroupDescribe", 0): BrokerFeature("describing groups of the consumer protocol (KIP-848)", "3.7"),
    ("CreatePartitions", 0): BrokerFeature("adding partitions (KIP-195)", "1.0"),
    ("DeleteTopics", 6): BrokerFeature("deleting a topic by its id (KIP-516)", "2.8"),
    ("DescribeCluster", 2): BrokerFeature("listing brokers that are down (KIP-1073)", "4.0"),
    ("DescribeProducers", 0): BrokerFeature("describing the producers of a partition (KIP-664)", "2.8"),
    ("DescribeShareGroupOffsets", 0): BrokerFeature("reading the offsets of share groups (KIP-932)", "4.1"),
    ("DescribeTopicPartitions", 0): BrokerFeature("listing eligible leader replicas (KIP-966)", "3.8"),
    ("IncrementalAlterConfigs", 0): BrokerFeature("changing single configs (KIP-339)", "2.3"),
    ("ListPartitionReassignments", 0): BrokerFeature("listing reassignments (KIP-455)", "2.4"),
    ("ShareGroupDescribe", 0): BrokerFeature("describing share groups (KIP-932)", "4.0"),
    ("StreamsGroupDescribe", 0): BrokerFeature("describing groups of the streams protocol (KIP-1071)", "4.1"),
}
"""(request, lowest version) -> the feature for which that version is needed."""


def missing(name: str, min_version: int) -> str:
    """Return why a broker does not support the request ``name`` in version ``min_version`` or later."""
    for version in range(min_version, -1, -1):
        if (request := _REQUESTS.get((name, version))) is not None:
            return request.missing()
    return f"the broker does not support {name} {min_version}; upgrade the brokers"
