"""How a program comes to its island: by the agent that started it, by an agent's socket, or alone."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from typing import Any, Optional

from . import _library as library
from ._alone import Alone
from ._island import Refused, digest_of

_OF_THE_PROGRAM = ImportError, SyntaxError, NameError  # which another try meets again


def connect(name: Optional[str], path: Optional[str], ranks: int, version: str = "1", *, steps: Optional[int] = None, **alone: Any) -> Any:
    """An agent's link, or what stands in for it where there is none. `path`: of an agent's STATE/trainers/NAME, where this waits until the
    agent has a run for it. `steps`: how many there are without an agent; None: no end. `alone`: of Alone, what holds then."""
    held = None
    if path:
        path, held = attach(path)
    path = path or os.environ.get("ATOLL_ISLAND_LINK")
    if not path:
        return Alone({} if steps is None else {"training": {"steps": steps}}, **alone)
    if held is None:
        die_with_parent()
    trainer = library.Trainer(path, name or os.path.basename(sys.argv[0] or "python"), code_digest() or version, ranks)
    trainer.held = held  # the agent takes its end for this program's
    tell_failures(trainer)
    return trainer


def code_digest() -> str:
    """Of the program's main file: islands of a run with [trainer].same_code must agree in it. Empty in a notebook."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path or not os.path.isfile(path):
        return ""
    with open(path, "rb") as file:
        return "sha256:" + digest_of(iter([file.read()]))[:32]


def attach(path: str) -> tuple[str, socket.socket]:
    """Waits at an agent's socket for a run; the path of its link, and the connection that is held as long as this program takes part."""
    told = None
    if len(os.fsencode(path)) > 107:  # the kernel's limit
        raise Refused(f"{path} has {len(os.fsencode(path))} bytes, and a socket's path at most 107: start the agent with a shorter --state")
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
            link = connection.makefile().readline().strip()
            if link:
                return link, connection
            why = f"atoll: waits for the agent behind {path} to have a run"
        except FileNotFoundError:
            why = f"atoll: waits for {path}, which is not there: an agent makes STATE/trainers/NAME once it is started with --trainer NAME=attach"
        except ConnectionError:
            if os.path.isfile(path) or os.path.isdir(path):
                raise Refused(f"{path} is no agent's socket, STATE/trainers/NAME, but a {'folder' if os.path.isdir(path) else 'file'}") from None
            why = f"atoll: waits for an agent at {path}, where nobody listens"
        except OSError as failure:
            raise Refused(f"{path} is no agent's socket, STATE/trainers/NAME: {failure.strerror or failure}") from None
        if why != told:  # once for each thing that is waited for
            print(why, file=sys.stderr, flush=True)
            told = why
        connection.close()
        time.sleep(0.2)


def die_with_parent() -> None:
    """Has the kernel end this process when the one that started it ends."""
    import ctypes
    import signal

    try:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    except (OSError, AttributeError):
        pass


def tell_failures(trainer: Any) -> None:
    """An exception that nobody catches is told to the agent before the program ends."""
    before, process = sys.excepthook, os.getpid()

    def hook(kind, value, trace):
        if os.getpid() == process and not issubclass(kind, KeyboardInterrupt):  # not in a process that a data loader has forked
            lines = "".join(traceback.format_exception_only(kind, value)).strip().splitlines()
            said = lines[-1] if issubclass(kind, SyntaxError) else " ".join(line.strip() for line in lines)  # of which the place comes first
            said = str(value) if isinstance(value, Refused) else said
            trainer.fail(said[:1000], getattr(value, "permanent", False) is True or issubclass(kind, _OF_THE_PROGRAM))
            trainer.leave()
        before(kind, value, trace)

    sys.excepthook = hook
