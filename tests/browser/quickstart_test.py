"""examples/quickstart.sh, with a program that is built and a small run: it ends with the address of a page that shows the run.

    quickstart_test.py ATOLL
"""

import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.dont_write_bytecode = True
import live_run  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ATOLL = str(pathlib.Path(sys.argv[1]).resolve())


class Quickstart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.web = f"127.0.0.1:{live_run.free_port()}"
        (self.folder / "text").mkdir()
        (self.folder / "text" / "text").write_text("namespace std { template <class T> T twice(T t) { return t + t; } }\n" * 500)
        run = (SOURCE / "examples/quickstart.toml").read_text()
        for old, new in (('"/usr/include/c++/*/*", "/usr/include/c++/*/bits/*.h", "/usr/include/c++/*/ext/*.h"', f'"{self.folder}/text/*"'), ("layers = 4", "layers = 1"), ("width = 128", "width = 32"),
                         ("steps = 600", "steps = 20"), ("warmup_steps = 50", "warmup_steps = 1"), ("inner_steps = 30", "inner_steps = 5"), ("sequence_length = 128", "sequence_length = 64")):
            self.assertIn(old, run)
            run = run.replace(old, new)
        (self.folder / "run.toml").write_text(run)
        self.environment = {**os.environ, "ATOLL": ATOLL, "ATOLL_WEB": self.web, "OMP_NUM_THREADS": "1"}
        self.command = [str(SOURCE / "examples/quickstart.sh"), str(self.folder / "run.toml"), str(self.folder / "state")]

    def test_in_a_pipe_it_ends_with_the_address(self):
        done = subprocess.run(self.command, env=self.environment, capture_output=True, text=True, errors="replace", timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the model writes:\n", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], f"open http://{self.web}/")

    def test_on_a_terminal_the_page_shows_the_run_that_just_ended(self):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        self.addCleanup(lambda: (process.kill(), process.wait(), os.close(ours)))
        os.close(theirs)
        said = ""
        end = time.monotonic() + 240
        while f"open http://{self.web}/" not in said and time.monotonic() < end:
            try:
                said += os.read(ours, 65536).decode(errors="replace")
            except OSError:  # the script has ended
                self.fail(said)
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.web}/api/runs", timeout=5) as answer:
                    runs = json.load(answer)["runs"]
                break
            except OSError:
                self.assertLess(time.monotonic(), end, said)
                time.sleep(0.1)
        self.assertEqual([(run["name"], run["state"], run["round"]) for run in runs], [("quickstart", "completed", 4)])
        with urllib.request.urlopen(f"http://{self.web}/", timeout=5) as answer:
            self.assertIn("<title>Atoll</title>", answer.read().decode())
        process.terminate()
        self.assertEqual(process.wait(timeout=20), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
