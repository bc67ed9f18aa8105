"""``modeaware.install()`` and aiokafka, which is replaced when the program imports it."""

from __future__ import annotations

import pytest

from tests.support.program import run_program


def said(text: str) -> list[str]:
    """The lines of a program that has to succeed without a word on standard error."""
    done = run_program(text)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "order",
    [
        "import aiokafka; modeaware.install()",
        "modeaware.install(); import aiokafka",
        "modeaware.install(); modeaware.install(); import aiokafka.errors",
        "modeaware.install(); importlib.util.find_spec('aiokafka'); import aiokafka; modeaware.install()",
    ],
)
def test_the_package_hands_out_our_producer_and_then_its_own_again(order: str) -> None:
    program = f"""
import importlib.util, inspect, sys, modeaware
{order}
import aiokafka, aiokafka.producer.producer
places = (aiokafka, aiokafka.producer, aiokafka.producer.producer)
ours = [place.AIOKafkaProducer for place in places]
import modeaware.aiokafka
assert set(ours) == {{modeaware.aiokafka.AIOKafkaProducer}}, ours
assert aiokafka.AIOKafkaConsumer.__module__.startswith("aiokafka.")
assert inspect.getsource(aiokafka) and type(aiokafka.__loader__).__module__ != "modeaware.adoption.installing"
modeaware.uninstall()
(stock,) = {{place.AIOKafkaProducer for place in places}}
assert issubclass(ours[0], stock) and stock.__module__ == "aiokafka.producer.producer"
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("modeaware")]
print("done")
"""
    assert said(program) == ["done"]


def test_a_producer_can_be_made_and_a_module_that_had_the_stock_class_makes_ours() -> None:
    program = """
import asyncio
from aiokafka import AIOKafkaProducer
import modeaware
modeaware.install(modeaware_mode_source="log")
async def main():
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    print(type(producer).__module__, producer.modeaware_stats()["state"], producer.modeaware_stats()["views"]["source"])
    await producer.stop()
asyncio.run(main())
"""
    assert said(program) == ["modeaware.aiokafka.producer waiting log"]


def test_other_package_of_that_name_is_left_alone_with_a_warning() -> None:
    other = """
import sys, types
sys.modules["aiokafka"] = types.ModuleType("aiokafka")
import modeaware
modeaware.install()
import confluent_kafka
print(confluent_kafka.Producer is modeaware.Producer)
"""
    done = run_program(other)
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "aiokafka's producer stays as it is" in done.stderr


def test_another_way_to_choose_partitions_is_left_alone_and_that_is_said() -> None:
    program = """
import aiokafka, modeaware
aiokafka.AIOKafkaProducer._partition = lambda self, topic, record: 0
modeaware.install()
print(aiokafka.AIOKafkaProducer.__module__)
"""
    done = run_program(program)
    assert (done.returncode, done.stdout) == (0, "aiokafka.producer.producer\n")
    assert "chooses partitions in another way than aiokafka 0.14 does" in done.stderr
