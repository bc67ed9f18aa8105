"""A server that speaks ApiVersions 3 and KIP-694's Metadata 10, and does whatever else a test asks of it.

It stands in for an endpoint of modeaware, and without our tagged fields for a broker that ships KIP-694 one day.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any

from modeaware.topic_view import TopicView
from modeaware.wire import codec
from modeaware.wire.frames import MalformedFrame
from tests.support.endpoint import FakeBroker

NODE_ID = 1


class FakeEndpoint:
    """Listens on a port of the loopback interface until it is stopped; one thread a connection.

    Args:
        ours: tell topic ids, epochs and the controller, as an endpoint of modeaware does.
        tls: the server's side of TLS.
        answering: whether requests are answered from the start, or held until :attr:`answering` is set.

    Attributes:
        views: the record of each topic.
        existing: topics that exist and have no record -> the number of their partitions.
        replaced: topics whose record is of a topic id that is gone -> the live id; with a place in ``existing``.
        removed: the ids of topics whose record was taken back.
        has_feature: whether ApiVersions shows it.
        topic_errors: topic -> the error it is told with, when asked for by name or for all.
        hidden: topics that are left out of an answer about all topics.
        probed: how often a client of modeaware asked for ApiVersions.
        controller: id and port of the active controller.
        tamper: changes a Metadata answer before it is sent; None in place of bytes closes the connection.
        asked: the Metadata requests that came.
        connections: how many were ever made.
    """

    def __init__(self, *, ours: bool = True, tls: ssl.SSLContext | None = None, answering: bool = True) -> None:
        self.ours = ours
        self.views: dict[str, TopicView] = {}
        self.existing: dict[str, int] = {}
        self.replaced: dict[str, str] = {}
        self.removed: set[str] = set()
        self.has_feature = True
        self.topic_errors: dict[str, int] = {}
        self.hidden: set[str] = set()
        self.controller: tuple[str, int] | None = None
        self.tamper: Callable[[bytes], bytes | None] = lambda answer: answer
        self.asked: list[Any] = []
        self.probed = 0
        self.answering = threading.Event()
        if answering:
            self.answering.set()
        self._stopping = False
        self._server = FakeBroker(tls)
        self._server.answer = self._answer

    @property
    def port(self) -> int:
        return self._server.address[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        return self._server.accepted

    def start(self) -> None:
        """Listen again, on the same port."""
        self._stopping = False
        self._server.start()

    def stop(self) -> None:
        """Close the port and all connections."""
        self._stopping = True
        self._server.close()

    def metadata(self) -> list[Any]:
        """The Metadata requests that came, and none of them twice."""
        asked, self.asked = self.asked, []
        return asked

    def _answer(self, payload: bytes) -> bytes:
        header = codec.peek_header(payload)
        if header.api_key == codec.API_VERSIONS_KEY:
            self._hold()
            return self._api_versions(header, payload)
        if header.api_key != codec.METADATA_KEY:
            raise MalformedFrame(f"api {header.api_key}")
        if header.api_version != codec.MODES_VERSION:
            return self._stock_metadata(header, payload)
        _, request = codec.decode_request(payload)
        self.asked.append(request)
        self._hold()
        if (answer := self.tamper(self._metadata(header.correlation_id, request))) is None:
            raise MalformedFrame("the test closes the connection")
        return answer

    def _hold(self) -> None:
        while not self.answering.wait(0.05):
            if self._stopping:
                raise ConnectionAbortedError

    def _api_versions(self, header: Any, payload: bytes) -> bytes:
        if header.api_version > 3:
            answer = codec.ApiVersionsResponse(error_code=35, api_keys=[(codec.API_VERSIONS_KEY, 0, 3)])
            return codec.encode_response(answer, 0, header.correlation_id)
        aware = header.api_version == 3 and codec.decode_request(payload)[1].client_software_name == "modeaware"
        self.probed += aware
        features = [("partition.mode", 1, 1)] if self.has_feature else []
        if self.ours and self.has_feature:
            features.append(("modeaware.controller.c-1", 1, 1))
        answer = codec.ApiVersionsResponse(
            error_code=0,
            api_keys=[(codec.METADATA_KEY, 0, 10 if aware and self.has_feature else 9), (18, 0, 3)],
            supported_features=features,
        )
        return codec.encode_response(answer, header.api_version, header.correlation_id)

    def _stock_metadata(self, header: Any, payload: bytes) -> bytes:
        """For librdkafka, which looks for the mode log."""
        _, request = codec.decode_request(payload)
        topics = [
            codec.ModesMetadataResponse.MetadataResponseTopic(
                version=header.api_version, error_code=3, name=topic.name, partitions=[]
            )
            for topic in request.topics or ()
        ]
        brokers = [(NODE_ID, "127.0.0.1", self.port, None)]
        answer = codec.ModesMetadataResponse(brokers=brokers, cluster_id="fake", controller_id=NODE_ID, topics=topics)
        return codec.encode_response(answer, header.api_version, header.correlation_id)

    def _metadata(self, correlation_id: int, request: Any) -> bytes:
        if request.topics is not None:
            names = [topic.name for topic in request.topics]
        else:
            more = self.replaced if request.modes_only and self.ours else self.existing
            names = sorted({*self.views, *more} - self.hidden)
        topics = [self._topic(name, request.groups) for name in names]
        brokers = [(NODE_ID, "127.0.0.1", self.port, None)]
        response = codec.ModesMetadataResponse(
            version=10, brokers=brokers, cluster_id="fake", controller_id=-1, topics=topics
        )
        if self.controller is not None and self.ours:
            response.controller_name, port = self.controller
            response.controller_id = codec.ENDPOINT_NODE_ID
            response.brokers.append((response.controller_id, "127.0.0.1", port, None))
        if self.ours:
            response.removed_topic_ids = [topic_id for topic_id in request.held_topic_ids if topic_id in self.removed]
        return codec.encode_response(response, codec.MODES_VERSION, correlation_id)

    def _topic(self, name: str, groups: Iterable[str]) -> Any:
        topic_class = codec.ModesMetadataResponse.MetadataResponseTopic
        view = self.views.get(name)
        count = len(view.modes) if view is not None else self.existing.get(name, 0)
        error = self.topic_errors.get(name, 3 if view is None and name not in self.existing else 0)
        if error:
            return topic_class(version=10, error_code=error, name=name, partitions=[])
        partitions = [self._partition(number, view) for number in range(count)]
        topic = topic_class(version=10, error_code=0, name=name, partitions=partitions)
        topic.topic_id = self.replaced.get(name)
        if view is not None and self.ours:
            topic.topic_id = view.topic_id
            topic.controller_epoch, topic.mode_epoch = view.version
            topic.previous_count = -1 if view.previous_count is None else view.previous_count
            if (to := view.replaced_by) is not None:
                noted = sorted(to.groups), to.groups_complete
                topic.replaced_by = [(to.topic, to.topic_id, to.partition_count, to.state, *noted)]
                topic.moved = list(filter(to.moved.has_open_gate, groups))
                topic.moved_controller_epoch, topic.moved_epoch = to.moved.version
        return topic

    def _partition(self, number: int, view: TopicView | None) -> Any:
        partition_class = codec.ModesMetadataResponse.MetadataResponseTopic.MetadataResponsePartition
        partition = partition_class(
            version=10,
            error_code=0,
            partition_index=number,
            leader_id=NODE_ID,
            leader_epoch=0,
            replica_nodes=[NODE_ID],
            isr_nodes=[NODE_ID],
            offline_replicas=[],
        )
        partition.mode = int(view.modes[number]) if view is not None else 0
        if view is not None and self.ours:
            partition.resume_offset = view.resume_offsets.get(number, -1)
            partition.reclaimed = number in view.reclaimed
            if view.replaced_by is not None:
                partition.read_up_to = view.replaced_by.read_up_to.get(number, -1)
        return partition
