"""What brokers answer to batches that must not be appended, and how fast a topic's write fence goes on and off.

Three brokers of each version of Kafka. :mod:`modeaware.wire.fence_probe` has the fence, and why the first candidate is
the probe. A candidate's figure is the number of records that it appended, in front of the fence and behind it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import confluent_kafka

from benchmarks.batches import CANDIDATES, HOUR_MS, PROBE, VALUE, batch
from benchmarks.harness import Result, percentile
from benchmarks.setting import Setting
from modeaware.cluster.effects import alter_configs
from modeaware.local import LocalKafka
from modeaware.wire.brokers import Brokers
from modeaware.wire.fence_probe import FENCE_CONFIGS, PROBE_ACKS, FenceState, probe_batch, read_answer
from modeaware.wire.requests import (
    CreateTopicsRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from tests.support.waiting import eventually

# isort: split
from kafka import errors as kafka_errors
from kafka.protocol.producer.produce import ProduceRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest

VERSIONS = ("3.9.1", "4.0.1", "4.2.0")
NODES = 3
ROUNDS = 20
TOPICS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "bounded timestamps": {
        "message.timestamp.before.max.ms": str(HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    },
    "LogAppendTime": {"message.timestamp.type": "LogAppendTime"},
    "zstd": {"compression.type": "zstd"},
    "open transaction": {},
}
_LATEST = -1
_CONSUMER, _DEBUGGING = -1, -2
"""As replica id of ListOffsets: the high watermark or, with ``_READ_COMMITTED``, the last stable offset; the log end
offset."""
_READ_COMMITTED = 1


def measure(setting: Setting) -> Iterator[Result]:
    for version in VERSIONS[-1:] if setting.quick else VERSIONS:
        with (
            LocalKafka(NODES, version=version) as kafka,
            closing(Brokers({"bootstrap.servers": kafka.bootstrap_servers})) as brokers,
        ):
            for kind, configs in TOPICS.items():
                yield from _candidates(FencedTopic(kafka, brokers, configs), kind)
            yield _retry(FencedTopic(kafka, brokers, {}))
            yield from _times(FencedTopic(kafka, brokers, {}), setting.rounds(ROUNDS))


class FencedTopic:
    """A topic on a cluster of its own, and the requests to the leaders of its partitions."""

    def __init__(self, kafka: LocalKafka, brokers: Brokers, configs: Mapping[str, str], partitions: int = 3) -> None:
        self.kafka, self.brokers, self.name = kafka, brokers, f"fence-{uuid.uuid4().hex[:8]}"
        self.partitions = partitions
        new = CreateTopicsRequest.CreatableTopic
        own = [new.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        wanted = new(name=self.name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=own)
        (made,) = brokers.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False)).topics
        if made.error_code:
            raise RuntimeError(f"{self.name} was not created: {made.error_message}")
        # Brokers learn of topics one after another.
        eventually(lambda: len(self.leaders()) == partitions and self.states() == {FenceState.OPEN})

    def metadata(self, node: int | None = None) -> Any:
        """The partitions, as ``node`` has them."""
        named = [MetadataRequest.MetadataRequestTopic(name=self.name)]
        (topic,) = self.brokers.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False), node).topics
        return topic.partitions

    def leaders(self, node: int | None = None) -> dict[int, int]:
        """Partition to leader, as ``node`` has it."""
        return {partition.partition_index: partition.leader_id for partition in self.metadata(node)}

    def produce(self, records: bytes, acks: int = PROBE_ACKS) -> dict[int, Any]:
        """The responses of all leaders to the same batch, by partition."""
        return {number: self.produce_at(leader, number, records, acks) for number, leader in self.leaders().items()}

    def produce_at(
        self, node: int, number: int, records: bytes, acks: int = PROBE_ACKS, brokers: Brokers | None = None
    ) -> Any:
        """The response of one broker for one partition; from threads with connections of their own."""
        data = ProduceRequest.TopicProduceData
        partition = data.PartitionProduceData(index=number, records=records)
        # Versions above 12 name topics by id.
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[data(name=self.name, partition_data=[partition])],
            max_version=12,
        )
        (topic,) = (brokers or self.brokers).ask(request, node).responses
        return topic.partition_responses[0]

    def states(self) -> set[FenceState]:
        """What the probe finds on the leaders."""
        answers = self.produce(probe_batch()).items()
        return {read_answer(answer.error_code, self.name, number) for number, answer in answers}

    def alter(self, fenced: bool) -> None:
        """Put the fence on or lift it, in one request; returns when that was acknowledged."""
        if fenced:
            alter_configs(self.brokers, self.name, FENCE_CONFIGS)
        else:
            alter_configs(self.brokers, self.name, {}, FENCE_CONFIGS)

    def fence(self, fenced: bool = True) -> None:
        """The same, and wait until all leaders have taken it over."""
        self.alter(fenced)
        wanted = {FenceState.FENCED if fenced else FenceState.OPEN}
        eventually(lambda: self.states() == wanted, interval_s=0.002)

    def end(self, replica_id: int = _DEBUGGING, isolation: int = 0) -> int:
        """The sum over the leaders of the log end offsets, or of what else ListOffsets tells."""
        topic = ListOffsetsRequest.ListOffsetsTopic
        total = 0
        for number, leader in self.leaders().items():
            wanted = topic.ListOffsetsPartition(partition_index=number, timestamp=_LATEST, current_leader_epoch=-1)
            topics = [topic(name=self.name, partitions=[wanted])]
            request = ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation, topics=topics)
            total += int(self.brokers.ask(request, leader).topics[0].partitions[0].offset)
        return total

    def stored_bytes(self) -> int:
        """The size of all segments on the leaders."""
        total = 0
        for number, leader in self.leaders().items():
            folder = self.kafka.brokers[leader - 1].data / f"{self.name}-{number}"
            total += sum(segment.stat().st_size for segment in folder.glob("*.log"))
        return total

    def logged_errors(self) -> int:
        """How often the brokers have logged a failed append."""
        lines = [
            line
            for broker in self.kafka.brokers
            for line in broker.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        ]
        return sum("Error processing append operation" in line and f"{self.name}-" in line for line in lines)


def _candidates(topic: FencedTopic, kind: str) -> Iterator[Result]:
    """Every candidate in front of the fence, then behind it."""
    producer = None
    if kind == "open transaction":
        conf = {"bootstrap.servers": topic.kafka.bootstrap_servers, "transactional.id": topic.name}
        producer = confluent_kafka.Producer(conf)
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(topic.partitions):
            producer.produce(topic.name, b"in the transaction", partition=number)
        producer.flush(30)
    rounds = [_answers(topic)]
    topic.fence()
    rounds.append(_answers(topic))
    for name in CANDIDATES:
        (opened, before), (fenced, behind) = rounds[0][name], rounds[1][name]
        records = before.pop("records") + behind.pop("records")
        details = {"open": opened, "fenced": fenced, **{key: value + behind[key] for key, value in before.items()}}
        yield Result(versioned(topic, f"{kind}: {name}"), records, "rec", None, 1 if name == PROBE else None, details)
    if producer is not None:
        producer.commit_transaction(30)
        took_ms = _until(lambda: topic.end(_CONSUMER, _READ_COMMITTED) == topic.end())
        yield Result(
            versioned(topic, "commit behind the fence, until the last stable offset is the end"), took_ms, "ms"
        )


def _answers(topic: FencedTopic) -> dict[str, tuple[str, dict[str, int]]]:
    """What all leaders answer to each candidate, and what it left behind."""
    answers = {}
    for name, make in CANDIDATES.items():
        end, size, logged = topic.end(), topic.stored_bytes(), topic.logged_errors()
        codes = {error_name(answer.error_code) for answer in topic.produce(make()).values()}
        left = {"records": topic.end() - end, "bytes": topic.stored_bytes() - size}
        answers[name] = ("/".join(sorted(codes)), {**left, "errors_logged": topic.logged_errors() - logged})
    return answers


def error_name(code: int) -> str:
    """Kafka's name of a produce response's code."""
    return str(kafka_errors.for_code(code).message) if code else "APPENDED"


def versioned(topic: FencedTopic, text: str) -> str:
    """The name of a result."""
    return f"{topic.kafka.version} {text}"


def _retry(topic: FencedTopic) -> Result:
    """An idempotent batch that is in the log, sent again behind the fence, and again once the fence is lifted."""
    made = eventually(lambda: _producer_id(topic))
    again = batch(VALUE, producer_id=made.producer_id, producer_epoch=made.producer_epoch, sequence=0)
    answers = {}
    for when in ("open", "open again", "fenced", "lifted"):
        if when in ("fenced", "lifted"):
            topic.fence(when == "fenced")
        answer = topic.produce(again, acks=-1)[0]
        answers[when] = f"{error_name(answer.error_code)} at {answer.base_offset}"
    copies = topic.end() / topic.partitions - 1
    return Result(versioned(topic, "retry of an appended batch: copies"), copies, "rec", None, 1, answers)


def _producer_id(topic: FencedTopic) -> Any:
    made = topic.brokers.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    return None if made.error_code else made


def _times(topic: FencedTopic, rounds: int) -> Iterator[Result]:
    """From the acknowledged change until all leaders have it, and until a plain batch is appended again."""
    took_ms: dict[str, list[float]] = {"on": [], "off": []}
    for number in range(rounds):
        topic.alter(True)
        took_ms["on"].append(_until(lambda: topic.states() == {FenceState.FENCED}))
        topic.alter(False)
        took_ms["off"].append(_until(lambda: topic.states() == {FenceState.OPEN}))
        time.sleep(number * 0.037 % 0.5)  # brokers before 4.1 learn of changes each 500 ms: rounds spread over that
    for which, times in took_ms.items():
        details = {"rounds": rounds, "median_ms": round(percentile(times, 50), 1)}
        yield Result(
            versioned(topic, f"fence {which}, on all {NODES} leaders, longest"), max(times), "ms", details=details
        )


def _until(condition: Callable[[], bool]) -> float:
    start_s = time.monotonic()
    eventually(condition, interval_s=0.001)
    return (time.monotonic() - start_s) * 1000
