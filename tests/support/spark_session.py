"""A Spark session for the tests of Spark: two cores, the Kafka connector, the producer plug-ins for the JVM, no UI."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeaware.local.jars import cache_folder, find_java
from modeaware.spark.connector import packages
from tests.support.jvm import plug_ins_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    """Ask for ``spark`` instead."""
    interrupted = signal.getsignal(signal.SIGINT)
    session = spark_builder().getOrCreate()
    signal.signal(signal.SIGINT, interrupted)  # Spark installs a handler of its own
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: SparkSession) -> Iterator[SparkSession]:
    """The session of the run. Do not stop it, and set nothing that other tests would notice."""
    yield spark_session
    gc.collect()  # pyspark leaves sockets to the garbage collector: their warnings belong to this test


def spark_builder() -> SparkSession.Builder:
    """The builder of every session of the tests."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("JAVA_HOME", str(Path(find_java()).parent.parent))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # local executors read the variable, not the setting
    builder: SparkSession.Builder = SparkSession.builder
    settings = {
        "spark.master": "local[2]",
        "spark.app.name": "modeaware-tests",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.jars": str(plug_ins_jar()),
        "spark.jars.packages": packages(),
        "spark.jars.ivy": str(cache_folder() / "spark-ivy"),
        "spark.jars.ivySettings": str(Path(__file__).with_name("ivysettings.xml")),
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
