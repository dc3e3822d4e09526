"""`python -m atoll.ranks N program`: what ranks are given, and how they end together. Arguments as own_test.py's."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from islands import PATIENCE, PYTHON

GIVEN = "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def begun(self, ranks, body, *arguments):
        """body: lines of the program, which has `rank` and `folder`."""
        program = pathlib.Path(self.folder.name, "program.py")
        program.write_text(f"import os, signal, sys, time\nrank, folder = int(os.environ['RANK']), {self.folder.name!r}\n{body}\n")
        return subprocess.Popen([PYTHON, "-m", "atoll.ranks", str(ranks), str(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(self, process):
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def wait_for(self, *names):
        deadline = time.monotonic() + PATIENCE
        while not all(os.path.exists(os.path.join(self.folder.name, name)) for name in names):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_what_each_is_given(self):
        body = f"open(folder + f'/{{rank}}', 'w').write(' '.join([*(os.environ[name] for name in {GIVEN}), *sys.argv[1:]]))"
        self.assertEqual(self.ended(self.begun(3, body, "--rate", "2")), (0, "", ""))
        for rank in range(3):
            said = pathlib.Path(self.folder.name, str(rank)).read_text()
            self.assertEqual(said, f"3 {rank} 3 {rank} 127.0.0.1 --rate 2")

    def test_one_that_fails_ends_the_others_with_its_status(self):
        waits = "open(folder + f'/{rank}', 'w')\nwhile not os.path.exists(folder + '/0'): time.sleep(0.01)\n"
        for ends, status in (("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("raise ValueError('bad')", 1)):
            with self.subTest(ends):
                began = time.monotonic()
                code, _, err = self.ended(self.begun(2, waits + f"if rank == 1: {ends}\ntime.sleep(600)"))
                self.assertEqual(code, status)
                self.assertIn(f"rank 1 has ended with status {status}, and the others end with it", err)
                self.assertLess(time.monotonic() - began, PATIENCE)

    def test_signals_are_passed_on(self):
        caught = "signal.signal(signal.SIGTERM, lambda *_: (open(folder + f'/caught-{rank}', 'w'), sys.exit(3)))\nopen(folder + f'/{rank}', 'w')\ntime.sleep(600)"
        process = self.begun(2, caught)
        self.wait_for("0", "1")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.ended(process)[0], 3)
        self.wait_for("caught-0", "caught-1")

    def test_ranks_end_where_it_is_killed(self):
        process = self.begun(2, "open(folder + f'/{rank}', 'w').write(str(os.getpid()))\ntime.sleep(600)")
        self.wait_for("0", "1")
        deadline = time.monotonic() + PATIENCE
        numbers = []
        while len(numbers) < 2:
            self.assertLess(time.monotonic(), deadline)
            numbers = [int(text) for rank in "01" if (text := pathlib.Path(self.folder.name, rank).read_text())]
        process.kill()
        self.ended(process)
        while any(os.path.exists(f"/proc/{number}") for number in numbers):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_how_it_is_called(self):
        for words in ([], ["2"], ["two", "program.py"], ["0", "program.py"]):
            done = subprocess.run([PYTHON, "-m", "atoll.ranks", *words], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr.split(":")[0]), (2, "usage"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
