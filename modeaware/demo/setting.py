"""What every part of the demo has to know: where, how much, and how the story is staged."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from modeaware.demo.pace import Stage

PRODUCERS = 2
CONSUMERS = 3
PARTITIONS = 12
SHRINK_TO = 4
GROW_TO = 6
EXPECTED_SHRINK_S = 6.0
ID_HEADER = "id"


@dataclass(frozen=True)
class Setting:
    """One run of the demo; sent to every child process.

    Attributes:
        bootstrap_servers: the cluster.
        topic, group: names of this run's own.
        folder: where the processes write their logs and journals.
        records: how many flights, None for all.
        lead_s: seconds of quiet work before the shrink and after the growth; half of it between the two.
    """

    bootstrap_servers: str
    topic: str
    group: str
    folder: Path
    records: int | None
    lead_s: float

    @property
    def quiet_conf(self) -> dict[str, str | int]:
        """How the demo itself connects. librdkafka's log lines would tear the screen; errors are raised as well."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 2}

    @property
    def controller_id(self) -> str:
        """The name under which this run's controller claims the mode log."""
        return f"demo-of-{self.topic}"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the story, at an even rate if each takes the time expected."""
        expected_s = (self.lead_s, EXPECTED_SHRINK_S, self.lead_s / 2, self.lead_s)
        ends_s = accumulate(expected_s)
        return tuple(Stage(end_s / sum(expected_s), lasts_s) for end_s, lasts_s in zip(ends_s, expected_s, strict=True))

    def flights_path(self, producer: int) -> Path:
        """The flights the producer is to send."""
        return self.folder / f"producer-{producer}.flights"

    def acks_path(self, producer: int) -> Path:
        """The producer's journal of acknowledgements."""
        return self.folder / f"producer-{producer}.acks"

    def deliveries_path(self, consumer: int) -> Path:
        """The consumer's journal of what the group was given."""
        return self.folder / f"consumer-{consumer}.deliveries"
