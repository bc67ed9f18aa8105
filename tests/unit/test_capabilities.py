"""What a server supports, and why a broker does not."""

from __future__ import annotations

import pytest

from modeaware.wire.capabilities import TOPIC_IDS, Capabilities, missing


@pytest.mark.parametrize(
    ("offered", "ours", "common"),
    [((0, 2), (0, 1), 1), ((0, 0), (0, 1), 0), ((2, 3), (0, 1), None), ((0, 0), (1, 1), None), (None, (0, 1), None)],
)
def test_common_version_is_the_highest_of_both(
    offered: tuple[int, int] | None, ours: tuple[int, int], common: int | None
) -> None:
    server = Capabilities({} if offered is None else {694: offered})
    assert server.common_version(694, ours) == common


def test_missing_feature_is_explained_with_the_release_that_has_it() -> None:
    assert TOPIC_IDS.missing() == "comparing topic ids (KIP-516) needs Kafka 2.8 or newer; upgrade the brokers"
    assert "KIP-860) needs Kafka 4.1" in missing("AlterPartitionReassignments", 1)
    assert "KIP-455) needs Kafka 2.4" in missing("AlterPartitionReassignments", 0)
    assert "KIP-516) needs Kafka 2.8" in missing("DeleteTopics", 7), "of the newest version that has an entry"
    assert missing("Heartbeat", 4) == "the broker does not support Heartbeat 4; upgrade the brokers"
