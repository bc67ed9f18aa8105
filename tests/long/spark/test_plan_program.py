"""``python -m modeaware.spark.plan``, and the same given to spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import modeaware.spark
from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.plain import produce_keyed

# What the session of the tests was started with and any other needs as well.
SETTINGS = (
    "spark.master",
    "spark.driver.host",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
    "spark.ui.enabled",
    "spark.sql.shuffle.partitions",
)
KEYS = 500
TIMEOUT_S = 240


def test_the_session_has_the_connector_that_packages_names(spark: SparkSession) -> None:
    assert spark.version in modeaware.spark.packages()
    assert spark.sparkContext.getConf().get("spark.jars.packages") == modeaware.spark.packages()


@pytest.mark.parametrize("submitted", [False, True])
def test_the_plan_as_a_program(
    spark: SparkSession, kafka: Kafka, make_topic: MakeTopic, tmp_path: Path, submitted: bool
) -> None:
    topic, page = make_topic(6), tmp_path / "plan.html"
    produce_keyed(kafka.bootstrap_servers, topic, ((b"k%d" % n, b"value") for n in range(KEYS)))
    settings = [f"{name}={spark.sparkContext.getConf().get(name)}" for name in SETTINGS]
    if submitted:
        start = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--packages", modeaware.spark.packages()]
        start += [part for setting in settings for part in ("--conf", setting)]
        start += [str(Path(modeaware.spark.__file__).with_name("plan.py"))]
        options = []
    else:
        start = [sys.executable, "-m", "modeaware.spark.plan"]
        options = [part for setting in settings for part in ("--spark-conf", setting)]
    asked = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--partitions", "3", "--json"]
    done = subprocess.run(
        [*start, *asked, "--html", str(page), *options],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout[done.stdout.index("{\n") :])  # Ivy tells which settings it reads, on standard output
    assert (told["topic"], told["target"], told["counted"]["records"]) == (topic, 3, KEYS)
    assert (told["hash"]["name"], told["hash"]["keys"]) == ("crc32", KEYS)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
