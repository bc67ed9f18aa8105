"""A stream of ``format("modeaware")`` and the topics that replace one another, without Spark and without Kafka."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from modeaware.errors import ClusterError, ConfigError, ErrorCode, ModeSourceError
from modeaware.spark import datasource
from modeaware.spark.datasource import BatchReader, StreamReader, parse_options
from modeaware.spark.errors import RecordsLost
from modeaware.spark.offsets import OffsetRange, Offsets, RangesInOrder, next_positions
from modeaware.spark.progress import positions_of
from modeaware.spark.snapshot import TopicDescription
from modeaware.topic_view import Successor, TopicView
from tests.support.fake_views import modes_of

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
        """What the record of a topic says of its successor."""
        to, count = self.following[topic], COUNTS[topic]
        view = self.views.get(topic, TopicView(topic, self.ids[topic], (1, 1), modes_of(count, count)))
        successor = replace(view.successor or Successor(to, self.ids[to], COUNTS[to]), **state)
        modes = modes_of(count, 0 if successor.switched else count)
        sealed = {**view.resume_offsets, **successor.read_up_to}
        self.views[topic] = replace(view, modes=modes, successor=successor, resume_offsets=sealed)

    def seal(self, topic: str, **state: Any) -> None:
        ends = {p: end for (name, p), end in self.logs.items() if name == topic}
        self.change(topic, switched=True, read_up_to=ends, **state)

    def delete(self, topic: str) -> None:
        self.deleted.add(topic)
        self.change(topic, switched=True, let_go=True, gone=True, read_up_to={})

    def lead_back(self) -> None:
        """a, which is gone, is created again and replaces b."""
        self.delete("a")
        self.deleted.clear()
        self.ids["a"], self.following["b"] = "id-a-again", "a"
        self.logs.update({("a", p): 0 for p in range(COUNTS["a"])})
        self.change("b", switched=True)

    def segments(self, conf: object, topic: str, stale: bool) -> tuple[TopicView, ...]:
        found = [self.views.get(topic, TopicView.unlisted(topic))]
        while (successor := found[-1].successor) is not None and successor.switched:
            following = self.views.get(successor.topic)
            is_known = following is not None and following.applies_to(successor.topic_id)
            found.append(following if is_known else TopicView(successor.topic, successor.topic_id))
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
    monkeypatch.setattr(datasource, "topic_segments", made.segments)
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


def test_a_topic_is_read_to_its_end_and_then_its_successor(world: World) -> None:
    query = Query()
    world.write("a", 5)
    assert query.step() == [OffsetRange("a", 0, 0, 5)]
    world.change("a", switched=False)
    world.write("a")
    assert query.step() == [OffsetRange("a", 0, 5, 6)]
    world.change("a", switched=True)
    world.write("b", 4, partition=1)
    assert query.step() == [], "not sealed: records may still come"
    world.write("a", partition=2)
    world.seal("a")
    assert query.step() == [OffsetRange("a", 2, 0, 1)], "all of it before the first of the successor"
    assert query.step() == [OffsetRange("b", 1, 0, 4)]
    assert query.positions() == {"a": {0: 6, 1: 0, 2: 1}, "b": {0: 0, 1: 4}}


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
    assert positions_of([("PythonMicroBatchStream", query.offsets[1])]) == {"a": {0: 0, 1: 0, 2: 0}, "b": {0: 0, 1: 0}}


def test_a_batch_after_a_start_that_has_both_is_one_task(world: World) -> None:
    world.write("a", 5)
    world.write("a", 2, partition=1)
    world.seal("a")
    world.write("b", 3)
    in_order = RangesInOrder((OffsetRange("a", 0, 0, 5), OffsetRange("a", 1, 0, 2), OffsetRange("b", 0, 0, 3)))
    assert Query().step() == [in_order]


def test_a_topic_that_is_let_go_and_read_may_be_deleted(world: World) -> None:
    query = Query()
    world.write("a", 5)
    world.seal("a")
    query.step()
    query.step()
    world.seal("a", let_go=True)
    world.write("b", 2)
    query.step()
    world.deleted.add("a")  # and the controller has not noticed yet
    world.looks.clear()
    world.write("b")
    assert query.step() == [OffsetRange("b", 0, 2, 3)]
    assert set(world.looks) == {"b"}
    world.delete("a")
    world.write("b")
    assert query.step() == [OffsetRange("b", 0, 3, 4)]
    assert query.positions() == {"b": {0: 4, 1: 0}}
    query.restart()
    world.write("b")
    assert query.step() == [OffsetRange("b", 0, 4, 5)]


@pytest.mark.parametrize("noted", ["before", "during", "after", "never"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_is_let_go_and_deleted_between_two_batches_fails_nothing(
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
        world.seal("a", let_go=True)
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
        world.seal("a", let_go=True)
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


def test_a_topic_that_is_deleted_unread_fails_the_query_unless_it_may_lose_records(world: World) -> None:
    strict, lossy = Query(), Query(failondataloss="false")
    world.write("a", 5)
    strict.step()
    lossy.step()
    world.write("b", 2)
    world.delete("a")
    strict.restart()
    lossy.restart()
    with pytest.raises(RecordsLost, match=r"has read a, which a does not lead through now: .*It would go on with b"):
        strict.step()
    assert lossy.step() == [OffsetRange("b", 0, 0, 2)]


def test_a_query_that_has_read_all_of_a_topic_goes_on_after_its_deletion(world: World) -> None:
    query = Query()
    world.write("a", 5)
    query.step()
    world.seal("a", let_go=True, gone=True)
    world.deleted.add("a")
    world.write("b", 2)
    query.restart()
    assert query.step() == [OffsetRange("b", 0, 0, 2)]


def test_a_query_that_has_not_read_the_topic_between_fails(world: World) -> None:
    query = Query()
    world.write("a", 5)
    query.step()
    world.write("b", 2)
    for topic in ("a", "b"):
        world.seal(topic, let_go=True, gone=True)
    world.deleted |= {"a", "b"}
    query.restart()
    with pytest.raises(RecordsLost, match="It would go on with c"):
        query.step()


def test_a_batch_of_a_topic_that_is_gone_is_lost_and_the_query_goes_on_where_it_may(world: World) -> None:
    strict, lossy = Query(), Query(failondataloss="false")
    for query in (strict, lossy):
        query.step()
    world.write("a", 5)
    for query in (strict, lossy):
        query.step(until="planned")
    world.seal("a", let_go=True, gone=True)
    world.deleted.add("a")
    world.write("b", 2)
    with pytest.raises(RecordsLost, match=r"a was replaced and deleted .* 0 of a from 0 to 5 are missing"):
        strict.restart()
    lossy.restart()
    assert lossy.step() == [OffsetRange("b", 0, 0, 2)]


def test_a_query_that_is_killed_in_its_first_batch_starts_again_once_its_topic_is_gone(world: World) -> None:
    world.write("a", 5)
    query = Query(startingoffsets="latest")
    query.step(until="planned")
    world.seal("a", let_go=True, gone=True)
    world.deleted.add("a")
    world.write("b", 2)
    query.restart()
    assert query.batches == [[]]
    assert query.step() == [OffsetRange("b", 0, 0, 2)]


def test_a_query_may_be_renamed_once_it_has_come_to_the_successor(world: World) -> None:
    query = Query()
    world.seal("a")
    query.step()
    query.step()
    query.options = parse_options({**OPTIONS, "topic": "b"})
    query.restart()
    world.write("b")
    assert query.step() == [OffsetRange("b", 0, 0, 1)]


@pytest.mark.parametrize("restarted", [True, False])
def test_a_query_that_has_read_a_topic_reads_the_next_one_of_its_name_from_its_start(
    world: World, restarted: bool
) -> None:
    query = Query()
    world.write("a", 5)
    world.seal("a", let_go=True)
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


def test_a_query_that_had_not_come_to_the_topic_between_two_of_one_name_may_have_lost_records(world: World) -> None:
    query = Query()
    world.write("a", 5)
    query.step()
    world.seal("a", let_go=True)
    world.lead_back()
    world.seal("b")
    query.restart()
    with pytest.raises(RecordsLost, match="topic a was deleted and created again: its id is id-a-again"):
        query.step()


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
    with pytest.raises(ModeSourceError, match="has read b, to which a does not lead as far as is known now"):
        query.step()
    assert len(query.offsets) == query.done, "no batch is noted while the process knows where it is"
    query.restart()
    with pytest.raises(ModeSourceError, match="delete that file"):
        query.step()
    world.views = known
    query.offsets.pop()
    query.restart()
    assert query.step() == [OffsetRange("b", 0, 4, 5)]


def test_what_arrives_behind_a_seal_is_read_and_the_successor_not_again(world: World) -> None:
    query = Query()
    world.write("a", 5)
    world.seal("a")
    world.write("b", 3)
    query.step()
    world.write("a")  # the fence was lifted
    world.change("a", read_up_to={1: 0, 2: 0})
    world.write("b")
    assert query.step() == [RangesInOrder((OffsetRange("a", 0, 5, 6), OffsetRange("b", 0, 3, 4)))]
    query.restart()
    world.write("b")
    assert query.step() == [OffsetRange("b", 0, 4, 5)]


def test_retention_may_have_taken_records_of_the_successor_before_a_query_is_new(world: World) -> None:
    world.seal("a")
    world.write("b", 9)
    world.starts["b", 0] = 4
    query = Query()
    assert query.step() == [OffsetRange("b", 0, 4, 9)]


@pytest.mark.parametrize(("let_go", "skipped"), [(False, 0), (True, 7)])
def test_latest_skips_the_successor_of_a_topic_that_is_let_go(world: World, let_go: bool, skipped: int) -> None:
    world.write("a", 5)
    world.write("b", 7)
    world.change("a", switched=True, let_go=let_go)
    reader = StreamReader(parse_options({**OPTIONS, "startingoffsets": "latest"}))
    first = Offsets.from_json(reader.initialOffset()).positions
    assert first["a"] == {0: 5, 1: 0, 2: 0}
    assert first.get("b", {}).get(0, 0) == skipped


def test_a_query_that_is_killed_in_its_first_batch_skips_no_more_than_it_would_have(world: World) -> None:
    world.write("a", 5)
    world.seal("a")
    world.write("b", 7)
    query = Query(startingoffsets="latest")
    query.step(until="planned")
    world.seal("a", let_go=True)
    world.write("b", 2)
    query.restart()
    assert query.batches == [[OffsetRange("b", 0, 0, 7)]], "a was not let go when the batch was planned"
    assert query.step() == [OffsetRange("b", 0, 7, 9)]
    assert query.step() == []


def test_a_query_that_is_killed_in_its_first_batch_starts_again_once_its_topic_is_let_go(world: World) -> None:
    """Then the beginning that Spark asks for anew is behind the successor's records."""
    world.write("a", 5)
    query = Query(startingoffsets="latest")
    query.step(until="planned")
    world.seal("a", let_go=True)
    world.write("b", 2)
    query.restart()
    assert query.batches == [[]]
    assert query.step() == [OffsetRange("b", 0, 0, 2)]


def test_records_that_arrive_while_a_query_starts_at_the_latest_are_of_its_second_batch(world: World) -> None:
    query = Query(startingoffsets="latest")
    world.write("a", 5)
    latest = query.reader.latestOffset
    query.reader.latestOffset = lambda: (latest(), world.write("a", 3))[0]  # type: ignore[method-assign] # in between
    assert query.step() == []
    query.reader.latestOffset = latest  # type: ignore[method-assign] # its own
    assert query.done == 1
    assert query.step() == [OffsetRange("a", 0, 5, 8)]


def test_a_chain_is_read_in_order(world: World) -> None:
    world.write("a", 2)
    query = Query()
    query.step()
    world.seal("a")
    world.write("b", 3)
    world.seal("b")
    world.write("c", 4, partition=3)
    assert [query.step() for _ in range(3)] == [[OffsetRange("b", 0, 0, 3)], [OffsetRange("c", 3, 0, 4)], []]
    assert positions_of([("PythonMicroBatchStream", query.offsets[-1])])["c"] == {0: 0, 1: 0, 2: 0, 3: 4}


def test_a_position_that_is_known_waits_for_a_seal_that_was_broken() -> None:
    successor = Successor("b", "id-b", 2, switched=True)
    view = TopicView("a", "id-a", (1, 1), modes_of(1, 0), {0: 5}, successor=successor)
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
        with pytest.raises(ConfigError, match="endingOffsets: a is gone, and b has replaced it: name that topic"):
            self.ranges(endingoffsets=by_partition)


@pytest.mark.parametrize("seed", range(100))
def test_nothing_is_lost_or_repeated_or_out_of_order_wherever_the_query_is_killed(world: World, seed: int) -> None:
    """Records that are written before the switch to a successor come in earlier batches than those of it, or in one
    task before them, if the query begins before."""
    choose = random.Random(seed)
    query, topic = Query(), "a"
    phases = [("a", "switched"), ("a", "sealed"), ("b", "switched"), ("b", "sealed"), ("b", "let go"), ("b", "gone")]
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
            world.seal("a", let_go=True)
            world.seal("b", let_go=True)
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
