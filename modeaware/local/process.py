"""A broker's process, which ends with its owner or outlives it, and the wait until the broker serves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from modeaware.callouts import InnerLock
from modeaware.errors import LocalKafkaError
from modeaware.librdkafka import AdminClient, KafkaException

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
_POLL_S = 0.01


class OwnedProcess:
    """A program whose supervisor (:mod:`modeaware.local.supervisor`) kills it when this process, its owner, ends.

    Thread-safe. Not to be used in a forked child of the owner.

    Args:
        command: the program and its arguments.
        log: the file to which the program's output is appended.
        data: the supervisor removes this folder if the owner disappears.

    Raises:
        LocalKafkaError: the program cannot be started.
    """

    def __init__(self, command: Sequence[str], log: Path, data: Path) -> None:
        script = Path(__file__).with_name("supervisor.py")
        arguments = [sys.executable, "-I", "-S", str(script), str(os.getpid()), str(data), *command]
        with log.open("ab") as output:
            self._supervisor = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,
                start_new_session=True,  # a Ctrl-C at the terminal reaches only the owner
            )
        self._turn = InnerLock()
        started = self._read_reply()
        if started is None:
            self.wait(5)
            raise LocalKafkaError(f"{command[0]} could not be started, see {log}")
        self.pid = started

    def running(self) -> bool:
        """Return False once the program has ended and been reaped."""
        return self._supervisor.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal; without effect if the program has ended."""
        assert self._supervisor.stdin is not None
        with self._turn:
            if not self.running():
                return
            try:
                self._supervisor.stdin.write(b"%d\n" % number)
            except BrokenPipeError:
                return  # it has just ended
            self._read_reply()

    def wait(self, timeout_s: float) -> bool:
        """Return whether the program has ended within the timeout."""
        try:
            self._supervisor.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()
        return True

    def _read_reply(self) -> int | None:
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        return int(line) if line else None


class DetachedProcess:
    """A program in its own session that outlives this process and can be found again by its id.

    ``marker`` is a part of the program's command line. If a process of that id has no ``marker`` in its command line,
    the process is another program: the id was reused.
    """

    def __init__(self, pid: int, marker: str) -> None:
        self.pid = pid
        self._marker = marker
        self._ended: threading.Event | None = None

    @classmethod
    def launch(cls, command: Sequence[str], log: Path, marker: str) -> DetachedProcess:
        """Start a program whose command line contains ``marker``; its output is appended to ``log``."""
        with log.open("ab") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        process, ended = cls(child.pid, marker), threading.Event()
        process._ended = ended

        def reap() -> None:
            child.wait()
            ended.set()

        threading.Thread(target=reap, name="modeaware-local-reaper", daemon=True).start()
        return process

    def running(self) -> bool:
        """Return False once the program has ended and been reaped."""
        if self._ended is not None:  # of our own child, reap() notes the end; during exec, its command line is empty
            return not self._ended.is_set()
        return self._marker in command_line(self.pid)

    def signal(self, number: int) -> None:
        """Send a signal; without effect if the program has ended."""
        if not self.running():
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return  # it has just ended

    def wait(self, timeout_s: float) -> bool:
        """Return whether the program has ended within the timeout."""
        deadline = time.monotonic() + timeout_s
        while self.running():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)  # for a process that is not our child, there is no event to wait for
        return True


BrokerProcess = OwnedProcess | DetachedProcess


def command_line(pid: int) -> str:
    """Return the arguments of a running process; empty if it has ended (or is a zombie) or is not visible to us."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return ""
    return _ps("command=", pid)


def wait_until_stopped(pid: int) -> None:
    """Wait until SIGSTOP has taken effect: the kernel stops the threads of a process one by one.

    Raises:
        LocalKafkaError: the process is not stopped within :data:`STOP_TIMEOUT_S`.
    """
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not _all_threads_stopped(pid):
        if time.monotonic() > deadline:
            raise LocalKafkaError(f"process {pid} still runs after SIGSTOP ({signal.SIGSTOP})")
        time.sleep(_POLL_S)  # the state of another process has no event to wait for


def _all_threads_stopped(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():
        return _ps("state=", pid).startswith("T")
    return all(_thread_stopped(task / "stat") for task in tasks.iterdir())


def _thread_stopped(stat: Path) -> bool:
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True  # the thread has ended
    return fields.rpartition(")")[2].split()[0] == "T"


def _ps(column: str, pid: int) -> str:
    listed = subprocess.run(["ps", "-ww", "-o", column, "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()


def wait_until_serving(
    address: str,
    node_ids: Collection[int],
    *,
    deadline: float,
    cluster_id: str | None = None,
    check: Callable[[], None] = lambda: None,
    client_config: Mapping[str, str] | None = None,
) -> None:
    """Wait until the broker at ``address`` answers Metadata and lists all of ``node_ids`` (registered and unfenced).

    Args:
        node_ids: if empty, any answer counts.
        deadline: on :func:`time.monotonic`'s clock, in seconds.
        cluster_id: if given, answers of another cluster do not count: one of its brokers may have taken the port.
        check: called between attempts; raises an error if waiting is pointless.
        client_config: librdkafka settings for the connection.

    Raises:
        LocalKafkaError: the broker does not serve by the deadline. Errors of ``check`` are passed on.
    """
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": address,
        "log_level": 0,  # errors of a broker that is still starting are expected
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        **(client_config or {}),
    }
    admin = AdminClient(settings)
    while True:
        check()
        try:
            metadata = admin.list_topics(timeout=1)
        except KafkaException as error:
            reason = str(error)
        else:
            ours = cluster_id is None or metadata.cluster_id == cluster_id
            if ours and set(metadata.brokers).issuperset(node_ids):
                return
            reason = f"it lists the brokers {sorted(metadata.brokers)}, expected {sorted(node_ids)}"
            if not ours:
                reason = f"a broker of another cluster, {metadata.cluster_id}, answers there"
        if time.monotonic() > deadline:
            raise LocalKafkaError(f"the broker at {address} was not ready in time: {reason}")
        time.sleep(2 * _POLL_S)  # no event to wait for: a broker does not report that it has started
