"""`python -m atoll doctor`: what of a Python a program would have, in 80 columns, with an exit code. Arguments as own_test.py's."""

import os
import pathlib
import socket
import subprocess
import tempfile
import unittest

from islands import HAS_TORCH, PYTHON


class Doctor(unittest.TestCase):
    def asked(self, **environment):
        given = {key: value for key, value in os.environ.items() if key not in ("ATOLL_ISLAND_LINK", "WORLD_SIZE", "RANK")}
        done = subprocess.run([PYTHON, "-m", "atoll", "doctor"], env={**given, **environment}, capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80 + max(len(each) for each in done.stdout.split()))  # a path is not broken
        for line in done.stdout.splitlines():
            self.assertTrue(len(line) <= 80 or len(line.split()[-1]) > 40, line)
        return done.returncode, " ".join(done.stdout.split())

    def test_what_there_is(self):
        with tempfile.TemporaryDirectory() as folder:
            code, said = self.asked(ATOLL_STATE=folder)
            self.assertEqual(code, 0, said)
            self.assertIn(f"ok library {os.environ['ATOLL_TRAINER_LIBRARY']}", said)
            self.assertIn(f"none waits at {folder}/trainers: a program trains alone here", said)
            self.assertIn("ok PyTorch " + (__import__("torch").__version__ if HAS_TORCH else "not installed"), said)

    def test_what_does_not_fit_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for given, why in (
                ({"ATOLL_TRAINER_LIBRARY": folder + "/none.so"}, f"BAD library .*{folder}/none.so"),
                ({"ATOLL_ISLAND_LINK": folder + "/none"}, f"BAD agent {folder}/none .*where no agent is"),
                ({"WORLD_SIZE": "4"}, "BAD ranks WORLD_SIZE is 4 and RANK is not set"),
            ):
                with self.subTest(given):
                    code, said = self.asked(ATOLL_STATE=folder, **given)
                    self.assertEqual(code, 1, said)
                    self.assertRegex(said, why)
            pathlib.Path(folder, "torch.py").write_text("raise ImportError('libtorch_cpu.so: cannot open shared object file')")
            code, said = self.asked(ATOLL_STATE=folder, PYTHONPATH=f"{folder}:{os.environ['PYTHONPATH']}")
            self.assertEqual((code, "BAD PyTorch cannot be imported: libtorch_cpu.so" in said), (1, True), said)

    def test_agents_that_wait_for_a_program(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listens, socket.socket(socket.AF_UNIX) as gone:
            os.mkdir(folder + "/trainers")
            for one, name in ((listens, "gpt"), (gone, "old")):
                one.bind(f"{folder}/trainers/{name}")
            listens.listen()
            code, said = self.asked(ATOLL_STATE=folder)
            self.assertIn(f"ok agent atoll.join(path='{folder}/trainers/gpt')", said)
            self.assertIn(f"BAD agent atoll.join(path='{folder}/trainers/old'): nobody listens there", said)
            self.assertEqual(code, 1)
            listens.setblocking(False)
            self.assertRaises(BlockingIOError, listens.accept)  # nobody has taken a run away


if __name__ == "__main__":
    unittest.main(verbosity=2)
