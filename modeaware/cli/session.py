"""Options that several commands share, and the session that they open on a cluster."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from modeaware.adoption.installing import check_variable, command_settings, variable_of
from modeaware.cli import BadUsage, key_value
from modeaware.cluster.cluster import Cluster, cluster_error
from modeaware.cluster.metadata import metadata_request
from modeaware.config import (
    CONTROLLER_CONFIGS,
    PREFIX,
    ClientConfig,
    ControllerConfig,
    parse_controller_config,
    split_client_config,
)
from modeaware.confluent.controller_calls import REQUEST_TIMEOUT_S
from modeaware.durations import duration_above_zero_ms, duration_ms
from modeaware.errors import ClusterError, ConfigError
from modeaware.librdkafka import AdminClient, KafkaError, KafkaException
from modeaware.reports.session import Session
from modeaware.wire.retries import RetryPolicy

_MODE_LOG_TOPIC = "modeaware.mode.log.topic"
_JAVA_ONLY = {
    "sasl.jaas.config": "use sasl.username and sasl.password",
    "ssl.truststore.location": "use ssl.ca.location (PEM)",
    "ssl.keystore.type": "use ssl.keystore.location (PKCS#12), or ssl.certificate.location and ssl.key.location",
    "sasl.client.callback.handler.class": "use oauth_cb=package.module:name",
    "sasl.login.callback.handler.class": "use oauth_cb=package.module:name",
}


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--bootstrap-server`` and ``--command-config``, like the options of Kafka's own tools."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="the Kafka brokers to connect to (default: bootstrap.servers of --command-config, else "
        "MODEAWARE_BOOTSTRAP_SERVERS)",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="settings, one KEY=VALUE a line: librdkafka's (security.protocol, ...), those of modeaware's clients and "
        "controllers, and oauth_cb=package.module:name",
    )


def command_line(args: argparse.Namespace, *words: str) -> str:
    """Return the line of a command that the user may run next, with the connection options of the present command."""
    options = {"--bootstrap-server": args.bootstrap_server, "--command-config": args.command_config}
    given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    return shlex.join([*words, *given])


def add_flags(parser: argparse.ArgumentParser, **texts: str) -> None:
    """Add options without a value, each with its help."""
    for name, text in texts.items():
        parser.add_argument(flag(name), action="store_true", help=text)


def flag(name: str) -> str:
    """Return the option of a name: ``--dry-run`` for ``dry_run``."""
    return "--" + name.replace("_", "-")


def add_actions(parser: argparse.ArgumentParser, texts: Mapping[str, str]) -> None:
    """Add a command's actions in the form of Kafka's tools (``--list`` and so on); exactly one must be given."""
    actions = parser.add_mutually_exclusive_group(required=True)
    for name, text in texts.items():
        actions.add_argument(f"--{name}", dest="action", action="store_const", const=name, help=text)


def check_actions(args: argparse.Namespace, actions_of: Mapping[str, Iterable[str]]) -> None:
    """Raise BadUsage if an option does not belong to the given action; ``actions_of``: option -> its actions."""
    for name, actions in actions_of.items():
        if getattr(args, name) not in (None, False, []) and args.action not in actions:
            raise BadUsage(f"{flag(name)} works only with {', '.join(map(flag, actions))}")


def add_controller_config_option(parser: argparse.ArgumentParser, name: str, note: str = "") -> None:
    """Add an option that takes a controller's config as ``KEY=VALUE``, and may be repeated."""
    parser.add_argument(
        name,
        action="append",
        default=[],
        type=key_value,
        dest="controller_config",
        metavar="KEY=VALUE",
        help=f"a config of the controller ({', '.join(CONTROLLER_CONFIGS)}), may be repeated{note}",
    )


def add_confirmation_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes`` and ``--dry-run``."""
    add_flags(parser, yes="do not ask for confirmation", dry_run="validate, and show the changes; change nothing")


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``, ``--dry-run``, ``--wait`` and ``--timeout``, and the configs of a controller of ``--wait``."""
    add_confirmation_options(parser)
    wait = "show the progress until all is done (Ctrl-C is harmless); if no controller runs, do the controller's work"
    add_flags(parser, wait=wait)
    parser.add_argument(
        "--timeout",
        dest="timeout_ms",
        type=duration_above_zero_ms,
        default=round(REQUEST_TIMEOUT_S * 1000),
        metavar="DURATION",
        help="how long to retry requests that changed nothing because no controller or leader was available (default: "
        f"{REQUEST_TIMEOUT_S:g}s); for an unknown topic, {RetryPolicy.unknown_topic_s:g} s at most",
    )
    add_controller_config_option(parser, "--controller-config", " (for --wait if no controller runs)")


def add_delay_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--delay``: the least time from now until retired or replaced data is deleted."""
    parser.add_argument("--delay", dest="delay_ms", type=duration_ms, metavar="DURATION", help=text)


def add_state_loss_option(parser: argparse.ArgumentParser, change: str) -> None:
    """Add ``--accept-state-loss``; ``change``: the verb for the change that the user makes in spite of the loss."""
    parser.add_argument(
        "--accept-state-loss",
        action="append",
        default=[],
        metavar="GROUP",
        help=f"{change} although this group keeps state per partition (Kafka Streams): the state of keys that move to "
        "another partition stays behind; may be repeated",
    )


class Connection(NamedTuple):
    """How to reach the cluster: librdkafka's settings, ours, and the controller's configs."""

    conf: Mapping[str, Any]
    config: ClientConfig
    controller: ControllerConfig


def connection(args: argparse.Namespace, log_level: int | None = 0) -> Connection:
    """Return the connection that the options request. Contacts no broker.

    Options take precedence over the file of ``--command-config``, and the file over the environment
    (``MODEAWARE_MODE_LOG_TOPIC`` and so on). A controller in this process uses the mode log of the clients' settings.
    A command without an option for a controller's configs ignores such configs in the environment.

    Args:
        log_level: librdkafka's. With 0, the command's own error line replaces librdkafka's lines; with None, the file
            decides.
    """
    settings: dict[str, Any] = {} if log_level is None else {"log_level": log_level}
    settings |= command_settings(args.bootstrap_server, args.command_config, os.environ)
    asked_for = dict(getattr(args, "controller_config", ()))
    if _MODE_LOG_TOPIC in asked_for:  # set for the whole command, because all its parts must use one log
        settings[_MODE_LOG_TOPIC] = asked_for[_MODE_LOG_TOPIC]
    own = [name for name in CONTROLLER_CONFIGS if name != _MODE_LOG_TOPIC]
    of_file = {name: settings.pop(name) for name in own if name in settings}
    config, conf = split_client_config(settings)
    for name, advice in _JAVA_ONLY.items():
        if name in conf:
            raise ConfigError(f"{args.command_config}: {name} is a setting of Java clients: {advice}")
    controllers: dict[str, str] = {}
    if hasattr(args, "controller_config"):
        variables = {name: os.environ.get(variable_of(name)) for name in own if name.startswith(PREFIX)}
        controllers = {name: value for name, value in variables.items() if value is not None}
    for name, value in controllers.items():
        check_variable(name, partial(parse_controller_config, {name: value}))
    ours = {**controllers, **of_file, _MODE_LOG_TOPIC: config.mode_log_topic, **asked_for}
    return Connection(conf, config, parse_controller_config(ours))


@contextmanager
def open_session(args: argparse.Namespace, what: str) -> Iterator[Session]:
    """Open a session on the cluster that the options name; ``what``: the command's action, for error messages."""
    with kafka_errors(what), connect(connection(args)) as session:
        yield session


def connect(connection: Connection) -> Session:
    """Return a session on a cluster that has answered. Raises ConfigError or ClusterError."""
    try:
        cluster = Cluster(connection.conf)
    except KafkaException as error:
        raise ConfigError(f"client settings: {error.args[0].str()}") from error
    session = Session(*connection, cluster)
    try:
        # Not by librdkafka's describe_cluster, which waits for the broker that it chose, even if that broker is frozen.
        cluster.brokers.ask(metadata_request([]))
    except ClusterError as error:
        cluster.close()
        why = _refusal(connection.conf) or str(error)
        raise ClusterError(f"no broker answers at {session.bootstrap_server}: {why}", code=error.code) from error
    return session


def _refusal(conf: Mapping[str, Any]) -> str | None:
    """Return librdkafka's TLS or SASL error. kafka-python loses an error if the broker then closes the connection."""
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {**conf, "error_cb": errors.append, "log_level": 0}
    client = AdminClient(settings)
    for _ in range(20):
        with suppress(KafkaException):
            client.list_topics(timeout=0.15)
            break
        client.poll(0)
        if errors:
            break
    return next((e.str() for e in errors if e.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)), None)


@contextmanager
def kafka_errors(what: str) -> Iterator[None]:
    """Raise librdkafka's errors as ours, so that the command ends with one line."""
    try:
        yield
    except KafkaException as error:
        raise cluster_error(what, error) from error


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """argparse type: a whole number from ``least`` to ``most``."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is below {least}")
        if most is not None and number > most:
            raise argparse.ArgumentTypeError(f"{number} is more than {most}")
        return number

    return parse
