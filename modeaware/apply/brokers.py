"""Configs of topics at the brokers: which are the topics' own, and altering them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modeaware.apply.desired import AlterConfigs
from modeaware.cluster.answers import refusal
from modeaware.librdkafka import KafkaError
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest

_TOPIC, _SET, _DELETE = 2, 0, 1
_OWN = 1
"""The source of a config that was set for this topic."""
_PER_REQUEST = 200


def overrides(brokers: Brokers, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
    """The configs that each topic has of its own; None where the user may not know, missing where it is not there.

    Raises:
        ClusterError: no broker answered, or one refused.
    """
    found: dict[str, dict[str, str] | None] = {}
    resource = DescribeConfigsRequest.DescribeConfigsResource
    for start in range(0, len(topics), _PER_REQUEST):
        some = topics[start : start + _PER_REQUEST]
        wanted = [resource(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in some]
        for told in brokers.ask(DescribeConfigsRequest(resources=wanted, min_version=1)).results:
            name = told.resource_name
            if told.error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[name] = None
            elif told.error_code and told.error_code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                what = f"describe the configs of topic {name!r}"
                raise refusal(what, told.error_code, told.error_message, topic=name)
            elif not told.error_code:
                found[name] = {c.name: c.value or "" for c in told.configs if c.config_source == _OWN}
    return found


def alter_configs(brokers: Brokers, topic: str, step: AlterConfigs, *, validate_only: bool) -> None:
    """Set and remove configs of a topic, all of them or none; or only have the brokers check it.

    Raises:
        ClusterError: refused, or no broker answered; to ask again is harmless.
    """
    changes = {**step.set, **dict.fromkeys(step.remove)}
    answer = brokers.ask(_request(topic, changes, validate_only))
    for each in answer.responses:
        if each.error_code:
            raise refusal(f"alter configs of topic {topic!r}", each.error_code, each.error_message, topic=topic)


def _request(topic: str, changes: Mapping[str, str | None], validate_only: bool) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in changes.items()
    ]
    wanted = resource(resource_type=_TOPIC, resource_name=topic, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
