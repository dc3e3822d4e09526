"""Starts a program as ranks on this machine, where torchrun does not start: Debian 12's has no Python 3.11, Debian 13's wants libuv, which it lacks.

    python -m atoll.ranks 2 train.py --its-own arguments
    python -m atoll.ranks 2 -m package.module

Each rank has WORLD_SIZE, RANK, LOCAL_WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them, with a free port. A rank that fails
ends the others; this program ends with its status, with 128 and the signal's number for one that was killed, and with 0 once all have ended so.
Signals that ask it to end are passed on; where it is killed, the kernel ends its ranks.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Optional, Sequence

__all__ = ["free_port", "main"]

_PASSED_ON = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2
_PATIENCE_SECONDS = 10.0  # with ranks that are asked to end, before they are killed
_USAGE = "usage: python -m atoll.ranks N program.py [arguments…], or N -m module [arguments…]"


def free_port() -> int:
    """Below the range from which outgoing connections get theirs: none of those takes it before it is listened at."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def _end_with(parent: int) -> None:
    """In a rank, before its program begins: the kernel ends it when the process that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _started(ranks: int, program: Sequence[str]) -> list[subprocess.Popen[bytes]]:
    here = os.getpid()
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "USE_LIBUV": "0"}
    given = {"GLOO_SOCKET_IFNAME": "lo", **os.environ, **common}
    return [
        subprocess.Popen([sys.executable, *program], env={**given, "RANK": str(rank), "LOCAL_RANK": str(rank)}, preexec_fn=lambda: _end_with(here))
        for rank in range(ranks)
    ]


def _status(code: int) -> int:
    return 128 - code if code < 0 else code


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Waits for all of them, and ends the rest after the first that fails; what that one has ended with."""
    failed: Optional[int] = None
    killed_at = 0.0
    while None in [process.poll() for process in processes]:
        found = next((rank for rank, process in enumerate(processes) if process.returncode), None)
        if failed is None and found is not None:
            failed, killed_at = found, time.monotonic() + _PATIENCE_SECONDS
            print(f"atoll.ranks: rank {failed} has ended with status {_status(processes[failed].returncode)}, and the others end with it", file=sys.stderr)
            _pass_on(processes, signal.SIGTERM)
        if failed is not None and time.monotonic() > killed_at:
            _pass_on(processes, signal.SIGKILL)
        time.sleep(0.05)
    codes = [process.returncode for process in processes]
    return _status(codes[failed] if failed is not None else next((code for code in codes if code), 0))


def _pass_on(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def main(arguments: Sequence[str]) -> int:
    """The status to end with. arguments: N, the program and its own."""
    if len(arguments) < 2 or not arguments[0].isdecimal() or int(arguments[0]) < 1:
        print(_USAGE, file=sys.stderr)
        return 2
    processes: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: Any) -> None:
        _pass_on(processes, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    processes += _started(int(arguments[0]), arguments[1:])
    return _ended(processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
