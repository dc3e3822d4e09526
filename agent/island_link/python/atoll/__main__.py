"""`python -m atoll …` is the program `atoll …` of the same installation; `python -m atoll doctor` looks at this Python first."""

import os
import subprocess
import sys

from . import _doctor
from ._program import misfit, of_installation, places


def _run() -> int:
    program = of_installation()
    unfit = misfit(program) if program else ""
    if sys.argv[1:] == ["doctor"]:
        fits = _doctor.main(program, unfit)
        sys.stdout.flush()
        return max(fits, subprocess.call([program, "doctor"])) if program and not unfit else fits
    if program is None:
        sys.exit("atoll: the program is not installed with this Python package; it was looked for at " + ", ".join(places()))
    if unfit:
        sys.exit(f"atoll: {program} {unfit}")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(_run())
