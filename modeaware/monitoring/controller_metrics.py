"""A controller's metrics for Prometheus, made from a snapshot at each request. See docs/observability.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from modeaware.callouts import InnerLock
from modeaware.controller.status import (
    Role,
    Snapshot,
    blocked_ages_s,
    gate_age_s,
    ready,
    report_of,
    required_groups,
    waiting_groups,
)
from modeaware.lifecycle.state import PHASES, topic_phase
from modeaware.metrics import Families, Table, empty_families
from modeaware.modelog.records import TopicRecord
from modeaware.modes import ReplicaState
from modeaware.monitoring.server import Answer

_GAUGES: Table = {
    "controller_active": ("1: this controller is the active one.", ()),
    "controller_ready": ("1: active or standing by, and in contact with the cluster.", ()),
    "controller_epoch": ("Epoch of the last claim that this controller has made or read.", ()),
    "controller_loop_age_seconds": ("Seconds since the controller's thread began its last round.", ()),
    "controller_contact_age_seconds": (
        "Seconds since the controller last confirmed its election, or read the mode log.",
        (),
    ),
    "controller_leaderless_seconds": (
        "Seconds for which a standby has seen no claim of the election's leader; 0: there is a claim.",
        (),
    ),
    "topic_epoch": ("The topic's mode epoch.", ("topic",)),
    "topic_partitions": ("Partitions by mode and replica state.", ("topic", "mode", "replica_state")),
    "topic_phase": ("1: the phase of the partition that is furthest behind.", ("topic", "phase")),
    "topic_blocked_seconds": (
        "Seconds for which partitions have been held up by the present reason.",
        ("topic", "reason"),
    ),
    "topic_unread_offsets": (
        "The largest number of offsets that a required group has to read in retired partitions.",
        ("topic",),
    ),
    "topic_gate_age_seconds": (
        "Seconds since the switch of a replaced topic, until its groups have moved.",
        ("topic",),
    ),
    "topic_groups_waiting": ("Groups of a replaced topic for which the gate is closed.", ("topic",)),
    "topic_check_age_seconds": ("Seconds since the controller last checked the topic's logs and groups.", ("topic",)),
}
_COUNTERS: Table = {
    "controller_takeovers": ("How often this process has become the active controller.", ()),
    "controller_errors": ("Failures that are retried, by operation.", ("operation",)),
    "topic_stragglers": ("Seals that were broken by a late record.", ("topic",)),
    "topic_fences_lifted": ("Fences of replaced topics that were lifted, and restored.", ("topic",)),
}


class ControllerCollector(Collector):
    """Exports one controller to Prometheus. Thread-safe.

    Only the active controller exports topics, so that sums over all controllers count each topic once. Label values are
    names of topics with a record in the mode log, or come from fixed sets, so that their number is limited.

    Args:
        snapshot: returns the controller's present state.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples, so that registration takes no snapshot."""
        return _families().values()

    def collect(self) -> Iterator[Metric]:
        snapshot, families = self._snapshot(), _families()
        _add_controller(families, snapshot)
        _add_topics(families, snapshot)
        yield from families.values()


def _families() -> Families:
    return empty_families("modeaware", _GAUGES, _COUNTERS)


def _add_controller(families: Families, snapshot: Snapshot) -> None:
    values = {
        "active": float(snapshot.role is Role.ACTIVE),
        "ready": float(ready(snapshot) is None),
        "epoch": None if snapshot.claim is None else float(snapshot.claim.controller_epoch),
        "loop_age_seconds": snapshot.loop_age_s,
        "contact_age_seconds": snapshot.contact_age_s,
        "leaderless_seconds": snapshot.leaderless_s or 0.0,
        "takeovers": float(snapshot.takeovers),
    }
    for name, value in values.items():
        if value is not None:
            families[f"controller_{name}"].add_metric((), value)
    for name, count in sorted(snapshot.errors.items()):
        families["controller_errors"].add_metric((name,), count)


def _add_topics(families: Families, snapshot: Snapshot) -> None:
    def add(name: str, labels: tuple[str, ...], value: float) -> None:
        families[f"topic_{name}"].add_metric(labels, value)

    newest = {seen.record.topic: seen for seen in sorted(snapshot.topics, key=lambda seen: seen.record.changed_ms)}
    for topic, seen in sorted(newest.items()):  # the mode log may have two records of a recreated topic
        add("epoch", (topic,), seen.record.epoch)
        for (mode, state), count in sorted(_states(seen.record).items()):
            add("partitions", (topic, mode, state), count)
        for phase in PHASES:
            add("phase", (topic, phase), float(topic_phase(seen.record) == phase))
        for code, age_s in sorted(blocked_ages_s(seen, snapshot.taken_ms).items()):
            add("blocked_seconds", (topic, code), max(age_s, 0.0))
        report = report_of(seen, snapshot)
        add("unread_offsets", (topic,), max((group.behind for group in required_groups(report)), default=0))
        if (waiting := waiting_groups(report)) is not None:
            add("groups_waiting", (topic,), waiting)
        checked_ms = seen.known_ms if seen.checked_ms is None else seen.checked_ms  # a failing topic has an age, too
        if checked_ms is not None:
            add("check_age_seconds", (topic,), max(snapshot.taken_ms - checked_ms, 0) / 1000)
        if (gate_s := gate_age_s(seen, snapshot.taken_ms)) is not None:
            add("gate_age_seconds", (topic,), gate_s)
        add("stragglers", (topic,), seen.stragglers)
        if seen.record.replacing.switched_ms is not None:
            add("fences_lifted", (topic,), seen.fences_lifted)


def _states(record: TopicRecord) -> Counter[tuple[str, str]]:
    states: Counter[tuple[str, str]] = Counter()
    for partition, mode in enumerate(record.modes):
        retired = record.retired.get(partition)
        states[mode.label, (retired.replica_state if retired is not None else ReplicaState.ONLINE).value] += 1
    return states


class Exposition:
    """The controller's metrics and those of its process (``process_...``, ``python_gc_...``). Thread-safe: only
    one thread at a time makes an answer."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._lock = InnerLock()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(ControllerCollector(snapshot))

    def __call__(self, accept: str) -> Answer:
        # Pass on only the format: if a version is malformed, the library (0.26) fails, and repeats the version.
        open_metrics = "application/openmetrics-text"
        encode, content_type = choose_encoder(open_metrics if open_metrics in accept else "")
        with self._lock:
            return Answer(HTTPStatus.OK, content_type, encode(self._registry))
