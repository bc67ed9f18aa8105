"""What AdminClient's reassignment methods take, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from modeaware.confluent.admin import AdminClient


@pytest.fixture
def admin() -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}) as made:
        yield made


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"reassignments": {"t": [1]}}, TypeError, "expected a TopicPartition or"),
        ({"reassignments": {("t", 0): 1}}, TypeError, "a sequence of broker ids, not 1"),
        ({"reassignments": {("t", 0): ["1"]}}, TypeError, "broker ids are ints"),
        ({"reassignments": {("t", 0): [1], TopicPartition("t", 0): [2]}}, ValueError, "t-0 is named twice"),
        ({"reassignments": {("t", 0): None}, "expected_replicas": {("t", 0): [1]}}, ValueError, "'t', 0"),
    ],
)
def test_what_cannot_be_meant(
    admin: AdminClient, arguments: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        admin.alter_partition_reassignments(**arguments)
