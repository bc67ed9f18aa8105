"""A Spark session for all of these tests. They run real Spark and a real Kafka, and take longer than others."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from modeaware.local.java import find_java
from modeaware.local.paths import cache_folder

HERE = Path(__file__).parent
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            # pyspark leaves the sockets that it has read results from to the garbage collection.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket .*127.0.0.1:ResourceWarning"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))  # the first one of all downloads the connector


@pytest.fixture(autouse=True)
def _sockets_are_collected_here() -> Iterator[None]:
    """Where their warnings are ignored, and not in somebody else's test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, the Kafka connector, progress and UI off. Do not stop it; set nothing that other tests would feel."""
    interrupted = signal.getsignal(signal.SIGINT)
    session = spark_builder().getOrCreate()
    signal.signal(signal.SIGINT, interrupted)  # Spark's own would be there for other tests, too
    yield session
    session.stop()


def spark_builder() -> SparkSession.Builder:
    """What every session of the tests is made with."""
    os.environ.setdefault("JAVA_HOME", str(Path(find_java()).parent.parent))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # local executors look there, not at the setting
    builder: SparkSession.Builder = SparkSession.builder
    settings = {
        "spark.master": "local[2]",
        "spark.app.name": "modeaware-tests",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.jars.packages": CONNECTOR,
        "spark.jars.ivy": str(cache_folder() / "spark-ivy"),
        "spark.jars.ivySettings": str(HERE.parent / "support" / "ivysettings.xml"),
        "spark.pyspark.python": sys.executable,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder
