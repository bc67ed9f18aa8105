"""What a controller's user must be allowed to do before it replaces a topic, by a real broker with ACLs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclOperation

from modeaware.cluster.cluster import Cluster
from modeaware.cluster.fence import fences
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import CreateTopic, Effect, FenceTopic
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from tests.support.guarded import OTHER, Guarded

ON_TOPIC = (AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)


def effects(topic: str) -> list[Effect]:
    return [CreateTopic(topic, "", f"{topic}-v2", 2, -1), FenceTopic(topic, "", FENCE_CONFIGS)]


def codes(guarded: Guarded, topic: str) -> list[ErrorCode | None]:
    cluster = Cluster(guarded.client(OTHER, "SCRAM-SHA-256"))
    try:
        return [None if error is None else error.code for error in cluster.validate(effects(topic))]
    finally:
        cluster.close()


@pytest.mark.parametrize("missing", [AclOperation.WRITE, AclOperation.ALTER_CONFIGS, AclOperation.CREATE])
def test_each_missing_right_is_refused_beforehand_and_changes_nothing(guarded: Guarded, missing: AclOperation) -> None:
    """ALTER_CONFIGS includes DESCRIBE_CONFIGS."""
    topic, denied = guarded.topic(2), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    guarded.grant(OTHER, topic, *(each for each in ON_TOPIC if each is not missing), AclOperation.DESCRIBE)
    if missing is AclOperation.CREATE:
        assert codes(guarded, topic) == [denied, None]
    else:
        guarded.grant(OTHER, f"{topic}-v2", AclOperation.CREATE)
        assert codes(guarded, topic) == [None, denied]
    assert f"{topic}-v2" not in guarded.admin.list_topics(timeout=20).topics
    cluster = Cluster(guarded.conf)
    try:
        found = fences(cluster.brokers, [topic])[topic]
    finally:
        cluster.close()
    assert (found.configs, found.proved, found.answered) == ({}, {}, {0, 1}), "open, and unchanged"


def test_one_topic_whose_probe_is_denied_hides_no_other(guarded: Guarded) -> None:
    allowed, other = guarded.topic(1), guarded.topic(1)
    guarded.grant(OTHER, allowed, *ON_TOPIC)
    guarded.grant(OTHER, other, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    cluster = Cluster(guarded.client(OTHER, "SCRAM-SHA-256"))
    try:
        found = fences(cluster.brokers, [allowed, other])
    finally:
        cluster.close()
    assert (found[allowed].failure, found[allowed].answered) == (None, {0})
    failure = found[other].failure
    assert failure is not None
    assert failure.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "grant WRITE" in str(failure)
