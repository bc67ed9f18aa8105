"""Shrink a topic from a program, wait until its retired partitions are reclaimed, and grow it again.

Needs a running controller: modeaware controller --bootstrap-server localhost:9092

    python examples/shrink_with_admin_client.py --bootstrap-server localhost:9092 --topic orders --partitions 4 --then 6
"""

from __future__ import annotations

import argparse
import time

from confluent_kafka.admin import NewPartitions

from modeaware import AdminClient, DeletePartitions, PartitionMode


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--partitions", type=int, default=4, help="partitions to keep")
    parser.add_argument("--then", type=int, default=6, help="partitions to grow to afterwards")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="how long to wait for the reclaim")
    args = parser.parse_args()

    admin = AdminClient({"bootstrap.servers": args.bootstrap_server})

    # delay_ms=0: delete as soon as every group has consumed the retired partitions. With delay_ms=None (the default),
    # only the topic's own retention deletes the records. The future is done when the shrink is in force.
    shrink = admin.delete_partitions({args.topic: DeletePartitions(total_count=args.partitions)}, delay_ms=0)
    shrink[args.topic].result()

    deadline_s = time.monotonic() + args.timeout_s
    shown = None
    while True:
        view = admin.describe_modes([args.topic])[args.topic].result()
        if view != shown:
            shown = view
            print(view.describe())
        retired = {p for p, mode in enumerate(view.modes) if mode is not PartitionMode.READ_WRITE}
        if retired <= view.reclaimed:
            break
        if time.monotonic() > deadline_s:
            raise SystemExit("not reclaimed in time; `modeaware topics --describe` shows the reason")
        time.sleep(0.5)  # the slowest group decides when the drain ends

    # Retired partitions are revived before new ones are created. The rest is confluent_kafka's create_partitions.
    admin.create_partitions([NewPartitions(args.topic, args.then)])[args.topic].result()
    print(admin.describe_modes([args.topic])[args.topic].result().describe())


if __name__ == "__main__":
    main()
