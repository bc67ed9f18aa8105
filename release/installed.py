"""Run by a Python in which the wheel is installed, and nothing else of this repository can be imported."""

from __future__ import annotations

import logging
import os
import sys
from importlib.metadata import files, version
from pathlib import Path

import modeaware
from modeaware import Consumer, Producer
from partitioners import named

logging.disable()  # no broker is there, and the clients say so
producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
consumer.close()
home = Path(modeaware.__file__).parent
listed = {Path(str(file.locate())) for file in files("modeaware") or ()}
problems = [
    *(["the extension does not take records"] if not producer.modeaware_stats()["in_c"] else []),
    *([f"{home} is not of the wheel"] if home / "__init__.py" not in listed else []),
    *(
        [f"{modeaware.__version__} is not {version('modeaware')}"]
        if modeaware.__version__ != version("modeaware")
        else []
    ),
    *(["murmur2_random is unknown"] if named("murmur2_random") is None else []),
    *(["`modeaware jar` would print nothing"] if not (home / "modeaware.jar").is_file() else []),
]
print(f"modeaware {version('modeaware')} on Python {sys.version.split()[0]}: {'; '.join(problems) or 'in_c is true'}")
sys.stdout.flush()
os._exit(1 if problems else 0)  # without the wait for a broker that is not there
