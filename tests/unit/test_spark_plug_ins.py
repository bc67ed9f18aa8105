"""When Spark's sink writes by the plug-ins for the JVM, and with which options."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from modeaware.errors import ConfigError, PartitionRetired
from modeaware.spark import plug_ins, sink
from modeaware.spark.plug_ins import partitioner_in_jvm, plug_in_options
from modeaware.topic_view import TopicView
from partitioners import NAMES, rule_named
from tests.support.fake_views import FakeViews, modes_of

CONF = {"bootstrap.servers": "127.0.0.1:1"}
IN_JVM = {
    "consistent_random": "consistent_random",
    "minimal_movement": "minimal_movement",
    **dict.fromkeys(("murmur2_random", "sticky", "uniform_sticky"), "murmur2_random"),
}


class FakeSpark:
    """A session whose class path has the jar, or not."""

    def __init__(self, *, has_jar: bool = True) -> None:
        self.has_jar = has_jar
        self.has_kafka = True

    def sql(self, query: str) -> SimpleNamespace:
        assert query == "SELECT java_method('modeaware.Settings', 'names')"
        if not self.has_jar:
            raise AnalysisException("[DATATYPE_MISMATCH.UNEXPECTED_CLASS_TYPE] there is no such class")
        if not self.has_kafka:
            why = "java.lang.NoClassDefFoundError: org/apache/kafka/common/config/AbstractConfig"
            raise Py4JJavaError(why, SimpleNamespace(_target_id="o1", _gateway_client=None))
        return SimpleNamespace(columns=["java_method(modeaware.Settings, names)"])


class FakeFrame:
    """Notes what the sink is given."""

    def __init__(self, *columns: str, has_jar: bool = True) -> None:
        self.columns = list(columns)
        self.sparkSession = FakeSpark(has_jar=has_jar)
        self.options_given: dict[str, str] = {}
        self.saved = False

    @property
    def write(self) -> FakeFrame:
        return self

    def format(self, name: str) -> FakeFrame:
        assert name == "kafka"
        return self

    def options(self, **given: str) -> FakeFrame:
        self.options_given |= given
        return self

    def option(self, name: str, value: str) -> FakeFrame:
        return self.options(**{name: value})

    def save(self) -> None:
        self.saved = True


@pytest.fixture(autouse=True)
def log_is_read(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    state = {"reads": True}
    monkeypatch.setattr(plug_ins, "reads_log", lambda conf: state["reads"])
    return state


@pytest.mark.parametrize("name", NAMES)
def test_the_partitioners_that_the_plug_ins_have(name: str) -> None:
    assert partitioner_in_jvm(FakeFrame("value"), CONF, rule_named(name)) == IN_JVM.get(name)


def test_what_the_plug_ins_do_not_reach(log_is_read: dict[str, bool]) -> None:
    rule = rule_named("murmur2_random")
    assert partitioner_in_jvm(FakeFrame("key", "value"), CONF, rule) == "murmur2_random"
    assert partitioner_in_jvm(FakeFrame("key", "value", has_jar=False), CONF, rule) is None
    without_kafka = FakeFrame("key", "value")
    without_kafka.sparkSession.has_kafka = False
    assert partitioner_in_jvm(without_kafka, CONF, rule) is None
    assert partitioner_in_jvm(FakeFrame("value", "Partition"), CONF, rule) is None, "Spark does not tell cases apart"
    assert partitioner_in_jvm(FakeFrame("value"), CONF, None) is None, "a partitioner of the application's own"
    log_is_read["reads"] = False
    assert partitioner_in_jvm(FakeFrame("value"), CONF, rule) is None, "the modes come over the wire"


def test_client_of_spark_connect_may_have_no_py4j(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)
    rule = rule_named("murmur2_random")
    assert partitioner_in_jvm(FakeFrame("value"), CONF, rule) == "murmur2_random"
    assert partitioner_in_jvm(FakeFrame("value", has_jar=False), CONF, rule) is None


def test_the_options_of_the_sink() -> None:
    conf = {**CONF, "modeaware.mode.log.topic": "modes", "modeaware.view.timeout.ms": 500}
    assert plug_in_options(conf, "minimal_movement", None) == {
        "kafka.partitioner.class": "modeaware.ModePartitioner",
        "kafka.interceptor.classes": "modeaware.ModeInterceptor",
        "kafka.modeaware.partitioner": "minimal_movement",
        "kafka.modeaware.mode.log.topic": "modes",
        "kafka.modeaware.view.timeout.ms": "500",
        "kafka.modeaware.on.unknown": "block",
    }
    with pytest.raises(ConfigError, match=r"modeaware\.mode\.log\.topik"):
        plug_in_options({"modeaware.mode.log.topik": "x"}, "murmur2_random", None)


def written(frame: FakeFrame, view: TopicView, **options: Any) -> tuple[bool, Mapping[str, str]]:
    follows = sink._write(view, frame, CONF, options)  # type: ignore[arg-type]  # a fake one
    assert frame.saved
    return follows, frame.options_given


def test_a_job_with_the_plug_ins_follows_and_the_interceptors_of_the_application_come_first() -> None:
    view = FakeViews().set("orders", modes_of(6, 4))
    follows, options = written(FakeFrame("key", "value"), view, **{"kafka.Interceptor.classes": "my.Own"})
    assert follows
    assert options["topic"] == "orders"
    assert options["kafka.partitioner.class"] == "modeaware.ModePartitioner"
    interceptors = {name.lower(): value for name, value in options.items() if "interceptor" in name.lower()}
    assert interceptors == {"kafka.interceptor.classes": "my.Own,modeaware.ModeInterceptor"}


def test_a_job_without_them_does_not_follow() -> None:
    whole = TopicView.unlisted("orders")
    follows, options = written(FakeFrame("key", "value", has_jar=False), whole)
    assert not follows
    assert set(options) == {"kafka.bootstrap.servers", "topic"}


def test_a_topic_without_a_writable_partition_is_refused_before_the_job() -> None:
    frame = FakeFrame("key", "value")
    with pytest.raises(PartitionRetired, match="grow the topic"):
        written(frame, FakeViews().set("orders", modes_of(6, 0)))
    assert not frame.saved
