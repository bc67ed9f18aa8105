"""``python -m benchmarks [--quick] [NAME ...]``: a table, and ``bench-report.json``. With
``--check``, status 1 when a limit is not kept."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka

from benchmarks import (
    cold_start,
    consume,
    copy,
    drain_record,
    endpoint_attack,
    endpoint_connections,
    endpoint_metadata,
    fence,
    fence_leaders,
    fleet_live,
    fleet_scan,
    footprint,
    gates,
    jvm,
    partitioners,
    produce,
    replace,
    requests,
    scale,
    spark,
    switch,
    takeover,
)
from benchmarks.harness import Result
from benchmarks.setting import Setting, setting

PARTS: dict[str, Callable[[Setting], Iterator[Result]]] = {
    "import": cold_start.measure_import,
    "produce": produce.measure,
    "consume": consume.measure,
    "switch": switch.measure,
    "partitioners": partitioners.measure,
    "cold-start": cold_start.measure,
    "takeover": takeover.measure,
    "requests": requests.measure,
    "scale": scale.measure,
    "drain-record": drain_record.measure,
    "copy": copy.measure,
    "replace": replace.measure,
    "gates": gates.measure,
    "fence": fence.measure,
    "fence-leaders": fence_leaders.measure,
    "fleet-scan": fleet_scan.measure,
    "fleet-live": fleet_live.measure,
    "footprint": footprint.measure,
    "endpoint-metadata": endpoint_metadata.measure,
    "endpoint-attack": endpoint_attack.measure,
    "endpoint-connections": endpoint_connections.measure,
    "jvm": jvm.measure,
    "spark": spark.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(PARTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, no measurement")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is not kept")
    parser.add_argument("--report", type=Path, default=Path("bench-report.json"), metavar="FILE")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    results: list[Result] = []
    print(f"{'':62}{'figure':>10}     limit   details (records/s: plain, empty subclass, modeaware)")
    with setting(arguments.quick) as made:
        for part in arguments.parts or PARTS:
            for result in PARTS[part](made):
                results.append(result)
                print(line(result), flush=True)
    arguments.report.write_text(json.dumps(report(results, arguments.quick), indent=2) + "\n", encoding="utf-8")
    failed = [result.name for result in results if result.ok is False]
    print(f"{len(failed)} limits not kept" if failed else "every limit is kept", f"- {arguments.report}")
    return 1 if failed and arguments.check else 0


def line(result: Result) -> str:
    """A result as a line of the table."""
    mark = {True: "  ", False: " !", None: "  "}[result.ok]
    rates = result.details.get("records_per_s", {})
    extra = [f"{name} {value}" for name, value in result.details.items() if name != "records_per_s"]
    extra += [f"{rate:,}/s" for rate in rates.values()]
    return f"{result.name:60}{mark}{result.figure:8.3f} {result.unit:3}{result.limit:>8}   {', '.join(extra)}"


def report(results: list[Result], quick: bool) -> dict[str, object]:
    """The report as JSON: where and when, and every result."""
    return {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "platform": platform.machine()},
        "confluent_kafka": confluent_kafka.version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "results": [result.to_dict() for result in results],
    }


if __name__ == "__main__":
    sys.exit(main())
