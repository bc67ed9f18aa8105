"""What a mode log says of topics, to see that something changed nothing."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from modeaware.modelog.reader import read_mode_log
from tests.support.plain import TIMEOUT_S


def topic_records(bootstrap_servers: str, mode_log: str) -> tuple[dict[str, bytes], int] | None:
    """Topic id -> its record now, and how many records could not be used; None while there is no log.

    Not offsets: a transaction's marker takes one too, and is written after the commit has been answered. Whatever was
    committed before the call is waited for.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    if mode_log not in admin.list_topics(timeout=TIMEOUT_S).topics:
        return None
    replay = read_mode_log({"bootstrap.servers": bootstrap_servers}, mode_log, TIMEOUT_S, must_exist=True)
    return {topic_id: record.to_json() for topic_id, record in replay.records.items()}, replay.rejected
