"""Topic ids as the cluster has them now, and what becomes of views of other ids (I8), without a broker."""

from __future__ import annotations

import logging
import threading
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Uuid

from modeaware.callouts import is_inside
from modeaware.clock import SYSTEM_CLOCK
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.modelog.reader import LogRecord
from modeaware.modes import PartitionMode
from modeaware.topic_view import NO_TOPIC_ID, ReplacedBy, TopicView
from modeaware.views import log as log_module
from modeaware.views import topic_ids
from modeaware.views.store import ViewStore
from modeaware.views.topic_ids import CHECK_S, SILENT_TIMEOUT_S, IdChecks, TopicIds, TopicIdUnknown, id_from
from tests.support.fake_sources import Acquire, FakeTail, log_of
from tests.support.fake_views import modes_of
from tests.support.modelog import topic_record
from tests.support.simulated import SimClock
from tests.support.waiting import eventually

NONE = PartitionMode.NONE


class Cluster:
    """Stands in for confluent_kafka's AdminClient; answers at once with ``ids``, or when :meth:`answer` is called."""

    def __init__(self) -> None:
        self.ids: dict[str, str | KafkaException] = {}
        self.asked: list[list[str]] = []
        self.made = 0
        self.silent = False
        self.waiting: list[tuple[str, Future[Any]]] = []

    def __call__(self, conf: Mapping[str, Any]) -> Cluster:
        self.made += 1
        return self

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        self.asked.append(list(topics.topic_names))
        futures: dict[str, Future[Any]] = {topic: Future() for topic in topics.topic_names}
        self.waiting += futures.items()
        if not self.silent:
            self.answer()
        return futures

    def answer(self) -> None:
        while self.waiting:
            topic, future = self.waiting.pop()
            found = self.ids.get(topic, KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
            if isinstance(found, KafkaException):
                future.set_exception(found)
            else:
                future.set_result(SimpleNamespace(topic_id=found))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(topic_ids, "AdminClient", made)
    return made


def view(topic_id: str | None, epoch: int = 1, writable: int = 4) -> TopicView:
    return TopicView("orders", topic_id, (1, epoch), modes_of(12, writable, NONE))


class TestTopicIds:
    def test_callers_share_a_young_answer_and_one_that_is_under_way(self, cluster: Cluster) -> None:
        ids = TopicIds({})
        cluster.silent, cluster.ids = True, {"a": "id-a", "b": "id-b"}
        first = ids.request(["a"], 0.0)
        second = ids.request(["a", "b"], 0.0)
        assert first["a"] is second["a"]
        cluster.answer()
        assert ids.request(["a", "b"], 60.0) == second
        assert cluster.asked == [["a"], ["b"]]
        assert cluster.made == 1
        assert ids.request(["a"], 0.0)["a"] is not first["a"]

    @pytest.mark.parametrize("no_answer", [None, NO_TOPIC_ID])
    def test_failed_answer_and_one_without_an_id_are_not_kept(self, cluster: Cluster, no_answer: str | None) -> None:
        ids = TopicIds({})
        cluster.ids = {} if no_answer is None else {"a": no_answer}
        with pytest.raises(TopicIdUnknown) as error:
            id_from(ids.request(["a"], 60.0)["a"], 0.0)
        assert (error.value.unknown_topic, error.value.final) == (no_answer is None, no_answer is not None)
        cluster.ids = {"a": "id-a"}
        assert eventually(lambda: ids.request(["a"], 60.0)["a"].exception() is None)

    def test_request_that_timed_out_brings_a_new_client(self, cluster: Cluster) -> None:
        ids = TopicIds({})
        cluster.ids = {"a": KafkaException(KafkaError(KafkaError._TIMED_OUT)), "b": "id-b"}
        assert ids.request(["a", "b"], 0.0)["a"].exception() is not None
        assert ids.request(["b"], 0.0)["b"].result() == SimpleNamespace(topic_id="id-b")
        assert cluster.made == 1
        cluster.ids = {"a": "id-a"}
        assert eventually(lambda: ids.request(["a"], 0.0)["a"].exception() is None)
        assert cluster.made == 2

    def test_renewal_fails_the_requests_that_the_former_client_leaves_unanswered(
        self, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        ids = TopicIds({})
        cluster.silent = True
        silent = ids.request(["a", "b"], 0.0)["b"]
        answers = dict(cluster.waiting)
        cluster.waiting.clear()
        answers["a"].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        cluster.silent, cluster.ids = False, {"a": "id-a", "b": "id-b"}
        assert eventually(lambda: ids.request(["a"], 0.0)["a"].exception() is None)
        assert cluster.made == 2
        with pytest.raises(TopicIdUnknown, match="new connection") as error:
            id_from(silent, 0.0)
        assert not error.value.final
        assert eventually(lambda: ids.request(["b"], 60.0)["b"].exception(0) is None)
        assert cluster.made == 2
        answers["b"].set_result(SimpleNamespace(topic_id="id-of-the-former-client"))
        assert ids.request(["b"], 60.0)["b"].result(0) == SimpleNamespace(topic_id="id-b")
        assert caplog.messages == [], "a late answer is ignored"

    def test_no_lock_is_held_while_a_client_is_made(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its constructor awaits the application's ``oauth_cb``, which may log, or wait for a thread that sends."""
        held: list[bool] = []

        def make(conf: Mapping[str, Any]) -> Cluster:
            held.append(is_inside())
            if len(held) == 1:  # another thread's request, of what is pending and of more
                shared.append(ids.request(["a"], 60.0)["a"])
                assert not ids.request(["b"], 60.0)["b"].done()
            return cluster(conf)

        ids, shared = TopicIds({}), list[Future[Any]]()
        monkeypatch.setattr(topic_ids, "AdminClient", make)
        cluster.ids = {"a": "id-a"}
        assert ids.request(["a"], 60.0)["a"] is shared[0]
        assert shared[0].result(0) == SimpleNamespace(topic_id="id-a")
        assert held == [False]
        assert cluster.asked == [["a", "b"]]

    def test_request_that_breaks_off_leaves_nobody_waiting(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(conf: Mapping[str, Any]) -> Cluster:
            raise KeyboardInterrupt

        ids = TopicIds({})
        monkeypatch.setattr(topic_ids, "AdminClient", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ids.request(["a"], 60.0)
        assert isinstance(ids.request([], 60.0), dict)
        monkeypatch.setattr(topic_ids, "AdminClient", cluster)
        cluster.ids = {"a": "id-a"}
        assert eventually(lambda: ids.request(["a"], 60.0)["a"].exception(0) is None)

    def test_closed_it_makes_no_admin_client(self, cluster: Cluster) -> None:
        ids = TopicIds({})
        ids.close()
        with pytest.raises(TopicIdUnknown, match="closed"):
            id_from(ids.request(["a"], 0.0)["a"], 0.0)
        assert cluster.made == 0


class Checks:
    """``IdChecks`` over a cluster that answers at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.clock = SimClock()
        self.recorded = {"orders"}
        self.found: list[tuple[str, str]] = []
        self.replaced = False
        self.checks = IdChecks(
            TopicIds({}, self.clock),
            lambda topics: self.recorded.intersection(topics),
            self._found,
            300.0,
            threading.Event(),
            self.clock,
        )

    def _found(self, topic: str, topic_id: str) -> bool:
        self.found.append((topic, topic_id))
        return self.replaced


@pytest.fixture
def checks(cluster: Cluster) -> Checks:
    cluster.ids = {"orders": "id-1", "other": "id-2"}
    return Checks(cluster)


class TestIdChecks:
    def test_only_topics_with_a_record_are_asked_for(self, checks: Checks, cluster: Cluster) -> None:
        checks.checks.verify(["orders", "other"], 1.0, 0.0)
        checks.checks.verify(["other"], 1.0, 0.0)
        assert cluster.asked == [["orders"]]
        assert checks.found == [("orders", "id-1")]

    def test_live_id_is_requested_of_a_topic_whose_record_was_taken_back(self, checks: Checks) -> None:
        checks.recorded = set()
        assert checks.checks.live_id("orders", 1.0) == "id-1"
        assert checks.checks.live_id("unknown", 1.0) is None

    def test_topics_in_use_are_compared_again_in_the_background(self, checks: Checks, cluster: Cluster) -> None:
        checks.checks.verify(["orders", "other"], 1.0, 0.0)
        checks.checks.step()
        assert len(cluster.asked) == 1
        checks.clock.advance(round(CHECK_S * 1000))
        checks.recorded = {"orders", "other", "not in use"}
        cluster.silent = True
        checks.checks.step()  # waits for no answer
        assert sorted(cluster.asked[1]) == ["orders", "other"]
        assert len(checks.found) == 1
        cluster.answer()
        checks.checks.step()
        assert ("other", "id-2") in checks.found

    @pytest.mark.parametrize("why", ["hint", "view out of force"])
    def test_hint_or_a_view_that_went_out_of_force_brings_the_next_comparison_forward(
        self, checks: Checks, cluster: Cluster, why: str
    ) -> None:
        checks.replaced = why != "hint"
        checks.checks.verify(["orders"], 1.0, 0.0)
        checks.clock.advance(1500)
        if why == "hint":
            checks.checks.step()
            assert len(cluster.asked) == 1
            checks.checks.soon()
        checks.checks.step()
        assert len(cluster.asked) == 2

    @pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNSUPPORTED_FEATURE])
    def test_without_an_answer_nothing_changes_and_it_is_reported_once(
        self, checks: Checks, cluster: Cluster, caplog: pytest.LogCaptureFixture, code: int
    ) -> None:
        cluster.ids = {"orders": KafkaException(KafkaError(code))}
        with caplog.at_level(logging.INFO):
            checks.checks.verify(["orders"], 1.0, 0.0)
            checks.clock.advance(1000)
            checks.checks.verify(["orders"], 1.0, 0.0)
        assert checks.found == []
        assert checks.checks.stats() == {"unverified_topics": ["orders"]}
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        cluster.ids = {"orders": "id-1"}
        checks.clock.advance(1000)
        checks.checks.verify(["orders"], 1.0, 0.0)
        assert checks.checks.stats() == {"unverified_topics": []}

    def test_brokers_that_do_not_answer_are_waited_for_once(
        self, checks: Checks, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited: list[float] = []

        class Answer(Future[Any]):
            def exception(self, timeout: float | None = None) -> Any:
                waited.append(timeout or 0.0)
                checks.clock.advance(round((timeout or 0.0) * 1000))
                return super().exception(0)

        checks.recorded, cluster.silent = {"a", "b", "c"}, True
        monkeypatch.setattr(topic_ids, "Future", Answer)
        for topic in ("a", "b", "c"):
            checks.checks.verify([topic], 3.0, 0.0)
        assert waited == pytest.approx([3.0, SILENT_TIMEOUT_S, SILENT_TIMEOUT_S])
        dict(cluster.waiting)["a"].set_result(SimpleNamespace(topic_id="id-a"))
        checks.checks.verify(["a"], 3.0, 60.0)
        checks.checks.verify(["b"], 3.0, 0.0)
        assert waited[-1] == pytest.approx(3.0), "a broker has answered since"

    def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(self, cluster: Cluster) -> None:
        found: list[str] = []
        done = threading.Event()
        ids = TopicIds({})
        checks = IdChecks(ids, set, lambda topic, topic_id: bool(found.append(topic_id)), 300.0, done, SYSTEM_CLOCK)
        cluster.silent = True
        waiting = threading.Thread(target=checks.verify, args=(["orders"], 30.0, 0.0))
        waiting.start()
        eventually(lambda: cluster.waiting)
        cluster.answer()  # with "unknown topic"
        eventually(lambda: cluster.waiting)
        cluster.ids = {"orders": "id-1"}
        cluster.answer()
        waiting.join(30)
        assert found == ["id-1"]


class TestViewStore:
    @pytest.fixture
    def store(self) -> ViewStore:
        return ViewStore(lambda fresh, timeout_s: None, 1000)

    def test_view_of_another_id_goes_out_of_force(self, store: ViewStore) -> None:
        heard: list[dict[str, TopicView]] = []
        store.publish([view("old")])
        store.confirm()
        store.subscribe(lambda changed: heard.append(dict(changed)))
        assert store.choose("orders", "new")
        assert heard[1:] == [{"orders": TopicView.unlisted("orders")}]
        store.publish([view("old", 2)])
        assert store.held("orders") is None
        assert store.recorded(["orders", "other"]) == {"orders"}

    @pytest.mark.parametrize("last", ["old", "live"])
    def test_of_two_records_the_one_of_the_live_id_is_in_force(self, store: ViewStore, last: str) -> None:
        told = sorted([view("old"), view("live")], key=lambda each: each.topic_id == last)
        store.publish(told)
        store.choose("orders", "live", told)
        assert store.held("orders") == view("live")

    def test_view_set_aside_for_a_stale_answer_comes_back_at_its_newest_version(self, store: ViewStore) -> None:
        store.publish([view("live", 5)])
        store.choose("orders", "stale")
        store.publish([view("live", 6)])
        store.publish([view("live", 4)])
        assert store.held("orders") is None
        store.choose("orders", "live")
        assert store.held("orders") == view("live", 6)

    def test_name_of_a_topic_that_is_released_leads_on_whatever_comes_up_before_its_deletion_is_on_the_log(
        self, store: ViewStore
    ) -> None:
        released = replace(view("old"), replaced_by=ReplacedBy("orders-v2", "its-id", 4, switched=True, released=True))
        store.publish([released])
        assert not store.choose("orders", "new")
        assert store.held("orders") == released

    def test_name_of_a_topic_that_was_replaced_and_is_gone_leads_on_whatever_comes_up_under_it(
        self, store: ViewStore
    ) -> None:
        switched = replace(view("old"), replaced_by=ReplacedBy("orders-v2", "its-id", 4, switched=True))
        store.publish([switched])
        assert store.choose("orders", "new"), "it was deleted, and its record does not say so yet"
        gone = replace(view("old", 2), replaced_by=ReplacedBy("orders-v2", "its-id", 4, switched=True, gone=True))
        store.publish([gone])
        assert store.held("orders") == gone
        assert not store.choose("orders", "new")
        assert store.held("orders") == gone
        assert not store.is_aside("old")

    def test_only_the_latest_views_of_other_ids_are_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("modeaware.views.store.REMEMBERED_IDS", 2)
        store = ViewStore(lambda fresh, timeout_s: None, 1000)
        for topic in ("a", "b", "c"):
            store.publish([TopicView(topic, f"old-{topic}", (1, 1), (PartitionMode.READ_ONLY,))])
            store.choose(topic, "new")
        assert store.recorded(["a", "b", "c"]) == {"b", "c"}
        assert [store.is_aside(f"old-{topic}") for topic in "abc"] == [False, True, True]
        store.forget_aside("old-b")
        assert store.recorded(["a", "b", "c"]) == {"c"}

    def test_new_id_that_a_record_names_needs_no_answer(self, store: ViewStore) -> None:
        store.publish([view("old")])
        store.choose("orders", "new")
        store.publish([view("new")])
        assert store.held("orders") == view("new")

    def test_view_without_an_id_is_left_alone(self, store: ViewStore) -> None:
        store.publish([view(None)])
        assert not store.choose("orders", "new")
        assert store.held("orders") == view(None)
        assert store.recorded(["orders"]) == set()


def test_past_id_does_not_disown_the_newer_record(
    monkeypatch: pytest.MonkeyPatch, acquire: Acquire, cluster: Cluster
) -> None:
    monkeypatch.setattr(log_module, "Tail", FakeTail)
    FakeTail.made, FakeTail.log = [], log_of(1)
    cluster.ids = {"orders": "id-of-orders"}
    views = acquire("log")
    assert views.wait_ready(10)
    newer = topic_record("orders", 1, topic_id="newer", writable=6)
    FakeTail.log = [*log_of(1), LogRecord(1, b"newer", newer.to_json())]
    eventually(lambda: views.view("orders").topic_id == "newer")
    views.verify(["orders"], 10.0)  # answered by a broker that lags behind
    assert views.view("orders").topic_id == "newer"
    FakeTail.log = [*FakeTail.log, LogRecord(2, b"id-of-orders", None)]
    eventually(lambda: views.removed(["id-of-orders"]) == ("id-of-orders",))
    views.verify(["orders"], 10.0, 0.0)
    assert views.view("orders").topic_id == "newer"


def test_topic_id_has_the_form_that_kafka_prints() -> None:
    """librdkafka prints ``+`` and ``/``, and the mode log has Kafka's own form."""
    printed = Uuid(-1, -5)
    assert "/" in str(printed)
    answer: Future[Any] = Future()
    answer.set_result(SimpleNamespace(topic_id=printed))
    assert id_from(answer, 0.0) == urlsafe_b64encode(b"\xff" * 15 + b"\xfb")[:-2].decode()
