"""Fixtures of the long tests of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from modeaware.local import Kafka
from modeaware.spark import plug_ins
from tests.support.spark_writing import WritingSite, writing_site

DEFAULTS = (
    *("spark.master", "spark.driver.host", "spark.jars.ivy", "spark.jars.ivySettings", "spark.ui.enabled"),
    "spark.sql.shuffle.partitions",
)


@pytest.fixture
def site(kafka: Kafka) -> Iterator[WritingSite]:
    """A mode log of the test's own, to which the test writes."""
    with writing_site(kafka) as made:
        yield made


@pytest.fixture
def by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's sink gets the column ``partition``, as where Spark does not have the plug-ins for the JVM."""
    monkeypatch.setattr(plug_ins, "_are_loaded", lambda spark: False)


@pytest.fixture
def spark_conf_dir(spark: SparkSession, tmp_path: Path) -> Path:
    """A folder as SPARK_CONF_DIR names it, with what a machine's own spark-defaults.conf would say."""
    folder = tmp_path / "conf"
    folder.mkdir()
    conf = spark.sparkContext.getConf()
    text = "".join(f"{name} {value}\n" for name in DEFAULTS if (value := conf.get(name)) is not None)
    (folder / "spark-defaults.conf").write_text(text, encoding="utf-8")
    return folder
