"""What librdkafka subscribes to for a member whose topics are replaced, and which events about absent topics the
application is given, over a client that answers from tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from modeaware.clients.joining import ASK_S
from modeaware.clients.named import PairedName
from modeaware.confluent.group import NOTICE_RETRY_S, NOTICE_S, POSITION_CHECK_S
from modeaware.confluent.offsets import NonMember, metadata_of
from modeaware.confluent.ownership import GroupConf
from modeaware.confluent.patterns import present
from modeaware.notes import READ
from modeaware.topic_view import Moved, ReplacedBy, TopicView
from tests.support.fake_views import modes_of, switch
from tests.support.librdkafka_member import SomeNonMember, Stock, World
from tests.support.stories import Steps, Story

REFRESH_S = 300.0
MOVED = Moved(groups=frozenset({"g"}))
RELEASED: dict[str, Any] = {"switched": True, "released": True, "moved": MOVED}
GONE: dict[str, Any] = {**RELEASED, "gone": True}
B_TO_BB = TopicView("b", "id-b", (1, 50), modes_of(2, 2), replaced_by=ReplacedBy("bb", "id-bb", 1, **RELEASED))
BACK = TopicView("b", "id-b", (1, 3), modes_of(2, 2), replaced_by=ReplacedBy("a", "id-2", 2))
"""The topic ``b`` is replaced by one of the first name."""
do = Steps()


class Subscriber(World):
    """A member that subscribes to ``a``, which ``b`` replaces."""

    def __init__(self, *, absent: tuple[str, ...] = (), config: dict[str, Any] | None = None, **conf: Any) -> None:
        super().__init__(config=config, refresh_s=REFRESH_S, **conf)
        self.stock.absent |= set(absent)

    def replaced(self, **state: Any) -> None:
        epoch = self.views.view("a").epoch + 1
        new_topic = ReplacedBy("b", state.pop("topic_id", "id-b"), 2, **state)
        self.views.put(TopicView("a", "id-a", (1, epoch), modes_of(2, 2), replaced_by=new_topic))

    def undo(self) -> None:
        epoch = self.views.view("a").epoch + 1
        self.views.put(TopicView("a", "id-a", (1, epoch), modes_of(2, 2)))

    def put(self, view: TopicView) -> None:
        self.views.put(view)

    def brokers_have(self, *topics: str) -> None:
        """The list of all topics, by another client; no topic is missing to this one."""
        self.non_member.there = set(topics)
        self.stock.absent.clear()

    def reads(self, *names: str) -> None:
        self.subscribe(*names)

    def check_reads(self, name: str) -> None:
        assert name in self.stock.subscribed

    def counts(self) -> None:
        self.non_member.closes = 0

    def has(self, topics: tuple[str, ...] | set[str] | None = None, **found: Any) -> None:
        """Check the subscription, in this order or in any, and other figures."""
        now = self.stock.subscribed
        assert topics is None or (now if isinstance(topics, tuple) else {*now}) == topics, f"subscribed to {now}"
        due_s = self.membership.due_s()
        seen = {
            "due_in_s": None if due_s is None else due_s - self.now_s,
            "lists": self.non_member.lists,
            "closes": self.non_member.closes,
        }
        shown = {name: seen[name] for name in found}
        assert shown == found

    def absent(self, topic: str, code: int = KafkaError.UNKNOWN_TOPIC_OR_PART, *, is_event: bool = False) -> None:
        """Check whether the application is given the error that a topic is absent."""

        class Event:
            topic = staticmethod(lambda: topic)
            error = staticmethod(lambda: KafkaError(code))

        message: Any = Event()
        assert self.membership.is_absence(message) is not is_event, f"{topic} {'is no' if is_event else 'is an'} event"


def left_out(pattern: str, more: set[str], later: set[str]) -> Story:
    """A topic that is released is left out of a pattern; ``more``: what else that matches, at first and then."""
    return Story(
        (do.replaced(switched=True), do.reads(pattern)),
        # The brokers have not answered which topics there are.
        (do.replaced(**RELEASED), do.poll(ASK_S), do.poll(ASK_S), do.check_reads(pattern)),
        (do.brokers_have("a", "b", "c", "not"), do.poll(2 * ASK_S), do.has({"b", *more})),
        (do.brokers_have("a", "b", "c", "not", "ax", "d"), do.poll(), do.has({"b", *more})),
        (do.poll(REFRESH_S), do.has({"b", *later}, due_in_s=REFRESH_S)),
        # librdkafka would report for ever that the topic is absent.
        (do.replaced(**GONE), do.brokers_have("b", "c", "not", "ax", "d"), do.poll(REFRESH_S)),
        (do.has({"b", *later}), do.undo(), do.poll(), do.has((pattern,), due_in_s=None)),
    )


def begins_late(pattern: str, found: tuple[str, ...], lists: int) -> Story:
    """A member begins with a pattern when the topic is gone."""
    return Story(
        (do.replaced(**GONE), do.brokers_have("b", "c"), do.reads(pattern)),
        *[(do.poll(), do.has(found))] * 3,
        do.has(lists=lists),
    )


STORIES = {
    "new topic is subscribed to once a broker has it, and the old one until it is released": Story(
        (do.reads("a"), do.replaced(), do.poll(), do.has(("a",))),
        (do.brokers_have(), do.poll(ASK_S), do.has(("a", "b"))),
        (do.replaced(switched=True), do.poll(), do.has(("a", "b"))),
        (do.replaced(**RELEASED), do.poll(), do.has(("b",), due_in_s=None)),
        absent=("b",),
    ),
    "new topic of a switch that has been is subscribed to without a question": Story(
        (do.replaced(switched=True), do.reads("a"), do.has(("a", "b"))), absent=("b",)
    ),
    "topic that comes back to the name is subscribed to once brokers have it, and its absence is no event": Story(
        (do.replaced(**GONE), do.reads("a"), do.has(("b",))),
        (do.put(BACK), do.poll(), do.has(("b",)), do.brokers_have(), do.poll(ASK_S), do.has({"a", "b"})),
        (do.poll(), do.absent("a")),
        absent=("a",),
    ),
    "pattern stays where a deleted topic that is named would be created again": Story(
        (do.replaced(switched=True), do.reads("^.$"), do.brokers_have("a", "b", "c"), do.replaced(**RELEASED)),
        (do.poll(), do.has(("^.$",), lists=0)),
        creates_topics=True,
    ),
    "absence of a topic that a pattern matched is no event and is looked up": Story(
        (do.replaced(switched=True), do.reads("^.$"), do.brokers_have("a", "b", "c"), do.replaced(**RELEASED)),
        (do.poll(), do.has({"b", "c"})),
        (do.brokers_have("a", "b"), do.absent("c"), do.absent("x", is_event=True), do.poll(), do.has({"b"})),
    ),
    "new topic of an undone replacement is no event until the application asks for it": Story(
        (do.reads("a"), do.replaced(), do.poll(), do.has(("a", "b")), do.absent("b"), do.absent("a", is_event=True)),
        (do.undo(), do.poll(), do.has(("a",)), do.absent("b"), do.absent("a", is_event=True)),
        (do.absent(PairedName.of("a", "a", "b"))),
        do.absent("b", KafkaError.TOPIC_AUTHORIZATION_FAILED, is_event=True),
        (do.reads("a", "b"), do.absent("b", is_event=True)),
    ),
    "absence of a new topic is an event where the application reads it": Story(
        (do.replaced(), do.reads("a"), do.absent("b", is_event=True)), config={"on_replace": "unordered"}
    ),
    "absence of a new topic is an event where the application names it": Story(
        (do.replaced(), do.reads("a", "b"), do.absent("b", is_event=True))
    ),
    "absence of a new topic is an event where a pattern matches it": Story(
        (do.replaced(), do.reads("^b"), do.absent("b", is_event=True))
    ),
    "member that reads what it names does not follow": Story(
        (do.replaced(switched=True), do.reads("a"), do.has(("a",)), do.replaced(**RELEASED), do.poll(), do.has(("a",))),
        config={"on_replace": "named"},
    ),
    "topic that is released is left out of the pattern ^a": left_out("^a", set(), {"ax"}),
    "topic that is released is left out of the pattern ^.$": left_out("^.$", {"c"}, {"c", "d"}),
    "topic that is released is left out of the pattern ^x|a": left_out("^x|a", set(), {"ax"}),
    "member that begins when the topic is gone subscribes to a pattern that matches the new one": begins_late(
        "^.$", ("^.$",), 1
    ),
    "member that begins when the topic is gone adds to a pattern that matches another topic": begins_late(
        "^[ac]$", ("^[ac]$", "b"), 1
    ),
    "member that begins when the topic is gone leaves a pattern that matches nothing": begins_late("^a$", ("b",), 1),
    "member that began when the topic was gone leaves out the next one": Story(
        (do.replaced(**GONE), do.brokers_have("b", "c"), do.reads("^(b|c)+$|^a"), do.poll()),
        (do.has(("^(b|c)+$|^a",)), do.put(B_TO_BB), do.brokers_have("b", "c", "bb", "cc"), do.poll(REFRESH_S)),
        do.has({"c", "cc", "bb"}),
    ),
    "client that is not answered is kept and requests less often": Story(
        (do.replaced(switched=True), do.reads("^.$"), do.replaced(**RELEASED), do.poll(), do.has(due_in_s=ASK_S)),
        (do.poll(ASK_S), do.has(due_in_s=2 * ASK_S), do.poll(2 * ASK_S), do.has(due_in_s=4 * ASK_S)),
        (do.counts(), *[do.poll(REFRESH_S)] * 10, do.has(due_in_s=REFRESH_S, closes=0)),
        (do.brokers_have("a", "b", "c"), do.poll(REFRESH_S), do.has({"b", "c"})),
    ),
    "pattern matches whole names where brokers match them": Story(
        (do.put(replace(BACK, topic="a", topic_id="id-a", replaced_by=ReplacedBy("ab", "id-ab", 2, switched=True)))),
        (do.reads("^a"), do.has(("^a", "ab"))),
        whole_names=True,
    ),
    **{
        f"pattern that is not Python's stays as it is: {pattern}": Story(
            (do.replaced(switched=True), do.reads(pattern), do.brokers_have("a", "b")),
            (do.replaced(**RELEASED), do.poll(), do.has((pattern,))),
        )
        for pattern in ("^(", "^[[:alpha:]]$", r"^(\d|.)$", r"^\D$", "^[[a]$")
    },
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_topics_that_librdkafka_subscribes_to(story: Story) -> None:
    story.run(Subscriber)


@pytest.mark.parametrize("inside", [False, True])
def test_new_topic_that_the_client_did_not_see_is_looked_at_anew_before_it_is_subscribed_to(inside: bool) -> None:
    stock = Stock()
    non_member = SomeNonMember(stock)
    non_member.sees_all, stock.absent = True, {"b"}
    assert present(stock, non_member, ["b"], inside=inside) == set()
    assert stock.renewed == ["b"] * (not inside), "within a callback, confluent_kafka would abort"
    stock.absent.clear()
    assert present(stock, non_member, ["b"], inside=inside) == {"b"}


def test_new_topics_that_are_announced_together_are_looked_up_together() -> None:
    """By the client itself: each answer may take ``fetch.wait.max.ms``, as it comes after that to a fetch."""
    stock = Stock()
    non_member = SomeNonMember(stock)
    topics = {f"u{n}" for n in range(9)}
    assert present(stock, non_member, topics, inside=False) == topics
    assert (non_member.listings, stock.listings) == ([topics], [topics])
    assert stock.renewed == [], "nothing is asked for what is known"


def test_new_topic_that_is_missing_holds_up_no_other_one() -> None:
    stock = Stock()
    stock.absent = {"u3"}
    topics = {f"u{n}" for n in range(9)}
    assert present(stock, SomeNonMember(stock), topics, inside=False) == topics - {"u3"}


def test_start_is_not_committed_over_what_the_application_has_just_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client of ours asks what is committed, and its request may overtake the application's commit."""
    world = Subscriber(auto_commit=False)
    world.replaced(switched=True, moved=MOVED, groups=frozenset({"g"}))
    world.reads("a")
    world.assign(("a", 0), ("b", 0))
    world.stock.committed_offsets["b", 0] = (3, "")

    def overtaken(partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, OFFSET_INVALID) for p in partitions]

    monkeypatch.setattr(world.non_member, "committed", overtaken)
    for _ in range(3):
        world.poll(ASK_S)
    assert world.stock.committed_offsets["b", 0] == (3, "")


def test_commits_of_the_application_from_before_the_end_was_known_are_not_set_back() -> None:
    world = Subscriber(auto_commit=False)
    world.reads("a")
    world.assign(("a", 0))
    world.stock.positions["a", 0] = 5
    world.stock.committed_offsets["a", 0] = (5, "")
    world.replaced(switched=True, groups=frozenset({"g"}), read_up_to={0: 5, 1: 5})
    for _ in range(3):
        world.poll(ASK_S)
    assert world.stock.committed_offsets["a", 0] == (5, READ)


def test_assignment_by_the_application_is_left_alone_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    world = Subscriber()
    world.replaced(switched=True)
    world.membership.assign([TopicPartition("a", 0), TopicPartition("b", 0)])
    world.poll()
    assert world.held() == {("a", 0), ("b", 0)}
    assert caplog.text.count("assign the partitions of b") == 1


def test_setting_by_which_deleted_topics_would_be_created_again() -> None:
    assert GroupConf.of({"allow.auto.create.topics": "true"}).creates_topics
    assert not GroupConf.of({}).creates_topics


def test_client_that_cannot_be_created_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(conf: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FAIL))

    monkeypatch.setattr(f"{NonMember.__module__}.Consumer", refuse)
    assert NonMember({"bootstrap.servers": "127.0.0.1:1"}, "g").topics() == frozenset()


class Unreadable(TopicPartition):
    """A commit of another client, whose metadata confluent_kafka cannot make text of."""

    @property
    def metadata(self) -> str:
        raise UnicodeDecodeError("utf-8", b"mine\xff", 4, 5, "invalid start byte")


def test_metadata_that_is_no_text_counts_as_metadata() -> None:
    assert metadata_of(Unreadable("a", 0, 5)) == "not readable"


@pytest.mark.parametrize(("creates", "requested"), [(False, ["orders"]), (True, [])])
def test_deletion_of_a_topic_that_was_assigned_is_noticed_once(creates: bool, requested: list[str]) -> None:
    """So librdkafka forgets its leader epochs; but no topic is created by that."""
    world = World("earliest", "orders", creates_topics=creates)
    world.views.set("orders", modes_of(2, 2))
    world.assign(("orders", 0))
    world.poll()
    switch(world.views, "orders", "orders-v2", 2, released=True)
    world.poll()
    assert world.stock.renewed == []
    switch(world.views, "orders", "orders-v2", 2, released=True, gone=True)
    world.poll(inside=True)
    assert world.stock.renewed == [], "within a callback confluent_kafka would abort"
    world.poll()
    world.poll()
    assert world.stock.renewed == requested


def deleted() -> World:
    """A consumer of ``orders``, which is replaced and deleted."""
    world = World("earliest", "orders")
    world.views.set("orders", modes_of(2, 2))
    world.assign(("orders", 0))
    world.poll()
    switch(world.views, "orders", "orders-v2", 2, released=True, gone=True)
    return world


def test_deletions_of_many_topics_are_noticed_over_some_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number:03}" for number in range(100)]
    world = World("earliest", *names)
    for name in names:
        world.views.set(name, modes_of(1, 1))
    world.assign(*((name, 0) for name in names))
    world.poll()
    for name in names:
        switch(world.views, name, f"{name}-v2", 1, released=True, gone=True)
    list_topics = world.stock.list_topics

    def slow(topic: str, timeout: float) -> Any:
        world.now_s += 0.005
        return list_topics(topic, timeout)

    monkeypatch.setattr(world.stock, "list_topics", slow)
    polls = 0
    while len(world.stock.renewed) < len(names):
        began_s, polls = world.now_s, polls + 1
        world.poll()
        assert world.now_s - began_s < POSITION_CHECK_S + 0.01, "no poll takes long"
        assert polls == 1 or world.membership.due_s() is not None or len(world.stock.renewed) == len(names)
    assert polls > 2


def test_deletion_is_noticed_by_the_first_broker_that_knows_of_it() -> None:
    """Brokers that do not answer, and a broker that has just started, teach librdkafka nothing."""
    world = deleted()
    world.stock.unanswered = {"orders"}
    for _ in range(2):
        world.poll()
    assert world.stock.renewed == ["orders"], "no poll takes long"
    world.now_s += NOTICE_RETRY_S
    world.stock.unanswered, world.stock.stale = set(), {"orders"}
    world.poll()
    world.now_s += NOTICE_RETRY_S
    world.stock.stale = set()
    for _ in range(3):
        world.poll()
        world.now_s += NOTICE_RETRY_S
    assert world.stock.renewed == ["orders"] * 3


def test_deletion_that_no_broker_confirms_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = deleted()
    world.stock.unanswered = {"orders"}
    for _ in range(30):
        world.poll()
        world.now_s += NOTICE_RETRY_S
    assert len(world.stock.renewed) == NOTICE_S / NOTICE_RETRY_S + 1
    assert [record.message for record in caplog.records if "no broker has confirmed the deletion" in record.message]
