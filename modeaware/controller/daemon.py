"""A controller: one thread that owns all its work, one listener that hands commands to it."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.observer import Observer
from modeaware.cluster.registered import registered_brokers
from modeaware.cluster.topic_identity import ids_of_each_broker, ids_of_one_broker
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.controller.claims import ClaimWatch, describe_claim
from modeaware.controller.contact import DEFAULT_LISTEN, NOWHERE, Contact, check_listener
from modeaware.controller.desk import ControllerDesk
from modeaware.controller.election import Election
from modeaware.controller.engine import Engine
from modeaware.controller.inbox import Inbox
from modeaware.controller.lease import LeasedEffects, request_timeout_s
from modeaware.controller.log import ControllerLog
from modeaware.controller.observed import BrokerWatch
from modeaware.controller.parts import Parts
from modeaware.controller.replaced import TopicWatch
from modeaware.controller.status import Role, Status
from modeaware.controller.watched import MODE_LOG, Seen, Snapshot
from modeaware.controller.worker import Worker, run_worker
from modeaware.endpoint.server import Server
from modeaware.endpoint.tls import server_context
from modeaware.endpoint.upstream import Upstream
from modeaware.errors import ClusterError, ConfigError, ControllerUnavailable, ErrorCode
from modeaware.librdkafka import KafkaException
from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.modelog.records import ClaimRecord
from modeaware.views import registry
from modeaware.wire.brokers.client import REQUEST_TIMEOUT_S

logger = logging.getLogger("modeaware.controller")

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 10.0
ELECTION_SLACK_S = 12.0
"""What ``run_once`` gives an election on top of the session: heartbeats, and the brokers' delay for an empty group."""


class Controller:
    """Keeps the partition modes of one cluster (KIP-694's TopicPartitionDeletionManager), or stands by to.

    Any number may run for one mode log: one of them is active, elected by a consumer group
    (:mod:`modeaware.controller.election`), the others are standbys that take over when it stops, dies or hangs.

    The thread ``modeaware-controller`` owns the election's consumer, the log, the records and every decision
    (:mod:`modeaware.controller.worker`); the listener's thread only hands commands to it. All methods and properties
    may be used from any thread.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        config: the controller's configs.
        listen: ``HOST:PORT`` for the endpoint (:mod:`modeaware.endpoint`), which tells clients the modes and takes
            admin commands (port 0: a free one); None: no endpoint.
        advertised: ``HOST:PORT`` by which clients are to reach it; None: where it listens.
        tls_certificate, tls_key: PEM files of the endpoint's certificate and its key; None: no TLS.
        controller_id: the name that stands in the claim record; unique; default made of host name and process id.

    Raises:
        ConfigError: a key without a certificate; or an advertised address or a certificate without an endpoint.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        config: ControllerConfig,
        *,
        listen: str | None = DEFAULT_LISTEN,
        advertised: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        controller_id: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        check_listener(listen, advertised, tls_certificate, tls_key)
        self._conf = dict(conf)
        self._config = config
        self._listen = listen
        self._advertised = advertised
        self._tls_files = (tls_certificate, tls_key)
        self._controller_id = controller_id or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._clock = clock
        self._status = Status()
        self._inbox = Inbox(clock)
        self._server: Server | None = None
        self._desk: ControllerDesk | None = None
        self._thread: threading.Thread | None = None
        self._made: Parts | None = None

    @property
    def address(self) -> str | None:
        """Where the endpoint listens, ``host:port``; None before ``start`` or without one."""
        return self._server.address if self._server is not None else None

    @property
    def controller_id(self) -> str:
        """The name that stands in the claim record."""
        return self._controller_id

    @property
    def role(self) -> Role:
        """Active, standby, or neither."""
        return self._status.role

    @property
    def is_active(self) -> bool:
        """Whether it has claimed the mode log and not noticed that another has. The brokers know better."""
        return self._status.role is Role.ACTIVE

    @property
    def epoch(self) -> int | None:
        """The epoch of its claim while it is active."""
        return self._status.epoch

    @property
    def failure(self) -> BaseException | None:
        """Why it has stopped by itself; None while it runs, and after :meth:`stop`."""
        return self._status.failure

    def start(self, wait_active_s: float | None = None) -> None:
        """Join the election and serve; returns once it is active or a standby.

        Args:
            wait_active_s: return only when it is active, within so many seconds after that.

        Raises:
            ControllerUnavailable: ``wait_active_s`` have passed and another one is active. It has been stopped.
            ClusterError, ModeSourceError: no broker, or the mode log or the election cannot be used.
            ConfigError: a setting that librdkafka does not take, or one of the endpoint's cannot be used.
        """
        parts = self._parts()
        try:
            contact = NOWHERE if self._listen is None else self._serve_at(self._listen)
            worker = Worker(parts, self._config, contact, self._controller_id, self._clock)
            self._thread = threading.Thread(
                target=run_worker, args=(worker, self._status, self._inbox), name="modeaware-controller", daemon=True
            )
            self._thread.start()
            decided = self._status.wait(Role.ACTIVE, Role.STANDBY, timeout_s=START_TIMEOUT_S)
            if self._status.stopping.is_set():
                return  # somebody has told it to stop already
            if not decided:
                trouble = self._status.trouble
                raise ClusterError(
                    f"no election of a controller within {START_TIMEOUT_S:g} s" + (f": {trouble}" if trouble else ""),
                    code=ErrorCode.REQUEST_TIMED_OUT,
                )
            if wait_active_s is not None and not self._status.wait(Role.ACTIVE, timeout_s=wait_active_s):
                raise ControllerUnavailable(
                    f"not elected within {wait_active_s:g} s: {describe_claim(parts.claims.claim)}"
                )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Finish the step at hand, release the claim, leave the election, and return when all threads have ended.

        Where brokers do not answer, returns after :data:`STOP_TIMEOUT_S`; a thread that is still waiting for them then
        does nothing more but its step, and ends with the process. Idempotent.
        """
        self._status.stopping.set()
        self._inbox.wake()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
            if self._thread.is_alive():
                logger.warning("stopped, while a broker has not answered for %g s", STOP_TIMEOUT_S)
        if self._server is not None:  # only now: what the thread has just finished is still answered
            self._server.stop()
        if self._desk is not None:
            self._desk.close()

    def run_forever(self) -> None:
        """Serve, active or standby, until :meth:`stop` is called.

        Raises:
            ModeAwareError: as of :meth:`start`; or the mode log was claimed by a controller of a newer version.
        """
        self.start()
        try:
            self._status.wait(Role.STOPPED)
        finally:
            self.stop()

    def run_once(self) -> None:
        """Take every topic as far as it goes now, then let go of the mode log (``--once``).

        The quiet time before a seal is waited for: a run that did not could never seal anything. Groups, delays and
        retention are not. :meth:`stop` ends it early.

        Raises:
            ControllerUnavailable, ControllerFenced: another controller is active, or has become it.
            ClusterError, ModeSourceError: no broker, or the mode log cannot be used.
        """
        worker = Worker(self._parts(), self._config, NOWHERE, self._controller_id, self._clock)
        worker.run_once(self._config.session_timeout_ms / 1000 + ELECTION_SLACK_S)

    def submit(self, commands: Sequence[Command], timeout_ms: int = 0) -> Future[list[CommandResult]]:
        """Hand commands to the controller's thread; the future gives one result per command, in order.

        Args:
            timeout_ms: after that no further command is begun, and the future ends: commands that were not begun have
                the code THROTTLING_QUOTA_EXCEEDED. 0: no limit.

        The future may raise instead:
            ControllerUnavailable: it stands by (the message names the active one), or stops; nothing was done.
            ControllerFenced, ClusterError: of the only command, or of all: the message says whether anything was done.
        """
        if self._status.stopping.is_set():
            future: Future[list[CommandResult]] = Future()
            future.set_exception(ControllerUnavailable("this controller is stopping"))
            return future
        future = self._inbox.put(commands, timeout_ms)
        if self._status.role is Role.STOPPED:  # it stopped in between: nobody will look into the inbox again
            self._inbox.refuse_all("this controller has stopped: nothing was changed")
        return future

    def snapshot(self) -> Snapshot:
        """What it is and sees now, for those who watch it. Costs its thread nothing, asks no broker, never blocks."""
        status, made, now_s = self._status, self._made, self._clock.monotonic_s()
        role, epoch = status.role, status.epoch
        active = role is Role.ACTIVE
        seen = made.engine.watched.seen() if made is not None else Seen((), (), {})
        return Snapshot(
            taken_ms=self._clock.now_ms(),
            controller_id=self._controller_id,
            role=role,
            epoch=epoch if active else None,
            address=self.address,
            claim=self._claim_known(made, epoch if active else None),
            loop_age_s=None if status.round_s is None else max(now_s - status.round_s, 0.0),
            contact_age_s=None if status.contact_s is None else max(now_s - status.contact_s, 0.0),
            stopped_by=None if status.failure is None else f"{type(status.failure).__name__}: {status.failure}",
            topics=seen.topics if active else (),
            rules=seen.rules,
            ignored_groups=self._config.ignored_groups,
            errors={**seen.errors, MODE_LOG: status.log_failures},
            takeovers=status.takeovers,
        )

    def _claim_known(self, made: Parts | None, epoch: int | None) -> ClaimRecord | None:
        if epoch is not None:
            at = self._server.advertised_address if self._server is not None else None
            return ClaimRecord(epoch, at, self._controller_id, 0, socket.gethostname())
        return made.claims.claim if made is not None else None

    def _serve_at(self, listen: str) -> Contact:
        """Start the endpoint. The views it tells are those of the mode log, read as the controller's own user."""
        upstream = Upstream.from_conf(self._conf)
        certificate, key = self._tls_files
        tls = server_context(certificate, key) if certificate is not None else None
        log = ClientConfig(mode_log_topic=self._config.mode_log_topic, mode_source="log")
        views = registry.acquire(self._conf, log)
        desk = self._desk = ControllerDesk(
            self._controller_id, self._config.old_clients, views, lambda: self._status.role is Role.ACTIVE
        )
        server = Server(listen, desk, self.submit, desk.refresh, upstream, tls, advertised=self._advertised)
        desk.serve_at(server)
        server.start()
        self._server = server
        return Contact(server.advertised_address, socket.gethostname(), server.security_protocol)

    def _parts(self) -> Parts:
        config, topic = self._config, self._config.mode_log_topic
        try:
            cluster = Cluster(self._conf)
            # Where the session is short, so is the time for what only a leader may send.
            timeout_s = request_timeout_s(config.session_timeout_ms)
            leased = cluster if timeout_s == REQUEST_TIMEOUT_S else Cluster(self._conf, timeout_s)
        except KafkaException as error:
            raise ConfigError(f"client settings: {error.args[0].str()}") from error
        election = Election(self._conf, topic, config.session_timeout_ms, self._clock)
        log = ControllerLog(cluster, self._conf, topic, election)
        observer = Observer(cluster, self._conf, self._clock)
        effects = LeasedEffects(leased, election, config.session_timeout_ms, self._clock)
        engine = Engine(log, observer, effects, config, self._clock)
        claims = ClaimWatch(self._conf, topic)
        brokers = BrokerWatch(
            lambda: registered_brokers(cluster.brokers), log, config.under_replicated_creation, self._clock
        )
        topics = TopicWatch(
            engine,
            lambda names: ids_of_one_broker(cluster.brokers, names),
            lambda names: ids_of_each_broker(cluster.brokers, names),
            self._clock,
        )
        clusters = (cluster, leased)
        self._made = Parts(engine, log, election, claims, self._inbox, self._status, brokers, clusters, topics)
        return self._made
