"""A stream of ``format("modeaware")`` and the topics that replace one another, without Spark and without Kafka."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from modeaware.errors import ClusterError, ConfigError, ErrorCode, ModeSourceError
from modeaware.modes import PartitionMode
from modeaware.spark import datasource
from modeaware.spark.datasource import BatchReader, StreamReader, parse_options
from modeaware.spark.errors import RecordsLost
from modeaware.spark.offsets import OffsetRange, Offsets, RangesInOrder, next_positions
from modeaware.spark.progress import positions_of
from modeaware.spark.snapshot import TopicDescription
from modeaware.topic_view import ReplacedBy, TopicView
from tests.support.fake_views import modes_of
from tests.support.stories import Steps, Story

OPTIONS = {"bootstrap.servers": "127.0.0.1:1", "topic": "a", "startingoffsets": "earliest"}
COUNTS = {"a": 3, "b": 2, "c": 4}
NEXT = {"a": "b", "b": "c"}


class World:
    """The topics a, b and c, each of which replaces the one before, with what lies in them.

    Attributes:
        logs: topic and partition -> how many records it has.
        starts: topic and partition -> the log start, where it is not 0.
        deleted: the topics that are gone.
        on_absent: is called when one of them is described.
        looks: the topics that were described.
        ids, following: the id of each topic, and the one that replaces it.
    """

    def __init__(self) -> None:
        self.logs = {(topic, p): 0 for topic, count in COUNTS.items() for p in range(count)}
        self.starts: dict[tuple[str, int], int] = {}
        self.deleted: set[str] = set()
        self.on_absent: Callable[[], object] = lambda: None
        self.looks: list[str] = []
        self.ids = {topic: f"id-{topic}" for topic in COUNTS}
        self.following = dict(NEXT)
        self.views = {"a": TopicView("a", "id-a", (1, 1), modes_of(3, 3))}

    def write(self, topic: str, count: int = 1, partition: int = 0) -> None:
        self.logs[topic, partition] += count

    def change(self, topic: str, **state: Any) -> None:
        """What the record of a topic says of the new topic."""
        to, count = self.following[topic], COUNTS[topic]
        view = self.views.get(topic, TopicView(topic, self.ids[topic], (1, 1), modes_of(count, count)))
        new_topic = replace(view.replaced_by or ReplacedBy(to, self.ids[to], COUNTS[to]), **state)
        modes = modes_of(count, 0 if new_topic.switched else count)
        sealed = {**view.resume_offsets, **new_topic.read_up_to}
        self.views[topic] = replace(view, modes=modes, replaced_by=new_topic, resume_offsets=sealed)

    def seal(self, topic: str, **state: Any) -> None:
        ends = {p: end for (name, p), end in self.logs.items() if name == topic}
        self.change(topic, switched=True, read_up_to=ends, **state)

    def delete(self, topic: str) -> None:
        self.deleted.add(topic)
        self.change(topic, switched=True, released=True, gone=True, read_up_to={})

    def lead_back(self) -> None:
        """a, which is gone, is created again and replaces b."""
        self.delete("a")
        self.deleted.clear()
        self.ids["a"], self.following["b"] = "id-a-again", "a"
        self.logs.update({("a", p): 0 for p in range(COUNTS["a"])})
        self.change("b", switched=True)

    def chain(self, conf: object, topic: str, stale: bool) -> tuple[TopicView, ...]:
        found = [self.views.get(topic, TopicView.unlisted(topic))]
        while (new_topic := found[-1].replaced_by) is not None and new_topic.switched:
            following = self.views.get(new_topic.topic)
            is_known = following is not None and following.applies_to(new_topic.topic_id)
            found.append(following if is_known else TopicView(new_topic.topic, new_topic.topic_id))
        return tuple(found)


class Client:
    """What is asked of a topic, as by ``TopicClient``."""

    def __init__(self, world: World, topic: str) -> None:
        self._world = world
        self._topic = topic

    def describe(self) -> TopicDescription:
        self._world.looks.append(self._topic)
        if self._topic in self._world.deleted:
            self._world.on_absent()
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ClusterError(f"topic {self._topic} cannot be described", code=unknown)
        return TopicDescription(list(range(COUNTS[self._topic])), self._world.ids[self._topic])

    def starts(self, partitions: Any) -> dict[int, int]:
        assert self._topic not in self._world.deleted
        return {p: self._world.starts.get((self._topic, p), 0) for p in partitions}

    def ends(self, partitions: Any) -> dict[int, int]:
        assert self._topic not in self._world.deleted
        return {p: self._world.logs[self._topic, p] for p in partitions}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(datasource, "topic_chain", made.chain)
    monkeypatch.setattr(datasource, "TopicClient", lambda conf, topic: Client(made, topic))
    return made


class Query:
    """What Spark does with a reader: a log of offsets, written before each batch, and one of batches that are done.

    Attributes:
        read: each record that was read, with the batch.
        batches: the tasks of each batch.
    """

    def __init__(self, **options: str) -> None:
        self.options = parse_options({**OPTIONS, **options})
        self.offsets: list[str] = []
        self.done = 0
        self.read: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        self.batches: list[list[OffsetRange | RangesInOrder]] = []
        self.reader = StreamReader(self.options)

    def restart(self) -> None:
        """Begin again from the checkpoint, with the batch that was not done."""
        self.reader = StreamReader(self.options)
        if self.done < len(self.offsets):
            self._run()

    def step(self, *, until: str = "done") -> list[OffsetRange | RangesInOrder]:
        """Run a batch if there is anything new; ``until``: where the process is killed."""
        latest = json.dumps(self.reader.latestOffset())
        if self.offsets and latest == self.offsets[-1]:
            return []
        self.offsets.append(latest)
        return [] if until == "logged" else self._run(until)

    def _run(self, until: str = "done") -> list[OffsetRange | RangesInOrder]:
        number = self.done
        start = self.offsets[number - 1] if number else json.dumps(self.reader.initialOffset())
        asked = json.loads(start), json.loads(self.offsets[number])
        tasks = list(self.reader.partitions(*asked))
        assert list(self.reader.partitions(*asked)) == tasks, "Spark may ask again, for a frame that is used twice"
        if until == "planned":
            return tasks
        for task in tasks:
            for part in task.ranges if isinstance(task, RangesInOrder) else (task,):
                for offset in range(part.start, part.end):
                    self.read[part.topic, part.partition, offset].append(number)
        self.batches.append(tasks)
        self.done += 1
        return tasks

    def positions(self) -> dict[str, dict[int, int]]:
        return {t: dict(each) for t, each in Offsets.from_json(json.loads(self.offsets[-1])).positions.items()}


def ranges(*parts: tuple[str, int, int, int]) -> list[OffsetRange]:
    return [OffsetRange(*part) for part in parts]


class Run:
    """A query over the topics of a world, in a story."""

    def __init__(self, world: World, **options: str) -> None:
        self.world = world
        self.query = Query(**options)

    def __getattr__(self, method: str) -> Any:
        """What happens to the topics."""
        return getattr(self.world, method)

    def begins(self, **options: str) -> None:
        """The query begins now, with what the topics are by now."""
        self.query = Query(**options)

    def reads(self, *parts: tuple[str, int, int, int]) -> None:
        """A batch has one task of each of these ranges."""
        assert self.query.step() == ranges(*parts)

    def reads_in_order(self, *parts: tuple[str, int, int, int]) -> None:
        assert self.query.step() == [RangesInOrder(tuple(ranges(*parts)))]

    def step(self, until: str = "done") -> None:
        self.query.step(until=until)

    def restart(self, *batch: tuple[str, int, int, int]) -> None:
        """Begin again from the checkpoint; ``batch``: what is read then of the batch that was not done."""
        before = len(self.query.batches)
        self.query.restart()
        assert [task for tasks in self.query.batches[before:] for task in tasks] == ranges(*batch)

    def is_lost(self, match: str, *, restarting: bool = False) -> None:
        with pytest.raises(RecordsLost, match=match):
            self.query.restart() if restarting else self.query.step()

    def is_named(self, topic: str) -> None:
        self.query.options = parse_options({**OPTIONS, "topic": topic})

    def is_deleted(self, *topics: str) -> None:
        """And the controller has not noted it."""
        self.world.deleted |= set(topics)
        self.world.looks.clear()

    def has(self, **positions: dict[int, int]) -> None:
        assert self.query.positions() == positions
        assert positions_of([("PythonMicroBatchStream", json.loads(self.query.offsets[-1]))]) == positions

    def has_looked_at(self, *topics: str) -> None:
        assert set(self.world.looks) == set(topics)

    def retention(self, topic: str, first: int) -> None:
        self.world.starts[topic, 0] = first


do = Steps()
STORIES = {
    "a topic is read to its end, and then the new topic": Story(
        (do.write("a", 5), do.reads(("a", 0, 0, 5))),
        (do.change("a", switched=False), do.write("a"), do.reads(("a", 0, 5, 6))),
        (do.change("a", switched=True), do.write("b", 4, partition=1), do.reads()),  # not sealed: records may come
        # All of it before the first of the new topic.
        (do.write("a", partition=2), do.seal("a"), do.reads(("a", 2, 0, 1)), do.reads(("b", 1, 0, 4))),
        do.has(a={0: 6, 1: 0, 2: 1}, b={0: 0, 1: 4}),
    ),
    "a batch after a start that has both is one task": Story(
        (do.write("a", 5), do.write("a", 2, partition=1), do.seal("a"), do.write("b", 3)),
        do.reads_in_order(("a", 0, 0, 5), ("a", 1, 0, 2), ("b", 0, 0, 3)),
    ),
    "a topic that is released and read may be deleted": Story(
        (
            do.write("a", 5),
            do.seal("a"),
            do.step(),
            do.step(),
            do.seal("a", released=True),
            do.write("b", 2),
            do.step(),
        ),
        (do.is_deleted("a"), do.write("b"), do.reads(("b", 0, 2, 3)), do.has_looked_at("b")),
        (do.delete("a"), do.write("b"), do.reads(("b", 0, 3, 4)), do.has(b={0: 4, 1: 0})),
        (do.restart(), do.write("b"), do.reads(("b", 0, 4, 5))),
    ),
    "a topic that is deleted unread fails the query": Story(
        (do.write("a", 5), do.step(), do.write("b", 2), do.delete("a"), do.restart()),
        do.is_lost(r"has read a, which is not in the chain of a now: .*The query would continue with b"),
    ),
    "a topic that is deleted unread fails no query that may lose records": Story(
        (do.write("a", 5), do.step(), do.write("b", 2), do.delete("a"), do.restart(), do.reads(("b", 0, 0, 2))),
        failondataloss="false",
    ),
    "a query that has read all of a topic goes on after its deletion": Story(
        (do.write("a", 5), do.step(), do.seal("a", released=True, gone=True), do.is_deleted("a"), do.write("b", 2)),
        (do.restart(), do.reads(("b", 0, 0, 2))),
    ),
    "a query that has not read the topic between fails": Story(
        (do.write("a", 5), do.step(), do.write("b", 2)),
        (do.seal("a", released=True, gone=True), do.seal("b", released=True, gone=True), do.is_deleted("a", "b")),
        (do.restart(), do.is_lost("The query would continue with c")),
    ),
    "a batch of a topic that is gone is lost": Story(
        (do.step(), do.write("a", 5), do.step(until="planned"), do.seal("a", released=True, gone=True)),
        (do.is_deleted("a"), do.write("b", 2)),
        do.is_lost(r"a was replaced and deleted .* 0 of a from 0 to 5 are missing", restarting=True),
    ),
    "a query that may lose the batch of a topic that is gone goes on": Story(
        (do.step(), do.write("a", 5), do.step(until="planned"), do.seal("a", released=True, gone=True)),
        (do.is_deleted("a"), do.write("b", 2), do.restart(), do.reads(("b", 0, 0, 2))),
        failondataloss="false",
    ),
    "a query that is killed in its first batch starts again once its topic is gone": Story(
        (do.write("a", 5), do.begins(startingoffsets="latest"), do.step(until="planned")),
        (do.seal("a", released=True, gone=True), do.is_deleted("a"), do.write("b", 2)),
        (do.restart(), do.reads(("b", 0, 0, 2))),
    ),
    "a query may be renamed once it has come to the new topic": Story(
        (do.seal("a"), do.step(), do.step(), do.is_named("b"), do.restart()),
        (do.write("b"), do.reads(("b", 0, 0, 1))),
    ),
    "a query that had not come to the topic between two of one name may have lost records": Story(
        (do.write("a", 5), do.step(), do.seal("a", released=True), do.lead_back(), do.seal("b"), do.restart()),
        do.is_lost("topic a was deleted and created again: its id is id-a-again"),
    ),
    "what arrives behind a seal is read, and the new topic not again": Story(
        (do.write("a", 5), do.seal("a"), do.write("b", 3), do.step()),
        (do.write("a"), do.change("a", read_up_to={1: 0, 2: 0}), do.write("b")),  # the fence was lifted
        do.reads_in_order(("a", 0, 5, 6), ("b", 0, 3, 4)),
        (do.restart(), do.write("b"), do.reads(("b", 0, 4, 5))),
    ),
    "retention may have taken records of the new topic before a query begins": Story(
        (do.seal("a"), do.write("b", 9), do.retention("b", 4), do.begins(), do.reads(("b", 0, 4, 9)))
    ),
    "a query that is killed in its first batch skips no more than it would have": Story(
        (do.write("a", 5), do.seal("a"), do.write("b", 7), do.begins(startingoffsets="latest")),
        (do.step(until="planned"), do.seal("a", released=True), do.write("b", 2)),
        do.restart(("b", 0, 0, 7)),  # a was not released when the batch was planned
        (do.reads(("b", 0, 7, 9)), do.reads()),
    ),
    "a query that is killed in its first batch starts again once its topic is released": Story(
        # Then the beginning that Spark asks for anew is behind the new topic's records.
        (do.write("a", 5), do.begins(startingoffsets="latest"), do.step(until="planned")),
        (do.seal("a", released=True), do.write("b", 2), do.restart(), do.reads(("b", 0, 0, 2))),
    ),
    "a chain is read in order": Story(
        (do.write("a", 2), do.begins(), do.step(), do.seal("a"), do.write("b", 3), do.seal("b")),
        (do.write("c", 4, partition=3), do.reads(("b", 0, 0, 3)), do.reads(("c", 3, 0, 4)), do.reads()),
        do.has(a={0: 2, 1: 0, 2: 0}, b={0: 3, 1: 0}, c={0: 0, 1: 0, 2: 0, 3: 4}),
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_query_over_topics_that_replace_one_another(world: World, story: Story) -> None:
    story.run(partial(Run, world))


def test_offsets_name_the_ids_of_both_and_progress_has_both(world: World) -> None:
    query = Query()
    query.step()
    one = {"modeaware:offsets": 1, "modeaware:topic_ids": {"a": "id-a"}, "a": {"0": 0, "1": 0, "2": 0}}
    assert json.loads(query.offsets[0]) == one
    world.seal("a")
    query.step()
    both = {**one, "modeaware:topic_ids": {"a": "id-a", "b": "id-b"}, "b": {"0": 0, "1": 0}}
    assert json.loads(query.offsets[1]) == both, "and a batch that reads nothing shows that the query has come to b"
    assert Offsets.from_json(both) == Offsets({"a": {0: 0, 1: 0, 2: 0}, "b": {0: 0, 1: 0}}, {"a": "id-a", "b": "id-b"})
    assert positions_of([("PythonMicroBatchStream", json.loads(query.offsets[1]))]) == {
        "a": {0: 0, 1: 0, 2: 0},
        "b": {0: 0, 1: 0},
    }


@pytest.mark.parametrize("noted", ["before", "during", "after", "never"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_is_released_and_deleted_between_two_batches_fails_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, noted: str, restarted: bool
) -> None:
    """The controller lets it go, deletes it and notes that before a look at it, within one, or shortly after."""
    query = Query()
    world.write("a", 5)
    world.seal("a")
    for _ in range(2):
        world.write("b")
        query.step()
    query.step()
    if restarted:
        world.seal("a", released=True)
        query.restart()
    world.write("b", 2)
    world.deleted.add("a")
    slept: list[float] = []
    if noted == "before":
        world.delete("a")
    elif noted == "during":
        world.on_absent = lambda: world.delete("a")
    monkeypatch.setattr(datasource.time, "sleep", lambda each_s: (slept.append(each_s), world.delete("a")))
    if noted == "never" and restarted:  # what it has read is not known
        monkeypatch.setattr(datasource, "TIMEOUT_S", 0.0)
        with pytest.raises(ClusterError, match="cannot be described"):
            query.step()
        return
    if noted == "never":
        world.seal("a", released=True)
        monkeypatch.setattr(datasource.time, "sleep", lambda _s: pytest.fail("it is read"))
    assert query.step() == [OffsetRange("b", 0, 2, 4)]
    assert bool(slept) == (noted == "after")
    assert query.positions()["b"] == {0: 4, 1: 0}
    world.write("b")
    assert query.step() == [OffsetRange("b", 0, 4, 5)]


def test_a_topic_that_is_not_replaced_and_not_there_fails_a_query_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasource.time, "sleep", lambda _s: pytest.fail("nothing is waited for"))
    world.deleted.add("a")
    with pytest.raises(ClusterError, match="cannot be described"):
        Query().step()


@pytest.mark.parametrize("restarted", [True, False])
def test_a_query_that_has_read_a_topic_reads_the_next_one_of_its_name_from_its_start(
    world: World, restarted: bool
) -> None:
    query = Query()
    world.write("a", 5)
    world.seal("a", released=True)
    query.step()
    world.write("b", 4)
    query.step()
    assert list(query.positions()) == ["a", "b"]
    world.lead_back()
    world.write("b")
    world.write("a", 2)
    world.write("a", 3, partition=1)
    world.seal("b")
    if restarted:
        query.restart()
    tasks = [task for _ in range(3) for task in query.step()]
    parts = [part for task in tasks for part in getattr(task, "ranges", (task,))]
    assert parts == [OffsetRange("b", 0, 4, 5), OffsetRange("a", 0, 0, 2), OffsetRange("a", 1, 0, 3)]
    assert query.positions() == {"b": {0: 5, 1: 0}, "a": {0: 2, 1: 3, 2: 0}}


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_chain_that_is_known_too_short_fails_the_query_and_nothing_is_read_twice(world: World, strict: str) -> None:
    query = Query(failondataloss=strict)
    world.write("a", 5)
    world.seal("a")
    query.step()
    world.write("b", 4)
    query.step()
    known, world.views = world.views, {}
    world.write("b")
    with pytest.raises(ModeSourceError, match="has read b, which is not in the chain of a now"):
        query.step()
    assert len(query.offsets) == query.done, "no batch is noted while the process knows where it is"
    query.restart()
    with pytest.raises(ModeSourceError, match="delete that file"):
        query.step()
    world.views = known
    query.offsets.pop()
    query.restart()
    assert query.step() == [OffsetRange("b", 0, 4, 5)]


@pytest.mark.parametrize(("released", "skipped"), [(False, 0), (True, 7)])
def test_latest_skips_the_new_topic_of_a_topic_that_is_released(world: World, released: bool, skipped: int) -> None:
    world.write("a", 5)
    world.write("b", 7)
    world.change("a", switched=True, released=released)
    reader = StreamReader(parse_options({**OPTIONS, "startingoffsets": "latest"}))
    first = Offsets.from_json(reader.initialOffset()).positions
    assert first["a"] == {0: 5, 1: 0, 2: 0}
    assert first.get("b", {}).get(0, 0) == skipped


def test_records_that_arrive_while_a_query_starts_at_the_latest_are_of_its_second_batch(world: World) -> None:
    query = Query(startingoffsets="latest")
    world.write("a", 5)
    latest = query.reader.latestOffset
    query.reader.latestOffset = lambda: (latest(), world.write("a", 3))[0]  # type: ignore[method-assign] # in between
    assert query.step() == []
    query.reader.latestOffset = latest  # type: ignore[method-assign] # its own
    assert query.done == 1
    assert query.step() == [OffsetRange("a", 0, 5, 8)]


def test_a_position_that_is_known_waits_for_a_seal_that_was_broken() -> None:
    new_topic = ReplacedBy("b", "id-b", 2, switched=True)
    view = TopicView("a", "id-a", (1, 1), modes_of(1, 0), {0: 5}, replaced_by=new_topic)
    chain, ends = (view, TopicView("b", "id-b")), {"a": {0: 6}, "b": {0: 3}}
    assert next_positions(chain, ends, {"a": {0: 6}}, {}) == {"a": {0: 6}}
    assert next_positions(chain, ends, None, {}) == ends, "the query may have come to it"
    assert next_positions(chain, ends, {"a": {0: 6}}, {"b": {0: 1}}) == ends


class TestBatch:
    def ranges(self, **options: str) -> list[OffsetRange]:
        return list(BatchReader(parse_options({**OPTIONS, **options})).partitions())

    def test_reads_both_topics_the_earlier_one_first(self, world: World) -> None:
        world.write("b", 3)
        world.write("a", 5)
        assert self.ranges() == [OffsetRange("a", 0, 0, 5)]
        world.change("a", switched=True)
        assert self.ranges() == [OffsetRange("a", 0, 0, 5), OffsetRange("b", 0, 0, 3)]
        assert self.ranges(startingoffsets="latest") == [OffsetRange("a", 0, 0, 0)], "nothing"
        world.delete("a")
        assert self.ranges() == [OffsetRange("b", 0, 0, 3)]

    def test_offsets_by_partition_are_of_the_topic_that_is_named(self, world: World) -> None:
        world.write("a", 5)
        world.write("b", 3)
        world.change("a", switched=True)
        by_partition = json.dumps({"a": {"0": 4, "1": -2, "2": -1}})
        assert self.ranges(startingoffsets=by_partition) == [OffsetRange("a", 0, 4, 5), OffsetRange("b", 0, 0, 3)]
        assert self.ranges(endingoffsets=by_partition) == [OffsetRange("a", 0, 0, 4)]
        world.delete("a")
        with pytest.raises(ConfigError, match="endingOffsets: a was replaced by b and deleted: name b instead"):
            self.ranges(endingoffsets=by_partition)


@pytest.mark.parametrize("seed", range(100))
def test_nothing_is_lost_or_repeated_or_out_of_order_wherever_the_query_is_killed(world: World, seed: int) -> None:
    """Records that are written before a switch come in earlier batches than those of the new topic, or in one task
    before them, if the query begins before."""
    choose = random.Random(seed)
    query, topic = Query(), "a"
    phases = [("a", "switched"), ("a", "sealed"), ("b", "switched"), ("b", "sealed"), ("b", "released"), ("b", "gone")]
    if choose.random() < 0.5:
        query.step()

    def act() -> None:
        what = choose.random()
        if what < 0.5:
            world.write(topic, choose.randrange(1, 4), choose.randrange(COUNTS[topic]))
        elif what < 0.8:
            query.step()
        else:
            query.step(until=choose.choice(["logged", "planned", "done"]))
            query.restart()

    for replaced, phase in phases:
        for _ in range(choose.randrange(6)):
            act()
        if phase == "switched":
            world.change(replaced, switched=True)
            topic = NEXT[replaced]
            if choose.random() < 0.5:  # a record that was under way
                world.write(replaced)
        elif phase == "sealed":
            world.seal(replaced)
        else:
            while query.step():
                continue
            world.seal("a", released=True)
            world.seal("b", released=True)
            if phase == "gone":
                world.delete("a")
    query.restart()
    while query.step():
        continue
    expected = {(t, p, o): 1 for (t, p), end in world.logs.items() for o in range(end)}
    assert {record: len(batches) for record, batches in query.read.items()} == expected
    for tasks in query.batches:
        topics = [part.topic for task in tasks for part in getattr(task, "ranges", (task,))]
        assert len(set(topics)) < 2 or (len(tasks) == 1 and topics == sorted(topics)), tasks
    of_topic = {
        topic: {b for (t, _, _), batches in query.read.items() if t == topic for b in batches} for topic in COUNTS
    }
    for earlier, later in (("a", "b"), ("a", "c"), ("b", "c")):
        assert max(of_topic[earlier], default=0) <= min(of_topic[later], default=10**6)


# The name is kept: a -> b -> a


def reached_b(world: World, **options: str) -> Query:
    """A query that has read a, which is released, and has reached b."""
    query = Query(**options)
    world.write("a", 5)
    world.seal("a")
    query.step()
    world.write("b", 4)
    query.step()
    world.seal("a", released=True)
    assert list(query.positions()) == ["a", "b"]
    return query


def test_ids_stay_in_the_checkpoint_after_a_batch_that_was_run_again(world: World) -> None:
    """Else the next topic of that name would be read from the offsets of the deleted one."""
    query = reached_b(world)
    world.write("b")
    query.step(until="planned")
    query.restart()
    world.write("b")
    query.step()
    assert Offsets.from_json(json.loads(query.offsets[-1])).ids == {"a": "id-a", "b": "id-b"}
    world.lead_back()
    world.write("a", 9)
    world.seal("b")
    query.restart()
    tasks = [*query.step(), *query.step()]
    assert OffsetRange("a", 0, 0, 9) in tasks


@pytest.mark.parametrize("strict", ["true", "false"])
def test_late_records_of_a_deleted_topic_are_no_silent_loss(world: World, strict: str) -> None:
    query = reached_b(world, failondataloss=strict)
    world.write("a", 7)
    world.seal("a", released=True, gone=True)
    world.deleted.add("a")
    world.write("b", 2)
    query.restart()
    if strict == "true":
        with pytest.raises(RecordsLost, match="partition 0 of a from 5 to 12"):
            query.step()
    else:
        assert query.step() == [OffsetRange("b", 0, 4, 6)]


def test_late_records_of_a_deleted_topic_are_no_silent_loss_where_the_name_is_kept(world: World) -> None:
    query = reached_b(world)
    world.write("a", 7)
    world.seal("a", released=True)
    sealed = world.views["a"]
    world.lead_back()
    assert sealed.replaced_by is not None
    world.views["a"] = replace(sealed, replaced_by=replace(sealed.replaced_by, gone=True))
    world.write("a", 9)
    world.seal("b")
    query.restart()
    with pytest.raises(RecordsLost, match="partition 0 of a from 5 to 12"):
        query.step()


def test_partitions_of_a_growth_are_not_read_before_they_exist(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view lists them before brokers create them."""
    query = Query()
    world.write("a", 5)
    query.step()
    modes = (*modes_of(3, 3), PartitionMode.READ_ONLY)
    world.views["a"] = replace(world.views["a"], modes=modes, version=(1, 2))
    monkeypatch.delitem(world.logs, ("a", 3), raising=False)
    world.write("a")
    assert query.step() == [OffsetRange("a", 0, 5, 6)]
    assert BatchReader(parse_options(OPTIONS)).partitions() == [OffsetRange("a", 0, 0, 6)]


def test_records_that_arrive_while_a_query_starts_at_offsets_by_partition(world: World) -> None:
    query = Query(startingoffsets=json.dumps({"a": {"0": -1, "1": -2, "2": 0}}))
    world.write("a", 5)
    world.write("a", 1, partition=1)
    latest = query.reader.latestOffset
    query.reader.latestOffset = lambda: (latest(), world.write("a", 3))[0]  # type: ignore[method-assign] # in between
    assert query.step() == [OffsetRange("a", 1, 0, 1)]
    query.reader.latestOffset = latest  # type: ignore[method-assign] # its own
    assert query.step() == [OffsetRange("a", 0, 5, 8)]


def test_broker_that_does_not_know_new_partitions_yet_takes_none_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query()
    world.write("a", 5)
    query.step()
    monkeypatch.setitem(COUNTS, "a", 4)
    world.logs["a", 3] = 6
    query.step()
    monkeypatch.setitem(COUNTS, "a", 3)
    world.write("a")
    assert query.step() == [OffsetRange("a", 0, 5, 6)]
    world.views["a"] = replace(world.views["a"], modes=modes_of(4, 4))
    assert Query().reader.latestOffset()["a"]["3"] == 6, "nor from a process that has just begun"


@pytest.mark.parametrize(
    ("first", "second", "published"),
    [
        ({"a": 5, "b": 9}, {"a": 4, "b": 9}, {"a": 4, "b": 9}),
        ({"a": 5, "b": 9}, {"a": 5}, {"a": 5}),
        ({"a": 5, "b": 9}, {"b": 3}, {"a": 5, "b": 3}),
        ({"orders": 5}, {"payments": 7}, {"orders": 5, "payments": 7}),
    ],
)
def test_slower_of_two_sources_of_one_chain_counts(
    first: dict[str, int], second: dict[str, int], published: dict[str, int]
) -> None:
    """A source that begins with a later topic of the chain is not behind."""

    def source(ends: dict[str, int]) -> tuple[str, dict[str, Any]]:
        ids = {topic: f"id-{topic}" for topic in ends}
        return "PythonMicroBatchStream", Offsets({topic: {0: end} for topic, end in ends.items()}, ids).to_json()

    assert positions_of([source(first), source(second)]) == {topic: {0: end} for topic, end in published.items()}


def test_sources_of_spark_are_published_each() -> None:
    others = [("KafkaV2[Subscribe[x,y]]", {"x": {"0": 1}, "y": {"0": 2}}), ("KafkaV2[Subscribe[x]]", {"x": {"0": 1}})]
    assert positions_of(others) == {"x": {0: 1}, "y": {0: 2}}
