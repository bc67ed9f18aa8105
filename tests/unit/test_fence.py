"""When a fence counts as proved: every in-sync replica's broker shows it, and then the leader refuses the probe."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from modeaware.cluster.fence import check_fences, fences
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.facts import FenceFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.wire.brokers import Ask, Brokers
from modeaware.wire.fence_probe import probe_batch

TOPIC = "orders"
TOO_LARGE, CORRUPT, NOT_LEADER, DENIED = 10, 2, 6, 29


class FencedBrokers:
    """Two brokers with two partitions, led under epochs 4 and 6. ``silent`` brokers do not answer."""

    def __init__(self) -> None:
        self.configs: dict[int, dict[str, str]] = {1: dict(FENCE_CONFIGS), 2: dict(FENCE_CONFIGS)}
        self.led = {0: (1, 4), 1: (2, 6)}
        self.isr = {0: [1, 2], 1: [2]}
        self.answers = {0: TOO_LARGE, 1: TOO_LARGE}
        self.silent: set[int] = set()
        self.hidden = False
        self.served = {0, 18, 55}
        self.operations: set[int] | None = None
        self.probed: list[tuple[int, bytes]] = []

    def node_ids(self) -> list[int]:
        return [1, 2]

    def ask(self, request: Any) -> Any:
        if type(request).__name__ == "ApiVersionsRequest":
            return SimpleNamespace(api_keys=[SimpleNamespace(api_key=each) for each in self.served])
        partitions = [
            SimpleNamespace(partition_index=p, leader_id=node, leader_epoch=epoch, isr_nodes=self.isr[p])
            for p, (node, epoch) in self.led.items()
        ]
        topic = SimpleNamespace(name=TOPIC, partitions=partitions, authorized_operations=self.operations)
        return SimpleNamespace(topics=[topic])

    def ask_each(self, asks: Sequence[Ask]) -> list[Any]:
        return [self._answer(ask.node_id, ask.request) for ask in asks]

    def _answer(self, node: int, request: Any) -> Any:
        if node in self.silent:
            return ClusterError("no answer")
        if type(request).__name__ == "DescribeConfigsRequest":
            if self.hidden:
                refused = SimpleNamespace(resource_name=TOPIC, error_code=29, error_message=None)
                return SimpleNamespace(results=[refused])
            own = [SimpleNamespace(name=n, value=v, config_source=1) for n, v in self.configs[node].items()]
            default = SimpleNamespace(name="compression.type", value="gzip", config_source=5)
            configs = own if "compression.type" in self.configs[node] else [*own, default]
            return SimpleNamespace(results=[SimpleNamespace(resource_name=TOPIC, error_code=0, configs=configs)])
        (topic,) = request.topic_data
        self.probed += [(each.index, bytes(each.records)) for each in topic.partition_data]
        responses = [SimpleNamespace(index=e.index, error_code=self.answers[e.index]) for e in topic.partition_data]
        return SimpleNamespace(responses=[SimpleNamespace(name=TOPIC, partition_responses=responses)])

    def look(self) -> FenceFacts:
        return fences(cast(Brokers, self), [TOPIC])[TOPIC]


def test_it_is_proved_for_the_epochs_of_the_leaders_that_refuse() -> None:
    brokers = FencedBrokers()
    assert brokers.look() == FenceFacts(FENCE_CONFIGS, {0: 4, 1: 6}, frozenset({0, 1}))
    assert brokers.probed == [(0, probe_batch()), (1, probe_batch())]
    brokers.answers[1] = CORRUPT
    found = brokers.look()
    assert (found.proved, found.answered) == ({0: 4}, {0, 1}), "an open one has answered, too"
    brokers.answers[1] = NOT_LEADER
    assert brokers.look().answered == {0}


@pytest.mark.parametrize("shown", [{}, {"compression.type": "gzip"}, {**FENCE_CONFIGS, "max.message.bytes": "79"}])
def test_a_replica_that_does_not_show_it_may_be_elected_without_it(shown: dict[str, str]) -> None:
    """Measured: a follower that slept while the fence went on takes records when it leads."""
    brokers = FencedBrokers()
    brokers.configs[1] = shown
    found = brokers.look()
    assert (found.proved, found.answered) == ({1: 6}, {0, 1})


def test_a_broker_that_does_not_answer_shows_nothing() -> None:
    brokers = FencedBrokers()
    brokers.silent = {2}
    assert brokers.look() == FenceFacts(FENCE_CONFIGS, {}, frozenset({0}))
    brokers.isr = {0: [1], 1: [2]}
    assert brokers.look().proved == {0: 4}


def test_a_probe_that_is_denied_is_a_failure_of_that_topic_that_names_the_right() -> None:
    brokers = FencedBrokers()
    brokers.answers[0] = DENIED
    found = brokers.look()
    assert found.failure is not None
    assert "grant WRITE" in str(found.failure)
    assert found.failure.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (found.proved, found.answered) == ({1: 6}, {1})


def test_configs_that_may_not_be_described_are_a_failure_of_that_topic() -> None:
    brokers = FencedBrokers()
    brokers.hidden = True
    found = brokers.look()
    assert found.failure.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert found.proved == {}


def test_a_fence_is_refused_beforehand_where_it_could_not_be_proved() -> None:
    brokers = FencedBrokers()

    def refusal() -> ClusterError:
        (found,) = check_fences(cast(Brokers, brokers), [TOPIC]).items()
        assert found[0] == TOPIC
        return found[1]

    for brokers.operations in ({3, 4, 6}, {31}, None):  # the last two say that the broker does not say
        assert check_fences(cast(Brokers, brokers), [TOPIC]) == {}
    brokers.operations = {3, 4}
    assert "grant DELETE" in str(refusal())
    brokers.answers[0] = DENIED
    assert "grant WRITE" in str(refusal())
    brokers.served = {0, 18}
    assert "KRaft" in str(refusal())
    assert refusal().code is ErrorCode.UNSUPPORTED_VERSION
