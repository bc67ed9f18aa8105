"""Watches the topic from outside while the run goes on. What is seen is what the judge learns of deletions, so each
sight is noted with a time at which it was certainly true."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.chaos.chronicle import Chronicle
from tests.chaos.setting import PARTITIONS, Setting, version_number
from tests.chaos.tasks import Task

INTERVAL_S = 0.3
REQUEST_S = 3.0


class Watch(Task):
    """Notes views, claims and log starts.

    Raises:
        ModeSourceError: no first view of the modes within a minute.
    """

    def __init__(self, setting: Setting, chronicle: Chronicle) -> None:
        super().__init__(chronicle, "watch")
        self._topic = setting.topic
        self._admin = AdminClient(setting.conf)
        self._starts: dict[int, int] = {}
        self._views = setting.views()
        self._views.subscribe(self._changed)

    @property
    def view(self) -> TopicView:
        """The run's topic's view now."""
        return self.view_of(self._topic)

    def view_of(self, topic: str) -> TopicView:
        """The view of any topic now."""
        return self._views.view(topic)

    @property
    def controller_id(self) -> str | None:
        """Which controller claimed the mode log last and has not released it."""
        claim = self._views.claim()
        return claim.controller_id if claim is not None and claim.address is not None else None

    def stop(self) -> None:
        super().stop()
        self._views.close()

    def _changed(self, changed: Mapping[str, TopicView]) -> None:
        view = changed.get(self._topic)
        if view is None:
            return
        none = [p for p, mode in enumerate(view.modes) if mode is PartitionMode.NONE]
        self.chronicle.note(
            "view",
            version=version_number(view.version),
            writable=list(view.writable),
            none={p: view.resume_offsets[p] for p in none if p in view.resume_offsets},
            reclaimed=sorted(view.reclaimed),
            text=view.describe(),
        )

    def work(self) -> None:
        claimed = None
        while not self.done.wait(INTERVAL_S):
            claim = self._views.claim()
            if claim is not None and claimed != (claim.controller_epoch, claim.controller_id):
                claimed = claim.controller_epoch, claim.controller_id
                self.chronicle.note("claim", controller_epoch=claimed[0], controller=claimed[1])
            self._look_at_log_starts()

    def _look_at_log_starts(self) -> None:
        try:
            # The whole listing, because it renews what the client knows of leaders: list_offsets alone would go on with
            # the leader epochs of before a fault, and be refused.
            self._admin.list_topics(timeout=REQUEST_S)
        except KafkaException:
            return  # no broker answers: the next look tells
        asked = {TopicPartition(self._topic, p): OffsetSpec.earliest() for p in range(PARTITIONS)}
        for partition, future in self._admin.list_offsets(asked, request_timeout=REQUEST_S).items():
            try:
                start = future.result(REQUEST_S + 1).offset
            except (KafkaException, TimeoutError):
                continue  # a broker is down: the next look tells
            if start > self._starts.get(partition.partition, 0):
                self._starts[partition.partition] = start
                self.chronicle.note("log-start", partition=partition.partition, below=start)
