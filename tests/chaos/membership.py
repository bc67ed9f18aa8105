"""Find the members of a KIP-848 group whose client missed its assignment.

librdkafka waits for the response to a heartbeat no longer than the group's heartbeat interval. It drops a later
response, and its next heartbeats do not request the assignment again: up to 2.16, only a lost connection or a changed
coordinator makes them do so, where KIP-848 requires it after any error. A response is late, for example, while the
coordinator's records wait for a broker that was killed and is still in the in-sync replicas.

If that response revoked partitions, the coordinator waits for the revocation until the rebalance timeout
(``max.poll.interval.ms``), and their next partitions have no reader meanwhile. If it only added partitions, these have
no reader until the group changes again. Stock consumers behave the same, and no code above librdkafka sees it.

The evidence is a difference between the coordinator's description of a member and the last target assignment that
librdkafka logged as received. What a client does with an assignment it did receive is outside this excuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

RECEIVED = "ConsumerGroupHeartbeat received target assignment"
_PARTITION = re.compile(r"\[(\d+)\][,\"]")
_COLUMNS = ("CLIENT-ID", "CURRENT-ASSIGNMENT")


class MissedAssignment(NamedTuple):
    """A member, the partitions the coordinator has assigned to it, and those its client last received."""

    client_id: str
    assigned: tuple[int, ...]
    received: tuple[int, ...]


def missed_assignments(description: str, received: Mapping[str, frozenset[int] | None]) -> list[MissedAssignment]:
    """Return the members whose client has not received its assignment.

    Args:
        description: output of ``kafka-consumer-groups.sh --describe --members --verbose`` for a group with one topic.
        received: client id -> the last target assignment it received; None if unknown.
    """
    found = []
    for client_id, assigned in assignments(description).items():
        last = received.get(client_id)
        if last is not None and last != assigned:
            found.append(MissedAssignment(client_id, tuple(sorted(assigned)), tuple(sorted(last))))
    return found


def assignments(description: str) -> dict[str, frozenset[int]]:
    """Return client id -> assigned partitions, from the coordinator's description of the group."""
    found: dict[str, frozenset[int]] = {}
    columns: list[str] = []
    for line in description.splitlines():
        words = line.split()
        if all(column in words for column in _COLUMNS):
            columns = words
        elif columns and len(words) == len(columns):
            row = dict(zip(columns, words, strict=True))
            client_id, assignment = (row[column] for column in _COLUMNS)
            # "topic:0,1,2", or "-"
            numbers = assignment.rpartition(":")[2].split(",")
            found[client_id] = frozenset(int(number) for number in numbers if number.isdigit())
    return found


def last_received(lines: Iterable[str]) -> frozenset[int] | None:
    """Return the last target assignment in librdkafka's log (``debug=cgrp``).

    None if the log contains none, or librdkafka cut it short.
    """
    last = None
    for line in lines:
        if RECEIVED in line:
            last = line.partition(RECEIVED)[2]
    if last is None or "..." in last:
        return None
    return frozenset(int(number) for number in _PARTITION.findall(last))
