"""build/python, which tests/run.sh makes of tests/own/frameworks.txt where a package index is reached."""

import importlib.util
import os
import pathlib
import sys

ENVIRONMENT = pathlib.Path(__file__).resolve().parents[2] / "build/python"


def enter(*packages):
    """The test goes on with the Python there. Exit status 4, a skip: a package is not there."""
    if (ENVIRONMENT / "bin/python").exists() and pathlib.Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
        os.execv(ENVIRONMENT / "bin/python", [str(ENVIRONMENT / "bin/python"), *sys.argv])
    for package in packages:
        if importlib.util.find_spec(package) is None:
            print(f"skipped: {package} is not installed (pip install -r tests/own/frameworks.txt, into build/python)")
            sys.exit(4)
