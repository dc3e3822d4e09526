"""`python -m atoll …` is the program `atoll …` of the same installation."""

import os
import pathlib
import sys
import sysconfig


def _program() -> str:
    # pip puts a package into PREFIX/lib/python3.N/site-packages and its programs into PREFIX/bin; with --target they lie beside each other.
    above = list(pathlib.Path(__file__).resolve().parent.parents)[:4]
    places = [folder / "bin" / "atoll" for folder in above] + [pathlib.Path(sysconfig.get_path("scripts")) / "atoll"]
    for place in places:
        if os.access(place, os.X_OK):
            return str(place)
    sys.exit("atoll: the program is not installed with this Python package; it was looked for at " + ", ".join(map(str, places)))


if __name__ == "__main__":
    program = _program()
    os.execv(program, [program, *sys.argv[1:]])
