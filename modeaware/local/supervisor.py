"""Runs one program for an owner and ensures that it never outlives the owner. Standard library only.

Started as a script: ``python -I -S supervisor.py OWNER_PID DATA_FOLDER PROGRAM ARG...``. The script prints the
program's process id. Each line on standard input is the number of a signal for the program; once the signal is sent,
the script prints the line. The script exits when the program does. The owner is gone if the script's input closes, or
the script gets another parent (after a crash or SIGKILL). Then the script kills the program and removes the data
folder, but no logs. The program writes to the script's standard error. The script sends the signals because only a
parent can be sure that a process id still belongs to its child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1
_OWNER_CHECK_S = 1.0
_last_word = threading.Lock()


def main(argv: list[str]) -> int:
    owner, data, command = int(argv[1]), argv[2], argv[3:]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        # The program must end, too, if this supervisor is killed. The kernel ends the program with the thread that
        # started the program: the main thread, because this process has no other thread yet.
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    threading.Thread(target=_exit_with, args=(child,), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):  # the pipe is broken if the owner is gone
        _reply(child.pid)
        _obey(owner, child)
    _last_word.acquire()  # held until this process ends
    child.kill()
    child.wait()
    shutil.rmtree(data, ignore_errors=True)
    return 0


def _exit_with(child: subprocess.Popen[bytes]) -> None:
    code = child.wait()
    if _last_word.acquire(blocking=False):  # if main() holds the lock, the owner is gone, and main() cleans up
        os._exit(code & 0xFF)


def _obey(owner: int, child: subprocess.Popen[bytes]) -> None:
    """Send signals until the owner is gone. Check the parent, too: a fork of the owner may keep the pipe open."""
    requests = b""
    while os.getppid() == owner:
        if not select.select([0], [], [], _OWNER_CHECK_S)[0]:
            continue
        read = os.read(0, 4096)
        if not read:
            return
        *lines, requests = (requests + read).split(b"\n")
        for line in lines:
            child.send_signal(int(line))
            _reply(int(line))


def _reply(number: int) -> None:
    os.write(1, b"%d\n" % number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
