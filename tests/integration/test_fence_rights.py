"""What a controller's user must be allowed to do before it replaces a topic, by a real broker with ACLs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from modeaware.cluster.cluster import Cluster
from modeaware.cluster.fence import fences
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import CreateTopic, Effect, FenceTopic
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from tests.support.guarded import OTHER, Guarded
from tests.support.waiting import eventually

ON_TOPIC = (AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.DELETE)


def effects(topic: str) -> list[Effect]:
    return [CreateTopic(topic, "", f"{topic}-v2", 2, -1), FenceTopic(topic, "", FENCE_CONFIGS)]


def codes(guarded: Guarded, topic: str) -> list[ErrorCode | None]:
    cluster = Cluster(guarded.client(OTHER, "SCRAM-SHA-256"))
    try:
        return [None if error is None else error.code for error in cluster.validate(effects(topic))]
    finally:
        cluster.close()


@pytest.mark.parametrize("missing", [*ON_TOPIC[::2], AclOperation.DELETE, AclOperation.CREATE])
def test_each_missing_right_is_refused_beforehand_and_changes_nothing(guarded: Guarded, missing: AclOperation) -> None:
    """ALTER_CONFIGS includes DESCRIBE_CONFIGS, and DELETE includes DESCRIBE."""
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


def test_acl_that_denies_writes_to_all_keeps_the_controller_from_proving_the_fence(guarded: Guarded) -> None:
    """Why there is no such fence: a controller that is no super user is bound by it, whatever it is allowed."""
    topic = guarded.topic(1)
    guarded.grant(OTHER, topic, *ON_TOPIC)
    denied = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.WRITE)
    for future in guarded.admin.create_acls([AclBinding(*denied, AclPermissionType.DENY)]).values():
        future.result(30)
    cluster = Cluster(guarded.client(OTHER, "SCRAM-SHA-256"))

    def refused() -> ErrorCode | None:
        failure = fences(cluster.brokers, [topic])[topic].failure
        return None if failure is None else failure.code

    try:
        eventually(lambda: refused() is ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    finally:
        cluster.close()
        for gone in guarded.admin.delete_acls([AclBindingFilter(*denied, AclPermissionType.DENY)]).values():
            gone.result(30)
