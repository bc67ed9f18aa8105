"""A real Apache Kafka for demos and tests: see :func:`start_kafka`.

Needs the extra ``local`` where the machine has no Java 17 or is to use containers; POSIX only.
"""

from __future__ import annotations

from modeaware.local.choose import Kafka, start_kafka
from modeaware.local.cluster import LocalKafka
from modeaware.local.node import LocalBroker

__all__ = ["Kafka", "LocalBroker", "LocalKafka", "start_kafka"]
