"""``install()`` and ``uninstall()``: replace stock client classes by ours in this process, and restore them."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from modeaware.callouts import InnerLock, get_logger
from modeaware.clients.over import over
from modeaware.config import (
    CLIENT_SETTING_NAMES,
    process_settings,
    read_properties,
    set_process_settings,
    split_client_config,
)
from modeaware.errors import ConfigError

NOT_TEXT = frozenset({"modeaware.resize_cb"})
"""Settings that cannot be environment variables, because their values are functions; ``install()`` takes them."""
_SERVERS = "bootstrap.servers"
_SERVERS_VARIABLE = "MODEAWARE_BOOTSTRAP_SERVERS"


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: MODEAWARE_MODE_LOG_TOPIC for ``modeaware.mode.log.topic``."""
    return name.upper().replace(".", "_")


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the client settings in ``environ``, without those ``MODEAWARE_`` variables that are not for clients."""
    settings = {name: environ.get(variable_of(name)) for name in CLIENT_SETTING_NAMES if name not in NOT_TEXT}
    return {name: value for name, value in settings.items() if value is not None}


def command_settings(servers: str | None, file: Path | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a command, which always include ``bootstrap.servers``.

    Options take precedence over the file, and the file over the environment (``MODEAWARE_BOOTSTRAP_SERVERS``, and the
    client settings).

    Args:
        servers: the value of ``--bootstrap-server``.
        file: the value of ``--command-config``.

    Raises:
        ConfigError: neither option, file nor environment names a broker; the file cannot be read; or a variable has a
            bad value.
    """
    settings: dict[str, Any] = from_environment(environ)
    for name, value in settings.items():
        check_variable(name, partial(split_client_config, {name: value}))
    settings[_SERVERS] = environ.get(_SERVERS_VARIABLE)
    settings |= {} if file is None else read_properties(file)
    settings[_SERVERS] = servers or settings[_SERVERS]
    if not settings[_SERVERS]:
        raise ConfigError(
            f"no brokers to connect to: pass --bootstrap-server HOST:PORT, or set {_SERVERS} in the file of "
            f"--command-config, or the environment variable {_SERVERS_VARIABLE}"
        )
    return settings


def check_variable(name: str, check: Callable[[], object]) -> None:
    """Call ``check`` for the setting ``name`` from the environment. A ConfigError then also names the variable."""
    try:
        check()
    except ConfigError as error:
        raise ConfigError(f"environment variable {variable_of(name)}: {error.message}") from error


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings``, with names in Python's form (``modeaware_mode_log_topic``) changed to Kafka's, with dots."""
    known = {variable_of(name).lower(): name for name in CLIENT_SETTING_NAMES}
    return {known.get(name, name): value for name, value in settings.items()}


def after_import(name: str, then: Callable[[], object]) -> Callable[[], object]:
    """Call ``then`` once, right after the first import of the module ``name``, in the importing thread. If ``then``
    raises, the import raises. If this is called again for a module, only the last ``then`` is called.

    Returns:
        A function that cancels the call of ``then``.
    """
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder.go


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module through the other finders, and wraps its loader so as to act once the module is executed."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in list(sys.meta_path):
            find = None if isinstance(finder, _Finder) else getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def arrived(self) -> None:
        if self.go():
            self._then()

    def go(self) -> bool:
        """Remove the finder; return whether it was still installed."""
        if self not in sys.meta_path:
            return False
        sys.meta_path.remove(self)
        return True


class _Loader(importlib.abc.Loader):
    """Wraps another loader, and restores that loader right before the module is executed."""

    def __init__(self, inner: Any, finder: _Finder) -> None:
        self._inner = inner
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._inner.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        self._finder.arrived()

    def __getattr__(self, name: str) -> Any:  # for code that reads a spec without an import, to get the source
        return getattr(self._inner, name)


_NOT_TO_TOUCH = ("modeaware", "partitioners")  # these packages need the stock classes, so they keep them
_LIBRARIES = ("confluent_kafka", "kafka")


class _Front(property):
    """A module's attribute that gives importers our class, while the module's own code gets the original value."""


def modules_holding(wanted: Mapping[type, object]) -> list[tuple[ModuleType, str, type]]:
    """Return each module of the process that has a class of ``wanted``, with the attribute's name and the class.

    In the libraries' own modules only public names count: names such as ``_Impl`` are internal to the libraries.
    """
    places = []
    by_id = {id(stock): stock for stock in wanted}
    for module_name, module in list(sys.modules.items()):
        top = module_name.partition(".")[0]
        if top in _NOT_TO_TOUCH or not isinstance(module, ModuleType):
            continue
        for name, value in list(_namespace(module).items()):
            stock = by_id.get(id(value))  # by identity: the value may be a proxy, or have an __eq__ of its own
            if stock is None or (top in _LIBRARIES and name.startswith("_")):
                continue
            if not isinstance(vars(type(module)).get(name), _Front):  # a name with a _Front is already replaced
                places.append((module, name, stock))
    return places


def put(module: ModuleType, name: str, stock: type, ours: type) -> Callable[[], None]:
    """Set ``module.name`` to ``ours`` in place of ``stock``; return a function that restores ``stock``.

    If the name has got another value since, the function keeps the other value.
    """
    if stock.__module__ == module.__name__:
        return _put_in_front(module, name, stock, ours)
    namespace = _namespace(module)
    namespace[name] = ours

    def undo() -> None:
        if namespace.get(name) is ours:
            namespace[name] = stock

    return undo


def _put_in_front(module: ModuleType, name: str, stock: type, ours: type) -> Callable[[], None]:
    """Do as :func:`put` in the module that defines ``stock``: importers get ``ours``, the module's own code ``stock``.

    ``super(AdminClient, self)`` in a method of ``stock`` looks up the name in that module. With the subclass ``ours``
    under the name, ``super`` would find the same method again, for ever.
    """
    before = type(module)
    shown: list[Any] = [ours]

    def show(_: ModuleType) -> Any:
        return shown[0]

    def take(_: ModuleType, value: Any) -> None:
        # mock.patch saves and restores the value in the module's namespace, which is the stock class.
        shown[0] = ours if value is stock else value

    front = types.new_class(before.__name__, (before,), exec_body=lambda body: body.update({name: _Front(show, take)}))
    module.__class__ = front

    def undo() -> None:
        value = shown[0]
        front_now = type(module)
        if front_now is front:
            module.__class__ = before
        else:  # the module's class was changed since, for another name of the module or by other code
            delattr(front, name)
        if value is not ours:
            _namespace(module)[name] = value

    return undo


def _namespace(module: ModuleType) -> dict[str, Any]:
    namespace: dict[str, Any] = object.__getattribute__(module, "__dict__")  # vars() would load a lazy module
    return namespace


log = get_logger(__name__)

QUIXSTREAMS = "quixstreams"
"""QuixStreams looks up a consumer's partitions by the application's topics: for a new topic it raises KeyError."""

# Each entry: the module from which applications import a class, the class's name, and our module with that class.
_CONFLUENT = (
    ("confluent_kafka", "Producer", "modeaware.confluent.producer"),
    ("confluent_kafka", "Consumer", "modeaware.confluent.consumer"),
    ("confluent_kafka", "SerializingProducer", "modeaware.confluent.producer"),
    ("confluent_kafka", "DeserializingConsumer", "modeaware.confluent.consumer"),
    ("confluent_kafka.admin", "AdminClient", "modeaware.confluent.admin"),
    ("confluent_kafka.aio", "AIOProducer", "modeaware.aio"),
    ("confluent_kafka.aio", "AIOConsumer", "modeaware.aio"),
    ("confluent_kafka.aio", "AsyncSerializingProducer", "modeaware.aio"),
    ("confluent_kafka.aio", "AsyncDeserializingConsumer", "modeaware.aio"),
)
_KAFKA_PYTHON = (
    ("kafka", "KafkaProducer", "modeaware.kafka_python.producer"),
    ("kafka", "KafkaConsumer", "modeaware.kafka_python.consumer"),
)


def replacements() -> dict[type, type]:
    """Return stock class -> our class. The classes of kafka-python are included if it can be imported.

    Other code, such as a tracer, may have put a subclass into a package. Then our class extends that subclass, so that
    the subclass stays in effect. Our class replaces both the subclass and the stock class.
    """
    replaced: dict[type, type] = {}
    for package_name, name, our_module in (*_CONFLUENT, *_usable_kafka_python()):
        ours = getattr(import_module(our_module), name)
        current = getattr(import_module(package_name), name)
        if not isinstance(current, type):
            log.warning("%s.%s is not replaced, because it is not a class (a mock?): %r", package_name, name, current)
            continue
        ours = over(ours, current)
        named = [base for base in ours.__mro__ if base.__name__ == name]
        replaced |= {stock: ours for stock in (*named, current) if not _is_ours(stock)}
    return replaced


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "modeaware"


def _usable_kafka_python() -> tuple[tuple[str, str, str], ...]:
    """Return kafka-python's classes; none if it is missing, or if our classes cannot extend those of its release."""
    try:
        import_module("modeaware.kafka_python")
    except ImportError as error:
        if error.name != "kafka" or not isinstance(error, ModuleNotFoundError):  # kafka is another release or package
            log.warning("kafka-python's clients stay unchanged and ignore partition modes: %s", error)
        return ()
    return _KAFKA_PYTHON


_lock = InnerLock()
_undo: list[Callable[[], object]] = []
_until_quixstreams: list[Callable[[], object]] = []


def install(**settings: Any) -> None:
    """Make confluent_kafka's and kafka-python's clients mode-aware for all code of this process.

    ``confluent_kafka.Producer``, ``Consumer``, ``SerializingProducer``, ``DeserializingConsumer``, their asyncio forms
    and ``confluent_kafka.admin.AdminClient`` become ours, in the packages and in every module that has imported one of
    them. So do ``kafka.KafkaProducer`` and ``KafkaConsumer``, if kafka-python 3.0.12 is installed. Our classes are
    subclasses of the stock classes, so ``isinstance`` and ``issubclass`` checks still succeed.

    Not replaced (``docs/adoption.md``): existing clients and subclasses, and a stock class kept anywhere but in a
    module's namespace. Processes started from this one keep the stock classes, except after a fork.

    A repeated call adds the settings, and searches again for modules with a stock class. Any thread may call
    ``install``, preferably before the application's imports.

    Args:
        settings: defaults for clients whose own configuration lacks them, with dots or, as Python's names, with
            underscores (:class:`modeaware.config.ClientConfig`): ``install(**{"modeaware.mode.log.topic": "modes"})``.
            They override environment variables (``MODEAWARE_MODE_LOG_TOPIC``), which are read here.

    Raises:
        ConfigError: a setting is unknown, is not one of modeaware, or has a bad value; nothing was installed.
    """
    with _lock:
        set_process_settings({**from_environment(os.environ), **process_settings(), **dotted(settings)})
        _replace()
        _forget(_until_quixstreams)
        if QUIXSTREAMS in sys.modules:
            _quixstreams_arrived()
        else:
            _until_quixstreams.append(after_import(QUIXSTREAMS, _quixstreams_arrived))


def uninstall() -> None:
    """Restore the classes that :func:`install` replaced, and forget its settings. Without an ``install``, do nothing.

    Clients made since the ``install`` stay mode-aware. Modules that imported a class since then keep ours.
    """
    with _lock:
        for undo in (_until_quixstreams, _undo):
            _forget(undo)
        set_process_settings({})


def _forget(undo: list[Callable[[], object]]) -> None:
    while undo:
        undo.pop()()


def _quixstreams_arrived() -> None:
    with _lock:
        set_process_settings({"modeaware.on.replace": "named", **process_settings()})


def _replace() -> None:
    # All our classes are made before any class is replaced, so they extend the stock classes.
    wanted = replacements()
    for module, name, stock in modules_holding(wanted):
        _undo.append(put(module, name, stock, wanted[stock]))
