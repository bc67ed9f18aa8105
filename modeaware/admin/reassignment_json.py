"""The JSON files of ``kafka-reassign-partitions.sh``, version 1: partitions and where they go, and topics to move."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from modeaware.admin.reassignments import PartitionKey, Replicas
from modeaware.errors import ErrorCode, RequestRefused

ANY_LOG_DIR = "any"
_VERSION = 1
_T = TypeVar("_T", bound=Hashable)


@dataclass(frozen=True)
class Plan:
    """A file of reassignments.

    Attributes:
        partitions: where each shall be; in the order of the file.
        log_dirs: (topic, partition, broker) -> the directory its replica shall be in; where it says "any", none.
    """

    partitions: Mapping[PartitionKey, Replicas]
    log_dirs: Mapping[tuple[str, int, int], str] = field(default_factory=dict)


def parse_plan(text: str) -> Plan:
    """Read ``{"version":1,"partitions":[{"topic":..,"partition":..,"replicas":[..],"log_dirs":[..]}]}``.

    Raises:
        RequestRefused: no such JSON; no partition or no replica; one named twice. It says which, in the words of
            Kafka's tool.
    """
    entries = _entries(text, "partitions")
    plan: list[tuple[PartitionKey, Replicas]] = []
    log_dirs: dict[tuple[str, int, int], str] = {}
    for entry in entries:
        topic, partition = _text(entry, "topic"), _whole(entry, "partition")
        replicas = tuple(_int(broker, entry) for broker in _array(entry, "replicas"))
        wanted = _array(entry, "log_dirs") if "log_dirs" in entry else [ANY_LOG_DIR] * len(replicas)
        if len(wanted) != len(replicas):
            raise _bad(
                f"Size of replicas list {list(replicas)} is different from size of log dirs list {wanted} for "
                f"partition {topic}-{partition}"
            )
        plan.append(((topic, partition), replicas))
        log_dirs.update(
            {(topic, partition, b): str(d) for b, d in zip(replicas, wanted, strict=True) if d != ANY_LOG_DIR}
        )
    _check(plan)
    return Plan(dict(plan), log_dirs)


def _check(plan: Sequence[tuple[PartitionKey, Replicas]]) -> None:
    if not plan:
        raise _bad("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in plan):
        raise _bad("Partition replica list cannot be empty")
    if twice := _twice(key for key, _ in plan):
        told = ",".join(f"{topic}-{partition}" for topic, partition in twice)
        raise _bad(f"Partition reassignment contains duplicate topic partitions: {told}")
    repeated = [(key, _twice(replicas)) for key, replicas in plan]
    if told := ". ".join(f"{t}-{p} contains multiple entries for {_ids(ids)}" for (t, p), ids in repeated if ids):
        raise _bad(f"Partition replica lists may not contain duplicate entries: {told}")


def parse_topics(text: str) -> list[str]:
    """Read ``{"version":1,"topics":[{"topic":..}]}``.

    Raises:
        RequestRefused: no such JSON, no topic, or one twice.
    """
    topics = [_text(entry, "topic") for entry in _entries(text, "topics")]
    if not topics:
        raise _bad("List of topics to reassign cannot be empty")
    if twice := _twice(topics):
        raise _bad(f"List of topics to reassign contains duplicate entries: {', '.join(twice)}")
    return topics


def parse_brokers(text: str) -> list[int]:
    """Read ``0,1,2``.

    Raises:
        RequestRefused: no such list, or one twice.
    """
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise _bad(f"Broker list {text!r} is no list of broker ids such as 0,1,2") from None
    if twice := _twice(brokers):
        raise _bad(f"Broker list contains duplicate entries: {_ids(twice)}")
    return brokers


def format_plan(
    partitions: Mapping[PartitionKey, Replicas], log_dirs: Mapping[tuple[str, int, int], str] | None = None
) -> str:
    """The same as one line, sorted: what Kafka's tool prints, to the letter. A directory that is not given is "any"."""
    known = log_dirs or {}
    entries = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(ids),
            "log_dirs": [known.get((topic, partition, broker), ANY_LOG_DIR) for broker in ids],
        }
        for (topic, partition), ids in sorted(partitions.items())
    ]
    return json.dumps({"version": _VERSION, "partitions": entries}, separators=(",", ":"))


def _entries(text: str, name: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad(f"The input string is not a valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise _bad("The input string is not a valid JSON object")
    if (version := document.get("version", _VERSION)) != _VERSION:
        raise _bad(f"Not supported version field value {version}")
    entries = _array(document, name) if name in document else []
    if not all(isinstance(entry, dict) for entry in entries):
        raise _bad(f"Expected JSON objects in {name!r}")
    return entries


def _array(entry: Mapping[str, Any], name: str) -> list[Any]:
    value = _value(entry, name)
    if not isinstance(value, list):
        raise _bad(f"Expected an array in {name!r}, received {json.dumps(value)}")
    return value


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = _value(entry, name)
    if not isinstance(value, str):
        raise _bad(f"Expected a string in {name!r}, received {json.dumps(value)}")
    return value


def _whole(entry: Mapping[str, Any], name: str) -> int:
    return _int(_value(entry, name), entry)


def _int(value: Any, entry: Mapping[str, Any]) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(f"Expected a whole number, received {json.dumps(value)} in {json.dumps(entry)}")
    return value


def _value(entry: Mapping[str, Any], name: str) -> Any:
    if name not in entry:
        raise _bad(f"No such field exists: {name!r} in {json.dumps(entry)}")
    return entry[name]


def _twice(values: Iterable[_T]) -> list[_T]:
    return [value for value, count in Counter(values).items() if count > 1]


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _bad(message: str) -> RequestRefused:
    return RequestRefused(message, code=ErrorCode.INVALID_REQUEST)
