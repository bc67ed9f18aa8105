"""Whether the next leader of a fenced partition has the fence from its first batch on.

A broker takes over leaderships before configs (``BrokerMetadataPublisher.onMetadataUpdate``). One that receives both in
one step, because it was frozen, is an open leader until it has taken over all leaderships of that step, although the
fence had been proved on the leader before. One that is up to date, or that starts anew, is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

from benchmarks.batches import batch
from benchmarks.fence import NODES, VERSIONS, FencedTopic, error_name, versioned
from benchmarks.harness import Result
from benchmarks.setting import Setting
from modeaware.local import LocalBroker, LocalKafka
from modeaware.wire.brokers import Brokers
from modeaware.wire.fence_probe import FenceState, probe_batch, read_answer
from modeaware.wire.requests import AlterPartitionReassignmentsRequest
from tests.support.background import Background
from tests.support.waiting import eventually

# isort: split
from kafka.protocol.admin.cluster import DescribeQuorumRequest
from kafka.protocol.admin.topics import ElectLeadersRequest

PATIENT = {
    # A frozen broker stays a member of the cluster and in sync.
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "60000",
}
WRITERS = 2
ENOUGH = 50
REFUSED = "MESSAGE_SIZE_TOO_LARGE"
BATCH = batch(b"late")
_PREFERRED = 0


def measure(setting: Setting) -> Iterator[Result]:
    rounds = 1 if setting.quick else 5
    for version in VERSIONS[-1:] if setting.quick else VERSIONS:
        for configs, change, name in (({}, _kill, "killed leader"), (PATIENT, _freeze, "frozen follower")):
            with (
                LocalKafka(NODES, version=version, configs=configs) as kafka,
                closing(Brokers({"bootstrap.servers": kafka.bootstrap_servers})) as brokers,
            ):
                answers: Counter[str] = Counter()
                topics = [FencedTopic(kafka, brokers, {}, partitions=1) for _ in range(rounds)]
                for topic in topics:
                    answers += change(topic)
                details = {"rounds": rounds, **answers}
                name = versioned(topic, f"{name}: appended by the next leader behind a proved fence")
                yield Result(name, answers.pop("APPENDED", 0), "rec", details=details)


class Writer(Background):
    """Sends batches to one broker, whatever it answers."""

    def __init__(self, topic: FencedTopic, broker: LocalBroker) -> None:
        super().__init__()
        self._topic, self._broker = topic, broker
        self.answers: Counter[str] = Counter()

    def work(self) -> None:
        with closing(Brokers({"bootstrap.servers": self._broker.address}, timeout_s=30)) as brokers:
            while not self.done.is_set():
                answer = self._topic.produce_at(self._broker.node_id, 0, BATCH, brokers=brokers)
                self.answers[error_name(answer.error_code)] += 1


def _kill(topic: FencedTopic) -> Counter[str]:
    """SIGKILL the leader once the fence is proved; the next one gets batches all the time."""
    topic.fence()
    leader = topic.kafka.brokers[topic.leaders()[0] - 1]
    answers = _answers(topic, [broker for broker in topic.kafka.brokers if broker is not leader], leader.kill)
    leader.start()
    return answers


def _freeze(topic: FencedTopic) -> Counter[str]:
    """Freeze a follower; prove the fence on the leader; elect the follower; let it go on."""
    controller = _active_controller(topic.brokers)
    follower = next(broker for broker in topic.kafka.brokers if broker.node_id != controller)
    _prefer(topic, controller, follower.node_id)
    _elect(topic, controller)
    eventually(lambda: topic.leaders(controller)[0] == controller and _state(topic, controller) is FenceState.OPEN)
    _prefer(topic, follower.node_id, controller)
    follower.pause()
    try:
        topic.alter(True)
        eventually(lambda: _state(topic, controller) is FenceState.FENCED)
        _elect(topic, controller)
    except BaseException:
        follower.resume()
        raise
    return _answers(topic, [follower], follower.resume)


def _answers(topic: FencedTopic, brokers: Sequence[LocalBroker], change: Callable[[], None]) -> Counter[str]:
    """What brokers answer to writers from before ``change`` until the new leader has refused a number of batches."""
    with ExitStack() as running:
        writers = [running.enter_context(Writer(topic, broker)) for broker in brokers for _ in range(WRITERS)]
        change()
        eventually(lambda: sum(writer.fine() and writer.answers[REFUSED] for writer in writers) > ENOUGH)
    return sum((writer.answers for writer in writers), Counter())


def _prefer(topic: FencedTopic, first: int, second: int) -> None:
    """Make two brokers the replicas, the first of them preferred as leader."""
    named = AlterPartitionReassignmentsRequest.ReassignableTopic
    wanted = named.ReassignablePartition(partition_index=0, replicas=[first, second])
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[named(name=topic.name, partitions=[wanted])]
    )
    topic.brokers.ask(request)
    nodes = [broker.node_id for broker in topic.kafka.brokers]
    eventually(lambda: all(topic.metadata(node)[0].replica_nodes == [first, second] for node in nodes))


def _elect(topic: FencedTopic, node: int) -> None:
    """Elect the preferred leader, through ``node``: librdkafka's call waits for brokers that are frozen."""
    partitions = [ElectLeadersRequest.TopicPartitions(topic=topic.name, partitions=[0])]
    request = ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=partitions, timeout_ms=1_000)
    topic.brokers.ask(request, node)


def _state(topic: FencedTopic, leader: int) -> FenceState:
    return read_answer(topic.produce_at(leader, 0, probe_batch()).error_code, topic.name, 0)


def _active_controller(brokers: Brokers) -> int:
    """Its node id; the one in Metadata is that of any broker."""
    topic = DescribeQuorumRequest.TopicData
    partitions = [topic.PartitionData(partition_index=0)]
    request = DescribeQuorumRequest(topics=[topic(topic_name="__cluster_metadata", partitions=partitions)])
    return int(brokers.ask(request).topics[0].partitions[0].leader_id)
