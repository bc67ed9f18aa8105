"""The folder of ``--certificates``: ``--wait`` writes the certificate of each topic that a change deletes.

A certificate is made from the topic's record in the mode log. The record of most replaced topics stays there, as an
alias. But a change that keeps the topic's name, through an interim topic, leaves no alias. The record of the old topic
is removed when the interim topic is deleted, and the record of the interim topic ten minutes later. So the first check
that finds a topic deleted takes the topic's certificate.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from modeaware.cli.progress import run_interruptibly, tell
from modeaware.errors import RequestRefused
from modeaware.plan.html import write_file
from modeaware.reports.certificate import Certificate, take_certificate
from modeaware.reports.describe import TopicDescription
from modeaware.reports.serialise import json_text
from modeaware.reports.session import Session


def add_certificates_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--certificates``."""
    what = "write the certificate of each topic that is deleted to FOLDER/TOPIC.json"
    why = "after a change that keeps the name, these certificates can no longer be taken"
    parser.add_argument("--certificates", type=Path, metavar="FOLDER", help=f"with --wait: {what}; {why}")


class CertificateFolder:
    """Writes the certificate of each topic to ``TOPIC.json``, once. Without a folder, nothing is written."""

    def __init__(self, folder: Path | None, session: Session) -> None:
        self._folder = folder
        self._session = session
        self._ended: set[str] = set()

    def write(self, topic: TopicDescription) -> None:
        """Write the certificates of the topics that a change has deleted so far.

        Raises:
            ClusterError, ModeSourceError: no answer. The next call writes the missing certificates.
            ModeAwareError: a file cannot be written.
        """
        if self._folder is None:
            return
        for name in [name for name in _deleted(topic) if name not in self._ended]:
            try:
                certificate = run_interruptibly(partial(_take, self._session, name))
            except RequestRefused as error:  # for example because another tool deleted the topic
                tell(f"{name}: no certificate: {error}")
            else:
                file = self._folder / f"{name}.json"
                write_file(f"{json_text(certificate)}\n", file)
                tell(f"Written: {file}")
            self._ended.add(name)


def _deleted(topic: TopicDescription) -> list[str]:
    """Return the topics that a change has deleted so far. A change that keeps a name deletes two, one by one."""
    if (kept := topic.kept_name) is not None:
        return [kept.name] * (kept.half == 2) + [kept.interim] * (kept.phase == "done")
    return [topic.topic] if topic.replacing.gone_ms is not None else []


def _take(session: Session, topic: str) -> Certificate:
    # A session of its own: after Ctrl-C this work may still run while the command closes ``session``.
    with Session(session.conf, session.config, session.controller) as own:
        certificate = take_certificate(own, topic)
    if certificate.topic != topic:
        raise RequestRefused("its record is no longer in the mode log", topic=topic)
    return certificate
