"""Where the program `atoll` of this installation is, and whether a file of an installation is whole."""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
import struct
import sysconfig
from typing import Optional

_MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file


def places() -> list[str]:
    # pip puts a package into PREFIX/lib/python3.N/site-packages and its programs into PREFIX/bin; with --target they lie beside each other.
    above = list(pathlib.Path(__file__).resolve().parent.parents)[:4]
    found = [folder / "bin" / "atoll" for folder in above] + [pathlib.Path(sysconfig.get_path("scripts")) / "atoll"]
    return list(map(str, found))


def misfit(path: str) -> str:
    """Why the program or library at `path` cannot be used, and what to do; else nothing. One that was written in part would kill whoever loads it."""
    try:
        with open(path, "rb") as file:
            head = file.read(64).ljust(64, b"\0")
    except OSError as failure:
        return f"cannot be read: {failure.strerror}"
    machine, table, row, rows = struct.unpack_from("<18xH20xQ10xHH", head)
    if head[:4] != b"\x7fELF" or os.path.getsize(path) < table + row * rows:  # the table of sections is last in the file
        return "is damaged, or was written in part: install Atoll again (pip install --force-reinstall)"
    if _MACHINES.get(machine, platform.machine()) != platform.machine():
        return f"is for {_MACHINES[machine]}, and this machine is {platform.machine()}: install Atoll for this one"
    return ""


def of_installation() -> Optional[str]:
    return next((place for place in places() if os.access(place, os.X_OK)), None)


def anywhere() -> Optional[str]:
    """Of this installation, else of $PATH."""
    return of_installation() or shutil.which("atoll")
