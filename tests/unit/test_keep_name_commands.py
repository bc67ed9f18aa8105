"""``replace --keep-name``, ``--stay`` and ``keep_name`` of files: requests, what is shown, and what a wait comes to."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from modeaware import cli
from modeaware.admin.new_topics import Accepted, TopicReplacement
from modeaware.admin.replacements import by_topic_asked, check_consequences, creating_broker, replace_commands
from modeaware.cli.certificates import CertificateFolder
from modeaware.cli.declared import diff_of
from modeaware.cli.outcome import Watch, outcome
from modeaware.cli.progress import Progress
from modeaware.controller.status import Role, Snapshot, TopicSeen
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.interim import interim_name
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.keep_name import kept, kept_names
from modeaware.lifecycle.second_half import second_half_of
from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.monitoring.status_json import status_of
from modeaware.plan.diff import IN_PROGRESS, PENDING, REFUSED, UNCHANGED, CurrentTopic
from modeaware.plan.file import DesiredTopic, read_topics
from modeaware.plan.replacement import plan_replacement, replacement_text
from modeaware.plan.steps import Replace
from modeaware.reports import describe as describing
from modeaware.reports.certificate import take_certificate
from modeaware.reports.describe import TopicDescription, describe_all_parts, describe_text
from modeaware.reports.session import ModeLog
from modeaware.reports.status import status_report
from modeaware.topic_view import ReplacedBy
from modeaware.wire.messages import TopicResult
from modeaware.wire.retries import Deadline, Retrying, RetryPolicy
from tests.support.modelog import fold
from tests.unit.test_cli_display import session_with
from tests.unit.test_replace_plan import FOUND, ON, FakeChange, described
from tests.unit.test_replace_plan import run as run

INTERIM, INTERIM_ID = interim_name("orders", "id"), "id-2"
COMMAND = ReplaceTopicCommand("orders", INTERIM, 4, delay_ms=0, keep_name=True)
RO = PartitionMode.READ_ONLY
BEGUN = Replacement(INTERIM, 4, 1_000, delay_ms=0, keep_name=True, new_topic_id=INTERIM_ID, announced_ms=2_000)
SWITCHED = replace(BEGUN, switched_ms=5_000)
GONE = replace(SWITCHED, released_ms=6_000, deleting_ms=7_000, gone_ms=8_000)
FIRST = TopicRecord("orders", "id", 3, 1, (RO,) * 12, replacement=BEGUN)
BACK = Replacement("orders", 4, 9_000, delay_ms=0, keep_name=True, new_topic_id="id-3", announced_ms=9_500)
SECOND = TopicRecord(INTERIM, INTERIM_ID, 3, 1, (RO,) * 4, replacement=BACK)
LED_BACK = replace(BACK, switched_ms=10_000)
OVER = replace(BACK, switched_ms=10_000, released_ms=11_000, deleting_ms=12_000, gone_ms=13_000)


def first(now: Replacement) -> TopicRecord:
    return replace(FIRST, replacement=now)


def second(now: Replacement) -> TopicRecord:
    return replace(SECOND, replacement=now)


def log_of(*records: TopicRecord) -> ModeLog:
    return ModeLog("modes", fold([(record.topic_id, record.to_json()) for record in records]))


# What reports show


@pytest.mark.parametrize(
    ("records", "half", "phase", "times"),
    [
        ([first(BEGUN)], 1, "announce", (None, None, None, None)),
        ([first(SWITCHED)], 1, "drain", (5_000, None, None, None)),
        ([first(GONE)], 2, "gap", (5_000, 8_000, None, None)),
        ([first(GONE), second(BACK)], 2, "announce", (5_000, 8_000, None, None)),
        ([first(GONE), second(replace(BACK, switched_ms=10_000))], 2, "drain", (5_000, 8_000, 10_000, None)),
        ([second(OVER)], 2, "done", (None, None, 10_000, 13_000)),
    ],
)
def test_both_halves_are_reported_as_one_change(
    records: list[TopicRecord], half: int, phase: str, times: tuple[int | None, ...]
) -> None:
    found = kept("orders", records)
    assert found is not None
    assert (found.interim, found.half, found.phase, found.keeps) == (INTERIM, half, phase, True)
    shown = (found.first_switched_ms, found.first_gone_ms, found.second_switched_ms, found.second_gone_ms)
    assert shown == times


def test_change_that_stays_on_its_interim_topic_is_reported_as_such() -> None:
    stays = kept("orders", [first(replace(GONE, keep_name=False))])
    assert stays is not None
    assert not stays.keeps
    assert kept("orders", [first(replace(GONE, new_topic="orders-v2", keep_name=False))]) is None
    earlier = replace(second(OVER), topic="orders.modeaware-0000", topic_id="id-0")
    new = kept("orders", [earlier, first(BEGUN)])
    assert new is not None
    assert (new.interim, new.half) == (INTERIM, 1), "the alias of an earlier interim topic has not ended"


def test_description_of_the_topic_has_both_switches() -> None:
    change = kept("orders", [first(GONE), second(replace(BACK, reason="rename-refused"))])
    text = describe_text([replace(described(None, "done"), kept_name=change)], expand=False)
    assert f"Keeps the name orders, via {INTERIM}: half 2 of 2, phase announce; first switch 1970" in text
    assert "Waits: the new topic with the kept name is refused, by the brokers or by a rule" in text
    waits = replace(GONE, reason="known-by-clients")
    text = describe_text([part("orders", waits, "done", first(waits))], expand=False)
    assert text.count("Waits:") == 1, "the alias itself shows it"


def test_progress_names_the_half_and_the_gap_between_the_halves() -> None:
    out = io.StringIO()
    progress = Progress(out)
    waits = replace(GONE, reason="known-by-clients")
    progress.show(part("orders", SWITCHED, "drain", first(SWITCHED)))
    progress.show(part("orders", waits, "done", first(waits)))
    progress.show(replace(part(INTERIM, BACK, "announce", first(GONE), second(BACK)), topic="orders"))
    in_first, in_gap, in_second = (line.split(" ", 1)[1] for line in out.getvalue().splitlines())
    assert in_first.startswith("orders: half 1 of 2: drain")
    assert in_gap.startswith("orders: half 2 of 2: gap; ")
    assert "done" not in in_gap
    assert in_second.startswith("orders: half 2 of 2: announce")


def test_changes_of_kept_names_are_found_by_the_name_and_by_the_interim_topic() -> None:
    other = replace(FIRST, topic="payments", topic_id="p", replacement=replace(BEGUN, new_topic="payments-v2"))
    earlier = replace(second(OVER), topic="orders.modeaware-0000", topic_id="id-0")
    found = kept_names([first(GONE), second(BACK), other, earlier])
    assert {part: change.half for part, change in found.items()} == {"orders": 2, INTERIM: 2}
    assert (found["orders"].name, found["orders"].num_partitions) == ("orders", 4)


def part(topic: str, now: Replacement | None, phase: str, *records: TopicRecord) -> TopicDescription:
    """What describes a topic that is a part of the change."""
    return replace(described(now, phase, not_moved=()), topic=topic, kept_name=kept_names(records).get(topic))


@pytest.mark.parametrize(
    ("topic", "half", "phase", "waits", "command"),
    [
        (part("orders", SWITCHED, "drain", first(SWITCHED)), 1, "drain", None, None),
        (part("orders", GONE, "done", first(GONE)), 2, "gap", None, None),
        (
            part("orders", None, "done", first(replace(GONE, reason="name-taken"))),
            *(2, "gap", "another topic has the name of the alias", "modeaware topics --describe --topic orders"),
        ),
        (
            part("orders", None, "done", first(replace(GONE, reason="group-stateful:quix"))),
            *(2, "gap", "group 'quix' keeps state", "modeaware replace orders --accept-state-loss quix"),
        ),
        (
            part(INTERIM, replace(BACK, reason="fence-unknown"), "announce", first(GONE), second(BACK)),
            *(2, "announce", "not every leader", f"--topic {INTERIM}"),
        ),
    ],
)
def test_status_shows_the_change_as_one_under_the_kept_name(
    topic: TopicDescription, half: int, phase: str, waits: str | None, command: str | None
) -> None:
    (change,) = status_report([topic], lambda *words: " ".join(words)).changes
    expected = f"replacement via {INTERIM} (4) that keeps the name, half {half} of 2"
    assert (change.topic, change.change, change.phase) == ("orders", expected, phase)
    (waiting,) = change.waiting
    assert (waiting.waits_for is None, waiting.next is None) == (waits is None, command is None)
    assert (waits or "") in (waiting.waits_for or "")
    assert (waiting.next or "").endswith(command or "")


def test_obstacle_to_the_second_half_is_an_alarm_of_the_topic() -> None:
    waits = first(replace(GONE, reason="rename-refused"))
    assert "is refused" in str(part("orders", None, "done", waits).alarm)
    stays = first(replace(GONE, reason="name-taken", keep_name=False))
    assert part("orders", None, "done", stays).alarm is None


def test_command_for_a_group_with_state_that_is_shown_for_the_interim_topic_works(run: Run) -> None:
    waits = second(replace(BACK, reason="group-stateful:quix"))
    (change,) = status_report(
        [part(INTERIM, waits.replacement, "announce", waits)], lambda *words: " ".join(words)
    ).changes
    (waiting,) = change.waiting
    assert waiting.next == f"modeaware replace {INTERIM} --accept-state-loss quix"
    asked = changing(first(GONE), waits, orders=NEW)
    assert run(asked, *str(waiting.next).split()[2:], "--yes") == 0
    command = sent_by(asked)
    assert (command.topic, command.new_topic, command.accept_state_loss) == (INTERIM, "orders", ("quix",))
    assert command.keep_name


def test_status_shows_what_is_left_of_a_change_that_was_taken_back_or_is_over() -> None:
    undone = replace(BEGUN, undone_ms=3_000)
    (change,) = status_report([part("orders", undone, "announce", first(undone))], str).changes
    assert change.change == f"undo of the replacement by {INTERIM}"
    stays = first(replace(GONE, keep_name=False))
    over = (part("orders", stays.replacement, "done", stays), part("orders", None, "done", second(OVER)))
    assert not status_report(over, str).changes


@pytest.mark.parametrize(
    ("records", "named", "looked"),
    [
        ([first(SWITCHED)], ["orders"], [["orders"]]),
        ([first(GONE)], ["orders"], [["orders"]]),
        ([first(GONE)], None, [None, ["orders"]]),
        ([first(GONE), second(BACK)], ["orders"], [["orders"], [INTERIM]]),
        ([second(OVER)], None, [None]),
    ],
)
def test_description_of_all_parts_has_the_topic_that_the_change_is_about_now(
    records: list[TopicRecord], named: list[str] | None, looked: list[list[str] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str] | None] = []

    def describe(_session: object, topics: list[str] | None, _log: ModeLog) -> list[TopicDescription]:
        calls.append(topics)
        return [part(topic, None, "done", *records) for topic in topics or ()]

    monkeypatch.setattr(describing, "describe_topics", describe)
    found = describe_all_parts(cast(Any, None), named, log_of(*records))
    assert calls == looked
    assert [topic.topic for topic in found] == [topic for topics in looked for topic in topics or ()]


def test_page_shows_the_change_in_both_halves_and_between_them() -> None:
    topics = [TopicSeen(first(replace(GONE, reason="name-taken"))), TopicSeen(replace(SECOND, topic="other"))]
    between, _ = status_of(Snapshot(20_000, "c", Role.ACTIVE, topics=tuple(topics)))["topics"]
    assert (between["phase"], between["kept_name"]["half"]) == ("gap", 2)
    assert between["change"] == f"replacement via {INTERIM} (4) that keeps the name, half 2 of 2"
    assert [one["code"] for one in between["blocked"]] == ["name-taken"]
    topics = [TopicSeen(first(GONE)), TopicSeen(second(BACK))]
    alias, interim = status_of(Snapshot(20_000, "c", Role.ACTIVE, topics=tuple(topics)))["topics"]
    assert (alias["phase"], interim["phase"]) == ("done", "announce")
    assert interim["change"].endswith("half 2 of 2")


# A wait


def of_wait(*records: TopicRecord, phase: str, now: Replacement | None) -> TopicDescription:
    shown = replace(described(cast(Any, now), phase), partitions=cast(Any, ("p",) * 12))
    return replace(shown, kept_name=kept("orders", records))


def test_wait_ends_with_the_second_half() -> None:
    watch = Watch([Replace(12, COMMAND)])
    assert not watch.ended(of_wait(first(SWITCHED), phase="drain", now=SWITCHED))
    assert not watch.ended(of_wait(first(GONE), phase="done", now=GONE)), "the old topic is gone, the name is not back"
    assert not watch.ended(of_wait(first(GONE), second(BACK), phase="announce", now=BACK))
    assert watch.ended(of_wait(second(OVER), phase="done", now=None))
    (told,) = outcome(cast(Any, SimpleNamespace()), "orders", watch)
    assert told == f"orders: keeps its name, with 4 partitions; 8 fewer partitions. {INTERIM} was deleted."


def test_wait_ends_where_retention_decides_when_the_old_topic_goes() -> None:
    released = replace(SWITCHED, released_ms=6_000, delay_ms=None)
    watch = Watch([Replace(12, replace(COMMAND, delay_ms=None))])
    assert watch.ended(of_wait(first(released), phase="reclaim", now=released))
    assert watch.awaits_retention
    (told,) = outcome(cast(Any, SimpleNamespace()), "orders", watch)
    assert told.endswith("its own retention has emptied it. Then a new topic gets the name orders.")


def test_wait_fails_where_the_change_was_taken_back() -> None:
    watch = Watch([Replace(12, COMMAND)])
    assert not watch.ended(of_wait(first(BEGUN), phase="announce", now=BEGUN))
    assert watch.ended(described(None, "done"))
    with pytest.raises(ModeAwareError, match="given up or undone"):
        outcome(cast(Any, SimpleNamespace()), "orders", watch)


# Certificates


class Certificates:
    """What stands in place of certificates: ``asked`` for which topics, ``of`` which ones they are, and the errors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.of: dict[str, str] = {}
        self.errors: list[ModeAwareError] = []

        def take(session: None, name: str) -> Any:
            self.asked.append(name)
            if self.errors:
                raise self.errors.pop()
            return replace(described(None, "done"), topic=self.of.get(name, name))

        monkeypatch.setattr("modeaware.cli.certificates.take_certificate", take)
        monkeypatch.setattr("modeaware.cli.certificates.Session", lambda *_: nullcontext())


@pytest.fixture
def certificates(monkeypatch: pytest.MonkeyPatch) -> Certificates:
    return Certificates(monkeypatch)


NO_SESSION = cast(Any, SimpleNamespace(conf=None, config=None, controller=None))
HALVES = (
    of_wait(first(SWITCHED), phase="drain", now=SWITCHED),
    of_wait(first(GONE), phase="done", now=GONE),
    of_wait(first(GONE), second(BACK), phase="announce", now=BACK),
    of_wait(second(OVER), phase="done", now=None),
)


def test_wait_writes_the_certificate_of_each_half_when_its_topic_is_deleted(
    certificates: Certificates, tmp_path: Path
) -> None:
    folder = CertificateFolder(tmp_path, NO_SESSION)
    written = []
    for look in HALVES:
        folder.write(look)
        written.append(sorted(file.name for file in tmp_path.iterdir()))
    of_old, of_interim = "orders.json", f"{INTERIM}.json"
    assert written == [[], [of_old], [of_old], [of_old, of_interim]]
    assert certificates.asked == ["orders", INTERIM]
    assert json.loads((tmp_path / of_interim).read_text())["topic"] == INTERIM


def test_wait_writes_the_certificate_of_a_topic_that_is_replaced(certificates: Certificates, tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, NO_SESSION)
    folder.write(described(None, "done"))
    folder.write(described(replace(SWITCHED, keep_name=False), "drain"))
    assert certificates.asked == []
    folder.write(described(replace(GONE, keep_name=False), "done"))
    assert certificates.asked == ["orders"]
    assert (tmp_path / "orders.json").exists()


def test_certificate_that_brokers_do_not_answer_is_taken_by_the_next_look(
    certificates: Certificates, tmp_path: Path
) -> None:
    folder = CertificateFolder(tmp_path, NO_SESSION)
    certificates.errors = [ClusterError("no answer")]
    with pytest.raises(ClusterError):
        folder.write(HALVES[1])
    folder.write(HALVES[2])
    assert (tmp_path / "orders.json").exists()


def test_certificate_that_is_missing_is_reported_once_and_fails_nothing(
    certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = CertificateFolder(tmp_path, NO_SESSION)
    certificates.errors = [RequestRefused("another tool has deleted it")]
    folder.write(HALVES[1])
    folder.write(HALVES[2])
    assert capsys.readouterr().err == "orders: no certificate: another tool has deleted it\n"
    certificates.of = {"orders": INTERIM}
    late = CertificateFolder(tmp_path, NO_SESSION)
    late.write(HALVES[3])
    late.write(HALVES[3])
    told = capsys.readouterr().err
    assert told.count("orders: no certificate: its record is no longer in the mode log") == 1
    assert [file.name for file in tmp_path.iterdir()] == [f"{INTERIM}.json"]


def test_certificate_of_a_kept_name_has_the_times_of_both_switches() -> None:
    deleted = replace(first(GONE), retired={0: RetiredPartition(seal_offset=10)})

    def look(topics: dict[str, Any], _: object) -> dict[str, TopicFacts]:
        return {topic: TopicFacts(topic, shape.topic_id) for topic, (shape, _) in topics.items()}

    kept = take_certificate(session_with(log_of(deleted, second(LED_BACK)), "id-3", look), "orders").kept_name
    assert kept is not None
    shown = (kept.name, kept.interim, kept.half, kept.first_switched_ms, kept.second_switched_ms)
    assert shown == ("orders", INTERIM, 2, 5_000, 10_000)


# The plan


def test_plan_has_the_steps_for_clients_without_modes() -> None:
    facts = TopicFacts("orders", "id", 6)
    command = replace(COMMAND, configs=dict(FOUND.configs), delay_ms=None)
    told = "\n".join(replacement_text(plan_replacement(command, facts, FOUND, {}, 10_000)))
    for words in (
        f"Keeps its name: orders (6) -> {INTERIM} (4) -> orders (4), carried out by the controller.",
        f"Retention has to empty orders, then {INTERIM}",
        f"modeaware groups prepare GROUP --topic {INTERIM}",
        "Stop them. Then: modeaware groups prepare GROUP --topic orders",
        "Their producers write nothing in between: for twice the retention time",
    ):
        assert words in told
    assert "10 minutes" not in told
    more = plan_replacement(replace(command, num_partitions=9), facts, FOUND, {}, 10_000)
    assert "10 minutes after the old orders is deleted" in "\n".join(replacement_text(more))


@pytest.mark.parametrize(
    ("after", "delay_ms", "stopped"), [(4, 0, "67s"), (4, 60_000, "165s"), (9, 0, "622s"), (9, 3_600_000, "130m")]
)
def test_plan_says_how_long_producers_without_modes_are_stopped(after: int, delay_ms: int, stopped: str) -> None:
    """Two pauses of 11 s or two delays, and 45 s or 10 min in between."""
    command = replace(COMMAND, configs=dict(FOUND.configs), delay_ms=delay_ms, num_partitions=after)
    plan = plan_replacement(command, TopicFacts("orders", "id", 6), FOUND, {}, 10_000)
    (line,) = [line for line in replacement_text(plan) if "Their producers write nothing" in line]
    assert f"for {stopped} at least" in line


# Brokers that create topics


class Configured:
    """Brokers with this value of ``auto.create.topics.enable``; ``error``: what they answer instead."""

    def __init__(self, *values: str, error: int = 0) -> None:
        self.values, self.error = values, error

    def ask(self, _: Any) -> Any:
        listed = [SimpleNamespace(broker_id=n, rack=None, is_fenced=False) for n in range(len(self.values))]
        return SimpleNamespace(error_code=0, error_message=None, brokers=listed)

    def ask_each(self, asks: list[Any]) -> list[Any]:
        return [
            SimpleNamespace(
                results=[
                    SimpleNamespace(
                        error_code=self.error,
                        error_message=None,
                        configs=[SimpleNamespace(value=self.values[ask.node_id])],
                    )
                ]
            )
            for ask in asks
        ]


def check(command: ReplaceTopicCommand, brokers: Configured, *, accepted: bool = False) -> None:
    accepts = Accepted(auto_create=accepted)
    creates = partial(creating_broker, cast(Any, brokers))
    check_consequences(command, accepts, lambda: None, list, creates, "b:1")


def test_name_is_not_kept_where_a_broker_creates_topics_unless_that_is_accepted() -> None:
    brokers = Configured("false", "true")
    with pytest.raises(RequestRefused, match=r"broker 1 creates topics automatically.*--accept-auto-create") as refused:
        check(COMMAND, brokers)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    check(COMMAND, brokers, accepted=True)
    check(COMMAND, Configured("false", "false"))
    check(replace(COMMAND, keep_name=False), brokers)
    with pytest.raises((RequestRefused, ClusterError), match=r"auto\.create\.topics\.enable"):
        check(COMMAND, Configured("true", error=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))


def test_request_of_a_program_names_the_interim_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(FOUND, topic_id="id")
    monkeypatch.setattr(
        "modeaware.admin.replacements.describe_old_topics", lambda _, topics: dict.fromkeys(topics, found)
    )
    monkeypatch.setattr("modeaware.admin.replacements.topic_names", lambda _: [])
    monkeypatch.setattr("modeaware.admin.replacements.read_acls", lambda _: None)
    monkeypatch.setattr("modeaware.admin.replacements.creating_broker", lambda _: None)
    wanted = {"orders": TopicReplacement("orders", 4, keep_name=True)}

    def made(under_way: dict[str, ReplacedBy]) -> ReplaceTopicCommand:
        retrying = partial(Retrying, Deadline(30.0), RetryPolicy(), sleep=lambda _: None)
        (command,), failures = replace_commands(cast(Any, None), wanted, under_way, "b:1", retrying)
        assert failures == {}
        return command

    assert (made({}).new_topic, made({}).keep_name) == (INTERIM, True)
    assert made({"orders": ReplacedBy(INTERIM, INTERIM_ID, 4, switched=True)}).new_topic == INTERIM
    # The old topic is gone: the repetition is about the interim topic, and its answer about the topic asked for.
    again = made({"orders": ReplacedBy(INTERIM, INTERIM_ID, 4, switched=True, gone=True)})
    assert (again.topic, again.new_topic, again.keep_name) == (INTERIM, "orders", True)
    answers = by_topic_asked([again], {INTERIM: TopicResult(INTERIM, message="m")}, wanted)
    assert answers == {"orders": TopicResult("orders", message="m")}
    refused = RequestRefused("no", code=ErrorCode.POLICY_VIOLATION, topic=INTERIM)
    assert by_topic_asked([again], {INTERIM: refused}, wanted) == {"orders": refused}


# The command


Run = Callable[..., int]
OLD = TopicFacts("orders", "id", 12, partitions=dict.fromkeys(range(12), ON))
BETWEEN = TopicFacts(INTERIM, INTERIM_ID, 4, partitions=dict.fromkeys(range(4), ON))
ABSENT = TopicFacts("orders", None)
NEW = TopicFacts("orders", "id-3", 4, partitions=dict.fromkeys(range(4), ON))


def changing(*records: TopicRecord, orders: TopicFacts = OLD) -> FakeChange:
    facts = {"orders": orders} | ({INTERIM: BETWEEN} if records else {})
    change = FakeChange(log_of(*records), facts=facts)
    sent = change.send

    def send(steps: list[Replace]) -> dict[str, ModeAwareError | None]:
        change.asked.append([step.command for step in steps])
        return sent(steps)

    cast(Any, change).send = send
    return change


@pytest.fixture(autouse=True)
def _brokers_create_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modeaware.cli.replace.creating_broker", lambda _: None)


def sent_by(change: FakeChange) -> ReplaceTopicCommand:
    (command,) = change.asked[-1]
    assert isinstance(command, ReplaceTopicCommand)
    return command


def test_first_request_is_for_the_interim_topic(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    change = changing()
    assert run(change, "orders", "--partitions", "4", "--keep-name", "--delay", "0s", "--yes") == 0
    command = sent_by(change)
    assert (command.topic, command.new_topic, command.num_partitions) == ("orders", INTERIM, 4)
    assert (command.keep_name, command.delay_ms, command.undo) == (True, 0, False)
    assert "Keeps its name: orders (12)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("records", "orders", "options", "expected"),
    [
        pytest.param([first(BEGUN)], OLD, ["--undo"], replace(COMMAND, delay_ms=None, undo=True), id="undone"),
        pytest.param([first(SWITCHED)], OLD, ["--stay"], replace(COMMAND, delay_ms=None, keep_name=False),
                     id="stays, before the old topic is deleted"),
        pytest.param([first(replace(SWITCHED, keep_name=False))], OLD, ["--keep-name"], replace(COMMAND, delay_ms=None),
                     id="keeps its name after all"),
        pytest.param([first(GONE)], ABSENT, ["--stay"], replace(second_half_of(first(GONE)), undo=True),
                     id="stays, between the halves"),
        pytest.param([first(GONE), second(BACK)], NEW, ["--stay"], replace(second_half_of(first(GONE)), undo=True),
                     id="stays, in the second half"),
        pytest.param([first(replace(GONE, keep_name=False))], ABSENT, ["--keep-name"], second_half_of(first(GONE)),
                     id="keeps its name after all, after the deletion"),
        pytest.param([first(GONE)], ABSENT, ["--accept-state-loss", "quix"],
                     replace(second_half_of(first(GONE)), accept_state_loss=("quix",)),
                     id="accepts a loss of state, between the halves"),
        pytest.param([first(GONE), second(BACK)], NEW, ["--accept-state-loss", "quix"],
                     replace(second_half_of(first(GONE)), accept_state_loss=("quix",)),
                     id="accepts a loss of state, in the second half"),
    ],
)  # fmt: skip
def test_where_a_change_ends_is_said_to_the_half_that_is_under_way(
    records: list[TopicRecord], orders: TopicFacts, options: list[str], expected: ReplaceTopicCommand, run: Run
) -> None:
    change = changing(*records, orders=orders)
    assert run(change, "orders", *options, "--yes") == 0
    assert sent_by(change) == expected


@pytest.mark.parametrize("records", [[first(GONE)], [first(GONE), second(BACK)]])
def test_repetition_in_the_second_half_waits_for_it_and_sends_nothing(
    records: list[TopicRecord], run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("modeaware.cli.replace.current_topics", lambda *_: current(4, "id-3"))
    change = changing(*records, orders=NEW if len(records) > 1 else ABSENT)
    assert run(change, "orders", "--partitions", "4", "--keep-name", "--yes") == 0
    assert change.replaced == []
    assert "nothing to do" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("records", "orders", "options", "told"),
    [
        ([], OLD, ["--stay"], "--stay works only after the first switch"),
        ([first(BEGUN)], OLD, ["--stay"], "before that switch, pass --undo"),
        ([first(SWITCHED)], OLD, ["--undo"], "end the change there (--stay)"),
        ([first(GONE)], ABSENT, ["--undo"], "end the change there (--stay)"),
        ([first(GONE), second(LED_BACK)], NEW, ["--undo"], "producers already write to the new topic of this name"),
        ([first(GONE), second(LED_BACK)], NEW, ["--stay"], "so nothing can be undone: for another partition count"),
        ([first(GONE)], ABSENT, ["--partitions", "5"], "another number of partitions (4): repeat the command"),
        ([first(GONE), second(BACK)], NEW, ["--partitions", "5"], "another number of partitions (4): repeat"),
        ([first(GONE)], ABSENT, ["--partitions", "4", "--delay", "5h"], "another delay ('0s'): repeat"),
        ([first(GONE), second(BACK)], NEW, ["--delay", "5h"], "another delay ('0s'): repeat"),
        ([first(GONE)], ABSENT, ["--config", "a=1"], "another set of configs ({}): repeat"),
        ([first(GONE)], ABSENT, ["--replication-factor", "2"], "another replication factor (-1): repeat"),
        ([first(GONE)], ABSENT, ["--fence", "none"], "another fence ('config'): repeat"),
        ([first(GONE)], ABSENT, ["--evacuate"], "another evacuation (False): repeat"),
        ([first(GONE)], ABSENT, ["--pause-before-switch"], "too late to pause before the switch"),
        ([first(GONE), second(BACK)], NEW, ["--partitions", "4", "--fence", "none"], "another fence ('config')"),
        ([], OLD, ["--partitions", "12", "--fence", "none"], "omit --fence none or --keep-name"),
        ([], OLD, ["--partitions", "12", "--evacuate"], "a compacted topic cannot keep its name"),
        ([], OLD, ["--partitions", "12", "--config", "a=1"], "12 partitions already"),
        ([], OLD, ["--partitions", "12", "--replication-factor", "2"], "12 partitions already"),
    ],
)
def test_what_is_too_early_or_too_late_is_refused(
    records: list[TopicRecord],
    orders: TopicFacts,
    options: list[str],
    told: str,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("modeaware.cli.replace.current_topics", lambda *_: current(12, "id"))
    change = changing(*records, orders=orders)
    keeps = () if {"--stay", "--undo"} & {*options} else ("--keep-name",)
    assert run(change, "orders", *options, *keeps, "--yes") == 1
    assert told in capsys.readouterr().err
    assert change.replaced == []


@pytest.mark.parametrize("records", [[], [second(OVER)]])
def test_repetition_of_a_change_that_is_done_sends_nothing_and_succeeds(
    records: list[TopicRecord], run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("modeaware.cli.replace.current_topics", lambda *_: current(4, "id-3"))
    change = changing(*records, orders=NEW)
    same = ("--partitions", "4", "--keep-name", "--replication-factor", "3")
    assert run(change, "orders", *same, "--wait", "--yes") == 0
    assert capsys.readouterr().out == "orders: already has 4 partitions and keeps its name, nothing to do.\n"
    assert (change.replaced, change.waited, "embed" in change.asked) == ([], (), False)


def test_topic_whose_retired_partitions_are_kept_is_replaced_though_as_many_take_writes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrunk = TopicRecord("orders", "id", 3, 1, (PartitionMode.READ_WRITE,) * 4 + (PartitionMode.NONE,) * 8)
    monkeypatch.setattr("modeaware.cli.replace.current_topics", lambda *_: current(12, "id", shrunk))
    change = changing(orders=OLD)
    change.log = log_of(shrunk)
    assert run(change, "orders", "--partitions", "4", "--keep-name", "--yes") == 0
    assert sent_by(change).num_partitions == 4


def test_certificates_are_written_while_the_command_waits(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    change = changing()
    change.ends, change.session.conf, change.session.config = HALVES[2:], None, None
    options = ["--partitions", "4", "--keep-name", "--yes"]
    assert run(change, "orders", *options, "--wait", "--certificates", str(tmp_path)) == 0
    assert certificates.asked == ["orders", INTERIM]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--certificates .", "--certificates works only with --wait"),
        ("--wait --certificates nowhere/at/all", "--certificates: nowhere/at/all is not an existing folder"),
    ],
)
@pytest.mark.parametrize("command", ["replace orders --partitions 4 --keep-name", "apply /dev/null"])
def test_certificates_need_a_wait_and_a_folder(
    command: str, options: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("modeaware.cli.apply.read_files", lambda paths: [])
    with pytest.raises(SystemExit) as ended:
        cli.main([*command.split(), *options.split(), "--bootstrap-server", "127.0.0.1:1"])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_failure_of_the_second_half_is_that_of_the_topic(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    change = changing(first(GONE), orders=ABSENT)
    change.failures = {INTERIM: RequestRefused("too late", code=ErrorCode.REASSIGNMENT_IN_PROGRESS, topic=INTERIM)}
    assert run(change, "orders", "--stay", "--yes") == 1
    assert "error: too late" in capsys.readouterr().err


# Files


def test_file_may_say_that_a_name_is_kept() -> None:
    text = "version: 1\ntopics:\n  orders:\n    partitions: 4\n    keep_name: true\n"
    ((topic,), mistakes) = read_topics(text, "f")
    assert (topic.keep_name, mistakes) == (True, [])
    _, mistakes = read_topics(text + "    replace: o2\n", "f")
    assert mistakes == ["f, line 5: keep_name: a topic that keeps its name has neither replace nor evacuate"]


DESIRED = DesiredTopic("orders", 4, keep_name=True)


def current(count: int, topic_id: str, record: TopicRecord | None = None) -> dict[str, CurrentTopic]:
    return {"orders": CurrentTopic(count, frozenset({3}), {}, topic_id=topic_id, record=record)}


@pytest.mark.parametrize(
    ("desired", "topics", "records", "status"),
    [
        pytest.param(DESIRED, current(12, "id"), [], PENDING, id="another number"),
        pytest.param(DESIRED, current(4, "id-3"), [], UNCHANGED, id="as declared"),
        pytest.param(DESIRED, current(4, "id-3"), [second(OVER)], UNCHANGED, id="done, its alias has not ended"),
        pytest.param(DESIRED, current(12, "id", first(SWITCHED)), [first(SWITCHED)], IN_PROGRESS, id="the first half"),
        pytest.param(DESIRED, {}, [first(GONE)], IN_PROGRESS, id="no topic has the name"),
        pytest.param(DESIRED, current(4, "id-3"), [first(GONE), second(BACK)], IN_PROGRESS, id="the second half"),
        pytest.param(replace(DESIRED, partitions=5), {}, [first(GONE)], REFUSED, id="another number meanwhile"),
        pytest.param(replace(DESIRED, keep_name=False), {}, [first(GONE)], REFUSED, id="the file does not say it"),
        pytest.param(DESIRED, {}, [first(replace(GONE, keep_name=False))], REFUSED, id="it stays"),
    ],
)
def test_file_is_compared_with_the_change_as_a_whole(
    desired: DesiredTopic, topics: dict[str, CurrentTopic], records: list[TopicRecord], status: str
) -> None:
    diff = diff_of(desired, topics, log_of(*records))
    assert diff.status == status, diff
    if status == PENDING:
        (step,) = diff.steps
        assert isinstance(step, Replace)
        assert (step.command.new_topic, step.command.keep_name) == (INTERIM, True)
    assert (status == IN_PROGRESS) is bool(diff.begun), "a wait is for the whole change"
