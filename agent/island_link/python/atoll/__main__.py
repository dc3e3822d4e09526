"""`python -m atoll …` is the program `atoll …` of the same installation; `python -m atoll doctor` looks at this Python first."""

import os
import subprocess
import sys

from . import _doctor
from ._program import of_installation, places


def _run() -> int:
    program = of_installation()
    if sys.argv[1:] == ["doctor"]:
        fits = _doctor.main(program)
        sys.stdout.flush()
        return max(fits, subprocess.call([program, "doctor"])) if program else fits
    if program is None:
        sys.exit("atoll: the program is not installed with this Python package; it was looked for at " + ", ".join(places()))
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(_run())
