"""The thread that writes a trainer's state while its steps go on."""

from __future__ import annotations

import os
import threading
from typing import Callable, Optional

_NICE = 10  # the steps come first


def sync(path: str) -> None:
    """What lies at `path` is on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_file(name: str, content: bytes, directory: str) -> None:
    with open(os.path.join(directory, name), "wb") as file:
        file.write(content)


class Saver:
    """One write at a time: begin(), then taken() when ended()."""

    def __init__(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self._failure: Optional[BaseException] = None

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def begin(self, write: Callable[[str], None], directory: str) -> None:
        """write: puts all that is to be saved into the folder."""
        assert self._thread is None
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(write, directory), name="atoll-save")
        self._thread.start()

    def _run(self, write: Callable[[str], None], directory: str) -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # of this thread alone
        except (AttributeError, OSError):
            pass
        try:
            write(directory)
            for name in os.listdir(directory):
                sync(os.path.join(directory, name))
        except BaseException as failure:
            self._failure = failure

    def ended(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    def wait(self, seconds: Optional[float] = None) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def taken(self) -> Optional[BaseException]:
        """What went wrong. Another write may begin."""
        self.wait()
        self._thread = None
        return self._failure
