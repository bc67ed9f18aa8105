"""Who may have a topic replaced: the broker says, of the requester's own connection. A real broker with ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from modeaware import AdminClient, TopicReplacement, cli
from modeaware.admin.acls import TopicAcls, compare_acls, read_acls
from modeaware.cluster.cluster import Cluster
from modeaware.controller.daemon import Controller
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import DeleteOldTopic, DeleteTopic
from modeaware.wire.brokers import Brokers
from modeaware.wire.messages import TopicResult
from tests.support.guarded import NOBODY, OTHER, Guarded, address_of
from tests.support.secured import ADMIN
from tests.support.waiting import eventually

ON_TOPIC = (AclOperation.ALTER, AclOperation.DELETE, AclOperation.ALTER_CONFIGS)
CREATE = AclOperation.CREATE
CLUSTER = (ResourceType.BROKER, "kafka-cluster")


@pytest.fixture
def topic(guarded: Guarded, active: Controller) -> str:
    return guarded.topic()


@pytest.fixture(params=["log", "wire"])
def conf(request: pytest.FixtureRequest, guarded: Guarded, active: Controller) -> dict[str, Any]:
    """Of a user whose modes come from the log, or who bootstraps at the endpoint alone."""
    servers = address_of(active) if request.param == "wire" else None
    return {**guarded.client(OTHER, "SCRAM-SHA-256", servers), "modeaware.mode.source": request.param}


@pytest.fixture
def creating_anywhere(guarded: Guarded, active: Controller) -> Iterator[None]:
    guarded.grant(OTHER, CLUSTER[1], CREATE, kind=CLUSTER[0])
    yield
    guarded.take(OTHER, CLUSTER[1], CREATE, kind=CLUSTER[0])


def replaced(conf: dict[str, Any], topic: str, **options: Any) -> TopicResult:
    wanted = TopicReplacement(f"{topic}-v2", 2)
    with AdminClient(conf) as admin:
        return admin.replace_topics({topic: wanted}, pause_before_switch=True, **options)[topic].result()


def refusal(conf: dict[str, Any], topic: str, **options: Any) -> str:
    with pytest.raises(RequestRefused) as refused:
        replaced(conf, topic, **options)
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return refused.value.message


@pytest.mark.parametrize("missing", ON_TOPIC)
def test_each_right_on_the_topic_is_needed(
    guarded: Guarded, topic: str, conf: dict[str, Any], missing: AclOperation
) -> None:
    guarded.grant(OTHER, topic, *(each for each in ON_TOPIC if each is not missing), AclOperation.DESCRIBE_CONFIGS)
    guarded.grant(OTHER, f"{topic}-v2", CREATE)
    assert "ALTER and ALTER_CONFIGS and DELETE on the topic" in refusal(conf, topic)
    assert guarded.record(topic) is None


def test_new_topic_has_to_be_one_that_the_user_may_create(guarded: Guarded, topic: str, conf: dict[str, Any]) -> None:
    guarded.grant(OTHER, topic, *ON_TOPIC)
    assert f"CREATE on the topic {topic}-v2 or on the cluster" in refusal(conf, topic)
    assert guarded.record(topic) is None
    guarded.grant(OTHER, f"{topic}-v2", CREATE)
    replaced(conf, topic, validate_only=True)
    assert guarded.record(topic) is None
    replaced(conf, topic)
    record = guarded.record(topic)
    assert record is not None
    assert record.replacement is not None
    assert record.replacement.new_topic == f"{topic}-v2"
    guarded.take(OTHER, topic, AclOperation.DELETE)
    assert "nothing was changed" in refusal(conf, topic, undo=True)


def test_whether_brokers_delete_topics_is_known_without_any_right(guarded: Guarded, topic: str) -> None:
    """So a dry run refuses nothing that the controller, with rights of its own, will delete."""
    with closing(Cluster(guarded.client(NOBODY))) as cluster:
        assert cluster.validate([DeleteOldTopic(topic, "", {}), DeleteTopic(topic, "", f"{topic}-v2", "")]) == [
            None,
            None,
        ]


def test_right_to_create_on_the_cluster_is_enough(
    guarded: Guarded, topic: str, conf: dict[str, Any], creating_anywhere: None
) -> None:
    guarded.grant(OTHER, topic, *ON_TOPIC)
    replaced(conf, topic)
    assert guarded.record(topic) is not None


def test_acls_of_the_old_name_are_shown_to_those_who_may_see_them(guarded: Guarded, topic: str) -> None:
    guarded.grant(OTHER, topic, AclOperation.READ)
    for user, told in ((ADMIN, f"--allow-principal User:{OTHER} --operation Read --topic {topic}-v2"), (NOBODY, None)):
        with closing(Brokers(guarded.client(user))) as brokers:
            acls = compare_acls(read_acls(brokers), topic, f"{topic}-v2", "broker:9093")
        assert acls is not None
        assert any(command.endswith(told) for command in acls.commands) if told else acls.unknown is not None


@pytest.mark.parametrize("source", ["log", "wire"])
def test_switch_is_refused_until_the_new_topic_has_the_acls_of_the_topic(
    guarded: Guarded, topic: str, active: Controller, source: str
) -> None:
    guarded.grant(OTHER, topic, AclOperation.READ)
    servers, wanted = address_of(active) if source == "wire" else None, TopicReplacement(f"{topic}-v2", 2)
    conf = {**guarded.client(ADMIN, servers=servers), "modeaware.mode.source": source}
    with AdminClient(conf) as admin:

        def replaced(wanted: TopicReplacement = wanted, **options: Any) -> TopicResult:
            return admin.replace_topics({topic: wanted}, **options)[topic].result()

        with pytest.raises(RequestRefused, match=r"1 ACLs of .* do not cover") as refused:
            replaced()
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert guarded.record(topic) is None
        replaced(replace(wanted, accept_access_loss=True), validate_only=True)
        replaced(pause_before_switch=True)
        guarded.grant(OTHER, f"{topic}-v2", AclOperation.READ)
        replaced(validate_only=True)


def test_acl_that_denies_access_to_the_new_topic_alone_refuses_and_wider_ones_cover(
    guarded: Guarded, topic: str, active: Controller
) -> None:
    """The broker's own ACLs: by a prefix, and a right that another one implies."""
    guarded.grant(OTHER, topic, AclOperation.DESCRIBE)
    guarded.grant(OTHER, f"{topic}-v2", AclOperation.READ)
    with AdminClient(guarded.client(ADMIN)) as admin, closing(Brokers(guarded.client(ADMIN))) as brokers:

        def compared() -> TopicAcls | None:
            return compare_acls(read_acls(brokers), topic, f"{topic}-v2", "broker:9093")

        shown = f"name '{topic}-v2' allows User:{OTHER} Read"
        eventually(lambda: compared() == TopicAcls(allowed=(shown,)))
        binding = AclBinding(
            ResourceType.TOPIC,
            f"{topic}-",
            ResourcePatternType.PREFIXED,
            f"User:{OTHER}",
            "*",
            AclOperation.WRITE,
            AclPermissionType.DENY,
        )
        admin.create_acls([binding])[binding].result(10)
        denied = f"prefix '{topic}-' denies User:{OTHER} Write"
        eventually(lambda: compared() == TopicAcls(denied=(denied,), allowed=(shown,)))
        wanted = {topic: TopicReplacement(f"{topic}-v2", 2)}
        with pytest.raises(RequestRefused, match="and 1 ACLs deny access"):
            admin.replace_topics(wanted, validate_only=True)[topic].result()
        (removed,) = admin.delete_acls([AclBindingFilter(*binding_fields(binding))]).values()
        assert removed.result(10)
        eventually(lambda: compared() == TopicAcls(allowed=(shown,)))
        admin.replace_topics(wanted, validate_only=True)[topic].result()


def binding_fields(acl: AclBinding) -> tuple[Any, ...]:
    kind = (acl.restype, acl.name, acl.resource_pattern_type)
    return (*kind, acl.principal, acl.host, acl.operation, acl.permission_type)


def test_command_shows_the_acls_that_hold_the_switch_back(
    guarded: Guarded, topic: str, active: Controller, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded.grant(OTHER, topic, AclOperation.READ)
    where = ("--bootstrap-server", guarded.servers, "--command-config", guarded.properties(ADMIN))
    call = ("replace", topic, "--with", f"{topic}-v2", "--partitions", "2", *where)
    assert cli.main([*call, "--dry-run"]) == 1
    told = capsys.readouterr().err
    assert f"--allow-principal User:{OTHER} --operation Read --topic {topic}-v2" in told
    assert f"1 ACLs of {topic!r} do not cover" in told
    assert cli.main([*call, "--accept-access-loss", "--dry-run"]) == 0
    assert cli.main([*call, "--pause-before-switch", "--yes"]) == 0
    assert cli.main([*call, "--yes"]) == 1
    assert f"1 ACLs of {topic!r} do not cover" in capsys.readouterr().err
    guarded.grant(OTHER, f"{topic}-v2", AclOperation.READ)
    assert cli.main([*call, "--dry-run"]) == 0


def test_configs_that_the_user_may_not_read_are_not_left_out(
    guarded: Guarded, topic: str, conf: dict[str, Any]
) -> None:
    assert "configs of topic" in refusal(conf, topic)
