"""Between which versions the view lies under which a producer of this process chooses a partition."""

from __future__ import annotations

from collections.abc import Mapping

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.topic_view import TopicView
from modeaware.views import registry
from tests.chaos.record import NO_VERSION, version_number
from tests.chaos.setting import Setting

READY_S = 60.0


class SeenViews:
    """Follows the views of the topic. Make it after the producer.

    Its listener is subscribed after the producer's own: once it was called with a version, the producer chooses by that
    one or a later one. And the shared views have a version before any listener is told.

    Attributes:
        lower: the lowest version the producer may choose by.

    Raises:
        ModeSourceError: no first view within a minute.
    """

    def __init__(self, setting: Setting) -> None:
        self._topic = setting.topic
        self.lower = NO_VERSION
        self._views = registry.acquire({"bootstrap.servers": setting.bootstrap_servers}, ClientConfig())
        if not self._views.wait_ready(READY_S):
            raise ModeSourceError(f"no view of the partition modes: {self._views.error()}")
        self._views.subscribe(self._changed)

    @property
    def upper(self) -> int:
        """The highest version the producer may choose by."""
        return version_number(self._views.view(self._topic).version)

    def _changed(self, changed: Mapping[str, TopicView]) -> None:
        view = changed.get(self._topic)
        if view is not None:
            self.lower = version_number(view.version)
