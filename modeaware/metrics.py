"""Metrics of this process's clients for Prometheus (extra ``metrics``). See docs/observability.md.

Call ``modeaware.metrics.register()`` once in a process with mode-aware clients. Metrics cost nothing per record: each
scrape reads the state of the views and the clients.
"""

from __future__ import annotations

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "modeaware.metrics needs prometheus_client: install modeaware[metrics]", name=missing.name
    ) from missing

import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from modeaware.callouts import InnerLock
from modeaware.clients import tally
from modeaware.topic_view import TopicView
from modeaware.views.registry import Source, sources

__all__ = ["ClientCollector", "register"]

_registered: weakref.WeakKeyDictionary[CollectorRegistry, ClientCollector] = weakref.WeakKeyDictionary()
_registering = InnerLock()
Families = dict[str, GaugeMetricFamily | CounterMetricFamily]
Table = Mapping[str, tuple[str, tuple[str, ...]]]
"""Families: name -> help and labels."""
_SOURCE = ("cluster", "mode_log")
_GAUGES: Table = {
    "view_age_seconds": ("Seconds since the source of the modes last confirmed the views.", _SOURCE),
    "view_ready": ("1: the first view of the modes has arrived.", _SOURCE),
    "view_stale": ("1: the source fails, or the views are older than allowed.", _SOURCE),
    "view_clients": ("Clients of this process that share the views.", _SOURCE),
    "topic_epoch": ("Mode epoch of the topic's view in force.", (*_SOURCE, "topic")),
    "topic_partitions": ("Partitions by mode, as this process sees them.", (*_SOURCE, "topic", "mode")),
}
_EVENTS = {
    "sends_refused": (tally.SENDS_REFUSED, "Sends to an explicit partition that takes no records."),
    "resize_warnings": (tally.RESIZE_WARNINGS, "Resizes of topics with keys that producers have reported."),
    "partitions_left_out": (tally.PARTITIONS_LEFT_OUT, "Partitions that consumers were given and left out."),
    "partitions_taken_up": (tally.PARTITIONS_TAKEN_UP, "Partitions that consumers have resumed."),
}
_COUNTERS: Table = {
    "view_refresh_failures": ("Failed requests to the source.", _SOURCE),
    **{name: (text, ()) for name, (_, text) in _EVENTS.items()},
}


def empty_families(prefix: str, gauges: Table, counters: Table) -> Families:
    """Return families without samples, by their names in the tables."""
    families: Families = {
        name: GaugeMetricFamily(f"{prefix}_{name}", text, labels=labels) for name, (text, labels) in gauges.items()
    }
    for name, (text, labels) in counters.items():
        families[name] = CounterMetricFamily(f"{prefix}_{name}", text, labels=labels)
    return families


def register(registry: CollectorRegistry = REGISTRY, topics: Collection[str] | None = None) -> ClientCollector:
    """Export the metrics of this process's clients. A second call for the same registry changes nothing.

    Args:
        registry: a registry of prometheus_client; by default the registry that prometheus_client's servers export.
        topics: see :class:`ClientCollector`.

    Returns:
        The collector in the registry, to be passed to ``registry.unregister``.
    """
    with _registering:
        known = _registered.get(registry)
        if known is None:
            known = ClientCollector(topics)
            registry.register(known)
            _registered[registry] = known
        return known


class ClientCollector(Collector):
    """Exports the views of this process's clients and counts of their events. Thread-safe.

    Args:
        topics: the topics whose epochs and modes are exported; by default every topic with a record in the mode log.
    """

    def __init__(self, topics: Collection[str] | None = None) -> None:
        self._topics = None if topics is None else frozenset(topics)

    def describe(self) -> Iterable[Metric]:
        """Return the families, without samples."""
        return _families().values()

    def collect(self) -> Iterator[Metric]:
        families = _families()
        alike: dict[tuple[str, str], list[Source]] = {}
        for source in sources():  # two users of one cluster have two sources, with equal labels
            alike.setdefault((source.cluster, source.mode_log), []).append(source)
        for labels, labelled in alike.items():
            self._add(families, labels, labelled)
        counts = tally.TALLY.counts()
        for name, (event, _) in _EVENTS.items():
            families[name].add_metric((), counts[event])
        yield from families.values()

    def _add(self, families: Families, labels: tuple[str, str], labelled: list[Source]) -> None:
        """Add one value for all sources with equal labels: the worst one, so that a failure shows. Counts are sums."""
        stats = [source.stats for source in labelled]
        if (age_ms := max(one["view_age_ms"] for one in stats)) >= 0:
            families["view_age_seconds"].add_metric(labels, age_ms / 1000)
        families["view_ready"].add_metric(labels, float(all(one["ready"] for one in stats)))
        families["view_stale"].add_metric(labels, float(any(one["stale"] for one in stats)))
        families["view_refresh_failures"].add_metric(labels, sum(one["refresh_failures"] for one in stats))
        families["view_clients"].add_metric(labels, sum(source.clients for source in labelled))
        oldest: dict[str, TopicView] = {}
        for view in [view for source in labelled for view in source.views.values()]:
            if view.topic not in oldest or view.epoch < oldest[view.topic].epoch:
                oldest[view.topic] = view
        exported = [view for view in oldest.values() if self._topics is None or view.topic in self._topics]
        for view in sorted(exported, key=lambda view: view.topic):
            families["topic_epoch"].add_metric((*labels, view.topic), view.epoch)
            for mode, count in sorted(Counter(mode.label for mode in view.modes).items()):
                families["topic_partitions"].add_metric((*labels, view.topic, mode), count)


def _families() -> Families:
    return empty_families("modeaware_client", _GAUGES, _COUNTERS)
