"""The directories of replicas on their brokers, and moving a replica to another one of the same broker (KIP-113)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from modeaware.cluster.answers import refusal
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.librdkafka import KafkaError
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest

Replica = tuple[str, int, int]
"""Topic, partition and broker."""
_TRY_AGAIN_S = 0.1


class Placed(NamedTuple):
    """One log of a replica: in which directory, its bytes, and whether it will take the place of the other one."""

    replica: Replica
    folder: str
    size: int
    is_future: bool


@dataclass(frozen=True)
class LogDirs:
    """Where a replica is, and where it is being moved to; None: nowhere (that its broker can read)."""

    current: str | None = None
    future: str | None = None


def placed(brokers: Brokers, replicas: Iterable[Replica]) -> Iterator[Placed]:
    """The logs of these replicas; those of a broker that is down or does not answer are missing.

    Raises:
        ClusterError: no broker answered.
    """
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    wanted = _by_broker(replicas)
    nodes = sorted(wanted.keys() & set(brokers.node_ids()))
    asks = [
        Ask(node, DescribeLogDirsRequest(topics=[topic(topic=t, partitions=p) for t, p in wanted[node].items()]))
        for node in nodes
    ]
    for node, answer in zip(nodes, brokers.ask_each(asks), strict=True):
        if isinstance(answer, ClusterError):
            continue
        for folder in answer.results:
            for each in folder.topics:
                for p in each.partitions:
                    replica = (each.name, p.partition_index, node)
                    yield Placed(replica, folder.log_dir, int(p.partition_size), bool(p.is_future_key))


def find_log_dirs(brokers: Brokers, replicas: Iterable[Replica]) -> dict[Replica, LogDirs]:
    """Where these replicas are; all of them are in the answer.

    Raises:
        ClusterError: no broker answered.
    """
    found = dict.fromkeys(replicas, LogDirs())
    for each in placed(brokers, list(found)):
        known = found[each.replica]
        future, current = (each.folder, known.current) if each.is_future else (known.future, each.folder)
        found[each.replica] = LogDirs(current, future)
    return found


def start_moves(
    brokers: Brokers, wanted: Mapping[Replica, str], timeout_s: float, started: Callable[[Replica], None]
) -> None:
    """Have replicas moved to directories of their own brokers. One that its broker does not have yet is tried again.

    Args:
        timeout_s: how long to try.
        started: called for each that has begun.

    Raises:
        RequestRefused: a broker refused (no such directory, say), or the time was over before all had begun.
        ClusterError: a broker did not answer.
    """
    left = dict(wanted)
    deadline_s = time.monotonic() + timeout_s
    while left:
        for replica in _alter(brokers, left):
            del left[replica]
            started(replica)
        if left and time.monotonic() >= deadline_s:
            told = ",".join(replica_name(replica) for replica in sorted(left))
            many = "" if len(left) == 1 else "s"
            raise RequestRefused(
                f"Timed out before log directory move{many} could be started for: {told}",
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        if left:
            time.sleep(_TRY_AGAIN_S)  # until the broker has made the replica there is nothing to wait for but time


def replica_name(replica: Replica) -> str:
    """``topic-partition-broker``."""
    return "-".join(map(str, replica))


def _alter(brokers: Brokers, wanted: Mapping[Replica, str]) -> list[Replica]:
    """Those that have begun, sorted."""
    by_node: dict[int, dict[str, list[Replica]]] = {}
    for replica, folder in sorted(wanted.items()):
        by_node.setdefault(replica[2], {}).setdefault(folder, []).append(replica)
    answers = brokers.ask_each([Ask(node, _request(folders)) for node, folders in by_node.items()])
    begun = []
    for node, answer in zip(by_node, answers, strict=True):
        if isinstance(answer, ClusterError):
            raise ClusterError(f"cannot move replicas of broker {node}: {answer}", code=answer.code)
        for each in answer.results:
            for p in each.partitions:
                replica = (each.topic_name, p.partition_index, node)
                if not p.error_code:
                    begun.append(replica)
                elif p.error_code != KafkaError.REPLICA_NOT_AVAILABLE:
                    raise _refused(replica, p.error_code)
    return sorted(begun)


def _request(folders: Mapping[str, Iterable[Replica]]) -> AlterReplicaLogDirsRequest:
    path = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    dirs = []
    for folder, replicas in folders.items():
        topics: dict[str, list[int]] = {}
        for topic, partition, _ in replicas:
            topics.setdefault(topic, []).append(partition)
        entries = [path.AlterReplicaLogDirTopic(name=topic, partitions=some) for topic, some in topics.items()]
        dirs.append(path(path=folder, topics=entries))
    return AlterReplicaLogDirsRequest(dirs=dirs)


def _by_broker(replicas: Iterable[Replica]) -> dict[int, dict[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = {}
    for topic, partition, broker in sorted(replicas):
        found.setdefault(broker, {}).setdefault(topic, []).append(partition)
    return found


def _refused(replica: Replica, number: int) -> RequestRefused:
    topic, partition, _ = replica
    error = refusal(f"alter the directory of {replica_name(replica)}", number, topic=topic, partition=partition)
    return RequestRefused(error.message, code=error.code, topic=topic, partition=partition)
