"""A controller: one thread that owns all its work, and an endpoint that hands commands to this thread.

The thread ``modeaware-controller`` owns the election's consumer, the log, the records and every decision
(:mod:`modeaware.controller.worker`). The endpoint's thread puts commands into the controller's inbox, and returns modes
from the endpoint's own views (:class:`ControllerFacade`).
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from modeaware.callouts import InnerLock, get_logger
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.metadata import ids_of_each_broker, registered_brokers
from modeaware.cluster.observer import Observer
from modeaware.cluster.unchanged import IdsOfOneBroker
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.controller.cluster_watch import BrokerWatch, TopicWatch
from modeaware.controller.election import Election, LeasedEffects, request_timeout_s
from modeaware.controller.engine import Engine
from modeaware.controller.inbox import Inbox
from modeaware.controller.log import NOWHERE, ClaimWatch, Contact, ControllerLog, describe_claim
from modeaware.controller.status import MODE_LOG, Role, Seen, Snapshot, Status
from modeaware.controller.worker import Worker, run_worker
from modeaware.endpoint.facade import REFRESH_TIMEOUT_S, ActiveController
from modeaware.endpoint.limits import EndpointLimits
from modeaware.endpoint.server import Server
from modeaware.endpoint.transport import Upstream, server_context
from modeaware.errors import ClusterError, ConfigError, ControllerUnavailable, ErrorCode, ModeSourceError
from modeaware.librdkafka import KafkaException
from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.modelog.records import ClaimRecord
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.source import Views
from modeaware.wire.brokers import REQUEST_TIMEOUT_S
from modeaware.wire.client import address_of, is_loopback

logger = get_logger("modeaware.controller")

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 10.0
ELECTION_SLACK_S = 12.0
"""How much longer than a session ``run_once`` waits to be elected. Heartbeats take time, and brokers delay the first
rebalance of an empty group."""
DEFAULT_LISTEN = "127.0.0.1:0"


class Controller:
    """Keeps the partition modes of one cluster (KIP-694's TopicPartitionDeletionManager), or stands by.

    Any number of controllers may run for one mode log. A consumer group elects the active one
    (:mod:`modeaware.controller.election`). If the active controller stops, dies or hangs, another controller takes
    over. All methods and properties may be used from any thread.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        config: the controller's configs.
        listen: ``HOST:PORT`` of the endpoint (:mod:`modeaware.endpoint`), which serves modes to clients and takes admin
            commands (port 0: a free port). If it is None, there is no endpoint.
        advertised: ``HOST:PORT`` by which clients reach the endpoint; by default the address that it listens on.
        tls_certificate, tls_key: PEM files of the endpoint's certificate and its key. By default there is no TLS.
        controller_id: the unique name in the claim record; by default host name, process id and a random suffix.

    Raises:
        ConfigError: there is a key but no certificate; or an advertised address or a certificate, but no endpoint.
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
        _check_listener(listen, advertised, tls_certificate, tls_key)
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
        self._facade: ControllerFacade | None = None
        self._thread: threading.Thread | None = None
        self._worker: Worker | None = None
        self._pages: str | None = None

    @property
    def address(self) -> str | None:
        return self._server.address if self._server is not None else None

    @property
    def controller_id(self) -> str:
        return self._controller_id

    @property
    def role(self) -> Role:
        return self._status.role

    @property
    def is_active(self) -> bool:
        """Return whether this controller acts as the active one. Only brokers can confirm that it still leads."""
        return self._status.role is Role.ACTIVE

    @property
    def epoch(self) -> int | None:
        return self._status.epoch

    @property
    def failure(self) -> BaseException | None:
        """Return the error that has stopped the controller; None while it runs, and after :meth:`stop`."""
        return self._status.failure

    def serves_pages_at(self, address: str) -> None:
        """Set the address (``HOST:PORT``) of the status page, to which standbys link. Call this before
        :meth:`start`."""
        self._pages = address

    def start(self, wait_active_s: float | None = None) -> None:
        """Join the election and serve; return once this controller is active, a standby, or stopped.

        Args:
            wait_active_s: how long to wait, in seconds, for a standby to become active; None: do not wait.

        Raises:
            ControllerUnavailable: this controller is not active after ``wait_active_s``, or was stopped meanwhile.
            ClusterError, ModeSourceError: no broker answers, or the mode log or the election cannot be used.
            ConfigError: librdkafka rejects a setting, or a setting of the endpoint cannot be used.
        """
        try:
            contact = Contact(host=socket.gethostname(), pages=self._pages)
            worker = self._make_worker(contact if self._listen is None else self._serve_at(self._listen, contact))
            self._thread = threading.Thread(
                target=run_worker, args=(worker, self._status, self._inbox), name="modeaware-controller", daemon=True
            )
            self._thread.start()
            decided = self._status.wait(Role.ACTIVE, Role.STANDBY, timeout_s=START_TIMEOUT_S)
            if self._status.stopping.is_set():
                return  # stopped while starting
            if not decided:
                trouble = self._status.trouble
                raise ClusterError(
                    f"no controller was elected within {START_TIMEOUT_S:g} s" + (f": {trouble}" if trouble else ""),
                    code=ErrorCode.REQUEST_TIMED_OUT,
                )
            if wait_active_s is not None and not self._status.wait(Role.ACTIVE, timeout_s=wait_active_s):
                raise ControllerUnavailable(
                    f"not elected within {wait_active_s:g} s: {describe_claim(worker.claims.claim)}"
                )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Finish the current step, release the claim, leave the election, and return when the controller's thread and
        the endpoint's have ended.

        If brokers do not answer, do not wait longer than :data:`STOP_TIMEOUT_S` for the controller's thread. It
        finishes its step later, or ends with the process. Idempotent.
        """
        self._status.stopping.set()
        self._inbox.wake()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
            if self._thread.is_alive():
                logger.warning("stopped without waiting longer: a broker has not responded for %g s", STOP_TIMEOUT_S)
        if self._server is not None:  # after the thread, so that the endpoint answers commands that have just finished
            self._server.stop()
        if self._facade is not None:
            self._facade.close()

    def run_forever(self) -> None:
        """Serve, active or standby, until :meth:`stop` is called."""
        self.start()
        try:
            self._status.wait(Role.STOPPED)
        finally:
            self.stop()

    def run_once(self) -> None:
        """Advance every topic as far as possible now, then leave (``--once``); :meth:`stop` ends this early.

        The run waits for the quiet period of a seal, but not for groups, delays or retention.

        Raises:
            ControllerUnavailable, ControllerFenced: another controller is active, or has become active.
            ClusterError, ModeSourceError: no broker answers, or the mode log cannot be used.
        """
        self._make_worker(NOWHERE).run_once(self._config.session_timeout_ms / 1000 + ELECTION_SLACK_S)

    def submit(self, commands: Sequence[Command], timeout_ms: int = 0) -> Future[list[CommandResult]]:
        """Hand commands to the controller's thread; the future returns one result per command, in order.

        Args:
            timeout_ms: after this time no further command is begun. Commands that were not begun get the code
                THROTTLING_QUOTA_EXCEEDED. If it is 0, there is no limit.

        If the future raises ControllerUnavailable, nothing was done. This controller stands by (the message names the
        controller of the last claim), stops, is overloaded, or is not confirmed by the brokers. The future may raise
        ControllerFenced or ClusterError if all commands failed with the same error. The message then states whether
        anything was done.
        """
        if self._status.stopping.is_set():
            future: Future[list[CommandResult]] = Future()
            future.set_exception(ControllerUnavailable("this controller is stopping"))
            return future
        future = self._inbox.put(commands, timeout_ms)
        if self._status.role is Role.STOPPED:  # stopped just now: the thread no longer reads the inbox
            self._inbox.refuse_all("this controller has stopped: nothing was changed")
        return future

    def snapshot(self) -> Snapshot:
        """Return the controller's state at this moment, without any request and without blocking."""
        status, worker, now_s = self._status, self._worker, self._clock.monotonic_s()
        role, epoch = status.role, status.epoch
        active = role is Role.ACTIVE
        seen = worker.engine.watched.seen() if worker is not None else Seen()
        claim = worker.claims.claim if worker is not None else None
        if active and epoch is not None:
            at = self._server.advertised_address if self._server is not None else None
            claim = ClaimRecord(epoch, at, self._controller_id, 0, socket.gethostname())
        return Snapshot(
            taken_ms=self._clock.now_ms(),
            controller_id=self._controller_id,
            role=role,
            epoch=epoch if active else None,
            address=self.address,
            host=socket.gethostname(),
            claim=claim,
            loop_age_s=None if status.round_s is None else max(now_s - status.round_s, 0.0),
            contact_age_s=None if status.contact_s is None else max(now_s - status.contact_s, 0.0),
            leaderless_s=None if status.leaderless_s is None else max(now_s - status.leaderless_s, 0.0),
            stopped_by=None if status.failure is None else f"{type(status.failure).__name__}: {status.failure}",
            topics=seen.topics if active else (),
            rules=seen.rules,
            ignored_groups=self._config.ignored_groups,
            errors={**seen.errors, MODE_LOG: status.log_failures},
            takeovers=status.takeovers,
        )

    def _serve_at(self, listen: str, contact: Contact) -> Contact:
        """Start the endpoint, and return ``contact`` with the endpoint's address.

        The endpoint's views come from the mode log, read as the controller's own user.
        """
        upstream = Upstream.from_conf(self._conf)
        certificate, key = self._tls_files
        tls = server_context(certificate, key) if certificate is not None else None
        views = registry.acquire(
            self._conf, ClientConfig(mode_log_topic=self._config.mode_log_topic, mode_source="log")
        )
        facade = self._facade = ControllerFacade(
            self._controller_id, self._config.old_clients, views, lambda: self._status.role is Role.ACTIVE
        )
        limits = EndpointLimits(time_by_address=self._config.endpoint_share == "address")
        server = Server(listen, facade, self.submit, facade.refresh, upstream, tls, limits, self._advertised)
        facade.serve_at(server)
        server.start()
        self._server = server
        return replace(contact, address=server.advertised_address, security_protocol=server.security_protocol)

    def _make_worker(self, contact: Contact) -> Worker:
        config, topic, clock = self._config, self._config.mode_log_topic, self._clock
        try:
            cluster = Cluster(self._conf)
            # A request that only the active controller may send has to time out within a session, even a short session.
            timeout_s = request_timeout_s(config.session_timeout_ms)
            leased = cluster if timeout_s == REQUEST_TIMEOUT_S else Cluster(self._conf, timeout_s)
        except KafkaException as error:
            raise ConfigError(f"client settings: {error.args[0].str()}") from error
        election = Election(self._conf, topic, config.session_timeout_ms, clock)
        log = ControllerLog(cluster, self._conf, topic, election)
        effects = LeasedEffects(leased, election, config.session_timeout_ms, clock)
        engine = Engine(
            log,
            Observer(cluster, self._conf, clock, mode_log=topic, probes_fences=True),
            effects,
            config,
            clock,
        )
        self._worker = Worker(
            engine,
            log,
            election,
            ClaimWatch(self._conf, topic),
            self._inbox,
            self._status,
            config,
            contact,
            self._controller_id,
            clock,
            BrokerWatch(lambda: registered_brokers(cluster.brokers), log, config.under_replicated_creation, clock),
            TopicWatch(
                engine,
                IdsOfOneBroker(cluster.brokers),
                lambda names: ids_of_each_broker(cluster.brokers, names),
                clock,
            ),
            (cluster, leased),
        )
        return self._worker


def default_listen(conf: Mapping[str, Any]) -> str | None:
    """Return where a controller listens by default: a free loopback port, or None if ``security.protocol`` is SSL."""
    return None if str(conf.get("security.protocol", "")).upper() == "SSL" else DEFAULT_LISTEN


def _check_listener(listen: str | None, advertised: str | None, certificate: str | None, key: str | None) -> None:
    """Reject settings of the endpoint that would have no effect."""
    if key is not None and certificate is None:
        raise ConfigError(
            "--tls-key needs --tls-certificate: without a certificate the endpoint would listen without TLS"
        )
    options = {"--advertised-listener": advertised, "--tls-certificate": certificate}
    unused = [option for option, value in options.items() if value is not None]
    if listen is None and unused:
        raise ConfigError(
            f"{' and '.join(unused)}: there is no endpoint, because of --listen none, --once or security.protocol=SSL. "
            f"Omit {' and '.join(unused)}; or omit --once, pass --listen HOST:PORT, and use SASL_SSL instead of SSL"
        )


class ControllerFacade:
    """The endpoint's interface to a controller, active or standby: modes and claim, as on the mode log."""

    def __init__(self, controller_id: str, old_clients: str, views: Views, active: Callable[[], bool]) -> None:
        self._controller_id = controller_id
        self._old_clients = old_clients
        self._views = views
        self._active = active
        self._server: Server | None = None
        self._version = 0
        self._lock = InnerLock()
        self._next_read: Future[None] | None = None
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="modeaware-refresh")
        views.subscribe(self._changed)

    def serve_at(self, server: Server) -> None:
        self._server = server

    def close(self) -> None:
        """Release the views. Waiting refreshes end with an error."""
        self._views.unsubscribe(self._changed)
        self._views.close()
        self._reads.shutdown(wait=False, cancel_futures=True)

    @property
    def controller_id(self) -> str:
        return self._controller_id

    @property
    def old_clients(self) -> str:
        return self._old_clients

    @property
    def advertised(self) -> tuple[str, int]:
        return self._endpoint().advertised

    def views(self, topic: str) -> TopicView:
        return self._ready().view(topic)

    def records(self) -> Mapping[str, TopicView]:
        return self._ready().views()

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        return self._ready().removed(topic_ids)

    def version(self) -> int:
        # The version rises once a change is in force. So an answer may be newer than its version, but never older.
        return self._version

    def is_active(self) -> bool:
        return self._active()

    def claim(self) -> ActiveController | None:
        claim = self._ready().claim()
        if claim is None:
            return None
        address = address_of(claim)
        if is_loopback(claim.address or ""):
            # A loopback address is valid only on the host of the claim.
            only_here = self._endpoint().loopback and claim.host in ("", socket.gethostname())
            address = address if only_here else None
        return ActiveController(claim.controller_id, *(address or ()))

    def refresh(self) -> Future[None]:
        """Read the log to its present end. All requests that arrive before a read begins share that read."""
        future: Future[None] = Future()

        def answer(read: Future[None]) -> None:
            if not future.set_running_or_notify_cancel():
                return
            failure = ModeSourceError("the controller is stopping") if read.cancelled() else read.exception()
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

        with self._lock:
            if self._next_read is None:
                self._next_read = self._reads.submit(self._read)
            read = self._next_read
        read.add_done_callback(answer)  # not under the lock: this thread may call ``answer`` at once
        return future

    def _read(self) -> None:
        with self._lock:
            self._next_read = None
        self._views.refresh(REFRESH_TIMEOUT_S)

    def _endpoint(self) -> Server:
        assert self._server is not None, "set before any client can connect"
        return self._server

    def _ready(self) -> Views:
        if not self._views.ready:
            raise ModeSourceError("the mode log has not been read yet") from self._views.error()
        return self._views

    def _changed(self, changed: Mapping[str, TopicView]) -> None:
        self._version += 1
