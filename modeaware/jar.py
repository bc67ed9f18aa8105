"""The jar of the producer plug-ins for the JVM (docs/jvm.md). A package that was built without a JDK, or without
Kafka's jars, lacks the jar."""

from __future__ import annotations

from pathlib import Path

from modeaware.errors import ModeAwareError

_JAR = Path(__file__).with_name("modeaware.jar")
HOW_TO_GET = (
    "this installation of modeaware has no jar for the JVM: it was built from a checkout without a JDK, or without "
    "Kafka's jars. Releases have it: pip install --force-reinstall --no-deps modeaware. In the checkout install a JDK "
    "(11 or newer) and run `make jar`."
)


def jar_path() -> Path:
    """Return the path of the jar.

    Raises:
        ModeAwareError: the package was built without the jar. The message has the ways to get the jar.
    """
    if not _JAR.is_file():
        raise ModeAwareError(HOW_TO_GET)
    return _JAR
