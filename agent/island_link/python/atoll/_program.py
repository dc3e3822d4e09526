"""Where the program `atoll` of this installation is."""

from __future__ import annotations

import os
import pathlib
import shutil
import sysconfig
from typing import Optional


def places() -> list[str]:
    # pip puts a package into PREFIX/lib/python3.N/site-packages and its programs into PREFIX/bin; with --target they lie beside each other.
    above = list(pathlib.Path(__file__).resolve().parent.parents)[:4]
    found = [folder / "bin" / "atoll" for folder in above] + [pathlib.Path(sysconfig.get_path("scripts")) / "atoll"]
    return list(map(str, found))


def of_installation() -> Optional[str]:
    return next((place for place in places() if os.access(place, os.X_OK)), None)


def anywhere() -> Optional[str]:
    """Of this installation, else of $PATH."""
    return of_installation() or shutil.which("atoll")
