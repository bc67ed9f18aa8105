"""Which partitions a job's records may go to."""

from __future__ import annotations

import pytest

from modeaware.errors import ConfigError
from modeaware.spark.write.placing import asks_for_partitions, partitioner_named, placing
from modeaware.topic_view import TopicView
from partitioners import NAMES, Manual
from tests.support.fake_views import FakeViews, modes_of

WHOLE = TopicView.unlisted("orders")
SHRUNK = FakeViews().set("orders", modes_of(6, 4))


@pytest.mark.parametrize("name", NAMES)
def test_while_all_are_writable_javas_own_way_is_left_alone(name: str) -> None:
    conf = {"partitioner": name}
    if name in ("murmur2_random", "sticky", "uniform_sticky"):
        assert not asks_for_partitions(WHOLE, conf)
        assert placing(WHOLE, conf, None) is None
        return
    assert asks_for_partitions(WHOLE, conf)
    made = placing(WHOLE, conf, range(7))
    assert made is not None
    assert (made.partitions, made.name, made.retired) == (tuple(range(7)), name, "")


@pytest.mark.parametrize("name", NAMES)
def test_a_shrunk_topic_has_its_writable_partitions(name: str) -> None:
    assert not asks_for_partitions(SHRUNK, {"partitioner": name})
    made = placing(SHRUNK, {"partitioner": name}, None)
    assert made is not None
    assert (made.partitions, made.dense, made.name) == ((0, 1, 2, 3), True, name)
    assert "ReadOnly 4-5" in made.retired
    assert made.rule is not None
    assert made.rule.name == name


def test_objects_are_taken_and_nonsense_is_refused() -> None:
    made = placing(SHRUNK, {"partitioner": Manual()}, None)
    assert made is not None
    assert (made.name, made.rule) == (None, None)
    for nonsense in ("murmur3", "no.such.module:thing", 7):
        with pytest.raises(ConfigError, match="partitioner"):
            partitioner_named({"partitioner": nonsense})
