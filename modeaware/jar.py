"""The jar of the producer plug-ins for the JVM (docs/jvm.md): the package has it where it was built with a JDK."""

from __future__ import annotations

from pathlib import Path

from modeaware.errors import ModeAwareError

_JAR = Path(__file__).with_name("modeaware.jar")
HOW_TO_GET = (
    "this installation of modeaware has no jar for the JVM: it was built without a JDK, or without Kafka's jars. "
    "In a checkout run `make jar`. Otherwise install a JDK (11 or newer) and the source distribution, with "
    "MODEAWARE_KAFKA_JARS set to the folder libs of a Kafka: pip install --force-reinstall --no-deps "
    "--no-binary modeaware modeaware"
)


def jar_path() -> Path:
    """Return the path of the jar.

    Raises:
        ModeAwareError: the package was built without it; the message says how to get one.
    """
    if not _JAR.is_file():
        raise ModeAwareError(HOW_TO_GET)
    return _JAR
