"""Both sides of an endpoint's session without IO: a desk, a broker that answers from memory, and requests as bytes."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafka.protocol.admin.topics import CreateTopicsRequest, CreateTopicsResponse
from kafka.protocol.metadata import MetadataRequest as KafkasQuestion
from kafka.protocol.metadata import MetadataResponse as KafkasMetadata

from modeaware.endpoint.facade import REFUSE, Action, ActiveController, Close, Refresh, Submit, ToClient, ToUpstream
from modeaware.endpoint.limits import EndpointLimits
from modeaware.endpoint.session import ClientSession
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CreatePartitionsCommand, ReplaceTopicCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from modeaware.wire import codec, messages

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
NOT_SAID = -(2**31)
ALTER_AND_DELETE = 1 << 7 | 1 << 6 | 1 << 8
ORDERS_ID = "b3JkZXJzLWlkLWluLWI2NA"
LIVE_IDS = {"orders": b"orders-id-in-b64"}
SHRUNK = TopicView(
    "orders",
    ORDERS_ID,
    (3, 7),
    (RW, RW, RO, NONE),
    {2: 40, 3: 50},
    frozenset({3}),
    previous_count=4,
)


@dataclass
class FakeDesk:
    """A desk whose answers are its attributes. ``failure`` is raised by all that may fail."""

    known: dict[str, TopicView] = field(default_factory=lambda: {"orders": SHRUNK})
    active: bool = True
    claimed: ActiveController | None = field(default_factory=lambda: ActiveController("other", "active.example", 9691))
    controller_id: str = "c1"
    advertised: tuple[str, int] = ("endpoint.example", 9690)
    old_clients: str = "serve"
    number: int = 0
    taken_back: frozenset[str] = frozenset()
    failure: Exception | None = None

    def views(self, topic: str) -> TopicView:
        self._fail()
        return self.known.get(topic) or TopicView.unlisted(topic)

    def records(self) -> Mapping[str, TopicView]:
        self._fail()
        return self.known

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        self._fail()
        return tuple(topic_id for topic_id in topic_ids if topic_id in self.taken_back)

    def version(self) -> Hashable:
        self._fail()
        return self.number

    def claim(self) -> ActiveController | None:
        self._fail()
        return self.claimed

    def is_active(self) -> bool:
        return self.active

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


@dataclass
class FakeBroker:
    """Answers in order. ``rights``: what its user may do with each topic; one that is not there gets ``missing``.

    ``ids``: the topics' live ids; one that is not there has a made-up one. ``newest``: its newest Metadata version.
    ``creations``: the error codes of CreateTopics by name; others would be created.
    """

    rights: dict[str, int] = field(default_factory=lambda: {"orders": ALTER_AND_DELETE, "plain": ALTER_AND_DELETE})
    cluster: int = 0
    missing: int = 3
    partitions: int = 3
    ids: dict[str, bytes] = field(default_factory=lambda: dict(LIVE_IDS))
    newest: int = 13
    asked: deque[bytes] = field(default_factory=deque)
    creations: dict[str, int] = field(default_factory=dict)

    def answer(self) -> bytes:
        """To the oldest request that has none."""
        payload = self.asked.popleft()
        header = codec.peek_header(payload)
        if header.api_key == codec.METADATA_KEY:
            return self._metadata(payload)
        if header.api_key == codec.API_VERSIONS_KEY:
            return broker_versions(header.api_version, header.correlation_id, {**BROKER_KEYS, 3: (0, self.newest)})
        if header.api_key == codec.CREATE_TOPICS_KEY:
            return self._validated(payload)
        return pass_through_answer(payload)

    def _validated(self, payload: bytes) -> bytes:
        header = codec.peek_header(payload)
        request = CreateTopicsRequest.decode(payload, version=header.api_version, header=True)
        assert request.validate_only
        result = CreateTopicsResponse.CreatableTopicResult
        message = CreateTopicsResponse(
            throttle_time_ms=0,
            topics=[
                result(name=topic.name, error_code=self.creations.get(topic.name, 0), error_message=None, configs=None)
                for topic in request.topics
            ],
        )
        message.API_VERSION = header.api_version
        message.with_header(correlation_id=header.correlation_id)
        return bytes(message.encode(header=True))

    def _metadata(self, payload: bytes) -> bytes:
        header, request = decoded_question(payload)
        assert header.api_version <= self.newest
        everything = not request.topics if header.api_version == 0 else request.topics is None
        names = list(self.rights) if everything else [topic.name for topic in request.topics]
        return metadata_answer(
            header.correlation_id,
            {name: self._topic(name, request) for name in names},
            version=header.api_version,
            cluster=self.cluster if request.include_cluster_authorized_operations else NOT_SAID,
            ids=self.ids,
        )

    def _topic(self, name: str, request: Any) -> tuple[int, int, int]:
        if name not in self.rights:
            return self.missing, 0, NOT_SAID
        said = request.include_topic_authorized_operations
        return 0, self.partitions, self.rights[name] if said else NOT_SAID


class Talk:
    """A session with a broker behind it. Answers of both sides come when they are asked for."""

    def __init__(
        self,
        desk: FakeDesk | None = None,
        *,
        broker: FakeBroker | None = None,
        limits: EndpointLimits | None = None,
        sasl: bool = False,
    ) -> None:
        self.desk = desk or FakeDesk()
        self.broker = broker or FakeBroker()
        self.session = ClientSession(self.desk, limits or EndpointLimits(), sasl, None)
        self.told: list[bytes] = []
        self.submitted: list[Submit] = []
        self.refreshes: list[Refresh] = []
        self.closed: str | None = None
        self.sent: list[bytes] = []

    def ask(self, *payloads: bytes) -> None:
        """The client sends these."""
        for payload in payloads:
            self.take(self.session.from_client(payload))

    def resolve(self, outcome: Any) -> None:
        """The latest Submit or Refresh has come to this."""
        latest = max(action.ticket for action in (*self.submitted, *self.refreshes))
        self.take(self.session.resolved(latest, outcome))

    def broker_answers(self, payload: bytes | None = None) -> None:
        """The broker's next answer; ``payload``: this instead of what it would say."""
        self.take(self.session.from_upstream(self.broker.answer() if payload is None else payload))

    def all_answered(self) -> list[bytes]:
        """Let the broker answer all there is; what the client was told so far."""
        while self.broker.asked and self.closed is None:
            self.broker_answers()
        return self.told

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            assert self.closed is None, "an action after a Close"
            match action:
                case ToClient():
                    self.told.append(action.payload)
                case ToUpstream():
                    self.broker.asked.append(action.payload)
                    self.sent.append(action.payload)
                case Submit():
                    self.submitted.append(action)
                case Refresh():
                    self.refreshes.append(action)
                case Close():
                    self.closed = action.reason


def request(api_key: int, version: int, correlation_id: int, rest: bytes = b"") -> bytes:
    """A request of an api that is not looked into."""
    return struct.pack(">hhih", api_key, version, correlation_id, -1) + rest


def pass_through_answer(payload: bytes) -> bytes:
    """What the broker answers to it: its correlation id, no error, and which request it was."""
    return payload[4:8] + b"\0\0" + payload


def hello(correlation_id: int = 0, name: str = "modeaware", version: int = 3, *, software_version: str = "1") -> bytes:
    """ApiVersions."""
    message = codec.ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    return codec.encode_request(message, version, correlation_id, "a client")


BROKER_KEYS = {0: (0, 13), 1: (4, 18), 3: (0, 13), 17: (0, 1), 18: (0, 4), 36: (0, 2), 37: (0, 9), 75: (0, 0)}


def broker_versions(version: int, correlation_id: int, keys: Mapping[int, tuple[int, int]] = BROKER_KEYS) -> bytes:
    """A broker's ApiVersions answer."""
    message = codec.ApiVersionsResponse(
        error_code=0,
        api_keys=[(key, *span) for key, span in keys.items()],
        throttle_time_ms=5,
        supported_features=[("metadata.version", 1, 29)],
        finalized_features_epoch=77,
        finalized_features=[("metadata.version", 29, 29)],
    )
    return codec.encode_response(message, version, correlation_id)


def metadata_answer(
    correlation_id: int,
    topics: dict[str, tuple[int, int, int]],
    *,
    version: int = 9,
    cluster: int = NOT_SAID,
    ids: Mapping[str, bytes] = LIVE_IDS,
) -> bytes:
    """A broker's Metadata answer: per topic its error code, how many partitions it has, and the operations granted."""
    topic_class = KafkasMetadata.MetadataResponseTopic
    message = KafkasMetadata(
        throttle_time_ms=0,
        brokers=[
            KafkasMetadata.MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092, rack="r") for n in (1, 2, 3)
        ],
        cluster_id="cluster",
        controller_id=2,
        topics=[
            topic_class(
                error_code=error,
                name=name,
                topic_id=UUID(bytes=ids.get(name, name.encode().rjust(16, b"-")[-16:])),
                is_internal=False,
                partitions=[
                    topic_class.MetadataResponsePartition(
                        error_code=0,
                        partition_index=p,
                        leader_id=1 + p % 2,
                        leader_epoch=4,
                        replica_nodes=[1, 2],
                        isr_nodes=[1],
                        offline_replicas=[2],
                    )
                    for p in range(count)
                ],
                authorized_operations=_set_bits(operations),
            )
            for name, (error, count, operations) in topics.items()
        ],
        authorized_operations=_set_bits(cluster),
    )
    message.API_VERSION = version
    message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True))


def _set_bits(number: int) -> set[int]:
    return {bit for bit in range(32) if number >> bit & 1}


def decoded_question(payload: bytes) -> tuple[codec.Header, Any]:
    """A Metadata request, by kafka-python's own class."""
    header = codec.peek_header(payload)
    if header.api_version < codec.METADATA_WITH_IDS:
        return codec.decode_request(payload)
    return header, KafkasQuestion.decode(payload, version=header.api_version, header=True)


def modes_request(correlation_id: int, topics: list[str] | None = None, **fields: Any) -> bytes:
    """KIP-694's Metadata."""
    return old_metadata_request(correlation_id, codec.MODES_VERSION, topics, **fields)


def old_metadata_request(correlation_id: int, version: int, topics: list[str] | None, **fields: Any) -> bytes:
    """Kafka's own Metadata."""
    message = codec.ModesMetadataRequest(topics=None if topics is None else [(name,) for name in topics], **fields)
    return codec.encode_request(message, version, correlation_id, "a client")


def delete(
    counts: dict[str, int], correlation_id: int = 1, *, delay_ms: int | None = 0, immediate_delete: bool = False
) -> bytes:
    """DeletePartitions."""
    message = messages.delete_partitions_request(
        counts, delay_ms=delay_ms, immediate_delete=immediate_delete, timeout_ms=5_000
    )
    return codec.encode_request(message, 0, correlation_id, "a client")


def replacing(*commands: ReplaceTopicCommand, validate_only: bool = False) -> bytes:
    """ReplaceTopics."""
    message = messages.replace_topics_request(commands, validate_only=validate_only, timeout_ms=5_000)
    return codec.encode_request(message, 0, 1, "a client")


def create(counts: dict[str, int], version: int = 3) -> bytes:
    """CreatePartitions."""
    commands = [CreatePartitionsCommand(name, count) for name, count in counts.items()]
    message = messages.create_partitions_request(commands, validate_only=False, timeout_ms=5_000)
    return codec.encode_request(message, version, 1, "a client")


def rules(*topics: str, remove: tuple[str, ...] = ()) -> bytes:
    """AlterGroupRules: a rule added for each of ``topics``, and one removed for each of ``remove``."""
    return altering(
        AlterGroupRulesCommand(
            tuple(GroupRule("waive", f"g{n}", topic, "why", 1) for n, topic in enumerate(topics)),
            tuple(("waive", "g", topic) for topic in remove),
        )
    )


def altering(command: AlterGroupRulesCommand) -> bytes:
    """AlterGroupRules."""
    return codec.encode_request(messages.alter_group_rules_request(command, timeout_ms=5_000), 0, 1, "a client")


def ids(told: list[bytes]) -> list[int]:
    """The correlation ids of answers."""
    return [struct.unpack_from(">i", payload)[0] for payload in told]


def refused(version: int, names: list[str] | None, **broker: Any) -> Any:
    """What an old client is answered where such clients are refused."""
    talk = Talk(FakeDesk(old_clients=REFUSE), broker=FakeBroker(**broker))
    talk.ask(old_metadata_request(5, version, names))
    told = talk.all_answered()
    assert talk.closed is None
    correlation_id, answer = codec.decode_response(told[0], 3, version)
    assert correlation_id == 5
    return answer


def asked(talk: Talk, payload: bytes) -> Any:
    """What a modeaware client is told."""
    talk.ask(hello(1), payload)
    told = talk.all_answered()
    assert talk.closed is None
    return codec.decode_response(told[-1], 3, 10)[1]
