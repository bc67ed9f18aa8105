"""Settings of modeaware: the settings of clients, and the configs of controllers.

A client's configuration has our settings, which begin with ``modeaware.``, and librdkafka's, which are passed on. The
controller's configs have KIP-694's names if the KIP names them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modeaware.errors import ConfigError
from modeaware.spelling import nearest

PREFIX = "modeaware."
OAUTH_CALLBACK = "oauth_cb"
DEFAULT_MODE_LOG_TOPIC = "__partition_modes"
ON_UNKNOWN = ("block", "writable", "error")
MODE_SOURCES = ("auto", "log", "wire")
ON_REPLACE = ("ordered", "unordered", "named")
TOPIC_NAMES = ("physical", "logical")
ON_RESIZE = ("ignore", "warn")
OLD_CLIENTS = ("serve", "refuse")
ENDPOINT_SHARES = ("connection", "address")
DISABLED, ENABLED, PREFER_OBSERVED = "disabled", "enabled", "enabled_prefer_observed"
UNDER_REPLICATED_CREATION = (DISABLED, ENABLED, PREFER_OBSERVED)


@dataclass(frozen=True)
class ClientConfig:
    """A client's ``modeaware.`` settings.

    Attributes:
        mode_log_topic: ``modeaware.mode.log.topic``, the topic in which the controller keeps the modes
            (``__partition_modes``).
        view_timeout_ms: ``modeaware.view.timeout.ms``, how long the first send or assignment waits for the first view
            (10000).
        on_unknown: ``modeaware.on.unknown``, what a send does if the first view has not arrived in time: ``block`` (the
            default) raises BufferError, which callers retry; ``writable`` treats every partition as ReadWrite;
            ``error`` raises :class:`~modeaware.errors.ViewTimeout`.
        mode_source: ``modeaware.mode.source``, the source of the modes: ``log`` (the mode log, through the brokers);
            ``wire`` (KIP-694's Metadata, from a bootstrap server that supports it; needs kafka-python); ``auto`` (the
            default): the wire if a bootstrap server supports it, else the log.
        on_resize: ``modeaware.on.resize``, what a producer does when a topic with keys gets another number of writable
            partitions: ``warn`` once (the default), or ``ignore``.
        resize_callback: ``modeaware.resize_cb``, called with the ``modeaware.Resize`` as part of the warning.
        on_replace: ``modeaware.on.replace``, how a consumer reads a topic that is replaced. With ``ordered`` (the
            default), the new topic after the group has read the old one, so that the records of each key stay in order;
            with ``unordered``, both topics at once; with ``named``, only the topics that the application subscribes to
            (the default of QuixStreams under ``modeaware.install()``).
        topic_names: ``modeaware.topic.names``, the topic name in a consumer's message if a topic is replaced. With
            ``physical`` (the default), the topic that holds the record; with ``logical``, the topic that the
            application subscribed to.
        refresh_interval_ms: librdkafka's ``topic.metadata.refresh.interval.ms`` (300000): how old a view may grow
            before the client requests views again. librdkafka gets this setting too.
    """

    mode_log_topic: str = DEFAULT_MODE_LOG_TOPIC
    view_timeout_ms: int = 10_000
    on_unknown: str = "block"
    mode_source: str = "auto"
    on_resize: str = "warn"
    resize_callback: Callable[..., object] | None = None
    on_replace: str = "ordered"
    topic_names: str = "physical"
    refresh_interval_ms: int = 300_000


@dataclass(frozen=True)
class ControllerConfig:
    """The controller's configs.

    Attributes:
        enable: ``delete.topic.partition.enable`` (true): whether shrinks and replacements are admitted (KIP-694).
        check_interval_ms: ``delete.topic.partition.check.interval.ms`` (300000): the time between two checks of a
            drain that does not wait for a group, or of partitions in mode None. The first checks come sooner.
        seal_quiet_ms: ``modeaware.seal.quiet.ms`` (10000): how long the end offset of a retired partition must stay
            the same before the partition is sealed.
        open_timeout_ms: ``modeaware.open.timeout.ms`` (60000): the longest time for which new partitions take no writes
            because a group has no offset on them.
        announce_ms: ``modeaware.announce.ms`` (2000): the time between the announcement of a new topic and the switch,
            for clients to see the new topic. Clients of the mode log see the new topic at once. Clients of the wire see
            it at their next refresh, and request views every second from then on.
        fence_after_ms: ``modeaware.fence.after.ms`` (60000): the longest time between the switch and the fence. Until
            the fence, brokers accept records for the old topic.
        gate_given_ms: ``modeaware.gate.given.ms`` (10000): how long the new topic is hidden from a group that has
            received all records of the old topic, but has not committed the last ones.
        gate_unnoted_ms: ``modeaware.gate.unnoted.ms`` (300000): how long the new topic is hidden from a group that has
            committed all records, if no member reports them as handled. Set this to the largest
            ``max.poll.interval.ms`` of the groups' members.
        ignored_groups: ``modeaware.ignored.groups`` (``console-consumer-*``), comma-separated globs (``[[]`` is a
            literal ``[``) of groups that count only once they have committed an offset on the topic. Kafka's console
            consumer makes a new group at each start, and commits nothing.
        session_timeout_ms: ``modeaware.controller.session.timeout.ms`` (8000): how long an active controller may be
            silent before a standby takes over; 1000 to 10000, and within the brokers' ``group.min.session.timeout.ms``.
        old_clients: ``modeaware.old.clients`` (``serve``): the endpoint's response about topics with retired partitions
            to clients that cannot read modes. With ``serve``, the broker's response; with ``refuse``, the error
            LEADER_NOT_AVAILABLE (KIP-694, Compatibility).
        endpoint_share: ``modeaware.endpoint.share`` (``connection``): while requests wait, each ``connection``, or each
            client ``address``, gets an equal share of the endpoint's time. Clients may share an address (NAT, a proxy).
        under_replicated_creation: ``modeaware.under.replicated.creation``: whether a creation that requests a minimum
            of live replicas may have fewer live replicas than the replication factor (KIP-409, Broker Configuration).
            With ``disabled``, no; with ``enabled``, yes: live brokers get replicas first, then brokers that are down;
            with ``enabled_prefer_observed``, yes: all brokers ever seen get replicas, by racks. The mode log keeps the
            value. A controller without this config uses the kept value, which is ``disabled`` at first.
        mode_log_topic: ``modeaware.mode.log.topic`` (``__partition_modes``).
    """

    enable: bool = True
    check_interval_ms: int = 300_000
    seal_quiet_ms: int = 10_000
    open_timeout_ms: int = 60_000
    announce_ms: int = 2_000
    fence_after_ms: int = 60_000
    gate_given_ms: int = 10_000
    gate_unnoted_ms: int = 300_000
    ignored_groups: tuple[str, ...] = ("console-consumer-*",)
    session_timeout_ms: int = 8_000
    old_clients: str = "serve"
    endpoint_share: str = "connection"
    under_replicated_creation: str | None = None
    mode_log_topic: str = DEFAULT_MODE_LOG_TOPIC


def split_client_config(conf: Mapping[str, Any]) -> tuple[ClientConfig, dict[str, Any]]:
    """Split ``conf`` into our settings and librdkafka's.

    An ``oauth_cb`` may be a text, ``package.module:name``, which is replaced by the function of that name. Unlike a
    function, a text can stand in a file of settings, and in a configuration for another process.

    Raises:
        ConfigError: an unknown ``modeaware.`` setting (the message gives the nearest known name), a bad value, or an
            ``oauth_cb`` that cannot be found.
    """
    ours = {name: value for name, value in conf.items() if name.startswith(PREFIX)}
    rest = {name: value for name, value in conf.items() if not name.startswith(PREFIX)}
    rest = with_oauth_callback(rest)
    fields = _parse(ours, CLIENT_SETTINGS, "setting")
    refresh = str(rest.get("topic.metadata.refresh.interval.ms", ""))
    if refresh.isdecimal() and int(refresh) > 0:  # librdkafka refuses a bad value
        fields["refresh_interval_ms"] = int(refresh)
    return ClientConfig(**fields), rest


def with_oauth_callback(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``conf``; if its ``oauth_cb`` is a name, with the function of that name in its place.

    Raises:
        ConfigError: there is no function of that name.
    """
    callback = conf.get(OAUTH_CALLBACK)
    return {**conf, OAUTH_CALLBACK: named_function(OAUTH_CALLBACK, callback)} if isinstance(callback, str) else {**conf}


def named_function(setting: str, name: str) -> Callable[..., Any]:
    """Import the module of ``package.module:name``, and return the function ``name`` (which may have dots).

    Args:
        setting: the setting with this value, for the error.

    Raises:
        ConfigError: the module or the name does not exist, the value is no function, or the import failed.
    """
    module_name, _, path = (part.strip() for part in name.partition(":"))
    if not path or not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise ConfigError(f"{setting}: {name!r} is not package.module:name of a function")
    try:
        value: Any = importlib.import_module(module_name)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        why = "there is no such module: install it, or name its folder in PYTHONPATH" if absent else f"{error!r}"
        raise ConfigError(f"{setting}: cannot import {module_name!r} of {name!r}: {why}") from error
    for part in path.split("."):
        if not hasattr(value, part):
            raise ConfigError(f"{setting}: {name!r}: the module {module_name!r} has no {path!r}")
        value = getattr(value, part)
    if not callable(value):
        # Not the value itself: it may be a token.
        raise ConfigError(f"{setting}: {name!r} is no function: its type is {type(value).__name__}")
    function: Callable[..., Any] = value
    return function


def set_process_settings(settings: Mapping[str, Any]) -> None:
    """Set our settings for all clients made in this process from now on (:func:`modeaware.install`).

    A client's own configuration has precedence. Earlier process settings are replaced.

    Raises:
        ConfigError: a setting is unknown, is not ours, or has a bad value. Nothing has changed.
    """
    global _process_settings
    _parse(settings, CLIENT_SETTINGS, "setting")
    _process_settings = dict(settings)


def process_settings() -> dict[str, Any]:
    """Return the settings of the last :func:`set_process_settings`."""
    return dict(_process_settings)


def with_process_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's configuration, with the process settings that the configuration does not override."""
    return {**_process_settings, **conf}


def with_topic_config(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return librdkafka's settings, overridden by the entries of ``default.topic.config`` as in confluent_kafka.

    A ``default.topic.config`` that is no mapping is ignored here, because confluent_kafka rejects it.
    """
    of_topics = conf.get("default.topic.config")
    return {**conf, **(of_topics if isinstance(of_topics, Mapping) else {})}


def parse_controller_config(settings: Mapping[str, str]) -> ControllerConfig:
    """Read ``KEY=VALUE`` configs of the controller.

    Raises:
        ConfigError: an unknown config (the message gives the nearest known name) or a bad value.
    """
    return ControllerConfig(**_parse(settings, CONTROLLER_CONFIGS, "controller config"))


def _parse(
    settings: Mapping[str, Any], known: Mapping[str, tuple[str, Callable[[str, Any], Any]]], kind: str
) -> dict[str, Any]:
    fields = {}
    for name, value in settings.items():
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"known are {', '.join(sorted(known))}"
            raise ConfigError(f"unknown {kind} {name!r}: {hint}")
        field, parse = known[name]
        fields[field] = parse(name, value)
    return fields


def _ms(lowest: int = 0, highest: int | None = None) -> Callable[[str, Any], int]:
    wanted = f"{lowest} or more" if highest is None else f"{lowest} to {highest}"

    def parse(name: str, value: Any) -> int:
        try:
            number = lowest - 1 if isinstance(value, bool) else int(value)
        except (TypeError, ValueError):
            number = lowest - 1
        if number < lowest or (highest is not None and number > highest):
            raise ConfigError(f"{name}: must be a whole number of milliseconds, {wanted}, not {value!r}")
        return number

    return parse


def _boolean(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name}: must be true or false, not {value!r}")
    return text == "true"


def _topic(name: str, value: Any) -> str:
    text = str(value)
    if not text or len(text) > 249 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in text):
        raise ConfigError(f"{name}: not a topic name: {value!r}")
    return text


def _globs(name: str, value: Any) -> tuple[str, ...]:
    return tuple(pattern.strip() for pattern in str(value).split(",") if pattern.strip())


def _one_of(*known: str) -> Callable[[str, Any], str]:
    def parse(name: str, value: Any) -> str:
        if value not in known:
            raise ConfigError(f"{name}: must be one of {', '.join(known)}, not {value!r}")
        return str(value)

    return parse


def _callable(name: str, value: Any) -> Callable[..., object] | None:
    if value is not None and not callable(value):
        raise ConfigError(f"{name}: must be a function, not {value!r}")
    function: Callable[..., object] | None = value
    return function


def read_properties(path: Path) -> dict[str, str]:
    """Read a Java properties file, in the forms that files for Kafka's tools use.

    ``key=value``, comments with ``#`` or ``!``, and lines that continue after a ``\\`` at their end.

    Raises:
        ConfigError: the file cannot be read, or a line has no key and value.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # a BOM would be a part of the first key
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    settings = {}
    for number, line in _logical_lines(text):
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            # Not the line itself: it may hold a password.
            raise ConfigError(f"{path}, line {number} is not key=value")
        settings[key.strip()] = value.strip()
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not begun and (not line or line[0] in "#!"):
            continue
        start = start if begun else number
        begun += line
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        yield start, begun
        begun = ""
    if begun:
        yield start, begun


CLIENT_SETTINGS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "modeaware.mode.log.topic": ("mode_log_topic", _topic),
    "modeaware.view.timeout.ms": ("view_timeout_ms", _ms()),
    "modeaware.on.unknown": ("on_unknown", _one_of(*ON_UNKNOWN)),
    "modeaware.mode.source": ("mode_source", _one_of(*MODE_SOURCES)),
    "modeaware.on.resize": ("on_resize", _one_of(*ON_RESIZE)),
    "modeaware.resize_cb": ("resize_callback", _callable),
    "modeaware.on.replace": ("on_replace", _one_of(*ON_REPLACE)),
    "modeaware.topic.names": ("topic_names", _one_of(*TOPIC_NAMES)),
}

CLIENT_SETTING_NAMES = tuple(CLIENT_SETTINGS)

_process_settings: dict[str, Any] = {}

CONTROLLER_CONFIGS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "delete.topic.partition.enable": ("enable", _boolean),
    "delete.topic.partition.check.interval.ms": ("check_interval_ms", _ms(1)),
    "modeaware.seal.quiet.ms": ("seal_quiet_ms", _ms()),
    "modeaware.open.timeout.ms": ("open_timeout_ms", _ms()),
    "modeaware.announce.ms": ("announce_ms", _ms()),
    "modeaware.fence.after.ms": ("fence_after_ms", _ms()),
    "modeaware.gate.given.ms": ("gate_given_ms", _ms()),
    "modeaware.gate.unnoted.ms": ("gate_unnoted_ms", _ms()),
    "modeaware.ignored.groups": ("ignored_groups", _globs),
    "modeaware.controller.session.timeout.ms": ("session_timeout_ms", _ms(1_000, 10_000)),
    "modeaware.old.clients": ("old_clients", _one_of(*OLD_CLIENTS)),
    "modeaware.endpoint.share": ("endpoint_share", _one_of(*ENDPOINT_SHARES)),
    "modeaware.under.replicated.creation": ("under_replicated_creation", _one_of(*UNDER_REPLICATED_CREATION)),
    "modeaware.mode.log.topic": ("mode_log_topic", _topic),
}
