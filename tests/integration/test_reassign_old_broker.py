"""A broker without version 1 of AlterPartitionReassignments: KIP-860's explicit error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modeaware.admin.reassignments import OPTION_NOT_SUPPORTED
from modeaware.confluent.admin import AdminClient
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.local import LocalKafka
from tests.support.reassigning import Moving

TIMEOUT_S = 30.0


@pytest.fixture
def moving(kafka40: LocalKafka) -> Iterator[Moving]:
    made = Moving(kafka40)
    yield made
    made.close()


def test_the_option_is_named_and_cancellations_take_no_notice_of_it(kafka40: LocalKafka, moving: Moving) -> None:
    (node,) = moving.nodes
    topic = moving.topic([node], [node])
    with AdminClient({"bootstrap.servers": kafka40.bootstrap_servers}) as admin:
        futures = admin.alter_partition_reassignments(
            {(topic, 0): [node], (topic, 1): None}, allow_replication_factor_change=False
        )
        error = futures[topic, 0].exception(TIMEOUT_S)
        assert isinstance(error, RequestRefused)
        assert error.code is ErrorCode.UNSUPPORTED_VERSION
        assert str(error) == OPTION_NOT_SUPPORTED
        cancelled = futures[topic, 1].exception(TIMEOUT_S)
        assert isinstance(cancelled, RequestRefused)
        assert cancelled.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

        admin.alter_partition_reassignments({(topic, 0): [node]})[topic, 0].result(TIMEOUT_S)
        assert admin.list_partition_reassignments().result(TIMEOUT_S) == {}
