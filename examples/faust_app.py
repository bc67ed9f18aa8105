"""A Faust application whose topics may be shrunk meanwhile. It contains nothing about partition modes. Start it with

    python -m modeaware run examples/faust_app.py --from orders --to billed --group billing

and the producer that Faust creates honours the modes. docs/adoption.md has the installation. Ends on SIGTERM.
"""

from __future__ import annotations

import argparse

import faust


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--from", dest="source", default="orders", metavar="TOPIC")
    parser.add_argument("--to", default="billed", metavar="TOPIC")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--count", action="store_true", help="keep a count per key, and write that")
    parser.add_argument("--exactly-once", action="store_true", help="read, process and write in transactions")
    parser.add_argument("--partitions", type=int, default=12, help="of the counts: as many as --from has")
    parser.add_argument("--state-dir", default="state", help="where Faust keeps its files")
    args = parser.parse_args()

    app = faust.App(
        args.group,
        broker=f"kafka://{args.bootstrap_server}",
        key_serializer="raw",
        value_serializer="raw",
        datadir=args.state_dir,
        processing_guarantee="exactly_once" if args.exactly_once else "at_least_once",
        web_enabled=False,
    )
    orders = app.topic(args.source, key_type=bytes, value_type=bytes)
    billed = app.topic(args.to, key_type=bytes, value_type=bytes)

    if args.count:
        counts = app.Table("counts", default=int, partitions=args.partitions, key_type=bytes, value_type=int)

        @app.agent(orders)
        async def count(stream):
            async for key, _ in stream.items():  # noqa: PERF102 - a stream, not a dict
                counts[key] += 1
                await billed.send(key=key, value=str(counts[key]).encode())

    else:

        @app.agent(orders)
        async def bill(stream):
            async for key, order in stream.items():
                await billed.send(key=key, value=order)

    faust.Worker(app, loglevel="info").execute_from_commandline()


if __name__ == "__main__":
    main()
