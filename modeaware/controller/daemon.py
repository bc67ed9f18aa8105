"""The controller process: one thread that owns all its work, one listener that hands commands to it."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.config import ControllerConfig
from modeaware.controller.cluster import Cluster
from modeaware.controller.engine import Engine
from modeaware.controller.listener import Listener
from modeaware.controller.log import ControllerLog
from modeaware.controller.observer import Observer
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode, ModeAwareError, ModeSourceError
from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.lifecycle.phases import topic_phase
from modeaware.modelog.reader import read_mode_log
from modeaware.wire.client import is_running

logger = logging.getLogger("modeaware.controller")

START_TIMEOUT_S = 90.0
FIRST_READ_TIMEOUT_S = 20.0
RECLAIM_DELAY_S = 2.0
SEAL_SLACK_MS = 1_000
_Job = tuple[Sequence[Command], "Future[list[CommandResult]]"]


class Controller:
    """Keeps the partition modes of one cluster (KIP-694's TopicPartitionDeletionManager).

    The thread ``modeaware-controller`` owns the log, the records and every decision; the listener's thread only hands
    commands to it. ``start``, ``stop`` and ``submit`` may be called from any thread.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        config: the controller's configs.
        listen: ``HOST:PORT`` to take admin commands at (port 0: a free one), or None for no listener.
        controller_id: the name that stands in the claim record; unique; default made of host name and process id.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        config: ControllerConfig,
        *,
        listen: str | None = "127.0.0.1:0",
        controller_id: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._conf = dict(conf)
        self._config = config
        self._listen = listen
        self._controller_id = controller_id or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._clock = clock
        self._inbox: queue.Queue[_Job | None] = queue.Queue(maxsize=1000)
        self._stopping = threading.Event()
        self._claimed: Future[None] = Future()
        self._finished: Future[None] = Future()
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str | None:
        """Where the listener listens, ``host:port``; None before ``start`` or without one."""
        return self._listener.address if self._listener is not None else None

    @property
    def failure(self) -> BaseException | None:
        """Why it has stopped by itself; None while it runs, and after :meth:`stop`."""
        return self._finished.exception() if self._finished.done() else None

    def start(self) -> None:
        """Claim the mode log and serve; returns once both are done.

        Raises:
            ControllerUnavailable: another controller is running.
            ClusterError, ModeSourceError: no broker, or the mode log cannot be used.
            KafkaException: librdkafka does not take a setting.
        """
        self._refuse_second_controller(unless_elsewhere=True)
        engine, log = self._engine()
        if self._listen is not None:
            self._listener = Listener(self._listen, self.submit, self._controller_id)
            self._listener.start()
        self._thread = threading.Thread(target=self._run, args=(engine, log), name="modeaware-controller", daemon=True)
        self._thread.start()
        try:
            self._claimed.result(START_TIMEOUT_S)
        except FutureTimeoutError as error:
            self.stop()
            raise ClusterError(
                f"the mode log could not be claimed within {START_TIMEOUT_S:g} s", code=ErrorCode.REQUEST_TIMED_OUT
            ) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Finish the step at hand, release the claim, and return when all threads have ended. Idempotent."""
        self._stopping.set()
        with suppress(queue.Full):  # then its thread has something to wake up for already
            self._inbox.put_nowait(None)
        if self._listener is not None:
            self._listener.stop()
        if self._thread is not None:
            self._thread.join()

    def run_forever(self) -> None:
        """Serve until :meth:`stop` is called.

        Raises:
            ControllerFenced: another controller has taken over.
        """
        self.start()
        try:
            self._finished.result()
        finally:
            self.stop()

    def run_once(self) -> None:
        """Take every topic as far as it goes now, then let go of the mode log (``--once``).

        The quiet time before a seal is waited for: a run that did not could never seal anything. Groups, delays and
        retention are not. :meth:`stop` ends it early.

        Raises:
            ControllerUnavailable, ControllerFenced: another controller is running, or has taken over.
            ClusterError, ModeSourceError: no broker, or the mode log cannot be used.
        """
        self._refuse_second_controller()
        engine, log = self._engine()
        try:
            engine.claim(None, self._controller_id, socket.gethostname())
            self._settle(engine)
        finally:
            log.close()

    def _settle(self, engine: Engine) -> None:
        patience_ms = self._config.seal_quiet_ms + SEAL_SLACK_MS
        give_up_ms = self._clock.now_ms() + patience_ms
        while not self._stopping.is_set():
            if any(engine.check(topic_id) for topic_id in engine.schedule.due(self._clock.now_ms())):
                give_up_ms = self._clock.now_ms() + patience_ms
            now_ms, next_ms = self._clock.now_ms(), engine.schedule.next_ms()
            sealing = any(topic_phase(record) == "seal" for record in engine.records)
            if next_ms is None or (next_ms > now_ms and not (sealing and now_ms < give_up_ms)):
                return
            self._stopping.wait(max(min(next_ms, give_up_ms) - now_ms, 0) / 1000)

    def submit(self, commands: Sequence[Command], timeout_ms: int = 0) -> Future[list[CommandResult]]:
        """Hand commands to the controller's thread; the future gives one result per command, in order."""
        future: Future[list[CommandResult]] = Future()
        if self._stopping.is_set():
            future.set_exception(ControllerUnavailable("this controller is stopping"))
            return future
        try:
            self._inbox.put_nowait((commands, future))
        except queue.Full:
            future.set_exception(ControllerUnavailable("too many commands are waiting: try again", code=_BUSY))
        return future

    def _engine(self) -> tuple[Engine, ControllerLog]:
        cluster = Cluster(self._conf)
        log = ControllerLog(cluster, self._conf, self._config.mode_log_topic)
        observer = Observer(cluster, self._conf, self._clock)
        return Engine(log, observer, cluster, self._config, self._clock), log

    def _refuse_second_controller(self, *, unless_elsewhere: bool = False) -> None:
        """One controller at a time: a second one would fence the first, and they would take turns.

        One that claimed from another host cannot be asked from here. Whoever starts a controller (``unless_elsewhere``)
        means it to take over then, which fences the other; nobody else does.
        """
        claim = read_mode_log(self._conf, self._config.mode_log_topic, FIRST_READ_TIMEOUT_S).claim
        try:
            running = is_running(claim)
        except ControllerUnavailable as error:
            if not unless_elsewhere:
                raise
            logger.warning("%s; this one takes over, and the other stops if it still runs", error)
            return
        if running and claim is not None:
            raise ControllerUnavailable(
                f"a controller ({claim.controller_id}) is running at {claim.address}: commands go there by themselves"
            )

    def _run(self, engine: Engine, log: ControllerLog) -> None:
        try:
            self._claim_and_serve(engine)
            if not self._finished.done():
                self._finished.set_result(None)
        except ModeAwareError as error:
            logger.error("controller stops: %s", error)
            self._fail(error)
        except Exception as error:
            logger.exception("controller stops: this is a bug in modeaware")
            self._fail(error)
            raise
        finally:
            self._stopping.set()
            self._drop_waiting()
            log.close()

    def _claim_and_serve(self, engine: Engine) -> None:
        while not self._stopping.is_set():
            try:
                engine.claim(self.address, self._controller_id, socket.gethostname())
                if not self._claimed.done():
                    self._claimed.set_result(None)
                self._serve(engine)
                engine.release()
            except (ClusterError, ModeSourceError) as error:
                if not self._claimed.done():
                    raise
                # What became of the last append is not known: a new claim reads the log again.
                logger.warning("%s; claiming the mode log again", error)
                self._stopping.wait(RECLAIM_DELAY_S)

    def _serve(self, engine: Engine) -> None:
        while not self._stopping.is_set():
            job = self._next_job(engine)
            if job is not None:
                self._execute(engine, *job)
            for topic_id in engine.schedule.due(self._clock.now_ms()):
                engine.check(topic_id)
                if not self._inbox.empty():
                    break  # commands do not wait for a round over all topics

    def _next_job(self, engine: Engine) -> _Job | None:
        next_ms = engine.schedule.next_ms()
        wait_s = None if next_ms is None else max(next_ms - self._clock.now_ms(), 0) / 1000
        try:
            return self._inbox.get(block=wait_s != 0, timeout=wait_s)
        except queue.Empty:
            return None

    def _execute(self, engine: Engine, commands: Sequence[Command], future: Future[list[CommandResult]]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            results = [engine.execute(command) for command in commands]
        except ModeAwareError as error:
            future.set_exception(error)
            raise
        else:
            future.set_result(results)
        finally:
            if not future.done():
                future.set_exception(ControllerUnavailable("this controller has stopped on an unexpected error"))

    def _drop_waiting(self) -> None:
        while True:
            try:
                job = self._inbox.get_nowait()
            except queue.Empty:
                return
            if job is not None and job[1].set_running_or_notify_cancel():
                job[1].set_exception(ControllerUnavailable("this controller has stopped: nothing was changed"))

    def _fail(self, error: Exception) -> None:
        for future in (self._claimed, self._finished):
            if not future.done():
                future.set_exception(error)


_BUSY = ErrorCode.REQUEST_TIMED_OUT
