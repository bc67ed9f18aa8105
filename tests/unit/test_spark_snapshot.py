"""Views that a driver keeps: refreshed cheaply where that is certain, and released when they are idle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError, ViewTimeout
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.spark import snapshot as module
from modeaware.spark.snapshot import kept_views, release_kept
from tests.support.fake_views import FakeViews, modes_of

CONF = {"bootstrap.servers": "127.0.0.1:1"}


class LogViews(FakeViews):
    """Views that come from a log, which has been read up to ``position``."""

    position = 7
    source = "log"

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "source": self.source, "log_present": True, "log_position": self.position}


class FakeConsumer:
    """Says that the log ends at ``end``."""

    end: int | None = 7
    closed = 0

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        if FakeConsumer.end is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return 0, FakeConsumer.end

    def close(self) -> None:
        FakeConsumer.closed += 1


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogViews]:
    made = LogViews()
    made.set("orders", modes_of(3, 2))
    monkeypatch.setattr(module, "acquire", lambda conf, config: made)
    monkeypatch.setattr(module, "Consumer", lambda conf: FakeConsumer())
    monkeypatch.setattr(FakeConsumer, "end", 7)
    monkeypatch.setattr(FakeConsumer, "closed", 0)
    release_kept()
    yield made
    release_kept()


def test_a_log_that_has_not_grown_is_not_read_again(views: LogViews) -> None:
    kept = kept_views(CONF, ClientConfig())
    kept.refresh(1.0)
    assert views.refreshes == 0
    assert kept.views.view("orders").writable == (0, 1)
    FakeConsumer.end = 8
    kept.refresh(1.0)
    assert views.refreshes == 1


@pytest.mark.parametrize(("source", "end"), [("log", 6), ("log", None), ("wire", 7)])
def test_in_doubt_it_is_read_again(views: LogViews, source: str, end: int | None) -> None:
    views.source, FakeConsumer.end = source, end
    kept = kept_views(CONF, ClientConfig())
    kept.refresh(1.0)
    assert views.refreshes == 1
    views.failure = ModeSourceError("gone")
    with pytest.raises(ModeSourceError, match="gone"):
        kept.refresh(1.0)


def test_they_are_kept_by_cluster_and_given_back(views: LogViews) -> None:
    kept = kept_views(CONF, ClientConfig())
    kept.refresh(1.0)
    assert kept_views({**CONF, "acks": "1"}, ClientConfig()) is kept
    assert kept_views(CONF, ClientConfig(mode_log_topic="other")) is not kept
    release_kept()
    assert views.closed
    assert FakeConsumer.closed == 1
    assert kept_views(CONF, ClientConfig()) is not kept


def test_idle_views_are_released(views: LogViews, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    kept = kept_views(CONF, ClientConfig())
    kept.refresh(1.0)
    kept.idle.join(10)
    assert (views.closed, FakeConsumer.closed) == (True, 1)
    assert kept_views(CONF, ClientConfig()) is not kept


def test_a_source_out_of_reach_fails_a_job_unless_it_may_take_the_last_view(views: LogViews) -> None:
    views.failure, FakeConsumer.end = ModeSourceError("gone"), None
    with pytest.raises(ViewTimeout, match="gone"):
        module.topic_view(CONF, "orders")
    assert module.topic_view(CONF, "orders", stale=True).writable == (0, 1)
    assert module.topic_view({**CONF, "modeaware.on.unknown": "writable"}, "orders").writable == (0, 1)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_leaves_its_parents_alone(views: LogViews) -> None:
    kept = kept_views(CONF, ClientConfig())
    child = os.fork()
    if child == 0:
        os._exit(kept_views(CONF, ClientConfig()) is kept or views.closed)
    assert os.waitpid(child, 0)[1] == 0
    assert kept_views(CONF, ClientConfig()) is kept
