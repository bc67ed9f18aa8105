"""A real Apache Kafka for demos and tests: see :func:`start_kafka`.

Needs the extra ``local`` where the machine has no Java 17 or is to use containers; POSIX only.
"""

from __future__ import annotations

from modeaware.local.api import Broker, Kafka
from modeaware.local.choose import start_kafka
from modeaware.local.cluster import LocalKafka

__all__ = ["Broker", "Kafka", "LocalKafka", "start_kafka"]
