"""`python -m atoll …` is the program `atoll …` of the same installation; `python -m atoll doctor` looks at this Python first."""

import os
import pathlib
import subprocess
import sys
import sysconfig

from . import _doctor


def _places() -> list[str]:
    # pip puts a package into PREFIX/lib/python3.N/site-packages and its programs into PREFIX/bin; with --target they lie beside each other.
    above = list(pathlib.Path(__file__).resolve().parent.parents)[:4]
    places = [folder / "bin" / "atoll" for folder in above] + [pathlib.Path(sysconfig.get_path("scripts")) / "atoll"]
    return list(map(str, places))


def _run() -> int:
    program = next((place for place in _places() if os.access(place, os.X_OK)), None)
    if sys.argv[1:] == ["doctor"]:
        fits = _doctor.main(program)
        sys.stdout.flush()
        return max(fits, subprocess.call([program, "doctor"])) if program else fits
    if program is None:
        sys.exit("atoll: the program is not installed with this Python package; it was looked for at " + ", ".join(_places()))
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(_run())
