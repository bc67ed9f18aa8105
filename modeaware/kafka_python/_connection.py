"""What both clients do with kafka-python's connections."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from modeaware.kafka_python import _gateway
from modeaware.topic_view import TopicView
from modeaware.views.source import Views
from modeaware.wire.api_versions import UNDERLYING_NAME


class Notes:
    """Hands views to a consumer's method without keeping the consumer alive."""

    def __init__(self, note: Callable[[Mapping[str, TopicView]], None]) -> None:
        self._note = weakref.WeakMethod(note)

    def __call__(self, changed: Mapping[str, TopicView]) -> None:
        note = self._note()
        if note is not None:
            note(changed)


class Hint:
    """A listener of a client's metadata: whenever the client has asked for it again, the modes may be old as well."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def __call__(self, _: Any) -> None:
        self._views.refresh_soon()


def named_client(configs: dict[str, Any]) -> dict[str, Any]:
    """``configs`` with connections that bear the name (KIP-511) of clients that heed modes: an endpoint that refuses
    old clients lets them in. A ``kafka_client`` of the application's stays as it is."""
    return {"kafka_client": partial(_gateway.KafkaNetClient, client_software_name=UNDERLYING_NAME), **configs}
