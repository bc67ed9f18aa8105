"""A QuixStreams application whose topics may be shrunk meanwhile. Its code does not mention modes. Start it with

    python -m modeaware run examples/quixstreams_app.py --from orders --to billed --group billing

and the clients that QuixStreams creates honour the modes. docs/adoption.md has the installation. Ends on SIGTERM, or
after --idle-s without a record.
"""

from __future__ import annotations

import argparse

from quixstreams import Application


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--from", dest="source", default="orders", metavar="TOPIC")
    parser.add_argument("--to", default="billed", metavar="TOPIC")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--idle-s", type=float, default=0.0, help="end after this time without a record; 0: never")
    parser.add_argument("--count", action="store_true", help="write the number of records per key instead")
    parser.add_argument("--state-dir", default="state", help="folder of the counts")
    args = parser.parse_args()

    app = Application(
        broker_address=args.bootstrap_server,
        consumer_group=args.group,
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=args.state_dir,
    )
    orders = app.topic(args.source, key_deserializer="bytes", value_deserializer="str")
    billed = app.topic(args.to, key_serializer="bytes", value_serializer="str")
    stream = app.dataframe(orders)
    if args.count:
        stream = stream.apply(counted, stateful=True)
    stream.to_topic(billed)
    app.run(timeout=args.idle_s)


def counted(_, state) -> str:
    count = state.get("count", 0) + 1
    state.set("count", count)
    return str(count)


if __name__ == "__main__":
    main()
