"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from modeaware.adoption.installing import from_environment, variable_of
from modeaware.cluster.cluster import Cluster, cluster_error
from modeaware.config import PREFIX, ClientConfig, ControllerConfig, parse_controller_config, split_client_config
from modeaware.confluent._admin_base import REQUEST_TIMEOUT_S
from modeaware.errors import ClusterError, ConfigError
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.librdkafka_admin import AdminClient
from modeaware.properties import read_properties
from modeaware.retries import RetryPolicy
from modeaware.wire.brokers.messages import MetadataRequest

CONTROLLER_CONFIGS = (
    "delete.topic.partition.enable",
    "delete.topic.partition.check.interval.ms",
    "modeaware.seal.quiet.ms",
    "modeaware.open.timeout.ms",
    "modeaware.ignored.groups",
    "modeaware.controller.session.timeout.ms",
    "modeaware.mode.log.topic",
    "modeaware.old.clients",
    "modeaware.under.replicated.creation",
)

_MODE_LOG_TOPIC = "modeaware.mode.log.topic"
_REFUSAL_LOOKS, _REFUSAL_LOOK_S = 20, 0.15

_JAVA_ONLY = {
    "sasl.jaas.config": "use sasl.username and sasl.password",
    "ssl.truststore.location": "use ssl.ca.location (PEM)",
    "ssl.keystore.type": "use ssl.keystore.location (PKCS#12), or ssl.certificate.location and ssl.key.location",
    "sasl.client.callback.handler.class": "use oauth_cb=package.module:name",
    "sasl.login.callback.handler.class": "use oauth_cb=package.module:name",
}


@dataclass(frozen=True)
class Connection:
    """Where the cluster is and how to get there.

    Attributes:
        conf: librdkafka's settings.
        config: ours.
    """

    conf: Mapping[str, Any]
    config: ClientConfig

    @property
    def bootstrap_server(self) -> str:
        return str(self.conf["bootstrap.servers"])


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """``--bootstrap-server`` and ``--command-config``, as Kafka's own tools have them."""
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="the Kafka brokers to connect to"
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="client settings, one KEY=VALUE a line: librdkafka's (security.protocol, ...) and modeaware's, and "
        "oauth_cb=package.module:name",
    )


def add_controller_config_option(parser: argparse.ArgumentParser, name: str, note: str = "") -> None:
    """Configs of a controller, as ``KEY=VALUE``, to be repeated."""
    parser.add_argument(
        name,
        action="append",
        default=[],
        type=key_value,
        dest="controller_config",
        metavar="KEY=VALUE",
        help=f"a config of the controller ({', '.join(CONTROLLER_CONFIGS)}), may be repeated{note}",
    )


def add_timeout_option(parser: argparse.ArgumentParser) -> None:
    """``--timeout``: the deadline of what is retried."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=REQUEST_TIMEOUT_S,
        metavar="SECONDS",
        help="retry for so long where nothing was done: no controller answers, no leader is available (default: "
        f"{REQUEST_TIMEOUT_S:g}); an unknown topic is retried for {RetryPolicy.unknown_topic_s:g} s at most",
    )


def connection(args: argparse.Namespace, defaults: Mapping[str, Any] | None = None) -> Connection:
    """The connection the options ask for. Asks nothing of the cluster yet.

    Our settings are taken from the options, else the file of ``--command-config``, else the environment
    (``MODEAWARE_MODE_LOG_TOPIC`` and so on), else they have their defaults.

    Raises:
        ConfigError: a bad file, an unknown setting, or a bad value.
    """
    settings: dict[str, Any] = {**(defaults or {}), **environment_settings(os.environ)}
    if args.command_config is not None:
        settings |= read_properties(args.command_config)
    asked_for = dict(getattr(args, "controller_config", ()))
    if _MODE_LOG_TOPIC in asked_for:  # of the whole command: it must not look at one log and keep another
        settings[_MODE_LOG_TOPIC] = asked_for[_MODE_LOG_TOPIC]
    settings["bootstrap.servers"] = args.bootstrap_server
    config, conf = split_client_config(settings)
    for name, advice in _JAVA_ONLY.items():
        if name in conf:
            raise ConfigError(f"{args.command_config}: {name} is a setting of Java clients: {advice}")
    return Connection(conf, config)


def environment_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of clients that are ours and that the environment gives.

    Raises:
        ConfigError: one has a bad value.
    """
    settings = from_environment(environ)
    for name, value in settings.items():
        _checked_variable(name, partial(split_client_config, {name: value}))
    return settings


def controller_config(args: argparse.Namespace, client: ClientConfig) -> ControllerConfig:
    """The controller's configs from the options, else the environment, on the mode log that the client settings name.

    Raises:
        ConfigError: an unknown config, or a bad value.
    """
    own = [name for name in CONTROLLER_CONFIGS if name.startswith(PREFIX) and name != _MODE_LOG_TOPIC]
    variables = {name: os.environ[variable_of(name)] for name in own if variable_of(name) in os.environ}
    for name, value in variables.items():
        _checked_variable(name, partial(parse_controller_config, {name: value}))
    return parse_controller_config(
        {**variables, _MODE_LOG_TOPIC: client.mode_log_topic, **dict(args.controller_config)}
    )


def _checked_variable(name: str, check: Callable[[], object]) -> None:
    try:
        check()
    except ConfigError as error:
        raise ConfigError(f"environment variable {variable_of(name)}: {error.message}") from error


def connect(connection: Connection) -> Cluster:
    """An admin connection to a cluster that has answered.

    Raises:
        ConfigError: a setting librdkafka does not take, or kafka-python has nothing like.
        ClusterError: no broker answers.
    """
    try:
        cluster = Cluster(connection.conf)
    except KafkaException as error:
        raise ConfigError(f"client settings: {error.args[0].str()}") from error
    try:
        # Not librdkafka's describe_cluster, which waits for the one broker it has picked, were it frozen.
        cluster.brokers.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    except ClusterError as error:
        cluster.close()
        why = _refusal(connection.conf) or str(error)
        raise ClusterError(f"no broker answers at {connection.bootstrap_server}: {why}", code=error.code) from error
    return cluster


def _refusal(conf: Mapping[str, Any]) -> str | None:
    """What librdkafka says of TLS or SASL, if that is the trouble.

    kafka-python loses an answer that comes together with the end of the connection, as a refusal does.
    """
    said: list[KafkaError] = []
    settings: dict[str, Any] = {**conf, "error_cb": said.append, "log_level": 0}
    client = AdminClient(settings)
    for _ in range(_REFUSAL_LOOKS):
        with suppress(KafkaException):
            client.list_topics(timeout=_REFUSAL_LOOK_S)
            break
        client.poll(0)
        if said:
            break
    return next((e.str() for e in said if e.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)), None)


@contextmanager
def kafka_errors(what: str) -> Iterator[None]:
    """Tell librdkafka's errors as ours, so that the command ends with one line.

    Raises:
        ClusterError: in place of a KafkaException.
    """
    try:
        yield
    except KafkaException as error:
        raise cluster_error(what, error) from error


def key_value(text: str) -> tuple[str, str]:
    """argparse type: ``KEY=VALUE``."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def seconds(text: str) -> float:
    """argparse type: seconds, more than 0."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def delay_ms(text: str) -> int:
    """argparse type: milliseconds, 0 or more."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is below 0")
    return number
