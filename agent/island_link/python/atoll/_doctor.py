"""`python -m atoll doctor`: what of this Python a program would have, and what does not fit."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import stat
import sys
import textwrap
from typing import Iterator, NamedTuple, Optional

from . import _library as library

_COLUMNS, _LABEL = 80, 10
_OLDEST_PYTHON, _OLDEST_TORCH, _SHARDS_TORCH = (3, 9), (1, 13), (2, 4)


class Found(NamedTuple):
    what: str
    said: str
    fits: bool = True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdecimal())


def _python() -> Iterator[Found]:
    fits = sys.version_info[:2] >= _OLDEST_PYTHON
    yield Found("Python", f"{platform.python_version()}, {sys.executable}" + ("" if fits else ": needs 3.9 or newer"), fits)


def _torch() -> Iterator[Found]:
    if importlib.util.find_spec("torch") is None:
        yield Found("PyTorch", "not installed: atoll.torch needs it, NumPy's loops and JAX's do not")
        return
    try:
        import torch
    except Exception as failure:  # whatever a half-installed one raises
        yield Found("PyTorch", f"cannot be imported: {failure}", False)
        return
    version = str(torch.__version__)
    if _numbers(version) < _OLDEST_TORCH:
        yield Found("PyTorch", f"{version}: needs 1.13 or newer", False)
        return
    devices = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU that it sees"
    shards = "" if _numbers(version) >= _SHARDS_TORCH else "; FSDP2 (fully_shard) needs 2.4"
    yield Found("PyTorch", f"{version}, {devices}{shards}")


def _jax() -> Iterator[Found]:
    try:
        yield Found("JAX", importlib.metadata.version("jax"))
    except importlib.metadata.PackageNotFoundError:
        yield Found("JAX", "not installed: atoll.jax needs it")


def _library() -> Iterator[Found]:
    wanted = os.environ.get("ATOLL_TRAINER_LIBRARY")
    try:
        taken = library.path_of_library()
    except library.LinkError as failure:
        yield Found("library", str(failure), False)
        return
    except AttributeError as failure:
        yield Found("library", f"is of another version of Atoll: {failure}", False)
        return
    if wanted and os.path.abspath(taken) != os.path.abspath(wanted):
        yield Found("library", f"{taken} is taken, for $ATOLL_TRAINER_LIBRARY, {wanted}, cannot be loaded", False)
    else:
        yield Found("library", taken)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _listening() -> set[str]:
    """Sockets in the file system that somebody listens at; connecting would take an agent's run away from a program."""
    try:
        rows = [line.split(None, 7) for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
    except OSError:
        return set()
    return {row[7] for row in rows if len(row) == 8 and int(row[3], 16) & 0x10000}


def _agent() -> Iterator[Found]:
    link = os.environ.get("ATOLL_ISLAND_LINK")
    if link:
        path = link[len("ipc://") :] if link.startswith("ipc://") else link
        there = _is_socket(path)
        yield Found("agent", f"{path} ($ATOLL_ISLAND_LINK)" + ("" if there else ", where no agent is: unset it, and the program trains alone"), there)
        return
    state = os.environ.get("ATOLL_STATE") or os.path.expanduser("~/.local/state/atoll")
    sockets, heard = sorted(path for path in pathlib.Path(state, "trainers").glob("*") if _is_socket(str(path))), _listening()
    for path in sockets:
        fits = str(path) in heard
        yield Found("agent", f"atoll.join(path={str(path)!r})" + ("" if fits else ": nobody listens there, its agent has ended"), fits)
    if not sockets:
        yield Found("agent", f"none has started this shell, and none waits at {state}/trainers: a program trains alone here")


def _ranks() -> Iterator[Found]:
    ranks, rank = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK")
    if ranks != "1" and rank is None:
        yield Found("ranks", f"WORLD_SIZE is {ranks} and RANK is not set: a program would wait for other ranks; unset it", False)


def _lines(found: Found) -> Iterator[str]:
    mark = "ok" if found.fits else "BAD"
    head = f"{mark:<4}{found.what:<{_LABEL}}"
    yield textwrap.fill(found.said, _COLUMNS, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False, break_on_hyphens=False)


def main(program: Optional[str], unfit: str) -> int:
    """Prints a line for each, and gives 1 if one does not fit, else 0. program: `atoll`, whose doctor looks at the machine; None: not here. unfit: what
    keeps it from being started."""
    found = [each for part in (_python, _torch, _jax, _library, _agent, _ranks) for each in part()]
    if program is None:
        found.append(Found("program", "atoll is not installed with this package: on an island `atoll doctor` looks at the machine"))
    elif unfit:
        found.append(Found("program", f"{program} {unfit}", False))
    for each in found:
        print("\n".join(_lines(each)))
    return int(any(not each.fits for each in found))
