"""Types of what the Python package gives its users: all of the public interface, and a program of theirs, in strict mode. See environment.py."""

import environment

environment.enter("torch", "mypy", "pyright")

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "agent/island_link/python"
TO_FIND = {**os.environ, "PYTHONPATH": str(PACKAGE), "MYPYPATH": str(PACKAGE)}


def said(*words):
    """(status, what a checker says)"""
    done = subprocess.run([sys.executable, "-m", *words], env=TO_FIND, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@unittest.skipUnless(shutil.which("node"), "Node.js is not installed, by which pyright runs")
class Pyright(unittest.TestCase):
    def test_each_public_name_has_a_known_type(self):
        """Also of what its signatures name; of other libraries nothing is asked."""
        _, text = said("pyright", "--pythonpath", sys.executable, "--verifytypes", "atoll", "--ignoreexternal")
        self.assertIn("py.typed", text)
        exported = re.search(r'Symbols exported by "atoll": (\d+)\n  With known type: (\d+)', text)
        self.assertGreater(int(exported[1]), 40)
        self.assertEqual(exported[1], exported[2], text)
        self.assertIn("Type completeness score: 100%", text)

    def test_a_program_in_strict_mode(self):
        with tempfile.TemporaryDirectory() as folder:
            program = shutil.copy(HERE / "typed_program.py", folder)
            pathlib.Path(folder, "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
            status, text = said("pyright", "--pythonpath", sys.executable, "--project", folder, program)
            self.assertEqual(status, 0, text)
            pathlib.Path(program).write_text(pathlib.Path(program).read_text().replace("steps=10", "steps='ten'"))
            status, text = said("pyright", "--pythonpath", sys.executable, "--project", folder, program)
            self.assertIn('"steps"', text)


class Mypy(unittest.TestCase):
    def test_a_program_in_strict_mode(self):
        with tempfile.TemporaryDirectory() as folder:
            check = "mypy", "--strict", "--follow-imports", "silent", "--cache-dir", folder
            status, text = said(*check, str(HERE / "typed_program.py"))
            self.assertEqual(status, 0, text)
            wrong = pathlib.Path(folder, "wrong.py")
            wrong.write_text((HERE / "typed_program.py").read_text().replace("steps=10", "steps='ten'"))
            status, text = said(*check, str(wrong))
            self.assertEqual((status, 'Argument "steps" to "join" has incompatible type' in text), (1, True), text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
