"""``install()`` and ``uninstall()``."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from modeaware.adoption.arrivals import after_import
from modeaware.adoption.namespaces import modules_holding, put
from modeaware.adoption.replacements import (
    AIOKAFKA,
    AIOKAFKA_PRODUCER,
    aiokafka_is_here,
    originals,
    replacements,
)
from modeaware.adoption.settings import dotted, from_environment
from modeaware.config import process_settings, set_process_settings

PACKAGE = AIOKAFKA_PRODUCER.rpartition(".")[0]

_lock = threading.RLock()
_undo: list[Callable[[], None]] = []
_until_aiokafka: list[Callable[[], object]] = []


def install(**settings: Any) -> None:
    """Make confluent_kafka's, kafka-python's and aiokafka's clients mode-aware for all code of this process.

    ``confluent_kafka.Producer``, ``Consumer``, ``SerializingProducer``, ``DeserializingConsumer``, their asyncio forms,
    ``confluent_kafka.admin.AdminClient`` and, where kafka-python 3.0.12 is installed, ``kafka.KafkaProducer`` and
    ``KafkaConsumer`` become ours: in the packages, and in every module that has imported one of them. So does
    ``aiokafka.AIOKafkaProducer``, as soon as the program imports aiokafka. Ours are subclasses of the stock classes, so
    what is checked against these holds.

    Out of reach (``docs/adoption.md``): clients and subclasses made before; a stock class kept in another place than a
    module's namespace; processes started from this one, unless by fork.

    Calling it again adds the settings, and looks again for modules that hold a stock class. May be called from any
    thread; best before the application's imports.

    Args:
        settings: for clients whose own configuration does not say otherwise, with dots or, as Python's names, with
            underscores (:class:`modeaware.config.ClientConfig`): ``install(**{"modeaware.mode.log.topic": "modes"})``.
            They win over environment variables (``MODEAWARE_MODE_LOG_TOPIC``), which are read here.

    Raises:
        ConfigError: an unknown setting, one that is not ours, or a bad value; nothing was installed.
    """
    with _lock:
        set_process_settings({**from_environment(os.environ), **process_settings(), **dotted(settings)})
        _replace()
        if AIOKAFKA not in sys.modules:  # else it has come, or comes just now: what waits for it must not be taken away
            while _until_aiokafka:
                _until_aiokafka.pop()()
            _until_aiokafka.append(after_import(AIOKAFKA, _aiokafka_arrived))


def uninstall() -> None:
    """Put back what :func:`install` replaced, and forget its settings. Without an installation it does nothing.

    Clients that were made meanwhile stay mode-aware, and so do modules that have imported a class since.
    """
    with _lock:
        for undo in (_until_aiokafka, _undo):
            while undo:
                undo.pop()()
        set_process_settings({})


def _replace(*, aiokafka: bool | None = None) -> None:
    wanted = originals(replacements(aiokafka=aiokafka_is_here() if aiokafka is None else aiokafka))
    for module, name, stock in modules_holding(wanted):
        _undo.append(put(module, name, stock, wanted[stock].ours))


def _aiokafka_arrived() -> None:
    with _lock:
        if PACKAGE not in sys.modules or AIOKAFKA_PRODUCER in sys.modules:
            _ours_arrived()
        else:  # it is our package that imports aiokafka just now, and is not ready itself
            _until_aiokafka.append(after_import(AIOKAFKA_PRODUCER, _ours_arrived))


def _ours_arrived() -> None:
    with _lock:
        _replace(aiokafka=True)
