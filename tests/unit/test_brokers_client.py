"""The connection to all brokers, as far as it goes without one."""

from __future__ import annotations

import socket

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers import messages
from modeaware.wire.brokers.client import REQUEST_TIMEOUT_S, Brokers
from modeaware.wire.brokers.patience import SILENT_FOR_S, SILENT_TIMEOUT_S, Patience


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.filterwarnings("error")
def test_nobody_answers(nobody: str) -> None:
    brokers = Brokers({"bootstrap.servers": nobody}, timeout_s=0.3)
    for _ in range(2):
        with pytest.raises(ClusterError) as raised:
            brokers.node_ids()
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    brokers.close()
    brokers.close()
    with pytest.raises(ClusterError, match="closed"):
        brokers.ask(messages.ListGroupsRequest())


class TestPatience:
    """A broker that hangs holds up one call; then it is asked briefly, until it answers or some time has passed."""

    def setup_method(self) -> None:
        self.now_s = 100.0
        self.patience = Patience(lambda: self.now_s)

    def waited_s(self, node_id: int = 1) -> float:
        return self.patience.until_s(node_id, self.now_s + REQUEST_TIMEOUT_S) - self.now_s

    def let_it_run_out(self) -> None:
        until_s = self.now_s + self.waited_s()
        self.now_s = until_s
        self.patience.failed(1, until_s)

    def test_the_first_silence_costs_the_whole_time_and_the_next_ones_little(self) -> None:
        assert self.waited_s() == REQUEST_TIMEOUT_S
        for _ in range(3):
            self.let_it_run_out()
            assert self.waited_s() == pytest.approx(SILENT_TIMEOUT_S)
            assert self.waited_s(2) == REQUEST_TIMEOUT_S

    def test_a_slow_one_is_given_the_whole_time_now_and_then(self) -> None:
        self.let_it_run_out()
        self.let_it_run_out()
        self.now_s += SILENT_FOR_S - SILENT_TIMEOUT_S - 0.01
        assert self.waited_s() == pytest.approx(SILENT_TIMEOUT_S)
        self.now_s += 0.02
        assert self.waited_s() == REQUEST_TIMEOUT_S
        self.let_it_run_out()
        assert self.waited_s() == pytest.approx(SILENT_TIMEOUT_S)


OURS = {name: getattr(messages, name) for name in dir(messages) if name.endswith("Response")}


@pytest.mark.parametrize("name", OURS)
def test_our_schemas_can_be_read_and_written(name: str) -> None:
    response = OURS[name]
    version = response.max_version
    empty = response(version=version, throttle_time_ms=5, groups=[])
    assert response.decode(empty.encode(), version=version) == empty


class TestEmbeddedProtocol:
    """What members of classic groups keep in the opaque bytes."""

    @pytest.mark.parametrize("version", [0, 1, 2, 3])
    def test_topics(self, version: int) -> None:
        subscription = ConsumerProtocolSubscription(version=version, topics=["a", "b"], user_data=b"x").encode()
        assert messages.subscribed_topics(subscription) == {"a", "b"}
        part = ConsumerProtocolAssignment.TopicPartition
        parts = [part(topic="a", partitions=[1]), part(topic="none", partitions=[])]
        assignment = ConsumerProtocolAssignment(version=version, assigned_partitions=parts, user_data=None).encode()
        assert messages.assigned_topics(assignment) == {"a"}
        assert messages.subscribed_topics(b"") == messages.assigned_topics(b"") == frozenset()
