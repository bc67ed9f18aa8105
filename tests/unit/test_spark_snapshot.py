"""Views that a driver keeps: refreshed cheaply where that is certain, and released when they are idle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import PythonException

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError, TopicReplaced, ViewTimeout
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.spark import snapshot as module
from modeaware.spark.sink import BatchWriter, Through
from modeaware.spark.snapshot import kept_views, reads_log, release_kept, topic_chain, written
from modeaware.topic_view import ReplacedBy, TopicView
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


@pytest.mark.parametrize(("source", "expected"), [("log", True), ("wire", False), (None, False)])
def test_whether_the_modes_come_from_the_log(views: LogViews, source: str, expected: bool) -> None:
    views.source = source
    assert reads_log(CONF) is expected


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
        module.topic_chain(CONF, "orders")
    assert module.topic_chain(CONF, "orders", stale=True)[0].writable == (0, 1)
    assert module.topic_chain({**CONF, "modeaware.on.unknown": "writable"}, "orders")[0].writable == (0, 1)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_leaves_its_parents_alone(views: LogViews) -> None:
    kept = kept_views(CONF, ClientConfig())
    child = os.fork()
    if child == 0:
        os._exit(kept_views(CONF, ClientConfig()) is kept or views.closed)
    assert os.waitpid(child, 0)[1] == 0
    assert kept_views(CONF, ClientConfig()) is kept


# A topic that another one replaces


def lead(views: LogViews, topic: str, to: str, *, switched: bool = True) -> None:
    """Have the name point to another topic, or announce that."""
    view = views.view(topic)
    view = view if view.modes else TopicView(topic, f"id-of-{topic}", (1, 0), modes_of(3, 3))
    new_topic, modes = ReplacedBy(to, f"id-of-{to}", 4, switched=switched), modes_of(3, 0 if switched else 3)
    views.put(replace(view, version=(1, view.epoch + 1), modes=modes, replaced_by=new_topic))


def names(topic: str = "orders") -> list[str]:
    return [view.topic for view in topic_chain(CONF, topic)]


def test_a_name_leads_through_its_chain_from_the_switch_on(views: LogViews) -> None:
    lead(views, "orders", "orders-v2", switched=False)
    assert names() == ["orders"]
    lead(views, "orders", "orders-v2")
    assert names() == ["orders", "orders-v2"]
    assert topic_chain(CONF, "orders")[-1] == TopicView("orders-v2", "id-of-orders-v2")
    lead(views, "orders-v2", "orders-v3")
    assert names() == ["orders", "orders-v2", "orders-v3"]
    assert names("orders-v2") == ["orders-v2", "orders-v3"]


def test_a_topic_of_another_id_points_nowhere(views: LogViews) -> None:
    lead(views, "orders", "orders-v2")
    lead(views, "orders-v2", "orders-v3")
    views.live_ids["orders-v2"] = "made-anew"
    assert names() == ["orders", "orders-v2"], "each topic of the chain was compared"
    views.live_ids["orders"] = "made-anew"
    assert topic_chain(CONF, "orders") == (TopicView.unlisted("orders"),)


@pytest.mark.parametrize("has_py4j", [True, False])
def test_a_job_that_fails_while_its_topic_is_replaced_says_so(
    views: LogViews, has_py4j: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_py4j:
        monkeypatch.setitem(sys.modules, "py4j.protocol", None)

    def job(*, switched: bool) -> None:
        with written(CONF, "orders") as view:
            assert view.topic == "orders"
            lead(views, "orders", "orders-v2", switched=switched)
            raise PythonException("a task failed")

    with pytest.raises(PythonException, match="a task failed"):
        job(switched=False)
    with pytest.raises(TopicReplaced, match=r"orders was replaced by orders-v2 .* Run the job again") as replaced:
        job(switched=True)
    assert (replaced.value.topic, replaced.value.new_topic) == ("orders", "orders-v2")
    assert isinstance(replaced.value.__cause__, PythonException)
    with written(CONF, "orders") as view:
        assert view.topic == "orders-v2"


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_job_that_succeeds_while_its_topic_is_replaced_has_to_show_that_nothing_was_refused(
    views: LogViews, acknowledged: bool
) -> None:
    with written(CONF, "orders", acknowledged=acknowledged):
        lead(views, "orders", "orders-v2", switched=False)
    allowed = nullcontext() if acknowledged else pytest.raises(TopicReplaced, match="may have rejected records")
    with allowed, written(CONF, "orders", acknowledged=acknowledged):
        lead(views, "orders", "orders-v2")


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("middle", [True, False])
def test_a_job_that_spans_the_way_back_to_a_name_says_so(views: LogViews, middle: bool, recorded: bool) -> None:
    """The topic that the job was planned for is in no chain by then."""
    if middle:
        lead(views, "orders", "orders-v2")
    elif not recorded:
        views.remove("orders")
        views.live_ids["orders"] = "the-first"

    def job() -> None:
        with written(CONF, "orders", acknowledged=False) as planned:
            assert planned.topic == ("orders-v2" if middle else "orders")
            views.remove("orders")
            views.live_ids["orders"] = "the-second"
            if recorded:
                views.set("orders", modes_of(3, 3), topic_id="the-second")

    with pytest.raises(TopicReplaced, match="Run the job again"):
        job()


def test_a_job_is_not_failed_by_a_chain_that_is_not_known(views: LogViews, monkeypatch: pytest.MonkeyPatch) -> None:
    """The views were released during a long job, and ``modeaware.on.unknown`` is ``writable``."""
    lead(views, "orders", "orders-v2")
    with written({**CONF, "modeaware.on.unknown": "writable"}, "orders", acknowledged=False) as planned:
        assert planned.topic == "orders-v2"
        views.remove("orders")
        monkeypatch.setattr(LogViews, "ready", False)
        monkeypatch.setattr(LogViews, "wait_ready", lambda self, timeout_s: False)


def test_a_job_whose_refusals_are_not_known_fails_where_the_modes_are_not_known_after_it(views: LogViews) -> None:
    with pytest.raises(ViewTimeout), written(CONF, "orders", acknowledged=False):
        views.failure, FakeConsumer.end = ModeSourceError("gone"), None


class Batches(BatchWriter):
    """Notes which topics each batch is written to; the first writings go as ``outcomes`` say."""

    def __init__(self, views: LogViews, *outcomes: str, through: Through = "sink", retries: int = 3) -> None:
        super().__init__("orders", CONF, through, retries, {})
        self.views = views
        self.outcomes = list(outcomes)
        self.to: list[str] = []

    def _write(self, view: TopicView, df: Any) -> bool:
        self.to.append(view.topic)
        outcome = self.outcomes.pop(0) if self.outcomes else "done"
        if "announced" in outcome:
            lead(self.views, view.topic, f"{view.topic}-next", switched=False)
        if "replaced" in outcome:
            lead(self.views, view.topic, f"{view.topic}-next")
        if "shrunk" in outcome:
            self.views.set(view.topic, modes_of(3, 1))
        if "refused" in outcome:
            raise PythonException("MSG_SIZE_TOO_LARGE")
        return "follows" in outcome


def test_a_batch_that_is_refused_is_written_again_to_the_new_topic(views: LogViews) -> None:
    batches = Batches(views, "replaced, refused", "refused")
    with pytest.raises(PythonException):
        batches(None, 7)  # type: ignore[arg-type] # no frame
    assert batches.to == ["orders", "orders-next"], "written again only where the topic was replaced"
    with pytest.raises(TopicReplaced):
        Batches(views, "replaced, refused", retries=0)(None, 8)  # type: ignore[arg-type] # no frame


@pytest.mark.parametrize(
    ("outcome", "through", "to"),
    [
        ("replaced", "arrow", ["orders"]),
        ("replaced", "sink", ["orders", "orders-next"]),
        ("announced", "sink", ["orders"]),
        ("shrunk", "sink", ["orders", "orders"]),
        ("shrunk, follows", "sink", ["orders"]),
        ("replaced, follows", "sink", ["orders", "orders-next"]),
    ],
)
def test_a_batch_is_written_again_where_its_partitions_changed_or_a_refusal_may_not_be_reported(
    views: LogViews, outcome: str, through: Through, to: list[str]
) -> None:
    views.remove("orders")
    batches = Batches(views, outcome, through=through)
    batches(None, 7)  # type: ignore[arg-type] # no frame
    assert batches.to == to
